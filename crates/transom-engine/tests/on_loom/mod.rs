//! The common part of models that compile shipped source files.
#![allow(unused_imports, dead_code, unreachable_pub)]

/// Loom's types, under the names by which the shipped files know the real ones.
pub mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    /// Of a ring.
    pub const SLOTS: usize = 2;
}

/// Every interleaving in which threads are interrupted at most so often.
pub fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
