//! The watcher: follows every request, frame, copy and completion of every adapter, and compares each
//! with what the rules allow at that moment.
//!
//! The watcher sits between the engine and what the simulator replaces (wire, host memory, record
//! of refusals, event stream, effects), so it sees the order in which things happen and not only
//! their result.
//!
//! | file | rules | what it compares |
//! |---|---|---|
//! | `requests` | 6, 10 | posts with completions: once, in order, for a reason, a flush in one batch |
//! | `outbound` | 1, 3, 5 | frames with what was posted or asked for, and with what may be read now |
//! | `inbound` | 1, 2, 3, 11 | frames with what the peer sent, copies with what may be written now |
//! | `refusals` | 2, 4 | refusals with the model's own answer: a false one is a defect too |
//! | `targets` | 2 | messages with the shared receive queue that they name |
//! | `outlived` | 10 | what becomes of a queue pair that goes on without its connection |

mod inbound;
mod outbound;
mod outlived;
mod refusals;
mod requests;
mod targets;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use transom_core::dialect::{DeadWindow, PeerGone};
use transom_core::{
    CompletionKind, Dialect, EndReason, Flags, Limits, Operation, QueuePairKind, Sge, Status,
};
use transom_memory::{Actor, ConnectionId, DomainId, Purpose, QueuePairId, Rights, Segment};
use transom_wire::{Role, Time};

use crate::counters::Counters;
use crate::model::Books;
use crate::process::Process;
pub use inbound::Piece;
pub use outbound::{Filling, Sealed};

/// An end of a link: the link, and which side.
pub type EndId = (usize, usize);
/// A queue pair: its process, and its number.
pub type PairId = (usize, u32);

/// The watcher, as everything that reports to it holds it.
#[derive(Clone, Debug, Default)]
pub struct Watcher(Arc<Mutex<Watch>>);

impl Watcher {
    /// Look, or report.
    pub fn see(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct Watch {
    /// The clock.
    pub now: Time,
    /// Regions and windows, by process.
    pub books: Vec<Books>,
    /// The value that every byte of a process must have, by process and buffer.
    pub shadows: Vec<BTreeMap<u64, Vec<u8>>>,
    /// Queue pairs.
    pub pairs: HashMap<PairId, Pair>,
    /// Ends of connections.
    pub ends: HashMap<EndId, Stream>,
    /// Shared receive queues, by process and number.
    pub pools: HashMap<(usize, usize), VecDeque<Receive>>,
    /// Shared receive queues that messages name, by process and name: number and domain.
    pub targets: HashMap<(usize, u32), (usize, DomainId)>,
    /// The end whose call into the engine is under way.
    pub current: Option<EndId>,
    /// That call may start requests.
    pub transmitting: bool,
    /// The first rule that was broken.
    pub failure: Option<String>,
    /// Scenarios that were reached.
    pub counters: Counters,
    /// The network works, and every end is served at once: no end falls silent any more.
    pub healed: bool,
    /// Say everything aloud.
    pub aloud: bool,
}

/// A queue pair.
#[derive(Debug)]
pub struct Pair {
    /// Protection domain.
    pub domain: DomainId,
    /// The rules it follows.
    pub dialect: &'static Dialect,
    /// Kind.
    pub kind: QueuePairKind,
    /// The program's context.
    pub context: u64,
    /// The shared receive queue; where messages name one, the last that was named.
    pub shared: Option<usize>,
    /// Everything ever posted.
    pub requests: Vec<Posted>,
    /// The oldest request that has not completed.
    pub first: usize,
    /// The oldest request that has not been started.
    pub next: usize,
    /// A request has failed by itself: nothing further starts.
    pub failed: bool,
    /// Receives that have not completed, in order; of a shared queue, those that were taken.
    pub receives: VecDeque<Receive>,
    /// The connection.
    pub end: Option<EndId>,
    /// The connection is over, or the queue pair was flushed.
    pub over: bool,
    /// A request has completed with an error.
    pub lost: bool,
    /// For how long its requests may wait.
    pub limits: Limits,
    /// The operations that its peer may use at all.
    pub access: Rights,
    /// Since when requests wait for a connection.
    pub waits: Option<Time>,
    /// There has been a connection.
    pub reconnects: bool,
    /// Requests have waited for a connection for too long.
    pub gave_up: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The program's context, unique in its queue pair.
    pub context: u64,
    /// The operation asked for.
    pub operation: Operation,
    /// The peer's shared receive queue that it names, if it does.
    pub target: u32,
    /// How.
    pub flags: Flags,
    /// The scatter/gather list.
    pub list: Vec<Sge>,
    /// The memory that it registers.
    pub memory: Vec<Segment>,
    /// Or its bytes.
    pub inline: Option<Vec<u8>>,
    /// Bytes in all.
    pub length: u64,
    /// When it was posted.
    pub at: Time,
    /// The end and the message, once it has begun.
    pub message: Option<(EndId, usize)>,
    /// The request has no message and was executed.
    pub executed: bool,
    /// Why it cannot succeed.
    pub bad: Option<Status>,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The program's context.
    pub context: u64,
    /// The scatter/gather list.
    pub list: Vec<Sge>,
    /// Bytes in all.
    pub length: u64,
    /// A whole message is in it.
    pub done: Option<Delivered>,
    /// Why it cannot succeed.
    pub bad: Option<Status>,
}

/// Contents that a receive's completion must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// A Send, or a Write with immediate data.
    pub kind: CompletionKind,
    /// Bytes.
    pub length: u64,
    /// The sender asked for an event.
    pub solicited: bool,
    /// The sender closed a window.
    pub invalidated: Option<u32>,
    /// The sender's immediate data.
    pub immediate: Option<u32>,
}

/// A message of one end.
#[derive(Clone, Debug)]
pub struct Message {
    /// Index of the request.
    pub request: usize,
    /// The peer's shared receive queue that it names, if it does.
    pub target: u32,
    /// The operation asked for.
    pub operation: Operation,
    /// Length in bytes.
    pub length: u64,
    /// Asks for an event.
    pub solicited: bool,
    /// Bytes in frames that have left, and whether the last has.
    pub framed: u64,
    /// See `framed`.
    pub sent: bool,
    /// The peer has done what it asks; of a Read or an atomic, all of the answer is here.
    pub executed: bool,
    /// Bytes of the answer.
    pub answered: u64,
    /// The word that it changes held this before it did.
    pub old: Option<u64>,
    /// The peer has refused it.
    pub refused: Option<Status>,
}

/// An end of a connection.
#[derive(Debug)]
pub struct Stream {
    /// Index of the process.
    pub process: usize,
    /// The role, which says whether this end speaks first.
    pub role: Role,
    /// The queue pair.
    pub pair: Option<PairId>,
    /// Whom its checks name.
    pub actor: Actor,
    /// Number and epoch.
    pub id: ConnectionId,
    /// The rules it follows.
    pub dialect: &'static Dialect,
    /// Which memory may be the sink of its Reads.
    pub sink: Purpose,
    /// Requests stay when the peer disconnects.
    pub keeps: bool,
    /// To invalidate what is dead is no error.
    pub ignores: bool,
    /// Messages of the peer may bring immediate data.
    pub immediate: bool,
    /// The program resets the queue pair.
    pub resets: bool,
    /// Behind its end: whether its queue pair goes on.
    pub outlived: Option<bool>,
    /// Both sides are Transoms.
    pub extension: bool,
    /// Reads it may have under way.
    pub reads: u32,
    /// Messages flow.
    pub open: bool,
    /// Why the connection ended, once it has.
    pub ended: Option<EndReason>,
    /// The clock leapt while it had something to say behind its end, and no room for that.
    pub stood_still: bool,
    /// The shared receive queue that was named to the wire last.
    pub aimed: Option<u32>,
    /// Messages of this end.
    pub messages: Vec<Message>,
    /// The frame whose payload is being supplied.
    pub frame: Option<Filling>,
    /// Frames with a payload that the peer has not seen.
    pub flight: VecDeque<Sealed>,
    /// Reads of the peer that are being answered.
    pub serving: VecDeque<Serving>,
    /// Pieces that have come and were not dealt with.
    pub inbox: VecDeque<Piece>,
    /// Since when the oldest of that waits.
    pub waits: Option<Time>,
    /// Something of the peer's was refused: the connection must end.
    pub refused: bool,
    /// As far as the wire knows, answers to messages in front of that have not left.
    pub owes: bool,
    /// Memory was found to be gone during this call.
    pub faulted: bool,
    /// Bytes were spoilt, or cut off: what the wire says of it is right.
    pub spoilt: bool,
    /// The network was unkind: an end by time-out or in silence is right.
    pub hurt: bool,
    /// The peer has closed in order, and the link had taken everything from this side.
    pub finished: bool,
    /// When something last came in.
    pub heard: Time,
}

/// A Read of the peer.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The wire's name for it.
    pub slot: u32,
    /// The peer's message.
    pub message: usize,
    /// The domain in which it is judged.
    pub domain: DomainId,
    /// Token it names.
    pub token: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes among these that are framed.
    pub sent: u64,
}

impl Watch {
    /// A rule was broken. The first one counts.
    pub fn fail(&mut self, what: impl Into<String>) {
        let what = what.into();
        let at = self.current.map(|(link, side)| format!("link {link} side {side}: "));
        let text = format!("at {} ns: {}{what}", self.now.0, at.unwrap_or_default());
        self.say(|| format!("BROKEN {text}"));
        self.failure.get_or_insert(text);
    }

    /// For the trace.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.aloud {
            let at = self.current.map(|(link, side)| format!("{link}.{side}")).unwrap_or_default();
            println!("{:>12} {at:>5} {}", self.now.0, what());
        }
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self, end: EndId) -> Option<&Stream> {
        self.ends.get(&(end.0, 1 - end.1))
    }

    /// The other end, to be changed.
    pub fn peer_mut(&mut self, end: EndId) -> Option<&mut Stream> {
        self.ends.get_mut(&(end.0, 1 - end.1))
    }

    /// The end whose call is under way, taken out so that the rest can be looked at.
    pub(crate) fn with<T>(
        &mut self,
        then: impl FnOnce(&mut Watch, EndId, &mut Stream) -> T,
    ) -> Option<T> {
        let end = self.current?;
        let Some(mut stream) = self.ends.remove(&end) else {
            self.fail("something happens on a connection that does not exist");
            return None;
        };
        let result = then(self, end, &mut stream);
        self.ends.insert(end, stream);
        Some(result)
    }

    /// A call into the engine begins.
    pub fn enter(&mut self, end: EndId, transmitting: bool) {
        (self.current, self.transmitting) = (Some(end), transmitting);
        self.with(|watch, _, stream| {
            stream.faulted = false;
            watch.start_local(stream);
        });
    }

    /// The call is over. Afterwards its effects are looked at.
    pub fn leave(&mut self) {
        self.with(|watch, end, stream| {
            watch.frame_done(stream);
            watch.settle(end, stream);
            if stream.refused && stream.ended.is_none() {
                if stream.owes {
                    watch.counters.hit("answered in front of a refusal");
                } else {
                    watch.fail("a refusal, and the connection goes on (rule 4)");
                }
            }
            if let Some(books) = watch.books.get_mut(stream.process) {
                books.certain();
            }
        });
        (self.current, self.transmitting) = (None, false);
    }

    /// The wire says whether it owes the peer answers.
    pub fn owes(&mut self, owes: bool) {
        self.with(|_, _, stream| stream.owes = owes);
    }

    /// The start-up has agreed on this.
    pub fn agreed(&mut self, extension: bool, reads: u32) {
        self.with(|_, _, stream| (stream.extension, stream.reads) = (extension, reads));
    }

    /// Messages flow from now on.
    pub fn established(&mut self) {
        self.with(|watch, _, stream| {
            stream.open = true;
            if let Some(key) = stream.pair {
                watch.connected(key);
            }
            watch.counters.hit("connected");
            if !stream.extension {
                watch.counters.hit("plain peer");
            }
            // Earlier posts may execute in this very call.
            watch.start_local(stream);
        });
    }

    /// The connection is over: from here on nothing moves (rules 2, 5).
    pub fn ended(&mut self, reason: EndReason) {
        self.with(|watch, end, stream| {
            watch.finish_placed(end, stream);
            if stream.ended.replace(reason).is_some() {
                watch.fail("a connection ends twice");
            }
            watch.judge_end(end, stream, reason);
            let queue_pair = stream
                .pair
                .filter(|_| stream.open || stream.role == Role::Passive)
                .map(|(_, number)| QueuePairId(number));
            if stream.messages.iter().any(|m| !m.executed) {
                watch.counters.hit("closed while a message was under way");
            }
            // Where a queue pair may outlive its connection, `parted` follows.
            let queue_pair = queue_pair.filter(|_| !outlives(stream.dialect));
            if let Some(books) = watch.books.get_mut(stream.process) {
                books.over(queue_pair, stream.id);
            }
            if let (Some(pair), Some(_)) = (stream.pair, queue_pair)
                && let Some(pair) = watch.pairs.get_mut(&pair)
            {
                pair.over = true;
            }
        });
    }

    /// Connections end for a reason, and the reason is reported.
    fn judge_end(&mut self, end: EndId, stream: &Stream, reason: EndReason) {
        let peer_over = self.peer(end).is_none_or(|peer| peer.ended.is_some());
        let failing = stream
            .pair
            .and_then(|pair| self.pairs.get(&pair))
            .is_some_and(|pair| pair.requests[pair.first..].iter().any(|r| r.bad.is_some()));
        // An end that waits for a receive of a shared queue, for a plain peer's Send, reads no
        // further.
        let deaf = self.peer(end).is_some_and(|peer| peer.waits.is_some());
        let silent = self.now.since(stream.heard).as_secs() >= 4 && (deaf || !self.healed);
        let right = match reason {
            EndReason::PeerDisconnected | EndReason::Unanswered => {
                peer_over || stream.hurt || stream.spoilt
            }
            EndReason::PeerFailed => peer_over || stream.spoilt,
            EndReason::TimedOut => stream.hurt || silent,
            EndReason::Violation => stream.spoilt,
            EndReason::Refused => stream.refused,
            EndReason::RequestFailed => failing,
            EndReason::Link(_) => stream.hurt,
            EndReason::Flushed | EndReason::Disconnected | EndReason::Overrun => true,
        };
        if !right && stream.open {
            self.fail(format!("a connection ends with {reason:?} for no reason"));
        }
        match reason {
            EndReason::TimedOut if stream.open => self.counters.hit("timed out"),
            EndReason::TimedOut => self.counters.hit("start-up timed out"),
            EndReason::PeerDisconnected => self.counters.hit("peer gone"),
            _ => {}
        }
    }

    /// A byte of a process may only be what was allowed: its memory is compared with its shadow.
    pub fn compare(&mut self, process: usize, address: u64, bytes: &[u8]) {
        let shadow = self.shadows.get(process).and_then(|shadow| shadow.get(&address));
        let Some(shadow) = shadow else { return };
        if let Some(at) = bytes.iter().zip(shadow).position(|(a, b)| a != b) {
            self.fail(format!("byte {:#x} of process {process} has changed", address + at as u64));
        }
    }

    /// Note what a byte must be from now on.
    pub fn paint(&mut self, process: usize, address: u64, bytes: &[u8]) {
        let Some(shadow) = self.shadows.get_mut(process) else { return };
        let Some((base, buffer)) = shadow.range_mut(..=address).next_back() else { return };
        let start = (address - base) as usize;
        if let Some(place) = buffer.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

impl Stream {
    /// An end, before its first byte.
    #[must_use]
    pub fn new(process: &Process, role: Role, id: ConnectionId, now: Time) -> Stream {
        let dialect = process.dialect;
        Stream {
            process: process.index,
            role,
            pair: None,
            actor: Actor { domain: DomainId(0), queue_pair: QueuePairId(0), connection: Some(id) },
            id,
            dialect,
            sink: dialect.sink,
            keeps: dialect.peer_gone == PeerGone::Keep,
            ignores: dialect.dead_window == DeadWindow::Ignored,
            immediate: dialect.immediate,
            resets: false,
            outlived: None,
            extension: false,
            reads: 0,
            open: false,
            ended: None,
            stood_still: false,
            aimed: None,
            messages: Vec::new(),
            frame: None,
            flight: Default::default(),
            serving: Default::default(),
            inbox: Default::default(),
            waits: None,
            refused: false,
            owes: false,
            faulted: false,
            spoilt: false,
            hurt: false,
            finished: false,
            heard: now,
        }
    }
}

/// Whether queue pairs go on without their connections (Verbs V79).
#[must_use]
pub fn outlives(dialect: &Dialect) -> bool {
    dialect.peer_gone == PeerGone::Await
}

/// The immediate data of a request.
#[must_use]
pub fn immediate_of(operation: Operation) -> Option<u32> {
    match operation {
        Operation::SendWithImmediate { immediate }
        | Operation::WriteWithImmediate { immediate, .. } => Some(immediate),
        Operation::Send
        | Operation::SendWithInvalidate { .. }
        | Operation::Write { .. }
        | Operation::Read { .. }
        | Operation::Atomic { .. }
        | Operation::Bind { .. }
        | Operation::BindStanding { .. }
        | Operation::Invalidate { .. }
        | Operation::FastRegister { .. }
        | Operation::Unsupported { .. }
        | Operation::Receive => None,
    }
}

/// The token and address that a Write of either kind names.
#[must_use]
pub fn written_to(operation: Operation) -> Option<(u32, u64)> {
    match operation {
        Operation::Write { token, address }
        | Operation::WriteWithImmediate { token, address, .. } => Some((token, address)),
        _ => None,
    }
}

/// Whether a message of this kind needs a receive at the peer.
#[must_use]
pub fn wants_receive(operation: Operation) -> bool {
    matches!(operation, Operation::Send | Operation::SendWithInvalidate { .. })
        || immediate_of(operation).is_some()
}
