//! The upgrade of a TCP connection between two processes of one host to shared memory.
//!
//! The TCP connection is made as always, so that ports, addresses, listeners and backlogs are the same
//! on every path. Beside its port, a listener has an *upgrade socket*: an abstract Unix socket named after
//! its address, in the same network namespace. An active side that finds one there, opened by the same
//! user (SO_PEERCRED), says a random nonce, and says on the TCP connection which nonce it was. A passive
//! side that knows the nonce, from a process of the same user, has both ends proven: it hands over a
//! sealed memfd and answers yes, and start-up goes on in the rings. In every other case start-up goes on
//! over TCP, as if nothing had been.
//!
//! Each side lets descriptors through to its Unix socket only once it knows that the other one is of the same
//! user: any user may come to an upgrade socket, or have one where another user's is looked for.
//!
//! The Unix socket stays: it wakes a side that sleeps, and its end is the end of the peer. The TCP
//! connection stays, too, but is not read any more.
//!
//! A peer that is not Transom has no socket, and sees no byte of this.
//!
//! The messages, and the rules by which a side is believed, are in `transom_process::upgrade`,
//! without sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_process::Channel;
use transom_process::upgrade::{
    Answer, Nonce, Offerer, Opening, PeerUser, PendingOffers, QUESTION, UpgradeOffer, question,
};
use transom_wire::{Config, ReadLimits, Role};

use super::carrier::{Carrier, Offered, PendingUpgrade, Stage};
use super::rings::Rings;
use super::{Link, LinkState};
use crate::driver::config::options::{Options, status_of};
use crate::driver::config::path::{Path, PathReason, Place};
use crate::driver::limits::admission::Starting;
use crate::driver::limits::descriptors::{DescriptorShare, HeldDescriptor, part};
use crate::sys::{self, IoError, Local, LocalListener, Region, kill_point};
use crate::{Cx, LinkEnd, Status};

/// How long the Request of a proven peer may take. The end of its process is seen, so that nothing is waited for
/// but its turn on a busy machine.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);
/// Offers that are accepted for each new connection, and for each question: any user can make as many as the system
/// keeps (1024), again and again, and established links wait meanwhile.
const MOST_OF_CONNECTION: usize = 16;
const MOST_OF_QUESTION: usize = 64;

fn name(address: SocketAddr) -> String {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    format!("transom/process/{address}")
}

impl Offerer for Local {
    fn who(&self) -> PeerUser {
        match self.user() {
            None => PeerUser::Unknown,
            Some(user) if sys::is_our_user(user) => PeerUser::SameUser,
            Some(_) => PeerUser::OtherUser,
        }
    }

    fn receive(&self, into: &mut [u8]) -> Option<usize> {
        match self.receive_handover(into) {
            Err(IoError::NotNow) => None,
            Ok((count, None)) => Some(count),
            // A descriptor is no part of an offer.
            Ok((_, Some(_))) | Err(_) => Some(0),
        }
    }
}

/// A process at the upgrade socket.
#[derive(Debug)]
struct Visitor {
    local: Local,
    #[expect(dead_code, reason = "held, not read")]
    held: HeldDescriptor,
}

impl Offerer for Visitor {
    fn who(&self) -> PeerUser {
        self.local.who()
    }

    fn receive(&self, into: &mut [u8]) -> Option<usize> {
        self.local.receive(into)
    }
}

/// The upgrade socket of a listener, and the offers made there. `None` once it is closed: the name is
/// free when [`UpgradeListener::close`] returns.
#[derive(Debug)]
pub(crate) struct UpgradeListener(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    socket: LocalListener,
    pending: PendingOffers<Visitor>,
    share: DescriptorShare,
}

impl UpgradeListener {
    /// An upgrade socket beside the port at `address`, if the path is wanted and the name is free.
    pub(crate) fn open(
        address: SocketAddr,
        options: &Options,
    ) -> Result<UpgradeListener, PathReason> {
        if let Some(reason) = options.tcp_only() {
            return Err(reason);
        }
        match LocalListener::open(&name(address)) {
            Ok(socket) => {
                let pending = PendingOffers::new(options.other_users);
                let share = DescriptorShare::default();
                Ok(UpgradeListener(Mutex::new(Some(Open { socket, pending, share }))))
            }
            Err(IoError::InUse) => Err(PathReason::UpgradeNameTaken),
            Err(_) => Err(PathReason::System),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accept what was offered. Done with each connection, so that processes that may not share do
    /// not take the places of those that may.
    pub(crate) fn accept_offers(&self) {
        if let Some(open) = &mut *self.lock() {
            open.accept(false, MOST_OF_CONNECTION);
        }
    }

    /// The process that has made its offer under this nonce. Peers ask in the order of their offers, so that those that
    /// wait longest are claimed next, and make room for others only where the offer is not among them.
    fn claim(&self, nonce: &Nonce) -> Option<Local> {
        let mut open = self.lock();
        let open = open.as_mut()?;
        open.accept(false, MOST_OF_QUESTION);
        if let Some(found) = open.pending.claim(nonce) {
            return Some(found.local);
        }
        open.accept(true, MOST_OF_QUESTION);
        open.pending.claim(nonce).map(|found| found.local)
    }

    /// No offer is taken any more.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }
}

impl Open {
    /// `all`: also where older ones have to make room.
    fn accept(&mut self, all: bool, most: usize) {
        let now = sys::recently();
        self.pending.tidy(now);
        self.pending.limit(self.share.most(part(8)));
        // Where there are more, a connection whose offer is behind them takes TCP.
        for _ in 0..most {
            if !all && !self.pending.has_room() {
                break;
            }
            // Any user may come, and leave what is slow to release. Peers stay with TCP then.
            if sys::is_behind() {
                break;
            }
            let Ok(local) = self.socket.accept() else { break };
            self.pending.add(Visitor { local, held: self.share.take() }, now);
        }
    }
}

/// Connect to the upgrade socket beside the port at `peer`, which is named after an address of its
/// listener's: that one, or all of its kind, or all.
fn connect_to_offer(peer: SocketAddr) -> Result<Local, PathReason> {
    if sys::is_behind() {
        return Err(PathReason::System);
    }
    let (all, port) = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), peer.port());
    let of_its_kind = match peer.ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => all,
    };
    for address in [peer, (of_its_kind, port).into(), (all, port).into()] {
        match Local::connect(&name(address)) {
            Ok(local) => return Ok(local),
            Err(IoError::Refused) => {}
            Err(IoError::NotNow) => return Err(PathReason::UpgradeListenerBusy),
            Err(_) => return Err(PathReason::System),
        }
    }
    Err(PathReason::NoUpgradeListener)
}

/// Passive: memory for this peer, which has it from now on. `None`: the system does not let this process share
/// memory, or the peer has gone.
fn hand_memory_over(local: &Local) -> Option<Region> {
    let (region, fd) = Region::create().ok()?;
    local.hand_over(&[0], &fd).ok()?;
    Some(region)
}

/// Active: the memory that the peer has handed over. `None`: there is none that is harmless, or the system does not
/// let this process have it.
fn receive_memory(offer: Offered) -> Option<(Region, Local, Place)> {
    let Offered { local, reserved, place } = offer;
    let region = Region::adopt(local.receive_at(reserved).ok()?).ok()?;
    Some((region, local, place))
}

impl Link {
    /// Active, when the TCP connection has come about: offer an upgrade and ask for it. The stage says how
    /// far that went.
    pub(crate) fn offer_upgrade(&self, state: &mut LinkState) {
        let is_due = |stage: &Stage| matches!(stage, Stage::Look(_));
        let Some(Stage::Look(request)) = state.carrier.take_stage(is_due) else { return };
        state.reason = match self.make_offer() {
            Ok((offer, nonce)) => {
                kill_point("offered, not asked");
                let question = question(&nonce);
                // A fresh connection has room for it; a broken one is noticed below.
                if self.stream.send(&question) == Ok(question.len()) {
                    kill_point("asked, not answered");
                    let offered = PendingUpgrade { request: *request, offer, heard: Vec::new() };
                    state.carrier = Carrier::tcp(Some(Stage::Offered(Box::new(offered))));
                }
                PathReason::Declined
            }
            Err(reason) => reason,
        };
    }

    fn make_offer(&self) -> Result<(Offered, Nonce), PathReason> {
        let options = &self.shared.options;
        let system = |_| PathReason::System;
        let here = self.stream.local().map_err(system)?;
        let (ours, theirs) = (here.ip().to_canonical(), self.peer.ip().to_canonical());
        let here = || theirs.is_loopback() || ours == theirs || sys::check_local(theirs).is_ok();
        if options.path != Path::Process && !here() {
            return Err(PathReason::Elsewhere);
        }
        let local = connect_to_offer(self.peer)?;
        if !local.who().may_share(options.other_users) {
            return Err(PathReason::OtherUser);
        }
        let place = self.shared.sharing.take(options.shared_links).ok_or(PathReason::Full)?;
        local.take_descriptors();
        let reserved = local.reserve_place().map_err(system)?;
        let seed = sys::random_seed().map_err(|_| PathReason::System)?;
        let nonce: Nonce = *seed.first_chunk().ok_or(PathReason::System)?;
        let offer = UpgradeOffer { nonce, others: options.other_users }.to_bytes();
        match local.send(&offer) {
            Ok(count) if count == offer.len() => {}
            // The listener has seen the user of this process, and has closed the socket already.
            Err(IoError::Reset) => return Err(PathReason::Declined),
            _ => return Err(PathReason::System),
        }
        Ok((Offered { local, reserved, place }, nonce))
    }

    /// Active: the answer, if it is here. `false`: it is not.
    pub(crate) fn read_answer(&self, state: &mut LinkState, cx: &mut Cx<'_>) -> bool {
        let Carrier::Upgrading(Stage::Offered(offered), _) = &mut state.carrier else {
            return true;
        };
        let heard = &mut offered.heard;
        let mut room = [0; Answer::LENGTH];
        let left = room.len() - heard.len().min(room.len());
        match self.stream.receive(room.get_mut(..left).unwrap_or_default()) {
            Ok(0) | Err(IoError::Reset) => {
                state.connection.link_closed(cx, LinkEnd::Closed);
                return false;
            }
            Ok(count) => heard.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(IoError::NotNow) => {}
            Err(e) => {
                let status = status_of(e);
                state.connection.link_closed(cx, LinkEnd::Failed(status));
                return false;
            }
        }
        let Some(answer) = heard.first_chunk().map(Answer::read) else { return false };
        let Some(Stage::Offered(offered)) = state.carrier.take_stage(|_| true) else { return true };
        let PendingUpgrade { request, offer, .. } = *offered;
        match answer {
            Answer::Yes => {
                let request = Some((request.limits, &*request.private));
                let Some(shared) = receive_memory(offer) else {
                    // The peer reads nothing but rings on this connection. The next attempt takes TCP.
                    state.connection.link_closed(cx, LinkEnd::Closed);
                    return false;
                };
                self.switch_to_shared_memory(state, cx, shared, Role::Active, request);
            }
            Answer::Full => state.reason = PathReason::PeerFull,
            Answer::No => state.reason = PathReason::Declined,
        }
        true
    }

    /// Passive: answer the first bytes. How many of them were for us; `None`: not enough to tell.
    pub(crate) fn answer_opening(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        bytes: &[u8],
    ) -> Option<usize> {
        let nonce = match Opening::read(bytes) {
            Opening::Unfinished => return None,
            Opening::StartUp => None,
            Opening::Question(nonce) => Some(nonce),
        };
        state.carrier.take_stage(|_| true);
        let Some(nonce) = nonce else { return Some(0) };
        let upgrades = self.owner().upgrade().and_then(|owner| owner.upgrades());
        let places = (&self.shared.sharing, self.shared.options.shared_links);
        let answer = match upgrades.and_then(|upgrades| upgrades.claim(&nonce)) {
            None => {
                state.reason = PathReason::NotHandedOver;
                Answer::No
            }
            Some(local) => match places.0.take(places.1) {
                Some(place) => match hand_memory_over(&local) {
                    Some(region) => {
                        kill_point("handed over, not answered");
                        // The peer is known: a process of this host, whose place among those that
                        // share memory is limited.
                        state.starting = None;
                        let shared = (region, local, place);
                        self.switch_to_shared_memory(state, cx, shared, Role::Passive, None);
                        Answer::Yes
                    }
                    None => {
                        state.reason = PathReason::System;
                        Answer::No
                    }
                },
                None => {
                    // A process of our own user's is known, also without memory to share.
                    if let Some(Starting::Incoming(ticket)) = &mut state.starting
                        && local.who() == PeerUser::SameUser
                    {
                        ticket.prove();
                    }
                    state.reason = PathReason::Full;
                    Answer::Full
                }
            },
        };
        if self.stream.send(&answer.to_bytes()) != Ok(Answer::LENGTH) {
            state.connection.link_closed(cx, LinkEnd::Closed);
        }
        kill_point("answered, start-up not begun");
        Some(QUESTION)
    }

    /// From here on rings carry the bytes.
    fn switch_to_shared_memory(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        (region, local, place): (Region, Local, Place),
        role: Role,
        request: Option<(ReadLimits, &[u8])>,
    ) {
        let handshake_timeout = REQUEST_WITHIN;
        let config =
            Config { read_caps: self.shared.options.reads, handshake_timeout, ..Config::new(role) };
        let wire = Box::new(Channel::new(config, cx.now));
        let changed = state.connection.change_wire(cx, wire, request);
        let added = self.home(state).add(local.fd(), self.key);
        self.home(state).remove(self.stream.fd());
        let lends = self.shared.options.shared_regions && local.who().may_lend();
        if lends {
            local.take_descriptors();
        } else {
            local.refuse_descriptors();
        }
        if changed.is_err() || added.is_err() || self.bell.set(local).is_err() {
            let status = Status::InsufficientResources;
            return state.connection.link_closed(cx, LinkEnd::Failed(status));
        }
        let mine = usize::from(role == Role::Passive);
        let rings = Rings::new((region, place), mine, lends);
        state.carrier = Carrier::SharedMemory(Box::new(rings));
        state.reason = PathReason::Proven;
        state.partial = Vec::new();
    }
}
