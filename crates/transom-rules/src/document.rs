//! Holds a document that names tests against the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use crate::running_tests;

/// The tests that run, by their files, of each crate.
type Crates = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Checks the document `file` of the workspace at `root`. It names tests as `` `crate/file::test` ``:
/// each must run. A table whose last column is `tests` has at least one in each of its rows, or says
/// there why not: `none, because ...`.
///
/// # Panics
/// If not, with a sentence for each fault.
pub fn hold_document(root: &Path, file: &str) {
    let faults = match faults(root, file) {
        Ok(faults) => faults,
        Err(error) => vec![format!("the sources cannot be read: {error}")],
    };
    assert!(faults.is_empty(), "{file}:\n  {}", faults.join("\n  "));
}

fn faults(root: &Path, file: &str) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(root.join(file))?;
    let mut crates = Crates::new();
    let (mut faults, mut names, mut in_table) = (Vec::new(), 0, false);
    for line in text.lines() {
        let mut here = 0;
        for (crate_, file, test) in tests_in(line) {
            here += 1;
            if !crates.contains_key(crate_) {
                let folder = root.join("crates").join(crate_);
                let tests = if folder.is_dir() { running_tests(&folder)? } else { BTreeMap::new() };
                crates.insert(crate_.to_owned(), tests);
            }
            let runs = crates.get(crate_).and_then(|tests| tests.get(file));
            if !runs.is_some_and(|tests| tests.contains(test)) {
                faults.push(format!("names {crate_}/{file}::{test}, and no such test runs"));
            }
        }
        names += here;
        let row = line.starts_with('|');
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        if row && in_table && here == 0 && !last.starts_with("---") {
            let reason = last.split_once("none, because ").is_some_and(|(_, why)| why.len() >= 10);
            if !reason {
                faults.push(format!("has a line without a test: {line}"));
            }
        }
        in_table = row && (in_table || last == "tests");
    }
    if names == 0 {
        faults.push("names no test at all".to_owned());
    }
    Ok(faults)
}

/// What is named in a line: crate, file, test.
fn tests_in(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| {
        let (crate_, rest) = code.split_once('/')?;
        let (file, test) = rest.split_once("::")?;
        let plain = |text: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !text.is_empty() && text.chars().all(known)
        };
        (plain(crate_) && plain(file) && plain(test)).then_some((crate_, file, test))
    })
}
