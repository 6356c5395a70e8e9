//! The sources of a crate, and the tests in them that run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::tests_of::tests_of;

/// The tests of the crates of a workspace, each crate read once.
pub(crate) struct Suites<'a> {
    root: &'a Path,
    crates: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl<'a> Suites<'a> {
    pub(crate) fn new(root: &'a Path) -> Suites<'a> {
        Suites { root, crates: BTreeMap::new() }
    }

    /// Whether `test` in the file `file` of the crate `name` runs with the tests of its crate.
    pub(crate) fn has(&mut self, name: &str, file: &str, test: &str) -> io::Result<bool> {
        if !self.crates.contains_key(name) {
            let folder = self.root.join("crates").join(name);
            self.crates.insert(name.to_owned(), running_tests(&folder)?);
        }
        let tests = self.crates.get(name).and_then(|files| files.get(file));
        Ok(tests.is_some_and(|tests| tests.contains(test)))
    }
}

/// The tests that a line names as `` `crate/file::test` ``: crate, file, test.
pub(crate) fn tests_in(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
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

/// The tests of the crate at `root` that run, by the name of their file.
fn running_tests(root: &Path) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut files = sources(&root.join("src"))?;
    files.extend(sources(&root.join("tests"))?);
    let modules: BTreeSet<&str> = files.iter().flat_map(|(_, source)| modules_of(source)).collect();
    let mut tests = BTreeMap::<String, BTreeSet<String>>::new();
    for (path, source) in &files {
        let name = module_of(path);
        let is_target =
            path.parent() == Some(&root.join("tests")) || ["lib", "main"].contains(&name.as_str());
        if is_target || modules.contains(name.as_str()) {
            tests.entry(name).or_default().extend(tests_of(source));
        }
    }
    Ok(tests)
}

/// The name of a file's module: of `mod.rs` that of its folder.
fn module_of(path: &Path) -> String {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = stem(path);
    match path.parent() {
        Some(folder) if name == "mod" => stem(folder),
        _ => name,
    }
}

/// The modules in files of their own that a source declares.
fn modules_of(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let (before, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then_some(name)
    })
}

/// Every Rust file below `folder` with its text. A folder that does not exist has none.
pub(crate) fn sources(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
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
