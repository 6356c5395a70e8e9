//! Arguments of every call of the core, and its effects.

use std::fmt::Debug;

use transom_memory::{DomainId, Lane, Memory};
use transom_wire::{Atomic, ReadLimits, Time};

use crate::queue::RequestQueue;
use crate::trace::Tracer;
use crate::{Completion, DenialRecord, LinkEnd, Status};

/// Everything a call into the core may use. No clock, socket or randomness: the driver supplies them.
pub struct Cx<'a> {
    /// The moment, as the driver counts.
    pub now: Time,
    /// The table that decides which actor may touch which byte.
    pub memory: &'a Memory,
    /// The calling thread's place to announce what it touches.
    pub lane: &'a mut Lane,
    /// The application's memory.
    pub host: &'a dyn HostMemory,
    /// Where refusals are kept.
    pub denials: &'a dyn Denials,
    /// The shared receive queue of the queue pair concerned, if it has one.
    pub shared: Option<&'a dyn SharedReceives>,
    /// Work to be done afterwards, in this order.
    pub effects: &'a mut Effects,
    /// The event stream; `None` = off, and costs one branch.
    pub trace: Option<&'a mut dyn Tracer>,
}

impl std::fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The pages behind an address that passed every check are gone or closed to us (design rule 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// The application's memory. Called under a [`Grant`](transom_memory::Grant), for at most 64 KiB.
pub trait HostMemory: Sync {
    /// Append `length` bytes at `from` to `out`. On a fault, `out` is as long as before.
    ///
    /// # Errors
    /// [`Fault`] if a page of the range is not there.
    fn append(&self, from: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault>;

    /// Copy `into.len()` bytes from `from`, a few. On a fault `into` may hold anything.
    ///
    /// # Errors
    /// [`Fault`] if a page of the range is not there.
    fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        self.append(from, into.len(), &mut bytes)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    /// Copy `bytes` to `to`: in increasing address order, the last of them with a release store,
    /// because programs spin on them (ND2 4.2 rule 7). On a fault a prefix may stand.
    ///
    /// # Errors
    /// [`Fault`] if a page of the range is not there or not writable.
    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Copy `length` bytes from `from`, which lies in memory shared with a peer
    /// ([`Bytes::Shared`](transom_wire::Bytes::Shared)), to `to`: as [`HostMemory::write`]. This default copies twice;
    /// the engine's copies once.
    ///
    /// # Errors
    /// [`Fault`] if a page of either range is not there, or not writable.
    fn copy(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        self.append(from, length, &mut bytes)?;
        self.write(to, &bytes)
    }

    /// Copy `length` bytes from `from` to `to`, which lies in memory shared with a peer
    /// ([`Room::Shared`](transom_wire::Room::Shared)).
    ///
    /// # Errors
    /// [`Fault`] if a page of the first range is not there: anything may lie in the second one.
    fn share(&self, from: u64, to: u64, length: usize) -> Result<(), Fault>;

    /// Whether the source of [`HostMemory::copy`] is a region of the peer's that the peer has dropped: then a
    /// fault is not this program's.
    fn source_is_gone(&self) -> bool {
        false
    }

    /// Carry out an atomic on the word at `word`, which is a multiple of 8: its value before. Every
    /// atomic of this process and of its peers on that word comes before or after it.
    ///
    /// # Errors
    /// [`Fault`] if the page is not there or not writable: nothing has changed.
    fn atomic(&self, word: u64, operation: Atomic) -> Result<u64, Fault>;

    /// Have the processor fetch a line of this process's own memory, if it can: a hint.
    fn fetch_ahead(&self, _line: usize) {}
}

/// Keeper of refusals. The driver puts a [`DenialLog`](crate::DenialLog) behind a lock.
pub trait Denials: Sync {
    /// Keep a record; its id, never 0.
    fn record(&self, record: DenialRecord) -> u64;

    /// A kept record as a sentence, for a peer that the owner lets know.
    fn explain(&self, id: u64) -> Option<String>;
}

/// Takes a queue pair's requests that succeed, in place of its completion queue.
pub trait Settle: Debug + Send + Sync {
    /// The request with this context has succeeded. One call at a time, in posting order, under locks of
    /// the driver: code of the program's runs, and what has such code in its `Drop` is dropped, by what
    /// it leaves for `later`.
    fn settle(&self, context: u64, later: &mut Vec<Later>);
}

/// Work for when no lock is held.
pub type Later = Box<dyn FnOnce() + Send>;

/// A shared receive queue as a connection sees it. The driver puts a
/// [`SharedReceiveQueue`](crate::SharedReceiveQueue) behind a lock.
pub trait SharedReceives: Sync {
    /// Move the oldest receive into `into`. If there is none, remember that `queue_pair` waits: its
    /// connection is to be run when a receive is posted.
    fn take(&self, queue_pair: transom_memory::QueuePairId, into: &mut RequestQueue) -> bool;

    /// Of a queue pair over the queues of an XRC domain: from now on the other calls are about the queue of
    /// this number, whose protection domain is the answer. `None`: the domain has no such queue.
    fn aim(&self, number: u32) -> Option<DomainId> {
        let _ = number;
        None
    }

    /// Put receives that were taken and not used back in front.
    fn give_back(&self, unused: &mut RequestQueue);
}

/// Which of a queue pair's two completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Requests of this side.
    Initiator,
    /// Receives.
    Receive,
    /// Receives of the shared receive queue of this number, which has a completion queue of its own (Verbs
    /// V155).
    Target(u32),
}

/// Something to be done once every lock of the link is dropped, in the order of the list.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Add to a completion queue. Neighbours are to be added together before notifications fire
    /// (ND2 N10).
    Complete(Side, Completion),
    /// Tell the connector (or the listener's backlog).
    Event(ConnectionEvent),
    /// An asynchronous call has finished.
    Finished(Finished),
}

/// The end of an asynchronous call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The context that the caller passed when it began.
    pub waiter: u64,
    /// How it ended.
    pub status: Status,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Passive side: a peer asks.
    Requested {
        /// Read limits that the peer offers, seen from here.
        limits: ReadLimits,
        /// The peer's private data.
        private: Box<[u8]>,
    },
    /// Active side: the peer's program accepted.
    Accepted {
        /// Agreed limits, seen from here.
        limits: ReadLimits,
        /// The peer's private data.
        private: Box<[u8]>,
    },
    /// Active side: the peer's program rejected.
    Rejected {
        /// The peer's private data.
        private: Box<[u8]>,
    },
    /// Passive side: the active side has completed the connection, or has begun to use it.
    Established,
    /// The connection has ended. Comes before the completions that the end flushes (ND2 4.9).
    Ended(End),
    /// The link is gone, behind the end of its connection: a Disconnect that waited for the peer is
    /// over (NDK DC-1).
    Parted(LinkEnd),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// The record that explains it; 0 = none.
    pub denial: u64,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The peer disconnected, or its process ended.
    PeerDisconnected,
    /// The peer ended the link instead of answering: it may speak only an older form of start-up,
    /// and the driver is to try that once (iW 2.4).
    Unanswered,
    /// The peer reported an error.
    PeerFailed,
    /// The peer fell silent, or start-up took too long.
    TimedOut,
    /// The peer's bytes broke a rule of the wire.
    Violation,
    /// This side refused a message of the peer.
    Refused,
    /// A request of this side failed.
    RequestFailed,
    /// The program flushed the queue pair.
    Flushed,
    /// The program disconnected.
    Disconnected,
    /// A completion queue of the queue pair ran over.
    Overrun,
    /// The link could not be made or kept: the driver says why.
    Link(Status),
}

/// The list of effects of one pass. The driver keeps it and empties it, so that passes do not
/// allocate.
#[derive(Default)]
pub struct Effects {
    /// In the order in which they are to be carried out.
    pub list: Vec<Effect>,
    /// Requests were [settled](Settle): threads that wait for them are to look again.
    pub settled: bool,
    /// Left by those.
    pub later: Vec<Later>,
}

impl Debug for Effects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effects").field("list", &self.list).finish_non_exhaustive()
    }
}

impl Effects {
    /// Report a completion.
    pub fn complete(&mut self, side: Side, completion: Completion) {
        self.list.push(Effect::Complete(side, completion));
    }

    /// Report an event.
    pub fn event(&mut self, event: ConnectionEvent) {
        self.list.push(Effect::Event(event));
    }

    /// Report the end of a call.
    pub fn finish(&mut self, waiter: u64, status: Status) {
        self.list.push(Effect::Finished(Finished { waiter, status }));
    }
}
