//! `transom ps` and `transom show`: refused, because processes answer inspections on Linux only.

use clap::Args as ClapArgs;

use crate::command::exit::{Exit, Failure, Outcome};

/// Arguments of `ps`.
#[derive(Debug, ClapArgs)]
pub(crate) struct PsArgs {
    /// Print one JSON object
    #[arg(long)]
    _json: bool,
}

/// Arguments of `show`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The number of the process
    _pid: u32,
}

pub(crate) fn refused() -> Failure {
    Failure::new(Exit::Usage, "processes answer inspections on Linux only, not under Windows yet")
}

/// `transom ps`.
pub(crate) fn ps(_args: &PsArgs) -> Outcome {
    Err(refused())
}

/// `transom show`.
pub(crate) fn show(_args: &ShowArgs) -> Outcome {
    Err(refused())
}
