//! The connection manager: ids, their connections, their events (verbs 10).
//!
//! A connection of port space TCP is one of the engine, so that any iWARP peer can be at its other end.

mod active;
mod address;
mod alias;
mod attributes;
mod backlog;
mod end;
mod group;
mod passive;
mod plain;
mod port;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_engine::raw;
use transom_wire::ReadLimits;

pub(crate) use alias::{is_alias, join, shown, standing_for};
use backlog::Backlog;
pub(crate) use group::Joined;
pub(crate) use passive::Place;
pub(crate) use port::{Claim, DatagramPort};

use crate::channel::{Acknowledged, Channel};
use crate::context::Context;
use crate::kind::kind;
use crate::limits;
use crate::queue_pair::QueuePair;
use crate::resolution::{Datagrams, Service};

/// Bytes of private data that programs may send, and that they find (Verbs V125): zeros behind what came,
/// but for iWARP, which has its length.
pub(crate) const CONNECT_DATA: usize = 56;
pub(crate) const ACCEPT_DATA: usize = 196;
pub(crate) const REJECT_DATA: usize = 148;
/// The status of REJECTED by the program (Verbs V124), but for iWARP.
pub(crate) const REJECTED_BY_PROGRAM: i32 = 28;

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
    /// The queue pair that the program has named, where the id has none; 0: none.
    pub(crate) number: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        let most = limits::READS as u8;
        Parameters {
            responder_resources: most,
            initiator_depth: most,
            retry_count: 7,
            rnr_retry_count: 7,
            number: 0,
        }
    }
}

/// Counts of retries, as they go to the queue pair at the other end of the connection (rdma_connect(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    pub(crate) retry: u8,
    pub(crate) rnr: u8,
}

/// The word of this front that goes to a peer which is a Transom, with a request or an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    retries: Retries,
    /// The number of the queue pair that is to have the connection; 0: the program has named none.
    number: u32,
}

impl Word {
    fn to_bits(self) -> u32 {
        let Retries { retry, rnr } = self.retries;
        u32::from(retry & 7) | u32::from(rnr & 7) << 3 | self.number << 8
    }

    fn from_bits(bits: u32) -> Word {
        let three = |at: u32| (bits >> at & 7) as u8;
        Word { retries: Retries { retry: three(0), rnr: three(3) }, number: bits >> 8 }
    }
}

impl Parameters {
    fn retries(self) -> Retries {
        Retries { retry: self.retry_count, rnr: self.rnr_retry_count }
    }

    /// The word that goes to the peer, from an id that is to have this queue pair.
    fn word(self, queue_pair: Option<&QueuePair>) -> Word {
        let number = queue_pair.map_or(self.number, |queue_pair| queue_pair.number);
        Word { retries: self.retries(), number }
    }

    fn limits(self) -> ReadLimits {
        ReadLimits {
            inbound: self.responder_resources.into(),
            outbound: self.initiator_depth.into(),
        }
    }
}

/// The opened devices that ids may be on.
#[derive(Debug)]
pub(crate) struct Devices {
    first: Arc<Context>,
    others: Vec<Arc<Context>>,
}

impl Devices {
    pub(crate) fn new(first: Arc<Context>, others: Vec<Arc<Context>>) -> Arc<Devices> {
        Arc::new(Devices { first, others })
    }

    pub(crate) fn first(&self) -> &Arc<Context> {
        &self.first
    }

    fn get(&self, number: usize) -> &Arc<Context> {
        number.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    /// The number of the device that has an address; the first one's for an address of none.
    fn of_address(&self, local: IpAddr) -> usize {
        let has = |context: &Arc<Context>| context.index_of(local).is_some();
        let other = if has(&self.first) { None } else { self.others.iter().position(has) };
        other.map_or(0, |other| other + 1)
    }
}

/// A communication identifier.
#[derive(Debug)]
pub(crate) struct Id {
    /// Where the program's structure is; 0 until its event is fetched.
    pub(crate) address: AtomicUsize,
    devices: Arc<Devices>,
    /// The number of the device that it is on, among these.
    device: AtomicUsize,
    pub(crate) events: Acknowledged,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) channel: Arc<Channel<Event>>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    one_family: bool,
    /// How its port may be shared with other ids.
    claim: Claim,
    ack_timeout: u8,
    pub(crate) traffic_class: u8,
    pub(crate) parameters: Parameters,
    /// The word of the peer's front, where it has come with its request or acceptance.
    peer_word: Option<Word>,
    /// A listener's: Requests that wait for the program as events (Verbs V131).
    backlog: Backlog,
    /// The id's port, which takes Requests once the id listens.
    port: Option<port::Port>,
    connector: Option<Arc<raw::Connector>>,
    /// The part of an id of port space UDP; `None`: of port space TCP.
    pub(crate) datagrams: Option<Datagrams>,
    /// The queue pair that has taken over the connection, or is to.
    joined: Weak<QueuePair>,
    /// That queue pair is the id's; any other is the program's, which moves it by itself.
    own: bool,
    accepted: bool,
    alias: u32,
    /// The peer is no Transom, as far as that was asked.
    plain: bool,
    /// DISCONNECTED has been said.
    over: bool,
    /// TIMEWAIT_EXIT has been said, or is about to be.
    exits: bool,
    /// The program has fetched DISCONNECTED.
    end_fetched: bool,
    /// The program has destroyed the id: no event of it, or of a Request to it, comes any more.
    destroyed: bool,
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
    /// The counts of retries that are the receiver's.
    pub(crate) retries: Retries,
    /// The number of the peer's queue pair, as programs see it.
    pub(crate) number: u32,
    /// Of port space UDP: where datagrams go.
    pub(crate) service: Option<Service>,
    /// A group that was joined.
    pub(crate) joined: Option<Joined>,
    /// A Request's.
    #[allow(dead_code, reason = "held, not used")]
    pub(crate) place: Option<Place>,
}

impl Inner {
    /// The counts that an event shows: those of the peer, or the largest where they do not travel.
    fn shown_retries(&self) -> Retries {
        self.peer_word.map_or(Retries { retry: 7, rnr: 7 }, |word| word.retries)
    }

    /// The number of the peer's queue pair that the program sees: the one that the peer's program has named, or one
    /// that stands for it (Verbs V128).
    fn shown_number(&self) -> u32 {
        self.peer_word.map(|word| word.number).filter(|number| *number != 0).unwrap_or(self.alias)
    }
}

impl Event {
    /// The id whose end waits until the event is acknowledged.
    pub(crate) fn owner(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }
}

pub(crate) fn padded(mut data: Vec<u8>, length: usize) -> Vec<u8> {
    if kind().infiniband {
        data.resize(length.max(data.len()), 0);
    }
    data.truncate(length);
    data
}

impl Id {
    /// An id; `datagrams`: of port space UDP.
    pub(crate) fn new(
        devices: &Arc<Devices>,
        device: usize,
        channel: &Arc<Channel<Event>>,
        datagrams: bool,
    ) -> Arc<Id> {
        Arc::new(Id {
            address: AtomicUsize::new(0),
            devices: devices.clone(),
            device: AtomicUsize::new(device),
            events: Acknowledged::default(),
            inner: Mutex::new(Inner {
                state: State::Idle,
                channel: channel.clone(),
                local: None,
                peer: None,
                one_family: false,
                claim: Claim::Alone,
                ack_timeout: 18,
                traffic_class: 0,
                parameters: Parameters::default(),
                peer_word: None,
                backlog: Backlog::default(),
                port: None,
                connector: None,
                datagrams: datagrams.then(Datagrams::default),
                joined: Weak::new(),
                own: false,
                accepted: false,
                alias: 0,
                plain: false,
                over: false,
                exits: false,
                end_fetched: false,
                destroyed: false,
                user_context: 0,
                groups: HashSet::new(),
            }),
        })
    }

    /// The device that it is on: the first one until it has an address of another one.
    pub(crate) fn context(&self) -> &Arc<Context> {
        self.devices.get(self.device())
    }

    /// The number of that device.
    pub(crate) fn device(&self) -> usize {
        self.device.load(Ordering::Relaxed)
    }

    /// An id of the same device, for a request of a peer's.
    fn beside(&self, channel: &Arc<Channel<Event>>, datagrams: bool) -> Arc<Id> {
        Id::new(&self.devices, self.device(), channel, datagrams)
    }

    /// Move to the device that has an address, before anything was made on another one.
    fn choose_device(&self, local: IpAddr) {
        let number = self.devices.of_address(local);
        self.device.store(number, Ordering::Relaxed);
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
            retries: inner.shown_retries(),
            number: inner.shown_number(),
            service: None,
            joined: None,
            place: None,
        }
    }

    /// Put an event of this id, or of a Request to it, into the channel. The program has freed the
    /// structure of an id that it has destroyed, so that an event may not name it.
    pub(crate) fn push(&self, event: Event) {
        let late = {
            let inner = self.lock();
            if inner.destroyed {
                Some(event)
            } else {
                inner.channel.push(event);
                None
            }
        };
        drop(late); // rejects a Request, with no lock held
    }

    /// Whether it is of port space UDP.
    pub(crate) fn is_datagrams(&self) -> bool {
        self.lock().datagrams.is_some()
    }

    /// The queue pair that has taken over the connection, or is to.
    pub(crate) fn joined(&self) -> Option<Arc<QueuePair>> {
        self.lock().joined.upgrade()
    }

    fn established(&self) {
        self.lock().state = State::Established;
        plain::compare_kinds(self);
    }

    /// The id's events go to another channel from now on, those that wait, too (Verbs V118).
    pub(crate) fn migrate(self: &Arc<Id>, to: &Arc<Channel<Event>>) {
        let from = std::mem::replace(&mut self.lock().channel, to.clone());
        for event in from.take_back(|event| Arc::ptr_eq(event.owner(), self)) {
            if event.listener.is_some() {
                event.id.lock().channel = to.clone();
            }
            to.push(event);
        }
        self.events.wait();
    }
}

/// The event's number of the program's structure of an id, if it has one.
pub(crate) fn address_of(id: &Id) -> usize {
    id.address.load(Ordering::Acquire)
}
