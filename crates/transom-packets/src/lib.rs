//! Frames and ring records of connections as the packets of a pcapng file.
//!
//! | file | what it holds |
//! |---|---|
//! | [`Recorder`] | the connections of a process, what of a frame is kept, what waits to be written |
//! | `conversation` | one connection: which end records a frame, sequence numbers |
//! | `fpdu` | where a frame's header ends, and which bytes make a frame of start-up |
//! | `records` | records of shared memory as the frames that TCP would have carried |
//! | `segment` | TCP and IP around bytes |
//! | `blocks` | the blocks of pcapng |
//! | [`Writer`] | a ring of files that may fail at any time |
//!
//! Nothing here does I/O or reads a clock: bytes and moments are arguments, files are a trait.
//!
//! # The truth of a packet
//!
//! Addresses, ports and frames are those of the connection. TCP's handshake, sequence numbers and
//! segments are made here: each frame is one segment, at the moment when its process made or took it.
//! Frames of shared memory are encoded by `transom-iwarp`, as the same messages over TCP would be; the
//! acknowledgements that lie beside a ring's records are not shown.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod blocks;
mod conversation;
mod fpdu;
mod recorder;
mod records;
mod segment;
mod writer;

pub use recorder::{About, Batch, EndId, MEMORY, Recorder, Settings, Totals};
pub use writer::{Files, Writer};
