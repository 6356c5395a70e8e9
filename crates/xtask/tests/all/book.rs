//! The book of `docs/` has all of its pages, and its links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Markdown file below a folder.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.fold(BTreeSet::new(), |mut pages, path| {
        if path.is_dir() {
            pages.append(&mut self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.insert(path);
        }
        pages
    })
}

/// The files that a page links to, without addresses and anchors.
fn links(page: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(page).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    let folder = page.parent().unwrap();
    files.map(|target| folder.join(target.split('#').next().unwrap())).collect()
}

#[test]
fn each_page_is_in_the_table_of_contents() {
    let docs = root().join("docs");
    let contents = docs.join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&contents).into_iter().collect();
    let mut pages = pages(&docs);
    pages.remove(&contents);
    assert_eq!(listed, pages);
}

#[test]
fn links_between_documents_lead_to_files() {
    let root = root();
    let mut pages = pages(&root.join("docs"));
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let dead = |page: &PathBuf| {
        let dead = links(page).into_iter().filter(|target| !target.exists());
        dead.map(|target| (page.clone(), target)).collect::<Vec<_>>()
    };
    assert_eq!(pages.iter().flat_map(dead).collect::<Vec<_>>(), []);
}

/// A page that is read first stays short: its words, of which each has a letter or a digit.
#[test]
fn pages_that_are_read_first_are_short() {
    for (page, most) in [
        ("README.md", 700),
        ("ARCHITECTURE.md", 2500),
        ("docs/performance.md", 1500),
        ("docs/reliability.md", 1500),
    ] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
        let words = words.count();
        assert!(words <= most, "{page} has {words} words, and {most} are the most");
    }
}
