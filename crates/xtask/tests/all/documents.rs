//! Documents that name tests: docs/SECURITY.md, and what is noticed about such a document.

use std::path::{Path, PathBuf};
use std::{fs, panic};

use xtask::hold_document;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each line of the threat model has a test, and it runs.
#[test]
fn security_names_tests_that_run() {
    hold_document(&workspace(), "docs/SECURITY.md");
}

/// The published attacks, one by one.
#[test]
fn attacks_name_tests_that_run() {
    hold_document(&workspace(), "docs/attacks.md");
}

/// The faults of a document, in a workspace where one test runs: `small/windows::one`.
fn faults(name: &str, text: &str) -> String {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = root.join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("crates/small/tests")).unwrap();
    let source = "#[test]\nfn one() {}\n#[test]\n#[ignore]\nfn two() {}\n";
    fs::write(root.join("crates/small/tests/windows.rs"), source).unwrap();
    fs::write(root.join("THREATS.md"), text).unwrap();
    let held = panic::catch_unwind(|| hold_document(&root, "THREATS.md"));
    fs::remove_dir_all(&root).unwrap();
    held.err().map_or(String::new(), |words| *words.downcast::<String>().unwrap())
}

const GOOD: &str = "| threat | tests |\n|---|---|\n| a | `small/windows::one` |\n| b | none, because nobody can |\n\n| other | table |\n|---|---|\n| c | `src/main.rs` |\n";

#[test]
fn a_document_whose_tests_run_is_good() {
    assert_eq!(faults("good", GOOD), "");
}

#[test]
fn a_test_that_does_not_run_is_noticed() {
    for name in ["small/windows::two", "small/windows::three", "large/windows::one"] {
        let text = format!("{GOOD}And `{name}`.\n");
        assert!(faults("gone", &text).contains("no such test runs"), "{name}");
    }
}

#[test]
fn a_line_without_a_test_is_noticed() {
    let text = GOOD.replace("none, because nobody can", "nobody can");
    assert!(faults("bare", &text).contains("a line without a test: | b |"));
    assert!(faults("none", "Nothing.\n").contains("no test at all"));
}
