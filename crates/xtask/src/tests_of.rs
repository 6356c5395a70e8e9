//! Finds the tests in a source file.

use std::collections::BTreeSet;

/// The tests of a source file that run whenever the tests of its crate do: a function with
/// `#[test]`, and neither `#[ignore]` nor `#[cfg]`. Reads what rustfmt writes, an attribute a line.
/// Where a macro makes tests of names, `fn $name()`, each `name = "..."` is one.
pub(crate) fn tests_of(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if source.contains("#[test]\n            fn $name()") {
        found.extend(code(source).flat_map(named).map(str::to_owned));
    }
    let (mut test, mut excused) = (false, false);
    for line in code(source) {
        if line.starts_with("#![cfg") {
            return BTreeSet::new();
        }
        if line.starts_with("#[") {
            test |= line == "#[test]";
            excused |= line.starts_with("#[ignore") || line.starts_with("#[cfg");
            continue;
        }
        if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if test && !excused && !name.starts_with('$') {
                found.insert(name.to_owned());
            }
        }
        (test, excused) = (false, false);
    }
    found
}

/// The names in `one = "1", two = "2"`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let word = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let pairs = line.split(',').filter_map(|part| part.trim().split_once(" = \""));
    pairs.map(|(name, _)| name).filter(move |name| word(name))
}

/// The lines that are no comments, without what surrounds them.
fn code(source: &str) -> impl Iterator<Item = &str> {
    let mut comment = false;
    source.lines().map(str::trim).filter(move |line| {
        comment |= line.starts_with("/*");
        let skip = comment || line.is_empty() || line.starts_with("//");
        comment &= !line.contains("*/");
        !skip
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        tests_of(source).into_iter().collect()
    }

    #[test]
    fn a_test_is_a_function_behind_the_attribute() {
        assert_eq!(
            found("#[test]\nfn one() {}\n\n#[test]\n#[should_panic]\nfn two() {}"),
            ["one", "two"]
        );
        assert_eq!(
            found("proptest! {\n    /// Doc.\n    #[test]\n    fn three(x in 0..3) {}\n}"),
            ["three"]
        );
        assert!(found("fn helper() {}\n#[test]\nconst X: u8 = 1;\nfn helper() {}").is_empty());
    }

    #[test]
    fn a_name_given_to_a_macro_of_tests_is_one() {
        let made = "$(\n            #[test]\n            fn $name() {\n}\n)*\n";
        let cases = "cases!(\"a\":\n    one = \"1\", two = \"2\",\n);\nlet x = \"3\";\n";
        assert_eq!(found(&format!("{made}{cases}")), ["one", "two"]);
        assert!(found(cases).is_empty());
    }

    #[test]
    fn a_test_that_may_not_run_is_none() {
        assert!(found("#[test]\n#[ignore]\nfn one() {}").is_empty());
        assert!(found("#[ignore = \"slow\"]\n#[test]\nfn one() {}").is_empty());
        assert!(found("#[cfg(windows)]\n#[test]\nfn one() {}").is_empty());
        assert!(found("#[test]\n#[cfg_attr(debug_assertions, ignore)]\nfn one() {}").is_empty());
        assert!(found("#![cfg(windows)]\n#[test]\nfn one() {}").is_empty());
        assert!(found("// #[test]\nfn one() {}").is_empty());
        assert!(found("/*\n#[test]\nfn one() {}\n*/\nfn two() {}").is_empty());
    }
}
