//! The rules of `docs/rules`, and what is noticed about such documents: each time a workspace in which one
//! thing is wrong.

use std::path::{Path, PathBuf};
use std::{fs, panic};

use xtask::{hold_rules, judges_nothing, no_citation_is_shown};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each rule has tests or a reason, each citation has a rule.
#[test]
fn every_rule_is_held_and_every_citation_has_its_rule() {
    hold_rules(&workspace());
}

/// Rights, bounds and tokens are compared in `transom-memory` alone.
#[test]
fn no_front_judges_a_bound_right_or_token() {
    for front in ["networkdirect", "ndkpi", "winsock-direct", "verbs"] {
        let root = workspace().join(format!("crates/transom-{front}"));
        assert!(root.join("src").is_dir(), "{front}");
        judges_nothing(root.to_str().unwrap());
    }
}

#[test]
fn no_text_for_people_has_a_citation() {
    no_citation_is_shown(&workspace());
}

// Written apart, lest this file cite rules that are none.
const RULES: &str = concat!(
    "## Windows\n\n### WSD",
    " A-1\n\nA rule.\n\nSource: guide\n\nTests: `small/windows::one` `small/inner::two`\n\n### WSD",
    " A-2\n\nAnother.\n\nSource: guide\n\nNo test, because it binds clients.\n",
);
const WINDOWS: &str = concat!("mod deep;\n/", "/", "/ WSD", " A-1, A-2.\n#[test]\nfn one() {}\n");
const INNER: &str = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn two() {}\n}\n";

/// A workspace with one crate.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Workspace {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = root.join(format!("rules-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let new = Workspace(root);
        new.write("docs/rules/winsock-direct.md", RULES);
        new.write("crates/small/src/lib.rs", "mod inner;\n");
        new.write("crates/small/src/inner.rs", INNER);
        new.write("crates/small/tests/windows.rs", WINDOWS);
        new
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The sentences about its rules, or none.
    fn faults(&self) -> String {
        said(|| hold_rules(&self.0))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said(check: impl FnOnce() + panic::UnwindSafe) -> String {
    panic::catch_unwind(check)
        .err()
        .map_or(String::new(), |words| *words.downcast::<String>().unwrap())
}

#[test]
fn a_workspace_that_keeps_its_rules_passes() {
    assert_eq!(Workspace::new("good").faults(), "");
}

#[test]
fn a_test_that_does_not_run_is_noticed() {
    let one = Workspace::new("gone");
    for instead in ["#[test]\nfn uno() {}\n", "#[test]\n#[ignore]\nfn one() {}\n"] {
        one.write("crates/small/tests/windows.rs", instead);
        let fault = "A-1 names small/windows::one, and no such test runs";
        assert!(one.faults().contains(fault), "{instead}: {}", one.faults());
    }
    one.write("crates/small/tests/windows.rs", WINDOWS);
    one.write("crates/small/src/lib.rs", "// mod inner;\n");
    assert!(one.faults().contains("A-1 names small/inner::two, and no such test runs"));
}

/// A test of `mod.rs` is named by its folder.
#[test]
fn a_test_of_a_module_with_a_folder_is_found() {
    let one = Workspace::new("folder");
    fs::remove_file(one.0.join("crates/small/src/inner.rs")).unwrap();
    one.write("crates/small/src/inner/mod.rs", INNER);
    assert_eq!(one.faults(), "");
}

#[test]
fn a_rule_that_lacks_a_part_is_noticed() {
    let one = Workspace::new("parts");
    for (part, instead, fault) in [
        ("No test, because it binds clients.", "Later.", "A-2 has neither tests nor"),
        ("No test, because it binds clients.", "No test, because.", "A-2 has neither tests nor"),
        ("Another.\n\nSource: guide", "Another.", "A-2 has no source"),
        ("Another.\n\n", "", "A-2 has no text"),
        ("A-2\n", "A-1\n", "A-1 stands there twice"),
    ] {
        one.write("docs/rules/winsock-direct.md", &RULES.replace(part, instead));
        assert!(one.faults().contains(fault), "{instead}: {}", one.faults());
    }
}

#[test]
fn a_citation_without_a_rule_is_noticed() {
    for (file, text) in [
        ("crates/small/tests/windows.rs", concat!("/", "/ WSD", " A-1, A-3\n")),
        ("crates/small/tests/cpp/a.cpp", concat!("/* WSD", " A-2 to A-4 */\n")),
        ("ARCHITECTURE.md", concat!("As WSD", " A-3 says.\n")),
    ] {
        let one = Workspace::new("cited");
        one.write(file, text);
        let fault = format!("{file} cites WSD{}, and there is no such rule", " A-3");
        assert!(one.faults().contains(&fault), "{file}: {}", one.faults());
    }
    let one = Workspace::new("bare");
    one.write("crates/small/src/inner.rs", &format!("{INNER}/{}", "/ As A-1 says.\n"));
    assert!(one.faults().contains("inner.rs cites A-1 without its interface"));
}

#[test]
fn documents_that_are_not_there_are_noticed() {
    let one = Workspace::new("none");
    fs::remove_dir_all(one.0.join("docs")).unwrap();
    assert!(one.faults().contains("there is no such rule"));
}

#[test]
fn a_citation_that_people_would_see_is_noticed() {
    let shown = |root: &Path| {
        let root = root.to_owned();
        said(move || no_citation_is_shown(&root))
    };
    let one = Workspace::new("shown");
    assert_eq!(shown(&one.0), "");
    one.write("crates/small/src/text.rs", concat!("const A: &str = \"no (WSD", " A-1)\";\n"));
    assert!(shown(&one.0).contains("crates/small/src/text.rs: WSD"));
    let two = Workspace::new("readme");
    two.write("README.md", concat!("refused (WSD", " A-1)\n"));
    assert!(shown(&two.0).contains("README.md: WSD"));
}

#[test]
fn a_front_that_judges_is_noticed() {
    let one = Workspace::new("front");
    let root = one.0.join("crates/small");
    let root = root.to_str().unwrap();
    judges_nothing(root);
    one.write("crates/small/src/deep/inner.rs", "if token == other {}\n");
    assert!(panic::catch_unwind(|| judges_nothing(root)).is_err());
}
