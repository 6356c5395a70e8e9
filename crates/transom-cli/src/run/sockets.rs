//! `transom run --sockets`: what the switch needs, and what it does not serve.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::command::exit::{Exit, Failure, Outcome, plain_lines, system};
use transom_switch::rules::Rules;

use super::library;
use super::program::{Program, Unrunnable};

/// Rules in a file begin with its path.
fn file(rules: &str) -> Option<&Path> {
    rules.starts_with(['/', '.']).then(|| Path::new(rules))
}

/// The rules, if they are some.
///
/// # Errors
/// A word is no rule, or the file cannot be read.
pub(super) fn check(rules: &str) -> Outcome {
    let text = match file(rules) {
        Some(path) => {
            std::fs::read_to_string(path).map_err(system("read the rules for sockets"))?
        }
        None => rules.to_owned(),
    };
    match Rules::parse(&text) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(Exit::Usage, error.to_string())),
    }
}

/// Additions to the program's environment.
pub(super) fn variables(
    rules: &str,
    libraries: &Path,
    explain: bool,
) -> Vec<(&'static str, OsString)> {
    let mut list = library::for_this_loader(libraries, library::SOCKETS).into_os_string();
    if let Some(before) = transom_os::environment::variable("LD_PRELOAD") {
        list.push(":");
        list.push(before);
    }
    let rules = match file(rules) {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)).into(),
        None => OsString::from(rules),
    };
    let mut all = vec![("LD_PRELOAD", list), ("TRANSOM_SOCKETS", rules), library::any_link_order()];
    if explain {
        all.push(("TRANSOM_EXPLAIN", "1".into()));
    }
    all
}

/// Say why all connections of a program stay with TCP, where that is known before it starts.
pub(super) fn note(program: &Program, libraries: &Path) {
    let why = match program.check(libraries) {
        Err(Unrunnable::Static(_)) => "is linked statically, and such programs take no library",
        Err(Unrunnable::Musl(_)) => "is linked with musl, and the library needs the GNU C library",
        Err(Unrunnable::SetUserId(_)) => {
            "runs with another user's rights (set-uid or set-gid), so the system ignores the library"
        }
        _ => return,
    };
    let path = plain_lines(&program.path.to_string_lossy());
    transom_os::say!("transom: {path} {why}: its connections stay with TCP");
}
