//! The ledger of grants: the lines and the exit status of a process. Each program is this test itself, started
//! again.

use std::process::{Command, Output};

use transom_memory::Rights;

use super::harness::*;
use crate::raw::{GrantLedger, LEDGER_STATUS, Options};

/// The program that this process is.
const PROGRAM: &str = "TRANSOM_TEST_LEDGER";

fn options(strict: bool) -> Options {
    Options { ledger: Some(GrantLedger { strict, backtrace: false }), ..Options::from_env() }
}

/// The program, if this process was started as one.
#[test]
fn program() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let (active, passive) = pair_with(&options(program != "lenient"));
    let buffer = passive.buffer(4096);
    let window = passive.window(&buffer, Rights::REMOTE_READ);
    match program.as_str() {
        "revoked" => {
            passive.adapter.revoke(window).unwrap();
            drop((active, passive));
        }
        // Two adapters have ended when the report is made, and another one has not.
        "several" => {
            passive.adapter.revoke(window).unwrap();
            drop((active, passive));
            let (active, passive) = pair_with(&options(false));
            passive.window(&passive.buffer(64), Rights::REMOTE_WRITE);
            std::mem::forget((active, passive));
        }
        // The program ends, whatever it has open.
        _ => std::mem::forget((active, passive)),
    }
    std::process::exit(i32::from(program == "failed") * 3);
}

fn run(program: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "raw::tests::ledger::program", "--nocapture"]);
    command.env(PROGRAM, program).output().unwrap()
}

/// The exit status of a program, and its ledger.
fn ledger_of(program: &str) -> (Option<i32>, Vec<String>) {
    let ran = run(program);
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    let lines = text.lines().skip_while(|line| !line.starts_with("transom: ledger:"));
    (ran.status.code(), lines.map(str::to_owned).collect())
}

#[test]
fn a_grant_that_is_open_at_the_end_is_named_with_its_peer() {
    let (status, lines) = ledger_of("open");
    assert_eq!(status, Some(LEDGER_STATUS), "{lines:?}");
    assert_eq!(lines[0], "transom: ledger: 1 grant, 2 findings");
    for finding in ["never used: window of 4096 bytes", "never revoked: window of 4096 bytes"] {
        let line = lines.iter().find(|line| line.contains(finding)).unwrap();
        assert!(line.contains("(peer 127.0.0.1:"), "{line}");
    }
    assert!(lines.iter().any(|line| line.contains("granted by ")), "{lines:?}");
}

#[test]
fn an_adapter_that_has_ended_leaves_its_findings() {
    let (status, lines) = ledger_of("revoked");
    assert_eq!(status, Some(LEDGER_STATUS), "{lines:?}");
    assert_eq!(lines[0], "transom: ledger: 1 grant, 1 finding");
    assert!(lines[1].contains("never used: window of 4096 bytes"), "{lines:?}");
}

/// Strict is what any of the adapters asks for.
#[test]
fn the_findings_of_all_adapters_of_a_process_stand_together() {
    let (status, lines) = ledger_of("several");
    assert_eq!(status, Some(LEDGER_STATUS), "{lines:?}");
    assert_eq!(lines[0], "transom: ledger: 2 grants, 3 findings");
    for finding in
        ["window of 4096 bytes", "never used: window of 64", "never revoked: window of 64"]
    {
        assert!(lines.iter().any(|line| line.contains(finding)), "{finding}: {lines:?}");
    }
}

/// Findings change no status but success, and that only if the ledger is strict.
#[test]
fn the_status_of_a_program_is_its_own() {
    for (program, expected) in [("failed", 3), ("lenient", 0)] {
        let (status, lines) = ledger_of(program);
        assert_eq!(
            (status, lines[0].as_str()),
            (Some(expected), "transom: ledger: 1 grant, 2 findings")
        );
    }
}
