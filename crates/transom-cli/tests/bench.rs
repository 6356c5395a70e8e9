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

#[test]
fn two_processes_and_a_baseline() {
    for (bench, size, wait, crc, unit) in [
        ("write-latency", "8", "spin", "on", "ns"),
        ("write-latency", "1", "block", "off", "ns"),
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
    }
}

#[test]
fn two_processes_share_memory() {
    for (bench, wait, baseline) in [
        ("write-latency", "spin", "two threads"),
        ("write-latency", "block", "raw"),
        ("write-bandwidth", "spin", "memcpy"),
        ("read-bandwidth", "block", "memcpy"),
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
}

#[test]
fn people_get_lines() {
    let ran = run(&["bench", "write-latency", "--seconds", "0.03", "--baseline"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for word in ["write-latency", "transom", "baseline", "ratio", "quartiles", "15 pairs"] {
        assert!(ran.out.contains(word), "{word}: {ran:?}");
    }
}
