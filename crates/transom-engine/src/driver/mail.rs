//! What a connection has decided, on its way to completion queues, connectors and listeners.
//!
//! Completions are queued under the link's lock, so that they keep their order. Events concern a
//! connector, whose lock comes before the link's; they wait in the link's mail until the lock is
//! dropped, and everything behind them waits too, because a disconnect is told before the requests
//! that it flushes (ND2 4.9).

//!
//! `tests/mail_loom.rs` runs every interleaving of this file.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};

use super::conn::Conn;
use super::link::Link;
use super::notifications::Notifications;
use super::port::Port;
use super::qp::Qp;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::{ConnectionEvent, Effect, Effects, Execution};

/// Who hears of a link's events.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// The listener at which it arrived.
    Port(Weak<Port>),
    /// A connector.
    Conn(Weak<Conn>),
}

#[derive(Debug)]
enum Letter {
    Effect(Effect, Option<Arc<Qp>>),
    /// The link is done with the queue pair. What was posted behind the end completes now, after all
    /// that waited.
    Detach(Arc<Qp>, Box<Execution>),
    /// The link is gone.
    Gone,
}

#[derive(Debug, Default)]
struct Inner {
    letters: VecDeque<Letter>,
    delivering: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Mail {
    inner: Mutex<Inner>,
    waiting: AtomicBool,
    /// Held by who reads: the link may change its owner meanwhile, or lose it, and then the lock of
    /// the owner does not keep a second reader away. Nobody waits for another lock than a queue's
    /// under it.
    reader: Mutex<()>,
}

/// Something for a connector or a listener.
#[derive(Debug)]
pub(crate) enum Delivery {
    Event(ConnectionEvent),
    Finished(crate::Finished),
    Gone,
}

impl Mail {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the link's lock: queue completions, keep the rest.
    pub(crate) fn post(
        &self,
        effects: &mut Effects,
        qp: Option<&Arc<Qp>>,
        notifications: &mut Notifications,
    ) {
        if effects.list.is_empty() {
            return;
        }
        // The usual case: nothing but completions, and nothing that they would overtake. Letters are
        // posted under the link's lock only, so none can come in between.
        if let Some(qp) = qp
            && !self.is_waiting()
            && effects.list.iter().all(|effect| matches!(effect, Effect::Complete(..)))
        {
            return qp.complete_batch(&mut effects.list, notifications);
        }
        let mut inner = self.lock();
        for effect in effects.list.drain(..) {
            match (effect, qp) {
                (Effect::Complete(side, completion), Some(qp))
                    if inner.letters.is_empty() && !inner.delivering =>
                {
                    qp.complete(side, completion);
                }
                (effect, qp) => self.put(&mut inner, Letter::Effect(effect, qp.cloned())),
            }
        }
        drop(inner);
        if let Some(qp) = qp {
            qp.finish_batch(notifications);
        }
    }

    /// Give the queue pair back, in order. Follows [`Qp::leave`].
    pub(crate) fn detach(
        &self,
        qp: Arc<Qp>,
        execution: Execution,
        notifications: &mut Notifications,
    ) {
        if self.is_waiting() {
            self.put(&mut self.lock(), Letter::Detach(qp, Box::new(execution)));
        } else {
            qp.take_back(execution, notifications);
        }
    }

    /// The link is gone: the last letter.
    pub(crate) fn hang_up(&self) {
        self.put(&mut self.lock(), Letter::Gone);
    }

    fn put(&self, inner: &mut Inner, letter: Letter) {
        inner.letters.push_back(letter);
        self.waiting.store(true, Ordering::Release);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Read the mail in order, under the lock of whoever it is for. `take` acts on one letter;
    /// `false`: it is not for them any more.
    pub(crate) fn read(
        &self,
        notifications: &mut Notifications,
        mut take: impl FnMut(Delivery, &mut Notifications),
        mut is_mine: impl FnMut() -> bool,
    ) {
        let mut touched: Vec<Arc<Qp>> = Vec::new();
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let letter = {
                let mut inner = self.lock();
                inner.delivering = false;
                if !is_mine() {
                    break;
                }
                let Some(letter) = inner.letters.pop_front() else {
                    self.waiting.store(false, Ordering::Release);
                    break;
                };
                inner.delivering = true;
                letter
            };
            match letter {
                Letter::Detach(qp, execution) => qp.take_back(*execution, notifications),
                Letter::Gone => take(Delivery::Gone, notifications),
                Letter::Effect(Effect::Event(event), _) => {
                    take(Delivery::Event(event), notifications)
                }
                Letter::Effect(Effect::Finished(f), _) => {
                    take(Delivery::Finished(f), notifications)
                }
                Letter::Effect(Effect::Complete(side, completion), Some(qp)) => {
                    qp.complete(side, completion);
                    if !touched.iter().any(|t| Arc::ptr_eq(t, &qp)) {
                        touched.push(qp);
                    }
                }
                Letter::Effect(Effect::Complete(..), None) => {}
            }
        }
        drop(reader);
        for qp in touched {
            qp.finish_batch(notifications);
        }
    }
}

impl Link {
    /// Carry the mail to whoever it is for. No lock may be held.
    pub(crate) fn deliver(&self) {
        while self.mail.is_waiting() {
            let known = match self.owner() {
                Owner::Port(port) => port.upgrade().map(|port| port.deliver(self)),
                Owner::Conn(conn) => conn.upgrade().map(|conn| conn.deliver(self)),
            };
            if known.is_none() {
                // Nobody is left to hear of it, but completions are completions.
                let mut notifications = Notifications::default();
                self.mail.read(&mut notifications, |_, _| {}, || true);
                notifications.fire();
            }
        }
    }
}
