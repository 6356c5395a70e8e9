//! The switch under unmodified socket programs, without I/O: two processes of one user on one host keep
//! their TCP connection, and move its stream through a segment of shared memory once both have agreed.
//!
//! | file | what it holds |
//! |---|---|
//! | [`directory`] | the file that says which segment is whose |
//! | [`layout`] | the segment: every word that the two sides share |
//! | [`wait`] | a word by which a side says that it sleeps, and how it is woken |
//! | [`session`] | one end of a connection: agreement, the change from TCP to the ring, the rings, their ends |
//! | [`interest`] | what an epoll set reports about a socket, by level, by edge and once |
//! | [`rules`] | which connections the user wants switched |
//!
//! `transom-sockets` is the library that programs preload; everything there that needs no system call
//! is here.
//!
//! # From TCP to the ring
//!
//! Each direction starts on TCP. A sender changes to the ring at a byte of its own choice, once the
//! passive side has claimed the segment: the number of bytes that went over TCP before is published in the
//! segment, and all later bytes of the connection's TCP stream are doorbells. A passive side that never
//! claims (a program without the switch, a child that was started without it) finds an ordinary TCP
//! stream, whole. No decision needs a timeout.
//!
//! # Trust
//!
//! The other side may write anything into the segment at any time. A position is read once and checked
//! against the size of the ring before it becomes an offset, so the worst that a peer can do is end its
//! own connection, or garble its own bytes. Positions of one's own lie in the segment, too, because
//! several processes can hold one end; they are checked in the same way.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod directory;
pub mod interest;
pub mod layout;
pub mod rules;
pub mod session;
pub mod wait;

/// The atomics of the segment; the model test puts loom's in their place.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
