//! A connector with its lock, its link and its waiters.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_iwarp::Revision;
use transom_memory::ConnectionId;
use transom_wire::{ReadLimits, Role};

use super::qp::{Front, Qp};
use crate::driver::config::options::Explain;
use crate::driver::config::path::PathReason;
use crate::driver::limits::refused_connects::ConnectRefusal;
use crate::driver::limits::requests::RequestState;
use crate::driver::link::event_queue::{Delivery, Owner};
use crate::driver::link::notifications::{Notifications, Sink, Sinks};
use crate::driver::link::silence::Silence;
use crate::driver::link::upgrade::UpgradeListener;
use crate::driver::link::work::Work;
use crate::driver::link::{Link, LinkState};
use crate::driver::schedule::shared::Shared;
use crate::sys::{self, ReservedPort};
use crate::tables::{ConnectorCall, ConnectorState};
use crate::{
    Attention, Connection, ConnectionConfig, ConnectionEvent, Cx, Effect, Effects, End, EndReason,
    Offer, Status,
};

/// A call's result.
pub(crate) type Outcome<T> = Result<T, Status>;

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) name: u64,
    pub(crate) shared: Arc<Shared>,
    sinks: Sinks,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) machine: transom_core::Connector,
    pub(crate) link: Option<Arc<Link>>,
    /// The queue pair of its last Connect or Accept, which may outlive the link.
    pub(crate) qp: Weak<Qp>,
    pub(crate) local: Option<SocketAddr>,
    /// The holder of its local port, if a program has reserved that.
    pub(crate) port: Option<Weak<ReservedPort>>,
    pub(crate) peer: Option<SocketAddr>,
    /// The word of this side's front for the peer's.
    pub(super) front_word: Option<u32>,
    /// The Connect under way.
    pub(super) attempt: Option<Box<Attempt>>,
    /// Why its connection has ended.
    pub(crate) ended: Option<End>,
    /// The cause, if a silence has ended the connection.
    silence: Option<Silence>,
}

/// The arguments of a Connect, kept for another attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    /// `None`: the connection is made without a queue pair.
    pub(super) qp: Option<Weak<Qp>>,
    pub(super) asked: ReadLimits,
    pub(super) private: Box<[u8]>,
    /// The peer is this end (Verbs V78).
    pub(super) itself: bool,
    /// The peer has not answered the newest form of start-up.
    pub(super) again: bool,
}

/// Keys are never used again, so number and epoch together are not either.
fn connection_id(key: u64) -> ConnectionId {
    ConnectionId { number: key as u32, epoch: (key >> 32) as u32 }
}

/// The configuration of a connection.
pub(crate) fn configuration(shared: &Shared, key: u64, role: Role) -> ConnectionConfig {
    ConnectionConfig {
        id: connection_id(key),
        role,
        dialect: shared.options.dialect,
        explain: shared.options.explain != Explain::Nobody,
    }
}

pub(crate) fn new_connection(
    shared: &Shared,
    key: u64,
    role: Role,
    revision: Revision,
) -> Connection {
    let now = sys::now();
    let wire = transom_iwarp::Stream::new(shared.options.wire(role, revision), now);
    Connection::new(configuration(shared, key, role), Box::new(wire), now)
}

/// A link and a queue pair, whose front half has been given to the link's connection, know each other
/// from now on.
fn attach(
    state: &mut LinkState,
    link: Option<&Arc<Link>>,
    qp: Option<(&Arc<Qp>, MutexGuard<'_, Front>)>,
) {
    let Some((qp, front)) = qp else { return };
    state.attach(qp.clone());
    if let Some(link) = link {
        qp.attach(front, link);
    }
}

impl Owner for Connector {
    fn deliver(self: Arc<Self>, link: &Link) {
        Connector::deliver(&self, link);
    }

    fn release(self: Arc<Self>) {
        Connector::release(&self);
    }

    fn upgrades(&self) -> Option<Arc<UpgradeListener>> {
        None
    }
}

impl Connector {
    pub(crate) fn new(shared: &Arc<Shared>) -> Arc<Connector> {
        let machine = transom_core::Connector::new(shared.options.dialect, shared.options.caps());
        Arc::new(Connector {
            name: shared.new_key(),
            shared: shared.clone(),
            sinks: Sinks::default(),
            inner: Mutex::new(Inner {
                machine,
                link: None,
                qp: Weak::new(),
                local: None,
                port: None,
                peer: None,
                front_word: None,
                attempt: None,
                ended: None,
                silence: None,
            }),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection it stands for, while there is one.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.lock().link.as_ref().map(|link| connection_id(link.key))
    }

    /// Why its connection has ended; it is known before the first request completes by that.
    pub(crate) fn ended(&self) -> Option<End> {
        self.lock().ended
    }

    /// The cause, if a silence has ended the connection and it is known.
    pub(crate) fn silence(&self) -> Option<Silence> {
        let inner = self.lock();
        inner.silence.filter(|_| inner.ended.is_some_and(|end| end.reason == EndReason::TimedOut))
    }

    pub(crate) fn keep(&self, sink: Sink) -> u64 {
        self.sinks.keep(sink)
    }

    pub(crate) fn forget(&self, waiter: u64) {
        let _ = self.sinks.take(waiter);
    }

    /// Carry out effects of the connector alone.
    pub(crate) fn carry_out(&self, effects: &mut Effects, notifications: &mut Notifications) {
        for effect in effects.list.drain(..) {
            if let Effect::Finished(finished) = effect
                && let Some(sink) = self.sinks.take(finished.waiter)
            {
                notifications.push(sink, finished.status);
            }
        }
    }

    /// Read the link's events.
    pub(crate) fn deliver(self: &Arc<Connector>, link: &Link) {
        let mut notifications = Notifications::default();
        self.read(&mut self.lock(), link, &mut notifications);
        notifications.fire();
        self.connect_again();
    }

    pub(crate) fn read(
        self: &Arc<Connector>,
        inner: &mut Inner,
        link: &Link,
        notifications: &mut Notifications,
    ) {
        let mine = || link.is_owned_by(self);
        let mut effects = Effects::default();
        link.events.read(
            notifications,
            |delivery, notifications| {
                match delivery {
                    Delivery::Event(event) => {
                        let unanswered = matches!(
                            event,
                            ConnectionEvent::Ended(End { reason: EndReason::Unanswered, .. })
                        );
                        match &mut inner.attempt {
                            Some(attempt) if unanswered => {
                                attempt.again = true;
                                // The next link has the same addresses, where the program has named its port.
                                link.stream.let_go();
                            }
                            attempt => {
                                *attempt = None;
                                if let ConnectionEvent::Ended(end) = event {
                                    inner.ended = Some(end);
                                    inner.silence = link.silence.get().copied();
                                }
                                inner.machine.on_event(&event, &mut effects);
                            }
                        }
                    }
                    Delivery::Finished(f) => effects.list.push(Effect::Finished(f)),
                    Delivery::Gone => {
                        if inner.link.as_ref().is_some_and(|l| std::ptr::eq(&**l, link)) {
                            inner.machine.link_gone(&mut effects);
                            inner.link = None;
                        }
                    }
                }
                self.carry_out(&mut effects, notifications);
            },
            mine,
        );
    }

    /// A call on the connector and, if there is one, on its connection.
    fn call<R>(
        self: &Arc<Connector>,
        work: impl FnOnce(
            &mut transom_core::Connector,
            &mut Cx<'_>,
            Option<&mut LinkState>,
            Option<&Arc<Link>>,
        ) -> R,
    ) -> R {
        let mut notifications = Notifications::default();
        let mut inner = self.lock();
        if let Some(link) = inner.link.clone() {
            // Events that have happened already come first.
            self.read(&mut inner, &link, &mut notifications);
        }
        let link = inner.link.clone();
        let mut result = None;
        let mut work = Some(work);
        let mut left = false;
        if let Some(link) = &link {
            let machine = &mut inner.machine;
            let (done, again) = link.control(&mut notifications, |state, cx| {
                work.take().map(|work| work(machine, cx, Some(state), Some(link)))
            });
            result = done.flatten();
            left = again;
            self.read(&mut inner, link, &mut notifications);
        }
        if let Some(work) = work {
            let mut worker = self.shared.workers.take();
            let mut effects = Effects::default();
            let mut cx = Cx {
                now: sys::now(),
                memory: &self.shared.memory,
                lane: worker.tools(&self.shared.memory).0,
                host: &sys::Host,
                denials: &*self.shared,
                shared: None,
                effects: &mut effects,
                trace: None,
            };
            result = Some(work(&mut inner.machine, &mut cx, None, None));
            drop(worker);
            self.carry_out(&mut effects, &mut notifications);
        }
        let over = inner.machine.state() == ConnectorState::Disconnected;
        let qp = if over { inner.qp.upgrade() } else { None };
        drop(inner);
        if let Some(qp) = qp {
            qp.disconnected(&mut notifications); // nothing is left to do, unless the link was gone before
        }
        notifications.fire();
        if let Some(link) = link {
            if left {
                link.drive(Work::POSTS);
            }
            link.deliver();
        }
        self.connect_again();
        match result {
            Some(result) => result,
            None => unreachable!("the work was done on one of two ways"),
        }
    }

    // ---- calls (ND2 4.7.3) ---------------------------------------------------------------------

    /// Give it a local address (port 0: any), of a reserved port or not.
    pub(crate) fn bind(&self, local: SocketAddr, port: Option<Weak<ReservedPort>>) -> Outcome<()> {
        let mut inner = self.lock();
        inner.machine.bind()?;
        (inner.local, inner.port) = (Some(local), port);
        Ok(())
    }

    pub(crate) fn complete_connect(self: &Arc<Connector>) -> Outcome<()> {
        self.call(|machine, cx, state, _| {
            machine.complete_connect(cx, state.map(|s| &mut s.connection))
        })
    }

    /// Accept the request. `sink` is called when the peer has completed the connection.
    pub(crate) fn accept(
        self: &Arc<Connector>,
        qp: Option<&Arc<Qp>>,
        asked: ReadLimits,
        private: &[u8],
        sink: Sink,
    ) -> Outcome<()> {
        let waiter = self.keep(sink);
        let front_word = self.lock().front_word;
        let result = self.call(|machine, cx, state, link| {
            let mut front = qp.map(|qp| qp.front());
            let pair = front.as_mut().map(|front| &mut front.pair);
            let Some(state) = state else {
                return machine.accept(cx, None, pair, waiter, asked, private);
            };
            if let Some(word) = front_word {
                state.connection.set_front_word(word);
            }
            machine.accept(cx, Some(&mut state.connection), pair, waiter, asked, private)?;
            attach(state, link, qp.zip(front));
            Ok(())
        });
        if result.is_err() {
            self.forget(waiter);
        } else {
            self.lock().qp = qp.map(Arc::downgrade).unwrap_or_default();
        }
        result
    }

    /// A queue pair takes over a connection that was made without one.
    pub(crate) fn join(self: &Arc<Connector>, qp: &Arc<Qp>) -> Outcome<()> {
        let result = self.call(|machine, cx, state, link| {
            let mut front = qp.front();
            let Some(state) = state else { return machine.join(cx, None, &mut front.pair) };
            machine.join(cx, Some(&mut state.connection), &mut front.pair)?;
            attach(state, link, Some((qp, front)));
            // Bytes that have arrived meanwhile may be whole frames.
            if !state.partial.is_empty() {
                state.connection.attention().set(Attention::UNREAD);
            }
            Ok(())
        });
        if result.is_ok() {
            self.lock().qp = Arc::downgrade(qp);
            if let Some(link) = qp.link() {
                link.drive(Work::ATTEND);
                link.deliver();
            }
        }
        result
    }

    /// `why`: the reason that is counted, if it is a request.
    pub(crate) fn reject(
        self: &Arc<Connector>,
        private: &[u8],
        why: ConnectRefusal,
    ) -> Outcome<()> {
        self.call(|machine, cx, state, link| {
            let asked = machine.state() == ConnectorState::Requested;
            machine.reject(cx, state.map(|s| &mut s.connection), private)?;
            if asked {
                self.refuse(link, why);
            }
            Ok(())
        })
    }

    /// A request is refused. Its link stays, and counts as one of those, until its peer has left.
    fn refuse(&self, link: Option<&Arc<Link>>, why: ConnectRefusal) {
        self.shared.refused_connects.count(why);
        if let Some(link) = link {
            link.set_request_state(RequestState::Refused);
        }
    }

    /// Call `sink` when the peer disconnects.
    pub(crate) fn notify_disconnect(self: &Arc<Connector>, sink: Sink) -> Outcome<()> {
        let waiter = self.keep(sink);
        let result = self.call(|machine, cx, _, _| machine.notify_disconnect(waiter, cx.effects));
        if result.is_err() {
            self.forget(waiter);
        }
        result
    }

    /// Disconnect: everything is flushed, and the notice is on its way, when this returns.
    pub(crate) fn disconnect(self: &Arc<Connector>, sink: Sink) -> Outcome<()> {
        let waiter = self.keep(sink);
        let result = self.call(|machine, cx, state, _| {
            machine.disconnect(cx, state.map(|s| &mut s.connection), waiter)
        });
        if result.is_err() {
            self.forget(waiter);
        }
        result
    }

    /// Process what has arrived on its connection, and report what that means.
    pub(crate) fn process_arrived(&self) {
        let link = self.lock().link.clone();
        if let Some(link) = link {
            link.process_arrived();
        }
    }

    /// The last handle is gone.
    pub(crate) fn release(self: &Arc<Connector>) {
        self.call(|machine, cx, state, link| {
            if machine.state() == ConnectorState::Requested && state.is_some() {
                self.refuse(link, ConnectRefusal::ByProgram);
            }
            machine.release(cx, state.map(|s| &mut s.connection));
        });
    }

    /// Cancel what is outstanding (ND2 4.7.4).
    pub(crate) fn cancel(self: &Arc<Connector>) {
        self.call(|machine, cx, state, _| {
            machine.cancel(cx, state.map(|s| &mut s.connection));
        });
    }

    // ---- questions -----------------------------------------------------------------------------

    pub(crate) fn state(&self) -> ConnectorState {
        self.lock().machine.state()
    }

    pub(crate) fn read_limits(&self) -> Outcome<ReadLimits> {
        self.lock().machine.read_limits()
    }

    pub(crate) fn private_data(&self) -> Outcome<Vec<u8>> {
        self.lock().machine.private_data().map(<[u8]>::to_vec)
    }

    pub(crate) fn local(&self) -> Outcome<SocketAddr> {
        let inner = self.lock();
        inner.machine.gate(ConnectorCall::GetLocalAddress)?;
        let asked = inner.link.as_ref().and_then(|link| link.local().ok());
        asked.or(inner.local).ok_or(Status::ConnectionInvalid)
    }

    /// The address bound here, in whatever state.
    pub(crate) fn bound(&self) -> Option<SocketAddr> {
        self.lock().local
    }

    pub(crate) fn peer(&self) -> Outcome<SocketAddr> {
        let inner = self.lock();
        inner.machine.gate(ConnectorCall::GetPeerAddress)?;
        inner.peer.ok_or(Status::ConnectionInvalid)
    }

    /// The facts agreed at start-up, once they are, and why the connection has this path.
    pub(crate) fn facts(self: &Arc<Connector>) -> Option<(transom_wire::Facts, PathReason)> {
        self.call(|_, _, state, _| {
            state.and_then(|s| Some((s.connection.facts().cloned()?, s.reason)))
        })
    }

    /// The word of the peer's front, once its request or acceptance has come.
    pub(crate) fn peer_front_word(self: &Arc<Connector>) -> Option<u32> {
        self.call(|_, _, state, _| state.and_then(|s| s.connection.peer_front_word()))
    }

    /// Have a word of this side's front come to the peer's with the next Connect or Accept.
    pub(crate) fn set_front_word(&self, word: u32) {
        self.lock().front_word = Some(word);
    }

    // ---- from a listener -------------------------------------------------------------------------

    /// A request for it has arrived. `false`: it does not wait for one any more.
    pub(crate) fn take(self: &Arc<Connector>, link: &Arc<Link>, offer: Offer) -> bool {
        let mut notifications = Notifications::default();
        let mut inner = self.lock();
        if inner.machine.state() != ConnectorState::Queued {
            return false;
        }
        self.give(&mut inner, link, offer, &mut notifications);
        drop(inner);
        notifications.fire();
        link.deliver();
        true
    }

    pub(crate) fn give(
        self: &Arc<Connector>,
        inner: &mut Inner,
        link: &Arc<Link>,
        offer: Offer,
        notifications: &mut Notifications,
    ) {
        let owner: Weak<Connector> = Arc::downgrade(self);
        link.set_owner(owner);
        inner.ended = None;
        inner.local = link.local().ok();
        inner.peer = Some(link.peer);
        inner.link = Some(link.clone());
        self.request(inner, offer, notifications);
    }

    pub(crate) fn request(
        &self,
        inner: &mut Inner,
        offer: Offer,
        notifications: &mut Notifications,
    ) {
        let mut effects = Effects::default();
        inner.machine.request(offer, &mut effects);
        self.carry_out(&mut effects, notifications);
    }

    /// The listener has no request for this connector; `status` says why.
    pub(crate) fn unqueue(&self, status: Status) {
        let mut notifications = Notifications::default();
        let mut effects = Effects::default();
        self.lock().machine.unqueue(status, &mut effects);
        self.carry_out(&mut effects, &mut notifications);
        notifications.fire();
    }
}
