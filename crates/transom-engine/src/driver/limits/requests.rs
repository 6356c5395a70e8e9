//! Requests of peers that no program has: those that wait at a listener, and those that were refused and whose peers
//! have not left yet. Each has a descriptor of this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::descriptors::{DescriptorShare, HeldDescriptor};

/// Those of one listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    share: DescriptorShare,
    /// The keys of the links of those that were refused: a link that came later has a larger one.
    refused: Arc<Mutex<BTreeSet<u64>>>,
}

/// A request. Dropped with its link.
#[derive(Debug)]
pub(crate) struct Request {
    link: u64,
    all: Requests,
    held: Option<HeldDescriptor>,
}

/// How far a request has come that does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// The program has fetched it: it is not counted.
    Taken,
    /// The program, or its backlog, has refused it, and the peer has not left yet.
    Refused,
}

impl Requests {
    fn refused(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived on this link.
    pub(crate) fn arrived(&self, link: u64) -> Request {
        let held = Some(self.share.take());
        Request { link, all: self.clone(), held }
    }

    /// Whether one more may come.
    pub(crate) fn has_room(&self) -> bool {
        self.share.has_room(usize::MAX)
    }

    /// Forget the oldest one that was refused: its link, from which nobody expects anything.
    pub(crate) fn forget_refused(&self) -> Option<u64> {
        self.refused().pop_first()
    }
}

impl Request {
    /// The request has come so far.
    pub(crate) fn enter(&mut self, state: RequestState) {
        match state {
            RequestState::Taken => {
                self.all.refused().remove(&self.link);
                self.held = None;
            }
            RequestState::Refused => {
                self.all.refused().insert(self.link);
                self.held.get_or_insert_with(|| self.all.share.take());
            }
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.enter(RequestState::Taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_while_no_program_has_it() {
        let all = Requests::default();
        let count = || all.share.count();
        let [mut first, mut second, third] = [1, 2, 3].map(|link| all.arrived(link));
        assert_eq!((count(), all.forget_refused()), (3, None));
        first.enter(RequestState::Taken);
        assert_eq!(count(), 2);
        second.enter(RequestState::Refused);
        first.enter(RequestState::Refused);
        assert_eq!(count(), 3);
        assert_eq!(all.forget_refused(), Some(1));
        assert_eq!(count(), 3, "until its link has gone");
        drop(first);
        assert_eq!(count(), 2);
        drop(third);
        second.enter(RequestState::Taken);
        assert_eq!((count(), all.forget_refused()), (0, None));
        drop(second);
        assert_eq!(count(), 0);
    }
}
