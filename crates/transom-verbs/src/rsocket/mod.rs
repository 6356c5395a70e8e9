//! rsocket: the calls of sockets over connections of rdma_cm (verbs 11).
//!
//! A socket is a stream of bytes: [`wire`] has its protocol, [`stream`] the numbers of both directions,
//! [`link`] the queue pair and memory of a connection, [`state`] what a socket is in, [`socket`] how calls
//! wait, [`connect`] and [`transfer`] the calls, [`wait`] the threads that wait for them.

#[allow(unsafe_code, reason = "memory of ours that a peer writes, and the program's bytes")]
pub(crate) mod buffer;
mod connect;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod socket;
mod state;
pub(crate) mod stream;
mod transfer;
pub(crate) mod wait;
pub(crate) mod wire;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use buffer::Span;
pub(crate) use socket::Socket;

use crate::errno::{Errno, Result};
use crate::process::PerProcess;

const EBADF: Errno = Errno::EBADF;

/// The sockets of this process by their numbers. A forked child has none: a connection is its
/// parent's.
static SOCKETS: PerProcess<RwLock<HashMap<i32, Arc<Socket>>>> = PerProcess::new();

/// Give a new socket its place; its number.
pub(crate) fn add(socket: Arc<Socket>) -> i32 {
    let number = socket.number();
    let mut sockets = SOCKETS.get_or_default().write().unwrap_or_else(PoisonError::into_inner);
    sockets.insert(number, socket);
    number
}

/// The socket of a number.
pub(crate) fn find(number: i32) -> Option<Arc<Socket>> {
    let sockets = SOCKETS.get_or_default().read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&number).cloned()
}

/// The socket of a number: `EBADF` if there is none.
pub(crate) fn get(number: i32) -> Result<Arc<Socket>> {
    find(number).ok_or(EBADF)
}

/// A number stands for nothing any more.
pub(crate) fn remove(number: i32) -> Result<Arc<Socket>> {
    let mut sockets = SOCKETS.get_or_default().write().unwrap_or_else(PoisonError::into_inner);
    sockets.remove(&number).ok_or(EBADF)
}

/// The process ends: tell every peer, as the end of a process tells the peers of its sockets.
pub(crate) fn say_goodbye() {
    // A handler of signals may have interrupted a call that holds the lock, and ended the process.
    let Ok(sockets) = SOCKETS.get_or_default().try_read() else { return };
    for socket in sockets.values() {
        socket.say_goodbye();
    }
}
