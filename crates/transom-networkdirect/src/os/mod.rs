//! The operating system as NetworkDirect programs see it: handles, events, completion ports,
//! OVERLAPPED requests, threads. Everything that a Windows build would take from Windows itself is
//! behind this module; the rest of the crate knows only [`File`] and the requests that are begun on
//! it.

mod exports;
mod handle;
mod overlapped;
mod port;
mod thread;
mod wait;

pub(crate) use handle::Handle;
pub(crate) use overlapped::{File, OverlappedPtr, result_of};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock, whatever a panicking thread left behind: the states here are valid between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
