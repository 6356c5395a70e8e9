//! Holds `docs/rules` against the sources that cite rules and against the tests that hold them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::citation::{bare_citations, citations};
use crate::suite::{Suites, tests_in};

/// Where citations are looked for, below the root of the workspace, and in files of which kinds.
const FOLDERS: &[&str] = &["crates", "docs", "examples", "include", "benches", "fuzz"];
const KINDS: &[&str] = &["rs", "c", "cpp", "h", "md", "patch", "toml"];

/// A rule as its document has it.
#[derive(Default)]
struct Rule {
    text: bool,
    source: bool,
    reason: bool,
    tests: Vec<(String, String, String)>,
}

/// Checks the rules of the workspace at `root`: each rule of `docs/rules` has a text, a source, and tests
/// that run or the reason why there is none; each rule that any file cites is there.
///
/// # Panics
/// If not, with a sentence for each fault.
pub fn hold_rules(root: &Path) {
    let faults = match faults(root) {
        Ok(faults) => faults,
        Err(error) => vec![format!("the sources cannot be read: {error}")],
    };
    assert!(faults.is_empty(), "docs/rules:\n  {}", faults.join("\n  "));
}

/// A rule of a document as people read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The heading.
    pub name: String,
    /// The sentences, as one line.
    pub text: String,
    /// The text behind `Source: `.
    pub source: String,
}

/// The rules of one document of `docs/rules`, in their order.
///
/// # Errors
/// The error of reading the document.
pub fn pages(root: &Path, document: &str) -> io::Result<Vec<Page>> {
    let text = fs::read_to_string(root.join("docs/rules").join(document))?;
    let mut pages: Vec<Page> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            let (text, source) = (String::new(), String::new());
            pages.push(Page { name: name.to_owned(), text, source });
            continue;
        }
        let Some(page) = pages.last_mut() else { continue };
        if let Some(source) = line.strip_prefix("Source: ") {
            source.clone_into(&mut page.source);
        } else if page.source.is_empty() && !line.is_empty() {
            let space = if page.text.is_empty() { "" } else { " " };
            page.text.push_str(space);
            page.text.push_str(line);
        }
    }
    Ok(pages)
}

fn faults(root: &Path) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    let rules = read(&root.join("docs/rules"), &mut faults)?;
    let mut suites = Suites::new(root);
    for (name, rule) in &rules {
        for (part, there) in [("text", rule.text), ("source", rule.source)] {
            if !there {
                faults.push(format!("{name} has no {part}"));
            }
        }
        if rule.tests.is_empty() && !rule.reason {
            faults.push(format!("{name} has neither tests nor \"No test, because ...\""));
        }
        for (crate_, file, test) in &rule.tests {
            if !suites.has(crate_, file, test)? {
                faults.push(format!("{name} names {crate_}/{file}::{test}, and no such test runs"));
            }
        }
    }
    let numbered: BTreeSet<&str> = rules.keys().map(String::as_str).collect();
    for path in files(root)? {
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let place = path.strip_prefix(root).unwrap_or(&path).display();
        let cited: BTreeSet<String> = citations(&text).into_iter().collect();
        for name in cited.iter().filter(|name| !numbered.contains(name.as_str())) {
            faults.push(format!("{place} cites {name}, and there is no such rule"));
        }
        for item in bare_citations(&text, &numbered) {
            faults.push(format!("{place} cites {item} without its interface"));
        }
    }
    Ok(faults)
}

/// The rules of every document in `folder`, by their headings.
fn read(folder: &Path, faults: &mut Vec<String>) -> io::Result<BTreeMap<String, Rule>> {
    let mut rules = BTreeMap::new();
    for path in of_kind(folder, &["md"])? {
        let mut name = None;
        for line in fs::read_to_string(&path)?.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                name = Some(heading.to_owned());
                if rules.insert(heading.to_owned(), Rule::default()).is_some() {
                    faults.push(format!("{heading} stands there twice"));
                }
            } else if line.starts_with('#') {
                name = None;
            }
            let Some(rule) = name.as_ref().and_then(|name| rules.get_mut(name)) else { continue };
            rule.source |= line.starts_with("Source: ");
            rule.reason |=
                line.strip_prefix("No test, because ").is_some_and(|why| why.len() >= 10);
            rule.text |= line.starts_with(|c: char| c.is_alphabetic()) && !rule.source;
            let owned = |(a, b, c): (&str, &str, &str)| (a.into(), b.into(), c.into());
            rule.tests.extend(tests_in(line).map(owned));
        }
    }
    Ok(rules)
}

/// The files in which rules may be cited.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        found.extend(of_kind(&root.join(folder), KINDS)?);
    }
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Every file below `folder` whose name ends in one of `kinds`. A folder that does not exist has none.
pub(crate) fn of_kind(folder: &Path, kinds: &[&str]) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if kinds.iter().any(|kind| path.extension().is_some_and(|it| it == *kind)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
