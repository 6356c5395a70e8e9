//! Requests under way: where a completion finds the thread or task that waits for it.
//!
//! A context is a cell number and a generation, never a pointer, so that nothing the engine hands
//! back can be dereferenced by mistake. Success is settled by the engine under its link's lock, and
//! read by the poster without one: a cell changes hands by an exchange of its word. Wakers and
//! failures, which are rare, lie aside under a lock.
//!
//! `tests/cells_loom.rs` runs every interleaving of this file.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use super::sync::{AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering};

/// States of a cell, in the lower half of its word; the upper half is its generation.
const FREE: u64 = 0;
/// A poster fills it in.
const TAKEN: u64 = 1;
const PENDING: u64 = 2;
/// Pending, and a waker lies aside.
const WAITED: u64 = 3;
/// Pending, and never to be asked for: the `Posted` was dropped. That is not cancelling: the
/// request goes on.
const GONE: u64 = 4;
/// Pending; a request of a batch, whose result is that of its last one.
const BATCH: u64 = 5;
/// The request has succeeded.
const DONE: u64 = 6;
/// The request has failed; the error lies aside.
const FAILED: u64 = 7;

const STATE: u64 = 0xFFFF_FFFF;
/// 31 bits of generation: the topmost bit of a context is not ours.
const GENERATIONS: u64 = 0x7FFF_FFFF;

/// Requests under way. `K` is what a request keeps alive, `F` how it can fail.
#[derive(Debug)]
pub(crate) struct Cells<K, F> {
    cells: Box<[Cell<K>]>,
    /// A cell that may be free.
    hint: AtomicU64,
    /// Requests that have succeeded, counted by the engine.
    succeeded: AtomicU64,
    aside: Mutex<HashMap<u32, Aside<F>>>,
}

#[derive(Debug)]
struct Cell<K> {
    word: AtomicU64,
    /// From [`Arc::into_raw`], or null. Written by the thread that has taken the cell, before it is
    /// pending; the thread that ends that state owns the reference.
    keep: AtomicPtr<K>,
}

impl<K> Cell<K> {
    /// Whether its word was `from`; it is `to` then.
    #[inline]
    fn exchange(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[derive(Debug)]
enum Aside<F> {
    Waker(Waker),
    Failure(F),
}

/// Names a request under way. As a `u64` it is the engine's request context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) fn to_context(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_context(context: u64) -> Key {
        Key { index: context as u32, generation: (context >> 32) as u32 }
    }

    fn word(self, state: u64) -> u64 {
        u64::from(self.generation) << 32 | state
    }
}

/// Work for when no lock is held: wake user code, drop user data.
#[derive(Debug)]
#[must_use]
pub(crate) struct Settled<K> {
    pub(crate) waker: Option<Waker>,
    /// The memory that the request kept alive.
    pub(crate) keep: Option<Arc<K>>,
    /// The result will never be asked for.
    pub(crate) unclaimed: bool,
}

/// The word of a free cell, behind the one of this word.
fn freed(word: u64) -> u64 {
    let generation = word >> 32;
    let next = if generation == GENERATIONS { 1 } else { generation + 1 };
    next << 32 | FREE
}

impl<K, F> Cells<K, F> {
    /// Room for `limit` requests.
    pub(crate) fn new(limit: usize) -> Cells<K, F> {
        let cell = |_| Cell { word: AtomicU64::new(1 << 32), keep: AtomicPtr::new(null_mut()) };
        Cells {
            cells: (0..limit).map(cell).collect(),
            hint: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            aside: Mutex::new(HashMap::new()),
        }
    }

    fn aside(&self) -> MutexGuard<'_, HashMap<u32, Aside<F>>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cell for a request about to be posted. `Err`: all are taken, by requests under way or by
    /// results that were not fetched yet; `keep` comes back.
    #[inline]
    pub(crate) fn insert(&self, keep: Option<Arc<K>>) -> Result<Key, Option<Arc<K>>> {
        self.fill(keep, PENDING)
    }

    /// A cell for a request of a batch that is not its last: its result will never be asked for.
    pub(crate) fn insert_quietly(&self, keep: Option<Arc<K>>) -> Result<Key, Option<Arc<K>>> {
        self.fill(keep, BATCH)
    }

    #[inline]
    fn fill(&self, keep: Option<Arc<K>>, state: u64) -> Result<Key, Option<Arc<K>>> {
        let mut index = self.hint.load(Ordering::Relaxed) as usize;
        for _ in 0..=self.cells.len() {
            let Some(cell) = self.cells.get(index) else {
                index = 0;
                continue;
            };
            let word = cell.word.load(Ordering::Relaxed);
            let exchange = |cell: &Cell<K>| {
                let taken = word & !STATE | TAKEN;
                // Acquire: the thread that has freed it has read what it kept.
                cell.word
                    .compare_exchange(word, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            };
            let here = index;
            index += 1;
            if word & STATE == FREE && exchange(cell) {
                self.hint.store(index as u64, Ordering::Relaxed);
                let keep = keep.map_or(null_mut(), |keep| Arc::into_raw(keep).cast_mut());
                cell.keep.store(keep, Ordering::Relaxed);
                let key = Key { index: here as u32, generation: (word >> 32) as u32 };
                cell.word.store(key.word(state), Ordering::Release);
                return Ok(key);
            }
        }
        Err(keep)
    }

    fn cell(&self, key: Key) -> Option<&Cell<K>> {
        self.cells.get(key.index as usize)
    }

    /// The post failed inline: there will be no completion.
    pub(crate) fn remove(&self, key: Key) -> Option<Arc<K>> {
        let cell = self.cell(key)?;
        let word = cell.word.load(Ordering::Acquire);
        let ours = word == key.word(PENDING) || word == key.word(BATCH);
        if ours { self.end(cell, word, freed(word)).ok().flatten() } else { None }
    }

    /// Exchange the word of a pending cell for one that is not: what it kept.
    #[inline]
    fn end(&self, cell: &Cell<K>, word: u64, next: u64) -> Result<Option<Arc<K>>, ()> {
        // As of this pending state: read behind its word, and before the exchange that ends it.
        let keep = cell.keep.load(Ordering::Relaxed);
        let exchanged = cell.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed);
        exchanged.map_err(drop)?;
        // SAFETY: `fill` has stored null, or what `Arc::into_raw` returned, before it made the cell
        // pending by a release store, which the caller's acquire load of `word` has seen. One
        // exchange alone ends a pending state, because no state is entered twice in a generation;
        // it was this one, so this reference is ours.
        Ok((!keep.is_null()).then(|| unsafe { Arc::from_raw(keep) }))
    }

    /// The request has succeeded: for the engine, one call at a time. `None` if no such request is
    /// under way.
    #[inline]
    pub(crate) fn succeed(&self, key: Key) -> Option<Settled<K>> {
        let settled = match self.succeed_unwatched(key) {
            Some((keep, unclaimed)) => Settled { waker: None, keep, unclaimed },
            None => self.settle_aside(key, None)?,
        };
        let count = self.succeeded.load(Ordering::Relaxed).wrapping_add(1);
        self.succeeded.store(count, Ordering::Release);
        Some(settled)
    }

    /// How often [`succeed`](Cells::succeed) was called: for threads that wait for what it does.
    pub(crate) fn count(&self) -> u64 {
        self.succeeded.load(Ordering::Acquire)
    }

    /// The request has failed. `None` if no such request is under way.
    pub(crate) fn fail(&self, key: Key, how: F) -> Option<Settled<K>> {
        self.settle_aside(key, Some(how))
    }

    /// The success of a request for which no waker lies aside: what it kept, and whether its result
    /// will never be asked for. `None`: it is none of these, or not any more.
    #[inline]
    fn succeed_unwatched(&self, key: Key) -> Option<(Option<Arc<K>>, bool)> {
        let cell = self.cell(key)?;
        // Acquire: see `end`.
        let word = cell.word.load(Ordering::Acquire);
        let (next, unclaimed) = match word & STATE {
            PENDING => (key.word(DONE), false),
            GONE => (freed(word), true),
            _ => return None,
        };
        let ours = word >> 32 == u64::from(key.generation);
        let keep = if ours { self.end(cell, word, next).ok()? } else { return None };
        Some((keep, unclaimed))
    }

    /// Under the lock of what lies aside.
    #[cold]
    fn settle_aside(&self, key: Key, failure: Option<F>) -> Option<Settled<K>> {
        let cell = self.cell(key)?;
        let mut aside = self.aside();
        let ended = if failure.is_some() { FAILED } else { DONE };
        loop {
            let word = cell.word.load(Ordering::Acquire);
            let state = word & STATE;
            if word >> 32 != u64::from(key.generation) {
                return None;
            }
            let next = match state {
                PENDING | WAITED => key.word(ended),
                GONE | BATCH => freed(word),
                // Completed twice: the engine does not do that; keep what is there.
                _ => return None,
            };
            let Ok(keep) = self.end(cell, word, next) else { continue };
            let waker = match aside.remove(&key.index) {
                Some(Aside::Waker(waker)) => Some(waker),
                _ => None,
            };
            if let (PENDING | WAITED, Some(how)) = (state, failure) {
                aside.insert(key.index, Aside::Failure(how));
            }
            return Some(Settled { waker, keep, unclaimed: state == GONE });
        }
    }

    /// Whether the result is there.
    pub(crate) fn is_done(&self, key: Key) -> bool {
        let word = self.cell(key).map_or(0, |cell| cell.word.load(Ordering::Acquire));
        word == key.word(DONE) || word == key.word(FAILED)
    }

    /// Fetch the result, or leave a waker. A waker that was replaced is dropped by the caller.
    pub(crate) fn claim(
        &self,
        key: Key,
        waker: Option<&Waker>,
    ) -> (Poll<Option<Result<(), F>>>, Option<Waker>) {
        let Some(cell) = self.cell(key) else { return (Poll::Ready(None), None) };
        if waker.is_none() {
            let word = cell.word.load(Ordering::Acquire);
            if word == key.word(PENDING) || word == key.word(WAITED) {
                return (Poll::Pending, None);
            }
        }
        // A value that is not put aside goes back, to be dropped where no lock is held.
        let new = waker.cloned();
        let mut aside = self.aside();
        loop {
            let word = cell.word.load(Ordering::Acquire);
            let state = word & STATE;
            let next = match state {
                _ if word >> 32 != u64::from(key.generation) => return (Poll::Ready(None), new),
                PENDING | WAITED => key.word(WAITED),
                DONE | FAILED => freed(word),
                _ => return (Poll::Ready(None), new),
            };
            let exchange =
                cell.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed);
            if exchange.is_err() {
                continue;
            }
            let result = match state {
                DONE => Some(Ok(())),
                FAILED => match aside.remove(&key.index) {
                    Some(Aside::Failure(how)) => Some(Err(how)),
                    _ => None,
                },
                _ => {
                    let old = new.and_then(|new| aside.insert(key.index, Aside::Waker(new)));
                    let Some(Aside::Waker(old)) = old else { return (Poll::Pending, None) };
                    return (Poll::Pending, Some(old));
                }
            };
            return (Poll::Ready(result), new);
        }
    }

    /// The result will not be asked for any more. Returns whether it was there already, and a waker
    /// to be dropped.
    #[inline]
    pub(crate) fn abandon(&self, key: Key) -> (bool, Option<Waker>) {
        let Some(cell) = self.cell(key) else { return (false, None) };
        if cell.exchange(key.word(PENDING), key.word(GONE)) {
            (false, None)
        } else {
            self.abandon_aside(key, cell)
        }
    }

    /// Under the lock of what lies aside.
    #[cold]
    fn abandon_aside(&self, key: Key, cell: &Cell<K>) -> (bool, Option<Waker>) {
        let mut aside = self.aside();
        let done = [DONE, FAILED].map(|state| key.word(state));
        if cell.exchange(key.word(WAITED), key.word(GONE)) {
            let Some(Aside::Waker(waker)) = aside.remove(&key.index) else { return (false, None) };
            return (false, Some(waker));
        }
        let any = done.into_iter().any(|word| cell.exchange(word, freed(word)));
        if any {
            aside.remove(&key.index);
        }
        (any, None)
    }

    /// The engine is done with every request: what they kept. Wakers are dropped.
    pub(crate) fn let_all_go(&self) -> Vec<Arc<K>> {
        let (mut kept, wakers) = (Vec::new(), std::mem::take(&mut *self.aside()));
        drop(wakers);
        for cell in &self.cells {
            let word = cell.word.load(Ordering::Acquire);
            if matches!(word & STATE, PENDING | WAITED | GONE | BATCH)
                && let Ok(Some(keep)) = self.end(cell, word, freed(word))
            {
                kept.push(keep);
            }
        }
        kept
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let is_pending = |cell: &&Cell<K>| {
            matches!(cell.word.load(Ordering::Relaxed) & STATE, PENDING | WAITED | GONE | BATCH)
        };
        self.cells.iter().filter(is_pending).count()
    }
}

impl<K, F> Drop for Cells<K, F> {
    fn drop(&mut self) {
        drop(self.let_all_go());
    }
}
