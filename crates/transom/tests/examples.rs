//! Every example runs, and says so with its exit status.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

/// Where `cargo test` puts examples: beside the directory of this test.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    path.push("examples");
    path.push(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    path
}

fn runs(name: &str, args: &[&str]) -> String {
    let output = Command::new(example(name)).args(args).output().expect("the example starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {out}{err}");
    out.into_owned()
}

#[test]
fn the_examples_run_over_tcp_too() {
    transom_rules::paths::again_over_tcp(&[], &["over_tcp"]);
}

#[test]
fn share() {
    let out = runs("share", &[]);
    assert!(out.contains("SHA-256 verified") && out.contains("as it must be"), "{out}");
}

#[test]
fn share_tokio() {
    let out = runs("share_tokio", &[]);
    assert_eq!(out.matches("SHA-256 verified").count(), 4, "{out}");
}

#[test]
fn counter() {
    let out = runs("counter", &["4"]);
    assert_eq!(out.matches("window closed").count(), 4, "{out}");
}
