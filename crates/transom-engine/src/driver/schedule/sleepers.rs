//! Threads that sleep until something has changed, and their wake-up.
//!
//! A thread enters itself among the sleepers and looks once more; a thread that changes something
//! looks afterwards whether there are sleepers. Each side has a full barrier between its two steps
//! (or does both under the lock of what is changed), so one of them sees the other: no thread
//! sleeps through a change, and a change without sleepers costs one load.
//! `transom/tests/turns_loom.rs` runs every interleaving of this file.

use std::sync::Arc;

use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, fence};

/// The bell that wakes a sleeping thread. It stays rung until its owner has reset it.
pub(crate) trait Bell {
    /// Wake the owner, now or when it goes to sleep.
    fn ring(&self);
}

/// The threads that sleep, or are about to, by their bells, and how many they are.
#[derive(Debug)]
pub(crate) struct Sleepers<B> {
    bells: Mutex<Vec<Arc<B>>>,
    asleep: AtomicU32,
}

impl<B: Bell> Sleepers<B> {
    pub(crate) fn new() -> Sleepers<B> {
        Sleepers { bells: Mutex::new(Vec::new()), asleep: AtomicU32::new(0) }
    }

    fn bells(&self) -> MutexGuard<'_, Vec<Arc<B>>> {
        self.bells.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether there are sleepers: for a thread that changes something under a lock and asks under
    /// that lock, which sleepers take to look.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }

    /// Wake all. Each looks for itself whether it has what it waited for.
    #[cold]
    pub(crate) fn ring(&self) {
        for bell in self.bells().iter() {
            bell.ring();
        }
    }

    /// Wake all, if there are any. What they look at was changed before.
    #[inline]
    pub(crate) fn wake(&self) {
        // Pairs with the one in `join`.
        fence(Ordering::SeqCst);
        if self.has_any() {
            self.ring();
        }
    }

    /// This thread is going to sleep on its bell, which is silent. It looks again after this.
    pub(crate) fn join(&self, bell: &Arc<B>) {
        self.bells().push(bell.clone());
        self.asleep.fetch_add(1, Ordering::Relaxed);
        // Pairs with the one in `wake`. (Who looks under a lock needs none.)
        fence(Ordering::SeqCst);
    }

    /// The thread is awake again.
    pub(crate) fn leave(&self, bell: &Arc<B>) {
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        let mut bells = self.bells();
        if let Some(mine) = bells.iter().position(|other| Arc::ptr_eq(other, bell)) {
            bells.swap_remove(mine);
        }
    }
}
