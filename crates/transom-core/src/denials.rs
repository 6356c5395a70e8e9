//! The owner's record of everything that was refused.

use std::collections::VecDeque;
use std::net::SocketAddr;

use transom_memory::{BindError, Denial, Purpose, QueuePairId, RegisterError};
use transom_wire::{PeerError, Time, Violation};

/// A refusal, by this side or by the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct DenialRecord {
    /// When.
    pub time: Time,
    /// The other end of the connection, if the driver knows it.
    pub peer: Option<SocketAddr>,
    /// On which queue pair, if one was attached.
    pub queue_pair: Option<QueuePairId>,
    /// Context of the request of ours that failed, if it was one.
    pub request: Option<u64>,
    /// The cause.
    pub cause: DenialCause,
}

impl DenialRecord {
    /// Whether a call of the program's was refused at once. No connection ends by that.
    #[must_use]
    pub fn is_of_call(&self) -> bool {
        self.request.is_none() && matches!(self.cause, DenialCause::Own(_) | DenialCause::Call(_))
    }
}

/// The side that refused, and its reason.
#[derive(Clone, Debug, PartialEq)]
pub enum DenialCause {
    /// This side's memory, to a request of its own program.
    Own(Box<Denial>),
    /// This side's memory, to the peer.
    Peer(Box<Denial>),
    /// The queue pair itself, to the peer, whatever the token grants
    /// ([`QueuePair::set_access`](crate::QueuePair::set_access)).
    QueuePair(Purpose),
    /// The peer, to us, in the peer's words.
    ByPeer(PeerError),
    /// The peer's bytes broke a rule.
    Violation(Violation),
    /// The check passed, and the pages were gone when they were copied.
    Vanished {
        /// The token.
        token: u32,
        /// First byte of the copy.
        address: u64,
        /// The copy's bytes.
        length: u64,
    },
    /// A region cannot have the memory that a fast registration brings.
    Register(RegisterError),
    /// A standing window cannot be bound so.
    Bind(BindError),
    /// A call of the program's was refused at once, for its arguments; a sentence.
    Call(String),
    /// Something else; a sentence.
    Other(&'static str),
}

impl DenialCause {
    /// The text for the refused peer, which knows what it asked for. A wire may cut it short.
    #[must_use]
    pub fn for_peer(&self) -> String {
        match self {
            DenialCause::Own(denial) | DenialCause::Peer(denial) => denial.summary().to_string(),
            other => other.to_string(),
        }
    }
}

impl std::fmt::Display for DenialCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DenialCause::Own(denial) | DenialCause::Peer(denial) => denial.fmt(f),
            DenialCause::QueuePair(purpose) => {
                let what = match purpose {
                    Purpose::RemoteRead => "read",
                    Purpose::RemoteWrite => "write",
                    _ => "do atomics on",
                };
                write!(
                    f,
                    "the queue pair lets its peer {what} nothing, whatever the token grants: give it \
                     that access flag (`transom explain queue_pair_access`)"
                )
            }
            DenialCause::ByPeer(error) => match &error.explanation {
                Some(text) => write!(f, "the peer refused it ({}): {text}", error.code),
                None => write!(f, "the peer refused it: {}", error.code),
            },
            DenialCause::Violation(violation) => violation.fmt(f),
            DenialCause::Vanished { token, address, length } => write!(
                f,
                "the {length} bytes at {address:#x} are registered (token {token:#010x}), but their \
                 pages are gone: unmapped, protected, or cut off their file (`transom explain present_pages`)"
            ),
            DenialCause::Register(error) => {
                write!(f, "the region cannot have this memory: {error}")
            }
            DenialCause::Bind(error) => write!(f, "the window cannot be bound: {error}"),
            DenialCause::Call(text) => f.write_str(text),
            DenialCause::Other(text) => f.write_str(text),
        }
    }
}

/// The latest refusals of an adapter. Older ones make room; the counters never forget.
#[derive(Debug)]
pub struct DenialLog {
    records: VecDeque<DenialRecord>,
    capacity: usize,
    /// Id of the first record kept.
    first: u64,
}

impl DenialLog {
    /// A log that keeps `capacity` records (at least one).
    #[must_use]
    pub fn new(capacity: usize) -> DenialLog {
        DenialLog { records: VecDeque::new(), capacity: capacity.max(1), first: 1 }
    }

    /// Keep a record; its id, counted from 1.
    pub fn record(&mut self, record: DenialRecord) -> u64 {
        if self.records.len() >= self.capacity {
            self.records.pop_front();
            self.first += 1;
        }
        self.records.push_back(record);
        self.first + self.records.len() as u64 - 1
    }

    /// A record, if it is still kept.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&DenialRecord> {
        self.records.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    /// Records kept, oldest first, with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &DenialRecord)> {
        (self.first..).zip(&self.records)
    }

    /// Refusals ever recorded.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.first - 1 + self.records.len() as u64
    }

    /// Refusals among these whose records made room for others.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.first - 1
    }
}
