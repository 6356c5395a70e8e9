//! `rules.toml` is complete and true: no rule is missing, and every test it names exists and runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const RULES: &[(&str, usize)] =
    &[("OB", 5), ("LT", 18), ("MR", 20), ("DR", 5), ("MW", 12), ("INV", 11)];

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
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for folder in ["src", "tests"] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                all.entry(name).or_default().extend(tests_of(&fs::read_to_string(&path).unwrap()));
            }
        }
    }
    all
}

#[test]
fn every_rule_has_its_tests_or_a_reason() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("rules.toml")).unwrap();
    let rules: toml::Table = text.parse().unwrap();
    let sources = sources();
    assert_eq!(rules.len(), RULES.len());
    for (family, count) in RULES {
        let table = rules[*family].as_table().unwrap();
        let numbers: BTreeSet<usize> = table.keys().map(|key| key.parse().unwrap()).collect();
        assert_eq!(numbers, (1..=*count).collect(), "{family}");
        for (number, held) in table {
            if let Some(reason) = held.as_str() {
                assert!(reason.starts_with("not here: "), "{family}-{number}");
                continue;
            }
            let tests = held.as_array().unwrap();
            assert!(!tests.is_empty(), "{family}-{number}");
            for test in tests {
                let (file, name) = test.as_str().unwrap().split_once("::").unwrap();
                let found = sources.get(file).is_some_and(|tests| tests.contains(name));
                assert!(found, "{family}-{number}: no test {file}::{name} that runs");
            }
        }
    }
}

/// A front translates and never decides: nothing in its sources judges a bound, a right or a token.
#[test]
fn the_sources_judge_no_bound_right_or_token() {
    const JUDGING: &[&str] =
        &[".intersects(", "contains(Rights", "rights ==", "rights !=", "token ==", "token !="];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for word in JUDGING {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
}
