//! How two processes of one host come to share rings.
//!
//! The TCP connection is made as always, so that ports, addresses, listeners and backlogs are the same
//! on every path. Beside its port, a listener has a *door*: an abstract Unix socket named after its
//! address, in the same network namespace. An active side that finds one there, opened by the same
//! user (SO_PEERCRED), hands over a sealed memfd and a random nonce, and says on the TCP connection
//! which nonce it was. A passive side that knows the nonce, from a process of the same user, has both
//! ends proven: it answers yes, and start-up goes on in the rings. In every other case start-up goes on
//! over TCP, as if nothing had been.
//!
//! The Unix socket stays: it wakes who sleeps, and its end is the end of the peer. So does the TCP
//! connection, which nobody looks at any more.
//!
//! A peer that is not Transom has no door, and sees no byte of this.
//!
//! What is said, and who is believed, is in `transom_process::handover`, without sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use transom_process::handover::{
    Answer, Greeting, Nonce, Opening, QUESTION, Room, Visitor, Who, question,
};
use transom_process::{Channel, Config};
use transom_wire::{ReadLimits, Role};

use super::event_queue::Owner;
use super::link::{Link, State};
use super::options::Options;
use super::path::{Path, PathReason, Place};
use super::rings::Rings;
use crate::sys::{self, Door, Fd, IoError, Local, Region, kill_point};
use crate::{Cx, LinkEnd, Status};

/// Knocks that are looked at in one go: as many as the system keeps.
const KNOCKS: usize = 1024;

/// How far a link has come on the way to its path.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// There is nothing to find out (any more).
    #[default]
    Settled,
    /// Active: look for a door when the TCP connection has come about.
    Look(Box<Request>),
    /// Active: asked, not answered.
    Asked(Box<Asked>),
    /// Passive: no byte has come.
    Greeting,
}

/// What was handed over, while the peer thinks about it.
#[derive(Debug)]
pub(crate) struct Asked {
    request: Request,
    shared: (Region, Local, Place),
    heard: Vec<u8>,
}

/// What the connection is to ask for, on whichever wire.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) limits: ReadLimits,
    pub(super) private: Box<[u8]>,
}

fn name(address: SocketAddr) -> String {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    format!("transom/process/{address}")
}

impl Visitor for Local {
    type Handle = Fd;
    type Memory = Region;

    fn who(&self) -> Who {
        match self.user() {
            None => Who::Unknown,
            Some(user) if sys::is_our_user(user) => Who::SameUser,
            Some(_) => Who::OtherUser,
        }
    }

    fn receive(&self, into: &mut [u8]) -> Option<(usize, Option<Fd>)> {
        match self.take_over(into) {
            Err(IoError::NotNow) => None,
            received => Some(received.unwrap_or_default()),
        }
    }

    fn adopt(fd: Fd) -> Option<Region> {
        Region::adopt(&fd).ok()
    }
}

/// The door of a listener, and what was handed over there.
#[derive(Debug)]
pub(crate) struct Threshold {
    door: Door,
    room: Mutex<Room<Local>>,
}

impl Threshold {
    /// A door beside the port at `address`, if the path is wanted and the name is free.
    pub(crate) fn open(address: SocketAddr, options: &Options) -> Result<Threshold, PathReason> {
        if let Some(reason) = options.tcp_only() {
            return Err(reason);
        }
        match Door::open(&name(address)) {
            Ok(door) => Ok(Threshold { door, room: Mutex::new(Room::new(options.other_users)) }),
            Err(IoError::InUse) => Err(PathReason::DoorTaken),
            Err(_) => Err(PathReason::System),
        }
    }

    /// Let in whoever has knocked. Done with each connection, so that those who are not welcome do
    /// not take the places of those who are.
    pub(super) fn let_in(&self) {
        self.let_in_to(&mut self.room.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn let_in_to(&self, room: &mut Room<Local>) {
        let now = sys::recently();
        room.tidy(now);
        // Bounded: whoever knocks meanwhile is for the next call.
        for _ in 0..KNOCKS {
            let Ok(local) = self.door.accept() else { break };
            room.let_in(local, now);
        }
    }

    /// What was handed over under this nonce.
    fn claim(&self, nonce: &Nonce) -> Option<(Region, Local)> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        self.let_in_to(&mut room);
        room.claim(nonce)
    }
}

/// To the door beside the port at `peer`, which is named after an address of its listener's: that
/// one, or all of its kind, or all.
fn knock(peer: SocketAddr) -> Result<Local, PathReason> {
    let (all, port) = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), peer.port());
    let of_its_kind = match peer.ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => all,
    };
    for address in [peer, (of_its_kind, port).into(), (all, port).into()] {
        match Local::connect(&name(address)) {
            Ok(local) => return Ok(local),
            Err(IoError::Refused) => {}
            Err(IoError::NotNow) => return Err(PathReason::DoorBusy),
            Err(_) => return Err(PathReason::System),
        }
    }
    Err(PathReason::NoDoor)
}

impl Link {
    /// Active, when the TCP connection has come about: find a door and ask. The stage says how far that
    /// went.
    pub(super) fn look_for_door(&self, state: &mut State) {
        let stage = std::mem::take(&mut state.stage);
        let Stage::Look(request) = stage else {
            state.stage = stage;
            return;
        };
        state.reason = match self.hand_over() {
            Ok((shared, nonce)) => {
                kill_point("handed over, not asked");
                let question = question(&nonce);
                // A fresh connection has room for it; a broken one is noticed below.
                if self.stream.send(&question) == Ok(question.len()) {
                    kill_point("asked, not answered");
                    let asked = Asked { request: *request, shared, heard: Vec::new() };
                    state.stage = Stage::Asked(Box::new(asked));
                }
                PathReason::Declined
            }
            Err(reason) => reason,
        };
    }

    fn hand_over(&self) -> Result<((Region, Local, Place), Nonce), PathReason> {
        let options = &self.shared.options;
        let system = |_| PathReason::System;
        let here = self.stream.local().map_err(system)?;
        let (ours, theirs) = (here.ip().to_canonical(), self.peer.ip().to_canonical());
        if options.path != Path::Process && !theirs.is_loopback() && ours != theirs {
            return Err(PathReason::Elsewhere);
        }
        let local = knock(self.peer)?;
        if !local.who().is_welcome(options.other_users) {
            return Err(PathReason::OtherUser);
        }
        let place = self.shared.sharing.take(options.shared_links).ok_or(PathReason::Full)?;
        let (region, fd) = Region::create().map_err(|_| PathReason::System)?;
        let seed = sys::random_seed().map_err(|_| PathReason::System)?;
        let nonce: Nonce = *seed.first_chunk().ok_or(PathReason::System)?;
        let greeting = Greeting { nonce, others: options.other_users };
        local.hand_over(&greeting.to_bytes(), &fd).map_err(|e| match e {
            // It has seen who knocks, and has shut the door already.
            IoError::Reset => PathReason::Declined,
            e => system(e),
        })?;
        Ok(((region, local, place), nonce))
    }

    /// Active: the answer, if it is here. `false`: it is not.
    pub(super) fn hear_answer(&self, state: &mut State, cx: &mut Cx<'_>) -> bool {
        let Stage::Asked(asked) = &mut state.stage else { return true };
        let heard = &mut asked.heard;
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
                let status = super::options::status_of(e);
                state.connection.link_closed(cx, LinkEnd::Failed(status));
                return false;
            }
        }
        let Some(answer) = heard.first_chunk().map(Answer::read) else { return false };
        let Stage::Asked(asked) = std::mem::take(&mut state.stage) else { return true };
        let Asked { request, shared, .. } = *asked;
        match answer {
            Answer::Yes => {
                let request = Some((request.limits, &*request.private));
                self.change_path(state, cx, shared, Role::Active, request);
            }
            Answer::Full => state.reason = PathReason::PeerFull,
            Answer::No => state.reason = PathReason::Declined,
        }
        true
    }

    /// Passive: the first bytes. How many of them were for us; `None`: not enough to tell.
    pub(super) fn greet(&self, state: &mut State, cx: &mut Cx<'_>, bytes: &[u8]) -> Option<usize> {
        let nonce = match Opening::read(bytes) {
            Opening::Unfinished => return None,
            Opening::StartUp => {
                state.stage = Stage::Settled;
                return Some(0);
            }
            Opening::Question(nonce) => nonce,
        };
        state.stage = Stage::Settled;
        let threshold = match self.owner() {
            Owner::Listener(listener) => {
                listener.upgrade().and_then(|listener| listener.threshold().ok())
            }
            Owner::Connector(_) => None,
        };
        let places = (&self.shared.sharing, self.shared.options.shared_links);
        let answer = match threshold.and_then(|threshold| threshold.claim(&nonce)) {
            None => {
                state.reason = PathReason::NotHandedOver;
                Answer::No
            }
            Some((region, local)) => match places.0.take(places.1) {
                Some(place) => {
                    kill_point("claimed, not answered");
                    self.change_path(state, cx, (region, local, place), Role::Passive, None);
                    Answer::Yes
                }
                None => {
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

    /// From here on it is rings.
    fn change_path(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        (region, local, place): (Region, Local, Place),
        role: Role,
        request: Option<(ReadLimits, &[u8])>,
    ) {
        let config =
            Config { beside: true, read_caps: self.shared.options.reads, ..Config::new(role) };
        let wire = Box::new(Channel::new(config, cx.now));
        let changed = state.connection.change_wire(cx, wire, request);
        let added = self.home(state).add(local.fd(), self.key);
        self.home(state).remove(self.stream.fd());
        if changed.is_err() || added.is_err() || self.bell.set(local).is_err() {
            let status = Status::InsufficientResources;
            return state.connection.link_closed(cx, LinkEnd::Failed(status));
        }
        state.rings = Some(Rings::new(region, usize::from(role == Role::Passive)));
        state.place = Some(place);
        state.reason = PathReason::Proven;
        state.partial = Vec::new();
        state.moved = true;
    }
}
