//! The ledger of grants of programs in C, which know nothing of it: `c/ledger.c`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::path::Path;
use std::process::Command;

/// The exit status of a program that does `what`, its output, and its ledger.
fn run(program: &Path, what: &str, ledger: &str) -> (Option<i32>, String, String) {
    let done = Command::new(program)
        .arg(what)
        .env("LD_LIBRARY_PATH", support::libraries())
        .env("TRANSOM_LEDGER", ledger)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn a_program_in_c_has_a_ledger() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/ledger.c");
    let Some(program) = support::compile(&source, "ledger") else { return };

    let (status, out, text) = run(&program, "leave", "strict");
    assert_eq!((status, out.as_str()), (Some(97), "buffered"), "{text}");
    for words in [
        "1 grant, 3 findings",
        "never used: region of 4096 bytes",
        "never revoked: region",
        "open to a whole domain: region",
        "granted by lend (",
        "ledger.c:",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let (status, _, text) = run(&program, "end", "strict");
    assert_eq!(status, Some(97), "{text}");
    assert!(text.contains("never used") && !text.contains("never revoked"), "{text}");

    let (status, out, text) = run(&program, "local", "strict");
    assert_eq!((status, out.as_str()), (Some(0), "buffered"));
    assert!(text.contains("0 grants, and nothing to report"), "{text}");
    let (status, _, text) = run(&program, "fail", "strict");
    assert_eq!(status, Some(3), "the status of the program itself: {text}");
    assert_eq!(run(&program, "leave", "1").0, Some(0));
    // A forked child has granted nothing: it exits as it would, and prints nothing.
    let (status, _, text) = run(&program, "fork", "strict");
    assert_eq!((status, text.matches("ledger:").count()), (Some(97), 1), "{text}");
}
