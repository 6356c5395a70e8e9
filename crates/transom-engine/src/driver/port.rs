//! A listener: its socket, its backlog, and who may be half-way through start-up.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use transom_wire::Role;

use super::admission::{Admission, Starting};
use super::conn::{Conn, Outcome, new_connection};
use super::dial::NEWEST;
use super::event_queue::{Delivery, Owner};
use super::handover::{Stage, Threshold};
use super::link::{ARM, FLUSH, Link, RECEIVE};
use super::notifications::{Notifications, Sink};
use super::path::PathReason;
use super::shared::Shared;
use crate::sys::{self, Fd, IoError, Listener as Socket, Stream};
use crate::{ConnectionEvent, Incoming, Listener, Offer, Status};

/// Requests that may wait for a program that has set no limit, or a higher one: each holds memory.
const BACKLOG: usize = 4096;
/// Pause when the system is out of descriptors: the next attempt would fail, too.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) key: u64,
    socket: Socket,
    shared: Arc<Shared>,
    admission: Admission,
    /// Where processes of this host hand over memory, once it listens.
    threshold: Mutex<Result<Arc<Threshold>, PathReason>>,
    inner: Mutex<Inner>,
    /// It listens no more. Written before [`Port::close`] goes through the links.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    listener: Listener,
    /// The connectors that wait, by their names.
    waiting: HashMap<u64, Weak<Conn>>,
}

impl Port {
    /// A listener at `address`, not listening yet.
    pub(crate) fn bind(shared: &Arc<Shared>, address: SocketAddr) -> Result<Arc<Port>, IoError> {
        let mut listener = Listener::new(shared.options.dialect);
        let socket = Socket::bind(address)?;
        let _ = listener.bind();
        Ok(Arc::new(Port {
            key: shared.new_key(),
            socket,
            shared: shared.clone(),
            admission: Admission::new(shared.options.half_open),
            threshold: Mutex::new(Err(PathReason::NotAsked)),
            inner: Mutex::new(Inner { listener, waiting: HashMap::new() }),
            closed: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fd(&self) -> &Fd {
        self.socket.fd()
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, IoError> {
        self.socket.address()
    }

    /// Where memory is handed over, or why nowhere.
    pub(super) fn threshold(&self) -> Result<Arc<Threshold>, PathReason> {
        self.threshold.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_threshold(&self, threshold: Result<Arc<Threshold>, PathReason>) {
        *self.threshold.lock().unwrap_or_else(PoisonError::into_inner) = threshold;
    }

    pub(crate) fn turned_away(&self) -> u64 {
        self.admission.turned_away()
    }

    /// Take requests; at most `backlog` wait (0 = as many as the largest).
    pub(crate) fn listen(self: &Arc<Port>, backlog: usize) -> Outcome<()> {
        let backlog = if backlog == 0 { BACKLOG } else { backlog.min(BACKLOG) };
        self.lock().listener.listen(backlog)?;
        // Before anybody can connect who would look for it.
        if let Ok(address) = self.socket.address() {
            self.set_threshold(Threshold::open(address, &self.shared.options).map(Arc::new));
        }
        if let Err(e) = self.socket.listen(u16::try_from(backlog).unwrap_or(u16::MAX).max(128)) {
            self.set_threshold(Err(PathReason::NotAsked));
            return Err(super::options::status_of(e));
        }
        self.shared.add_port(self).map_err(|_| Status::InsufficientResources)
    }

    /// The background thread: connections wait to be accepted. One of them is; links have their turn
    /// before the next.
    pub(crate) fn accept(self: &Arc<Port>) {
        let threshold = self.threshold();
        if let Ok(threshold) = &threshold {
            threshold.let_in();
        }
        match self.socket.accept(&self.shared.options.sockets()) {
            Ok((stream, peer)) => self.let_in(stream, peer, threshold.err()),
            Err(IoError::Exhausted) => {
                return self.shared.note(self.key, sys::now().after(RETRY));
            }
            // Nobody, or one that was reset before we came to it, or a socket somebody has closed: then
            // arming fails and nothing more is heard of it.
            Err(_) => {}
        }
        let _ = self.shared.strangers.arm(self.fd(), self.key, true, false);
    }

    /// A link for a stranger, if there is room for one. `no_door`: why no memory can be handed over.
    fn let_in(self: &Arc<Port>, stream: Stream, peer: SocketAddr, no_door: Option<PathReason>) {
        let guessers = &self.shared.guessers;
        let mut known = None;
        let who = || {
            known = guessers.who(stream.local().ok()?, peer, None);
            known
        };
        if !guessers.admits(who, sys::now()) {
            return;
        }
        let Some(ticket) = self.admission.admit(peer.ip()) else { return };
        let key = self.shared.new_key();
        let connection = new_connection(&self.shared, key, Role::Passive, NEWEST);
        let owner = Owner::Port(Arc::downgrade(self));
        let (stage, reason) = match no_door {
            None => (Stage::Greeting, PathReason::NotAsked),
            Some(reason) => (Stage::Settled, reason),
        };
        let starting = Starting::Stranger(ticket);
        let about = (starting, stage, reason);
        let link = Link::new(&self.shared, key, (stream, peer), connection, owner, about);
        if let Some(who) = known {
            let _ = link.known.set(who);
        }
        if self.shared.add_link(&link, true).is_ok() {
            // Either this is seen here, or the link by whoever closes.
            if self.closed.load(Ordering::Relaxed) {
                link.turn_away();
            } else {
                link.drive(RECEIVE | FLUSH | ARM);
            }
        }
    }

    /// Read the events of a link that no connector has taken yet.
    pub(super) fn deliver(self: &Arc<Port>, link: &Link) {
        let mut notifications = Notifications::default();
        let mut arrived = None;
        let mine = || matches!(link.owner(), Owner::Port(p) if p.as_ptr() == Arc::as_ptr(self));
        let mut inner = self.lock();
        link.events.read(
            &mut notifications,
            |delivery, _| match delivery {
                Delivery::Event(ConnectionEvent::Requested { limits, private }) => {
                    arrived = Some(Offer { limits, private });
                }
                Delivery::Event(ConnectionEvent::Ended(_)) | Delivery::Gone => {
                    arrived = None;
                    inner.listener.gone(link.key);
                }
                Delivery::Event(_) | Delivery::Finished(_) => {}
            },
            mine,
        );
        drop(inner);
        notifications.fire();
        if let Some(offer) = arrived {
            self.arrived(link.key, offer);
        }
    }

    /// A request has arrived: for a connector that waits, or for the backlog.
    fn arrived(self: &Arc<Port>, key: u64, offer: Offer) {
        let Some(link) = self.shared.link(key) else { return };
        let mut incoming = Incoming { link: key, offer };
        loop {
            let taker = {
                let mut inner = self.lock();
                if !inner.listener.has_room() {
                    // With an answer: one without makes its peer try an older start-up (iW 2.4).
                    drop(inner);
                    return link.turn_away();
                }
                let Some((name, back)) = inner.listener.arrived(incoming) else { return };
                incoming = back;
                inner.waiting.remove(&name).and_then(|conn| conn.upgrade())
            };
            // With the listener's lock released, because a connector's comes before it.
            if let Some(conn) = taker
                && conn.take(&link, incoming.offer.clone())
            {
                return;
            }
        }
    }

    /// GetConnectionRequest: `sink` hears when a request has arrived for `conn`.
    pub(crate) fn get_request(self: &Arc<Port>, conn: &Arc<Conn>, sink: Sink) -> Outcome<()> {
        let waiter = conn.keep(sink);
        let mut notifications = Notifications::default();
        let mut owner = conn.lock();
        let mut inner = self.lock();
        let taken = inner.listener.take_request(&mut owner.connector, conn.name, waiter);
        let incoming = match taken {
            Ok(Some(incoming)) => incoming,
            Ok(None) => {
                let Inner { listener, waiting } = &mut *inner;
                waiting.retain(|name, conn| {
                    let alive = conn.strong_count() > 0;
                    if !alive {
                        listener.forget(*name);
                    }
                    alive
                });
                waiting.insert(conn.name, Arc::downgrade(conn));
                return Ok(());
            }
            Err(status) => {
                conn.forget(waiter);
                return Err(status);
            }
        };
        let link = self.shared.link(incoming.link);
        match &link {
            Some(link) => conn.give(&mut owner, link, incoming.offer, &mut notifications),
            // Gone this very moment: Accept will say so.
            None => conn.request(&mut owner, incoming.offer, &mut notifications),
        }
        drop(inner);
        drop(owner);
        notifications.fire();
        if let Some(link) = link {
            link.deliver();
        }
        Ok(())
    }

    /// Cancel every outstanding GetConnectionRequest, in order.
    pub(crate) fn cancel(&self) {
        let conns: Vec<_> = {
            let mut inner = self.lock();
            let names = inner.listener.cancel();
            names.iter().filter_map(|name| inner.waiting.remove(name)).collect()
        };
        for conn in conns.iter().filter_map(Weak::upgrade) {
            conn.unqueue();
        }
    }

    /// Stop listening. Requests that nobody has taken are refused.
    pub(crate) fn close(self: &Arc<Port>) {
        self.cancel();
        let _ = self.lock().listener.close();
        // The lock of the list of links orders this and what `accept` does.
        self.closed.store(true, Ordering::Relaxed);
        // The name is free at once: the port is, too.
        self.set_threshold(Err(PathReason::NotAsked));
        self.shared.strangers.remove(self.fd());
        self.shared.remove(self.key);
        for link in self.shared.links() {
            if matches!(link.owner(), Owner::Port(p) if p.as_ptr() == Arc::as_ptr(self)) {
                link.turn_away();
            }
        }
    }
}
