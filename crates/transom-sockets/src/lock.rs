//! Locks across processes, which survive the death of their holder.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{process, sys};

/// How long a thread waits for a lock that a peer can write, in nanoseconds. Who has such a lock copies 64 KiB and
/// gives it back.
const LONGEST: u64 = 500_000_000;

/// A thread sleeps on the word; the other bits are the number of the thread that has the lock.
pub(super) const SLEEPERS: u32 = 1 << 31;

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// This thread's number.
#[inline]
pub(crate) fn thread() -> u32 {
    process::generation();
    this_thread()
}

/// As [`thread`], behind a call of [`process::generation`].
#[inline]
fn this_thread() -> u32 {
    TID.with(|known| if known.get() == 0 { ask(known) } else { known.get() })
}

#[cold]
fn ask(known: &Cell<u32>) -> u32 {
    known.set(sys::tid());
    known.get()
}

/// In the child of a fork: the number that this thread had in the parent, if that was asked for.
pub(crate) fn forget_thread() -> u32 {
    TID.with(|known| known.replace(0))
}

/// A lock in a word that processes share. Everything that happens under it takes effect by one store,
/// so a holder that dies leaves nothing half done.
pub(crate) struct Locked<'a>(&'a AtomicU32);

impl<'a> Locked<'a> {
    /// `None`: this thread has it already, and is in a signal handler now.
    #[inline]
    pub(crate) fn take(word: &'a AtomicU32) -> Option<Locked<'a>> {
        process::generation();
        Locked::take_here(word)
    }

    /// As [`Locked::take`], behind a call of [`process::generation`].
    #[inline]
    pub(super) fn take_here(word: &'a AtomicU32) -> Option<Locked<'a>> {
        let me = this_thread();
        if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Locked(word));
        }
        Locked::take_slowly(word, me, u64::MAX)
    }

    /// As [`Locked::take`], of a word that the peer can write: `None`, too, if it is not given back in time.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_in_time(word: &'a AtomicU32) -> Option<Locked<'a>> {
        Locked::take_slowly(word, thread(), sys::now() + LONGEST)
    }

    #[cold]
    fn take_slowly(word: &'a AtomicU32, me: u32, until: u64) -> Option<Locked<'a>> {
        for _ in 0..100 {
            if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Locked(word));
            }
            std::hint::spin_loop();
        }
        loop {
            let seen = word.load(Ordering::Relaxed);
            let holder = seen & !SLEEPERS;
            if holder == me {
                return None;
            }
            if holder == 0 {
                let mine = me | SLEEPERS;
                if word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Some(Locked(word));
                }
                continue;
            }
            if until != u64::MAX && sys::now() >= until {
                return None;
            }
            let asleep = seen | SLEEPERS;
            let marked = seen == asleep
                || word
                    .compare_exchange(seen, asleep, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if !marked {
                continue;
            }
            let slept = sys::sleep_on(word, asleep, Duration::from_millis(50));
            // The holder's number is looked up where both have the same numbers.
            if slept == Err(libc::ETIMEDOUT) && !sys::lives(holder) {
                let mine = me | SLEEPERS;
                if word.compare_exchange(asleep, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return Some(Locked(word));
                }
            }
        }
    }
}

/// Whether this thread has the lock of a word.
pub(crate) fn is_held_by(word: &AtomicU32, thread: u32) -> bool {
    word.load(Ordering::Relaxed) & !SLEEPERS == thread
}

#[cold]
#[inline(never)]
fn wake_next(word: &AtomicU32) {
    sys::wake(word, 1);
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.swap(0, Ordering::Release) & SLEEPERS != 0 {
            wake_next(self.0);
        }
    }
}
