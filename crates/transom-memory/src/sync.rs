//! The primitives under the guard. The loom models (`tests/loom.rs`) compile the files that use
//! them, `entry.rs` and `hazard.rs`, against a module of the same names made of loom's.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Wait a moment for a copy that is under way: it takes microseconds, unless its thread was
/// preempted.
pub(crate) fn pause(round: u32) {
    if round < 128 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
