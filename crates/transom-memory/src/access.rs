//! The question and the answer.

use crate::{ConnectionId, Denial, DomainId, QueuePairId, Token};

/// Who asks: every check names it, local ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Domain of the queue pair.
    pub domain: DomainId,
    /// The queue pair.
    pub queue_pair: QueuePairId,
    /// Its connection; `None` while it is not established.
    pub connection: Option<ConnectionId>,
}

/// What the memory would be used for. Decides which right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The owner's Send or Write reads it (`LOCAL_READ`).
    LocalSource,
    /// A message is received into it (`LOCAL_WRITE`).
    ReceiveBuffer,
    /// The answer to the owner's Read goes into it (`LOCAL_WRITE` or `READ_SINK`).
    ReadSink,
    /// A peer reads it (`REMOTE_READ`).
    RemoteRead,
    /// A peer writes it (`REMOTE_WRITE`).
    RemoteWrite,
    /// A peer does an atomic on it (`REMOTE_ATOMIC`).
    RemoteAtomic,
}

/// One access to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who.
    pub actor: Actor,
    /// What for.
    pub purpose: Purpose,
    /// The token named.
    pub token: Token,
    /// First byte.
    pub address: u64,
    /// Bytes. 0 is always allowed and needs no token (ND2 5.3).
    pub length: u64,
}

/// A run of bytes of the owner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it really lies.
    pub host: u64,
    /// Bytes.
    pub length: u64,
}

/// A place where one thread at a time announces what it is touching, so that a close can wait for
/// it. Each driver thread owns one.
#[derive(Debug)]
pub struct Lane {}

/// Permission for one non-blocking copy of at most 64 KiB. While it lives, a close of the token
/// waits; so it is never held while waiting for bytes, a lock or user code.
#[derive(Debug)]
pub struct Grant<'lane> {
    _lane: std::marker::PhantomData<&'lane mut Lane>,
}

impl Grant<'_> {
    /// The region that holds the bytes: its token.
    #[must_use]
    pub fn region(&self) -> Token {
        todo!()
    }
    /// Offset of the first byte in the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        todo!()
    }
    /// Where the bytes really lie, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        std::iter::empty()
    }
}

/// The answer to a check.
pub(crate) type _Checked<'lane> = Result<Grant<'lane>, Denial>;
