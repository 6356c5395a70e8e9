//! What a thread needs while it makes progress, whoever's thread it is: a lane of the memory table
//! and room to receive into.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use transom_memory::{Lane, Memory};

/// Bytes received at a time: four of the largest frames. More would not fit the cache.
const STAGING: usize = 256 * 1024;

/// One set of tools.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) lane: Lane,
    /// Taken into use, and backed by memory, at the first receive.
    pub(crate) staging: Vec<u8>,
}

/// Take the staging buffer into use.
pub(crate) fn fit(staging: &mut Vec<u8>) {
    if staging.len() < STAGING {
        staging.resize(STAGING, 0);
    }
}

impl Worker {
    fn new(memory: &Memory) -> Worker {
        Worker { lane: memory.lane(), staging: Vec::new() }
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

/// Tools that a thread keeps, by the address of the [`Workers`] that they were made for. (Those that
/// have taken the place of others may find them: a lane becomes one of the table it is used with.)
type Kept = [Option<(usize, Worker)>; 4];

thread_local! {
    static MINE: RefCell<Kept> = const { RefCell::new([const { None }; 4]) };
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
    pub(crate) fn new(memory: &Memory) -> Workers {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let set = || Mutex::new(Worker::new(memory));
        let count = (2 * threads).clamp(8, 64).next_power_of_two();
        Workers { sets: (0..count).map(|_| set()).collect() }
    }

    /// Lend `work` tools that only this thread has, for a link that needs no room to receive into:
    /// without a lock.
    pub(crate) fn lend_own<R>(&self, memory: &Memory, work: impl FnOnce(&mut Worker) -> R) -> R {
        let key = std::ptr::from_ref(self).addr();
        let is_ours = |one: &Option<(usize, Worker)>| one.as_ref().is_some_and(|one| one.0 == key);
        let kept = MINE.try_with(|mine| {
            mine.borrow_mut().iter_mut().find(|one| is_ours(one)).and_then(Option::take)
        });
        let kept = kept.ok().flatten().map(|(_, worker)| worker);
        let mut worker = kept.unwrap_or_else(|| Worker::new(memory));
        let result = work(&mut worker);
        let _ = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            let free = mine.iter().position(Option::is_none).unwrap_or(0);
            let before = mine.get_mut(free).and_then(|place| place.replace((key, worker)));
            drop(mine);
            drop(before);
        });
        result
    }

    /// A set of tools: usually the one this thread had last time.
    pub(crate) fn take(&self) -> MutexGuard<'_, Worker> {
        let hint = hint();
        // Their number is a power of two.
        let mask = self.sets.len().saturating_sub(1);
        for i in 0..self.sets.len() {
            match self.sets.get((hint + i) & mask).map(Mutex::try_lock) {
                Some(Ok(guard)) => return guard,
                Some(Err(TryLockError::Poisoned(p))) => return p.into_inner(),
                Some(Err(TryLockError::WouldBlock)) | None => {}
            }
        }
        // Whoever holds one gives it back after one pass over one link.
        let Some(set) = self.sets.get(hint & mask) else { unreachable!("there are at least 8") };
        set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
