//! Arguments of a bench.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use super::{PAIRS, congestion};
use crate::exit::{Exit, Failure, Outcome};

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}

impl OnOff {
    pub(crate) fn is_on(self) -> bool {
        self == OnOff::On
    }

    pub(crate) fn name(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// How a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Watch memory and poll the completion queue.
    Spin,
    /// Watch memory and nothing else, as programs do that were written for a NIC: the adapter's own
    /// thread moves the bytes. Benches that watch no memory take it for `spin`.
    Watch,
    /// Sleep until something completes.
    Block,
}

impl Wait {
    /// Whether a processor is busy meanwhile.
    pub(super) fn is_busy(self) -> bool {
        self != Wait::Block
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Watch => "watch",
            Wait::Block => "block",
        }
    }
}

/// Which road the bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Shared memory where that is possible, else TCP.
    Auto,
    /// TCP.
    Tcp,
    /// Shared memory.
    Process,
}

impl Path {
    pub(super) fn name(self) -> &'static str {
        match self {
            Path::Auto => "auto",
            Path::Tcp => "tcp",
            Path::Process => "process",
        }
    }

    pub(super) fn option(self) -> transom::Path {
        match self {
            Path::Auto => transom::Path::Auto,
            Path::Tcp => transom::Path::Tcp,
            Path::Process => transom::Path::Process,
        }
    }
}

/// Options of the benches with two processes.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Args {
    /// Bytes per message, or of the memory [default: 8; 1048576 for bandwidth; 4096 for `register`]
    #[arg(long)]
    size: Option<usize>,
    /// Seconds to measure; as long again for each baseline
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How each side waits
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    wait: Wait,
    /// Checksums
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    crc: OnOff,
    /// The road
    #[arg(long, value_enum, default_value_t = Path::Tcp)]
    path: Path,
    /// The congestion control of both sides of a ratio [default: the system's]
    #[arg(long)]
    congestion: Option<String>,
    /// Interleave the bare equivalent, in at least 15 pairs
    #[arg(long)]
    baseline: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// For tests: the peer does not revoke its window, which must be noticed
    #[arg(long, hide = true)]
    leave_window_open: bool,
}

/// Options of `connections`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ConnectionsArgs {
    /// Connections in all, idle ones included
    #[arg(long, default_value_t = 10_000)]
    pub(super) connections: usize,
    /// How many of them are active; the others are idle. The baseline has these alone
    #[arg(long, default_value_t = 100)]
    pub(super) active: usize,
    #[command(flatten)]
    pub(super) common: Args,
}

/// Options of `check`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Live tokens
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) tokens: usize,
    /// Each check waits for the answer before it, or they overlap, or share a guard too
    #[arg(long, value_enum, default_value_t = Order::All)]
    pub(super) order: Order,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    pub(super) seconds: f64,
    /// Accepted for uniformity: the baseline (one unguarded load of a 64-byte entry in the same
    /// order) is always taken
    #[arg(long)]
    pub(super) baseline: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Whether checks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Each depends on the one before.
    Dependent,
    /// Checks overlap, each under a guard of its own, as frames of one buffer are handled.
    Overlapped,
    /// Checks overlap and share guards, as a gather list is judged.
    Batched,
    /// All of these orders, in turn.
    All,
}

/// Arguments of the peer's process.
#[derive(Debug, ClapArgs)]
pub(crate) struct PeerArgs {
    #[arg(long)]
    pub(super) size: usize,
    #[arg(long, value_enum)]
    pub(super) crc: OnOff,
    #[arg(long)]
    pub(super) congestion: String,
    #[arg(long, value_enum)]
    pub(super) path: Path,
    #[arg(long)]
    pub(super) leave_window_open: bool,
}

/// Options that make sense.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) size: usize,
    pub(super) slice: Duration,
    pub(super) wait: Wait,
    pub(super) crc: OnOff,
    pub(super) path: Path,
    pub(super) congestion: String,
    pub(super) baseline: bool,
    pub(super) json: bool,
    pub(super) leave_window_open: bool,
}

impl Args {
    /// With `size` unless another was asked for, which may be as much as `most`.
    pub(super) fn checked(&self, size: usize, most: usize) -> Outcome<Plan> {
        let size = self.size.unwrap_or(size);
        if !(1..=most).contains(&size) {
            return Err(Failure::new(Exit::Usage, format!("--size {size}: nothing to measure"))
                .try_this(format!("--size 1 to --size {most}")));
        }
        Ok(Plan {
            size,
            slice: slice(self.seconds)?,
            wait: self.wait,
            crc: self.crc,
            path: self.path,
            congestion: self.congestion.clone().unwrap_or_else(congestion),
            baseline: self.baseline,
            json: self.json,
            leave_window_open: self.leave_window_open,
        })
    }
}

/// The length of one measurement of a pair.
pub(super) fn slice(seconds: f64) -> Outcome<Duration> {
    if !(0.001..=3600.0).contains(&seconds) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--seconds {seconds}: too short or too long"),
        )
        .try_this("--seconds 0.001 to --seconds 3600"));
    }
    Ok(Duration::from_secs_f64(seconds / PAIRS as f64))
}
