//! How long the library stays in the process.

/// The linker has seen to that already (`build.rs`).
pub(crate) fn stay_loaded() {}
