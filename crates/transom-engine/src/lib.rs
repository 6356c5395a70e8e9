//! See Cargo.toml; under construction.

#![deny(unsafe_code)]

pub mod sys;
