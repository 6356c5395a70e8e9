//! Regions, windows and their tokens.

use crate::{
    Access, ConnectionId, Denial, DomainId, Grant, Lane, Nanoseconds, QueuePairId, Rights, Scope,
    Segment, Token,
};

/// Limits of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest registration in bytes (ND2 R8).
    pub largest_region: u64,
}

/// A registration to be made (ND2 5.1).
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// Who may use it.
    pub scope: Scope,
    /// What it grants.
    pub rights: Rights,
    /// The address of its first byte as programs and peers name it.
    pub base: u64,
    /// Where the bytes really lie; one segment for an ordinary buffer.
    pub segments: &'a [Segment],
}

/// A window to be bound (ND2 5.2).
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec {
    /// The region.
    pub region: Token,
    /// Who binds: must be in the region's scope.
    pub domain: DomainId,
    /// Who may use it.
    pub scope: Scope,
    /// First byte, in the region's addresses.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// What it grants: remote rights only.
    pub rights: Rights,
}

/// Why something was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Its owner invalidated it.
    Invalidated,
    /// The peer invalidated it.
    InvalidatedByPeer,
    /// The registration was removed.
    Deregistered,
    /// Its queue pair or connection ended (ND2 W20).
    Disconnected,
    /// Its Bind never executed.
    NeverBound,
}

/// What hangs on a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Windows reserved or bound.
    pub windows: u32,
    /// Requests posted, if the front counts them.
    pub posted: u32,
    /// Copies under way at this moment.
    pub guards: u32,
}

/// What makes a deregistration refuse rather than proceed: the front decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unless {
    /// Refuse while windows are bound (ND2 R16).
    pub windows: bool,
    /// Refuse while requests are posted.
    pub posted: bool,
}

/// Why a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// No bytes.
    Empty,
    /// More bytes than the limit.
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Base and length, or a segment, wrap around the address space.
    Wraps,
    /// No free token.
    Exhausted,
}

/// Why a Bind was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The region's token is not live.
    Region(Denial),
    /// The region belongs to another domain (ND2 W5).
    Domain,
    /// No bytes.
    Empty,
    /// Write access to a region without `LOCAL_WRITE` (ND2 W7), or no right to bind.
    Right(Denial),
    /// Not inside the region (ND2 W6).
    Bounds(Denial),
    /// A scope that a window cannot have.
    Scope,
    /// No free token.
    Exhausted,
}

/// Why a deregistration or a close was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeregisterError {
    /// Not registered (ND2 R19), or not a window, or already closed.
    NotLive,
    /// Something hangs on it.
    Busy(Counts),
    /// Not this actor's to close (ND2 W19).
    NotYours(Denial),
}

/// The table of everything registered with one adapter.
#[derive(Debug)]
pub struct Memory {}

impl Memory {
    /// An empty table. `seed` must be unpredictable: tokens are drawn from it.
    #[must_use]
    pub fn new(_seed: [u8; 32], _config: Config) -> Memory {
        todo!()
    }
    /// A lane for one driver thread.
    #[must_use]
    pub fn lane(&self) -> Lane {
        todo!()
    }
    /// Register. The token serves for local and remote use alike.
    pub fn register(&self, _registration: &Registration<'_>) -> Result<Token, RegisterError> {
        todo!()
    }
    /// Remove a registration. When it returns, no copy is under way and none will begin (ND2 R18).
    pub fn deregister(
        &self,
        _region: Token,
        _unless: Unless,
        _now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        todo!()
    }
    /// What hangs on a region; `None` if it is not live.
    #[must_use]
    pub fn counts(&self, _region: Token) -> Option<Counts> {
        todo!()
    }
    /// A request that names the region was posted.
    pub fn posted(&self, _region: Token) -> Result<(), DeregisterError> {
        todo!()
    }
    /// Such a request has completed.
    pub fn retired(&self, _region: Token) {
        todo!()
    }
    /// First half of Bind: the token exists and the region is busy; nobody can use it.
    pub fn reserve(&self, _window: &WindowSpec) -> Result<Token, BindError> {
        todo!()
    }
    /// Second half of Bind: access begins. `false` if the reservation is gone.
    #[must_use]
    pub fn activate(&self, _window: Token) -> bool {
        todo!()
    }
    /// A reservation whose Bind was flushed: the token never lives.
    pub fn abandon(&self, _window: Token, _now: Nanoseconds) {
        todo!()
    }
    /// Close a window on behalf of its owner. When it returns, no copy is under way through it and
    /// none will begin. `queue_pair`: the one on which the owner invalidates, if the front insists
    /// that it be the right one (ND2 W19).
    pub fn close(
        &self,
        _window: Token,
        _queue_pair: Option<QueuePairId>,
        _now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        todo!()
    }
    /// Close a window on behalf of a peer (Send with Invalidate): windows of this very actor only.
    /// Closing one that the same actor's close had already reached is not an error.
    pub fn close_for_peer(
        &self,
        _window: Token,
        _actor: &crate::Actor,
        _now: Nanoseconds,
    ) -> Result<(), DeregisterError> {
        todo!()
    }
    /// Close every window of a queue pair: it was disconnected, failed, or is gone (ND2 W20).
    pub fn close_queue_pair(&self, _queue_pair: QueuePairId, _now: Nanoseconds) {
        todo!()
    }
    /// Close everything of a connection.
    pub fn close_connection(&self, _connection: ConnectionId, _now: Nanoseconds) {
        todo!()
    }
    /// Judge an access and permit one copy of it.
    pub fn check<'lane>(
        &self,
        _lane: &'lane mut Lane,
        _access: &Access,
        _now: Nanoseconds,
    ) -> Result<Grant<'lane>, Denial> {
        todo!()
    }
    /// Judge an access without permitting a copy: for extents announced or posted ahead.
    pub fn probe(&self, _access: &Access, _now: Nanoseconds) -> Result<(), Denial> {
        todo!()
    }
}
