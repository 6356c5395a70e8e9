//! A shared receive queue with its lock and its waiters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use transom_memory::QueuePairId;

use crate::driver::link::notifications::{Notifications, Sink, Sinks};
use crate::driver::schedule::removal::Notifies;
use crate::{
    Finished, Places, ReceiveChain, RequestQueue, SharedReceiveQueue, SharedReceives, Status,
};

#[derive(Debug)]
struct Inner {
    queue: SharedReceiveQueue,
    /// Notifications that fired under a link's lock, to be delivered without it.
    fired: Vec<Finished>,
}

#[derive(Debug)]
pub(crate) struct Srq {
    inner: Mutex<Inner>,
    sinks: Sinks,
}

impl SharedReceives for Srq {
    fn take(&self, queue_pair: QueuePairId, into: &mut RequestQueue) -> bool {
        let mut inner = self.lock();
        let Inner { queue, fired } = &mut *inner;
        queue.take(queue_pair, into, fired)
    }

    fn give_back(&self, unused: &mut RequestQueue) {
        self.lock().queue.give_back(unused);
    }
}

impl Notifies for Srq {
    fn removed(&self) {
        Srq::removed(self);
    }
}

impl Srq {
    pub(crate) fn new(queue: SharedReceiveQueue) -> Srq {
        Srq { inner: Mutex::new(Inner { queue, fired: Vec::new() }), sinks: Sinks::default() }
    }

    /// The places of its receives.
    pub(crate) fn places(&self) -> Places {
        self.lock().queue.places()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have `post` post receives, of which `expected` are expected; the links of the queue pairs in `wake`
    /// are to be run.
    pub(crate) fn post_chain<R>(
        &self,
        expected: usize,
        wake: &mut Vec<QueuePairId>,
        post: impl FnOnce(&mut ReceiveChain<'_>) -> R,
    ) -> R {
        self.lock().queue.post_chain(expected, wake, post)
    }

    /// Collect the sinks to call.
    pub(crate) fn collect_fired(&self, notifications: &mut Notifications) {
        let mut fired = std::mem::take(&mut self.lock().fired);
        self.sinks.finished(&mut fired, notifications);
    }

    pub(crate) fn modify(&self, depth: usize, threshold: usize) -> Result<(), Status> {
        let mut notifications = Notifications::default();
        let result = {
            let mut inner = self.lock();
            let Inner { queue, fired } = &mut *inner;
            queue.modify(depth, threshold, fired)
        };
        self.collect_fired(&mut notifications);
        notifications.fire();
        result
    }

    /// Call `sink` when fewer receives than the threshold wait.
    pub(crate) fn notify(&self, sink: Sink) {
        let number = self.sinks.keep(sink);
        self.quietly(|queue, fired| queue.notify(number, fired));
    }

    /// Call `sink` when fewer receives than the threshold wait, once as many have waited.
    pub(crate) fn notify_when_used(&self, sink: Sink) {
        let number = self.sinks.keep(sink);
        self.lock().queue.notify_when_used(number);
    }

    /// End every outstanding notification as canceled.
    pub(crate) fn cancel(&self) {
        self.quietly(SharedReceiveQueue::cancel);
    }

    /// The adapter's address has gone: end every notification.
    pub(crate) fn removed(&self) {
        self.quietly(|queue, fired| queue.end_notifications(Status::DeviceRemoved, fired));
    }

    fn quietly(&self, change: impl FnOnce(&mut SharedReceiveQueue, &mut Vec<Finished>)) {
        {
            let mut inner = self.lock();
            let Inner { queue, fired } = &mut *inner;
            change(queue, fired);
        }
        let mut notifications = Notifications::default();
        self.collect_fired(&mut notifications);
        notifications.fire();
    }
}
