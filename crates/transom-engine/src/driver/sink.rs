//! Who is told when something has happened. Always with no lock of ours held, so that it may call
//! anything, on whatever thread made it happen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::cq::Cq;
use crate::{EndReason, Finished, Status};

/// Told once. Dropped untold if what it waits for goes away with its object.
pub enum Sink {
    /// Call this. What an eventfd, an OVERLAPPED or a C callback becomes.
    Call(Box<dyn FnOnce(Status) + Send>),
    /// Wake a future.
    Wake(Waker),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Sink::Call(_) => "Sink::Call",
            Sink::Wake(_) => "Sink::Wake",
        })
    }
}

impl Sink {
    /// A sink that calls `f` with how it ended.
    pub fn call(f: impl FnOnce(Status) + Send + 'static) -> Sink {
        Sink::Call(Box::new(f))
    }

    pub(crate) fn tell(self, status: Status) {
        match self {
            Sink::Call(f) => f(status),
            Sink::Wake(waker) => waker.wake(),
        }
    }
}

/// Sinks that wait, by the number that the core knows them by.
#[derive(Debug, Default)]
pub(crate) struct Sinks {
    inner: Mutex<(u64, HashMap<u64, Sink>)>,
}

/// What is to be told, once no lock is held.
#[derive(Debug, Default)]
#[must_use = "somebody waits for it"]
pub(crate) struct Told {
    sinks: Vec<(Sink, Status)>,
    /// Completion queues that ran over: the links that feed them are to be ended.
    overrun: Vec<Arc<Cq>>,
}

impl Told {
    pub(crate) fn push(&mut self, sink: Sink, status: Status) {
        self.sinks.push((sink, status));
    }

    pub(crate) fn overrun(&mut self, cq: &Arc<Cq>) {
        self.overrun.push(cq.clone());
    }

    /// Tell them all. A sink that panics must not take the others, or our thread, with it.
    #[inline]
    pub(crate) fn tell(self) {
        if !self.sinks.is_empty() || !self.overrun.is_empty() {
            self.tell_all();
        }
    }

    fn tell_all(self) {
        for cq in self.overrun {
            for link in cq.links() {
                link.fail(EndReason::Overrun);
            }
        }
        for (sink, status) in self.sinks {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sink.tell(status)));
        }
    }
}

impl Sinks {
    /// Keep a sink; its number.
    pub(crate) fn keep(&self, sink: Sink) -> u64 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 += 1;
        let number = inner.0;
        inner.1.insert(number, sink);
        number
    }

    /// Take back a sink that is not needed any more.
    pub(crate) fn take(&self, number: u64) -> Option<Sink> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number)
    }

    /// Turn numbers back into sinks.
    pub(crate) fn finished(&self, fired: &mut Vec<Finished>, told: &mut Told) {
        for one in fired.drain(..) {
            if let Some(sink) = self.take(one.waiter) {
                told.push(sink, one.status);
            }
        }
    }
}
