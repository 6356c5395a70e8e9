//! Many links: who looks at those that are ready.
//!
//! All links of an adapter lie in one epoll set. Normally the background thread waits on it. A
//! thread that polls or waits for a completion queue which many links feed asks that set instead of
//! the links one by one, so that idle links cost it nothing; meanwhile it holds a *lease* of the set
//! (or counts as a waiter), and the background thread waits for the alarm and the doorbell alone.
//!
//! A link that such a thread has served is not armed at once: the program may answer what came, and
//! an acknowledgement would ride on the answer. Its next turn, or the end of the lease, arms it.
//!
//! Invariant: while links wait to be armed, the set is leased and the end of the lease is noted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use super::lease::Lease;
use super::link::Link;
use super::shared::{CROWD, Shared};
use crate::sys::{self, Fd};

const NEVER: u64 = u64::MAX;

/// Links of one turn.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Crowd {
    lease: Lease,
    /// When the alarm will have the background thread look.
    noted: AtomicU64,
    waiters: AtomicU32,
    /// Links that were served and are to be armed.
    served: Mutex<Vec<Arc<Link>>>,
}

impl Crowd {
    pub(super) fn new(lease: Duration) -> Crowd {
        Crowd {
            lease: Lease::new(lease),
            noted: AtomicU64::new(NEVER),
            waiters: AtomicU32::new(0),
            served: Mutex::default(),
        }
    }

    fn served(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Serve the links that are ready, for a thread of the program that polls.
    pub(crate) fn serve(&self) {
        self.lease_crowd();
        self.arm_served();
        let mut ready = [0; BATCH];
        let count = self.epoll.look(&mut ready);
        if count == 0 {
            return;
        }
        let now = sys::now();
        for key in ready.into_iter().take(count) {
            match self.link(key) {
                Some(link) => {
                    link.serve(now);
                    // Only now: whoever arms it must find nothing left to be done afterwards.
                    self.crowd.served().push(link);
                }
                None => self.ready(key, now),
            }
        }
        // The lease may have lapsed before the last of them came to the list.
        self.lease_crowd();
    }

    /// Arm what was served: the program had its chance to answer.
    fn arm_served(&self) {
        if self.crowd.served().is_empty() {
            return;
        }
        let mut served = std::mem::take(&mut *self.crowd.served());
        for link in served.drain(..) {
            link.settle_served();
        }
        // Kept, so that the next turn need not allocate.
        let mut place = self.crowd.served();
        if place.capacity() < served.capacity() {
            served.append(&mut place);
            *place = served;
        }
    }

    fn lease_crowd(&self) {
        if let Some(until) = self.crowd.lease.take(sys::now()) {
            self.note_crowd(until);
        }
    }

    fn note_crowd(&self, when: Time) {
        if self.crowd.noted.load(Ordering::Relaxed) > when.0 {
            self.crowd.noted.store(when.0, Ordering::Relaxed);
            self.note(CROWD, when);
        }
    }

    /// The background thread: the end of a lease that was noted has come.
    pub(super) fn crowd_is_due(&self) {
        self.crowd.noted.store(NEVER, Ordering::Relaxed);
    }

    /// The background thread: whether somebody else looks at the links. If not, nobody has left any
    /// unarmed.
    pub(super) fn crowd_is_attended(&self) -> bool {
        fence(Ordering::SeqCst);
        if let Some(until) = self.crowd.lease.held(sys::now()) {
            self.note_crowd(until);
            return true;
        }
        self.arm_served();
        self.crowd.waiters.load(Ordering::Relaxed) != 0
    }

    /// This thread is going to wait for the set.
    pub(super) fn wait_for_crowd(self: &Arc<Shared>) -> Attending {
        self.crowd.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.serve();
        self.arm_served();
        Attending(self.clone())
    }
}

/// A thread that waits for the set.
pub(super) struct Attending(Arc<Shared>);

impl Attending {
    /// What to wait for.
    pub(super) fn fd(&self) -> &Fd {
        self.0.epoll.fd()
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        // First the lease, so that somebody is responsible at every moment.
        self.0.lease_crowd();
        self.0.crowd.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
