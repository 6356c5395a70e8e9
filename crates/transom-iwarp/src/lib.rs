//! iWARP without I/O: MPA, DDP and RDMAP as one implementation of [`transom_wire::Wire`].
//!
//! | file | layer | what it holds |
//! |---|---|---|
//! | [`mpa`] | MPA | start-up frames, the enhanced word |
//! | [`fpdu`] | MPA | frames: length, padding, CRC32c, generated markers |
//! | [`ddp`] | DDP | segment headers |
//! | [`rdmap`] | RDMAP | control byte, Read Request |
//! | [`terminate`] | RDMAP | Terminate, in the RFC's and in siw's bit order |
//! | [`rfc7306`] | RDMAP | atomics, under the extension |
//! | [`faults`] | all | every violation and refusal, and what a Terminate says about it |
//! | [`extension`] | ours | acknowledgements, announcements, refusals, immediate data |
//!
//! Each codec is a function that cannot panic from bytes to a meaning, and one back. [`Stream`]
//! puts them together; [`Config`] says what one side wants, and can imitate another implementation.
//!
//! # Implemented
//!
//! Revisions 1 and 2 with enhanced set-up and both kinds of ready-to-receive frame; checksums
//! either way, verified before anything leaves [`decode`](transom_wire::Receiving::decode); markers for
//! a peer that asks; Send in all four kinds, Write, Read; the validation of iW 4 to 7; read limits
//! in both directions, a hidden slot for verdicts; one Terminate, mapped to the message it blames.
//!
//! # Left out
//!
//! - Markers are never asked for, so none are understood.
//! - A plain peer is sent no atomics, and its own are refused like unknown opcodes, as RFC 7306's message
//!   of immediate data is; between Transoms immediate data has a form of its own.
//! - Atomics on parts of a word (RFC 7306's masks).
//! - Revision 0 (RDMAC) is refused.
//! - Segments of a message must come in order, and those of two messages may not mix. Every known
//!   peer sends them so; RFC 5041 5.3 only recommends it.
//! - After a wrong checksum the stream is dead: there is no resynchronisation without markers.
//!
//! `docs/rules/iwarp.md` has the rules that are cited here, with the tests that hold them.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

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

pub use config::{Config, DEFAULT_FRAME, FIRST_WORD, Ready, Revision, TerminateForm};
pub use stream::Stream;
