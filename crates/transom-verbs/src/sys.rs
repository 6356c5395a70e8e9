//! Calls that the standard library lacks: threads without signals, `errno`.

/// A thread of ours. All signals are blocked on it: they belong to the program's threads.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read: `all` by `sigfillset`, `before` by the first
    // `pthread_sigmask`, which fails only for a first argument that is no constant of it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned.map(drop)
}

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
