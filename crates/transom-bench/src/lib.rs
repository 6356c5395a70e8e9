//! `transom bench`: measurements, and the raw equivalent interleaved with them.
//!
//! Two processes: this one measures, the *peer* (the same program, started by this one) answers.
//! Both processes agree on what comes next over a Unix socket, so neither spins while the other is
//! measured.

#![deny(unsafe_code)]

mod args;
mod attackers;
mod bandwidth;
mod baseline;
mod check;
mod connections;
#[expect(unsafe_code, reason = "an allocator that counts")]
mod cost;
mod fairness;
mod latency;
mod line;
mod local;
mod message_rate;
mod peer;
mod refusal;
mod report;
mod same_host;
mod side;
mod stats;
mod tasks;

use std::sync::OnceLock;

use clap::Subcommand;

use crate::args::{Args, CheckArgs, ConnectionsArgs};
use transom_command::exit::Outcome;

pub use crate::args::PeerArgs;

/// The quantity to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Half a round trip: each side Writes into the other's memory and watches its own
    WriteLatency(Args),
    /// Writes, several at a time
    WriteBandwidth(Args),
    /// Reads, several at a time
    ReadBandwidth(Args),
    /// Small Writes, 64 at a time, of which one in 16 reports its completion
    MessageRate(Args),
    /// Opening a window and closing it again, as a pair
    Bind(Args),
    /// Registering memory and deregistering it again, as a pair
    Register(Args),
    /// Messages of a few active connections among many, next to the few alone
    Connections(ConnectionsArgs),
    /// Judging one access, guard included
    Check(CheckArgs),
    /// The share that an honest peer keeps when its neighbour is an attacker
    Fairness(fairness::Args),
    /// Bytes per registration, and bytes of ours per idle connection
    Memory(cost::Args),
}

/// Pairs of ours and baseline.
const PAIRS: usize = 15;

/// Most bytes of a message.
const LARGEST: usize = 64 << 20;
/// Most bytes of a registration.
const LARGEST_REGION: usize = 1 << 40;

/// Measures, and prints the result.
///
/// # Errors
/// Runs a measurement. The failure says what could not be measured and why, and has the exit status.
pub fn run(command: &Command) -> Outcome {
    match command {
        Command::WriteLatency(args) => latency::run(&args.checked(8, LARGEST)?),
        Command::WriteBandwidth(args) => bandwidth::run(&args.checked(1 << 20, LARGEST)?, true),
        Command::ReadBandwidth(args) => bandwidth::run(&args.checked(1 << 20, LARGEST)?, false),
        Command::MessageRate(args) => message_rate::run(&args.checked(8, 4096)?),
        Command::Bind(args) => local::bind(&args.checked(8, LARGEST)?),
        Command::Register(args) => local::register(&args.checked(4096, LARGEST_REGION)?),
        Command::Connections(args) => connections::run(args),
        Command::Check(args) => check::run(args),
        Command::Fairness(args) => fairness::run(args),
        Command::Memory(args) => cost::run(args),
    }
}

/// The answering process of a measurement, which [`run`] starts as `transom bench-peer`.
///
/// # Errors
/// As of [`run`].
pub fn run_peer(args: &PeerArgs) -> Outcome {
    peer::run(args)
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
