//! A library to be preloaded: connections between two processes of one user on one host keep their TCP
//! socket and move their stream through shared memory (`transom-switch`).
//!
//! | file | what it holds |
//! |---|---|
//! | `calls` | the C library's calls, under its names |
//! | `table` | what this process knows of each descriptor |
//! | `offer` | how two processes find each other: markers, segments, the kernel's word for who the peer is |
//! | `young` | connections that have not proven to last: TCP, and counted |
//! | `control` | messages beside the bytes of a `recvmsg` |
//! | `stream` | receiving and sending |
//! | `said` | what has become of the connections, for the last line of a process that is asked |
//! | `budget` | how much memory unread bytes may take |
//! | `cancel` | threads that are cancelled while they sleep in a call |
//! | `deferred` | what a handler of a signal has sent while its own thread was sending |
//! | `ready` | whether a socket is ready, and waiting for one of several |
//! | `epoll` | epoll sets with switched sockets |
//! | `process`, `mutex` | which process this is, behind any `fork`, and locks that it can use |
//! | `lock`, `spin` | locks across processes, looking before sleeping |
//! | `memory`, `sys` | memory and system calls straight from the kernel |
//! | `user` | copies to and from memory of the program |
//!
//! Calls of the program go on to the next definition of their name; the library's own system calls go to
//! the kernel, so that none of them comes back here. Nothing is started, no signal is taken but for faults of the copies of `user`, and a
//! descriptor that is no switched socket costs one load more.
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::missing_safety_doc,
    reason = "the C library's calls, under its names and contracts"
)]

mod budget;
mod calls;
mod cancel;
mod control;
mod deferred;
mod epoll;
mod lock;
mod memory;
mod mutex;
mod offer;
mod process;
mod ready;
mod said;
mod spin;
mod started;
mod stream;
mod sys;
mod table;
mod user;
mod young;
