//! Calls that the standard library lacks: `errno`, the end of the process.

/// Set this thread's `errno`.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Have a function called at the end of the process.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function is never unloaded (`-z nodelete`).
    unsafe { libc::atexit(function) };
}
