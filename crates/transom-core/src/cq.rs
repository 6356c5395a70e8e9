//! Completion queues and their notifications (ND2 4.4, N1-N11).
//!
//! A plain value: the driver puts it behind a lock (ND2 N11), adds a whole batch, calls
//! [`CompletionQueue::fire`] once (ND2 N10), and runs what fired with the lock dropped.

use std::collections::VecDeque;
use std::time::Duration;

use transom_memory::QueuePairId;

use crate::dialect::Overrun;
use crate::occupancy::Places;
use crate::{Completion, CompletionFlags, Finished, Status};

/// How deep a completion queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// The depth that was asked for, or the sum of the depths of the queues bound to it, if that is
    /// more (ND2 C38).
    Elastic,
    /// The depth that was asked for.
    Exact,
}

/// The event that a notification waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotifyKind {
    /// The next entry of any kind (ND2 N6).
    Any,
    /// The next solicited receive, or any entry with an error (ND2 N5).
    Solicited,
    /// The failure of the queue itself (ND2 N7).
    Errors,
}

/// How long a notification that has something to report may be held back (NDK 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// The number of new completions that ends the wait. More than the queue holds: the interval alone does, or
    /// without one, as many as it holds.
    pub count: usize,
    /// The longest wait; `None`: the count alone ends it.
    pub interval: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    number: u64,
    /// For the queue's failure only (ND2 N7).
    errors: bool,
}

/// A queue of requests or receives that complete here.
#[derive(Debug)]
struct Member {
    places: Option<Places>,
    depth: usize,
    /// The queue's entries that were not retrieved.
    entries: usize,
    gone: bool,
}

/// Whether an entry counts for [`NotifyKind::Solicited`].
fn is_solicited(entry: &Completion) -> bool {
    !entry.status.is_success() || entry.flags.contains(CompletionFlags::SOLICITED)
}

/// A ring of completions.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: VecDeque<Completion>,
    kind: Capacity,
    requested: usize,
    bound: usize,
    /// The queues of requests and receives that complete here, and which of these entries are none any more.
    members: Vec<Member>,
    unused: Vec<u32>,
    /// Entries of queues that are gone.
    orphans: usize,
    /// Entries ever added.
    added: u64,
    /// `added` when the youngest entry that satisfies a solicited notification was added.
    added_solicited: u64,
    /// `added` when a notification last fired (ND2 N1).
    signalled: u64,
    /// The event that the outstanding notifications wait for.
    armed: Option<NotifyKind>,
    /// In the order in which they were asked for.
    waiters: Vec<Waiter>,
    moderation: Option<Moderation>,
    /// A notification is held back; completions count from this value of `added` on.
    held: Option<u64>,
    /// The wait has begun, and [`CompletionQueue::begun_wait`] has not said so yet.
    wait_begun: bool,
    overrun: Overrun,
    failed: Option<Status>,
    keeps_times: bool,
}

impl CompletionQueue {
    /// An empty queue. The ring grows as it is used.
    #[must_use]
    pub fn new(depth: usize, kind: Capacity) -> CompletionQueue {
        CompletionQueue {
            ring: VecDeque::new(),
            kind,
            requested: depth,
            bound: 0,
            members: Vec::new(),
            unused: Vec::new(),
            orphans: 0,
            added: 0,
            added_solicited: 0,
            signalled: 0,
            armed: None,
            waiters: Vec::new(),
            moderation: None,
            held: None,
            wait_begun: false,
            overrun: Overrun::Clear,
            failed: None,
            keeps_times: false,
        }
    }

    /// The fate of its entries when it runs over.
    pub fn set_overrun(&mut self, overrun: Overrun) {
        self.overrun = overrun;
    }

    /// From now on each entry has the time at which it came.
    pub fn keep_times(&mut self) {
        self.keeps_times = true;
    }

    /// Whether entries have their times: [`Completion::at`], which the caller of [`push`](Self::push) sets.
    #[must_use]
    #[inline]
    pub fn keeps_times(&self) -> bool {
        self.keeps_times
    }

    /// Completions it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self.kind {
            Capacity::Elastic => self.requested.max(self.bound).saturating_add(self.orphans),
            Capacity::Exact => self.requested,
        }
    }

    /// A queue of `depth` requests or receives will complete here: the [`member`](Completion::member) of its
    /// completions, each of which frees one of `places` when it is retrieved.
    pub fn bind(&mut self, places: Places, depth: usize) -> u32 {
        self.bound = self.bound.saturating_add(depth);
        let member = Member { places: Some(places), depth, entries: 0, gone: false };
        if let Some(number) = self.unused.pop() {
            if let Some(room) = self.member(number) {
                *room = member;
            }
            return number;
        }
        self.members.push(member);
        u32::try_from(self.members.len()).unwrap_or(0)
    }

    /// The sum of the depths of the queues of requests and receives that complete here: as deep as that it
    /// never runs over, shared receive queues apart (Verbs V82).
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// The queue of those requests is gone. Its entries stay (ND2 1.3 rule 6), and take no place
    /// from others.
    pub fn unbind(&mut self, number: u32) {
        let Some(member) = self.member(number).filter(|member| !member.gone) else { return };
        member.gone = true;
        let (depth, entries) = (member.depth, member.entries);
        self.bound = self.bound.saturating_sub(depth);
        self.orphans = self.orphans.saturating_add(entries);
        self.forget(number);
    }

    #[inline]
    fn member(&mut self, number: u32) -> Option<&mut Member> {
        self.members.get_mut((number as usize).wrapping_sub(1))
    }

    /// The number of a member that is gone may be used again, once nothing of it is left.
    #[cold]
    fn forget(&mut self, number: u32) {
        if let Some(member) = self.member(number).filter(|member| member.entries == 0) {
            member.places = None;
            self.unused.push(number);
        }
    }

    /// An entry has left the ring.
    #[inline]
    fn left(&mut self, entry: &Completion) {
        let Some(member) = self.member(entry.member) else { return };
        member.entries = member.entries.saturating_sub(1);
        if let Some(places) = &member.places {
            places.retrieve(entry.place);
        }
        if member.gone {
            self.orphans = self.orphans.saturating_sub(1);
            self.forget(entry.member);
        }
    }

    /// Change the depth that was asked for. Fewer than the entries in it: `BufferOverflow`, nothing
    /// changed (ND2 C29).
    ///
    /// # Errors
    /// `BufferOverflow` if more entries than `depth` are in it.
    pub fn resize(&mut self, depth: usize) -> Result<(), Status> {
        if depth < self.ring.len() {
            return Err(Status::BufferOverflow);
        }
        self.requested = depth;
        Ok(())
    }

    /// Entries not yet retrieved.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// How the queue failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<Status> {
        self.failed
    }

    /// Add an entry. `Err` when it finds the queue full or dead: the queue is dead then, and the
    /// caller ends every queue pair bound to it (ND2 4.4). Call [`fire`](Self::fire) after the batch.
    ///
    /// # Errors
    /// `QueueOverrun` if the queue is full, or was before.
    #[inline]
    pub fn push(&mut self, completion: Completion) -> Result<(), Status> {
        if self.failed.is_some() || self.ring.len() >= self.capacity() {
            return Err(self.overrun(&completion));
        }
        if let Some(member) = self.member(completion.member) {
            member.entries += 1;
        }
        self.added += 1;
        if is_solicited(&completion) {
            self.added_solicited = self.added;
        }
        self.ring.push_back(completion);
        Ok(())
    }

    /// A completion finds no room: it is lost, and with it, as the dialect says, what was queued. Then
    /// nothing takes up a place any more: what is posted behind the end goes on to be accepted.
    #[cold]
    fn overrun(&mut self, lost: &Completion) -> Status {
        if self.overrun == Overrun::Clear {
            while let Some(entry) = self.ring.pop_front() {
                self.left(&entry);
            }
            if let Some(Member { places: Some(places), .. }) = self.member(lost.member) {
                places.retrieve(lost.place);
            }
        }
        *self.failed.get_or_insert(Status::QueueOverrun)
    }

    /// Whether [`fire`](Self::fire) can do anything: the queue has failed, or a notification waits for entries.
    #[must_use]
    #[inline]
    pub fn may_fire(&self) -> bool {
        self.armed.is_some() || self.failed.is_some()
    }

    /// The batch is complete: every notification that has something new to report goes to `fired`.
    /// An entry fires at most once (ND2 N2), and one firing ends all that wait (ND2 N3).
    pub fn fire(&mut self, fired: &mut Vec<Finished>) {
        if let Some(status) = self.failed {
            self.end_notifications(status, fired);
            return;
        }
        if self.armed.is_some_and(|kind| self.has_news(kind)) && !self.holds_back() {
            self.report(fired);
        }
    }

    fn report(&mut self, fired: &mut Vec<Finished>) {
        self.armed = None;
        self.end_hold();
        self.signalled = self.added;
        self.waiters.retain(|waiter| {
            if !waiter.errors {
                fired.push(Finished { waiter: waiter.number, status: Status::Success });
            }
            waiter.errors
        });
    }

    /// Entries up to this number are reported or retrieved.
    fn seen(&self) -> u64 {
        self.signalled.max(self.added - self.ring.len() as u64)
    }

    /// Whether an unretrieved entry that counts for `kind` was added after the last firing (ND2
    /// N1), or was when the notification was held back.
    fn has_news(&self, kind: NotifyKind) -> bool {
        let seen = self.seen();
        self.held.is_some()
            || match kind {
                NotifyKind::Any => self.added > seen,
                NotifyKind::Solicited => self.added_solicited > seen,
                NotifyKind::Errors => false,
            }
    }

    // ---- moderation -------------------------------------------------------------------------

    /// Hold notifications back within limits from now on, or not at all. The newest limits count,
    /// also for a notification that is held back: its wait begins anew, or ends.
    pub fn moderate(&mut self, moderation: Option<Moderation>, fired: &mut Vec<Finished>) {
        self.moderation = moderation;
        self.wait_begun = self.held.is_some();
        self.fire(fired);
    }

    /// Whether the notification that is due waits for more completions.
    fn holds_back(&mut self) -> bool {
        let Some(moderation) = self.moderation else { return false };
        let (seen, capacity) = (self.seen(), self.capacity());
        self.wait_begun |= self.held.is_none();
        let from = *self.held.get_or_insert(seen);
        let enough = match moderation.interval {
            Some(_) if moderation.count > capacity => return true,
            _ => moderation.count.min(capacity) as u64,
        };
        self.added - from < enough
    }

    fn end_hold(&mut self) {
        (self.held, self.wait_begun) = (None, false);
    }

    /// The longest wait of a notification that is held back, once for each; [`Self::end_wait`]
    /// follows behind it.
    pub fn begun_wait(&mut self) -> Option<Duration> {
        let begun = std::mem::take(&mut self.wait_begun);
        self.moderation.filter(|_| begun)?.interval
    }

    /// The wait of the notification that is held back is over.
    pub fn end_wait(&mut self, fired: &mut Vec<Finished>) {
        if self.held.is_some() && self.moderation.is_none_or(|m| m.interval.is_some()) {
            self.report(fired);
        }
    }

    /// Ask for a notification. `waiter` comes back in `fired`, now or later.
    pub fn notify(&mut self, kind: NotifyKind, waiter: u64, fired: &mut Vec<Finished>) {
        let errors = kind == NotifyKind::Errors;
        self.waiters.push(Waiter { number: waiter, errors });
        if !errors && self.armed != Some(NotifyKind::Any) {
            self.armed = Some(kind); // ANY beats SOLICITED (ND2 N4)
        }
        self.fire(fired);
    }

    /// Cancel every outstanding notification, in the order in which they were asked for.
    pub fn cancel(&mut self, fired: &mut Vec<Finished>) {
        self.end_notifications(Status::Canceled, fired);
    }

    /// End every outstanding notification with `status`, in the order in which they were asked for.
    pub fn end_notifications(&mut self, status: Status, fired: &mut Vec<Finished>) {
        let all = self.waiters.drain(..);
        fired.extend(all.map(|waiter| Finished { waiter: waiter.number, status }));
        self.armed = None;
        self.end_hold();
    }

    /// Retrieve up to `results.len()` entries, in order; how many. Fewer = drained.
    pub fn poll(&mut self, results: &mut [Completion]) -> usize {
        let mut count = 0;
        for to in results {
            let Some(entry) = self.ring.front() else { break };
            *to = *entry;
            self.ring.pop_front();
            self.left(to);
            count += 1;
        }
        count
    }

    /// Drop the unretrieved entries of a queue pair, and with them what they had to report (Verbs V37).
    pub fn purge(&mut self, queue_pair: QueuePairId) {
        let mut ring = std::mem::take(&mut self.ring);
        ring.retain(|entry| {
            let stays = entry.queue_pair != queue_pair;
            if !stays {
                self.left(entry);
            }
            stays
        });
        self.ring = ring;
        // Entries are numbered by their distance from the end, so what was purged gives its numbers to
        // older ones. That may report one of those again, and misses none.
        let behind = self.ring.iter().rev().position(is_solicited);
        self.added_solicited = behind.map_or(0, |behind| self.added - behind as u64);
    }

    /// Whether there are unretrieved entries of a queue pair.
    #[must_use]
    pub fn holds(&self, queue_pair: QueuePairId) -> bool {
        self.ring.iter().any(|entry| entry.queue_pair == queue_pair)
    }

    /// Retrieve one entry.
    pub fn pop(&mut self) -> Option<Completion> {
        let entry = self.ring.pop_front()?;
        self.left(&entry);
        Some(entry)
    }
}
