//! Locks of this process, which a child of `fork` can use whatever threads its parent had.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::lock::{self, Locked, SLEEPERS};
use super::process;

/// A value that threads of this process share.
///
/// No lock is held for a `fork`. A child that finds one which another thread of its parent had gets a fresh
/// value in place of one that may be half changed.
pub(crate) struct Mutex<T> {
    word: AtomicU32,
    /// The generation of processes that has used it last ([`process::generation`]).
    used_by: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T: Default> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex { word: AtomicU32::new(0), used_by: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// `None`: this thread has it already, and is in a signal handler now.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Guard<'_, T>> {
        let now = process::generation();
        if self.used_by.load(Ordering::Relaxed) != now {
            self.inherit(now);
        }
        Some(Guard { _lock: Locked::take_here(&self.word)?, value: &self.value })
    }

    /// The first use by this process: no other thread of its parent will give the lock back.
    #[cold]
    fn inherit(&self, now: u32) {
        let before = self.used_by.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        if before == now || self.used_by.compare_exchange(before, now, order, order).is_err() {
            return;
        }
        match self.word.load(Ordering::Relaxed) & !SLEEPERS {
            0 => {}
            // The thread that has forked, in a handler of a signal: the interrupted call has the lock still.
            holder if holder == process::former_thread() => {
                self.word.store(lock::thread(), Ordering::Relaxed);
            }
            _ => {
                // SAFETY: the threads that could use the value are another process's, and threads of this one
                // wait for the word. Nothing of the old value is freed.
                unsafe { self.value.get().write(T::default()) };
                self.word.store(0, Ordering::Release);
            }
        }
    }
}

pub(crate) struct Guard<'a, T> {
    _lock: Locked<'a>,
    value: &'a UnsafeCell<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is this thread's.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is this thread's.
        unsafe { &mut *self.value.get() }
    }
}
