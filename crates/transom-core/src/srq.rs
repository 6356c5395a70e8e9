//! Shared receive queues (ND2 2.7).

use std::sync::Arc;

use transom_memory::QueuePairId;

use crate::chain::ReceiveChain;
use crate::occupancy::{Occupancy, Places};
use crate::queue::RequestQueue;
use crate::{Finished, Sge, Status};

/// Receives that several queue pairs share. They belong to the queue: the end of a queue pair
/// flushes none of them.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    receives: RequestQueue,
    /// Free when the completion is retrieved of the queue pair that took the receive.
    places: Arc<Occupancy>,
    max_sge: usize,
    largest_transfer: u64,
    threshold: usize,
    waiters: Vec<u64>,
    /// Waiters whose notification needs as many receives as the threshold first.
    early: Vec<u64>,
    /// Queue pairs that found it empty.
    hungry: Vec<QueuePairId>,
}

impl SharedReceiveQueue {
    /// An empty queue of `depth` receives of up to `max_sge` entries.
    #[must_use]
    pub fn new(depth: usize, max_sge: usize, largest_transfer: u64) -> SharedReceiveQueue {
        SharedReceiveQueue {
            receives: RequestQueue::default(),
            places: Arc::new(Occupancy::new(u32::try_from(depth).unwrap_or(u32::MAX))),
            max_sge,
            largest_transfer,
            threshold: 0,
            waiters: Vec::new(),
            early: Vec::new(),
            hungry: Vec::new(),
        }
    }

    /// Have `post` post receives, of which `expected` are expected. The connections of the queue pairs
    /// appended to `wake` are to be run.
    pub fn post_chain<R>(
        &mut self,
        expected: usize,
        wake: &mut Vec<QueuePairId>,
        post: impl FnOnce(&mut ReceiveChain<'_>) -> R,
    ) -> R {
        let (before, most) = (self.receives.len(), (self.max_sge, self.largest_transfer));
        let (queue, places) = (&mut self.receives, &self.places);
        let done = post(&mut ReceiveChain::new(Ok(()), queue, most, places, expected));
        if self.receives.len() > before {
            if self.receives.len() >= self.threshold {
                self.waiters.append(&mut self.early);
            }
            wake.append(&mut self.hungry);
        }
        done
    }

    /// Post a receive, as [`post_chain`](SharedReceiveQueue::post_chain) of one.
    ///
    /// # Errors
    /// `NoMoreEntries`; `DataOverrun`; `BufferOverflow`. Nothing is changed.
    pub fn post(
        &mut self,
        context: u64,
        list: &[Sge],
        wake: &mut Vec<QueuePairId>,
    ) -> Result<(), Status> {
        self.post_chain(1, wake, |chain| chain.post(context, list))
    }

    /// For [`SharedReceives::take`](crate::SharedReceives::take).
    pub fn take(
        &mut self,
        queue_pair: QueuePairId,
        into: &mut RequestQueue,
        fired: &mut Vec<Finished>,
    ) -> bool {
        if !self.receives.move_first(into) {
            if !self.hungry.contains(&queue_pair) {
                self.hungry.push(queue_pair);
            }
            return false;
        }
        self.fire(fired);
        true
    }

    /// For [`SharedReceives::give_back`](crate::SharedReceives::give_back): they become the oldest.
    pub fn give_back(&mut self, unused: &mut RequestQueue) {
        unused.append(&mut self.receives);
        std::mem::swap(unused, &mut self.receives);
    }

    /// The places of the queue, for the completion queues of the queue pairs that take receives of it.
    #[must_use]
    pub fn places(&self) -> Places {
        Places::of_shared(&self.places)
    }

    /// Receives that wait. One that a connection has taken no longer counts.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.receives.len()
    }

    /// Receives that take up places: those that wait, those that connections have taken, and those whose
    /// completions were not retrieved.
    #[must_use]
    pub fn occupied(&self) -> usize {
        self.places.len() as usize
    }

    /// Change depth and threshold; 0 leaves a value as it is. A depth below the receives
    /// outstanding: `BufferOverflow`, nothing changed.
    ///
    /// # Errors
    /// `BufferOverflow` if more receives than `depth` are outstanding.
    pub fn modify(
        &mut self,
        depth: usize,
        threshold: usize,
        fired: &mut Vec<Finished>,
    ) -> Result<(), Status> {
        if depth != 0 && !self.places.resize(u32::try_from(depth).unwrap_or(u32::MAX)) {
            return Err(Status::BufferOverflow);
        }
        if threshold != 0 {
            self.threshold = threshold;
        }
        self.fire(fired);
        Ok(())
    }

    /// Ask for a notification when fewer receives than the threshold wait.
    pub fn notify(&mut self, waiter: u64, fired: &mut Vec<Finished>) {
        self.waiters.push(waiter);
        self.fire(fired);
    }

    /// Notify `waiter` once as many as the threshold have waited: an empty queue does not notify (NDK SRQ-5).
    pub fn notify_when_used(&mut self, waiter: u64) {
        self.early.push(waiter);
    }

    /// Cancel every outstanding notification.
    pub fn cancel(&mut self, fired: &mut Vec<Finished>) {
        self.end_notifications(Status::Canceled, fired);
    }

    /// End every outstanding notification with `status`.
    pub fn end_notifications(&mut self, status: Status, fired: &mut Vec<Finished>) {
        let all = self.waiters.drain(..).chain(self.early.drain(..));
        fired.extend(all.map(|waiter| Finished { waiter, status }));
    }

    fn fire(&mut self, fired: &mut Vec<Finished>) {
        if self.receives.len() < self.threshold {
            let all = self.waiters.drain(..);
            fired.extend(all.map(|waiter| Finished { waiter, status: Status::Success }));
        }
    }
}
