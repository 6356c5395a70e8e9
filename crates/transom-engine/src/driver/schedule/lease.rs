//! For how long a polling thread keeps the background thread away from a link.
//!
//! A thread that polls all the time renews its lease again and again, and the background thread only
//! has to look whether it still does. But a program may also poll once and then spin on memory, which
//! renews nothing: then what arrives lies in the socket until the lease lapses. So a lease that lapses
//! over waiting bytes makes the next ones short, and leases that are renewed let them grow again.

use std::time::Duration;

use transom_wire::Time;

use super::sync::{AtomicU64, Ordering, fence};

/// The shortest lease is this part of the longest.
pub(crate) const SHORTEST: u64 = 64;

#[derive(Debug)]
pub(crate) struct Lease {
    /// Held until then.
    until: AtomicU64,
    /// How long the next one lasts, in nanoseconds.
    length: AtomicU64,
    longest: u64,
}

impl Lease {
    pub(crate) fn new(longest: Duration) -> Lease {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Lease { until: AtomicU64::new(0), length: AtomicU64::new(longest), longest }
    }

    /// A thread polls. Returns the end of its lease if that is new: a thread has to look then.
    pub(crate) fn take(&self, now: Time) -> Option<Time> {
        let length = self.length.load(Ordering::Relaxed);
        if self.until.load(Ordering::Relaxed) >= now.0.saturating_add(length / 2) {
            return None;
        }
        let until = now.0.saturating_add(length);
        self.until.store(until, Ordering::Relaxed);
        // Pairs with the fence in `Watch::due`: either that load sees the lease, or this thread
        // sees that no time is noted.
        fence(Ordering::SeqCst);
        Some(Time(until))
    }

    /// Until when it is held, if it is.
    pub(crate) fn held(&self, now: Time) -> Option<Time> {
        let until = self.until.load(Ordering::Relaxed);
        (until > now.0).then_some(Time(until))
    }

    /// When one of the longest that is taken now would end.
    pub(crate) fn longest_from(&self, now: Time) -> Time {
        Time(now.0.saturating_add(self.longest))
    }

    /// Looked at when it could have lapsed: it was renewed, or its holder is at work.
    pub(crate) fn renewed(&self) {
        let length = self.length.load(Ordering::Relaxed);
        let longer = length.saturating_mul(2).min(self.longest);
        self.length.store(longer, Ordering::Relaxed);
    }

    /// The lease has lapsed, and bytes had been waiting for that.
    pub(crate) fn kept_waiting(&self) {
        self.length.store((self.longest / SHORTEST).max(1), Ordering::Relaxed);
    }
}
