//! Requests, or receives, that one call posts: they enter their queue one after the other, under one lock,
//! and take their places with one change of the count.

use crate::occupancy::Occupancy;
use crate::pair::{Pair, admit};
use crate::queue::RequestQueue;
use crate::{Data, Flags, Operation, Request, Sge, Status};

/// Places for what a call is going to post. Those that it does not use are free again at its end.
#[derive(Debug)]
struct Reserved<'a> {
    occupancy: &'a Occupancy,
    /// The number of places to ask for, at least one.
    expected: u32,
    /// Places that were taken and are not used yet.
    left: u32,
}

impl<'a> Reserved<'a> {
    #[inline]
    fn new(occupancy: &'a Occupancy, expected: usize) -> Reserved<'a> {
        let expected = u32::try_from(expected).unwrap_or(u32::MAX).max(1);
        Reserved { occupancy, expected, left: 0 }
    }

    /// Use one place.
    #[inline]
    fn use_one(&mut self) -> Result<(), Status> {
        if self.left == 0 {
            self.left = self.occupancy.take_some(self.expected);
            self.expected = 1; // the rest was counted wrongly, or there is no room for it
            if self.left == 0 {
                return Err(Status::NoMoreEntries);
            }
        }
        self.left -= 1;
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.left > 0 {
            self.occupancy.untake(self.left);
        }
    }
}

/// Requests of one call, in order. Those behind one that is refused may be posted all the same: the caller
/// decides whether it goes on, ends there, or [takes them back](Chain::cancel).
#[derive(Debug)]
pub struct Chain<'a> {
    pair: &'a Pair,
    /// Whether the queue pair takes requests at all, now.
    open: Result<(), Status>,
    queue: &'a mut RequestQueue,
    /// The end of the queue before the first of them.
    begin: u64,
    places: Reserved<'a>,
}

impl<'a> Chain<'a> {
    #[inline]
    pub(crate) fn new(
        pair: &'a Pair,
        open: Result<(), Status>,
        queue: &'a mut RequestQueue,
        expected: usize,
    ) -> Chain<'a> {
        let begin = queue.end();
        let places = Reserved::new(&pair.requests, expected);
        Chain { pair, open, queue, begin, places }
    }

    /// Post the next request. An error changes nothing.
    ///
    /// # Errors
    /// As [`QueuePair::post`](crate::QueuePair::post).
    #[inline]
    pub fn post(&mut self, request: &Request, data: Data<'_>) -> Result<(), Status> {
        self.open?;
        let length = self.pair.judge(request, data)?;
        self.places.use_one()?;
        self.queue.push(request.context, request.operation, request.flags, data, length);
        Ok(())
    }

    /// Post the next request, for the peer's shared receive queue of this number (Verbs V155).
    ///
    /// # Errors
    /// As [`Chain::post`].
    pub fn post_to(
        &mut self,
        target: u32,
        request: &Request,
        data: Data<'_>,
    ) -> Result<(), Status> {
        self.post(request, data)?;
        if let Some(slot) = self.queue.back_mut() {
            slot.target = target;
        }
        Ok(())
    }

    /// Take back what was posted so far.
    pub fn cancel(&mut self) {
        let count = self.queue.end().saturating_sub(self.begin);
        self.queue.truncate(self.begin);
        self.places.left += count as u32;
    }
}

/// Receives of one call, in order.
#[derive(Debug)]
pub struct ReceiveChain<'a> {
    open: Result<(), Status>,
    queue: &'a mut RequestQueue,
    max_sge: usize,
    largest_transfer: u64,
    places: Reserved<'a>,
}

impl<'a> ReceiveChain<'a> {
    #[inline]
    pub(crate) fn new(
        open: Result<(), Status>,
        queue: &'a mut RequestQueue,
        (max_sge, largest_transfer): (usize, u64),
        occupancy: &'a Occupancy,
        expected: usize,
    ) -> ReceiveChain<'a> {
        let places = Reserved::new(occupancy, expected);
        ReceiveChain { open, queue, max_sge, largest_transfer, places }
    }

    /// Post the next receive. An error changes nothing.
    ///
    /// # Errors
    /// As [`QueuePair::post_receive`](crate::QueuePair::post_receive).
    #[inline]
    pub fn post(&mut self, context: u64, list: &[Sge]) -> Result<(), Status> {
        self.open?;
        let length = admit(list, self.max_sge, self.largest_transfer)?;
        self.places.use_one()?;
        self.queue.push(context, Operation::Receive, Flags::NONE, Data::Sges(list), length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueuePair, QueuePairConfig, QueuePairKind, SharedReceiveQueue, dialect};
    use transom_memory::{DomainId, QueuePairId};

    const SEND: Operation = Operation::Send;

    fn request(context: u64) -> Request {
        Request { context, operation: SEND, flags: Flags::NONE }
    }

    /// A queue pair with room for so many requests and receives.
    fn queue_pair(depth: u32) -> QueuePair {
        QueuePair::new(QueuePairConfig {
            number: QueuePairId(7),
            domain: DomainId(1),
            context: 0,
            kind: QueuePairKind::Rc,
            dialect: &dialect::VERBS,
            initiator_depth: depth,
            receive_depth: depth,
            initiator_sge: 3,
            receive_sge: 3,
            inline_size: 8,
            largest_transfer: 64,
            shared: false,
            receive_domain: DomainId(1),
        })
    }

    /// Contexts and lists of what is posted.
    fn posted(pair: &QueuePair) -> Vec<(u64, Vec<Sge>)> {
        let all = pair.posted.first()..pair.posted.end();
        all.filter_map(|at| pair.posted.get(at))
            .map(|slot| (slot.context, pair.posted.list(slot).collect()))
            .collect()
    }

    /// However many were announced: as many as there is room for, and not one more.
    #[test]
    fn a_chain_takes_as_many_places_as_it_uses() {
        for expected in [0, 1, 2, 3, 4, 5, 100, usize::MAX] {
            let mut pair = queue_pair(4);
            pair.post(&request(0), Data::Sges(&[])).unwrap();
            let mut chain = pair.chain(expected);
            for context in 1..4 {
                assert_eq!(chain.post(&request(context), Data::Sges(&[])), Ok(()));
            }
            let full = chain.post(&request(4), Data::Sges(&[]));
            assert_eq!(full, Err(Status::NoMoreEntries), "{expected} were announced");
            drop(chain);
            assert_eq!(pair.occupied(), (4, 0));
            let mut short = queue_pair(4);
            short.chain(expected).post(&request(0), Data::Sges(&[])).unwrap();
            drop(short.chain(expected));
            assert_eq!(short.occupied(), (1, 0), "{expected} were announced, and one came");
            let mut receives = short.receive_chain(expected);
            for context in 0..4 {
                receives.post(context, &[]).unwrap();
            }
            assert_eq!(receives.post(4, &[]), Err(Status::NoMoreEntries));
            drop(receives);
            assert_eq!(short.occupied(), (1, 4));
            let mut shared = SharedReceiveQueue::new(4, 1, 64);
            let mut wake = Vec::new();
            let refused = shared.post_chain(expected, &mut wake, |chain| {
                (0..9).find(|context| chain.post(*context, &[]).is_err())
            });
            assert_eq!((refused, shared.outstanding(), shared.occupied()), (Some(4), 4, 4));
        }
    }

    /// A request that is refused costs no place, and leaves none of its list behind.
    #[test]
    fn a_refused_request_changes_nothing_for_those_around_it() {
        let mut pair = queue_pair(4);
        let entry = |length| Sge { token: length, address: 0, length };
        let two = [entry(1), entry(2)];
        let mut chain = pair.chain(5);
        assert_eq!(chain.post(&request(1), Data::Sges(&two)), Ok(()));
        let bad: [(Operation, &[Sge], Status); 3] = [
            (SEND, &[entry(1); 4], Status::DataOverrun),
            (SEND, &[entry(65)], Status::BufferOverflow),
            (Operation::Receive, &[], Status::NotSupported),
        ];
        for (operation, list, status) in bad {
            let refused = Request { operation, ..request(9) };
            assert_eq!(chain.post(&refused, Data::Sges(list)), Err(status));
        }
        assert_eq!(chain.post(&request(2), Data::Sges(&two[1..])), Ok(()));
        drop(chain);
        assert_eq!(posted(&pair), [(1, two.to_vec()), (2, two[1..].to_vec())]);
        assert_eq!(pair.occupied(), (2, 0));
    }

    /// A canceled chain leaves earlier requests with their lists and bytes, and frees all its places.
    #[test]
    fn a_chain_that_is_taken_back_leaves_the_queue_as_it_was() {
        let mut pair = queue_pair(8);
        let list = [Sge::default(), Sge { token: 1, address: 2, length: 3 }];
        pair.post(&request(1), Data::Sges(&list)).unwrap();
        pair.post(&request(2), Data::Inline(b"before")).unwrap();
        let mut chain = pair.chain(6);
        chain.post(&request(3), Data::Sges(&[list[1]; 3])).unwrap();
        chain.post(&request(4), Data::Inline(b"gone")).unwrap();
        chain.post(&request(5), Data::Sges(&list[1..])).unwrap();
        chain.cancel();
        chain.post(&request(6), Data::Inline(b"behind")).unwrap();
        drop(chain);
        assert_eq!(pair.occupied(), (3, 0));
        let contexts: Vec<u64> = posted(&pair).iter().map(|(context, _)| *context).collect();
        assert_eq!(contexts, [1, 2, 6]);
        assert_eq!(posted(&pair)[0].1, list);
        for (sequence, expected) in [(1, b"before"), (2, b"behind")] {
            let slot = *pair.posted.get(pair.posted.first() + sequence).unwrap();
            let (left, right) = pair.posted.inline(&slot, 0, 6).unwrap();
            assert_eq!([left, right].concat(), expected);
        }
    }

    /// A queue pair that takes no requests refuses each of them, and has no place less.
    #[test]
    fn a_chain_of_a_queue_pair_without_posts_is_refused() {
        let mut pair =
            QueuePair::new(QueuePairConfig { kind: QueuePairKind::Ud, ..*queue_pair(4).config() });
        let refused = pair.chain(2).post(&request(1), Data::Sges(&[]));
        assert_eq!((refused, pair.occupied()), (Err(Status::InvalidRequest), (0, 0)));
        let mut shared = QueuePair::new(QueuePairConfig { shared: true, ..*pair.config() });
        let refused = shared.receive_chain(2).post(1, &[]);
        assert_eq!((refused, shared.occupied()), (Err(Status::InvalidRequest), (0, 0)));
    }
}
