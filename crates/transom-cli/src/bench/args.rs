//! Arguments of a bench.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use crate::bench::PAIRS;
use crate::bench::os::congestion;
use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::{OnOff, Way};

/// How a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Watch memory and poll the completion queue.
    Spin,
    /// Watch memory and nothing else, as programs do that were written for a NIC: the adapter's own
    /// thread moves the bytes. Of bandwidth: the other side makes no call. Other benches that watch no
    /// memory take it for `spin`.
    Watch,
    /// Sleep until something completes.
    Block,
}

impl Wait {
    /// Whether a processor is busy meanwhile.
    pub(crate) fn is_busy(self) -> bool {
        self != Wait::Block
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Watch => "watch",
            Wait::Block => "block",
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
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    path: Way,
    /// Take bytes from, and read them into, memory that the other side may map: of the latency and bandwidth
    /// benches
    #[arg(long)]
    shared: bool,
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
    pub(crate) connections: usize,
    /// How many of them are active; the others are idle. The baseline has these alone
    #[arg(long, default_value_t = 100)]
    pub(crate) active: usize,
    #[command(flatten)]
    pub(crate) common: Args,
}

/// Options of `check`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Live tokens
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) tokens: usize,
    /// Each check waits for the answer before it, or they overlap, or share a guard too
    #[arg(long, value_enum, default_value_t = Order::All)]
    pub(crate) order: Order,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Accepted for uniformity: the baseline (one unguarded load of a 64-byte entry in the same
    /// order) is always taken
    #[arg(long)]
    pub(crate) baseline: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
    pub(crate) size: usize,
    #[arg(long, value_enum)]
    pub(crate) crc: OnOff,
    #[arg(long)]
    pub(crate) congestion: String,
    #[arg(long, value_enum)]
    pub(crate) path: Way,
    #[arg(long)]
    pub(crate) shared: bool,
    #[arg(long)]
    pub(crate) leave_window_open: bool,
}

/// Options that make sense.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) size: usize,
    pub(crate) slice: Duration,
    pub(crate) wait: Wait,
    pub(crate) crc: OnOff,
    pub(crate) path: Way,
    pub(crate) congestion: String,
    pub(crate) baseline: bool,
    pub(crate) json: bool,
    /// The memory on this side is a shared region.
    pub(crate) shared: bool,
    pub(crate) leave_window_open: bool,
}

impl Args {
    /// With `size` unless another was asked for, which may be as much as `most`.
    pub(crate) fn checked(&self, size: usize, most: usize) -> Outcome<Plan> {
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
            shared: self.shared,
            leave_window_open: self.leave_window_open,
        })
    }
}

/// The length of one measurement of a pair.
pub(crate) fn slice(seconds: f64) -> Outcome<Duration> {
    if !(0.001..=3600.0).contains(&seconds) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--seconds {seconds}: too short or too long"),
        )
        .try_this("--seconds 0.001 to --seconds 3600"));
    }
    Ok(Duration::from_secs_f64(seconds / PAIRS as f64))
}
