//! NDKPI, the interface of `ndkpi.h`, in user space on the engine.
//!
//! A front: it holds the types, flags, status values and object lifetimes of one generation and
//! translates. The crate compares no bound, right or token; `transom-memory` does.

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod deliver;
pub mod dispatch;
#[allow(unsafe_code, reason = "the C entries")]
mod ffi;
pub mod flags;
#[allow(unsafe_code, reason = "C entries with pointers to the consumer's objects")]
pub mod kernel;
mod life;
mod limits;
#[allow(unsafe_code, reason = "C structures with pointers in them")]
pub mod mdl;
pub mod objects;
mod status;
mod table;
pub mod types;

pub use deliver::{Done, Mode};
pub use ffi::{NdkCloseAdapter, NdkExplain, NdkName, NdkOpenAdapter, OpenOptions};
pub use status::Status;
