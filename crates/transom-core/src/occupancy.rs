//! The places of a queue of requests or receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::pair::Pair;

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

    /// Whether a place is left.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.room(self.taken.load(Ordering::Relaxed)) > 0
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

/// The places of one queue of requests or receives, as the completion queue holds them that frees them.
#[derive(Clone, Debug)]
pub struct Places(Queue);

#[derive(Clone, Debug)]
enum Queue {
    Requests(Arc<Pair>),
    Receives(Arc<Pair>),
    /// Receives of a shared queue: retrieved in any order, and by several threads.
    Shared(Arc<Occupancy>),
}

impl Places {
    pub(crate) fn of_requests(pair: &Arc<Pair>) -> Places {
        Places(Queue::Requests(Arc::clone(pair)))
    }

    pub(crate) fn of_receives(pair: &Arc<Pair>) -> Places {
        Places(Queue::Receives(Arc::clone(pair)))
    }

    pub(crate) fn of_shared(occupancy: &Arc<Occupancy>) -> Places {
        Places(Queue::Shared(Arc::clone(occupancy)))
    }

    /// A completion with this place is retrieved, or lost.
    #[inline]
    pub(crate) fn retrieve(&self, place: u32) {
        match &self.0 {
            Queue::Requests(pair) => pair.requests.retrieve(place),
            Queue::Receives(pair) => pair.receives.retrieve(place),
            Queue::Shared(occupancy) => occupancy.give_back(),
        }
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
