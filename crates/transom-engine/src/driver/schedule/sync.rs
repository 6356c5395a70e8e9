//! Atomics, fences and mutexes of the files that model tests compile with loom's instead.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

/// A fence. Under `scripts/perturb` the thread may pause on either side of it.
#[inline]
pub(crate) fn fence(order: Ordering) {
    crate::sys::perturb();
    std::sync::atomic::fence(order);
    crate::sys::perturb();
}
