//! Atomics, fences and mutexes of the files that model tests compile with loom's instead.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// A place that a lock guards, as loom has it.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

/// A fence. Under `scripts/perturb` the thread may pause on either side of it.
#[inline]
pub(crate) fn fence(order: Ordering) {
    crate::sys::perturb();
    std::sync::atomic::fence(order);
    crate::sys::perturb();
}
