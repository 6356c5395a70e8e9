//! `libibverbs` and `librdmacm` as unmodified Linux programs use them.
//!
//! A front: it has the structures, attributes, tables of states and numbers of errors of one interface,
//! and translates. It judges no right, bound or token; `transom-memory` does. The shared library is
//! `libibverbs.so.1` with all code; `librdmacm.so.1` (the crate `transom-rdmacm`) has version nodes only.
//! `transom run` puts both in front of a program.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "functions as constants of structures")]
pub mod abi;
mod channel;
mod cm;
mod completion;
mod context;
mod datagram;
mod device;
#[allow(unsafe_code, reason = "the functions that C programs call, with their pointers")]
mod entry;
mod environment;
mod errno;
mod exit;
mod explain;
mod gid;
mod kind;
mod limits;
mod memory;
mod port;
#[allow(unsafe_code, reason = "values that are never freed")]
mod process;
mod queue_pair;
mod receive;
mod rendezvous;
mod requests;
mod resolution;
mod rsocket;
mod status;
#[allow(unsafe_code, reason = "signals of threads, and errno")]
mod sys;
mod sysfs;
mod text;
mod timers;
mod transitions;
mod usage;
mod window;
mod xrc;

/// The names and versions of the exported functions, made by `build.rs` of `exports.txt`.
#[allow(unsafe_code, reason = "assembly has no other way to name a function")]
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
