//! Holds documents that name tests against the tests, so that a rule cannot lose its test
//! unnoticed.
//!
//! The rules are the documents of `docs/rules`: a heading for each rule, its text, its source, its
//! tests.
//!
//! ```markdown
//! ### ND2 W3
//!
//! A window is bound to one queue pair at most.
//!
//! Source: SPI, IND2MemoryWindow
//!
//! Tests: `transom-memory/windows::w3_w18_a_window_serves_its_own_queue_pair_only`
//! ```
//!
//! A rule that nothing holds says why instead: `No test, because ...`. A test is named by its
//! crate, its file, without folders and `.rs`, and its function. The test must run: a `#[test]`
//! that is neither ignored nor compiled for some targets only, in a file that is compiled.
//!
//! [`hold_rules`] checks these documents and every citation in the workspace, [`hold_document`] a
//! table of tests. The other programs of this crate are `mutants`, which puts sampled one-line defects
//! into a copy of the sources, for `scripts/mutants --sample`, and `instructions`, which counts those of the hot
//! path, for `benches/instructions`.

mod citation;
mod document;
mod rules;
mod shown;
mod suite;
mod tests_of;

use std::path::{Path, PathBuf};

use suite::sources;

pub use document::hold_document;
pub use rules::{Page, hold_rules, pages};
pub use shown::{names_shown, no_citation_is_shown};

/// Checks that no source of the front at `root` judges a bound, a right or a token: a front
/// translates, and `transom-memory` decides.
///
/// # Panics
/// If one does.
pub fn judges_nothing(root: &str) {
    const JUDGING: &[&str] =
        &[".intersects(", "contains(Rights", "rights ==", "rights !=", "token ==", "token !="];
    let sources = match sources(&Path::new(root).join("src")) {
        Ok(sources) => sources,
        Err(error) => vec![(PathBuf::from(root), format!("token == {error}"))],
    };
    for (path, source) in sources {
        for word in JUDGING {
            assert!(!source.contains(word), "{} judges: {word}", path.display());
        }
    }
}
