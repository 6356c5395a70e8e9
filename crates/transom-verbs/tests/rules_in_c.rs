//! What the interface promises, seen from C: `c/rules.c`, compiled with the distribution's headers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn run(case: &str) {
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
    }
}

macro_rules! cases {
    ($($case:ident)*) => {
        $(#[test]
        fn $case() {
            run(stringify!($case));
        })*
    };
}

cases! {
    v26_v29_tables
    v34_v35_handles_and_busy_objects
    v40_v41_registrations
    v28_v30_v52_sizes
    v61_v65_states_and_posts
    v88_bytes_arrive
    v92_remote_access_errors
    v92_local_errors
    v77_v94_nobody_there
    v66_v76_either_side_may_come_first
    v79_v68_again_with_the_same_numbers
    v98_v100_completion_events
    v91_requests_are_built_and_posted_together
    v56_extended_completion_queues
    v59_v60_shared_receive_queues
    v35_everything_can_be_destroyed_at_once
    v145_v146_a_forked_child
    v38_a_device_is_closed_with_objects_left
}
