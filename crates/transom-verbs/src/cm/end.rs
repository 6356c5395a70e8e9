//! The end of a connection and of an id.

use std::sync::Arc;
use std::time::{Duration, Instant};

use transom_engine::raw;

use super::{Event, Id, Inner, State, alias, plain};
use crate::abi::cm_event;
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::QueuePair;
use crate::timers;

/// DISCONNECTED waits until the program has retrieved what had completed before, at most for so long
/// (Verbs V130).
const RETRIEVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether that is so.
const LOOK: Duration = Duration::from_millis(1);
/// When TIMEWAIT_EXIT follows the program's disconnect (Verbs V130).
const TIMEWAIT: Duration = Duration::from_secs(1);

impl Id {
    /// Raise an event when the peer leaves.
    pub(super) fn watch(self: &Arc<Id>) {
        let Some(connector) = self.lock().connector.clone() else { return };
        let later = Arc::downgrade(self);
        let sink = raw::Sink::call(move |_| {
            if let Some(id) = later.upgrade() {
                plain::explain_refusal(&id);
                id.peer_left(Instant::now());
            }
        });
        if connector.notify_disconnect(sink).is_err() {
            self.over();
        }
    }

    /// The peer left at `since`. A program that polls its completion queue, finds it empty, and then
    /// fetches DISCONNECTED may destroy the queue pair, and its last completions with it: libfabric
    /// reports these requests as flushed. An adapter in hardware raises the event milliseconds later.
    fn peer_left(self: &Arc<Id>, since: Instant) {
        let waits = self.joined().is_some_and(|queue_pair| queue_pair.engine.has_unretrieved());
        if !waits || since.elapsed() >= RETRIEVAL {
            return self.over();
        }
        let later = Arc::downgrade(self);
        timers::after(LOOK, move || {
            if let Some(id) = later.upgrade() {
                id.peer_left(since);
            }
        });
    }

    /// DISCONNECTED, once.
    fn over(self: &Arc<Id>) {
        {
            let mut inner = self.lock();
            if inner.over {
                return;
            }
            inner.over = true;
            inner.state = State::Disconnected;
        }
        self.raise(cm_event::DISCONNECTED, 0, Vec::new());
    }

    /// TIMEWAIT_EXIT, once, later: the program has asked for the end or has answered the peer that did. Until then the
    /// kernel's connection does not enter that state, and many programs know no such event. Adapters of iWARP have none.
    fn wait_for_exit(self: &Arc<Id>) {
        {
            let mut inner = self.lock();
            if !inner.over || inner.exits || !kind().infiniband {
                return;
            }
            inner.exits = true;
        }
        let later = Arc::downgrade(self);
        timers::after(TIMEWAIT, move || {
            if let Some(id) = later.upgrade().filter(|id| !id.lock().is_destroyed()) {
                id.raise(cm_event::TIMEWAIT_EXIT, 0, Vec::new());
            }
        });
    }

    /// End the connection in order; the queue pair is flushed.
    pub(crate) fn disconnect(self: &Arc<Id>, queue_pair: Option<&Arc<QueuePair>>) -> Result {
        let connector = {
            let inner = self.lock();
            match inner.state {
                // A service has no connection that could end.
                _ if inner.datagrams.is_some() => return Err(Errno::EINVAL),
                State::Disconnected => None,
                // Nothing is told to the peer: the connection fails by the queue pair's state (Verbs V130).
                State::Connecting | State::Requested => {
                    drop(inner);
                    if let Some(queue_pair) = queue_pair {
                        queue_pair.fail();
                    }
                    return Ok(());
                }
                State::Established | State::Accepting | State::Responded => inner.connector.clone(),
                _ => return Err(Errno::EINVAL),
            }
        };
        self.let_go();
        if let Some(connector) = &connector {
            // Before the flush, so that the end is in order.
            let _ = connector.disconnect(raw::Sink::call(|_| {}));
        }
        if let Some(queue_pair) = queue_pair {
            queue_pair.fail();
        }
        if connector.is_some() {
            self.over();
        }
        self.wait_for_exit();
        Ok(())
    }

    /// A queue pair that the program has made itself is the program's to move: the connection ends
    /// without it (Verbs V130).
    fn let_go(&self) {
        let joined = {
            let inner = self.lock();
            if inner.own { None } else { inner.joined.upgrade() }
        };
        if let Some(joined) = joined {
            let _ = joined.engine.part();
        }
    }

    /// The program has fetched DISCONNECTED.
    pub(crate) fn end_is_fetched(&self) {
        self.lock().end_fetched = true;
    }

    /// DISCONNECTED has been raised, or is about to be, and the program has not fetched it.
    pub(crate) fn has_unfetched_end(&self) -> bool {
        let inner = self.lock();
        inner.over && !inner.end_fetched
    }

    /// The program destroys the id: unfetched events go, fetched ones are waited for.
    pub(crate) fn destroy(self: &Arc<Id>) {
        let (channel, alias, gone) = {
            let mut inner = self.lock();
            inner.over = true;
            inner.destroyed = true;
            inner.state = State::Disconnected;
            let gone = (inner.port.take(), inner.connector.take(), inner.datagrams.take());
            (inner.channel.clone(), inner.alias, gone)
        };
        if let (Some(port), ..) = &gone {
            // A thread that hands a Request over has the listener, too; the port is free all the same.
            let _ = port.listener.close();
        }
        self.let_go();
        drop(gone); // disconnects, or rejects, or refuses
        alias::release(alias);
        let about = |event: &Event| {
            Arc::ptr_eq(&event.id, self)
                || event.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, self))
        };
        let dropped = channel.take_back(about);
        drop(dropped); // requests that no program has seen are rejected with their ids
        self.events.wait();
    }
}

impl Inner {
    fn is_destroyed(&self) -> bool {
        self.connector.is_none()
    }
}
