//! Faults around real processes: killed, stopped, out of something, cut off; files that change,
//! disks that are full, clocks that differ. Both sides are the `share` example, which does what
//! programs do. docs/reliability.md has the table; `scripts/kill-share` runs the first part
//! thousands of times.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod clock;
mod common;
mod files;
mod kill;
mod limits;
mod network;
mod stopped;
