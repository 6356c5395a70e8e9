//! The tools of a thread that makes progress: a lane of the memory table and room to receive into.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use transom_memory::{Lane, Memory};

/// Bytes received at a time: four of the largest frames. More would not fit the cache.
const STAGING: usize = 256 * 1024;

/// The tools of one pass. Each is made at its first use: a close of memory looks at every lane.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) lane: Option<Lane>,
    /// Backed by memory from the first receive on.
    pub(crate) staging: Vec<u8>,
}

/// Take the staging buffer into use.
pub(crate) fn fit(staging: &mut Vec<u8>) {
    if staging.len() < STAGING {
        staging.resize(STAGING, 0);
    }
}

impl Worker {
    /// The lane, and the room to receive into.
    #[inline]
    pub(crate) fn tools(&mut self, memory: &Memory) -> (&mut Lane, &mut Vec<u8>) {
        (self.lane.get_or_insert_with(|| memory.lane()), &mut self.staging)
    }

    /// Room to receive into.
    pub(crate) fn staging(&mut self) -> &mut Vec<u8> {
        fit(&mut self.staging);
        &mut self.staging
    }
}

/// A few sets, so that threads of the application and ours seldom meet.
#[derive(Debug)]
pub(crate) struct Workers {
    sets: Box<[Mutex<Worker>]>,
}

thread_local! {
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn hint() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    HINT.with(|hint| {
        if hint.get() == usize::MAX {
            hint.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        hint.get()
    })
}

impl Workers {
    pub(crate) fn new() -> Workers {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let count = (2 * threads).clamp(8, 64).next_power_of_two();
        Workers { sets: (0..count).map(|_| Mutex::default()).collect() }
    }

    /// A set of tools: usually the one this thread had last time.
    pub(crate) fn take(&self) -> MutexGuard<'_, Worker> {
        let hint = hint();
        // The number of cells is a power of two.
        let mask = self.sets.len().saturating_sub(1);
        for i in 0..self.sets.len() {
            match self.sets.get((hint + i) & mask).map(Mutex::try_lock) {
                Some(Ok(guard)) => return guard,
                Some(Err(TryLockError::Poisoned(p))) => return p.into_inner(),
                Some(Err(TryLockError::WouldBlock)) | None => {}
            }
        }
        // A thread gives its set back after one pass over one link.
        let Some(set) = self.sets.get(hint & mask) else { unreachable!("there are at least 8") };
        set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
