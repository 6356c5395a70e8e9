//! The promises of the table of memory, rule by rule: one program, so that a change of the crate is
//! tried quickly (`cargo mutants` does it hundreds of times).

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod denials;
mod inventory;
mod matrix;
mod model;
mod regions;
mod review;
mod standing;
mod stress;
mod tokens;
mod touches;
mod windows;
