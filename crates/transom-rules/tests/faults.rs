//! What is noticed about a `rules.toml`: each time a crate in which one thing is wrong.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::{fs, panic};

use transom_rules::{hold, judges_nothing, numbered};

const RULES: &str =
    "[A]\n1 = [\"windows::one\", \"inner::two\"]\n2 = \"not here, because it binds clients\"\n";
const WINDOWS: &str = "mod deep;\n#[test]\nfn one() {}\n";
const INNER: &str = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn two() {}\n}\n";

/// A crate in a folder of its own.
struct Crate(PathBuf);

impl Crate {
    fn new(name: &str) -> Crate {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = root.join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let new = Crate(root);
        new.write("rules.toml", RULES);
        new.write("src/lib.rs", "mod inner;\n");
        new.write("src/inner.rs", INNER);
        new.write("tests/windows.rs", WINDOWS);
        new
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The sentences about it, or none.
    fn faults(&self) -> String {
        let root = self.0.to_str().unwrap();
        let held = panic::catch_unwind(|| hold(root, &[("A", numbered("", 2))]));
        held.err().map_or(String::new(), |words| *words.downcast::<String>().unwrap())
    }
}

impl Drop for Crate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_crate_that_keeps_its_rules_passes() {
    assert_eq!(Crate::new("good").faults(), "");
}

#[test]
fn a_renamed_test_is_noticed() {
    let one = Crate::new("renamed");
    one.write("tests/windows.rs", &WINDOWS.replace("one", "uno"));
    assert!(one.faults().contains("[A] 1 names windows::one, and no such test runs"));
}

#[test]
fn an_ignored_test_is_noticed() {
    let one = Crate::new("ignored");
    one.write("tests/windows.rs", &WINDOWS.replace("#[test]", "#[test]\n#[ignore]"));
    assert!(one.faults().contains("[A] 1 names windows::one, and no such test runs"));
}

#[test]
fn a_test_in_a_file_that_is_not_compiled_is_noticed() {
    let one = Crate::new("orphan");
    one.write("src/lib.rs", "// mod inner;\n");
    assert!(one.faults().contains("[A] 1 names inner::two, and no such test runs"));
}

#[test]
fn a_rule_that_is_not_listed_is_noticed() {
    let one = Crate::new("missing");
    one.write("rules.toml", &RULES.replace("2 =", "3 ="));
    assert!(one.faults().contains("[A] 2 is not listed"));
}

#[test]
fn a_rule_without_test_or_reason_is_noticed() {
    let one = Crate::new("empty");
    for (instead, fault) in [
        ("2 = []", "needs the names of its tests"),
        ("2 = 7", "needs the names of its tests"),
        ("2 = \"later\"", "needs a reason"),
        ("2 = \"not here, because\"", "needs a reason"),
        ("2 = [\"one\"]", "is not \"file::test\""),
    ] {
        one.write(
            "rules.toml",
            &RULES.replace("2 = \"not here, because it binds clients\"", instead),
        );
        assert!(one.faults().contains(fault), "{instead}: {}", one.faults());
    }
}

#[test]
fn a_file_that_is_no_list_of_rules_is_noticed() {
    let one = Crate::new("broken");
    one.write("rules.toml", "1 = [\"windows::one\"]\n");
    assert!(!one.faults().is_empty());
    fs::remove_file(one.0.join("rules.toml")).unwrap();
    assert!(one.faults().contains("cannot be read"));
}

#[test]
fn a_front_that_judges_is_noticed() {
    let one = Crate::new("front");
    let root = one.0.to_str().unwrap();
    judges_nothing(root);
    one.write("src/deep/inner.rs", "if token == other {}\n");
    assert!(panic::catch_unwind(|| judges_nothing(root)).is_err());
}
