//! `docs/environment.md` has every variable that what ships reads, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::manifests::{manifests, published};

/// Words in double quotes that name a variable: one of ours or of the loader's, or one that a call for
/// the environment names.
fn variables_in(line: &str) -> impl Iterator<Item = &str> {
    let asks = line.contains("variable(\"");
    line.split('"').skip(1).step_by(2).filter(move |word| {
        let shape = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        word.contains(|c: char| c.is_ascii_uppercase())
            && word.chars().all(shape)
            && (asks || word.starts_with("TRANSOM_") || word.starts_with("LD_"))
    })
}

/// The lines of the sources below `folder`, each with its file, but for comments and tests.
fn lines_below(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            lines_below(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let ships = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = ships.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.extend(lines.map(|line| (path.clone(), line.to_owned())));
        }
    }
}

/// The variables in the first column of the document's tables.
fn documented(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// The lines of what ships.
fn shipping() -> Vec<(PathBuf, String)> {
    let mut lines = Vec::new();
    for (folder, manifest) in manifests() {
        if published(&manifest) && folder.join("src").is_dir() {
            lines_below(&folder.join("src"), &mut lines);
        }
    }
    lines
}

#[test]
fn one_crate_reads_the_environment() {
    // That crate asks first whether the environment may be believed.
    let reads = |line: &str| {
        ["env::var", "env::temp_dir", "env::home_dir", "getenv", "environ"].iter().any(|word| {
            line.match_indices(word).any(|(at, _)| {
                let behind = line[at + word.len()..].chars().next();
                behind.is_none_or(|next| "(_s".contains(next))
            })
        })
    };
    assert!(reads("std::env::var(name)") && reads("std::env::var_os(name)"));
    assert!(reads("std::env::vars()") && reads("libc::getenv(name)") && !reads("environment::x()"));
    let shipping = shipping();
    let (own, others): (Vec<_>, Vec<_>) = shipping
        .into_iter()
        .filter(|(_, line)| reads(line))
        .partition(|(path, _)| path.ends_with("transom-os/src/environment.rs"));
    assert!(!own.is_empty());
    // After `is_believed`, because nothing may be allocated there.
    let others: Vec<_> =
        others.iter().filter(|(path, _)| !path.ends_with("transom-paths/src/rewrite.rs")).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn every_variable_that_is_read_has_a_line() {
    let lines = shipping();
    let read: BTreeSet<String> =
        lines.iter().flat_map(|(_, line)| variables_in(line)).map(str::to_owned).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/environment.md")).unwrap();
    assert_eq!(documented(&text), read, "left: docs/environment.md; right: the sources");
}

/// RUST_MIN_STACK is a variable, too: the standard library reads it for a thread whose stack has no size.
#[test]
fn each_thread_of_a_library_says_how_large_its_stack_is() {
    let starts = |line: &str| {
        ["thread::Builder::new()", "std::thread::spawn("].iter().any(|word| line.contains(word))
    };
    assert!(
        starts("std::thread::Builder::new().spawn(work)") && starts("std::thread::spawn(work)")
    );
    let found: Vec<_> = shipping()
        .into_iter()
        .filter(|(path, line)| {
            starts(line) && !path.components().any(|part| part.as_os_str() == "transom-cli")
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}
