//! The thread responsible for the next look at a link, or at a set of them (see `ready_set.rs`): a
//! thread that polls it, threads that wait for it, or the background thread.
//!
//! A thread that polls holds a lease, and the background thread looks when the lease ends. Threads
//! that wait are counted, and the background thread leaves all to them; the last one to leave asks
//! for the next look.
//!
//! Invariant: what is not armed in epoll has a waiter, or the background thread will look at a time that
//! is noted. `tests/watch_loom.rs` runs every interleaving of this file.

use std::time::Duration;

use transom_wire::Time;

use super::lease::Lease;
use super::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Watch {
    lease: Lease,
    /// A polling thread is in the middle of a pass, which may outlast its lease.
    at_work: AtomicBool,
    /// When the alarm will have the background thread look.
    noted: AtomicU64,
    waiters: AtomicU32,
}

/// The thread that is to look next when the background thread comes to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Responsible {
    /// A thread waits for it.
    Waiter,
    /// A thread polls it. When to look again is noted.
    Poller,
    /// The background thread itself.
    Background,
}

impl Watch {
    pub(crate) fn new(lease: Duration) -> Watch {
        Watch {
            lease: Lease::new(lease),
            at_work: AtomicBool::new(false),
            noted: AtomicU64::new(NEVER),
            waiters: AtomicU32::new(0),
        }
    }

    // ---- the background thread, and the threads that set its alarm
    // ----------------------------------

    /// Have the background thread look at `when` or earlier. `alarm` is called if it would not.
    #[inline]
    pub(crate) fn note(&self, when: Time, alarm: impl FnOnce(Time)) {
        if self.noted.load(Ordering::Relaxed) > when.0 {
            self.noted.store(when.0, Ordering::Relaxed);
            alarm(when);
        }
    }

    /// A pass ends, and something is `unread`. A thread that waits may not know: it was asleep before this
    /// pass, or left it to this thread. If the link `rests`, no thread is there at all.
    #[inline]
    pub(crate) fn note_unread(
        &self,
        now: Time,
        rests: bool,
        unread: bool,
        alarm: impl FnOnce(Time),
    ) {
        if unread && (rests || self.is_waited_for()) {
            self.note(now, alarm);
        }
    }

    /// When it will look.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> Time {
        Time(self.noted.load(Ordering::Relaxed))
    }

    /// The background thread: a time that was noted has come. [`Watch::responsible`] follows.
    pub(crate) fn due(&self) {
        self.noted.store(NEVER, Ordering::Relaxed);
        // Pairs with the fence of a thread that takes a lease or leaves: either this load sees
        // that, or that thread sees that no time is noted.
        fence(Ordering::SeqCst);
    }

    /// The background thread: which thread is to look now.
    pub(crate) fn responsible(&self, now: Time, alarm: impl FnOnce(Time)) -> Responsible {
        if self.is_waited_for() {
            Responsible::Waiter
        } else if let Some(until) = self.lease.held(now) {
            self.lease.renewed();
            self.note(until, alarm);
            Responsible::Poller
        } else if self.at_work.load(Ordering::Relaxed) {
            // Bytes that this pass takes in have not been waiting for this side.
            self.lease.renewed();
            self.note(self.lease.longest_from(now), alarm);
            Responsible::Poller
        } else {
            Responsible::Background
        }
    }

    /// The background thread took over, and something had been waiting for that.
    pub(crate) fn kept_waiting(&self) {
        self.lease.kept_waiting();
    }

    // ---- a thread that polls -----------------------------------------------------------------------

    /// A thread polls.
    #[inline]
    pub(crate) fn take(&self, now: Time, alarm: impl FnOnce(Time)) {
        if let Some(until) = self.lease.take(now) {
            self.note(until, alarm);
        }
    }

    /// A thread begins a pass (`true`), or has ended it.
    #[inline]
    pub(crate) fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
    }

    /// A thread polls: the background thread will not look before the end of the lease.
    #[inline]
    pub(crate) fn is_leased(&self, now: Time) -> bool {
        self.lease.held(now).is_some()
    }

    /// Whether the lease lasts; when it ends, an alarm has this looked at again.
    #[inline]
    pub(crate) fn stays_leased(&self, now: Time, alarm: impl FnOnce(Time)) -> bool {
        let leased = self.lease.held(now);
        if let Some(until) = leased {
            self.note(until, alarm);
        }
        leased.is_some()
    }

    // ---- threads that wait -------------------------------------------------------------------------

    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// This thread is going to wait. It looks once more after this.
    pub(crate) fn join(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread waits no more.
    pub(crate) fn leave(&self, now: Time, alarm: impl FnOnce(Time)) {
        // First the lease, because it may be back at once: the background thread need not look sooner.
        self.lease.take(now);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        // Work that came due meanwhile was left to this thread, even if another thread's lease
        // lasts. Pairs with the fence in `due`.
        fence(Ordering::SeqCst);
        self.note(self.lease.held(now).unwrap_or(now), alarm);
    }
}
