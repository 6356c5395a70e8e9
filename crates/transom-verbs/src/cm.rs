//! The connection manager: ids, their connections, their events (verbs 10).
//!
//! A connection of port space TCP is one of the engine, so that any iWARP peer can be at its other end.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use transom_engine::{EndReason, Status, raw};
use transom_wire::ReadLimits;

use crate::abi::{access, cm_event, ibv_ah_attr, ibv_global_route, ibv_qp_attr, mask, qps};
use crate::channel::{Acknowledged, Channel};
use crate::context::Context;
use crate::datagram::group;
use crate::errno::{Errno, Result};
use crate::queue_pair::QueuePair;
use crate::requests::{self, Passive};
use crate::resolution::{self, Datagrams, Question, Service};
use crate::{gid, limits, timers};

/// Bytes of private data that programs may send, and that they find (Verbs V125): zeros behind what came.
pub(crate) const CONNECT_DATA: usize = 56;
pub(crate) const ACCEPT_DATA: usize = 196;
pub(crate) const REJECT_DATA: usize = 148;
/// Statuses of REJECTED: by the program, and for want of a listener (Verbs V124).
pub(crate) const REJECTED_BY_PROGRAM: i32 = 28;
const NO_LISTENER: i32 = 8;
/// How long a connect that meets no listener is repeated (Verbs V123), and how often. Half a second
/// is too short for perftest's second listener on a loaded machine.
const PERSISTENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// When TIMEWAIT_EXIT follows a disconnect (Verbs V130).
const TIMEWAIT: Duration = Duration::from_secs(1);
/// Numbers that stand for a connection are below the first port's queue pairs (Verbs V128).
const ALIASES: u32 = 0x04_0000;

/// Where an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Has a Request of a peer's.
    Requested,
    Connecting,
    /// The peer has accepted; the program has yet to establish.
    Responded,
    Accepting,
    Established,
    Disconnected,
}

/// The agreed parameters, and those that go to the queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl Default for Parameters {
    fn default() -> Parameters {
        let most = limits::READS as u8;
        Parameters {
            responder_resources: most,
            initiator_depth: most,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl Parameters {
    fn limits(self) -> ReadLimits {
        ReadLimits {
            inbound: self.responder_resources.into(),
            outbound: self.initiator_depth.into(),
        }
    }
}

/// A communication identifier.
#[derive(Debug)]
pub(crate) struct Id {
    /// Where the program's structure is; 0 until its event is fetched.
    pub(crate) address: AtomicUsize,
    pub(crate) context: Arc<Context>,
    pub(crate) events: Acknowledged,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) channel: Arc<Channel<Event>>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) one_family: bool,
    pub(crate) ack_timeout: u8,
    pub(crate) parameters: Parameters,
    /// The id's port, which takes Requests once the id listens.
    port: Option<Arc<raw::Listener>>,
    connector: Option<Arc<raw::Connector>>,
    /// The part of an id of port space UDP; `None`: of port space TCP.
    pub(crate) datagrams: Option<Datagrams>,
    /// The queue pair that has taken over the connection, or is to.
    joined: Weak<QueuePair>,
    accepted: bool,
    alias: u32,
    /// DISCONNECTED has been said.
    over: bool,
    /// A listener's: its ids have this pointer of the program's until they get their own.
    pub(crate) user_context: usize,
    /// The multicast groups that it has joined.
    groups: HashSet<IpAddr>,
}

/// The contents of an event channel.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    pub(crate) id: Arc<Id>,
    /// The listener of a Request.
    pub(crate) listener: Option<Arc<Id>>,
    pub(crate) status: i32,
    /// Padded; empty: none.
    pub(crate) private: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) alias: u32,
    /// Of port space UDP: where datagrams go.
    pub(crate) service: Option<Service>,
    /// A group that was joined.
    pub(crate) joined: Option<Joined>,
}

/// A multicast group that an id has joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) group: IpAddr,
    /// The id's queue pair is to be attached to it.
    pub(crate) attaches: bool,
    /// The program's pointer.
    pub(crate) user_context: usize,
}

static IDS: Mutex<Option<Aliases>> = Mutex::new(None);

/// Connections by the numbers that stand for their peers' queue pairs.
#[derive(Debug, Default)]
struct Aliases {
    last: u32,
    ids: HashMap<u32, Weak<Id>>,
}

fn aliases<T>(work: impl FnOnce(&mut Aliases) -> T) -> T {
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    work(ids.get_or_insert_with(Aliases::default))
}

fn new_alias(id: &Arc<Id>) -> u32 {
    aliases(|all| {
        loop {
            all.last = all.last % (ALIASES - 1) + 1;
            if all.ids.get(&all.last).is_none_or(|id| id.strong_count() == 0) {
                all.ids.insert(all.last, Arc::downgrade(id));
                return all.last;
            }
        }
    })
}

/// A queue pair goes to RTR with the alias of a connection as its destination (Verbs V128).
pub(crate) fn join(queue_pair: &Arc<QueuePair>, alias: u32) -> Result {
    let id = aliases(|all| all.ids.get(&alias).and_then(Weak::upgrade)).ok_or(Errno::EINVAL)?;
    let mut inner = id.lock();
    let connector = inner.connector.clone().ok_or(Errno::EINVAL)?;
    if inner.accepted || inner.state != State::Requested {
        drop(inner);
        connector.join(&queue_pair.engine)?;
        inner = id.lock();
    }
    inner.joined = Arc::downgrade(queue_pair);
    Ok(())
}

/// A queue pair leaves its connection; the connection stays until its id ends it.
pub(crate) fn leave(_queue_pair: &QueuePair) {}

pub(crate) fn padded(mut data: Vec<u8>, length: usize) -> Vec<u8> {
    data.resize(length.max(data.len()), 0);
    data.truncate(length);
    data
}

impl Id {
    /// An id; `datagrams`: of port space UDP.
    pub(crate) fn new(
        context: &Arc<Context>,
        channel: &Arc<Channel<Event>>,
        datagrams: bool,
    ) -> Arc<Id> {
        Arc::new(Id {
            address: AtomicUsize::new(0),
            context: context.clone(),
            events: Acknowledged::default(),
            inner: Mutex::new(Inner {
                state: State::Idle,
                channel: channel.clone(),
                local: None,
                peer: None,
                one_family: false,
                ack_timeout: 18,
                parameters: Parameters::default(),
                port: None,
                connector: None,
                datagrams: datagrams.then(Datagrams::default),
                joined: Weak::new(),
                accepted: false,
                alias: 0,
                over: false,
                user_context: 0,
                groups: HashSet::new(),
            }),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raise an event.
    pub(crate) fn raise(self: &Arc<Id>, kind: u32, status: i32, private: Vec<u8>) {
        self.push(Event { status, private, ..self.event(kind) });
    }

    /// An event of the id's, without private data.
    pub(crate) fn event(self: &Arc<Id>, kind: u32) -> Event {
        let inner = self.lock();
        Event {
            kind,
            id: self.clone(),
            listener: None,
            status: 0,
            private: Vec::new(),
            responder_resources: inner.parameters.responder_resources,
            initiator_depth: inner.parameters.initiator_depth,
            alias: inner.alias,
            service: None,
            joined: None,
        }
    }

    pub(crate) fn push(&self, event: Event) {
        self.lock().channel.push(event);
    }

    /// Whether it is of port space UDP.
    pub(crate) fn is_datagrams(&self) -> bool {
        self.lock().datagrams.is_some()
    }

    // ---- addresses ------------------------------------------------------------------------------

    /// Take an address and a port (0: any) of this host.
    pub(crate) fn bind(self: &Arc<Id>, address: SocketAddr) -> Result {
        let mut inner = self.lock();
        if inner.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        self.take_port(&mut inner, address)?;
        inner.state = State::Bound;
        Ok(())
    }

    fn take_port(self: &Arc<Id>, inner: &mut Inner, address: SocketAddr) -> Result {
        let adapter = &self.context.adapter;
        let any = address.ip().is_unspecified();
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        if let Some(part) = &mut inner.datagrams {
            let first = if any && !inner.one_family { both } else { address };
            let taken = resolution::take_port(self, part, first)
                .or_else(|_| resolution::take_port(self, part, address))?;
            inner.local = Some(SocketAddr::new(address.ip(), taken.port()));
            return Ok(());
        }
        let listener = if any && !inner.one_family {
            adapter.listener(both).or_else(|_| adapter.listener(address))?
        } else if inner.one_family {
            adapter.listener_of_one_family(address)?
        } else {
            adapter.listener(address)?
        };
        let port = listener.address()?.port();
        inner.port = Some(Arc::new(listener));
        inner.local = Some(SocketAddr::new(address.ip(), port));
        Ok(())
    }

    /// Choose the way to a peer: ADDR_RESOLVED or ADDR_ERROR.
    pub(crate) fn resolve_address(
        self: &Arc<Id>,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Idle | State::Bound) {
            return Err(Errno::EINVAL);
        }
        let bound = inner.local.filter(|local| !local.ip().is_unspecified());
        let chosen = match source.filter(|s| !s.ip().is_unspecified()).or(bound) {
            Some(source) => Ok(source),
            None => raw::Adapter::route_to(peer).map(|ip| SocketAddr::new(ip, 0)),
        };
        let taken = chosen.map_err(Errno::from).and_then(|chosen| {
            let bound = inner.datagrams.as_ref().is_some_and(Datagrams::is_bound);
            if inner.port.is_none() && !bound {
                return self.take_port(&mut inner, chosen);
            }
            let port = inner.local.map_or(0, |local| local.port());
            inner.local = Some(SocketAddr::new(chosen.ip(), port));
            Ok(())
        });
        match taken {
            Ok(()) => {
                inner.peer = Some(peer);
                inner.state = State::AddressResolved;
                drop(inner);
                self.raise(cm_event::ADDR_RESOLVED, 0, Vec::new());
                Ok(())
            }
            // The addresses that the caller named.
            Err(error) if source.is_some() => Err(error),
            Err(error) => {
                drop(inner);
                self.raise(cm_event::ADDR_ERROR, -error.0, Vec::new());
                Ok(())
            }
        }
    }

    pub(crate) fn resolve_route(self: &Arc<Id>) -> Result {
        let mut inner = self.lock();
        if inner.state != State::AddressResolved {
            return Err(Errno::EINVAL);
        }
        inner.state = State::RouteResolved;
        drop(inner);
        self.raise(cm_event::ROUTE_RESOLVED, 0, Vec::new());
        Ok(())
    }

    // ---- the passive side -----------------------------------------------------------------------

    pub(crate) fn listen(self: &Arc<Id>, backlog: usize) -> Result {
        let mut inner = self.lock();
        if inner.state == State::Idle {
            let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
            self.take_port(&mut inner, any)?;
        } else if inner.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        if inner.datagrams.is_some() {
            inner.state = State::Listening;
            return Ok(());
        }
        let port = inner.port.clone().ok_or(Errno::EINVAL)?;
        port.listen(backlog)?;
        inner.state = State::Listening;
        drop(inner);
        requests::serve(&Arc::downgrade(self), &port)
    }

    /// A peer asks.
    fn request(self: &Arc<Id>, connector: raw::Connector) {
        let channel = self.lock().channel.clone();
        let id = Id::new(&self.context, &channel, false);
        let alias = new_alias(&id);
        let private = padded(connector.private_data().unwrap_or_default(), CONNECT_DATA);
        let offered = connector.read_limits().unwrap_or_default();
        let byte = |number: u32| u8::try_from(number.min(limits::READS)).unwrap_or(0);
        let (peer, local) = (connector.peer().ok(), connector.local().ok());
        let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        {
            let mut inner = id.lock();
            inner.state = State::Requested;
            inner.peer = peer.map(canonical);
            inner.local = local.map(canonical);
            inner.alias = alias;
            inner.connector = Some(Arc::new(connector));
            inner.user_context = self.lock().user_context;
        }
        channel.push(Event {
            kind: cm_event::CONNECT_REQUEST,
            id,
            listener: Some(self.clone()),
            status: 0,
            private,
            responder_resources: byte(offered.inbound),
            initiator_depth: byte(offered.outbound),
            alias,
            service: None,
            joined: None,
        });
    }

    /// A peer asks for the service of a listening id.
    pub(crate) fn requested_service(
        self: &Arc<Id>,
        question: Question,
        (local, peer): (IpAddr, SocketAddr),
        private: Vec<u8>,
    ) {
        let (channel, user_context, port) = {
            let inner = self.lock();
            let port = inner.local.map_or(0, |local| local.port());
            (inner.channel.clone(), inner.user_context, port)
        };
        let id = Id::new(&self.context, &channel, true);
        {
            let mut inner = id.lock();
            inner.state = State::Requested;
            inner.peer = Some(peer);
            inner.local = Some(SocketAddr::new(local, port));
            inner.user_context = user_context;
            inner.datagrams = Some(Datagrams::asked(question));
        }
        let event = id.event(cm_event::CONNECT_REQUEST);
        channel.push(Event { listener: Some(self.clone()), private, ..event });
    }

    /// Accept a question for the service: datagrams go to the queue pair `number`.
    pub(crate) fn accept_service(&self, number: u32, private: &[u8]) -> Result {
        let question = {
            let mut inner = self.lock();
            let part = inner.datagrams.as_mut().ok_or(Errno::EINVAL)?;
            let question = part.take_question().ok_or(Errno::EINVAL)?;
            inner.state = State::Established;
            question
        };
        question.accept(number, private);
        Ok(())
    }

    /// Accept, with the queue pair that is to have the connection if there is one.
    pub(crate) fn accept(
        self: &Arc<Id>,
        queue_pair: Option<&Arc<QueuePair>>,
        parameters: Parameters,
        private: &[u8],
    ) -> Result {
        let (connector, joined) = {
            let mut inner = self.lock();
            if inner.state != State::Requested {
                return Err(Errno::EINVAL);
            }
            inner.parameters = parameters;
            (inner.connector.clone().ok_or(Errno::EINVAL)?, inner.joined.upgrade())
        };
        if let Some(queue_pair) = queue_pair {
            self.move_to(queue_pair, qps::RTS)?;
        }
        let joined = queue_pair.cloned().or(joined);
        let later = Arc::downgrade(self);
        let sink = raw::Sink::call(move |status| {
            if let Some(id) = later.upgrade() {
                id.completed(status);
            }
        });
        {
            let mut inner = self.lock();
            inner.state = State::Accepting;
            inner.accepted = true;
            if let Some(joined) = &joined {
                inner.joined = Arc::downgrade(joined);
            }
        }
        let engine = joined.as_ref().map(|joined| &joined.engine);
        let accepted = connector.accept(engine, parameters.limits(), private, sink);
        accepted.inspect_err(|_| self.lock().state = State::Disconnected)?;
        Ok(())
    }

    /// The peer has completed the connection, or has not.
    fn completed(self: &Arc<Id>, status: Status) {
        if status == Status::Success {
            self.established();
            self.raise(cm_event::ESTABLISHED, 0, Vec::new());
            self.watch();
        } else if status != Status::Canceled {
            self.lock().state = State::Disconnected;
            self.raise(cm_event::CONNECT_ERROR, -Errno::from(status).0, Vec::new());
        }
    }

    fn established(&self) {
        self.lock().state = State::Established;
    }

    /// Raise an event when the peer leaves.
    fn watch(self: &Arc<Id>) {
        let Some(connector) = self.lock().connector.clone() else { return };
        let later = Arc::downgrade(self);
        let sink = raw::Sink::call(move |_| {
            if let Some(id) = later.upgrade() {
                id.over();
            }
        });
        if connector.notify_disconnect(sink).is_err() {
            self.over();
        }
    }

    /// DISCONNECTED, once; TIMEWAIT_EXIT later.
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
        let later = Arc::downgrade(self);
        timers::after(TIMEWAIT, move || {
            if let Some(id) = later.upgrade().filter(|id| !id.lock().is_destroyed()) {
                id.raise(cm_event::TIMEWAIT_EXIT, 0, Vec::new());
            }
        });
    }

    pub(crate) fn reject(&self, private: &[u8]) -> Result {
        let connector = {
            let mut inner = self.lock();
            if !matches!(inner.state, State::Requested | State::Responded) {
                return Err(Errno::EINVAL);
            }
            inner.state = State::Disconnected;
            if let Some(question) = inner.datagrams.as_mut().and_then(Datagrams::take_question) {
                drop(inner);
                question.reject(private);
                return Ok(());
            }
            inner.connector.take().ok_or(Errno::EINVAL)?
        };
        Ok(connector.reject(private)?)
    }

    // ---- the active side ------------------------------------------------------------------------

    /// Begin to connect: ESTABLISHED or CONNECT_RESPONSE, or why not.
    pub(crate) fn connect(
        self: &Arc<Id>,
        queue_pair: Option<&Arc<QueuePair>>,
        parameters: Parameters,
        private: &[u8],
    ) -> Result {
        {
            let mut inner = self.lock();
            if !matches!(inner.state, State::RouteResolved | State::AddressResolved) {
                return Err(Errno::EINVAL);
            }
            inner.state = State::Connecting;
            inner.parameters = parameters;
            inner.joined = queue_pair.map(Arc::downgrade).unwrap_or_default();
            if inner.datagrams.is_some() {
                drop(inner);
                return resolution::ask(self, private);
            }
            // The port is held until the peer has answered: between two attempts it is nobody else's.
            if inner.alias == 0 {
                inner.alias = new_alias(self);
            }
        }
        self.dial(private.into(), Instant::now());
        Ok(())
    }

    fn dial(self: &Arc<Id>, private: Arc<[u8]>, since: Instant) {
        let (local, peer, limits) = {
            let inner = self.lock();
            let (Some(local), Some(peer)) = (inner.local, inner.peer) else { return };
            if inner.state != State::Connecting {
                return;
            }
            (local, peer, inner.parameters.limits())
        };
        let connector = match self.context.adapter.connector() {
            Ok(connector) => Arc::new(connector),
            Err(error) => return self.failed(error.status, Vec::new()),
        };
        self.lock().connector = Some(connector.clone());
        let (later, of, data) = (Arc::downgrade(self), Arc::downgrade(&connector), private.clone());
        let sink = raw::Sink::call(move |status| {
            if let (Some(id), Some(connector)) = (later.upgrade(), of.upgrade()) {
                id.answered(&connector, status, data, since);
            }
        });
        let begun = connector
            .bind(local)
            .and_then(|()| connector.connect(None, peer, limits, &private, sink));
        if let Err(error) = begun {
            self.failed(error.status, Vec::new());
        }
    }

    /// The peer has answered a Connect, or there is none.
    fn answered(
        self: &Arc<Id>,
        connector: &Arc<raw::Connector>,
        status: Status,
        private: Arc<[u8]>,
        since: Instant,
    ) {
        if status == Status::Success {
            let answer = padded(connector.private_data().unwrap_or_default(), ACCEPT_DATA);
            let limits = connector.read_limits().unwrap_or_default();
            let byte = |number: u32| u8::try_from(number.min(limits::READS)).unwrap_or(0);
            let own = {
                let mut inner = self.lock();
                inner.port = None; // the connection has it
                inner.state = State::Responded;
                inner.parameters.responder_resources = byte(limits.inbound);
                inner.parameters.initiator_depth = byte(limits.outbound);
                inner.joined.strong_count() > 0
            };
            let kind = if own { cm_event::ESTABLISHED } else { cm_event::CONNECT_RESPONSE };
            return self.raise(kind, 0, answer);
        }
        if status == Status::Canceled {
            return;
        }
        let refusal = connector.private_data().ok();
        // A rejection ends no connection, and may come without private data.
        let nobody = matches!(connector.ended(), Some(EndReason::Link(_)));
        if status == Status::ConnectionRefused && nobody {
            if since.elapsed() < PERSISTENCE {
                let later = Arc::downgrade(self);
                return timers::after(PAUSE, move || {
                    if let Some(id) = later.upgrade() {
                        id.dial(private, since);
                    }
                });
            }
            return self.rejected(NO_LISTENER, Vec::new());
        }
        if status == Status::ConnectionRefused {
            return self.rejected(REJECTED_BY_PROGRAM, refusal.unwrap_or_default());
        }
        self.failed(status, Vec::new());
    }

    fn rejected(self: &Arc<Id>, status: i32, private: Vec<u8>) {
        let joined = {
            let mut inner = self.lock();
            inner.state = State::Disconnected;
            inner.joined.upgrade()
        };
        if let Some(joined) = joined {
            joined.fail();
        }
        self.raise(cm_event::REJECTED, status, padded(private, REJECT_DATA));
    }

    fn failed(self: &Arc<Id>, status: Status, private: Vec<u8>) {
        self.lock().state = State::Disconnected;
        self.raise(cm_event::UNREACHABLE, -Errno::from(status).0, private);
    }

    /// The event ESTABLISHED of the active side is being fetched: now the queue pair moves, and the
    /// peer gets its last message. The event becomes CONNECT_ERROR if that fails.
    pub(crate) fn take_up(self: &Arc<Id>) -> Result {
        let queue_pair = self.lock().joined.upgrade();
        if let Some(queue_pair) = &queue_pair {
            self.move_to(queue_pair, qps::RTS)?;
        }
        self.complete()
    }

    /// Tell the peer that the connection stands.
    fn complete(self: &Arc<Id>) -> Result {
        let connector = self.lock().connector.clone().ok_or(Errno::EINVAL)?;
        connector.complete_connect()?;
        self.established();
        self.watch();
        Ok(())
    }

    /// `rdma_establish`: the active side without a queue pair of the id's.
    pub(crate) fn establish(self: &Arc<Id>) -> Result {
        if self.lock().state != State::Responded {
            return Err(Errno::EINVAL);
        }
        self.complete()
    }

    // ---- multicast groups -----------------------------------------------------------------------

    /// Join a multicast group. The event brings what an address handle is made of; with it the id's queue
    /// pair is attached (Verbs V136).
    pub(crate) fn join_group(self: &Arc<Id>, joined: Joined) -> Result {
        let local = {
            let mut inner = self.lock();
            let local = inner.local.filter(|_| inner.datagrams.is_some()).ok_or(Errno::EINVAL)?;
            if !inner.groups.insert(joined.group) {
                return Err(Errno::EADDRINUSE);
            }
            local
        };
        let attr = self.address_attributes(local.ip(), joined.group);
        let service = Service { attr, number: group::NUMBER, key: resolution::KEY };
        let event = self.event(cm_event::MULTICAST_JOIN);
        self.push(Event { service: Some(service), joined: Some(joined), ..event });
        Ok(())
    }

    /// Leave a group: `EADDRNOTAVAIL` if the id has not joined it. An event that waits goes.
    pub(crate) fn leave_group(self: &Arc<Id>, group: IpAddr) -> Result {
        let channel = {
            let mut inner = self.lock();
            if !inner.groups.remove(&group) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            inner.channel.clone()
        };
        let about = |event: &Event| {
            Arc::ptr_eq(&event.id, self) && event.joined.is_some_and(|joined| joined.group == group)
        };
        drop(channel.take_back(about));
        Ok(())
    }

    // ---- queue pairs ----------------------------------------------------------------------------

    /// The attributes of the way to a peer.
    pub(crate) fn address_attributes(&self, local: IpAddr, peer: IpAddr) -> ibv_ah_attr {
        let index = self.context.index_of(local).unwrap_or(0);
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: crate::abi::gid_words(gid::bytes_of(peer)),
                sgid_index: u8::try_from(index).unwrap_or(0),
                hop_limit: 64,
                ..ibv_global_route::default()
            },
            is_global: 1,
            port_num: 1,
            ..ibv_ah_attr::default()
        }
    }

    /// The attributes by which a queue pair goes to a state (Verbs V127).
    pub(crate) fn attributes(&self, state: u32) -> Result<(ibv_qp_attr, u32)> {
        let inner = self.lock();
        let mut attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        if inner.datagrams.is_some() {
            (attr.port_num, attr.qkey) = (1, resolution::KEY);
            let mask = match state {
                qps::INIT => mask::PKEY_INDEX | mask::PORT | mask::QKEY,
                qps::RTR => 0,
                qps::RTS => mask::SQ_PSN,
                _ => return Err(Errno::EINVAL),
            };
            return Ok((attr, mask | mask::STATE));
        }
        let mask = match state {
            qps::INIT => {
                attr.port_num = 1;
                let connected = inner.connector.is_some() && inner.state != State::Connecting;
                if connected || inner.state == State::Requested {
                    attr.qp_access_flags = access::REMOTE_WRITE;
                    if inner.parameters.responder_resources > 0 {
                        attr.qp_access_flags |= access::REMOTE_READ | access::REMOTE_ATOMIC;
                    }
                }
                mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS
            }
            qps::RTR => {
                let (local, peer) =
                    (inner.local.ok_or(Errno::EINVAL)?, inner.peer.ok_or(Errno::EINVAL)?);
                attr.ah_attr = self.address_attributes(local.ip(), peer.ip());
                attr.path_mtu = crate::environment::mtu();
                attr.dest_qp_num = inner.alias;
                attr.max_dest_rd_atomic = inner.parameters.responder_resources;
                mask::AV
                    | mask::PATH_MTU
                    | mask::DEST_QPN
                    | mask::RQ_PSN
                    | mask::MAX_DEST_RD_ATOMIC
                    | mask::MIN_RNR_TIMER
            }
            qps::RTS => {
                attr.timeout = inner.ack_timeout;
                attr.retry_cnt = inner.parameters.retry_count;
                attr.rnr_retry = inner.parameters.rnr_retry_count;
                attr.max_rd_atomic = inner.parameters.initiator_depth;
                mask::TIMEOUT
                    | mask::RETRY_CNT
                    | mask::RNR_RETRY
                    | mask::SQ_PSN
                    | mask::MAX_QP_RD_ATOMIC
            }
            _ => return Err(Errno::EINVAL),
        };
        Ok((attr, mask | mask::STATE))
    }

    /// Move a queue pair up to a state.
    pub(crate) fn move_to(&self, queue_pair: &Arc<QueuePair>, to: u32) -> Result {
        for state in [qps::INIT, qps::RTR, qps::RTS].into_iter().filter(|state| *state <= to) {
            if state == qps::INIT && queue_pair.state() > qps::INIT {
                continue;
            }
            let (attr, mask) = self.attributes(state)?;
            queue_pair.modify(&attr, mask)?;
        }
        Ok(())
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// End the connection in order; the queue pair is flushed.
    pub(crate) fn disconnect(self: &Arc<Id>, queue_pair: Option<&Arc<QueuePair>>) -> Result {
        let connector = {
            let inner = self.lock();
            match inner.state {
                // A service has no connection that could end.
                _ if inner.datagrams.is_some() => return Err(Errno::EINVAL),
                State::Disconnected => None,
                State::Established | State::Accepting | State::Responded => inner.connector.clone(),
                _ => return Err(Errno::EINVAL),
            }
        };
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
        Ok(())
    }

    /// The program destroys the id: unfetched events go, fetched ones are waited for.
    pub(crate) fn destroy(self: &Arc<Id>) {
        let (channel, alias, gone) = {
            let mut inner = self.lock();
            inner.over = true;
            inner.state = State::Disconnected;
            let gone = (inner.port.take(), inner.connector.take(), inner.datagrams.take());
            (inner.channel.clone(), inner.alias, gone)
        };
        drop(gone); // disconnects, or rejects, or refuses
        aliases(|all| all.ids.remove(&alias));
        let about = |event: &Event| {
            Arc::ptr_eq(&event.id, self)
                || event.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, self))
        };
        let dropped = channel.take_back(about);
        drop(dropped); // requests that no program has seen are rejected with their ids
        self.events.wait();
    }

    /// The id's events go to another channel from now on, those that wait, too (Verbs V118).
    pub(crate) fn migrate(self: &Arc<Id>, to: &Arc<Channel<Event>>) {
        let from = std::mem::replace(&mut self.lock().channel, to.clone());
        let about = |event: &Event| {
            let owner = event.listener.as_ref().unwrap_or(&event.id);
            Arc::ptr_eq(owner, self)
        };
        for event in from.take_back(about) {
            to.push(event);
        }
        self.events.wait();
    }
}

impl Inner {
    fn is_destroyed(&self) -> bool {
        self.connector.is_none()
    }
}

impl Passive for Id {
    fn adapter(&self) -> &raw::Adapter {
        &self.context.adapter
    }

    fn requested(self: &Arc<Id>, connector: raw::Connector) {
        self.request(connector);
    }
}

/// The event's number of the program's structure of an id, if it has one.
pub(crate) fn address_of(id: &Id) -> usize {
    id.address.load(Ordering::Acquire)
}
