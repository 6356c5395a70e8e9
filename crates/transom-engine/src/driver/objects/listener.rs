//! A listener: its socket, its backlog, and who may be half-way through start-up.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use transom_wire::{Role, Time};

use super::connect::NEWEST;
use super::connector::{Connector, Outcome, new_connection};
use crate::driver::config::options::status_of;
use crate::driver::config::path::PathReason;
use crate::driver::limits::admission::Starting;
use crate::driver::limits::refused_connects::ConnectRefusal;
use crate::driver::limits::requests::{RequestState, Requests};
use crate::driver::link::Link;
use crate::driver::link::carrier::Stage;
use crate::driver::link::event_queue::{Delivery, Owner};
use crate::driver::link::notifications::{Notifications, Sink};
use crate::driver::link::upgrade::UpgradeListener;
use crate::driver::link::work::Work;
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::Source;
use crate::sys::{self, Fd, IoError, Listener as Socket, PeerPlace, Stream};
use crate::{ConnectionEvent, EndReason, Incoming, Offer, Status};

/// Requests that may wait for a program that has set no limit, or a higher one: each holds memory.
const BACKLOG: usize = 4096;
/// Pause when the system is out of descriptors, or as many requests wait as may: the next attempt would fail, too.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) key: u64,
    address: SocketAddr,
    /// `None` once it is closed: the port is free when [`Listener::close`] returns.
    socket: Mutex<Option<Socket>>,
    shared: Arc<Shared>,
    /// Those that have arrived.
    requests: Requests,
    turned_away: AtomicU64,
    /// Where processes of this host offer upgrades, once this listens.
    upgrades: Mutex<Result<Arc<UpgradeListener>, PathReason>>,
    inner: Mutex<Inner>,
    /// The listener has stopped. Written before [`Listener::close`] goes through the links.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    machine: transom_core::Listener,
    /// The connectors that wait, by their names.
    waiting: HashMap<u64, Weak<Connector>>,
}

impl Source for Listener {
    fn ready(self: Arc<Self>, _now: Time) {
        self.accept();
    }

    fn due(self: Arc<Self>, _now: Time) {
        self.accept();
    }

    fn serve(&self, _now: Time) -> bool {
        false // listeners are in the set of unaccepted links, which no thread of the program asks
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, status: Status) {
        self.close(status);
    }

    fn end(&self, _status: Status) {}
}

impl Owner for Listener {
    fn deliver(self: Arc<Self>, link: &Link) {
        Listener::deliver(&self, link);
    }

    fn release(self: Arc<Self>) {}

    fn upgrades(&self) -> Option<Arc<UpgradeListener>> {
        Listener::upgrades(self).ok()
    }
}

impl Listener {
    /// A listener at `address`, not listening yet.
    pub(crate) fn bind(
        shared: &Arc<Shared>,
        address: SocketAddr,
        one_family: bool,
    ) -> Result<Arc<Listener>, IoError> {
        let mut machine = transom_core::Listener::new(shared.options.dialect);
        let socket = Socket::bind(address, one_family)?;
        let _ = machine.bind();
        Ok(Arc::new(Listener {
            key: shared.new_key(),
            address: socket.address()?,
            socket: Mutex::new(Some(socket)),
            shared: shared.clone(),
            requests: Requests::default(),
            turned_away: AtomicU64::new(0),
            upgrades: Mutex::new(Err(PathReason::NotAsked)),
            inner: Mutex::new(Inner { machine, waiting: HashMap::new() }),
            closed: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn socket(&self) -> MutexGuard<'_, Option<Socket>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where upgrades to shared memory are offered, or why nowhere.
    pub(crate) fn upgrades(&self) -> Result<Arc<UpgradeListener>, PathReason> {
        self.upgrades.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_upgrades(&self, upgrades: Result<Arc<UpgradeListener>, PathReason>) {
        let mut held = self.upgrades.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(before) = std::mem::replace(&mut *held, upgrades) {
            before.close();
        }
    }

    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Take requests; at most `backlog` wait (0 = as many as the largest).
    pub(crate) fn listen(self: &Arc<Listener>, backlog: usize) -> Outcome<()> {
        let backlog = if backlog == 0 { BACKLOG } else { backlog.min(BACKLOG) };
        self.lock().machine.listen(backlog)?;
        let socket = self.socket();
        let Some(open) = &*socket else {
            // Closed meanwhile, by the program or with the address.
            let gone = self.shared.is_removed();
            return Err(if gone { Status::DeviceRemoved } else { Status::InvalidState });
        };
        // The upgrade socket opens before any peer can connect and look for it.
        let upgrades = UpgradeListener::open(self.address, &self.shared.options);
        self.set_upgrades(upgrades.map(Arc::new));
        // The system's own queue, from which connections are taken at once, is as long as the system lets it: a SYN
        // that finds it full comes again after a second, and any peer can send some more.
        if let Err(e) = open.listen(BACKLOG as u16) {
            self.set_upgrades(Err(PathReason::NotAsked));
            return Err(status_of(e));
        }
        self.register(open.fd()).map_err(|_| Status::InsufficientResources)
    }

    fn register(self: &Arc<Listener>, fd: &Fd) -> std::io::Result<()> {
        self.shared.add(self.key, fd, self.clone(), true)?;
        self.shared.unaccepted.arm(fd, self.key, true, false)
    }

    /// The background thread: connections wait to be accepted. One of them is; links are served
    /// before the next.
    pub(crate) fn accept(self: &Arc<Listener>) {
        let upgrades = self.upgrades();
        if let Ok(upgrades) = &upgrades {
            upgrades.accept_offers();
        }
        if !self.requests.has_room() {
            // These have as many descriptors as they may: a peer that was refused and stays makes room. Otherwise
            // others wait in the system's queue, where they take none.
            let Some(refused) = self.requests.forget_refused() else {
                return self.shared.note(self.key, sys::now().after(RETRY));
            };
            if let Some(link) = Link::of_key(&self.shared, refused) {
                link.cut();
            }
        }
        let Some(next) = self.next() else { return };
        match next {
            Ok((stream, peer)) => self.let_in(stream, peer, upgrades.err()),
            Err(IoError::Exhausted) => {
                self.shared.say_starved();
                return self.shared.note(self.key, sys::now().after(RETRY));
            }
            // No connection is pending, or it was reset before the accept.
            Err(_) => {}
        }
        if let Some(socket) = &*self.socket() {
            let _ = self.shared.unaccepted.arm(socket.fd(), self.key, true, false);
        }
    }

    /// The next connection, or why there is none; `None` once the listener is closed.
    pub(crate) fn next(&self) -> Option<Result<(Stream, SocketAddr), IoError>> {
        self.socket().as_ref().map(|socket| socket.accept(&self.shared.options.sockets()))
    }

    /// A link for a new connection, if there is room for one. `tcp_only`: why no memory can be handed over.
    pub(crate) fn let_in(
        self: &Arc<Listener>,
        stream: Stream,
        peer: SocketAddr,
        tcp_only: Option<PathReason>,
    ) {
        let guess_limiter = &self.shared.guess_limiter;
        let mut known = None;
        let who = || {
            known = guess_limiter.who(stream.local().ok()?, peer, None);
            known
        };
        if !guess_limiter.admits(who, sys::now()) {
            return;
        }
        let local = stream.local().ok();
        let here = local.is_some_and(|local| sys::is_of_this_host(local, peer));
        let place = || match local {
            Some(local) if sys::ASKING_TAKES_NO_TIME => sys::place_of_peer(local, peer),
            _ if here => PeerPlace::Here,
            _ => PeerPlace::Elsewhere,
        };
        let key = self.shared.new_key();
        let admitted = self.shared.admission.admit(key, peer.ip(), here, place);
        if admitted.as_ref().is_none_or(|admitted| admitted.displaced.is_some()) {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        let Some(admitted) = admitted else {
            return self.shared.refused_connects.count(ConnectRefusal::HalfOpen);
        };
        if let Some(link) = admitted.displaced.and_then(|link| Link::of_key(&self.shared, link)) {
            link.turn_away(ConnectRefusal::HalfOpen);
        }
        let connection = new_connection(&self.shared, key, Role::Passive, NEWEST);
        let owner = Arc::downgrade(self);
        let (stage, reason) = match tcp_only {
            None => (Some(Stage::Opening), PathReason::NotAsked),
            Some(reason) => (None, reason),
        };
        let starting = Starting::Incoming(admitted.ticket);
        let about = (starting, stage, reason);
        let link = Link::new(&self.shared, key, (stream, peer), connection, owner, about);
        if let Some(who) = known {
            let _ = link.known.set(who);
        }
        if link.register(true).is_err() {
            return self.shared.refused_connects.count(ConnectRefusal::Resources);
        }
        // Either this load sees the close, or the thread that closes finds the link.
        if self.closed.load(Ordering::Relaxed) {
            link.turn_away(ConnectRefusal::Closed);
        } else {
            link.drive(Work::ATTEND);
        }
    }

    /// Read the events of a link that no connector has taken yet.
    pub(crate) fn deliver(self: &Arc<Listener>, link: &Link) {
        let mut notifications = Notifications::default();
        let mut arrived = None;
        let mine = || link.is_owned_by(self);
        let mut inner = self.lock();
        link.events.read(
            &mut notifications,
            |delivery, _| match delivery {
                Delivery::Event(ConnectionEvent::Requested { limits, private }) => {
                    arrived = Some(Offer { limits, private });
                }
                Delivery::Event(ConnectionEvent::Ended(end)) => {
                    let unasked = arrived.take().is_none() && !inner.machine.gone(link.key);
                    if let Some(why) = refusal_of(end.reason).filter(|_| unasked) {
                        self.shared.refused_connects.count(why);
                    }
                }
                Delivery::Gone => {
                    arrived = None;
                    inner.machine.gone(link.key);
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
    fn arrived(self: &Arc<Listener>, key: u64, offer: Offer) {
        let Some(link) = Link::of_key(&self.shared, key) else { return };
        link.set_request(self.requests.arrived(key));
        let mut incoming = Incoming { link: key, offer };
        loop {
            let taker = {
                let mut inner = self.lock();
                if !inner.machine.has_room() {
                    // With an answer: one without makes its peer try an older start-up (iW 2.4).
                    drop(inner);
                    link.set_request_state(RequestState::Refused);
                    return link.turn_away(ConnectRefusal::Backlog);
                }
                let Some((name, back)) = inner.machine.arrived(incoming) else { return };
                incoming = back;
                inner.waiting.remove(&name).and_then(|connector| connector.upgrade())
            };
            // With the listener's lock released, because a connector's comes before it.
            if let Some(connector) = taker
                && connector.take(&link, incoming.offer.clone())
            {
                return;
            }
        }
    }

    /// GetConnectionRequest: `sink` is called when a request has arrived for `connector`.
    pub(crate) fn get_request(
        self: &Arc<Listener>,
        connector: &Arc<Connector>,
        sink: Sink,
    ) -> Outcome<()> {
        let waiter = connector.keep(sink);
        let mut notifications = Notifications::default();
        let mut owner = connector.lock();
        let mut inner = self.lock();
        let taken = inner.machine.take_request(&mut owner.machine, connector.name, waiter);
        let incoming = match taken {
            Ok(Some(incoming)) => incoming,
            Ok(None) => {
                let Inner { machine, waiting } = &mut *inner;
                waiting.retain(|name, connector| {
                    let alive = connector.strong_count() > 0;
                    if !alive {
                        machine.forget(*name);
                    }
                    alive
                });
                waiting.insert(connector.name, Arc::downgrade(connector));
                return Ok(());
            }
            Err(status) => {
                connector.forget(waiter);
                return Err(status);
            }
        };
        let link = Link::of_key(&self.shared, incoming.link);
        match &link {
            Some(link) => connector.give(&mut owner, link, incoming.offer, &mut notifications),
            // Gone this very moment: Accept will say so.
            None => connector.request(&mut owner, incoming.offer, &mut notifications),
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
        self.unqueue(Status::Canceled, crate::Listener::cancel);
    }

    /// End the outstanding GetConnectionRequests that `which` names with `status`.
    fn unqueue(&self, status: Status, which: impl FnOnce(&mut crate::Listener) -> Vec<u64>) {
        let connectors: Vec<_> = {
            let mut inner = self.lock();
            let names = which(&mut inner.machine);
            names.iter().filter_map(|name| inner.waiting.remove(name)).collect()
        };
        for connector in connectors.iter().filter_map(Weak::upgrade) {
            connector.unqueue(status);
        }
    }

    /// Stop listening. Requests that no program has taken are refused; calls that wait for one end
    /// with `status`.
    pub(crate) fn close(self: &Arc<Listener>, status: Status) {
        self.unqueue(status, |machine| machine.close().0);
        // The lock of the list of links orders this and what `accept` does.
        self.closed.store(true, Ordering::Relaxed);
        // Port and name are free when this returns, whichever thread still holds the listener.
        if let Some(socket) = self.socket().take() {
            self.set_upgrades(Err(PathReason::NotAsked));
            self.shared.unaccepted.remove(socket.fd());
        }
        self.shared.remove(self.key);
        for link in Link::all(&self.shared) {
            if link.is_owned_by(self) {
                link.turn_away(ConnectRefusal::Closed);
            }
        }
    }
}

/// The reason why this side has ended a link whose peer has not asked yet; `None`: the peer has left.
fn refusal_of(reason: EndReason) -> Option<ConnectRefusal> {
    match reason {
        EndReason::TimedOut | EndReason::Violation => Some(ConnectRefusal::Unfinished),
        EndReason::Link(_) => Some(ConnectRefusal::Resources),
        _ => None,
    }
}
