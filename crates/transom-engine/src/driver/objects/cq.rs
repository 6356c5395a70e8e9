//! A completion queue with its waiters and the links that feed it.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use transom_memory::QueuePairId;
use transom_wire::Time;

use super::link::Link;
use super::notifications::{Notifications, Overrun, Sink, Sinks};
use super::removal::Notifies;
use super::shared::Shared;
use super::sleepers::{Bell, Sleepers};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::sys::{self, Doorbell, poll_any};
use crate::{
    Capacity, Completion, CompletionQueue, EndReason, Finished, Moderation, NotifyKind, Status,
};

/// Links that a polling or waiting thread looks at one by one. Of more it asks which are ready.
pub(crate) const HOT: usize = 8;

/// How often a poll looks at the only link: looking costs less than being called again.
pub(super) const LOOKS: u32 = 3;
/// How often a thread looks at rings before it sleeps: for some five microseconds.
const LINGER: u32 = 12;

/// Has [`Cq::end_wait`] called when a notification has been held back for so long.
pub(crate) trait WaitTimer: std::fmt::Debug + Send + Sync {
    fn begin(&self, wait: Duration);
}

#[derive(Debug)]
pub(crate) struct Cq {
    queue: Mutex<CompletionQueue>,
    /// Of a queue whose notifications are held back.
    wait_timer: OnceLock<Box<dyn WaitTimer>>,
    /// There is something to retrieve: written under the lock, read without it.
    filled: AtomicBool,
    sinks: Sinks,
    links: Mutex<Vec<Arc<Link>>>,
    sleepers: Sleepers<Doorbell>,
    /// The queue overran: its queue pairs are to be ended.
    overrun: AtomicBool,
    /// The adapter's address has gone.
    removed: AtomicBool,
}

impl Notifies for Cq {
    fn removed(&self) {
        Cq::removed(self);
    }
}

impl Cq {
    pub(crate) fn new(depth: usize, kind: Capacity) -> Cq {
        Cq {
            queue: Mutex::new(CompletionQueue::new(depth, kind)),
            wait_timer: OnceLock::new(),
            filled: AtomicBool::new(false),
            sinks: Sinks::default(),
            links: Mutex::new(Vec::new()),
            sleepers: Sleepers::new(),
            overrun: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, CompletionQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add one of a batch. [`Cq::finish_batch`] follows.
    pub(crate) fn add(&self, completion: Completion) {
        let mut queue = self.queue();
        self.push(&mut queue, completion);
        self.filled.store(!queue.is_empty(), Ordering::Release);
    }

    #[inline(always)]
    fn push(&self, queue: &mut CompletionQueue, mut completion: Completion) {
        if queue.keeps_times() {
            completion.at = sys::now();
        }
        if queue.push(completion) == Err(Status::QueueOverrun) {
            self.overrun.store(true, Ordering::Release);
        }
    }

    /// Add a batch of one, and fire.
    #[inline]
    pub(crate) fn add_one(
        self: &Arc<Cq>,
        completion: Completion,
        notifications: &mut Notifications,
    ) {
        let mut queue = self.queue();
        self.push(&mut queue, completion);
        self.finish_locked(queue, notifications);
    }

    /// Add a batch, and fire once. An empty batch fires nothing.
    pub(crate) fn add_all(
        self: &Arc<Cq>,
        mut batch: impl Iterator<Item = Completion>,
        notifications: &mut Notifications,
    ) {
        let mut next = batch.next();
        if next.is_none() {
            return;
        }
        let mut queue = self.queue();
        while let Some(completion) = next {
            self.push(&mut queue, completion);
            next = batch.next();
        }
        self.finish_locked(queue, notifications);
    }

    /// The batch is complete: collect the sinks to call, and wake the sleepers.
    pub(crate) fn finish_batch(self: &Arc<Cq>, notifications: &mut Notifications) {
        self.finish_locked(self.queue(), notifications);
    }

    #[inline]
    fn finish_locked(
        self: &Arc<Cq>,
        queue: MutexGuard<'_, CompletionQueue>,
        notifications: &mut Notifications,
    ) {
        self.filled.store(!queue.is_empty(), Ordering::Release);
        // A thread enters the sleepers before it looks at the queue under this lock.
        let asleep = self.sleepers.has_any();
        if queue.may_fire() {
            self.fire(queue, notifications);
        } else {
            drop(queue);
        }
        if asleep {
            self.sleepers.ring();
        }
    }

    fn fire(
        self: &Arc<Cq>,
        mut queue: MutexGuard<'_, CompletionQueue>,
        notifications: &mut Notifications,
    ) {
        let mut fired = Vec::new();
        queue.fire(&mut fired);
        let wait = queue.begun_wait();
        drop(queue);
        self.begin_wait(wait);
        self.sinks.finished(&mut fired, notifications);
        if self.overrun.load(Ordering::Relaxed) && self.overrun.swap(false, Ordering::AcqRel) {
            notifications.overrun(self.clone());
        }
    }

    /// Have every thread that sleeps look again. What it looks at was changed before.
    pub(crate) fn wake(&self) {
        self.sleepers.wake();
    }

    fn lock_links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link feeds it, until it ends ([`Cq::detach`]).
    pub(crate) fn attach(&self, link: &Arc<Link>) {
        let mut links = self.lock_links();
        if !links.iter().any(|l| Arc::ptr_eq(l, link)) {
            links.push(link.clone());
        }
    }

    pub(crate) fn detach(&self, link: &Link) {
        let mut links = self.lock_links();
        if let Some(at) = links.iter().position(|l| std::ptr::eq(&**l, link)) {
            let link = links.swap_remove(at);
            drop(links);
            drop(link);
        }
    }

    /// A link of the few that a thread may look at by itself. The list is not locked meanwhile,
    /// because a link that ends detaches itself.
    fn hot(&self, index: usize) -> Option<Arc<Link>> {
        let links = self.lock_links();
        if links.len() <= HOT { links.get(index).cloned() } else { None }
    }

    /// Where to ask which of its links are ready, if they are many.
    fn ready_set(&self) -> Option<Arc<Shared>> {
        let links = self.lock_links();
        links.first().filter(|_| links.len() > HOT).map(|link| link.shared.clone())
    }

    /// Retrieve entries; when there are none, look for some on the links (and keep the background
    /// thread away from them for a while).
    pub(crate) fn poll(&self, results: &mut [Completion]) -> usize {
        let found = self.take(results);
        if found != 0 || results.is_empty() {
            return found;
        }
        self.progress();
        self.take(results)
    }

    /// Drop the unretrieved entries of a queue pair.
    pub(crate) fn purge(&self, queue_pair: QueuePairId) {
        let mut queue = self.queue();
        queue.purge(queue_pair);
        self.filled.store(!queue.is_empty(), Ordering::Release);
    }

    /// Whether there are unretrieved entries of a queue pair.
    pub(crate) fn holds(&self, queue_pair: QueuePairId) -> bool {
        self.queue().holds(queue_pair)
    }

    /// Retrieve entries that are there.
    pub(crate) fn take(&self, results: &mut [Completion]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut queue = self.queue();
        let found = queue.poll(results);
        self.filled.store(!queue.is_empty(), Ordering::Release);
        found
    }

    /// Whether there is nothing to retrieve.
    pub(crate) fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Acquire)
    }

    /// Make progress on the links, as a polling thread does.
    pub(crate) fn progress(&self) {
        let now = sys::recently();
        let (first, count) = {
            let links = self.lock_links();
            (links.first().cloned(), links.len())
        };
        let Some(first) = first else { return };
        if count > HOT {
            return first.shared.serve();
        }
        // With one link there is nothing better to do than to look at it again.
        first.poll(now, if count == 1 { LOOKS } else { 1 });
        for index in 1..count {
            let Some(link) = self.hot(index) else { break };
            link.poll(now, 1);
        }
    }

    pub(crate) fn notify(&self, kind: NotifyKind, sink: Sink) {
        let number = self.sinks.keep(sink);
        self.notifying(|queue, fired| queue.notify(kind, number, fired));
    }

    /// Do something that may end notifications, or have one held back.
    fn notifying(&self, work: impl FnOnce(&mut CompletionQueue, &mut Vec<Finished>)) {
        let mut fired = Vec::new();
        let mut queue = self.queue();
        work(&mut queue, &mut fired);
        let wait = queue.begun_wait();
        drop(queue);
        self.begin_wait(wait);
        let mut notifications = Notifications::default();
        self.sinks.finished(&mut fired, &mut notifications);
        notifications.fire();
    }

    /// Hold notifications back within limits. `timer` makes the queue's timer, which it keeps.
    pub(crate) fn moderate(
        &self,
        moderation: Option<Moderation>,
        timer: impl FnOnce() -> Box<dyn WaitTimer>,
    ) {
        if moderation.is_some() {
            self.wait_timer.get_or_init(timer);
        }
        self.notifying(|queue, fired| queue.moderate(moderation, fired));
    }

    /// No lock is held.
    fn begin_wait(&self, wait: Option<Duration>) {
        if let (Some(wait), Some(timer)) = (wait, self.wait_timer.get()) {
            timer.begin(wait);
        }
    }

    /// The notification that is held back has waited long enough.
    pub(crate) fn end_wait(&self) {
        self.notifying(CompletionQueue::end_wait);
    }

    /// The adapter's address has gone: end every notification, and have blocked threads look.
    pub(crate) fn removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.end_notifications(Status::DeviceRemoved);
    }

    /// Whether its adapter's address has gone, and everything that this ended has completed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// End every outstanding notification as canceled, or because the adapter's address has gone.
    pub(crate) fn cancel(&self) {
        let removed = self.is_removed();
        self.end_notifications(if removed { Status::DeviceRemoved } else { Status::Canceled });
    }

    fn end_notifications(&self, status: Status) {
        self.notifying(|queue, fired| queue.end_notifications(status, fired));
        self.wake();
    }

    /// Block until there is an entry, or the queue has failed, or `until` says so, or the time is up.
    /// The thread waits for the sockets itself: no other has to be woken first to wake it.
    pub(crate) fn wait(
        &self,
        limit: Option<Duration>,
        until: &dyn Fn() -> bool,
    ) -> std::io::Result<bool> {
        let deadline = limit.map(|limit| sys::now().after(limit));
        self.linger();
        let asleep = Asleep::new(self)?;
        loop {
            if self.has_news() || until() {
                return Ok(true);
            }
            let hot = (0..HOT).map_while(|index| self.hot(index));
            let waits: Vec<_> = hot.map(|link| link.wait_here()).collect();
            let ready_set = self.ready_set().map(|shared| shared.wait_for_ready_set());
            // These last passes may have found something, or bytes arrived before this thread was
            // seen asleep.
            if self.has_news() || until() {
                return Ok(true);
            }
            let left = match deadline.map(|d: Time| d.since(sys::now())) {
                Some(Duration::ZERO) => return Ok(false),
                _ if waits.iter().any(super::link::Waiting::is_unread) => Some(Duration::ZERO),
                left => left,
            };
            let mut fds: Vec<_> = waits.iter().filter_map(super::link::Waiting::interest).collect();
            fds.extend(ready_set.iter().map(|ready_set| (ready_set.fd(), false)));
            poll_any(&fds, &asleep.bell, left)?;
            asleep.bell.silence();
            drop(fds);
            drop(waits);
            drop(ready_set);
            self.progress();
        }
    }

    /// Over rings an answer is often nearer than sleep: look for as long as falling asleep and being
    /// woken would take.
    fn linger(&self) {
        if let (Some(link), None) = (self.hot(0), self.hot(1))
            && link.is_over_rings()
        {
            link.poll(sys::recently(), LINGER);
        }
    }

    /// A bell as of a thread that sleeps for good.
    #[cfg(test)]
    pub(crate) fn sleeper(&self) -> Arc<Doorbell> {
        let bell = Arc::new(Doorbell::new().unwrap());
        self.sleepers.join(&bell);
        bell
    }

    /// Whether a thread sleeps, or is about to.
    #[cfg(test)]
    pub(crate) fn is_slept_on(&self) -> bool {
        self.sleepers.has_any()
    }

    fn has_news(&self) -> bool {
        let queue = self.queue();
        !queue.is_empty() || queue.failure().is_some() || self.is_removed()
    }
}

impl Overrun for Cq {
    fn end_links(&self) {
        let links = self.lock_links().clone();
        for link in links {
            link.fail(EndReason::Overrun);
        }
    }
}

thread_local! {
    static BELL: RefCell<Option<Arc<Doorbell>>> = const { RefCell::new(None) };
}

/// This thread among the sleepers.
struct Asleep<'a> {
    cq: &'a Cq,
    bell: Arc<Doorbell>,
}

impl<'a> Asleep<'a> {
    fn new(cq: &'a Cq) -> std::io::Result<Asleep<'a>> {
        let bell = BELL.with_borrow_mut(|kept| match kept {
            Some(bell) if bell.is_ours() => Ok(bell.clone()),
            _ => Doorbell::new().map(|bell| kept.insert(Arc::new(bell)).clone()),
        })?;
        bell.silence();
        cq.sleepers.join(&bell);
        Ok(Asleep { cq, bell })
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.cq.sleepers.leave(&self.bell);
    }
}

impl Bell for Doorbell {
    fn ring(&self) {
        Doorbell::ring(self);
    }
}
