//! The needs of a registry and a packager of each published crate.

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
