//! Many links: the thread that serves those that are ready.
//!
//! All links of an adapter lie in one epoll set. Normally the background thread waits on it. A
//! thread that polls or waits for a completion queue which many links feed asks that set instead of
//! the links one by one, so that idle links cost it nothing; meanwhile it holds a *lease* of the set
//! (or counts as a waiter), and the background thread waits for the alarm alone.
//!
//! A link that such a thread has served is not armed at once: the program may answer what came, and
//! an acknowledgement would ride on the answer. Its next round, or the end of the lease, arms it.
//!
//! Invariant: while links wait to be armed, the set is leased and the end of the lease is noted.
//! `tests/ready_set_loom.rs` runs every interleaving of this file.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use super::shared::{READY_SET, Shared, Source};
use super::sync::{Mutex, MutexGuard};
use super::watch::Watch;
use crate::sys::{self, Fd};

/// Links of one round.
const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct ReadySet {
    watch: Watch,
    /// Links that were served and are to be armed.
    served: Mutex<Vec<Arc<dyn Source>>>,
}

impl ReadySet {
    pub(crate) fn new(lease: Duration) -> ReadySet {
        ReadySet { watch: Watch::new(lease), served: Mutex::default() }
    }

    fn served(&self) -> MutexGuard<'_, Vec<Arc<dyn Source>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Serve the links that are ready, for a thread of the program that polls.
    pub(crate) fn serve(&self) {
        self.lease_ready_set();
        self.arm_served();
        let mut ready = [0; BATCH];
        let count = self.epoll.look(&mut ready);
        if count == 0 {
            return;
        }
        self.are_ready(ready.iter().take(count).copied());
        let now = sys::now();
        for key in ready.into_iter().take(count) {
            match self.source(key) {
                Some(source) => {
                    if source.serve(now) {
                        // Only now: a thread that arms it must find nothing left to be done afterwards.
                        self.ready_set.served().push(source);
                    }
                }
                None => self.ready(key, now),
            }
        }
        // The lease may have lapsed before the last of them came to the list.
        self.lease_ready_set();
    }

    /// Arm what was served: the program had its chance to answer.
    fn arm_served(&self) {
        if self.ready_set.served().is_empty() {
            return;
        }
        let mut served = std::mem::take(&mut *self.ready_set.served());
        for source in served.drain(..) {
            source.finish_served();
        }
        // Kept, so that the next round need not allocate.
        let mut place = self.ready_set.served();
        if place.capacity() < served.capacity() {
            served.append(&mut place);
            *place = served;
        }
    }

    /// The adapter ends: served links are dropped unarmed, because they would keep all of it alive.
    pub(crate) fn dismiss_ready_set(&self) {
        let served = std::mem::take(&mut *self.ready_set.served());
        drop(served);
    }

    fn lease_ready_set(&self) {
        self.ready_set.watch.take(sys::now(), self.ready_set_alarm());
    }

    fn ready_set_alarm(&self) -> impl FnOnce(Time) {
        |when| self.note(READY_SET, when)
    }

    /// The background thread: the end of a lease that was noted has come.
    pub(crate) fn ready_set_is_due(&self) {
        self.ready_set.watch.due();
    }

    /// The background thread: whether another thread looks at the links. If not, no served link is
    /// left unarmed.
    pub(crate) fn ready_set_has_poller(&self) -> bool {
        if self.ready_set.watch.stays_leased(sys::now(), self.ready_set_alarm()) {
            return true;
        }
        self.arm_served();
        self.ready_set.watch.is_waited_for()
    }

    /// This thread is going to wait for the set.
    pub(crate) fn wait_for_ready_set(self: &Arc<Shared>) -> ReadySetWaiter {
        self.ready_set.watch.join();
        self.serve();
        self.arm_served();
        ReadySetWaiter(self.clone())
    }
}

/// A thread that waits for the set.
pub(crate) struct ReadySetWaiter(Arc<Shared>);

impl ReadySetWaiter {
    /// The descriptor of the set.
    pub(crate) fn fd(&self) -> &Fd {
        self.0.epoll.fd()
    }
}

impl Drop for ReadySetWaiter {
    fn drop(&mut self) {
        self.0.ready_set.watch.leave(sys::now(), self.0.ready_set_alarm());
    }
}
