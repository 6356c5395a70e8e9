//! Programs in C that were written from the interface's rules alone: `c/*.c`, compiled with the
//! distribution's headers. Each says what deviates, and ends with 1 if anything did.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::path::Path;
use std::process::Command;

fn run(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let Some(program) = support::compile(&source, name) else { return };
    for path in ["tcp", "process"] {
        let done = Command::new(&program)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", path)
            .env("TRANSOM_EXPLAIN", "1")
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(done.status.success(), "{name} over {path}: {}\n{said}", done.status);
    }
}

/// Verbs V61, V62, V63, V64, V65, V67, V68, V69, V72.
#[test]
fn states_attributes_and_posts() {
    run("states");
}

/// Verbs V26, V28, V29, V30, V34, V35, V39, V40, V41, V44, V56, V152.
#[test]
fn the_device_and_its_objects() {
    run("objects");
}

/// Verbs V37, V53, V54, V55, V58, V59, V60, V81, V86, V89, V91.
#[test]
fn requests_and_queues() {
    run("queues");
}

/// Verbs V36, V98, V99, V100, V101.
#[test]
fn events() {
    run("events");
}

/// Verbs V145, V146, V148, V149.
#[test]
fn forked_children() {
    run("forked");
}

/// Verbs V40, V43, V66, V84, V88, V92, V93, V94, between two processes.
#[test]
fn how_requests_end() {
    run("outcomes");
}

/// Verbs V67, V75, V76, V77, V79, V80.
#[test]
fn peers_that_die_stop_leave_or_never_come() {
    run("peers");
}
