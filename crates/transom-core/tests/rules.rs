//! `rules.toml` lists every rule of ND2 4, and what ND2 8 settles, and its tests exist and are not ignored.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use transom_core::QueuePairState;
use transom_core::tables::{ConnectorCall, ListenerCall, OUTCOMES};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Every numbered rule there is, by table of the file.
fn numbered() -> Vec<(&'static str, String)> {
    let range = |prefix: &str, last: u32| -> Vec<String> {
        (1..=last).map(|number| format!("{prefix}{number}")).collect()
    };
    let mut rules = Vec::new();
    let mut add = |table, names: Vec<String>| {
        rules.extend(names.into_iter().map(|name| (table, name)));
    };
    add("posting", QueuePairState::ALL.map(|state| format!("{state:?}")).to_vec());
    add("ordering", range("", 8));
    add("notify", range("N", 11));
    add("outcomes", OUTCOMES.map(|outcome| format!("{:?}", outcome.situation)).to_vec());
    add("connector", ConnectorCall::ALL.map(|call| format!("{call:?}")).to_vec());
    add("listener", ListenerCall::ALL.map(|call| format!("{call:?}")).to_vec());
    add("cancel", range("", 4));
    add("limits", range("", 9));
    add("end", range("", 5));
    add(
        "settled",
        (17..=49)
            .map(|number| format!("C{number}"))
            .filter(|name| {
                !["C36", "C37", "C39", "C40"].contains(&name.as_str()) // memory: ND2 5.8
            })
            .collect(),
    );
    rules
}

type Rules = BTreeMap<String, BTreeMap<String, toml::Value>>;

fn rules() -> Rules {
    toml::from_str(&std::fs::read_to_string(format!("{ROOT}/rules.toml")).unwrap()).unwrap()
}

#[test]
fn every_numbered_rule_is_listed() {
    let rules = rules();
    for (table, name) in numbered() {
        assert!(rules[table].contains_key(&name), "{table} {name} is not in rules.toml");
    }
}

#[test]
fn every_test_exists_and_runs_and_every_absence_has_a_reason() {
    for (table, rules) in rules() {
        for (name, held) in rules {
            match held {
                toml::Value::String(reason) => assert!(reason.len() > 10, "{table} {name}"),
                toml::Value::Array(tests) => {
                    assert!(!tests.is_empty(), "{table} {name}");
                    for test in tests {
                        check(test.as_str().unwrap());
                    }
                }
                other => unreachable!("{table} {name}: {other}"),
            }
        }
    }
}

fn check(test: &str) {
    let (file, function) = test.split_once("::").unwrap();
    let source = std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let head = format!("fn {function}()");
    let at = lines.iter().position(|line| line.starts_with(&head));
    let at = at.unwrap_or_else(|| unreachable!("{test} does not exist"));
    // The attributes directly above it.
    let attributes: Vec<_> =
        lines[..at].iter().rev().take_while(|line| line.starts_with('#')).collect();
    assert!(attributes.iter().any(|line| **line == "#[test]"), "{test} is no test");
    assert!(!attributes.iter().any(|line| line.starts_with("#[ignore")), "{test} is ignored");
}
