//! `rules.toml` is complete and true: no rule is missing, and every test it names exists and runs.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const REST: &[&str] = &[
    "5.3 arithmetic",
    "5.3 zero length",
    "5.3 empty Bind",
    "5.3 whole request",
    "5.3 used part",
    "5.4 local token",
    "5.4 remote token",
    "5.4 address",
    "5.4 relation",
    "5.4 new value per Bind",
    "5.4 region token without remote rights",
    "5.4 v1 descriptor",
    "5.5a 0x0",
    "5.5a 0x1",
    "5.5a 0x2",
    "5.5a 0x3",
    "5.5a 0x5",
    "5.5a 0x7",
    "5.5a 0x8",
    "5.5a 0x9",
    "5.5a 0x80000000",
    "5.5b without 0x1",
    "5.5b with 0x1",
    "5.5c none",
    "5.5c READ",
    "5.5c WRITE",
    "5.5c READ + WRITE",
    "5.5 programs",
    "5.6 Bind, Deregister",
    "5.6 Bind, Invalidate, Deregister",
    "5.6 Bind posted, Deregister",
    "5.6 Invalidate posted, Deregister",
    "5.6 Bind, Disconnect, Deregister",
    "5.6 Bind, Release region, Release window",
    "5.6 Bind flushed",
    "5.6 Deregister during an access",
];

/// The tests of a source file that run: a `#[test]` without `#[ignore]` before the function.
fn tests_of(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut test, mut ignored) = (false, false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            test |= line == "#[test]";
            ignored |= line.starts_with("#[ignore") || line.starts_with("#[cfg");
        } else if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if test && !ignored {
                found.insert(name.to_owned());
            }
            (test, ignored) = (false, false);
        } else if !line.starts_with("//") && !line.is_empty() {
            (test, ignored) = (false, false);
        }
    }
    found
}

fn sources() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeMap::new();
    for folder in ["src", "tests"] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let tests = tests_of(&fs::read_to_string(&path).unwrap());
                let twice = all.insert(name, tests);
                assert!(twice.is_none(), "two files named {}", path.display());
            }
        }
    }
    all
}

#[test]
fn every_rule_is_held_by_tests_that_run_or_by_somebody_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("rules.toml")).unwrap();
    let rules: toml::Table = text.parse().unwrap();
    let sources = sources();

    let numbered = (1..=24).map(|n| format!("R{n}")).chain((1..=21).map(|n| format!("W{n}")));
    let wanted: BTreeSet<String> = numbered.chain(REST.iter().map(|id| (*id).to_owned())).collect();
    let listed: BTreeSet<String> = rules.keys().cloned().collect();
    assert_eq!(listed, wanted);

    for (id, rule) in &rules {
        match (rule.get("tests"), rule.get("not_here")) {
            (Some(tests), None) => {
                assert!(rule.get("rule").is_some(), "{id} does not say what it is");
                let tests = tests.as_array().unwrap();
                assert!(!tests.is_empty(), "{id} has no test");
                for test in tests {
                    let test = test.as_str().unwrap();
                    let (file, name) = test.split_once("::").unwrap();
                    let known = sources.get(file).is_some_and(|tests| tests.contains(name));
                    assert!(known, "{id}: there is no test {test} that runs");
                }
            }
            (None, Some(why)) => {
                let why = why.as_str().unwrap();
                assert!(why.starts_with("because ") && why.len() > 30, "{id}: {why}");
            }
            _ => panic!("{id} needs tests, or a reason: one of them"),
        }
    }
}

#[test]
fn ignored_and_missing_tests_are_noticed() {
    let source = "#[test]\nfn one() {}\n#[test]\n#[ignore = \"slow\"]\nfn two() {}\nfn three() {}\n\
                  #[ignore]\n#[test]\nfn four() {}\nproptest! {\n    /// Doc.\n    #[test]\n    \
                  fn five(x in 0..3) {}\n}\n#[test]\nlet x = 1;\nfn six() {}\n";
    let found: Vec<String> = tests_of(source).into_iter().collect();
    assert_eq!(found, ["five", "one"]);
}
