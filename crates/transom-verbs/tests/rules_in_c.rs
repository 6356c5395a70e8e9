//! The promises of the interface, seen from C: `c/rules.c`, compiled with the distribution's headers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn run(case: &str) {
    run_and_read(case, |_| ());
}

/// Runs a case over both paths, and has `read` look at its standard error.
fn run_and_read(case: &str, read: impl Fn(&str)) {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/rules.c");
    let program = PROGRAM.get_or_init(|| support::compile(&source, "rules"));
    let Some(program) = program else { return };
    for path in ["tcp", "process"] {
        let done = Command::new(program)
            .arg(case)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", path)
            .env("TRANSOM_EXPLAIN", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{case} over {path}: {}\n{said}", done.status);
        read(&said);
    }
}

#[test]
fn v97_a_region_has_a_name() {
    run_and_read("v97_a_region_has_a_name", |said| {
        assert!(said.contains("region \"log of b\" was refused"), "{said}");
    });
}

#[test]
fn v26_v29_tables() {
    run("v26_v29_tables");
}

#[test]
fn v34_v35_handles_and_busy_objects() {
    run("v34_v35_handles_and_busy_objects");
}

#[test]
fn v40_v41_registrations() {
    run("v40_v41_registrations");
}

#[test]
fn v28_v30_v52_sizes() {
    run("v28_v30_v52_sizes");
}

#[test]
fn v61_v65_states_and_posts() {
    run("v61_v65_states_and_posts");
}

#[test]
fn v88_bytes_arrive() {
    run("v88_bytes_arrive");
}

#[test]
fn v92_remote_access_errors() {
    run("v92_remote_access_errors");
}

#[test]
fn v92_local_errors() {
    run("v92_local_errors");
}

#[test]
fn v77_v94_no_listener() {
    run("v77_v94_no_listener");
}

#[test]
fn v66_v76_either_side_may_come_first() {
    run("v66_v76_either_side_may_come_first");
}

#[test]
fn v79_v68_again_with_the_same_numbers() {
    run("v79_v68_again_with_the_same_numbers");
}

#[test]
fn v78_a_queue_pair_is_its_own_peer() {
    run("v78_a_queue_pair_is_its_own_peer");
}

#[test]
fn v98_v100_completion_events() {
    run("v98_v100_completion_events");
}

#[test]
fn v176_events_are_held_back() {
    run("v176_events_are_held_back");
}

#[test]
fn v91_requests_are_built_and_posted_together() {
    run("v91_requests_are_built_and_posted_together");
}

#[test]
fn v174_completions_have_the_times_at_which_they_came() {
    run("v174_completions_have_the_times_at_which_they_came");
}

#[test]
fn v56_extended_completion_queues() {
    run("v56_extended_completion_queues");
}

#[test]
fn v59_v60_shared_receive_queues() {
    run("v59_v60_shared_receive_queues");
}

#[test]
fn v35_everything_can_be_destroyed_at_once() {
    run("v35_everything_can_be_destroyed_at_once");
}

#[test]
fn v145_v146_a_forked_child() {
    run("v145_v146_a_forked_child");
}

#[test]
fn v38_a_device_is_closed_with_objects_left() {
    run("v38_a_device_is_closed_with_objects_left");
}

#[test]
fn v81_v90_v152_requests_that_cannot_be_done() {
    run("v81_v90_v152_requests_that_cannot_be_done");
}
