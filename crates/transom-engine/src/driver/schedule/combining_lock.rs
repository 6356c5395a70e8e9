//! The lock of a link, and the promise that no post is lost.
//!
//! A thread that wants progress *tries* the lock, which is usually free. If another thread holds
//! it, the work is left as a mark, and the holder looks at the mark after its unlock. Control calls
//! take the lock for real; while one waits, a holder that makes progress ends its pass early and
//! stays away, so the wait is one frame long. `tests/combining_lock_loom.rs` runs every
//! interleaving of this file.

use super::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, fence};

/// A lock that progress tries and control calls take.
#[derive(Debug)]
pub(crate) struct CombiningLock<T> {
    inner: Mutex<T>,
    /// Work was left since the holder last looked.
    left: AtomicBool,
    /// Control calls that wait for the lock.
    wanted: AtomicU32,
}

impl<T> CombiningLock<T> {
    pub(crate) fn new(inner: T) -> CombiningLock<T> {
        CombiningLock {
            inner: Mutex::new(inner),
            left: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        use std::sync::TryLockError;
        if self.is_wanted() {
            return None;
        }
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Have work done: by this thread, or by the one that holds the lock. `leave` makes known what is
    /// to be done, and is called if it might not be this thread that does it. `after` gets what
    /// `work` returns with the lock released. Both may run more than once, or not at all here.
    pub(crate) fn drive<R>(
        &self,
        leave: impl FnOnce(),
        work: impl FnMut(&mut T) -> R,
        after: impl FnMut(R),
    ) {
        if let Some(guard) = self.try_lock() {
            return self.hold(guard, work, after);
        }
        leave();
        self.left.store(true, Ordering::Release);
        // Pairs with the fence after an unlock (and, in `control`, after `wanted` was taken back):
        // either we find the lock free, or its holder finds the mark.
        fence(Ordering::SeqCst);
        self.attempt(work, after);
    }

    /// Do the work, unless another thread does: for threads that will ask again anyway.
    #[inline]
    pub(crate) fn attempt<R>(&self, work: impl FnMut(&mut T) -> R, after: impl FnMut(R)) {
        if let Some(guard) = self.try_lock() {
            self.hold(guard, work, after);
        }
    }

    /// Take the lock if it is free; `None` if it is not. The second value: as of
    /// [`control`](CombiningLock::control).
    #[inline]
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<(R, bool)> {
        let mut guard = self.try_lock()?;
        let result = work(&mut guard);
        drop(guard);
        fence(Ordering::SeqCst);
        Some((result, self.left.load(Ordering::Relaxed)))
    }

    /// Work, and look again after the unlock.
    #[inline]
    fn hold<'a, R>(
        &'a self,
        mut guard: MutexGuard<'a, T>,
        mut work: impl FnMut(&mut T) -> R,
        mut after: impl FnMut(R),
    ) {
        loop {
            // A mark set from now on is seen after the unlock; a mark set before, in `work`.
            if self.left.load(Ordering::Relaxed) {
                self.left.swap(false, Ordering::AcqRel);
            }
            let result = work(&mut guard);
            drop(guard);
            after(result);
            fence(Ordering::SeqCst);
            if !self.left.load(Ordering::Relaxed) {
                return;
            }
            match self.try_lock() {
                Some(again) => guard = again,
                None => return,
            }
        }
    }

    /// Take the lock for real. The second value: work was left meanwhile, and the caller must
    /// [`drive`](CombiningLock::drive).
    pub(crate) fn control<R>(&self, work: impl FnOnce(&mut T) -> R) -> (R, bool) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let mut guard = match self.inner.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        let result = work(&mut guard);
        drop(guard);
        fence(Ordering::SeqCst);
        (result, self.left.load(Ordering::Relaxed))
    }

    /// A control call waits: a holder that makes progress ends its pass.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }
}
