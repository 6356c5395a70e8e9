//! The names of rules that messages carry: one table, and one page for each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use transom_memory::{NamedRule, rules};
use xtask::{Page, names_shown, pages};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `docs/rules/protection.md` has the rules of the table, in its order, in its words.
#[test]
fn each_rule_of_the_table_has_its_page() {
    let pages = pages(&workspace(), "protection.md").unwrap();
    let names: Vec<_> = pages.iter().map(|page| &*page.name).collect();
    assert_eq!(names, rules::ALL.iter().map(|rule| rule.name()).collect::<Vec<_>>());
    for (Page { name, text, source }, rule) in pages.iter().zip(rules::ALL) {
        let text = text.to_lowercase();
        assert!(
            text.starts_with(&format!("{}.", rule.sentence().to_lowercase())),
            "{name}: {text}"
        );
        assert_eq!(source, rule.citation(), "{name}");
    }
}

#[test]
fn names_are_words_of_small_letters_and_each_finds_its_rule() {
    let mut names = BTreeSet::new();
    for rule in rules::ALL {
        assert!(rule.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{rule}");
        assert!(names.insert(rule.name()), "{rule} is there twice");
        assert_eq!(NamedRule::find(rule.name()), Some(*rule));
        assert_eq!(rule.to_string(), format!("(`transom explain {}`)", rule.name()));
    }
    assert_eq!(NamedRule::find("no_such_rule"), None);
}

/// A message that spells a name out spells one of the table.
#[test]
fn messages_name_rules_of_the_table() {
    let shown = names_shown(&workspace()).unwrap();
    for (place, name) in &shown {
        assert!(NamedRule::find(name).is_some(), "{place} names {name}");
    }
    let names: BTreeSet<_> = shown.iter().map(|(_, name)| &**name).collect();
    assert!(names.contains("posted_receive") && names.contains("live_token"), "{names:?}");
}
