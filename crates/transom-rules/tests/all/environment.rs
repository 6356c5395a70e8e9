//! `docs/environment.md` has every variable that what ships reads, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::manifests::{manifests, published};

/// Words in double quotes that name a variable: one of ours or of the loader's, or one that a call for
/// the environment names.
fn variables_in(line: &str) -> impl Iterator<Item = &str> {
    let asks = line.contains("env::var");
    line.split('"').skip(1).step_by(2).filter(move |word| {
        let shape = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        !word.is_empty()
            && word.chars().all(shape)
            && (asks || word.starts_with("TRANSOM_") || word.starts_with("LD_"))
    })
}

/// The variables that the sources below `folder` name, but for comments and tests.
fn read_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            read_below(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let ships = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = ships.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.extend(lines.flat_map(variables_in).map(str::to_owned));
        }
    }
}

/// The variables in the first column of the document's tables.
fn documented(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_variable_that_is_read_has_a_line() {
    let mut read = BTreeSet::new();
    for (folder, manifest) in manifests() {
        if published(&manifest) && folder.join("src").is_dir() {
            read_below(&folder.join("src"), &mut read);
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/environment.md")).unwrap();
    assert_eq!(documented(&text), read, "left: docs/environment.md; right: the sources");
}
