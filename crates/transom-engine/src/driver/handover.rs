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

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use transom_process::{Channel, Config};
use transom_wire::{ReadLimits, Role, Time};

use super::link::{Link, State};
use super::mail::Owner;
use super::options::Options;
use super::path::{Path, PathReason, Place};
use super::rings::Rings;
use crate::sys::{self, Door, Fd, IoError, Local, Region, kill_point};
use crate::{Cx, LinkEnd, Status};

/// What an active side says first on its TCP connection: this, then the nonce. MPA begins otherwise.
const ASK: [u8; 16] = *b"Transom process1";
/// An answer: this, and what it is.
const ANSWER: [u8; 15] = *b"Transom process";
const YES: u8 = b'+';
const NO: u8 = b'-';
/// No, because it shares memory over as many connections as it may.
const FULL: u8 = b'#';
/// What it says at the door: this, the nonce, and whether other users are welcome.
const HELLO: [u8; 8] = *b"TRANSOM1";
const NONCE: usize = 16;
const QUESTION: usize = ASK.len() + NONCE;
/// Hand-overs that wait for their TCP connection to name them, and how long one may: each holds a
/// descriptor, or a mapping. Whoever comes too late takes TCP.
const WAITING: usize = 256;
const PATIENCE: Duration = Duration::from_secs(5);
/// Knocks that are looked at in one go: as many as the system keeps.
const KNOCKS: usize = 1024;

type Nonce = [u8; NONCE];

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

/// Whether a user may be shared memory with.
fn is_welcome(user: Option<u32>, both_ask: bool) -> bool {
    user.is_some_and(|user| both_ask || sys::is_our_user(user))
}

/// Somebody at the door, and what was handed over, once it was.
#[derive(Debug)]
struct Knock {
    local: Local,
    brought: Option<(Nonce, Region)>,
    since: Time,
}

/// The door of a listener, and what was handed over there.
#[derive(Debug)]
pub(crate) struct Threshold {
    door: Door,
    others: bool,
    waiting: Mutex<Vec<Knock>>,
}

impl Threshold {
    /// A door beside the port at `address`, if the path is wanted and the name is free.
    pub(crate) fn open(address: SocketAddr, options: &Options) -> Result<Threshold, PathReason> {
        if let Some(reason) = options.tcp_only() {
            return Err(reason);
        }
        match Door::open(&name(address)) {
            Ok(door) => {
                Ok(Threshold { door, others: options.other_users, waiting: Mutex::default() })
            }
            Err(IoError::InUse) => Err(PathReason::DoorTaken),
            Err(_) => Err(PathReason::System),
        }
    }

    /// Let in whoever has knocked. Done with each connection, so that those who are not welcome do
    /// not take the places of those who are.
    pub(super) fn let_in(&self) {
        self.let_in_to(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn let_in_to(&self, waiting: &mut Vec<Knock>) {
        let now = sys::recently();
        waiting.retain(|knock| now < knock.since.after(PATIENCE));
        // Bounded: whoever knocks meanwhile is for the next call.
        for _ in 0..KNOCKS {
            let Ok(local) = self.door.accept() else { break };
            if !is_welcome(local.user(), self.others) {
                continue; // takes nobody's place
            }
            if waiting.len() >= WAITING {
                waiting.remove(0);
            }
            waiting.push(Knock { local, brought: None, since: now });
        }
    }

    /// What was handed over under this nonce.
    fn claim(&self, nonce: &Nonce) -> Option<(Region, Local)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.let_in_to(&mut waiting);
        // Whoever this nonce is of has handed over before it asked. Others may still be about to.
        waiting.retain_mut(|knock| {
            if knock.brought.is_none() {
                match self.receive(&knock.local) {
                    Err(IoError::NotNow) => return true,
                    brought => knock.brought = brought.ok().flatten(),
                }
            }
            knock.brought.is_some()
        });
        let is_it = |knock: &Knock| knock.brought.as_ref().is_some_and(|(known, _)| known == nonce);
        let at = waiting.iter().position(is_it)?;
        let Knock { local, brought, .. } = waiting.swap_remove(at);
        Some((brought?.1, local))
    }

    /// What somebody hands over; `None` if it is not welcome.
    fn receive(&self, local: &Local) -> Result<Option<(Nonce, Region)>, IoError> {
        let mut bytes = [0; HELLO.len() + NONCE + 1];
        let (count, fd) = local.take_over(&mut bytes)?;
        Ok(self.judge(local, bytes.get(..count).unwrap_or_default(), fd))
    }

    fn judge(&self, local: &Local, bytes: &[u8], fd: Option<Fd>) -> Option<(Nonce, Region)> {
        let (hello, rest) = bytes.split_first_chunk::<{ HELLO.len() }>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE>()?;
        let others = self.others && rest == [1];
        let right = rest.len() == 1 && *hello == HELLO && is_welcome(local.user(), others);
        let fd = fd.filter(|_| right)?;
        Some((*nonce, Region::adopt(&fd).ok()?))
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
                let question = [ASK, nonce].concat();
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
        if !is_welcome(local.user(), options.other_users) {
            return Err(PathReason::OtherUser);
        }
        let place = self.shared.sharing.take(options.shared_links).ok_or(PathReason::Full)?;
        let (region, fd) = Region::create().map_err(|_| PathReason::System)?;
        let seed = sys::random_seed().map_err(|_| PathReason::System)?;
        let nonce: Nonce = *seed.first_chunk().ok_or(PathReason::System)?;
        let hello = [&HELLO[..], &nonce, &[u8::from(options.other_users)]].concat();
        local.hand_over(&hello, &fd).map_err(system)?;
        Ok(((region, local, place), nonce))
    }

    /// Active: the answer, if it is here. `false`: it is not.
    pub(super) fn hear_answer(&self, state: &mut State, cx: &mut Cx<'_>) -> bool {
        let Stage::Asked(asked) = &mut state.stage else { return true };
        let heard = &mut asked.heard;
        let mut room = [0; ANSWER.len() + 1];
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
        if heard.len() < room.len() {
            return false;
        }
        let answer = heard.strip_prefix(&ANSWER).and_then(|rest| rest.first()).copied();
        let Stage::Asked(asked) = std::mem::take(&mut state.stage) else { return true };
        let Asked { request, shared, .. } = *asked;
        match answer {
            Some(YES) => {
                let request = Some((request.limits, &*request.private));
                self.change_path(state, cx, shared, Role::Active, request);
            }
            Some(FULL) => state.reason = PathReason::PeerFull,
            _ => state.reason = PathReason::Declined,
        }
        true
    }

    /// Passive: the first bytes. How many of them were for us; `None`: not enough to tell.
    pub(super) fn greet(&self, state: &mut State, cx: &mut Cx<'_>, bytes: &[u8]) -> Option<usize> {
        let common = bytes.len().min(ASK.len());
        if bytes.get(..common) != ASK.get(..common) {
            state.stage = Stage::Settled;
            return Some(0);
        }
        let nonce: &Nonce = bytes.get(ASK.len()..QUESTION)?.try_into().ok()?;
        state.stage = Stage::Settled;
        let threshold = match self.owner() {
            Owner::Port(port) => port.upgrade().and_then(|port| port.threshold().ok()),
            Owner::Conn(_) => None,
        };
        let places = (&self.shared.sharing, self.shared.options.shared_links);
        let answer = match threshold.and_then(|threshold| threshold.claim(nonce)) {
            None => {
                state.reason = PathReason::NotHandedOver;
                NO
            }
            Some((region, local)) => match places.0.take(places.1) {
                Some(place) => {
                    kill_point("claimed, not answered");
                    self.change_path(state, cx, (region, local, place), Role::Passive, None);
                    YES
                }
                None => {
                    state.reason = PathReason::Full;
                    FULL
                }
            },
        };
        let answer = [&ANSWER[..], &[answer]].concat();
        if self.stream.send(&answer) != Ok(answer.len()) {
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
        let added = self.shared.epoll.add(local.fd(), self.key);
        self.shared.epoll.remove(self.stream.fd());
        if changed.is_err() || added.is_err() || self.bell.set(local).is_err() {
            let status = Status::InsufficientResources;
            return state.connection.link_closed(cx, LinkEnd::Failed(status));
        }
        state.rings = Some(Rings::new(region, usize::from(role == Role::Passive)));
        state.place = Some(place);
        state.reason = PathReason::Proven;
        state.partial = Vec::new();
        if let Some(qp) = &state.qp {
            qp.look_again(); // who sleeps there waits for the other descriptor
        }
    }
}
