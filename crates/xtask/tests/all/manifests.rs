//! The needs of a registry and a packager of each published crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// The folders of all crates, with their manifests.
pub(crate) fn manifests() -> Vec<(PathBuf, Table)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    let manifests = folders.filter(|folder| folder.join("Cargo.toml").exists());
    manifests
        .map(|folder| {
            let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            (folder, text.parse().unwrap())
        })
        .collect()
}

fn package(manifest: &Table) -> &Table {
    manifest["package"].as_table().unwrap()
}

pub(crate) fn published(manifest: &Table) -> bool {
    package(manifest).get("publish") != Some(&Value::Boolean(false))
}

fn words(package: &Table, key: &str) -> usize {
    package.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The fields that the manifest lacks, in words.
fn lacking(folder: &Path, manifest: &Table) -> Vec<String> {
    let package = package(manifest);
    let mut lacking = Vec::new();
    let mut need = |holds: bool, what: &str| {
        if !holds {
            lacking.push(format!("{}: {what}", folder.display()));
        }
    };
    need(package.contains_key("description"), "no description");
    need(package.contains_key("license"), "no license");
    need(package.contains_key("rust-version"), "no rust-version");
    need((1..=5).contains(&words(package, "keywords")), "one to five keywords");
    need((1..=5).contains(&words(package, "categories")), "one to five categories");
    for key in ["repository", "homepage"] {
        need(!package.contains_key(key), "an address that does not exist yet");
    }
    let readme = package.get("readme").and_then(Value::as_str).map(|readme| folder.join(readme));
    need(readme.is_some_and(|readme| readme.is_file()), "no readme");
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        need(folder.join(licence).is_file(), "no copy of a licence");
    }
    lacking
}

/// The crates of ours that a manifest names, tests' included.
fn needs(manifest: &Table) -> Vec<String> {
    let mut tables: Vec<&Table> = vec![manifest];
    tables.extend(
        manifest
            .get("target")
            .and_then(Value::as_table)
            .into_iter()
            .flat_map(|targets| targets.values().filter_map(Value::as_table)),
    );
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    let lists = tables.iter().flat_map(|table| sections.iter().filter_map(|name| table.get(*name)));
    lists.filter_map(Value::as_table).flat_map(|list| list.keys().cloned()).collect()
}

/// Dependencies point down, those of tests as well: no crate is above itself.
#[test]
fn no_crate_needs_one_above_it() {
    let manifests = manifests();
    let mut left: BTreeMap<String, Vec<String>> = manifests
        .iter()
        .map(|(_, manifest)| {
            (package(manifest)["name"].as_str().unwrap().to_owned(), needs(manifest))
        })
        .collect();
    assert!(left.len() > 10);
    // A crate is taken off when nothing is left that it needs.
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, needs| needs.iter().any(|need| names.contains(need)));
        if left.len() == before {
            break;
        }
    }
    assert_eq!(left, BTreeMap::new(), "each of these needs another one of them");
}

/// A module with a folder is `mod.rs` in it.
#[test]
fn modules_have_one_style() {
    let two: Vec<PathBuf> = manifests()
        .iter()
        .flat_map(|(folder, _)| files(&folder.join("src")))
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .filter(|path| path.with_extension("").is_dir())
        .collect();
    assert!(two.is_empty(), "{two:?}");
}

/// Every file below a folder; none, if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn each_published_crate_has_what_a_registry_asks_for() {
    let manifests = manifests();
    let ships = manifests.iter().filter(|(_, manifest)| published(manifest));
    let lacking: Vec<String> =
        ships.clone().flat_map(|(folder, manifest)| lacking(folder, manifest)).collect();
    assert!(ships.count() > 0, "no crate is published");
    assert_eq!(lacking, Vec::<String>::new());
}

#[test]
fn a_published_crate_depends_on_published_crates_only() {
    let manifests = manifests();
    let name = |manifest: &Table| package(manifest)["name"].as_str().unwrap().to_owned();
    let private: Vec<String> =
        manifests.iter().filter(|(_, m)| !published(m)).map(|(_, m)| name(m)).collect();
    for (folder, manifest) in manifests.iter().filter(|(_, manifest)| published(manifest)) {
        for section in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(Value::as_table) else {
                continue;
            };
            for dependency in dependencies.keys() {
                assert!(!private.contains(dependency), "{} needs {dependency}", folder.display());
            }
        }
    }
}
