//! iWARP without I/O: MPA, DDP and RDMAP as one implementation of [`transom_wire::Wire`].

#![forbid(unsafe_code)]

mod config;
pub mod ddp;
pub mod extension;
pub mod faults;
pub mod fpdu;
pub mod mpa;
pub mod rdmap;
pub mod rfc7306;
mod stream;
pub mod terminate;

pub use config::{Config, DEFAULT_FRAME, Ready, Revision, TerminateForm};
pub use stream::Stream;
