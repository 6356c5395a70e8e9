//! Peers that mean harm, over real sockets, against the public API: the lines of the threat model
//! in docs/SECURITY.md, which names these tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod floods;
mod forge;
mod guesses;
mod ranges;
mod replays;
mod stalls;
