//! Many links: which thread looks at those that are ready, and which of them wait to be armed.
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
//! `tests/ready_set_loom.rs` runs every interleaving of this file and of `serve.rs`.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use super::source::Source;
use super::sync::{Mutex, MutexGuard};
use super::watch::Watch;
use crate::sys;

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

    /// This thread looks at the links for a while. `alarm` notes the end of the lease.
    pub(crate) fn lease(&self, alarm: impl FnOnce(Time)) {
        self.watch.take(sys::now(), alarm);
    }

    /// A link was served, and is to be armed. Only now: a thread that arms it must find nothing left to
    /// be done afterwards.
    pub(crate) fn push(&self, served: Arc<dyn Source>) {
        self.served().push(served);
    }

    /// Arm what was served: the program had its chance to answer.
    pub(crate) fn arm_served(&self) {
        if self.served().is_empty() {
            return;
        }
        let mut served = std::mem::take(&mut *self.served());
        for source in served.drain(..) {
            source.finish_served();
        }
        // Kept, so that the next round need not allocate.
        let mut place = self.served();
        if place.capacity() < served.capacity() {
            served.append(&mut place);
            *place = served;
        }
    }

    /// The adapter ends: served links are dropped unarmed, because they would keep all of it alive.
    pub(crate) fn dismiss(&self) {
        let served = std::mem::take(&mut *self.served());
        drop(served);
    }

    /// The background thread: the end of a lease that was noted has come.
    pub(crate) fn is_due(&self) {
        self.watch.due();
    }

    /// The background thread: whether another thread looks at the links. If not, no served link is
    /// left unarmed.
    pub(crate) fn has_poller(&self, alarm: impl FnOnce(Time)) -> bool {
        if self.watch.stays_leased(sys::now(), alarm) {
            return true;
        }
        self.arm_served();
        self.watch.is_waited_for()
    }

    /// This thread is going to wait for the set.
    pub(crate) fn join(&self) {
        self.watch.join();
    }

    /// This thread does not wait any more.
    pub(crate) fn leave(&self, alarm: impl FnOnce(Time)) {
        self.watch.leave(sys::now(), alarm);
    }
}
