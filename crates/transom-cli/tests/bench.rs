//! `transom bench`: that it runs and what its output looks like. No figure is judged here: the
//! machine that runs the tests is shared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use common::run;
use serde_json::Value;

fn number(object: &Value, field: &str) -> f64 {
    let value = object[field].as_f64();
    value.filter(|it| it.is_finite() && *it > 0.0).unwrap_or_else(|| panic!("{field}: {object}"))
}

fn compared(object: &Value) {
    for field in ["median", "p99", "baseline_median", "ratio"] {
        number(object, field);
    }
    let [low, high] = [0, 1].map(|at| object["ratio_quartiles"][at].as_f64().expect("a quartile"));
    let ratio = number(object, "ratio");
    assert!(low <= ratio && ratio <= high, "{object}");
    assert!(number(object, "pairs") >= 15.0, "{object}");
}

/// The machine that measured, the cost on each side, and that a revoked window was seen to be
/// closed before.
fn two_processes(object: &Value) {
    let pids = ["pid", "peer_pid"].map(|field| number(object, field));
    assert_ne!(pids[0], pids[1], "{object}");
    for field in ["seconds", "cpu_seconds", "peer_cpu_seconds"] {
        assert!(object[field].as_f64().is_some_and(|it| it.is_finite() && it >= 0.0), "{object}");
    }
    // The measuring side works; the other side may sleep all the time.
    number(object, "cpu_seconds");
    refused(object);
    for field in ["path", "wait", "crc", "congestion"] {
        assert!(object[field].as_str().is_some_and(|it| !it.is_empty()), "{field}: {object}");
    }
    assert!(object["pinned"].is_boolean(), "{object}");
}

/// Not just that it was refused: for which reason.
fn refused(object: &Value) {
    let how = object["refused"].as_str().expect("how it was refused");
    assert!(how.contains("refused") && how.contains("token must be live"), "{object}");
}

#[test]
fn two_processes_and_a_baseline() {
    for (bench, size, wait, crc, unit) in [
        ("write-latency", "8", "spin", "on", "ns"),
        ("write-latency", "1", "block", "off", "ns"),
        ("write-latency", "9", "watch", "on", "ns"),
        ("send-latency", "8", "spin", "on", "ns"),
        ("send-latency", "4096", "block", "off", "ns"),
        ("read-latency", "8", "watch", "on", "ns"),
        ("atomic-latency", "8", "spin", "off", "ns"),
        ("write-bandwidth", "65536", "spin", "off", "bytes/s"),
        ("write-bandwidth", "100000", "block", "on", "bytes/s"),
        ("read-bandwidth", "65536", "spin", "on", "bytes/s"),
    ] {
        let args = ["bench", bench, "--size", size, "--wait", wait, "--crc", crc];
        let ran = run(&[&args[..], &["--seconds", "0.03", "--baseline", "--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let object = ran.json();
        assert_eq!(object["bench"], bench);
        assert_eq!(object["path"], "tcp");
        assert_eq!(object["size"].to_string(), size);
        assert_eq!(object["wait"], wait);
        assert_eq!(object["crc"], crc);
        assert_eq!(object["unit"], unit);
        assert!(object["congestion"].as_str().is_some_and(|name| !name.is_empty()), "{object}");
        assert!(object["baseline"].as_str().is_some_and(|name| name.starts_with("raw")));
        number(&object, "largest_frame");
        compared(&object);
        two_processes(&object);
    }
}

#[test]
fn two_processes_share_memory() {
    for (bench, wait, baseline) in [
        ("write-latency", "spin", "two threads"),
        ("write-latency", "block", "Unix socket"),
        ("send-latency", "spin", "two threads"),
        ("read-latency", "watch", "two threads"),
        ("atomic-latency", "block", "Unix socket"),
        ("send-rate", "spin", "a bare ring"),
        ("write-bandwidth", "spin", "memcpy"),
        ("read-bandwidth", "block", "memcpy"),
        ("message-rate", "spin", "a bare ring"),
    ] {
        let args = ["bench", bench, "--path", "process", "--wait", wait, "--seconds", "0.03"];
        let ran = run(&[&args[..], &["--baseline", "--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let object = ran.json();
        assert_eq!(
            (object["bench"].as_str(), object["path"].as_str()),
            (Some(bench), Some("process"))
        );
        assert!(object["baseline"].as_str().is_some_and(|name| name.starts_with(baseline)));
        compared(&object);
        by_line(&object);
        two_processes(&object);
        let second = object["second"]["baseline"].as_str().unwrap_or_default();
        assert_eq!(second.contains("just written"), bench.ends_with("bandwidth"), "{object}");
    }
}

/// Each pair is near, far or mixed.
fn by_line(object: &Value) {
    let groups = object["by_line"].as_array().expect("groups");
    let sorted: u64 = groups.iter().map(|group| group["pairs"].as_u64().unwrap()).sum();
    assert_eq!(sorted + object["mixed"].as_u64().unwrap(), object["pairs"].as_u64().unwrap());
    for group in groups {
        assert!(["near", "far"].iter().any(|name| group["distance"] == *name), "{object}");
        for field in ["line", "median", "ratio"] {
            number(group, field);
        }
    }
}

#[test]
fn small_messages_with_few_completions() {
    for bench in ["message-rate", "send-rate"] {
        let args = ["bench", bench, "--size", "24", "--wait", "block", "--crc", "off"];
        let more = ["--congestion", "reno", "--seconds", "0.03", "--baseline", "--json"];
        let ran = run(&[&args[..], &more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let object = ran.json();
        assert_eq!(object["congestion"], "reno");
        let (unit, size) = (&object["unit"], &object["size"]);
        assert_eq!((unit, size), (&"messages/s".into(), &24.into()), "{object}");
        assert!(object["baseline"].as_str().is_some_and(|it| it.ends_with("one system call each")));
        compared(&object);
        two_processes(&object);
    }
}

#[test]
fn opening_and_closing_on_this_side_alone() {
    for (bench, size) in [("bind", "4096"), ("register", "1"), ("register", "1073741824")] {
        let ran = run(&["bench", bench, "--size", size, "--seconds", "0.03", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let object = ran.json();
        assert_eq!((&object["bench"], &object["unit"]), (&bench.into(), &"ns".into()), "{object}");
        assert!(object["baseline"].as_str().is_some_and(|name| name.ends_with("alone")));
        compared(&object);
        two_processes(&object);
    }
}

#[test]
fn a_few_active_connections_among_many() {
    for (wait, path) in [("spin", "tcp"), ("block", "tcp"), ("spin", "process")] {
        let args = ["bench", "connections", "--connections", "40", "--active", "5", "--json"];
        let ran =
            run(&[&args[..], &["--wait", wait, "--path", path, "--seconds", "0.03"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let object = ran.json();
        assert_eq!((&object["wait"], &object["path"]), (&wait.into(), &path.into()), "{object}");
        assert_eq!(object["baseline"], "5 connections, all of them active");
        compared(&object);
        two_processes(&object);
    }
}

#[test]
fn more_connections_than_descriptors_are_asked_for_in_vain() {
    run(&["bench", "connections", "--connections", "4000000000"])
        .failed(5, &["4000000100 connections", "descriptors", "hard limit"]);
    run(&["bench", "connections", "--connections", "5", "--active", "6"])
        .failed(2, &["--active 6"]);
}

/// A bench whose peer leaves its window open must not print a figure.
#[test]
fn a_window_that_stays_open_is_noticed() {
    for path in ["tcp", "process"] {
        let ran = run(&["bench", "write-latency", "--path", path, "--leave-window-open"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains("a revoked window was written to"), "{ran:?}");
    }
}

#[test]
fn without_a_baseline_there_is_no_ratio() {
    let ran = run(&["bench", "write-latency", "--seconds", "0.015", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let object = ran.json();
    number(&object, "median");
    assert!(object["ratio"].is_null() && object["baseline_median"].is_null(), "{object}");
}

#[test]
fn a_check_is_compared_with_a_load_in_each_order() {
    let ran = run(&["bench", "check", "--tokens", "1000", "--seconds", "0.05", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let orders = ran.json()["orders"].as_array().expect("three orders").clone();
    assert_eq!(orders.len(), 3);
    for (object, order) in orders.iter().zip(["dependent", "overlapped", "batched"]) {
        assert_eq!(object["order"], order);
        assert_eq!(object["tokens"], 1000);
        compared(object);
        number(object, "pid");
        refused(object);
    }
}

#[test]
fn memory_is_counted() {
    let args = ["bench", "memory", "--registrations", "10000", "--connections", "20", "--json"];
    let ran = run(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    let object = ran.json();
    number(&object, "bytes_per_registration");
    // The promise: at most 16 KiB of ours per idle connection, at each end.
    assert!(number(&object, "bytes_per_idle_connection") <= 16384.0, "{object}");
    // Over shared memory, what both ends share included.
    let shared = number(&object, "shared_bytes_per_idle_connection_process");
    let ours = number(&object, "bytes_per_idle_connection_process");
    assert!(ours + shared <= 2.0 * 16384.0, "{object}");
}

#[test]
fn people_get_lines() {
    let ran = run(&["bench", "write-latency", "--seconds", "0.03", "--baseline"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for word in
        ["write-latency", "transom", "baseline", "ratio", "quartiles", "15 pairs", "processor"]
    {
        assert!(ran.out.contains(word), "{word}: {ran:?}");
    }
}

/// An honest peer goes on beside every attacker, and both figures are there.
#[test]
fn beside_every_attacker_an_honest_peer_goes_on() {
    let ran = run(&["bench", "fairness", "--seconds", "0.1", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut attacks = 0;
    for line in ran.out.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        for field in ["beside_honest", "beside_attacker", "ratio", "turns"] {
            number(&object, field);
        }
        attacks += 1;
    }
    assert_eq!(attacks, 8);
}
