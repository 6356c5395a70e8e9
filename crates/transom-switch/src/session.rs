//! An end of a connection whose two sides share a segment.
//!
//! The caller holds the end's lock of sending for what is under *sending* below, and the one of receiving
//! for what is under *receiving*; it copies bytes, sleeps, wakes, and moves bytes over TCP. Everything
//! else is here.

use super::layout::{Header, Side, Way};
use super::sync::{AtomicU32, Ordering};
use super::wait::{Wait, Wake};

/// How far two sides have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The active side offers the segment.
    Offered,
    /// The passive side has taken it: both use the rings.
    Claimed,
    /// The connection stays with TCP for good.
    Withdrawn,
}

const OFFERED: u32 = 0;
const CLAIMED: u32 = 1;
const WITHDRAWN: u32 = 2;

/// Where the next byte goes, or comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    /// The TCP connection, and at most so many bytes of it where that is known.
    Tcp(Option<u64>),
    /// The ring.
    Ring,
}

/// The other side has broken a rule of the segment: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// Bytes of a ring: at most two stretches, each an offset and a length, none beyond the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    /// Offset and length of the first one.
    pub first: (usize, usize),
    /// The second one begins at offset 0.
    pub second: usize,
}

impl Stretches {
    fn of(position: u64, length: u64, ring: u64) -> Stretches {
        let offset = position & (ring - 1);
        let first = length.min(ring - offset);
        Stretches { first: (offset as usize, first as usize), second: (length - first) as usize }
    }

    /// Bytes in both.
    #[must_use]
    pub fn length(&self) -> usize {
        self.first.1 + self.second
    }
}

/// The state of a receiver's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Bytes that can be read now, up to the urgent mark.
    pub bytes: u64,
    /// Bytes there are, urgent ones included.
    pub all: u64,
    /// The sender has finished: nothing follows.
    pub finished: bool,
    /// The next byte is the urgent one, out of line.
    pub at_mark: bool,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    header: &'a Header,
    side: Side,
    ring: u64,
}

impl<'a> Session<'a> {
    /// The end `side` of a segment whose rings have `ring` bytes each ([`Header::examine`]).
    #[must_use]
    pub fn new(header: &'a Header, side: Side, ring: u64) -> Session<'a> {
        Session { header, side, ring }
    }

    /// Which end this is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    fn outgoing(&self) -> &'a Way {
        &self.header.ways[self.side.index()]
    }

    fn incoming(&self) -> &'a Way {
        &self.header.ways[self.side.other().index()]
    }

    /// The words that the processes at this end share.
    #[must_use]
    pub fn end(&self) -> &'a super::layout::End {
        self.header.end(self.side)
    }

    /// The words that the processes at the other end share.
    #[must_use]
    pub fn peer(&self) -> &'a super::layout::End {
        self.header.end(self.side.other())
    }

    /// Say whose connection this is, for a sweep of what dead processes have left.
    pub fn name_peers(&self, peers: [u64; 6]) {
        self.header.name_peers(peers);
    }

    /// The lock of sending: 0, or the thread that has it.
    #[must_use]
    pub fn send_lock(&self) -> &'a AtomicU32 {
        &self.outgoing().sending.0.lock
    }

    /// The lock of receiving.
    #[must_use]
    pub fn receive_lock(&self) -> &'a AtomicU32 {
        &self.incoming().receiving.0.lock
    }

    /// Where receivers of this end wait for bytes.
    #[must_use]
    pub fn for_bytes(&self) -> &'a Wait {
        &self.incoming().for_bytes.0
    }

    /// Where senders of this end wait for room.
    #[must_use]
    pub fn for_room(&self) -> &'a Wait {
        &self.outgoing().for_room.0
    }

    /// Where receivers of the other end wait for bytes of this one.
    #[must_use]
    pub fn for_peer_bytes(&self) -> &'a Wait {
        &self.outgoing().for_bytes.0
    }

    /// Where senders of the other end wait for room.
    #[must_use]
    pub fn for_peer_room(&self) -> &'a Wait {
        &self.incoming().for_room.0
    }

    /// Before this end is armed: the sleep that any doorbell of several ends is going to end, or 0.
    #[inline]
    pub fn shares_sleep(&self, sleep: u64) {
        self.end().sleep.store(sleep, Ordering::Relaxed);
    }

    /// Where a doorbell is due: the sleep that it ends, if it need not end anything else. 0: the
    /// doorbell has to be sent.
    #[must_use]
    pub fn peer_sleep(&self) -> u64 {
        let peer = self.peer();
        // Each of them counts itself, then arms, then looks: one that is not seen here sees the change.
        let others =
            peer.waiting.load(Ordering::SeqCst) != 0 || peer.members.load(Ordering::SeqCst) > 1;
        if others { 0 } else { peer.sleep.load(Ordering::SeqCst) }
    }

    // --- agreement ---

    /// How far both have agreed. An unknown word is an agreement not to.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State {
        match self.header.state.0.load(Ordering::Acquire) {
            OFFERED => State::Offered,
            CLAIMED => State::Claimed,
            _ => State::Withdrawn,
        }
    }

    /// The active end begins: bytes that it has sent and received over TCP before the segment was made.
    pub fn count_before(&self, sent: u64, received: u64) {
        self.outgoing().sending.0.by_tcp.store(sent, Ordering::Relaxed);
        self.incoming().receiving.0.by_tcp.store(received, Ordering::Relaxed);
    }

    /// The passive end takes what was offered, as the socket with this cookie; so does another process
    /// that holds the same socket. `sent`, `received`: bytes that this end has sent and read before, over
    /// TCP; the first claim counts.
    pub fn claim(&self, cookie: u64, sent: u64, received: u64) -> bool {
        let known =
            self.end().cookie.compare_exchange(0, cookie, Ordering::AcqRel, Ordering::Acquire);
        if known.is_err_and(|known| known != cookie) {
            return false;
        }
        if self.state() == State::Claimed {
            return true;
        }
        self.count_before(sent, received);
        let word = &self.header.state.0;
        let taken = word.compare_exchange(OFFERED, CLAIMED, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(CLAIMED)
    }

    /// Stay with TCP for good. `false`: the other side was first, and the rings are used.
    pub fn withdraw(&self) -> bool {
        let word = &self.header.state.0;
        let done = word.compare_exchange(OFFERED, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        done != Err(CLAIMED)
    }

    // --- sending ---

    /// Where the next byte goes. The first answer *ring* publishes how many bytes went over TCP before.
    #[must_use]
    #[inline]
    pub fn road_out(&self) -> Road {
        let way = self.outgoing();
        if way.published.0.switched.load(Ordering::Relaxed) != 0 {
            return Road::Ring;
        }
        if self.state() != State::Claimed {
            return Road::Tcp(None);
        }
        let before = way.sending.0.by_tcp.load(Ordering::Relaxed);
        way.published.0.switched.store(before.wrapping_add(1), Ordering::Release);
        Road::Ring
    }

    /// Whether bytes go through the ring already.
    #[must_use]
    #[inline]
    pub fn sends_by_ring(&self) -> bool {
        self.outgoing().published.0.switched.load(Ordering::Relaxed) != 0
    }

    /// Bytes that went over TCP, by the count of [`Session::sent_by_tcp`].
    #[must_use]
    pub fn counted_by_tcp(&self) -> u64 {
        self.outgoing().sending.0.by_tcp.load(Ordering::Relaxed)
    }

    /// Count `bytes` that went over TCP.
    pub fn sent_by_tcp(&self, bytes: u64) {
        let count = &self.outgoing().sending.0.by_tcp;
        count.store(count.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Where up to `wanted` bytes can be written.
    ///
    /// # Errors
    /// [`Violation`]: the other side has read more than was written, or un-read something.
    #[inline]
    pub fn room(&self, wanted: usize) -> Result<Stretches, Violation> {
        let (head, free) = self.free()?;
        Ok(Stretches::of(head, free.min(wanted as u64), self.ring))
    }

    #[inline]
    fn free(&self) -> Result<(u64, u64), Violation> {
        let way = self.outgoing();
        let head = way.published.0.head.load(Ordering::Relaxed);
        let used = head.wrapping_sub(way.taken.0.tail.load(Ordering::Acquire));
        let free = self.ring.checked_sub(used).ok_or(Violation)?;
        Ok((head, free))
    }

    /// Bytes written into the ring since the connection began.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.outgoing().published.0.head.load(Ordering::Relaxed)
    }

    /// Publish `bytes` that were written where [`Session::room`] has said.
    #[inline]
    pub fn filled(&self, bytes: usize) -> Wake {
        let way = self.outgoing();
        let head = way.published.0.head.load(Ordering::Relaxed).wrapping_add(bytes as u64);
        way.published.0.head.store(head, Ordering::Release);
        way.for_bytes.0.wake()
    }

    /// A send has found less room than it has bytes. A poller that reports by edge reports again when
    /// there is room.
    pub fn found_full(&self) {
        self.outgoing().sending.0.full.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was.
    #[must_use]
    pub fn times_full(&self) -> u64 {
        self.outgoing().sending.0.full.load(Ordering::Relaxed)
    }

    /// Whether a poller reports that this end can send: half of the ring is free. A reader wakes
    /// senders at the same mark, so that no sender waits for room that is there.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.free().is_ok_and(|(_, free)| free >= self.ring / 2) || self.has_finished()
    }

    /// The last of the bytes just filled is urgent. Before [`Session::filled`].
    pub fn mark_urgent(&self, bytes: usize) {
        let published = &self.outgoing().published.0;
        let end = published.head.load(Ordering::Relaxed).wrapping_add(bytes as u64);
        published.urgent.store(end, Ordering::Release);
    }

    /// Nothing follows what was written.
    pub fn finish(&self) -> Wake {
        let way = self.outgoing();
        way.published.0.finished.store(1, Ordering::Release);
        way.for_bytes.0.wake()
    }

    /// Whether [`Session::finish`] was called at this end.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        self.outgoing().published.0.finished.load(Ordering::Relaxed) != 0
    }

    /// Whether the other side has read everything that was sent, over TCP and by the ring.
    #[must_use]
    pub fn is_all_read(&self) -> bool {
        let way = self.outgoing();
        let by_tcp = way.receiving.0.by_tcp.load(Ordering::Acquire) == self.counted_by_tcp();
        by_tcp
            && way.published.0.head.load(Ordering::Relaxed)
                == way.taken.0.tail.load(Ordering::Acquire)
    }

    // --- receiving ---

    /// Where the next byte comes from.
    ///
    /// # Errors
    /// [`Violation`]: the sender claims to have sent fewer bytes over TCP than came.
    #[inline]
    pub fn road_in(&self) -> Result<Road, Violation> {
        let way = self.incoming();
        let switched = way.published.0.switched.load(Ordering::Acquire);
        let Some(before) = switched.checked_sub(1) else { return Ok(Road::Tcp(None)) };
        let came = way.receiving.0.by_tcp.load(Ordering::Relaxed);
        match before.checked_sub(came) {
            None => Err(Violation),
            Some(0) => Ok(Road::Ring),
            left => Ok(Road::Tcp(left)),
        }
    }

    /// Count `bytes` that were taken from the TCP stream: how many of them belong to the program. The
    /// rest are doorbells.
    ///
    /// # Errors
    /// As [`Session::road_in`].
    pub fn received_by_tcp(&self, bytes: u64) -> Result<u64, Violation> {
        let way = self.incoming();
        let count = &way.receiving.0.by_tcp;
        let came = count.load(Ordering::Relaxed);
        let switched = way.published.0.switched.load(Ordering::Acquire);
        let payload = match switched.checked_sub(1) {
            None => bytes,
            Some(before) => bytes.min(before.checked_sub(came).ok_or(Violation)?),
        };
        count.store(came.wrapping_add(payload), Ordering::Relaxed);
        self.end().drained.fetch_add(bytes - payload, Ordering::Relaxed);
        Ok(payload)
    }

    /// Doorbells that may lie in the TCP stream, at most 64 KiB of them. Behind a change to the ring
    /// nothing else is in it.
    #[must_use]
    pub fn doorbells(&self) -> usize {
        let rung = self.peer().rung.load(Ordering::Acquire);
        let left = rung.wrapping_sub(self.end().drained.load(Ordering::Relaxed));
        left.min(65_536) as usize
    }

    /// Whether bytes went over the TCP connection that no call has counted, in either direction. `sent`,
    /// `received`: the kernel's counts at this end, which were asked for before, because each doorbell is
    /// counted before it is sent. The rest of a direction that has not changed to the ring is not judged.
    #[must_use]
    pub fn is_past(&self, sent: u64, received: u64) -> bool {
        let more = |way: &Way, rung: u64, count: u64| {
            let before = way.published.0.switched.load(Ordering::Acquire).checked_sub(1);
            before.is_some_and(|before| {
                count.wrapping_sub(before.wrapping_add(rung)).cast_signed() > 0
            })
        };
        more(self.outgoing(), self.end().rung.load(Ordering::Acquire), sent)
            || more(self.incoming(), self.peer().rung.load(Ordering::Acquire), received)
    }

    /// The state of the ring.
    ///
    /// # Errors
    /// [`Violation`]: more than the ring's size was written.
    #[inline]
    pub fn arrived(&self) -> Result<Incoming, Violation> {
        let way = self.incoming();
        // Read before `head`: what was written before the end counts.
        let finished = way.published.0.finished.load(Ordering::Acquire) != 0;
        let head = way.published.0.head.load(Ordering::Acquire);
        let tail = way.taken.0.tail.load(Ordering::Relaxed);
        let all = head.wrapping_sub(tail);
        if all > self.ring {
            return Err(Violation);
        }
        let mut incoming = Incoming { bytes: all, all, finished, at_mark: false };
        let mark = way.published.0.urgent.load(Ordering::Acquire);
        if mark != 0 {
            self.stop_at(mark, tail, &mut incoming);
        }
        Ok(incoming)
    }

    /// A read stops before the urgent byte, and is at the mark when this byte is next.
    #[cold]
    fn stop_at(&self, mark: u64, tail: u64, incoming: &mut Incoming) {
        let before = mark.wrapping_sub(1).wrapping_sub(tail);
        // Otherwise the byte was passed already, or has not been written.
        if before < incoming.all {
            incoming.at_mark = before == 0;
            if before > 0 {
                incoming.bytes = before;
            } else if self.end().inline.load(Ordering::Relaxed) == 0 {
                incoming.bytes = 0;
            }
        }
    }

    /// Where up to `wanted` of [`Incoming::bytes`] lie.
    #[must_use]
    #[inline]
    pub fn at(&self, incoming: &Incoming, wanted: usize) -> Stretches {
        let tail = self.incoming().taken.0.tail.load(Ordering::Relaxed);
        Stretches::of(tail, incoming.bytes.min(wanted as u64), self.ring)
    }

    /// Free `bytes` that were read where [`Session::at`] has said. Senders that wait are woken when half of the ring
    /// is free.
    #[inline]
    pub fn consumed(&self, bytes: usize) -> Wake {
        let way = self.incoming();
        let tail = way.taken.0.tail.load(Ordering::Relaxed).wrapping_add(bytes as u64);
        way.taken.0.tail.store(tail, Ordering::Release);
        // An older `head` wakes too often, never too rarely.
        let used = way.published.0.head.load(Ordering::Relaxed).wrapping_sub(tail);
        if used <= self.ring / 2 { way.for_room.0.wake() } else { Wake::default() }
    }

    /// Bytes in the ring that no call has taken.
    #[must_use]
    pub fn head_in(&self) -> u64 {
        self.incoming().published.0.head.load(Ordering::Acquire)
    }

    /// Whether there is an urgent byte that was not received out of band, and where it lies.
    #[must_use]
    pub fn urgent(&self) -> Option<usize> {
        let way = self.incoming();
        let mark = way.published.0.urgent.load(Ordering::Acquire);
        let fresh = mark != 0 && mark != way.receiving.0.urgent.load(Ordering::Relaxed);
        // The ring still has the byte unless a lap of later ones has overwritten it.
        let age = way.published.0.head.load(Ordering::Acquire).wrapping_sub(mark.wrapping_sub(1));
        (fresh && age >= 1 && age <= self.ring)
            .then(|| (mark.wrapping_sub(1) & (self.ring - 1)) as usize)
    }

    /// The urgent byte was received out of band.
    pub fn took_urgent(&self) {
        let way = self.incoming();
        let mark = way.published.0.urgent.load(Ordering::Relaxed);
        way.receiving.0.urgent.store(mark, Ordering::Relaxed);
    }

    /// A read that follows one which ended at the mark passes over the urgent byte.
    pub fn pass_mark(&self) -> Wake {
        self.consumed(1)
    }
}
