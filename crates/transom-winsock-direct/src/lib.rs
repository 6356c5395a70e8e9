//! A Winsock Direct SAN service provider on the engine.
//!
//! A front: it holds the tables, structures, error values and rules of one generation and
//! translates. It compares no bound, right or token; `transom-memory` does. Each socket has a
//! protection domain of its own, and each registration belongs to one connection.

#![deny(unsafe_code)]

pub mod abi;
pub mod descriptor;
pub mod error;
pub mod extension;
#[allow(unsafe_code, reason = "the tables are shared between threads")]
pub mod tables;

pub use error::{Error, Result};
