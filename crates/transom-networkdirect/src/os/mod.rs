//! The operating system as NetworkDirect programs see it: handles, events, completion ports,
//! OVERLAPPED requests, threads. The rest of the crate knows only [`File`] and the requests that are
//! begun on it. `win32/` has the little of Win32 that such programs need, where the system is another
//! one; `windows/` has a file of the same name for each that has a meaning there.

#[cfg(not(windows))]
#[path = "win32/exports.rs"]
mod exports;
#[cfg_attr(windows, path = "windows/file.rs")]
#[cfg_attr(not(windows), path = "win32/file.rs")]
mod file;
#[cfg_attr(windows, path = "windows/handle.rs")]
#[cfg_attr(not(windows), path = "win32/handle.rs")]
mod handle;
#[cfg_attr(windows, path = "windows/loaded.rs")]
#[cfg_attr(not(windows), path = "win32/loaded.rs")]
mod loaded;
mod overlapped;
#[cfg(not(windows))]
#[path = "win32/port.rs"]
mod port;
#[cfg(test)]
#[cfg(windows)]
#[path = "windows/tests.rs"]
mod tests;
#[cfg(not(windows))]
#[path = "win32/thread.rs"]
mod thread;
#[cfg(not(windows))]
#[path = "win32/wait.rs"]
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
