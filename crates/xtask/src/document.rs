//! Holds a document that names tests against the tests.

use std::path::Path;
use std::{fs, io};

use crate::suite::{Suites, tests_in};

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
    let mut suites = Suites::new(root);
    let (mut faults, mut names, mut in_table) = (Vec::new(), 0, false);
    for line in text.lines() {
        let mut here = 0;
        for (crate_, file, test) in tests_in(line) {
            here += 1;
            if !suites.has(crate_, file, test)? {
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
