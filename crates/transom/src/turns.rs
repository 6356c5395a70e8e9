//! A single thread at a time hands out what has completed, so that messages stay in order. Any
//! thread may; one who finds it taken goes, and the holder looks at the queue again after its
//! unlock. `tests/turns_loom.rs` runs every interleaving of this file.

use std::sync::{PoisonError, TryLockError};

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The right to hand out, and how often it was used.
#[derive(Debug)]
pub(crate) struct Turns {
    one: Mutex<()>,
    deliveries: AtomicU64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { one: Mutex::new(()), deliveries: AtomicU64::new(0) }
    }

    /// The right to hand out what was seen in the queue, unless a thread has it.
    pub(crate) fn take(&self) -> Option<MutexGuard<'_, ()>> {
        for attempt in 0..2 {
            match self.one.try_lock() {
                Ok(one) => return Some(one),
                Err(TryLockError::Poisoned(one)) => return Some(PoisonError::into_inner(one)),
                // Pairs with the barrier after the holder's `finish`: either it sees what we have
                // seen in the queue, or we see its unlock.
                Err(TryLockError::WouldBlock) if attempt == 0 => fence(Ordering::SeqCst),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        None
    }

    /// A completion was handed out. The caller has a full barrier next (waking the waiters has
    /// one), and looks at the queue again after it.
    pub(crate) fn finish(&self, one: MutexGuard<'_, ()>) {
        // Only the holder of the turn counts.
        let count = self.deliveries.load(Ordering::Relaxed).wrapping_add(1);
        self.deliveries.store(count, Ordering::Release);
        drop(one);
    }

    /// How often a completion was handed out: for threads that wait for the work of another.
    pub(crate) fn count(&self) -> u64 {
        self.deliveries.load(Ordering::SeqCst)
    }
}
