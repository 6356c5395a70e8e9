//! A word by which one side says that it waits, and by which the other one wakes it.
//!
//! Two kinds of waiters use it: threads that sleep on the word itself (a futex), and threads that sleep
//! in the kernel until their TCP socket is readable, and have *armed* the doorbell. Both say so and then
//! look again before they sleep; the other side looks at the word after each change. A barrier on both
//! sides makes sure that one of the two sees the other. Only the waking side takes back what waiters have
//! said: a waiter that changed its mind could take back what another waiter of the same end relies on.
//!
//! A thread that sleeps in an epoll set is woken by the doorbell of one of its sockets, and then looks at
//! all of them that it has armed. So these carry the number of the sleep ([`Rung`]): a side that has rung
//! for a sleep already rings no second time, whichever socket of the set it has written to. Every sleep has
//! a number of its own, and stores it in all its sockets before it arms and looks at them.
//!
//! `tests/loom.rs` runs every interleaving of this file.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

const ARMED: u32 = 1;
const SLEEPERS: u32 = 2;
/// Each waking counts up, so that a thread that is late for its sleep does not start it.
const STEP: u32 = 4;

/// The word.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Wait(AtomicU32);

/// Whom the caller has to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Wake {
    /// Threads that sleep on the word.
    pub sleepers: bool,
    /// Threads that sleep in the kernel: by one byte on the TCP connection.
    pub doorbell: bool,
}

impl Wait {
    /// Ask for a doorbell at the next change. The caller looks again before it sleeps.
    #[inline]
    pub fn arm(&self) {
        if self.0.load(Ordering::Relaxed) & ARMED == 0 {
            self.0.fetch_or(ARMED, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether a doorbell was asked for, and has not been sent.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Say that this thread is about to sleep on the word, while it has the value returned. The caller
    /// looks again before it sleeps.
    #[inline]
    pub fn fall_asleep(&self) -> u32 {
        let value = self.0.fetch_or(SLEEPERS, Ordering::SeqCst) | SLEEPERS;
        fence(Ordering::SeqCst);
        value
    }

    /// Behind a change: whom to wake. Every waiter is the caller's of one such call.
    #[inline]
    pub fn wake(&self) -> Wake {
        fence(Ordering::SeqCst);
        let mut value = self.0.load(Ordering::Relaxed);
        while value & (ARMED | SLEEPERS) != 0 {
            let next = (value & !(ARMED | SLEEPERS)).wrapping_add(STEP);
            match self.0.compare_exchange_weak(value, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    return Wake { sleepers: value & SLEEPERS != 0, doorbell: value & ARMED != 0 };
                }
                Err(now) => value = now,
            }
        }
        Wake::default()
    }

    /// Behind a change that threads in the kernel see by themselves: whether threads sleep on the word,
    /// which the caller has to wake. What was armed stays armed.
    pub fn wake_sleepers(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut value = self.0.load(Ordering::Relaxed);
        while value & SLEEPERS != 0 {
            let next = (value & !SLEEPERS).wrapping_add(STEP);
            match self.0.compare_exchange_weak(value, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => value = now,
            }
        }
        false
    }

    /// The word that a futex call takes.
    #[must_use]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// The sleeps that this process has ended by a doorbell, as far as it remembers. What it has forgotten
/// costs a doorbell.
#[derive(Debug)]
pub struct Rung<'a>(pub &'a [AtomicU64]);

impl Rung<'_> {
    fn place(&self, sleep: u64) -> Option<&AtomicU64> {
        // Numbers of one process differ in their lower part: its next sleep takes this one's place.
        self.0.get((sleep >> 32) as usize % self.0.len().max(1))
    }

    /// Whether a doorbell was sent that ends this sleep. Asked behind the change, and behind
    /// [`Wait::wake`], whose barrier it relies on.
    #[must_use]
    pub fn has(&self, sleep: u64) -> bool {
        sleep != 0 && self.place(sleep).is_some_and(|place| place.load(Ordering::Acquire) == sleep)
    }

    /// A doorbell was sent, and the kernel has taken it.
    pub fn note(&self, sleep: u64) {
        if sleep != 0
            && let Some(place) = self.place(sleep)
        {
            place.store(sleep, Ordering::Release);
        }
    }
}
