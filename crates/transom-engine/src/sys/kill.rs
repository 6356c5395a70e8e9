//! Named places where a test may kill its process. Nothing outside of tests.

/// A place in the ring code where a process may be killed: a test does it, at each of them.
#[inline]
pub(crate) fn kill_point(name: &'static str) {
    #[cfg(all(test, not(windows)))]
    hit::at(name);
    let _ = name;
}

/// See [`kill_point`].
#[cfg(test)]
#[cfg(not(windows))]
pub(crate) mod hit {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    static SEEN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

    pub(super) fn at(name: &'static str) {
        let new = SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        // In a process that was started to be killed here, and nowhere else.
        if new && armed() && std::env::var("TRANSOM_KILL_AT").is_ok_and(|at| at == name) {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }

    static ARMED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    fn armed() -> bool {
        ARMED.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The places that this process has come by.
    pub(crate) fn seen() -> BTreeSet<&'static str> {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on: before, it would be start-up that is killed.
    pub(crate) fn arm() {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).clear();
        ARMED.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
