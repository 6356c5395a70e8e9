//! Programs of the distribution, unchanged: the quick part of `scripts/verbs-clients`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::path::Path;
use std::process::Command;

fn clients(words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/verbs-clients");
    let libraries = support::libraries();
    let run = Command::new("python3")
        .arg(script)
        .args(["--quick", "--libraries"])
        .arg(&libraries)
        .args(words)
        .env_remove("TRANSOM_PATH")
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) => return eprintln!("SKIPPED: python3: {error}"),
    };
    let said = String::from_utf8_lossy(&run.stdout);
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{line}");
    }
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}{error}");
}

/// Verbs V107: `LD_LIBRARY_PATH` alone is enough.
#[test]
fn the_device_is_listed_and_described() {
    clients(&["ibv_devices", "ibv_devinfo"]);
}

#[test]
fn queue_pairs_find_each_other_by_number() {
    clients(&["pingpong"]);
}

#[test]
fn connections_of_rdma_cm() {
    clients(&["rping", "ucmatose", "udaddy", "rdma_server", "rdma_xserver"]);
}

/// Verbs V137.
#[test]
fn sockets_of_rsocket() {
    clients(&["rstream", "riostream"]);
}

/// The tests of rdma-core itself, in Python.
#[test]
fn the_tests_of_pyverbs() {
    clients(&["PYVERBS"]);
}

#[test]
fn perftest_runs() {
    clients(&["ib_"]);
}
