//! The only places where application bytes move: each piece is checked anew, under a grant of at
//! most 64 KiB that lives for one copy (design rules 1, 5). The copy itself is the [`HostMemory`]'s: the engine's
//! `sys/host.rs`, and `driver/link/lending.rs` for a region that the peer has lent.

use transom_memory::{Access, Actor, Denial, Grant, Pass, Purpose, Rule, Segment, Token};
use transom_wire::{Atomic, Bytes, RefusalClass, Room, Time};

use crate::queue::{Piece, RequestQueue, Slot};
use crate::{Cx, DenialCause, Fault, HostMemory};

/// The most bytes of one grant.
pub(crate) const LARGEST_COPY: usize = 64 * 1024;

const WITHDRAWN: &str = "the peer dropped the shared region that the bytes of its message were in, before they \
                         were copied: a shared region must stay until its requests have completed";

/// Why bytes did not move.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// The check said no.
    Denied(Box<Denial>),
    /// The queue pair itself does not let its peer do this.
    QueuePair(Purpose),
    /// The check said yes, and the pages are gone.
    Vanished { token: u32, address: u64, length: u64 },
    /// The check said yes, and the peer has dropped the shared region that the bytes were in.
    Withdrawn,
    /// A piece that its list does not hold: a defect on this side.
    Missing,
}

impl AccessError {
    /// The part that the peer may know of it, when the peer asked for the bytes.
    pub(crate) fn class(&self) -> RefusalClass {
        match self {
            AccessError::Denied(denial) => class(denial),
            // The operation is none of this queue pair's, whatever the key says (Verbs V93).
            AccessError::QueuePair(_) => RefusalClass::Unsupported,
            AccessError::Vanished { .. } | AccessError::Withdrawn | AccessError::Missing => {
                RefusalClass::Internal
            }
        }
    }

    /// For the record.
    pub(crate) fn cause(self, of_peer: bool) -> DenialCause {
        match self {
            AccessError::Denied(denial) if of_peer => DenialCause::Peer(denial),
            AccessError::Denied(denial) => DenialCause::Own(denial),
            AccessError::QueuePair(purpose) => DenialCause::QueuePair(purpose),
            AccessError::Vanished { token, address, length } => {
                DenialCause::Vanished { token, address, length }
            }
            AccessError::Withdrawn => DenialCause::Other(WITHDRAWN),
            AccessError::Missing => DenialCause::Other("a piece lies outside its own list"),
        }
    }
}

/// The class of rule that a denial belongs to.
pub(crate) fn class(denial: &Denial) -> RefusalClass {
    match denial.rule {
        Rule::LiveToken => RefusalClass::Token,
        Rule::Scope | Rule::Connected => RefusalClass::Scope,
        Rule::Right => RefusalClass::Right,
        Rule::Wrap => RefusalClass::Wrap,
        Rule::Bounds => RefusalClass::Bounds,
        Rule::Aligned => RefusalClass::Misaligned,
    }
}

/// Copy what a grant permits to where a payload goes, behind what is there.
#[inline(always)]
fn fill(host: &dyn HostMemory, grant: &Grant<'_>, room: &mut Room<'_>) -> Result<(), Fault> {
    let Room::Here(bytes) = room else { return fill_elsewhere(host, grant, room) };
    grant.try_each(|Segment { host: from, length }| {
        let length = length as usize; // at most that of a grant
        let (now, later) = std::mem::take(bytes).split_at_mut_checked(length).ok_or(Fault)?;
        *bytes = later;
        host.read(from, now)
    })
}

/// As [`fill`], for a payload that is not composed in its frame.
#[inline(never)]
fn fill_elsewhere(
    host: &dyn HostMemory,
    grant: &Grant<'_>,
    room: &mut Room<'_>,
) -> Result<(), Fault> {
    grant.try_each(|Segment { host: from, length }| match room {
        Room::Here(_) => Err(Fault),
        Room::Behind(bytes) => host.append(from, length as usize, bytes),
        Room::Shared(to) => {
            let at = *to;
            *to += length;
            host.share(from, at, length as usize)
        }
    })
}

/// Copy bytes that lie in memory shared with the peer to where a grant permits.
#[inline(never)]
fn copy_shared(host: &dyn HostMemory, grant: &Grant<'_>, address: u64) -> Result<(), Fault> {
    let mut from = address;
    grant.try_each(|Segment { host: to, length }| {
        let at = from;
        from = from.wrapping_add(length);
        host.copy(at, to, length as usize) // at most that of a grant
    })
}

/// The actor of an access, and its purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub(crate) actor: Actor,
    pub(crate) purpose: Purpose,
}

impl Accessor {
    fn access(self, token: u32, address: u64, length: u64) -> Access {
        let Self { actor, purpose } = self;
        Access { actor, purpose, token: Token(token), address, length }
    }

    /// Judge a whole extent ahead of its bytes.
    pub(crate) fn probe(
        self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        length: u64,
    ) -> Result<(), AccessError> {
        let access = self.access(token, address, length);
        cx.memory.probe(cx.lane, &access, cx.now.0).map_err(AccessError::Denied)
    }

    /// Judge a whole list. Entries of no bytes are skipped (ND2 5.3).
    pub(crate) fn probe_list(
        self,
        cx: &mut Cx<'_>,
        queue: &RequestQueue,
        slot: &Slot,
    ) -> Result<(), AccessError> {
        if slot.is_list() {
            let lines = queue.list(slot).filter_map(|sge| cx.memory.line(Token(sge.token)));
            lines.for_each(|line| cx.host.fetch_ahead(line));
        }
        queue
            .list(slot)
            .filter(|sge| sge.length > 0)
            .try_for_each(|sge| self.probe(cx, sge.token, sge.address, u64::from(sge.length)))
    }

    /// As [`Accessor::probe`], between the copies of a pass.
    pub(crate) fn judge(
        self,
        (pass, now): (&mut Pass<'_>, Time),
        token: u32,
        address: u64,
        length: u64,
    ) -> Result<(), AccessError> {
        pass.probe(&self.access(token, address, length), now.0).map_err(AccessError::Denied)
    }

    /// Copy `bytes` to where the token lets them go.
    pub(crate) fn place(
        self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), AccessError> {
        let mut pass = cx.memory.pass(cx.lane);
        let (mut at, mut left) = (address, bytes);
        while !left.is_empty() {
            let (piece, later) = left.split_at(LARGEST_COPY);
            self.put((&mut pass, cx.host, cx.now), token, at, piece)?;
            (at, left) = (at.wrapping_add(piece.len() as u64), later);
        }
        Ok(())
    }

    /// As [`Accessor::place`], for at most the bytes of one grant, under a guard that others share.
    #[inline(always)]
    pub(crate) fn put(
        self,
        (pass, host, now): (&mut Pass<'_>, &dyn HostMemory, Time),
        token: u32,
        address: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), AccessError> {
        let length = bytes.len() as u64;
        let access = self.access(token, address, length);
        let grant = pass.check(&access, now.0).map_err(AccessError::Denied)?;
        let done = match bytes {
            Bytes::Own(bytes) => {
                let mut rest = bytes;
                grant.try_each(|segment| {
                    let count =
                        usize::try_from(segment.length).unwrap_or(usize::MAX).min(rest.len());
                    let (now, later) = rest.split_at(count);
                    rest = later;
                    host.write(segment.host, now)
                })
            }
            Bytes::Shared { address, .. } => copy_shared(host, &grant, address),
            Bytes::Placed { .. } => Ok(()),
        };
        done.map_err(|_| match bytes {
            Bytes::Shared { .. } if host.source_is_gone() => AccessError::Withdrawn,
            _ => AccessError::Vanished { token, address, length },
        })
    }

    /// Copy `bytes` to where the list puts them, `offset` bytes into the message.
    pub(crate) fn place_list(
        self,
        cx: &mut Cx<'_>,
        queue: &RequestQueue,
        slot: &Slot,
        offset: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), AccessError> {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let piece = queue.piece(slot, offset).ok_or(AccessError::Missing)?;
            let count = usize::try_from(piece.length).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(count);
            self.place(cx, piece.token, piece.address, now)?;
            (offset, rest) = (offset + count as u64, later);
        }
        Ok(())
    }

    /// Copy what the token lets us read to `room`, at most the bytes of one grant, under a guard that others
    /// share. After an error `room` may hold a part of it.
    #[inline(always)]
    pub(crate) fn read(
        self,
        (pass, host, now): (&mut Pass<'_>, &dyn HostMemory, Time),
        Piece { token, address, length }: Piece,
        room: &mut Room<'_>,
    ) -> Result<(), AccessError> {
        let access = self.access(token, address, length);
        let grant = pass.check(&access, now.0).map_err(AccessError::Denied)?;
        fill(host, &grant, room).map_err(|_| AccessError::Vanished { token, address, length })
    }

    /// Change the word that the token lets the peer change: what it held before.
    pub(crate) fn change(
        self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        change: Atomic,
    ) -> Result<u64, AccessError> {
        let length = 8;
        let access = self.access(token, address, length);
        let grant = cx.memory.check(cx.lane, &access, cx.now.0).map_err(AccessError::Denied)?;
        let Some(word) = grant.word() else {
            drop(grant);
            return Err(AccessError::Denied(cx.memory.misaligned(&access, cx.now.0)));
        };
        let gone = |_| AccessError::Vanished { token, address, length };
        cx.host.atomic(word, change).map_err(gone)
    }

    /// As [`Accessor::read`], of any length, under guards of its own.
    pub(crate) fn fetch(
        self,
        cx: &mut Cx<'_>,
        Piece { token, address, length }: Piece,
        room: &mut Room<'_>,
    ) -> Result<(), AccessError> {
        let mut pass = cx.memory.pass(cx.lane);
        let (mut at, mut rest) = (address, length);
        while rest > 0 {
            let length = rest.min(LARGEST_COPY as u64);
            let piece = Piece { token, address: at, length };
            self.read((&mut pass, cx.host, cx.now), piece, room)?;
            (at, rest) = (at.wrapping_add(length), rest - length);
        }
        Ok(())
    }

    /// Copy `length` bytes of a list's message from `offset` on to `room`.
    pub(crate) fn fetch_list(
        self,
        cx: &mut Cx<'_>,
        queue: &RequestQueue,
        slot: &Slot,
        (offset, length): (u64, u64),
        room: &mut Room<'_>,
    ) -> Result<(), AccessError> {
        // Small pieces are cheaper under one guard than under one each.
        let mut pass = cx.memory.pass(cx.lane);
        let (mut offset, mut rest) = (offset, length);
        while rest > 0 {
            let piece = queue.piece(slot, offset).ok_or(AccessError::Missing)?;
            let length = piece.length.min(rest).min(LARGEST_COPY as u64);
            self.read((&mut pass, cx.host, cx.now), Piece { length, ..piece }, room)?;
            (offset, rest) = (offset + length, rest - length);
        }
        Ok(())
    }

    /// Where all of an access lies in this process's memory, if that is one piece and permitted.
    pub(crate) fn host_of(
        self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        length: u64,
    ) -> Option<u64> {
        cx.memory.host_of(cx.lane, &self.access(token, address, length))
    }

    /// Let `then` have the segments of one access of at most 64 KiB, under its grant. `None` when
    /// they are too many to name.
    pub(crate) fn lend<T>(
        self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        length: u64,
        then: impl FnOnce(&[Segment]) -> T,
    ) -> Result<Option<T>, AccessError> {
        const MOST: usize = 8;
        let access = self.access(token, address, length);
        let grant = cx.memory.check(cx.lane, &access, cx.now.0).map_err(AccessError::Denied)?;
        let mut segments = [Segment { host: 0, length: 0 }; MOST];
        let mut count = 0;
        for segment in grant.segments() {
            match segments.get_mut(count) {
                Some(place) => *place = segment,
                None => return Ok(None),
            }
            count += 1;
        }
        Ok(Some(then(segments.get(..count).unwrap_or_default())))
    }
}
