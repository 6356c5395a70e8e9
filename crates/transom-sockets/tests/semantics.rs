//! Scenarios of socket semantics (`semantics.py`), of sets (`epoll.py`) and of children (`forks.py`), each
//! deterministic over TCP: the same answers under the switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use transom_sockets as _;

fn started(script: &str, switched: bool, warm: bool) -> Option<Child> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let mut command = Command::new("python3");
    command.arg(script).env_remove("LD_PRELOAD").env_remove("TRANSOM_SOCKETS");
    if warm {
        command.arg("--warm");
    }
    if switched {
        let test = std::env::current_exe().unwrap();
        command.env("LD_PRELOAD", test.parent().unwrap().join("libtransom_sockets.so"));
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

fn answers(child: Child) -> BTreeMap<String, String> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(name, answer)| (name.to_owned(), answer.to_owned())).collect()
}

fn compare(script: &str, least: usize, warm: bool) {
    let (Some(tcp), Some(switched)) = (started(script, false, warm), started(script, true, warm))
    else {
        return eprintln!("SKIPPED: python3 is not installed");
    };
    let (tcp, switched) = (answers(tcp), answers(switched));
    assert!(tcp.len() >= least && tcp.len() == switched.len(), "{} {}", tcp.len(), switched.len());
    let mut wrong = Vec::new();
    for (name, expected) in &tcp {
        // A scenario that found no time, or lacks something here, says nothing.
        let silent = expected.starts_with("TIMEOUT") || expected.starts_with("SKIPPED");
        if &switched[name] != expected && !silent || expected.starts_with("FAILED") {
            wrong.push(format!("{name}\n  TCP      {expected}\n  switched {}", switched[name]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn programs_see_the_same_as_over_tcp() {
    compare("semantics.py", 60, false);
}

/// The connections have exchanged some bytes before, and are switched.
#[test]
fn programs_see_the_same_on_connections_that_have_lasted() {
    compare("semantics.py", 60, true);
}

/// Sets, by every way in which a program can wait for one: whatever it gets is what it has given.
#[test]
fn epoll_sets_report_what_the_program_has_given() {
    compare("epoll.py", 19, false);
}

#[test]
fn epoll_sets_report_what_the_program_has_given_of_switched_connections() {
    compare("epoll.py", 19, true);
}

/// Processes that start others, by every way, with handlers of `pthread_atfork` that use descriptors.
#[test]
fn children_begin_as_over_tcp() {
    compare("forks.py", 8, false);
}

#[test]
fn children_of_processes_with_switched_connections_begin_as_over_tcp() {
    compare("forks.py", 8, true);
}
