//! Text for people carries the names of rules, never their citations.

use std::path::Path;
use std::{fs, io};

use crate::citation::citations;
use crate::rules::of_kind;

/// The one table that has names and citations side by side.
const TABLE: &str = "transom-memory/src/rules.rs";

/// Checks that no text which the programs of the workspace at `root` show cites a rule by number: no string
/// of a source below `crates/*/src`, no README, no header for users.
///
/// # Panics
/// If one does.
pub fn no_citation_is_shown(root: &Path) {
    let shown = match shown(root) {
        Ok(shown) => shown,
        Err(error) => vec![format!("the sources cannot be read: {error}")],
    };
    assert!(shown.is_empty(), "people are shown citations:\n  {}", shown.join("\n  "));
}

/// The names in every "(`transom explain NAME`)" of the same texts, each with its file.
///
/// # Errors
/// The error of reading the sources.
pub fn names_shown(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    texts(root, |place, text| {
        let named =
            text.split("(`transom explain ").skip(1).filter_map(|rest| rest.split_once('`'));
        let names =
            named.filter(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        found.extend(names.map(|(name, _)| (place.to_owned(), name.to_owned())));
    })?;
    Ok(found)
}

fn shown(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    texts(root, |place, text| {
        found.extend(citations(text).into_iter().map(|rule| format!("{place}: {rule}")));
    })?;
    Ok(found)
}

/// Calls `look` with each text for people, and the file that has it.
fn texts(root: &Path, mut look: impl FnMut(&str, &str)) -> io::Result<()> {
    let place = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    for path in of_kind(&root.join("crates"), &["rs"])? {
        let in_src = path.components().any(|part| part.as_os_str() == "src");
        if in_src && !path.ends_with(TABLE) {
            for string in strings(&fs::read_to_string(&path)?) {
                look(&place(&path), &string);
            }
        }
    }
    let mut others = of_kind(&root.join("crates"), &["md", "h"])?;
    others.extend(of_kind(&root.join("include"), &["h"])?);
    others.push(root.join("README.md"));
    for path in others.into_iter().filter(|path| path.is_file()) {
        let in_tests = path.components().any(|part| part.as_os_str() == "tests");
        let readme = path.file_name().is_some_and(|name| name == "README.md");
        if readme || (!in_tests && path.extension().is_some_and(|kind| kind == "h")) {
            look(&place(&path), &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The string literals of a Rust source, outside comments and attributes.
fn strings(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_attribute = false;
    let mut open: Option<String> = None;
    for line in source.lines() {
        let trimmed = line.trim_start();
        in_attribute |= trimmed.starts_with("#[") || trimmed.starts_with("#![");
        let ends = in_attribute && trimmed.trim_end().ends_with(']');
        let line = if open.is_some() { trimmed } else { line };
        let (mut chars, mut escaped) = (line.chars().peekable(), false);
        let mut before = ' ';
        while let Some(c) = chars.next() {
            match &mut open {
                Some(text) if c == '"' && !escaped => {
                    found.extend(open.take().filter(|_| !in_attribute));
                }
                Some(text) => {
                    text.push(c);
                    escaped = c == '\\' && !escaped;
                }
                None if c == '/' && chars.peek() == Some(&'/') => break,
                None if c == '"' && before != '\'' => {
                    (open, escaped) = (Some(String::new()), false)
                }
                None => {}
            }
            before = c;
        }
        if let Some(text) = &mut open {
            match text.strip_suffix('\\') {
                Some(goes_on) => *text = goes_on.to_owned(),
                None => text.push(' '),
            }
        }
        in_attribute &= !ends;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_and_comments_and_attributes_are_not() {
        let source = "let a = \"one\"; // \"two\"\n#[doc = \"three\"]\nlet b = \"a \\\" b\";\nlet c = '\"';\n\
                      let d = \"four \\\n         five\";\n#[allow(\n    x,\n    reason = \"six\"\n)]\nf(\"seven\")";
        assert_eq!(strings(source), ["one", "a \\\" b", "four five", "seven"]);
    }
}
