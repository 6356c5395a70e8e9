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

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use transom_process::{Channel, Config};
use transom_wire::{ReadLimits, Role};

use super::link::{Link, State};
use super::mail::Owner;
use super::options::{Options, Path};
use super::rings::Rings;
use crate::sys::{self, Door, Fd, IoError, Local, Region};
use crate::{Cx, LinkEnd, Status};

/// What an active side says first on its TCP connection: this, then the nonce. MPA begins otherwise.
const ASK: [u8; 16] = *b"Transom process1";
/// The two answers.
const YES: [u8; 16] = *b"Transom process+";
const NO: [u8; 16] = *b"Transom process-";
/// What it says at the door: this, the nonce, and whether other users are welcome.
const HELLO: [u8; 8] = *b"TRANSOM1";
const NONCE: usize = 16;
const QUESTION: usize = ASK.len() + NONCE;
/// Hand-overs that wait for their TCP connection to name them.
const WAITING: usize = 1024;

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
    Asked(Box<(Request, Region, Local)>, Vec<u8>),
    /// Passive: no byte has come.
    Greeting,
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
    user.is_some_and(|user| user == sys::user() || both_ask)
}

/// Somebody at the door, and what was handed over, once it was.
#[derive(Debug)]
struct Knock {
    local: Local,
    brought: Option<(Nonce, Region)>,
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
    pub(crate) fn open(address: SocketAddr, options: &Options) -> Option<Threshold> {
        if options.path() == Path::Tcp {
            return None;
        }
        let door = Door::open(&name(address)).ok()?;
        Some(Threshold { door, others: options.other_users, waiting: Mutex::default() })
    }

    /// What was handed over under this nonce.
    fn claim(&self, nonce: &Nonce) -> Option<(Region, Local)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded by the backlog: whoever knocks meanwhile is for the next call.
        for _ in 0..1024 {
            let Ok(local) = self.door.accept() else { break };
            if !is_welcome(local.user(), self.others) {
                continue; // takes nobody's place
            }
            if waiting.len() >= WAITING {
                waiting.remove(0);
            }
            waiting.push(Knock { local, brought: None });
        }
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
        let Knock { local, brought } = waiting.swap_remove(at);
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

impl Link {
    /// Active, when the TCP connection has come about: find a door and ask. The stage says how far that
    /// went.
    pub(super) fn look_for_door(&self, state: &mut State) {
        let stage = std::mem::take(&mut state.stage);
        let Stage::Look(request) = stage else {
            state.stage = stage;
            return;
        };
        if let Some((region, local, nonce)) = self.hand_over() {
            let question = [ASK, nonce].concat();
            // A fresh connection has room for it; a broken one is noticed below.
            if self.stream.send(&question) == Ok(question.len()) {
                state.stage = Stage::Asked(Box::new((*request, region, local)), Vec::new());
            }
        }
    }

    fn hand_over(&self) -> Option<(Region, Local, Nonce)> {
        let options = &self.shared.options;
        let here = self.stream.local().ok()?;
        let (ours, theirs) = (here.ip().to_canonical(), self.peer.ip().to_canonical());
        // Whoever has the peer's address on this host, if it is one of this host's.
        if options.path() != Path::Process && !theirs.is_loopback() && ours != theirs {
            return None;
        }
        let any: std::net::IpAddr = match theirs {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = Local::connect(&name(self.peer))
            .or_else(|_| Local::connect(&name((any, self.peer.port()).into())))
            .ok()?;
        if !is_welcome(local.user(), options.other_users) {
            return None;
        }
        let (region, fd) = Region::create().ok()?;
        let seed = sys::random_seed().ok()?;
        let nonce: Nonce = *seed.first_chunk()?;
        let hello = [&HELLO[..], &nonce, &[u8::from(options.other_users)]].concat();
        local.hand_over(&hello, &fd).ok()?;
        Some((region, local, nonce))
    }

    /// Active: the answer, if it is here. `false`: it is not.
    pub(super) fn hear_answer(&self, state: &mut State, cx: &mut Cx<'_>) -> bool {
        let Stage::Asked(_, heard) = &mut state.stage else { return true };
        let mut room = [0; YES.len()];
        let left = YES.len() - heard.len().min(YES.len());
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
        if heard.len() < YES.len() {
            return false;
        }
        let yes = *heard == YES;
        let Stage::Asked(asked, _) = std::mem::take(&mut state.stage) else { return true };
        let (request, region, local) = *asked;
        if yes {
            let request = Some((request.limits, &*request.private));
            self.change_path(state, cx, region, local, Role::Active, request);
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
        let claimed = match self.owner() {
            Owner::Port(port) => port.upgrade().and_then(|port| port.threshold()?.claim(nonce)),
            Owner::Conn(_) => None,
        };
        let answer = if claimed.is_some() { YES } else { NO };
        if let Some((region, local)) = claimed {
            self.change_path(state, cx, region, local, Role::Passive, None);
        }
        if self.stream.send(&answer) != Ok(answer.len()) {
            state.connection.link_closed(cx, LinkEnd::Closed);
        }
        Some(QUESTION)
    }

    /// From here on it is rings.
    fn change_path(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        region: Region,
        local: Local,
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
        state.partial = Vec::new();
        if let Some(qp) = &state.qp {
            qp.look_again(); // who sleeps there waits for the other descriptor
        }
    }
}
