//! `transom run`: refused, because verbs programs are programs of Linux.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use crate::command::exit::{Exit, Failure};

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _program: Vec<OsString>,
}

/// `transom run`.
pub(crate) fn run(_args: &Args) -> ExitCode {
    let sentence = "it starts programs that use libibverbs or librdmacm, which are Linux's";
    Failure::new(Exit::Usage, sentence).report()
}
