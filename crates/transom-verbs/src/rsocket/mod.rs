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

const EBADF: Errno = Errno::EBADF;

/// The sockets of this process by their numbers. A forked child has none: a connection is its
/// parent's.
struct Sockets {
    process: u32,
    all: HashMap<i32, Arc<Socket>>,
}

static SOCKETS: RwLock<Option<Sockets>> = RwLock::new(None);

/// Give a new socket its place; its number.
pub(crate) fn add(socket: Arc<Socket>) -> i32 {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    let (process, number) = (std::process::id(), socket.number());
    if sockets.as_ref().is_none_or(|known| known.process != process) {
        // The parent's are left as they are.
        std::mem::forget(sockets.replace(Sockets { process, all: HashMap::new() }));
    }
    if let Some(known) = sockets.as_mut() {
        known.all.insert(number, socket);
    }
    number
}

/// The socket of a number.
pub(crate) fn find(number: i32) -> Option<Arc<Socket>> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    let known = sockets.as_ref()?;
    let found = known.all.get(&number)?;
    (known.process == std::process::id()).then(|| found.clone())
}

/// The socket of a number: `EBADF` if there is none.
pub(crate) fn get(number: i32) -> Result<Arc<Socket>> {
    find(number).ok_or(EBADF)
}

/// A number stands for nothing any more.
pub(crate) fn remove(number: i32) -> Result<Arc<Socket>> {
    let found = get(number)?;
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.as_mut().and_then(|known| known.all.remove(&number));
    Ok(found)
}

/// The process ends: tell every peer, as the end of a process tells the peers of its sockets.
pub(crate) fn say_goodbye() {
    // A forked child may have inherited the lock from a thread that it does not have.
    let Ok(sockets) = SOCKETS.try_read() else { return };
    let Some(known) = sockets.as_ref().filter(|known| known.process == std::process::id()) else {
        return;
    };
    for socket in known.all.values() {
        socket.say_goodbye();
    }
}
