//! A Winsock Direct SAN service provider on the engine.
//!
//! A front: it holds the tables, structures, error values and rules of one generation and
//! translates. The crate compares no bound, right or token; `transom-memory` does. Each socket has
//! a protection domain of its own, and each registration belongs to one connection.

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod abi;
mod api;
mod connection;
mod data;
pub mod descriptor;
mod duplicate;
pub mod error;
pub mod extension;
#[allow(unsafe_code, reason = "the C entries")]
mod ffi;
mod hello;
mod memory;
#[cfg_attr(windows, path = "windows.rs")]
mod os;
#[allow(unsafe_code, reason = "the switch's structure, by its address")]
mod overlapped;
mod provider;
mod region;
mod setup;
mod socket;
mod status;
mod switch;
#[allow(unsafe_code, reason = "the tables are shared between threads")]
pub mod tables;

pub use data::{Direction, Range};
pub use error::{Error, Result};
pub use ffi::WSPStartupEx;
pub use memory::{Handle, Registration};
pub use overlapped::{Operation, Outcome};
pub use provider::{Options, Provider};
pub use switch::Switch;

/// Largest message and largest RDMA transfer (`SO_MAX_MSG_SIZE`, `SO_MAX_RDMA_SIZE`).
pub const SIZE_LIMIT: u32 = 1 << 30;
/// Messages are the better way up to here (`SO_RDMA_THRESHOLD_SIZE`).
pub const RDMA_THRESHOLD: u32 = 4096;
/// Buffers of one operation; the switch uses at most 4.
pub const BUFFERS_LIMIT: usize = 8;
/// Sends, RDMA operations and receives outstanding on a socket, each (WSD M-8 asks for 16).
pub const QUEUE_DEPTH: u32 = 64;
