//! Hostile input, one function per place where it comes in. Each takes bytes, whatever they are, and
//! panics if a promise is broken. The same functions run
//!
//! - under a coverage-guided fuzzer (`fuzz/run TARGET HOURS`), and
//! - in the ordinary tests of this crate: over the corpus in `fuzz/corpus`, and over a fixed number of
//!   its mutations. What that reaches is measured by `fuzz/coverage`.
//!
//! The entries in C have fuzzers of their own, which make sequences of calls: `tests/sequences.rs` of
//! `transom-ndkpi` and `transom-winsock-direct`, `tests/cpp/sequences.cpp` of `transom-networkdirect`.

#![allow(clippy::unwrap_used, clippy::panic)] // as in any test

pub mod answers;
pub mod descriptors;
mod forged;
pub mod mutate;
mod records;
pub mod rings;
pub mod seeds;
pub mod segment;
pub mod start_up;
pub mod stream;
pub mod talk;
pub mod upgrade;

/// A fuzz target: its name (which is its corpus's too), and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 8] = [
    ("stream", stream::stream),
    ("start_up", start_up::start_up),
    ("talk", talk::talk),
    ("rings", rings::rings),
    ("descriptors", descriptors::descriptors),
    ("upgrade", upgrade::upgrade),
    ("answers", answers::answers),
    ("segment", segment::segment),
];

/// Bytes that say what to do next.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// The next byte; `None`: that was all.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next eight bytes as a number; what is missing is zeros.
    pub fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        let count = self.0.len().min(8);
        let (now, rest) = self.0.split_at(count);
        word[..count].copy_from_slice(now);
        self.0 = rest;
        u64::from_le_bytes(word)
    }
}
