//! Notification sinks, and the notifications that a pass or a call has collected for them.
//!
//! Sinks are called with no lock of ours held, so that they may call anything, on the thread that made
//! the event happen.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crate::{Finished, Later, Status};

/// Receives one notification. Dropped without one if its event goes away with its object.
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

    pub(crate) fn fire(self, status: Status) {
        match self {
            Sink::Call(f) => f(status),
            Sink::Wake(waker) => waker.wake(),
        }
    }
}

/// Sinks that wait for their event, by the numbers that the core knows them by.
#[derive(Debug, Default)]
pub(crate) struct Sinks {
    inner: Mutex<(u64, HashMap<u64, Sink>)>,
}

/// A completion queue that ran over.
pub(crate) trait Overrun: Debug + Send + Sync {
    /// End the links that feed it.
    fn end_links(&self);
}

/// Notifications that fire once no lock is held. Usually there are none, and then this is one word.
#[derive(Debug, Default)]
#[must_use = "programs wait for these notifications"]
pub(crate) struct Notifications(Option<Box<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    sinks: Vec<(Sink, Status)>,
    /// Completion queues that ran over.
    overrun: Vec<Arc<dyn Overrun>>,
}

impl Notifications {
    fn collected(&mut self) -> &mut Collected {
        self.0.get_or_insert_default()
    }

    pub(crate) fn push(&mut self, sink: Sink, status: Status) {
        self.collected().sinks.push((sink, status));
    }

    /// Take over what requests that were settled have left.
    #[inline]
    pub(crate) fn later(&mut self, later: &mut Vec<Later>) {
        // Most have left nothing.
        if !later.is_empty() {
            self.collect_later(later);
        }
    }

    #[cold]
    fn collect_later(&mut self, later: &mut Vec<Later>) {
        for work in later.drain(..) {
            self.push(Sink::call(move |_| work()), Status::Success);
        }
    }

    pub(crate) fn overrun(&mut self, cq: Arc<dyn Overrun>) {
        self.collected().overrun.push(cq);
    }

    /// Call every sink. A sink that panics must not take the others, or our thread, with it.
    #[inline]
    pub(crate) fn fire(self) {
        if let Some(collected) = self.0 {
            collected.fire();
        }
    }
}

impl Collected {
    #[cold]
    fn fire(self) {
        for cq in self.overrun {
            cq.end_links();
        }
        for (sink, status) in self.sinks {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sink.fire(status)));
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
    pub(crate) fn finished(&self, fired: &mut Vec<Finished>, notifications: &mut Notifications) {
        for one in fired.drain(..) {
            if let Some(sink) = self.take(one.waiter) {
                notifications.push(sink, one.status);
            }
        }
    }
}
