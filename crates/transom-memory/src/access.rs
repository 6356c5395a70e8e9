//! The question.

use crate::{ConnectionId, DomainId, QueuePairId, Rights, Token};

/// The actor that asks: every check names it, local ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Domain of the queue pair.
    pub domain: DomainId,
    /// The queue pair.
    pub queue_pair: QueuePairId,
    /// The connection; `None` while it is not established.
    pub connection: Option<ConnectionId>,
}

/// The use of the memory. Decides which right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The owner's Send or Write reads it (`LOCAL_READ`).
    LocalSource,
    /// A message is received into it (`LOCAL_WRITE`).
    ReceiveBuffer,
    /// The answer to the owner's Read goes into it (`LOCAL_WRITE` or `READ_SINK`).
    ReadSink,
    /// The answer goes into it where only memory marked as such may be a sink (`READ_SINK`; NDK MR-15).
    MarkedReadSink,
    /// A peer reads it (`REMOTE_READ`).
    RemoteRead,
    /// A peer writes it (`REMOTE_WRITE`).
    RemoteWrite,
    /// A peer does an atomic on it (`REMOTE_ATOMIC`).
    RemoteAtomic,
    /// A window is bound to it (`BIND`). In records of [`Memory::reserve`](crate::Memory::reserve);
    /// touches no byte.
    Bind,
    /// Closing it. In records of closes and deregistrations; no right permits an access for it.
    Close,
}

impl Purpose {
    /// The rights of which one is needed.
    #[must_use]
    #[inline]
    pub const fn rights(self) -> Rights {
        match self {
            Purpose::LocalSource => Rights::LOCAL_READ,
            Purpose::ReceiveBuffer => Rights::LOCAL_WRITE,
            Purpose::ReadSink => Rights::LOCAL_WRITE.or(Rights::READ_SINK),
            Purpose::MarkedReadSink => Rights::READ_SINK,
            Purpose::RemoteRead => Rights::REMOTE_READ,
            Purpose::RemoteWrite => Rights::REMOTE_WRITE,
            Purpose::RemoteAtomic => Rights::REMOTE_ATOMIC,
            Purpose::Bind => Rights::BIND,
            Purpose::Close => Rights::NONE,
        }
    }

    /// Whether it is a peer who asks.
    #[must_use]
    #[inline]
    pub const fn is_remote(self) -> bool {
        matches!(self, Purpose::RemoteRead | Purpose::RemoteWrite | Purpose::RemoteAtomic)
    }
}

/// An access to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The actor.
    pub actor: Actor,
    /// The purpose.
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
