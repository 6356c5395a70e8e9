//! Random sequences of calls on a connection, once over plain TCP and once switched, by the same seed: every
//! result, error number, event and byte agrees.
//!
//! One process makes both ends of each connection and has both in its hands, so that each call's answer is
//! settled before the next one begins: what was sent has arrived. `TRANSOM_SEED` and `TRANSOM_SEQUENCES` say
//! where to begin and how many there are.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod calls;
mod rarer;
mod together;
mod world;

use std::path::PathBuf;
use std::process::{Child, Command};

/// Sequences of the ordinary tests.
const SEQUENCES: u64 = 300;
/// Sequences that one process runs.
const BATCH: u64 = 50;

/// Where the program of the sequences writes.
const OUTPUT: &str = "TRANSOM_SEQUENCES_OUTPUT";
/// 1: rarer calls are among those of its sequences.
const RARER: &str = "TRANSOM_SEQUENCES_RARER";

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The program itself, in a process of its own: nothing where no test has asked for it.
#[test]
fn program() {
    let Some(path) = std::env::var_os(OUTPUT) else { return };
    let (first, count) = (number("TRANSOM_SEED", 1), number("TRANSOM_SEQUENCES", 1));
    let rarer = number(RARER, 0) != 0;
    let output = std::fs::File::create(path).unwrap();
    (first..first + count).for_each(|seed| world::run(seed, rarer, &output));
}

fn start(rarer: bool, switched: bool, first: u64, count: u64) -> (Child, PathBuf) {
    let test = std::env::current_exe().unwrap();
    let name = format!("sequences-{}-{first}-{rarer}-{switched}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(&test);
    command.args(["--exact", "program", "--test-threads=1", "--nocapture"]);
    command.env(OUTPUT, &path).env_remove("LD_PRELOAD").env_remove("TRANSOM_SOCKETS");
    command.env("TRANSOM_SEED", first.to_string()).env("TRANSOM_SEQUENCES", count.to_string());
    command.env(RARER, u64::from(rarer).to_string());
    if switched {
        command.env("LD_PRELOAD", test.with_file_name("libtransom_sockets.so"));
    }
    (command.stdout(std::process::Stdio::null()).spawn().unwrap(), path)
}

fn finish((mut child, path): (Child, PathBuf)) -> Result<Vec<String>, String> {
    let status = child.wait().unwrap();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    let ok = status.success();
    if ok { Ok(text.lines().map(str::to_owned).collect()) } else { Err(status.to_string()) }
}

#[test]
fn sequences_of_calls_have_the_results_of_tcp() {
    agree(false);
}

/// Calls as above, and rarer ones between them.
#[test]
fn sequences_of_rarer_calls_have_the_results_of_tcp() {
    agree(true);
}

fn agree(rarer: bool) {
    let (first, count) = (number("TRANSOM_SEED", 1), number("TRANSOM_SEQUENCES", SEQUENCES));
    if std::env::var_os(OUTPUT).is_some() {
        return;
    }
    let mut wrong = Vec::new();
    let mut switched_ones = 0;
    let mut next = first;
    while next < first + count {
        let batch = BATCH.min(first + count - next);
        let (tcp, switched) = (start(rarer, false, next, batch), start(rarer, true, next, batch));
        let (tcp, switched) = (finish(tcp), finish(switched));
        let tcp = tcp.expect("over TCP");
        match switched {
            Err(status) => wrong.push(format!("seeds from {next}: switched, {status}")),
            Ok(switched) => {
                switched_ones += switched.iter().filter(|line| line.ends_with(" by ring")).count();
                compare(&tcp, &switched, &mut wrong);
            }
        }
        next += batch;
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(8)].join("\n")
    );
    let most = usize::try_from(count).unwrap() / 2;
    assert!(switched_ones > most, "{switched_ones} of {count} connections were switched");
}

/// Both sides' lines of each sequence; the first difference of each is kept.
fn compare(tcp: &[String], switched: &[String], wrong: &mut Vec<String>) {
    let sequences = |lines: &[String]| -> Vec<Vec<String>> {
        lines.split(|line| line.starts_with("seed ")).map(<[String]>::to_vec).collect()
    };
    let heads: Vec<&String> = tcp.iter().filter(|line| line.starts_with("seed ")).collect();
    let (tcp, switched) = (sequences(tcp), sequences(switched));
    for (at, (one, other)) in tcp.iter().zip(&switched).enumerate() {
        let plain = |line: &&String| !line.ends_with(" by ring") && !line.ends_with(" by TCP");
        let one: Vec<&String> = one.iter().filter(plain).collect();
        let other: Vec<&String> = other.iter().filter(plain).collect();
        if let Some(step) =
            (0..one.len().max(other.len())).find(|step| one.get(*step) != other.get(*step))
        {
            let seed =
                at.checked_sub(1).and_then(|at| heads.get(at)).map_or("", |line| line.as_str());
            let before: Vec<&str> =
                one[step.saturating_sub(6)..step].iter().map(|line| line.as_str()).collect();
            wrong.push(format!(
                "{seed}, behind\n    {}\n  TCP      {:?}\n  switched {:?}",
                before.join("\n    "),
                one.get(step),
                other.get(step)
            ));
        }
    }
}
