//! Every example runs, and says so with its exit status.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use sha2::{Digest, Sha256};
use transom::{Adapter, Rights};

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
    transom_testing::paths::again_over_tcp(&[], &["over_tcp"]);
}

#[test]
fn share() {
    let out = runs("share", &[]);
    assert!(out.contains("SHA-256 verified") && out.contains("as it must be"), "{out}");
}

/// An owner that ends its connection has refused nothing: `share fetch` fails then, and says so.
#[test]
fn share_takes_no_other_error_for_a_refusal() {
    let adapter = Adapter::open(Ipv4Addr::LOCALHOST.into()).unwrap();
    let file = adapter.register(vec![7; 4096]).unwrap();
    let mut listener = adapter.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let program = example("share");
    let mut fetch = Command::new(program);
    fetch.args(["fetch", &listener.address().to_string()]);
    let fetched = std::thread::scope(|both| {
        let fetched = both.spawn(move || fetch.output().unwrap());
        let peer = listener.next().wait().unwrap().receives(4, 64).accept().wait().unwrap();
        let window = peer.bind(&file, .., Rights::READ).unwrap();
        let offer = [&window.grant().to_bytes()[..], &Sha256::digest([7; 4096])[..]].concat();
        peer.send(offer).unwrap().wait().unwrap();
        peer.recv().wait().unwrap();
        let _ = peer.send(b"taken back");
        peer.disconnect().unwrap();
        fetched.join().unwrap()
    });
    let out = String::from_utf8_lossy(&fetched.stdout);
    assert!(!fetched.status.success() && !out.contains("as it must be"), "{out}");
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
