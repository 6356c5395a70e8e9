//! `transom bench`: measurements, and the raw equivalent interleaved with them.
//!
//! Two processes: this one measures, the *peer* (the same program, started by this one) answers.
//! They agree on what comes next over a plain socket, which is also the baseline's; so nobody spins
//! while the other one is measured.

mod bandwidth;
mod baseline;
mod check;
#[expect(unsafe_code, reason = "an allocator that counts")]
mod cost;
mod latency;
pub(crate) mod peer;
mod report;
mod same_host;
mod stats;

use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use serde::Serialize;

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
    /// Sleep until something completes.
    Block,
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
    fn name(self) -> &'static str {
        match self {
            Path::Auto => "auto",
            Path::Tcp => "tcp",
            Path::Process => "process",
        }
    }

    fn option(self) -> transom::Path {
        match self {
            Path::Auto => transom::Path::Auto,
            Path::Tcp => transom::Path::Tcp,
            Path::Process => transom::Path::Process,
        }
    }
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Half a round trip: each side Writes into the other's memory and watches its own
    WriteLatency(Args),
    /// Writes, several at a time
    WriteBandwidth(Args),
    /// Reads, several at a time
    ReadBandwidth(Args),
    /// Judging one access, guard included
    Check(CheckArgs),
    /// Bytes per registration, and bytes of ours per idle connection
    Memory(cost::Args),
}

/// Options of the benches with two processes.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Args {
    /// Bytes per message [default: 8 for latency, 1048576 for bandwidth]
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
    /// Interleave the same bytes over a bare socket, in at least 15 pairs
    #[arg(long)]
    baseline: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `check`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Live tokens
    #[arg(long, default_value_t = 1_000_000)]
    tokens: usize,
    /// Each check waits for the answer before it, or they overlap, or share a guard too
    #[arg(long, value_enum, default_value_t = Order::All)]
    order: Order,
    /// Seconds to measure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Accepted for uniformity: the baseline (one unguarded load of a 64-byte entry in the same
    /// order) is always taken
    #[arg(long)]
    baseline: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Whether checks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Each depends on the one before.
    Dependent,
    /// They overlap, each under a guard of its own, as frames of one buffer are handled.
    Overlapped,
    /// They overlap and share guards, as a gather list is judged.
    Batched,
    /// One after the other.
    All,
}

/// Arguments of the peer's process.
#[derive(Debug, ClapArgs)]
pub(crate) struct PeerArgs {
    #[arg(long)]
    size: usize,
    #[arg(long, value_enum)]
    crc: OnOff,
    #[arg(long)]
    congestion: String,
    #[arg(long, value_enum)]
    path: Path,
}

/// Pairs of ours and baseline.
const PAIRS: usize = 15;

pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::WriteLatency(args) => latency::run(&args.checked(8)?),
        Command::WriteBandwidth(args) => bandwidth::run(&args.checked(1 << 20)?, true),
        Command::ReadBandwidth(args) => bandwidth::run(&args.checked(1 << 20)?, false),
        Command::Check(args) => check::run(args),
        Command::Memory(args) => cost::run(args),
    }
}

/// Options that make sense.
#[derive(Clone, Debug)]
struct Plan {
    size: usize,
    slice: Duration,
    wait: Wait,
    crc: OnOff,
    path: Path,
    baseline: bool,
    json: bool,
}

impl Args {
    fn checked(&self, size: usize) -> Outcome<Plan> {
        let size = self.size.unwrap_or(size);
        if !(1..=64 << 20).contains(&size) {
            return Err(Failure::new(Exit::Usage, format!("--size {size}: nothing to measure"))
                .try_this("--size 1 to --size 67108864"));
        }
        Ok(Plan {
            size,
            slice: slice(self.seconds)?,
            wait: self.wait,
            crc: self.crc,
            path: self.path,
            baseline: self.baseline,
            json: self.json,
        })
    }
}

/// The length of one measurement of a pair.
fn slice(seconds: f64) -> Outcome<Duration> {
    if !(0.001..=3600.0).contains(&seconds) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--seconds {seconds}: too short or too long"),
        )
        .try_this("--seconds 0.001 to --seconds 3600"));
    }
    Ok(Duration::from_secs_f64(seconds / PAIRS as f64))
}

/// The congestion control that both sides of a ratio use: this machine's default, pinned.
fn congestion() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .map_or_else(|_| "cubic".to_owned(), |name| name.trim().to_owned())
}

/// Which of the two processes a processor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    Measuring,
    Peer,
}

/// Give this process a processor of its own, before it starts threads: two that spin on one would
/// measure the scheduler. The number of the processor, or `None` where there are fewer than two.
fn sit(seat: Seat) -> Option<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // Asked once: afterwards this process has the one only.
    static ALLOWED: OnceLock<Option<(usize, usize)>> = OnceLock::new();
    let (first, second) = (*ALLOWED.get_or_init(|| {
        let allowed = sched_getaffinity(None).ok()?;
        let mut processors = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        Some((processors.next()?, processors.next()?))
    }))?;
    let mine = if seat == Seat::Measuring { first } else { second };
    let mut set = CpuSet::new();
    set.set(mine);
    sched_setaffinity(None, &set).ok().map(|()| mine)
}
