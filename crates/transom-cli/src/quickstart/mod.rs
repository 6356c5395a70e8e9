//! `transom quickstart`: the tour.
//!
//! Two processes. This one is the *reader*; the *owner* (the same program, started by this one)
//! lends a file through windows. What the owner answers travels in Sends; what it records of each
//! refusal comes back on its standard output.

mod mistakes;
pub(crate) mod owner;
mod reader;
mod report;
mod talk;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use sha2::{Digest, Sha256};

use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::command::print_json;
use crate::command::watchdog;
use crate::path::PathArg;

/// Arguments of `quickstart`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The file that travels [default: this program itself]
    file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    path: PathArg,
}

/// Arguments of the owner's process.
#[derive(Debug, ClapArgs)]
pub(crate) struct OwnerArgs {
    file: PathBuf,
    #[command(flatten)]
    path: PathArg,
}

/// More than this is not lent: the tour is to be short.
const LARGEST: u64 = 1 << 30;

pub(crate) fn run(args: &Args) -> Outcome {
    watchdog::limit("the tour", Duration::from_secs(120));
    let file = match &args.file {
        Some(file) => file.clone(),
        None => std::env::current_exe().map_err(system("looking for this program's own file"))?,
    };
    let mut screen = report::Screen::new(!args.json);
    let tour = reader::tour(&file, args.path, &mut screen)?;
    if args.json {
        print_json(&tour);
    }
    match tour.wrong() {
        wrong if wrong.is_empty() => {
            screen.farewell();
            Ok(())
        }
        wrong => Err(Failure::new(Exit::CheckFailed, wrong.join("; "))
            .try_this("run it again with --json and report what it prints")),
    }
}

/// SHA-256 as text.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
