//! Completion queues and shared receive queues.

use std::sync::Arc;
use std::time::Duration;

use super::adapter::Owner;
use super::chain::ReceiveChain;
use super::{Adapter, Domain, Error, Result, Sink};
use crate::driver::{Cq, Srq, wait_timer};
use crate::{Completion, Moderation, NotifyKind, Sge, Status};

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(super) owner: Arc<Owner>,
    pub(super) cq: Arc<Cq>,
}

impl Adapter {
    /// A completion queue for `depth` completions; how exactly the depth is taken is the dialect's.
    ///
    /// # Errors
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked
    /// child.
    pub fn completion_queue(&self, depth: usize) -> Result<CompletionQueue> {
        let shared = self.0.present()?;
        let dialect = shared.options.dialect;
        let cq = Arc::new(Cq::new(depth, dialect.completion_queues));
        cq.queue().set_overrun(dialect.overrun);
        shared.removal.add_queue(&cq);
        Ok(CompletionQueue { owner: self.0.clone(), cq })
    }

    /// A shared receive queue of `depth` receives of up to `max_sge` entries, each judged in the domain
    /// of the queue pair that takes it.
    ///
    /// # Errors
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked
    /// child.
    pub fn shared_receive_queue(&self, depth: usize, max_sge: usize) -> Result<SharedReceiveQueue> {
        self.make_shared_receive_queue(None, depth, max_sge)
    }

    /// A shared receive queue with a domain of its own: receives are judged there, whichever queue pair takes them
    /// (Verbs V58).
    ///
    /// # Errors
    /// As [`Adapter::shared_receive_queue`].
    pub fn shared_receive_queue_in(
        &self,
        domain: Domain,
        depth: usize,
        max_sge: usize,
    ) -> Result<SharedReceiveQueue> {
        self.make_shared_receive_queue(Some(domain), depth, max_sge)
    }

    fn make_shared_receive_queue(
        &self,
        domain: Option<Domain>,
        depth: usize,
        max_sge: usize,
    ) -> Result<SharedReceiveQueue> {
        let shared = self.0.present()?;
        let largest = shared.options.largest_transfer;
        let queue = crate::SharedReceiveQueue::new(depth, max_sge, largest);
        let srq = Arc::new(Srq::new(queue));
        shared.removal.add_queue(&srq);
        Ok(SharedReceiveQueue { owner: self.0.clone(), domain, srq })
    }
}

impl CompletionQueue {
    /// Retrieve completions; how many. When there are none, make progress on the links that feed
    /// the queue and look again. Fewer than there is room for: the queue was drained (ND2 4.4).
    pub fn poll(&self, results: &mut [Completion]) -> usize {
        if self.owner.here().is_err() { 0 } else { self.cq.poll(results) }
    }

    /// From now on each completion has the time at which it came ([`Completion::at`]), of the clock that
    /// [`now`](super::now) reads.
    pub fn keep_times(&self) {
        self.cq.queue().keep_times();
    }

    /// Retrieve completions that are there; how many. Makes no progress.
    pub fn take(&self, results: &mut [Completion]) -> usize {
        if self.owner.here().is_err() { 0 } else { self.cq.take(results) }
    }

    /// Whether there is nothing to retrieve. Takes no lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cq.is_empty()
    }

    /// Make progress without retrieving anything, for programs that watch memory.
    pub fn progress(&self) {
        if self.owner.here().is_ok() {
            self.cq.progress();
        }
    }

    /// Block until there is a completion (`true`), or the time is up. This thread then moves the
    /// bytes itself; no other is woken to wake it.
    ///
    /// # Errors
    /// `QueueOverrun` when the queue ran over. `DeviceRemoved` when the adapter's address has gone and
    /// nothing is there; the last canceled requests may come right behind that.
    pub fn wait(&self, at_most: Option<Duration>) -> Result<bool> {
        self.wait_until(at_most, &|| false)
    }

    /// Wait for a completion, or until `until` says so: when several threads wait, one may retrieve what
    /// another waits for. It then makes that known, and calls [`CompletionQueue::wake`].
    ///
    /// # Errors
    /// `InsufficientResources` if the system cannot make the thread wait; `DeviceRemoved`; `Forked` in a forked
    /// child.
    pub fn wait_until(&self, at_most: Option<Duration>, until: &dyn Fn() -> bool) -> Result<bool> {
        self.owner.here()?;
        self.check()?;
        let result = self.cq.wait(at_most, until).map_err(|e| {
            Error::system(Status::InsufficientResources, format!("wait for completions: {e}"))
        });
        self.check()?;
        if self.cq.is_removed() && self.is_empty() && !until() {
            return Err(self.owner.removed());
        }
        result
    }

    /// Have every thread that is blocked here look again at what it waits for.
    pub fn wake(&self) {
        if self.owner.here().is_ok() {
            self.cq.wake();
        }
    }

    fn check(&self) -> Result<()> {
        match self.cq.queue().failure() {
            Some(status) => Err(Error::caller(
                status,
                "the completion queue ran over: make it as deep as the queues that complete in it, or \
                 poll it before more completes than it holds (`transom explain completion_room`)",
            )),
            None => Ok(()),
        }
    }

    /// Ask for one notification (ND2 4.4). The sink may be called before this returns. When the
    /// adapter's address goes, the sink gets `DeviceRemoved`; completions can be retrieved and
    /// asked for still, because what is posted to a connection that has ended completes.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn notify(&self, kind: NotifyKind, sink: Sink) -> Result<()> {
        self.owner.here()?;
        self.cq.notify(kind, sink);
        Ok(())
    }

    /// Hold notifications back within limits from now on, or not at all (`None`). The newest limits
    /// count, also for one that is held back.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn moderate(&self, moderation: Option<Moderation>) -> Result<()> {
        let shared = self.owner.here()?;
        self.cq.moderate(moderation, || wait_timer::new(shared, &self.cq));
        Ok(())
    }

    /// End every outstanding notification as canceled, before this returns (as `DeviceRemoved`, if the
    /// adapter's address has gone).
    pub fn cancel(&self) {
        if self.owner.here().is_ok() {
            self.cq.cancel();
        }
    }

    /// Change the depth (ND2 C29).
    ///
    /// # Errors
    /// `BufferOverflow` if more completions than `depth` are in it; `DeviceRemoved` once the
    /// address has gone, `Forked` in a forked child.
    pub fn resize(&self, depth: usize) -> Result<()> {
        self.owner.present()?;
        self.cq.queue().resize(depth).map_err(|status| {
            Error::caller(
                status,
                "resize a completion queue: more completions than that are in it; poll them first",
            )
        })
    }

    /// Completions it can hold; none in a forked child.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.owner.here().map_or(0, |_| self.cq.queue().capacity())
    }

    /// Places of the queues of requests and receives that complete here, shared receive queues apart: a
    /// queue as deep as that does not run over (Verbs V82). None in a forked child.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.owner.here().map_or(0, |_| self.cq.queue().bound())
    }

    /// How it failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        match self.owner.here() {
            Ok(_) => self.cq.queue().failure(),
            Err(e) => Some(e.status),
        }
    }
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(super) owner: Arc<Owner>,
    /// The queue's own domain, if it has one.
    pub(super) domain: Option<Domain>,
    pub(super) srq: Arc<Srq>,
}

impl SharedReceiveQueue {
    /// Post a receive.
    ///
    /// # Errors
    /// `NoMoreEntries` when it is full.
    pub fn post_receive(&self, context: u64, list: &[Sge]) -> Result<()> {
        self.post_receives(1, |chain| chain.post(context, list))?
    }

    /// Have `post` post receives, in order, of which `expected` are expected, under one lock. Its result is
    /// returned.
    ///
    /// `post` is called with that lock held: it may not use the queue.
    ///
    /// # Errors
    /// `Forked` in a forked child: `post` is not called.
    pub fn post_receives<R>(
        &self,
        expected: usize,
        post: impl FnOnce(&mut ReceiveChain<'_, '_>) -> R,
    ) -> Result<R> {
        let shared = self.owner.here()?;
        let mut wake = Vec::new();
        let posted =
            self.srq.post_chain(expected, &mut wake, |chain| post(&mut ReceiveChain(chain)));
        for number in wake {
            shared.receives_posted(number);
        }
        Ok(posted)
    }

    /// Change depth and threshold; 0 leaves a value as it is.
    ///
    /// # Errors
    /// `BufferOverflow` if more receives than `depth` are outstanding; `DeviceRemoved` once the
    /// address has gone, `Forked` in a forked child.
    pub fn modify(&self, depth: usize, threshold: usize) -> Result<()> {
        self.owner.present()?;
        self.srq.modify(depth, threshold).map_err(|status| {
            Error::caller(status, "resize a shared receive queue: more receives than that are outstanding; ask for as many at least")
        })
    }

    /// Ask for one notification when fewer receives than the threshold wait.
    ///
    /// # Errors
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn notify(&self, sink: Sink) -> Result<()> {
        self.notify_by(|srq| srq.notify(sink))
    }

    /// Ask for one notification when fewer receives than the threshold wait, once as many have waited: an
    /// empty queue does not notify.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::notify`].
    pub fn notify_when_used(&self, sink: Sink) -> Result<()> {
        self.notify_by(|srq| srq.notify_when_used(sink))
    }

    fn notify_by(&self, ask: impl FnOnce(&Srq)) -> Result<()> {
        let shared = self.owner.present()?;
        ask(&self.srq);
        // Either this is seen here, or the notification by the thread that removes the adapter.
        if shared.is_removed() {
            self.srq.removed();
        }
        Ok(())
    }

    /// End every outstanding notification as canceled.
    pub fn cancel(&self) {
        if self.owner.here().is_ok() {
            self.srq.cancel();
        }
    }
}
