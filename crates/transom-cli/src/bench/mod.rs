//! `transom bench`: measurements, and the raw equivalent interleaved with them.
//!
//! Two processes: this one measures, the *peer* (the same program, started by this one) answers.
//! Both processes agree on what comes next over a Unix socket (under Windows one of TCP), so neither spins while the other is
//! measured.

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
#[cfg_attr(windows, path = "windows.rs", expect(unsafe_code, reason = "system calls"))]
mod os;
mod peer;
mod refusal;
mod report;
mod same_host;
mod session;
mod side;
mod stats;
mod tasks;

use clap::Subcommand;

use crate::bench::args::{Args, CheckArgs, ConnectionsArgs};
use crate::bench::latency::Exchange;
use crate::command::exit::Outcome;

use crate::bench::os::sit;

pub(crate) use crate::bench::args::PeerArgs;

/// The quantity to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Half a round trip: each side Writes into the other's memory and watches its own
    WriteLatency(Args),
    /// Half a round trip: each side sends a message and receives the other's
    SendLatency(Args),
    /// A Read, there and back; with `--wait watch` its target makes no call
    ReadLatency(Args),
    /// A fetch-and-add, there and back; with `--wait watch` its target makes no call
    AtomicLatency(Args),
    /// Writes, several at a time
    WriteBandwidth(Args),
    /// Reads, several at a time
    ReadBandwidth(Args),
    /// Small Writes, 64 at a time, of which one in 16 reports its completion
    MessageRate(Args),
    /// Small Sends, 64 at a time, of which one in 16 reports its completion
    SendRate(Args),
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
/// Most bytes of a message that is sent, or of one of many.
const MESSAGE: usize = 4096;
/// Most bytes of a registration.
const LARGEST_REGION: usize = 1 << 40;

/// Measures, and prints the result.
///
/// # Errors
/// Runs a measurement. The failure says what could not be measured and why, and has the exit status.
pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::WriteLatency(args) => latency::run(&args.checked(8, LARGEST)?, Exchange::Write),
        Command::SendLatency(args) => latency::run(&args.checked(8, MESSAGE)?, Exchange::Send),
        Command::ReadLatency(args) => latency::run(&args.checked(8, LARGEST)?, Exchange::Read),
        Command::AtomicLatency(args) => latency::run(&args.checked(8, 8)?, Exchange::FetchAdd),
        Command::WriteBandwidth(args) => bandwidth::run(&args.checked(1 << 20, LARGEST)?, true),
        Command::ReadBandwidth(args) => bandwidth::run(&args.checked(1 << 20, LARGEST)?, false),
        Command::MessageRate(args) => message_rate::run(&args.checked(8, MESSAGE)?, false),
        Command::SendRate(args) => message_rate::run(&args.checked(8, MESSAGE)?, true),
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
pub(crate) fn run_peer(args: &PeerArgs) -> Outcome {
    peer::run(args)
}

/// Which of the two processes a processor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    Measuring,
    Peer,
}
