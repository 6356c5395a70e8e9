//! The defects of `mutants/` still apply: `scripts/mutants` can put each of them into the sources.

use std::fs;
use std::path::Path;

/// The fault of a patch: `None` if it is one hunk of one file, whose lines the file has once.
fn fault(root: &Path, patch: &str) -> Option<String> {
    let Some((head, body)) = patch.split_once("--- a/") else {
        return Some("names no file".into());
    };
    if head.lines().next().is_none_or(|sentence| !sentence.ends_with('.')) {
        return Some("its first line is no sentence that says what is wrong".into());
    }
    let finder = head.lines().find_map(|line| line.strip_prefix("Found-by: "));
    if !finder.is_some_and(|by| by == "simulator" || by.starts_with("cargo test ")) {
        return Some("no line `Found-by:` with `simulator` or a command `cargo test ...`".into());
    }
    let file = body.lines().next().unwrap_or_default();
    let hunks: Vec<_> = body.split("\n@@ ").skip(1).collect();
    let [hunk] = hunks[..] else { return Some(format!("{} hunks instead of one", hunks.len())) };
    let side = |other: char| -> String {
        let lines = hunk.lines().skip(1).filter(|line| !line.starts_with(other));
        lines.filter_map(|line| line.get(1..)).map(|line| format!("{line}\n")).collect()
    };
    let (old, new) = (side('+'), side('-'));
    if old == new {
        return Some("changes nothing".into());
    }
    // Whole lines only, as `git apply` has it: a context of an empty line is no end of another.
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    let begins_line = |at: usize| text.get(..at).is_some_and(|b| b.is_empty() || b.ends_with('\n'));
    match text.match_indices(&old).filter(|(at, _)| begins_line(*at)).count() {
        1 => None,
        count => Some(format!("its lines are in {file} {count} times, not once")),
    }
}

#[test]
fn every_patch_applies_to_the_present_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent).unwrap();
    let mut count = 0;
    let mut faults = Vec::new();
    for entry in fs::read_dir(here.join("mutants")).unwrap() {
        let path = entry.unwrap().path();
        count += 1;
        if let Some(fault) = fault(root, &fs::read_to_string(&path).unwrap()) {
            faults.push(format!("{}: {fault}", path.display()));
        }
    }
    assert!(count > 0, "no patch at all");
    assert!(faults.is_empty(), "make these anew (CONTRIBUTING.md):\n{}", faults.join("\n"));
}

#[test]
fn a_patch_that_does_not_apply_is_a_fault() {
    let root = tempdir();
    fs::write(root.join("a.rs"), "fn a() {\n    one();\n    two();\n}\n").unwrap();
    let patch = |hunk: &str| {
        let head = "Two is done first.\n\nFound-by: simulator\n\n--- a/a.rs\n+++ b/a.rs\n";
        fault(&root, &format!("{head}@@ -1,2 +1,2 @@\n{hunk}"))
    };
    assert_eq!(patch("     one();\n-    two();\n+    three();\n"), None);
    assert!(patch("     two();\n-    one();\n+    three();\n").unwrap().contains("0 times"));
    assert!(patch(" \n     one();\n-    two();\n").unwrap().contains("0 times"));
    assert!(patch("-    one();\n+    one();\n").unwrap().contains("changes nothing"));
    assert!(patch("-}\n+]\n@@ -1 +1 @@\n-}\n+]\n").unwrap().contains("2 hunks"));
    fs::write(root.join("a.rs"), "one();\none();\n").unwrap();
    assert!(patch("-one();\n+two();\n").unwrap().contains("2 times"));
    fs::remove_dir_all(&root).unwrap();
}

fn tempdir() -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("transom-mutants-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}
