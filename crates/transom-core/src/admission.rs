//! The one rule by which requests and receives enter a queue pair, whichever of its halves takes them:
//! the state, the request itself, a place in the queue. A [`Chain`](crate::Chain) applies it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::chain::ReceiveChain;
use crate::queue::RequestQueue;
use crate::tables::{Posting, QueuePairState};
use crate::{Data, Effects, Flags, Operation, QueuePairConfig, Request, Settle, Sge, Status};

/// Pieces of memory in one fast registration: 256 MiB of pages that lie apart.
const MOST_PIECES: usize = 1 << 16;

/// The parameters of a queue pair and the places of its queues. Both halves have it.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) config: QueuePairConfig,
    /// Takes requests that succeed, in place of a completion queue.
    settle: Option<Arc<dyn Settle>>,
    pub(crate) requests: Occupancy,
    pub(crate) receives: Occupancy,
}

/// Places of a queue. Any thread takes one; one thread at a time completes, and one at a time retrieves.
/// A place is free when its completion has been retrieved, so that a completion queue as deep as the queues
/// that complete in it never runs over (Verbs V82). All counts are of ever, modulo 2^32.
#[derive(Debug)]
pub(crate) struct Occupancy {
    depth: AtomicU32,
    taken: AtomicU32,
    /// Free again without a completion.
    freed: AtomicU32,
    /// Completed otherwise, and how many of these are retrieved.
    completed: AtomicU32,
    retrieved: AtomicU32,
}

impl Occupancy {
    pub(crate) fn new(depth: u32) -> Occupancy {
        Occupancy {
            depth: AtomicU32::new(depth),
            taken: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            retrieved: AtomicU32::new(0),
        }
    }

    /// The places in use, if so many were taken.
    #[inline]
    fn used(&self, taken: u32) -> u32 {
        // Acquire: a thread that sees the counts may use the place.
        let (freed, retrieved) =
            (self.freed.load(Ordering::Acquire), self.retrieved.load(Ordering::Acquire));
        taken.wrapping_sub(freed).wrapping_sub(retrieved)
    }

    /// Places in use.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.used(self.taken.load(Ordering::Relaxed))
    }

    /// Requests or receives that have not completed.
    pub(crate) fn uncompleted(&self) -> u32 {
        let (freed, completed) =
            (self.freed.load(Ordering::Relaxed), self.completed.load(Ordering::Relaxed));
        self.taken.load(Ordering::Relaxed).wrapping_sub(freed).wrapping_sub(completed)
    }

    /// The places that are left, if so many were taken.
    #[inline]
    fn room(&self, taken: u32) -> u32 {
        self.depth.load(Ordering::Relaxed).saturating_sub(self.used(taken))
    }

    /// Change the depth. `false`: more places than that are in use, and nothing has changed.
    pub(crate) fn resize(&self, depth: u32) -> bool {
        let fits = self.len() <= depth;
        if fits {
            self.depth.store(depth, Ordering::Relaxed);
        }
        fits
    }

    /// Take up to `count` places: how many were taken.
    #[inline]
    pub(crate) fn take_some(&self, count: u32) -> u32 {
        let mut some = 0;
        let take = |taken: u32| {
            some = count.min(self.room(taken));
            (some > 0).then(|| taken.wrapping_add(some))
        };
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() { some } else { 0 }
    }

    /// Give back `count` places that were taken and are not used.
    #[inline]
    pub(crate) fn untake(&self, count: u32) {
        self.taken.fetch_sub(count, Ordering::Release);
    }

    /// A place is free, and no completion follows: for the thread that completes.
    #[inline]
    pub(crate) fn free(&self) {
        let freed = self.freed.load(Ordering::Relaxed).wrapping_add(1);
        self.freed.store(freed, Ordering::Release);
    }

    /// A request or a receive completes: for the thread that completes. The number that
    /// [`retrieve`](Occupancy::retrieve) takes.
    #[inline]
    pub(crate) fn complete(&self) -> u32 {
        let completed = self.completed.load(Ordering::Relaxed).wrapping_add(1);
        self.completed.store(completed, Ordering::Relaxed);
        completed
    }

    /// The completion of this number is retrieved, and with it those before: for the thread that retrieves.
    #[inline]
    pub(crate) fn retrieve(&self, number: u32) {
        self.retrieved.store(number, Ordering::Release);
    }

    /// A place is free, if one is in use: for any thread.
    pub(crate) fn give_back(&self) {
        let give = |taken: u32| (self.used(taken) > 0).then(|| taken.wrapping_sub(1));
        let _ = self.taken.fetch_update(Ordering::Release, Ordering::Relaxed, give);
    }

    /// All places are free. No thread completes or posts meanwhile, and nothing is left to be retrieved.
    pub(crate) fn clear(&self) {
        let completed = self.completed.load(Ordering::Relaxed);
        self.retrieved.store(completed, Ordering::Relaxed);
        let all = self.freed.load(Ordering::Relaxed).wrapping_add(completed);
        self.taken.store(all, Ordering::Relaxed);
    }
}

/// How a request leaves its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaving {
    /// Without a completion.
    Silent,
    /// To be [settled](Admission::settle).
    Settled,
    /// With a completion that has this place.
    Completes(u32),
}

/// The places of one queue of requests or receives, as the completion queue holds them that frees them.
#[derive(Clone, Debug)]
pub struct Places(Queue);

#[derive(Clone, Debug)]
enum Queue {
    Requests(Arc<Admission>),
    Receives(Arc<Admission>),
    /// Receives of a shared queue: retrieved in any order, and by several threads.
    Shared(Arc<Occupancy>),
}

impl Places {
    pub(crate) fn of_requests(admission: &Arc<Admission>) -> Places {
        Places(Queue::Requests(Arc::clone(admission)))
    }

    pub(crate) fn of_receives(admission: &Arc<Admission>) -> Places {
        Places(Queue::Receives(Arc::clone(admission)))
    }

    pub(crate) fn of_shared(occupancy: &Arc<Occupancy>) -> Places {
        Places(Queue::Shared(Arc::clone(occupancy)))
    }

    /// A completion with this place is retrieved, or lost.
    #[inline]
    pub(crate) fn retrieve(&self, place: u32) {
        match &self.0 {
            Queue::Requests(admission) => admission.requests.retrieve(place),
            Queue::Receives(admission) => admission.receives.retrieve(place),
            Queue::Shared(occupancy) => occupancy.give_back(),
        }
    }
}

/// Sum of a list, or why it is refused inline (ND2 2.9).
pub(crate) fn admit(list: &[Sge], max_sge: usize, largest: u64) -> Result<u64, Status> {
    if list.len() > max_sge {
        return Err(Status::DataOverrun);
    }
    let length = list.iter().map(|sge| u64::from(sge.length)).sum();
    if length > largest { Err(Status::BufferOverflow) } else { Ok(length) }
}

fn gate(row: &[Posting; 6], state: QueuePairState) -> Result<(), Status> {
    match row[state as usize] {
        Posting::Accept | Posting::Cancel => Ok(()),
        Posting::Refuse(status) => Err(status),
    }
}

impl Admission {
    pub(crate) fn new(config: QueuePairConfig, settle: Option<Arc<dyn Settle>>) -> Admission {
        let requests = Occupancy::new(config.initiator_depth);
        let receives = Occupancy::new(config.receive_depth);
        Admission { config, settle, requests, receives }
    }

    /// Settle a request that has succeeded.
    #[inline]
    pub(crate) fn settle(&self, context: u64, effects: &mut Effects) {
        if let Some(settle) = &self.settle {
            settle.settle(context, &mut effects.later);
            effects.settled = true;
        }
    }

    /// Whether no request behind one that ends with this status succeeds, executed or not (Verbs V67).
    pub(crate) fn fails_what_follows(&self, status: Status) -> bool {
        self.config.dialect.flushes_acknowledged && !status.is_success()
    }

    /// The oldest request leaves its queue with this status: whether a completion follows, and its
    /// [`place`](crate::Completion::place). Settled requests have none.
    #[inline]
    pub(crate) fn leave(&self, flags: Flags, status: Status) -> Leaving {
        let silent = flags.contains(Flags::SILENT_SUCCESS) && status.is_success();
        let settled = self.settle.is_some() && status.is_success();
        if settled || silent && !self.config.dialect.silent_keeps_its_place {
            self.requests.free();
            return if silent { Leaving::Silent } else { Leaving::Settled };
        }
        let place = self.requests.complete();
        if silent { Leaving::Silent } else { Leaving::Completes(place) }
    }

    /// Whether requests may be posted in this state.
    #[inline]
    pub(crate) fn takes_requests(&self, state: QueuePairState) -> Result<(), Status> {
        gate(&self.config.dialect.posting.initiator, state)
    }

    /// Receives for `queue`, of which `expected` are expected.
    #[inline]
    pub(crate) fn receive_chain<'a>(
        &'a self,
        state: QueuePairState,
        queue: &'a mut RequestQueue,
        expected: usize,
    ) -> ReceiveChain<'a> {
        let open = if self.config.shared {
            Err(Status::InvalidRequest)
        } else {
            gate(&self.config.dialect.posting.receive, state)
        };
        let most = (self.config.receive_sge as usize, self.config.largest_transfer);
        ReceiveChain::new(open, queue, most, &self.receives, expected)
    }

    /// Put one request behind those in `queue`: a [`Chain`](crate::Chain) of one, which reserves nothing and so
    /// costs less. An error changes nothing.
    #[inline]
    pub(crate) fn post(
        &self,
        state: QueuePairState,
        queue: &mut RequestQueue,
        request: &Request,
        data: Data<'_>,
    ) -> Result<(), Status> {
        self.takes_requests(state)?;
        let length = self.judge(request, data)?;
        if self.requests.take_some(1) == 0 {
            return Err(Status::NoMoreEntries);
        }
        queue.push(request.context, request.operation, request.flags, data, length);
        Ok(())
    }

    /// Whether a request that takes no place, because it is over at once, may be posted.
    #[inline]
    pub(crate) fn probe(
        &self,
        state: QueuePairState,
        request: &Request,
        data: Data<'_>,
    ) -> Result<(), Status> {
        self.takes_requests(state)?;
        self.judge(request, data)?;
        let taken = self.requests.taken.load(Ordering::Relaxed);
        if self.requests.room(taken) > 0 { Ok(()) } else { Err(Status::NoMoreEntries) }
    }

    /// Whether a request may be posted at all; its length.
    #[inline]
    pub(crate) fn judge(&self, request: &Request, data: Data<'_>) -> Result<u64, Status> {
        let length = match data {
            Data::Sges(list) => {
                admit(list, self.config.initiator_sge as usize, self.config.largest_transfer)?
            }
            Data::Inline(bytes) if bytes.len() <= self.config.inline_size as usize => {
                bytes.len() as u64
            }
            Data::Inline(_) => return Err(Status::BufferOverflow),
            Data::Memory(pieces) if pieces.len() > MOST_PIECES => return Err(Status::DataOverrun),
            Data::Memory(_) => 0,
        };
        match request.operation {
            Operation::Send
            | Operation::SendWithInvalidate { .. }
            | Operation::SendWithImmediate { .. }
            | Operation::Write { .. }
            | Operation::WriteWithImmediate { .. }
            | Operation::Read { .. }
            | Operation::Bind { .. }
            | Operation::BindStanding { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. } => {}
            Operation::Atomic { .. } if length == 8 => {}
            Operation::Atomic { .. } => return Err(Status::InvalidRequest),
            Operation::Unsupported { status } if !status.is_success() => {}
            _ => return Err(Status::NotSupported),
        }
        let registers = matches!(request.operation, Operation::FastRegister { .. });
        if registers != matches!(data, Data::Memory(_)) {
            return Err(Status::InvalidRequest);
        }
        if length > 0
            && (!request.operation.has_data()
                || request.operation.fetches() && matches!(data, Data::Inline(_)))
        {
            return Err(Status::InvalidRequest);
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_places_as_the_depth_are_taken_and_no_more() {
        let places = Occupancy::new(3);
        let take = |count| places.take_some(count);
        let take_one = || take(1) == 1;
        assert_eq!((take(2), take(2), take(1)), (2, 1, 0), "as many as there are");
        places.untake(2);
        assert_eq!((take(1), take(u32::MAX), take(1)), (1, 1, 0));
        assert_eq!(places.len(), 3);
        places.free();
        assert_eq!(places.len(), 2);
        assert!(take_one() && !take_one());
        places.give_back();
        assert!(take_one() && !take_one());
        let (first, second) = (places.complete(), places.complete());
        assert_eq!((places.len(), places.uncompleted()), (3, 1));
        assert!(!take_one(), "completed is not enough");
        places.retrieve(first);
        assert!(take_one() && !take_one());
        places.retrieve(second);
        assert_eq!((places.len(), places.uncompleted()), (2, 2));
        assert!(!places.resize(1) && places.resize(2) && !take_one());
        assert!(places.resize(3) && take_one() && !take_one());
        places.complete();
        places.clear();
        assert_eq!(places.len(), 0);
        places.give_back();
        assert_eq!(places.len(), 0, "nothing was taken");
        assert!(take(3) == 3 && !take_one());
    }

    /// The counts go round, and the difference stays what it is.
    #[test]
    fn places_are_counted_beyond_the_largest_number() {
        let places = Occupancy::new(2);
        let take_one = || places.take_some(1) == 1;
        places.taken.store(u32::MAX, Ordering::Relaxed);
        places.freed.store(u32::MAX - 7, Ordering::Relaxed);
        places.completed.store(7, Ordering::Relaxed);
        places.retrieved.store(7, Ordering::Relaxed);
        assert!(take_one() && take_one() && !take_one());
        places.free();
        assert_eq!(places.len(), 1);
    }
}
