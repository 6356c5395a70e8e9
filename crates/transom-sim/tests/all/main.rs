//! The simulator's tests, in one program.

#![allow(clippy::unwrap_used, clippy::panic)]

mod budget;
mod mutants;
