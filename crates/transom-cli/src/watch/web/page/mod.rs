//! The document: style, script and, of an export, the history in one file. Nothing is loaded from
//! elsewhere, and the policy in it forbids that.

use super::history::History;

const DOCUMENT: &str = include_str!("map.html");
const STYLE: &str = include_str!("map.css");
const SCRIPT: &str = include_str!("map.js");

/// The page of a server, which asks the server for the history.
pub(super) fn served(nonce: &str) -> String {
    document("null", &policy(nonce, "'self'"), nonce)
}

/// A page with a history in it.
pub(super) fn exported(history: &History, nonce: &str) -> String {
    // A name may be anything, `</script>` included.
    let history = history.since(0).replace('<', "\\u003c");
    document(&history, &policy(nonce, "'none'"), nonce)
}

/// The sources that a page may load, run and ask: its own style and script, which bear the nonce,
/// and `connect`.
/// Text never becomes markup (trusted types).
pub(super) fn policy(nonce: &str, connect: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src \
         {connect}; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    )
}

fn document(history: &str, policy: &str, nonce: &str) -> String {
    // The history last: nothing in it is taken for a mark.
    DOCUMENT
        .replace("{policy}", policy)
        .replace("{nonce}", nonce)
        .replace("{style}", STYLE)
        .replace("{script}", SCRIPT)
        .replacen("{history}", history, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use transom_inspect::{Record, Region};

    /// Names come from the program that is watched: none of them becomes markup.
    #[test]
    fn a_name_stays_a_name() {
        let name = "</script><script>evil()</script>{script}<!--";
        let region = Region { name: name.to_owned(), length: 1, ..Region::default() };
        let mut history = History::new(0);
        history.apply(Duration::ZERO, vec![(1, Ok(vec![Record::Region(region)]))]);
        let document = exported(&history, "0123");
        assert!(!document.contains("<script>evil"), "{document}");
        let (_, rest) = document.split_once("id=\"history\">").unwrap();
        let (history, rest) = rest.split_once("</script>").unwrap();
        let history: serde_json::Value = serde_json::from_str(history).unwrap();
        assert_eq!(history["objects"][0]["name"], name);
        assert!(rest.contains("<script nonce=\"0123\">"), "{rest}");
    }

    /// An exported page asks nobody for anything, and neither page names a place to load from.
    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let export = exported(&History::new(0), "0123");
        assert!(export.contains("connect-src 'none'") && !export.contains("'self'"));
        for document in [export, served("0123")] {
            assert!(document.contains("default-src 'none'; style-src 'nonce-0123'"));
            for place in ["src=", "href=\"http", "url(http", "@import", "import("] {
                assert!(!document.contains(place), "{place}");
            }
            for part in ["{policy}", "{nonce}", "{style}", "{script}", "{history}"] {
                assert!(!document.contains(part), "{part}");
            }
        }
    }
}
