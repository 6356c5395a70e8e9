//! The lock of a link, and the promise that no post is lost.
//!
//! A thread that wants progress *tries* the lock, which is usually free. If another thread holds
//! it, the work is left as a mark in the lock's own word, and the holder finds the mark when it
//! unlocks. Control calls take the lock for real; while one waits, a holder that makes progress ends
//! its pass early and stays away, so the wait is one frame long. `tests/combining_lock_loom.rs`
//! runs every interleaving of this file.
#![allow(unsafe_code, reason = "a lock lends what it guards")]

use std::mem::ManuallyDrop;
use std::sync::PoisonError;

use super::sync::{AtomicU32, Condvar, Mutex, Ordering, UnsafeCell};

/// A thread has the lock.
const HELD: u32 = 1;
/// Work was left since the holder last looked.
const LEFT: u32 = 2;
/// A control call that waits for the lock; the rest of the word counts such calls.
const WANTED: u32 = 4;

/// A lock that progress tries and control calls take.
#[derive(Debug)]
pub(crate) struct CombiningLock<T> {
    /// [`HELD`], [`LEFT`] and [`WANTED`]: one word, so that a thread that marks knows whether the
    /// lock is held, and one that unlocks whether work was left.
    word: AtomicU32,
    inner: UnsafeCell<T>,
    /// Where control calls sleep.
    gate: Mutex<()>,
    freed: Condvar,
}

// SAFETY: the only ways to the value are a `Held`, of which there is one at a time, and the lock
// itself, by value. So threads hand the value to each other, as `Send` allows.
unsafe impl<T: Send> Sync for CombiningLock<T> {}

/// The lock, held. Dropping it gives it back.
struct Held<'a, T>(&'a CombiningLock<T>);

impl<T> Held<'_, T> {
    #[inline]
    fn work<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `HELD` is set from before this `Held` was made until it is dropped, so there is no
        // other one; and this one is borrowed exclusively.
        self.0.inner.with_mut(|value| work(unsafe { &mut *value }))
    }

    /// Give it back. `true`: work was left.
    #[inline]
    fn release(self) -> bool {
        ManuallyDrop::new(self).0.unlock()
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T> CombiningLock<T> {
    pub(crate) fn new(inner: T) -> CombiningLock<T> {
        CombiningLock {
            word: AtomicU32::new(0),
            inner: UnsafeCell::new(inner),
            gate: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Held<'_, T>> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & !LEFT == 0 {
            let held = word | HELD;
            match self.word.compare_exchange(word, held, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Held(self)),
                Err(other) => word = other,
            }
        }
        None
    }

    /// `true`: work was left.
    #[inline]
    fn unlock(&self) -> bool {
        // Acquire: what was left is seen with its mark.
        let word = self.word.fetch_sub(HELD, Ordering::AcqRel);
        if word >= WANTED {
            self.wake();
        }
        word & LEFT != 0
    }

    #[cold]
    fn wake(&self) {
        // A control call that has found the lock held under this mutex sleeps; any other one looks
        // after this.
        drop(self.gate.lock());
        self.freed.notify_all();
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
        if let Some(held) = self.try_lock() {
            return Self::hold(held, work, after);
        }
        leave();
        // Either the lock is held, and its holder finds the mark, or it is free. Release: the holder
        // sees with the mark what it marks.
        if self.word.fetch_or(LEFT, Ordering::AcqRel) & HELD == 0 {
            self.attempt(work, after);
        }
    }

    /// Do the work, unless another thread does: for threads that will ask again anyway.
    #[inline]
    pub(crate) fn attempt<R>(&self, work: impl FnMut(&mut T) -> R, after: impl FnMut(R)) {
        if let Some(held) = self.try_lock() {
            Self::hold(held, work, after);
        }
    }

    /// Take the lock if it is free; `None` if it is not. The second value: as of
    /// [`control`](CombiningLock::control).
    #[inline]
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<(R, bool)> {
        let mut held = self.try_lock()?;
        let result = held.work(work);
        Some((result, held.release()))
    }

    /// Work, and look again after the unlock.
    #[inline]
    fn hold<'a, R>(
        mut held: Held<'a, T>,
        mut work: impl FnMut(&mut T) -> R,
        mut after: impl FnMut(R),
    ) {
        let lock: &'a CombiningLock<T> = held.0;
        loop {
            // A mark that is set from here on is seen at the unlock; an earlier one, in `work`.
            if lock.word.load(Ordering::Relaxed) & LEFT != 0 {
                lock.word.fetch_and(!LEFT, Ordering::Acquire);
            }
            let result = held.work(&mut work);
            let left = held.release();
            after(result);
            if !left {
                return;
            }
            match lock.try_lock() {
                Some(again) => held = again,
                None => return, // the next holder finds the mark
            }
        }
    }

    /// Take the lock for real. The second value: work was left meanwhile, and the caller must
    /// [`drive`](CombiningLock::drive).
    pub(crate) fn control<R>(&self, work: impl FnOnce(&mut T) -> R) -> (R, bool) {
        let mut word = self.word.fetch_add(WANTED, Ordering::Relaxed) + WANTED;
        loop {
            if word & HELD != 0 {
                let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
                loop {
                    word = self.word.load(Ordering::Relaxed);
                    if word & HELD == 0 {
                        break;
                    }
                    gate = self.freed.wait(gate).unwrap_or_else(PoisonError::into_inner);
                }
            }
            let held = (word - WANTED) | HELD;
            match self.word.compare_exchange(word, held, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => word = other,
            }
        }
        let mut held = Held(self);
        let result = held.work(work);
        (result, held.release())
    }

    /// A control call waits: a thread that holds the lock for progress ends its pass.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.word.load(Ordering::Relaxed) >= WANTED
    }
}
