//! Looking again for a while before a thread sleeps, for as long as that has paid off lately.
//!
//! Looking pays when the peer runs on another processor at the same time. On a busy machine it does not,
//! and keeps the peer from running: after looks in vain a thread goes to sleep at once, and tries again
//! from time to time.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::sys;

/// Nanoseconds of the longest look: about what a sleep and its wake-up cost.
const LONGEST: u64 = 15_000;
/// Looks in vain, in a row, behind which looks are rare; how many sleeps there are between them then.
const PATIENCE: u32 = 2;
const REST: u32 = 128;

/// How many looks were in vain in a row.
#[derive(Debug, Default)]
pub(crate) struct Spin(AtomicU32);

/// How many processors there are. A handler of a signal may ask while its own thread does: nobody waits here.
fn processors() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let known = COUNT.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let count = sys::processors().max(1);
    COUNT.store(count, Ordering::Relaxed);
    count
}

impl Spin {
    /// Whether `found` became true while this thread looked, at most until `until` nanoseconds.
    pub(crate) fn look(&self, until: Option<u64>, mut found: impl FnMut() -> bool) -> bool {
        let vain = self.0.load(Ordering::Relaxed);
        if vain >= PATIENCE && !vain.is_multiple_of(REST) || processors() < 2 {
            self.0.store(vain.wrapping_add(1), Ordering::Relaxed);
            return false;
        }
        let end = sys::now() + LONGEST;
        let end = until.map_or(end, |until| end.min(until));
        loop {
            for _ in 0..16 {
                if found() {
                    self.0.store(0, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            if sys::now() >= end {
                self.0.store(vain.wrapping_add(1), Ordering::Relaxed);
                return false;
            }
        }
    }
}
