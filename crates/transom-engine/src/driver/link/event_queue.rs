//! Completions and events on their way from a connection to its completion queues, connector and
//! listener.
//!
//! Completions are queued under the link's lock, so that they keep their order. Events concern a
//! connector, whose lock comes before the link's; they are deferred in the link's event queue until the
//! lock is dropped, and everything behind them is deferred too, because a disconnect is reported before
//! the requests that it flushes (ND2 4.9).
//!
//! `tests/event_queue_loom.rs` runs every interleaving of this file.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError};

use super::Link;
use super::notifications::Notifications;
use super::queues::Queues;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use super::upgrade::UpgradeListener;
use crate::{ConnectionEvent, Effect, Effects, Execution};

/// The receiver of a link's events: a connector, or the listener at which it arrived.
pub(crate) trait Owner: Debug + Send + Sync {
    /// Read the link's deferred events. No lock is held.
    fn deliver(self: Arc<Self>, link: &Link);

    /// The last handle of the link's queue pair is gone.
    fn release(self: Arc<Self>);

    /// Where the peer can have offered shared memory, if it could.
    fn upgrades(&self) -> Option<Arc<UpgradeListener>>;
}

/// An effect that waits for the link's lock to be dropped.
#[derive(Debug)]
enum Deferred {
    Effect(Effect, Option<Arc<dyn Queues>>),
    /// The link is done with the queue pair. What was posted behind the end completes now, after all
    /// that waited.
    Detach(Arc<dyn Queues>, Box<Execution>),
    /// The link is gone.
    Gone,
}

#[derive(Debug, Default)]
struct Inner {
    deferred: VecDeque<Deferred>,
    delivering: bool,
}

/// Effects of a link in the order in which passes decided them.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    inner: Mutex<Inner>,
    /// Events are deferred: written under the lock of `inner`, read without it.
    waiting: AtomicBool,
    /// Held by the reader. The link may change its owner meanwhile, or lose it, so the lock of the
    /// owner does not keep a second reader away. Under it a thread waits for the lock of a queue
    /// only.
    reading: Mutex<()>,
}

/// Something for a connector or a listener.
#[derive(Debug)]
pub(crate) enum Delivery {
    Event(ConnectionEvent),
    Finished(crate::Finished),
    Gone,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the link's lock: queue completions, keep the rest.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        effects: &mut Effects,
        qp: Option<&Arc<dyn Queues>>,
        notifications: &mut Notifications,
    ) {
        if std::mem::take(&mut effects.settled) {
            notifications.later(&mut effects.later);
            if let Some(qp) = qp {
                qp.settled();
            }
        }
        if !effects.list.is_empty() {
            self.post_list(&mut effects.list, qp, notifications);
        }
    }

    fn post_list(
        &self,
        list: &mut Vec<Effect>,
        qp: Option<&Arc<dyn Queues>>,
        notifications: &mut Notifications,
    ) {
        // The usual case: nothing but completions, and nothing that they would overtake. Events
        // are deferred under the link's lock only, so none can come in between.
        if let Some(qp) = qp
            && !self.has_deferred()
            && list.iter().all(|effect| matches!(effect, Effect::Complete(..)))
        {
            return qp.complete_batch(list, notifications);
        }
        let mut inner = self.lock();
        for effect in list.drain(..) {
            match (effect, qp) {
                (Effect::Complete(side, completion), Some(qp))
                    if inner.deferred.is_empty() && !inner.delivering =>
                {
                    qp.complete(side, completion);
                }
                (effect, qp) => self.put(&mut inner, Deferred::Effect(effect, qp.cloned())),
            }
        }
        drop(inner);
        if let Some(qp) = qp {
            qp.finish_batch(notifications);
        }
    }

    /// Give the queue pair back, in order. Follows [`Queues::leave`].
    pub(crate) fn detach(
        &self,
        qp: Arc<dyn Queues>,
        execution: Execution,
        notifications: &mut Notifications,
    ) {
        if self.has_deferred() {
            self.put(&mut self.lock(), Deferred::Detach(qp, Box::new(execution)));
        } else {
            qp.reclaim(execution, notifications);
        }
    }

    /// The link is gone: the last event.
    pub(crate) fn close(&self) {
        self.put(&mut self.lock(), Deferred::Gone);
    }

    fn put(&self, inner: &mut Inner, deferred: Deferred) {
        inner.deferred.push_back(deferred);
        self.waiting.store(true, Ordering::Release);
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Read the deferred events in order, under the lock of their owner. `take` acts on one of them;
    /// `is_mine` returns `false` when the link has another owner.
    pub(crate) fn read(
        &self,
        notifications: &mut Notifications,
        mut take: impl FnMut(Delivery, &mut Notifications),
        mut is_mine: impl FnMut() -> bool,
    ) {
        let mut touched: Vec<Arc<dyn Queues>> = Vec::new();
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let deferred = {
                let mut inner = self.lock();
                inner.delivering = false;
                if !is_mine() {
                    break;
                }
                let Some(deferred) = inner.deferred.pop_front() else {
                    self.waiting.store(false, Ordering::Release);
                    break;
                };
                inner.delivering = true;
                deferred
            };
            match deferred {
                Deferred::Detach(qp, execution) => qp.reclaim(*execution, notifications),
                Deferred::Gone => take(Delivery::Gone, notifications),
                Deferred::Effect(Effect::Event(event), _) => {
                    take(Delivery::Event(event), notifications)
                }
                Deferred::Effect(Effect::Finished(f), _) => {
                    take(Delivery::Finished(f), notifications)
                }
                Deferred::Effect(Effect::Complete(side, completion), Some(qp)) => {
                    qp.complete(side, completion);
                    if !touched.iter().any(|t| Arc::ptr_eq(t, &qp)) {
                        touched.push(qp);
                    }
                }
                Deferred::Effect(Effect::Complete(..), None) => {}
            }
        }
        drop(reading);
        for qp in touched {
            qp.finish_batch(notifications);
        }
    }
}

impl Link {
    /// Have the link's owner read the deferred events. No lock may be held.
    pub(crate) fn deliver(&self) {
        while self.events.has_deferred() {
            if let Some(owner) = self.owner().upgrade() {
                owner.deliver(self);
            } else {
                // The events are lost with their owner, but completions are completions.
                let mut notifications = Notifications::default();
                self.events.read(&mut notifications, |_, _| {}, || true);
                notifications.fire();
            }
        }
    }
}
