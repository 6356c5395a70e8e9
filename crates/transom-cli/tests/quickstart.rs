//! `transom quickstart`: the first command that a newcomer runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use transom::{Adapter, ErrorKind};

use common::{ran, run, transom};

/// A file of bytes that are not all alike; removed when dropped.
struct Sample(std::path::PathBuf);

impl Sample {
    fn new(name: &str, length: usize) -> Sample {
        let path = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
        std::fs::write(&path, bytes).expect("the sample is written");
        Sample(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn json_says_what_happened_and_the_exit_status_that_all_went_as_it_must() {
    let sample = Sample::new("json", 3_000_001);
    let ran = run(&["quickstart", sample.path(), "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let tour = ran.json();
    assert_eq!(tour["file"], sample.path());
    assert_eq!(tour["bytes"], 3_000_001);
    assert_eq!(tour["digest_ok"], true);
    assert_eq!(tour["write_digest_ok"], true);
    for rate in ["read_bytes_per_second", "write_bytes_per_second"] {
        assert!(tour[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate}: {tour}");
    }
    let revoked = &tour["revoked_read"];
    assert_eq!(revoked["status"], "refused");
    assert_eq!(revoked["rule"], "live_token");
    assert_eq!(revoked["likely"], "stale");
    assert!(revoked["explanation"].as_str().is_some_and(|text| text.len() > 20), "{revoked}");

    let mistakes = tour["mistakes"].as_array().expect("a list");
    let found: Vec<[&str; 3]> = mistakes
        .iter()
        .map(|it| ["name", "rule", "likely"].map(|field| it[field].as_str().unwrap_or("?")))
        .collect();
    assert_eq!(
        found,
        [
            ["token_bytes_swapped", "live_token", "token_bytes_swapped"],
            ["stale_token", "live_token", "stale"],
            ["past_the_end", "range", "past_the_end"],
            ["missing_right", "right", "missing_right"],
            ["offset_for_address", "range", "offset_instead_of_address"],
            ["another_connection", "scope", "another_queue_pair"],
        ]
    );
    let mut explanations: Vec<_> = mistakes.iter().map(|it| it["explanation"].as_str()).collect();
    assert!(explanations.iter().all(|text| text.is_some_and(|text| !text.is_empty())));
    explanations.sort_unstable();
    explanations.dedup();
    assert_eq!(explanations.len(), 6, "every mistake has an explanation of its own");
}

/// Both processes are of one user on one host, and say so; or take TCP, as an option or the
/// environment demands, and say that.
#[test]
fn the_path_is_shared_memory_and_tcp_on_request() {
    let sample = Sample::new("path", 70_000);
    let told = |path: &[&str], variable: Option<&str>| {
        let mut command = transom();
        command.args(["quickstart", sample.path(), "--json"]).args(path);
        match variable {
            Some(value) => command.env("TRANSOM_PATH", value),
            None => command.env_remove("TRANSOM_PATH"),
        };
        let tour = ran(&mut command).json();
        ["path", "path_reason", "wire"].map(|field| tour[field].as_str().unwrap_or("?").to_owned())
    };
    for (path, variable) in [(&[][..], None), (&["--path", "auto"], Some("tcp"))] {
        let [path, reason, wire] = told(path, variable);
        assert_eq!((&*path, &*wire), ("process", "shared memory of one host"));
        assert!(reason.contains("proven"), "{reason}");
    }
    for (path, variable) in [(&["--path", "tcp"][..], None), (&[], Some("tcp"))] {
        let [path, reason, wire] = told(path, variable);
        assert_eq!(path, "tcp");
        assert!(reason.contains("TCP only") && wire.contains("iWARP"), "{reason}, {wire}");
    }
}

#[test]
fn the_text_for_people_fits_one_screen() {
    let sample = Sample::new("people", 70_000);
    let ran = run(&["quickstart", sample.path()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // Lines break where they must.
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = text.as_str();
    for landmark in [
        "SHA-256",
        "owner",
        "path",
        "process: shared memory of one host",
        "no root, no kernel module, no pinned memory",
        "read-only window",
        "SHA-256 verified",
        "write-only window",
        "SHA-256 verified",
        "closes the window",
        "refused: ",
        "after it was closed",
        "wrong byte order",
        "REM_ACCESS_ERR",
        "ND_ACCESS_VIOLATION",
        "do not swap",
        "41 bytes past the end",
        "another connection",
        "Next",
        "Rust",
        "C++",
        "transom rping -s",
    ] {
        let at = rest.find(landmark);
        assert!(at.is_some(), "{landmark:?} is missing, or out of order, in:\n{}", ran.out);
        rest = &rest[at.unwrap_or(0)..];
    }
    assert!(ran.out.lines().count() <= 64, "more than a screen:\n{}", ran.out);
    let widest = ran.out.lines().map(|line| line.chars().count()).max();
    // The path of the sample is as long as it is.
    assert!(widest.is_some_and(|widest| widest <= 100 + sample.path().len()), "{widest:?}");
}

#[test]
fn its_own_executable_by_default() {
    let ran = run(&["quickstart", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let own = std::fs::canonicalize(env!("CARGO_BIN_EXE_transom")).expect("it was built");
    assert_eq!(ran.json()["file"], own.to_str().expect("UTF-8"));
    assert_eq!(ran.json()["bytes"], std::fs::metadata(own).expect("it was built").len());
}

#[test]
fn any_file_will_do() {
    let sample = Sample::new("tiny", 1);
    let ran = run(&["quickstart", sample.path(), "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.json()["bytes"], 1);
}

#[test]
fn a_file_that_is_not_there_is_said_in_a_sentence() {
    let ran = run(&["quickstart", "/no/such/file"]);
    ran.failed(5, &["/no/such/file"]);
    let ran = run(&["quickstart", "/"]);
    ran.failed(2, &["regular file"]);
}

/// A user who has few threads left is told so by both processes, whichever thread is the first that is lacking.
#[test]
fn without_a_thread_a_sentence_says_so() {
    use std::os::unix::process::CommandExt as _;
    const USER: u32 = 54_322;
    let as_user = |most: u32, words: &[&str]| {
        let mut command = std::process::Command::new("prlimit");
        command.arg(format!("--nproc={most}")).arg(transom().get_program()).args(words);
        command.uid(USER).gid(USER).current_dir("/").output()
    };
    let started = as_user(64, &["--version"]).is_ok_and(|done| done.status.success());
    if !rustix::process::geteuid().is_root() || !started {
        return eprintln!("SKIPPED: only root can limit another user's threads");
    }
    let sample = Sample::new("threads", 1000);
    let mut failed = 0;
    for most in 1..64 {
        let done = as_user(most, &["quickstart", sample.path()]).unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        if done.status.success() {
            break;
        }
        failed += 1;
        assert!(!said.contains("panicked"), "{most}: {said}");
        // The owner's sentence may be cut short: it ends with its reader, which may be faster.
        assert!(said.starts_with("transom: "), "{most}: {said}");
    }
    assert!(failed > 0, "the limit does not hold");
}

/// Every user of this host can connect to the owner while the tour lasts; the file is for its reader.
#[test]
fn the_owner_lends_its_file_to_the_process_that_has_started_it_alone() {
    let sample = Sample::new("owner", 5000);
    let mut command = transom();
    command.args(["quickstart-owner", sample.path()]);
    let mut owner = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let at = ready["address"].as_str().unwrap().parse().unwrap();
    let key: Vec<u8> = serde_json::from_value(ready["key"].clone()).unwrap();
    let adapter = Adapter::route_to(at).unwrap();
    let connect = |key: &[u8]| adapter.connect(at).private_data(key).receives(4, 1024).wait();
    let mut other = key.clone();
    other[15] ^= 1;
    for wrong in [&[][..], &key[..15], &other] {
        assert_eq!(connect(wrong).unwrap_err().kind(), ErrorKind::Rejected);
    }
    drop(connect(&key).unwrap());
    drop(owner.stdin.take());
    owner.kill().unwrap();
    owner.wait().unwrap();
}
