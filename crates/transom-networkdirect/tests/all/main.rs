//! The front's tests, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod cpp;
mod nd1;
mod packaging;
mod support;
