//! iWARP without I/O: MPA, DDP and RDMAP as one implementation of [`transom_wire::Wire`].

#![forbid(unsafe_code)]

mod config;
mod stream;

pub use config::{Config, DEFAULT_FRAME, Ready, Revision, TerminateForm};
pub use stream::Stream;
