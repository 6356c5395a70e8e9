//! An RDMA adapter: the state machines of `transom-core` with what they lack. `sys` is the operating
//! system and all `unsafe` but that of the driver's lock, `driver` has links, threads and time, [`raw`]
//! is the handle layer for fronts, and all that they see of both.
//!
//! Fronts need this crate only: what they share with the core is re-exported.

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod driver;
pub mod raw;
mod sys;

pub use transom_core::*;
