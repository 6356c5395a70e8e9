//! Requests of peers that no program has: those that wait at a listener, and those that were refused and whose peers
//! have not left yet. Each has a descriptor of this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those of one listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    waiting: usize,
    /// The keys of their links: a link that came later has a larger one.
    refused: BTreeSet<u64>,
}

/// A request. Dropped with its link.
#[derive(Debug)]
pub(crate) struct Request {
    link: u64,
    state: RequestState,
    all: Requests,
}

/// How far a request has come with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// No program has fetched it yet.
    Waiting,
    /// The program has fetched it: it is not counted.
    Taken,
    /// The program, or its backlog, has refused it, and the peer has not left yet.
    Refused,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived on this link.
    pub(crate) fn arrived(&self, link: u64) -> Request {
        self.lock().waiting += 1;
        Request { link, state: RequestState::Waiting, all: self.clone() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let counts = self.lock();
        counts.waiting + counts.refused.len()
    }

    /// Forget the oldest one that was refused: its link, from which nobody expects anything.
    pub(crate) fn forget_refused(&self) -> Option<u64> {
        self.lock().refused.pop_first()
    }
}

impl Request {
    /// The request has come so far.
    pub(crate) fn enter(&mut self, state: RequestState) {
        let mut counts = self.all.lock();
        match self.state {
            RequestState::Waiting => counts.waiting = counts.waiting.saturating_sub(1),
            RequestState::Taken => {}
            RequestState::Refused => {
                counts.refused.remove(&self.link);
            }
        }
        match state {
            RequestState::Waiting => counts.waiting += 1,
            RequestState::Taken => {}
            RequestState::Refused => {
                counts.refused.insert(self.link);
            }
        }
        self.state = state;
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
        let [mut first, mut second, third] = [1, 2, 3].map(|link| all.arrived(link));
        assert_eq!((all.count(), all.forget_refused()), (3, None));
        first.enter(RequestState::Taken);
        assert_eq!(all.count(), 2);
        second.enter(RequestState::Refused);
        first.enter(RequestState::Refused);
        assert_eq!(all.count(), 3);
        assert_eq!(all.forget_refused(), Some(1));
        drop(third);
        assert_eq!(all.count(), 1);
        drop((first, second));
        assert_eq!((all.count(), all.forget_refused()), (0, None));
    }
}
