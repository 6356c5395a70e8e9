//! Holds each crate's `rules.toml` against its tests, so that a rule cannot lose its test unnoticed.
//!
//! A `rules.toml` has a table for each section of a specification, and in it a line for each rule:
//! the tests that hold it, or why none does here.
//!
//! ```toml
//! [W] # ND2 5.2
//! 3 = ["windows::w3_a_window_serves_its_own_queue_pair_only"] # what the rule says, if that helps
//! 15 = "not here, because it binds owners: when to invalidate is theirs to know"
//! ```
//!
//! A test is named by its file, without folders and `.rs`, and its function. It must run: a `#[test]`
//! that is neither ignored nor compiled for some targets only, in a file that is compiled.
//!
//! A crate calls [`hold`] in a test, with the sections that must be complete. [`paths`] runs a suite over
//! the other path; [`ports`] has ports at which nobody listens; [`Pages`] are memory to register;
//! [`Random`] is where random calls come from.

mod document;
mod pages;
pub mod paths;
pub mod ports;
mod random;
mod tests_of;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use tests_of::tests_of;

pub use document::hold_document;
pub use pages::Pages;
pub use random::Random;

/// The numbers from 1 to `last`, each behind `prefix`: the usual names of rules.
#[must_use]
pub fn numbered(prefix: &str, last: u32) -> Vec<String> {
    (1..=last).map(|number| format!("{prefix}{number}")).collect()
}

/// Checks the `rules.toml` of the crate at `root` (`env!("CARGO_MANIFEST_DIR")`): it is true, and
/// the sections given list at least the rules given.
///
/// # Panics
/// If not, with a sentence for each fault.
pub fn hold(root: &str, sections: &[(&str, Vec<String>)]) {
    let faults = match faults(Path::new(root), sections) {
        Ok(faults) => faults,
        Err(error) => vec![format!("the sources cannot be read: {error}")],
    };
    assert!(faults.is_empty(), "{root}/rules.toml:\n  {}", faults.join("\n  "));
}

/// Checks that no source of the front at `root` judges a bound, a right or a token: it translates,
/// and `transom-memory` decides.
///
/// # Panics
/// If one does.
pub fn judges_nothing(root: &str) {
    const JUDGING: &[&str] =
        &[".intersects(", "contains(Rights", "rights ==", "rights !=", "token ==", "token !="];
    let sources = match sources(&Path::new(root).join("src")) {
        Ok(sources) => sources,
        Err(error) => vec![(PathBuf::from(root), format!("token == {error}"))],
    };
    for (path, source) in sources {
        for word in JUDGING {
            assert!(!source.contains(word), "{} judges: {word}", path.display());
        }
    }
}

/// What is wrong with `rules.toml`, a sentence each.
fn faults(root: &Path, sections: &[(&str, Vec<String>)]) -> io::Result<Vec<String>> {
    let rules: BTreeMap<String, toml::Table> =
        match toml::from_str(&fs::read_to_string(root.join("rules.toml"))?) {
            Ok(rules) => rules,
            Err(error) => return Ok(vec![error.to_string()]),
        };
    let tests = running_tests(root)?;
    let mut faults = Vec::new();
    for (section, wanted) in sections {
        let listed = rules.get(*section);
        for rule in wanted {
            if !listed.is_some_and(|listed| listed.contains_key(rule)) {
                faults.push(format!("[{section}] {rule} is not listed"));
            }
        }
    }
    for (section, listed) in &rules {
        for (rule, held) in listed {
            if let Err(fault) = judge(held, &tests) {
                faults.push(format!("[{section}] {rule} {fault}"));
            }
        }
    }
    Ok(faults)
}

/// One line of `rules.toml`.
fn judge(held: &toml::Value, tests: &BTreeMap<String, BTreeSet<String>>) -> Result<(), String> {
    let names = match held {
        toml::Value::String(reason) => match reason.strip_prefix("not here, because ") {
            Some(why) if why.len() >= 10 => return Ok(()),
            _ => return Err("needs a reason: \"not here, because ...\"".into()),
        },
        toml::Value::Array(names) if !names.is_empty() => names,
        _ => return Err("needs the names of its tests".into()),
    };
    for name in names {
        let name = name.as_str().unwrap_or_default();
        let Some((file, test)) = name.split_once("::") else {
            return Err(format!("names {name}, which is not \"file::test\""));
        };
        if !tests.get(file).is_some_and(|tests| tests.contains(test)) {
            return Err(format!("names {name}, and no such test runs"));
        }
    }
    Ok(())
}

/// The tests that run, by the name of their file.
fn running_tests(root: &Path) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut files = sources(&root.join("src"))?;
    files.extend(sources(&root.join("tests"))?);
    let modules: BTreeSet<&str> = files.iter().flat_map(|(_, source)| modules_of(source)).collect();
    let mut tests = BTreeMap::<String, BTreeSet<String>>::new();
    for (path, source) in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_target =
            path.parent() == Some(&root.join("tests")) || ["lib", "main"].contains(&name.as_str());
        if is_target || modules.contains(name.as_str()) {
            tests.entry(name).or_default().extend(tests_of(source));
        }
    }
    Ok(tests)
}

/// The modules in files of their own that a source declares.
fn modules_of(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let (before, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then_some(name)
    })
}

/// Every Rust file below `folder`, and what it says. A folder that is not there has none.
fn sources(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path)?;
                found.push((path, source));
            }
        }
    }
    Ok(found)
}
