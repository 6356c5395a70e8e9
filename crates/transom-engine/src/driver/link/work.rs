//! The work that is asked of a pass over a link, and the place where threads leave it for the one that
//! holds the lock.

use std::sync::atomic::{AtomicU8, Ordering};

/// The work of one pass. Several add up to one ([`Work::and`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Receive before sending.
    pub(crate) receive: bool,
    /// Requests wait in the front half of the queue pair, or may. A thread that posts asks for a pass of its own,
    /// so that one that polls need not look.
    pub(crate) posts: bool,
    pub(crate) then: Then,
    /// Another pass that ends with [`Then::Rest`] follows soon.
    pub(crate) served: bool,
    /// The background thread makes this pass because a lease has lapsed.
    pub(crate) lapsed: bool,
}

/// The state of the link's thread behind the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Then {
    /// The thread goes on.
    GoOn,
    /// The thread blocks, on the link's descriptor among others: owed acknowledgements leave.
    Block,
    /// No thread looks: the link is armed in epoll, unless another thread looks after it.
    Rest,
}

impl Work {
    /// A thread polls.
    pub(crate) const POLL: Work =
        Work { receive: true, posts: false, then: Then::GoOn, served: false, lapsed: false };
    /// Requests were posted, or were left while a control call held the lock.
    pub(crate) const POSTS: Work = Work { receive: false, posts: true, ..Work::POLL };
    /// A thread is about to block.
    pub(crate) const BLOCK: Work = Work { receive: true, then: Then::Block, ..Work::POSTS };
    /// Everything that there is, before the link rests.
    pub(crate) const ATTEND: Work = Work { then: Then::Rest, ..Work::BLOCK };
    /// Answers that were served are sent, and the link rests.
    pub(crate) const REST: Work = Work { then: Then::Rest, ..Work::POSTS };
    /// A turn of several links.
    pub(crate) const SERVE: Work = Work { receive: true, served: true, ..Work::POSTS };
    /// The background thread takes over from one whose lease has lapsed.
    pub(crate) const TAKE_OVER: Work = Work { lapsed: true, ..Work::ATTEND };

    /// This work and `other`.
    #[inline]
    pub(crate) fn and(self, other: Work) -> Work {
        Work {
            receive: self.receive | other.receive,
            posts: self.posts | other.posts,
            then: self.then.max(other.then),
            served: self.served | other.served,
            lapsed: self.lapsed | other.lapsed,
        }
    }

    /// Posts, and nothing else.
    #[inline]
    pub(crate) fn is_posts(self) -> bool {
        !self.receive && self.then == Then::GoOn && !self.served && !self.lapsed
    }
}

/// Work that threads have left because another one holds the lock.
#[derive(Debug, Default)]
pub(crate) struct LeftWork(AtomicU8);

const RECEIVE: u8 = 1;
const POSTS: u8 = 1 << 1;
const BLOCK: u8 = 1 << 2;
const REST: u8 = 1 << 3;
const SERVED: u8 = 1 << 4;
const LAPSED: u8 = 1 << 5;

impl LeftWork {
    /// Leave `work`.
    pub(crate) fn leave(&self, work: Work) {
        let word = [
            (work.receive, RECEIVE),
            (work.posts, POSTS),
            (work.then == Then::Block, BLOCK),
            (work.then == Then::Rest, REST),
            (work.served, SERVED),
            (work.lapsed, LAPSED),
        ];
        let word = word.iter().filter(|(is, _)| *is).fold(0, |word, (_, bit)| word | bit);
        self.0.fetch_or(word, Ordering::AcqRel);
    }

    /// Take all that was left, if anything was.
    #[inline]
    pub(crate) fn take(&self) -> Option<Work> {
        if self.0.load(Ordering::Relaxed) == 0 { None } else { self.take_some() }
    }

    #[cold]
    fn take_some(&self) -> Option<Work> {
        let word = self.0.swap(0, Ordering::AcqRel);
        let is = |bit: u8| word & bit != 0;
        let then = match (is(REST), is(BLOCK)) {
            (true, _) => Then::Rest,
            (false, true) => Then::Block,
            (false, false) => Then::GoOn,
        };
        let (receive, posts, served, lapsed) = (is(RECEIVE), is(POSTS), is(SERVED), is(LAPSED));
        (word != 0).then_some(Work { receive, posts, then, served, lapsed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Work; 7] = [
        Work::POLL,
        Work::POSTS,
        Work::BLOCK,
        Work::ATTEND,
        Work::REST,
        Work::SERVE,
        Work::TAKE_OVER,
    ];

    /// Whatever two threads leave, the one that takes it does the work of both, and the next one none.
    #[test]
    fn work_that_was_left_is_done_once_and_all_of_it() {
        for one in ALL {
            for other in ALL {
                let left = LeftWork::default();
                left.leave(one);
                left.leave(other);
                assert_eq!(left.take(), Some(one.and(other)), "{one:?} and {other:?}");
                assert_eq!(left.take(), None);
            }
        }
    }

    #[test]
    fn posts_alone_ask_for_nothing_else() {
        let alone: Vec<Work> = ALL.into_iter().filter(|work| work.is_posts()).collect();
        assert_eq!(alone, [Work::POSTS]);
    }
}
