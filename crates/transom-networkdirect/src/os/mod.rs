//! The operating system as NetworkDirect programs see it: handles, events, completion ports,
//! OVERLAPPED requests, threads. The rest of the crate knows only [`File`] and the requests that are
//! begun on it. Files of this folder are Linux's or every system's; `windows/` has a file of the same
//! name for each that is Linux's and has a meaning there. The others are Windows' own.

#[cfg(not(windows))]
mod exports;
#[cfg_attr(windows, path = "windows/file.rs")]
mod file;
#[cfg_attr(windows, path = "windows/handle.rs")]
mod handle;
#[cfg_attr(windows, path = "windows/loaded.rs")]
mod loaded;
mod overlapped;
#[cfg(not(windows))]
mod port;
#[cfg(test)]
#[cfg(windows)]
#[path = "windows/tests.rs"]
mod tests;
#[cfg(not(windows))]
mod thread;
#[cfg(not(windows))]
mod wait;

pub(crate) use file::File;
pub(crate) use handle::Handle;
pub(crate) use loaded::stay_loaded;
pub(crate) use overlapped::{OverlappedPtr, result_of};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock, whatever a panicking thread left behind: the states here are valid between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
