//! The command `transom`.

#![deny(unsafe_code)]

mod adapters;
mod bench;
mod captures;
mod command;
mod explain;
#[cfg(not(windows))]
mod files;
#[cfg_attr(windows, path = "windows/inspect.rs")]
mod inspect;
mod packaging;
mod path;
mod provider;
mod quickstart;
mod rping;
#[cfg_attr(windows, path = "windows/run.rs")]
mod run;
#[cfg_attr(windows, path = "windows/watch.rs")]
mod watch;

use std::process::ExitCode;

use crate::command::exit;
use clap::{CommandFactory, Parser, Subcommand};

/// An RDMA adapter in software: a tour, tools, and measurements.
#[derive(Debug, Parser)]
#[command(name = "transom", version, after_help = exit::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take the tour: two processes, one window, a file through it, and what happens when it closes
    Quickstart(quickstart::Args),
    /// List the addresses at which an adapter can be opened
    Adapters(adapters::Args),
    /// Explain a rule by which something was refused, or a status of any interface: what it says, why,
    /// and what leads to it
    Explain(explain::Args),
    /// List the processes of this user that answer inspections: those started with TRANSOM_INSPECT=1
    Ps(inspect::PsArgs),
    /// Show what one such process has registered, which peers may touch it, and what was refused
    Show(inspect::ShowArgs),
    /// Watch such processes: connections, windows and refusals as they happen
    Watch(watch::Args),
    /// Look at captures (TRANSOM_CAPTURE, `transom run --capture`)
    #[command(subcommand)]
    Captures(captures::Captures),
    /// Speak with rping programs (rdma-core), on any iWARP peer
    Rping(rping::Args),
    /// Start an unmodified program on this adapter: one of verbs (libibverbs, librdmacm), or, with
    /// --sockets, one of TCP sockets
    Run(run::Args),
    /// Measure, against the same bytes over a bare socket
    #[command(subcommand)]
    Bench(crate::bench::Command),
    /// Install the NetworkDirect provider on Windows, remove it, or say whether it is installed
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Print what a shell needs to complete this command's arguments
    Completions(packaging::CompletionsArgs),
    /// Print this command's manual page, or write all pages into a folder
    Man(packaging::ManArgs),
    /// The other process of `quickstart`
    #[command(hide = true)]
    QuickstartOwner(quickstart::OwnerArgs),
    /// The other process of `bench`
    #[command(hide = true)]
    BenchPeer(crate::bench::PeerArgs),
}

fn main() -> ExitCode {
    // The definition of the arguments takes more stack than some limits leave the first thread (`ulimit -s 64`).
    const STACK: usize = 8 << 20;
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(command);
    thread.map_or_else(|_| command(), |thread| thread.join().unwrap_or(ExitCode::from(101)))
}

/// The arguments. What is wrong with them is said with no command to a terminal in it.
fn arguments() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let words = error.render().to_string();
        let plain = exit::plain_lines(&words);
        if !error.use_stderr() || plain == words {
            error.exit();
        }
        eprint!("{plain}");
        ExitCode::from(exit::Exit::Usage as u8)
    })
}

fn command() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let done = match arguments.command {
        Command::Run(args) => return run::run(&args),
        Command::Quickstart(args) => quickstart::run(&args),
        Command::Adapters(args) => adapters::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Ps(args) => inspect::ps(&args),
        Command::Show(args) => inspect::show(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Captures(command) => captures::run(&command),
        Command::Rping(args) => rping::run(&args),
        Command::Bench(command) => crate::bench::run(&command),
        Command::Provider(command) => provider::run(&command),
        Command::Completions(args) => packaging::completions(&args, &Cli::command()),
        Command::Man(args) => packaging::man(&args, Cli::command()),
        Command::QuickstartOwner(args) => quickstart::owner::run(&args),
        Command::BenchPeer(args) => crate::bench::run_peer(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
