//! `transom watch`: refused, as `transom ps` is.

use clap::Args as ClapArgs;

use crate::command::exit::Outcome;

use crate::inspect::refused;

/// Arguments of `watch`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The number of a process
    _pid: Option<u32>,
}

/// `transom watch`.
pub(crate) fn run(_args: &Args) -> Outcome {
    Err(refused())
}
