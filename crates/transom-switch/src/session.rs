//! An end of a connection whose two sides share a segment.
//!
//! The caller holds the end's lock of sending for what is under *sending* below, and the one of receiving
//! for what is under *receiving*; it copies bytes, sleeps, wakes, and moves bytes over TCP. Everything
//! else is here.

use super::layout::{Header, LARGE, RINGS, Side, Way, ring_begin, ring_size, side_length};
use super::sync::{AtomicU32, Ordering, fence};
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

/// Bytes of a ring: at most two stretches among the rings of a side, each an offset and a length, none beyond its
/// ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretches {
    /// Offset and length of the first one.
    pub first: (usize, usize),
    /// Offset and length of the second one, which begins where the ring does.
    pub second: (usize, usize),
    /// The ring.
    pub ring: usize,
}

impl Stretches {
    #[inline]
    fn of(position: u64, length: u64, smallest: u64, ring: usize) -> Stretches {
        let (begin, size) = (ring_begin(smallest, ring), ring_size(smallest, ring));
        let offset = position & (size - 1);
        let first = length.min(size - offset);
        Stretches {
            first: ((begin + offset) as usize, first as usize),
            second: (begin as usize, (length - first) as usize),
            ring,
        }
    }

    /// Bytes in both.
    #[must_use]
    #[inline]
    pub fn length(&self) -> usize {
        self.first.1 + self.second.1
    }

    /// The offset of the last one.
    #[must_use]
    pub fn last(&self) -> usize {
        let (at, length) = if self.second.1 > 0 { self.second } else { self.first };
        (at + length).saturating_sub(1)
    }

    /// Whether the memory behind these bytes is given back once their ring is read, so that a sender asks for it
    /// each time.
    #[must_use]
    #[inline]
    pub fn is_large(&self) -> bool {
        self.ring >= LARGE
    }
}

/// The state of a receiver's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Bytes that can be read now, up to the urgent mark.
    pub bytes: u64,
    /// Bytes there are, urgent ones included.
    pub all: u64,
    /// The sender has finished: nothing follows.
    pub finished: bool,
    /// The next byte is the urgent one.
    pub at_mark: bool,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    header: &'a Header,
    side: Side,
    smallest: u64,
}

impl<'a> Session<'a> {
    /// The end `side` of a segment whose smallest rings have `smallest` bytes each ([`Header::examine`]).
    #[must_use]
    #[inline]
    pub fn new(header: &'a Header, side: Side, smallest: u64) -> Session<'a> {
        Session { header, side, smallest }
    }

    /// Which end this is.
    #[must_use]
    #[inline]
    pub fn side(&self) -> Side {
        self.side
    }

    #[inline]
    fn outgoing(&self) -> &'a Way {
        &self.header.ways[self.side.index()]
    }

    #[inline]
    fn incoming(&self) -> &'a Way {
        &self.header.ways[self.side.other().index()]
    }

    /// The words that the processes at this end share.
    #[must_use]
    #[inline]
    pub fn end(&self) -> &'a super::layout::End {
        self.header.end(self.side)
    }

    /// The words that the processes at the other end share.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> &'a super::layout::End {
        self.header.end(self.side.other())
    }

    /// Say whose connection this is, for who lists connections.
    pub fn name_peers(&self, peers: [u64; 6]) {
        self.header.name_peers(peers);
    }

    /// The lock of sending, for processes that share nothing but the segment: 0, or the thread that has it.
    #[must_use]
    #[inline]
    pub fn send_lock(&self) -> &'a AtomicU32 {
        &self.outgoing().sending.0.lock
    }

    /// The lock of receiving, for the same ones.
    #[must_use]
    #[inline]
    pub fn receive_lock(&self) -> &'a AtomicU32 {
        &self.incoming().receiving.0.lock
    }

    /// Where receivers of this end wait for bytes.
    #[must_use]
    #[inline]
    pub fn for_bytes(&self) -> &'a Wait {
        &self.incoming().for_bytes.0
    }

    /// Where senders of this end wait for room.
    #[must_use]
    #[inline]
    pub fn for_room(&self) -> &'a Wait {
        &self.outgoing().for_room.0
    }

    /// Where receivers of the other end wait for bytes of this one.
    #[must_use]
    #[inline]
    pub fn for_peer_bytes(&self) -> &'a Wait {
        &self.outgoing().for_bytes.0
    }

    /// Where senders of the other end wait for room.
    #[must_use]
    #[inline]
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

    /// Where up to `wanted` bytes can be written, without another ring.
    ///
    /// # Errors
    /// [`Violation`]: the other side has read more than was written, or un-read something.
    #[inline]
    pub fn room(&self, wanted: usize) -> Result<Stretches, Violation> {
        let way = self.outgoing();
        let head = way.published.0.head.load(Ordering::Relaxed);
        let tail = way.taken.0.tail.load(Ordering::Acquire);
        if head.wrapping_sub(tail) > side_length(self.smallest) {
            return Err(Violation);
        }
        let (ring, entered) = self.ring_out();
        let used = head.wrapping_sub(tail).min(head.wrapping_sub(entered));
        let free = ring_size(self.smallest, ring).saturating_sub(used);
        Ok(Stretches::of(head, free.min(wanted as u64), self.smallest, ring))
    }

    /// The ring that is written into, and the position at which it was entered. A process that died behind
    /// its change to another ring has left the rest to this.
    #[inline]
    fn ring_out(&self) -> (usize, u64) {
        let way = self.outgoing();
        let ring = way.sending.0.ring.load(Ordering::Relaxed) as usize % RINGS;
        match Left::of(way, ring) {
            None => (ring, way.sending.0.entered.load(Ordering::Relaxed)),
            Some(left) => {
                way.sending.0.ring.store(left.next as u32, Ordering::Relaxed);
                way.sending.0.entered.store(left.at, Ordering::Relaxed);
                (left.next, left.at)
            }
        }
    }

    /// Whether a ring other than the one in use has been read to its end, and left by its reader: that has read
    /// something behind it.
    fn is_free(&self, ring: usize) -> bool {
        let way = self.outgoing();
        let tail = way.taken.0.tail.load(Ordering::Acquire);
        Left::of(way, ring).is_none_or(|left| tail.wrapping_sub(left.at).cast_signed() > 0)
    }

    /// The next larger ring that can be written into.
    #[must_use]
    pub fn larger(&self) -> Option<usize> {
        let (ring, _) = self.ring_out();
        (ring + 1..RINGS).find(|larger| self.is_free(*larger))
    }

    /// The next smaller one.
    #[must_use]
    pub fn smaller(&self) -> Option<usize> {
        let (ring, _) = self.ring_out();
        (0..ring).rev().find(|smaller| self.is_free(*smaller))
    }

    /// Where up to `wanted` bytes could be written behind a change to this ring.
    #[must_use]
    pub fn room_in(&self, ring: usize, wanted: usize) -> Stretches {
        let head = self.outgoing().published.0.head.load(Ordering::Relaxed);
        let length = ring_size(self.smallest, ring).min(wanted as u64);
        Stretches::of(head, length, self.smallest, ring)
    }

    /// Go on in [`Session::larger`] or [`Session::smaller`].
    pub fn change_to(&self, to: usize) {
        let (from, _) = self.ring_out();
        if from == to || to >= RINGS {
            return;
        }
        let way = self.outgoing();
        let head = way.published.0.head.load(Ordering::Relaxed);
        // Both are as they were until the second store, which a reader looks for.
        way.published.0.left[to].store(0, Ordering::Relaxed);
        way.published.0.left[from].store(Left { at: head, next: to }.word(), Ordering::Release);
        way.sending.0.ring.store(to as u32, Ordering::Relaxed);
        way.sending.0.entered.store(head, Ordering::Relaxed);
    }

    /// Leave a large ring of which nearly everything is read: it costs memory.
    #[inline]
    pub fn settle(&self) {
        if self.outgoing().sending.0.ring.load(Ordering::Relaxed) as usize >= LARGE {
            self.settle_now();
        }
    }

    #[cold]
    fn settle_now(&self) {
        let little = ring_size(self.smallest, LARGE - 1) / 2;
        let (ring, _) = self.ring_out();
        if ring >= LARGE && self.queued() <= little && self.is_free(LARGE - 1) {
            self.change_to(LARGE - 1);
        }
    }

    /// Before bytes are written into a large ring, whose memory stays until [`Session::let_go`]. `false`: its reader
    /// is giving the memory back, so that they go elsewhere, behind a `let_go`.
    #[must_use]
    pub fn hold(&self) -> bool {
        let way = self.outgoing();
        way.published.0.keeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        way.taken.0.gives_back.load(Ordering::Acquire) == 0
    }

    /// Behind [`Session::hold`], once bytes are published: memory of the large ring in use that this end gives back,
    /// an offset and a length, because everything is read.
    #[must_use]
    pub fn let_go(&self) -> Option<(usize, usize)> {
        let way = self.outgoing();
        way.published.0.keeps.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.memory_of(self.ring_out().0).filter(|_| self.queued() == 0)
    }

    /// Bytes of memory that the large rings of this end have, at most.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        let small: u64 = (0..LARGE).map(|ring| ring_size(self.smallest, ring)).sum();
        let (ring, entered) = self.ring_out();
        let stays = match self.memory_of(ring) {
            Some((_, length)) if self.queued() > 0 => {
                self.written().wrapping_sub(entered).min(length as u64)
            }
            _ => 0,
        };
        stays.max(self.queued().saturating_sub(small))
    }

    /// Bytes that were written and not read.
    #[must_use]
    pub fn queued(&self) -> u64 {
        let way = self.outgoing();
        let head = way.published.0.head.load(Ordering::Relaxed);
        let queued = head.wrapping_sub(way.taken.0.tail.load(Ordering::Acquire));
        queued.min(side_length(self.smallest))
    }

    /// Bytes written into the rings since the connection began.
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

    /// A send has found less room than it has bytes. It is woken when half of what is queued now is read, and a
    /// poller that reports by edge reports again then.
    pub fn found_full(&self) {
        let way = self.outgoing();
        way.sending.0.full.fetch_add(1, Ordering::Relaxed);
        let head = way.published.0.head.load(Ordering::Relaxed);
        // The mark of a later call is never an earlier position: a reader that has seen an older one wakes too
        // often, never too rarely.
        way.published.0.mark.store(head.wrapping_sub(self.queued() / 2), Ordering::SeqCst);
    }

    /// How often that was.
    #[must_use]
    #[inline]
    pub fn times_full(&self) -> u64 {
        self.outgoing().sending.0.full.load(Ordering::Relaxed)
    }

    /// Whether a poller reports that this end can send: since the last send that found no room, half of what was
    /// queued then is read. A reader wakes senders at the same mark, so that no sender waits for room that is
    /// there.
    #[must_use]
    #[inline]
    pub fn is_writable(&self) -> bool {
        let way = self.outgoing();
        let mark = way.published.0.mark.load(Ordering::SeqCst);
        let tail = way.taken.0.tail.load(Ordering::Acquire);
        tail.wrapping_sub(mark).cast_signed() >= 0 || self.has_finished()
    }

    /// The last of `bytes` that are about to be published is urgent. Before [`Session::filled`].
    pub fn mark_urgent(&self, bytes: usize, byte: u8) {
        let published = &self.outgoing().published.0;
        published.urgent_byte.store(u32::from(byte), Ordering::Relaxed);
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
    #[inline]
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

    /// Whether bytes lie in the TCP stream, behind the change to the ring, that the other side has not counted as
    /// doorbells. `unread` asks the kernel how many there are. Each doorbell is counted before it is sent, and counted
    /// as taken behind that, so that no doorbell is mistaken for such a byte.
    #[must_use]
    pub fn is_unannounced(&self, unread: impl FnOnce() -> u64) -> bool {
        let drained = self.end().drained.load(Ordering::Acquire);
        let there = self.road_in() == Ok(Road::Ring) && unread() > 0;
        there && self.peer().rung.load(Ordering::Acquire).wrapping_sub(drained).cast_signed() <= 0
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

    /// The state of the rings.
    ///
    /// # Errors
    /// [`Violation`]: more was written than there is room for.
    #[inline]
    pub fn arrived(&self) -> Result<Incoming, Violation> {
        let way = self.incoming();
        // A poller looks while another thread reads: `head` is never behind an older `tail`.
        let mut tail = way.taken.0.tail.load(Ordering::Acquire);
        // Read before `head`: what was written before the end counts.
        let finished = way.published.0.finished.load(Ordering::Acquire) != 0;
        let head = way.published.0.head.load(Ordering::Acquire);
        let mut all = head.wrapping_sub(tail);
        if all > side_length(self.smallest) {
            let now = way.taken.0.tail.load(Ordering::Acquire);
            if now == tail {
                return Err(Violation);
            }
            // Much was read and written since: what there was at one moment.
            (tail, all) = (now, head.wrapping_sub(now).min(1));
        }
        let mark = way.published.0.urgent.load(Ordering::Acquire);
        let (bytes, at_mark) = if mark == 0 { (all, false) } else { self.stop_at(mark, tail, all) };
        Ok(Incoming { bytes, all, finished, at_mark })
    }

    /// A read stops before the urgent byte, and is at the mark when this byte is next.
    #[cold]
    fn stop_at(&self, mark: u64, tail: u64, all: u64) -> (u64, bool) {
        let before = mark.wrapping_sub(1).wrapping_sub(tail);
        if before >= all {
            // The byte was passed already, or has not been written.
            (all, false)
        } else if before > 0 {
            (before, false)
        } else {
            (if self.is_inline() { all } else { 0 }, true)
        }
    }

    /// Where up to `wanted` of [`Incoming::bytes`] lie, behind their first `skip`: fewer, where a ring ends before
    /// them.
    ///
    /// # Errors
    /// [`Violation`]: rings were left in a way that leads nowhere, or a ring has more than it has room for.
    #[inline]
    pub fn at(
        &self,
        incoming: &Incoming,
        skip: u64,
        wanted: usize,
    ) -> Result<Stretches, Violation> {
        let tail = self.incoming().taken.0.tail.load(Ordering::Relaxed);
        let (ring, here) = self.ring_in(tail, skip, incoming.all)?;
        let length = here.min(incoming.bytes.saturating_sub(skip)).min(wanted as u64);
        Ok(Stretches::of(tail.wrapping_add(skip), length, self.smallest, ring))
    }

    /// The ring that has the byte behind the next `skip` ones, and how many of `all` lie there from that one on.
    #[inline]
    fn ring_in(&self, tail: u64, skip: u64, all: u64) -> Result<(usize, u64), Violation> {
        let way = self.incoming();
        let first = way.receiving.0.ring.load(Ordering::Relaxed) as usize % RINGS;
        let mut ring = first;
        // Read behind `head`: a ring is left before anything is written into the next one.
        for _ in 0..=RINGS {
            let end = match Left::of(way, ring) {
                Some(left) if left.at.wrapping_sub(tail) <= skip => {
                    ring = left.next;
                    continue;
                }
                Some(left) => left.at.wrapping_sub(tail).min(all),
                None => all,
            };
            if skip == 0 && ring != first {
                way.receiving.0.ring.store(ring as u32, Ordering::Relaxed);
            }
            let here = end.saturating_sub(skip);
            let fits = here <= ring_size(self.smallest, ring);
            return if fits { Ok((ring, here)) } else { Err(Violation) };
        }
        Err(Violation)
    }

    /// Before [`Session::consumed`] is told of these bytes: the memory, an offset and a length, of a large ring that is
    /// read to its end and left. No sender writes there before that.
    #[must_use]
    #[inline]
    pub fn left_behind(&self, stretches: &Stretches) -> Option<(usize, usize)> {
        let behind = &self.incoming().receiving.0.behind;
        let before = behind.load(Ordering::Relaxed) as usize;
        let now = if stretches.is_large() { stretches.ring } else { 0 };
        if before == now {
            return None;
        }
        behind.store(now as u32, Ordering::Relaxed);
        self.memory_of(before)
    }

    /// Behind [`Session::consumed`]: if everything is read, and no sender is about to write into the large ring that
    /// the bytes came from, `give` gets its memory, an offset and a length. Such a sender gives it back by
    /// itself ([`Session::let_go`]).
    pub fn give_back(&self, give: impl FnOnce(usize, usize)) {
        let way = self.incoming();
        let (tail, behind) = (way.taken.0.tail.load(Ordering::Relaxed), &way.receiving.0.behind);
        let memory = self.memory_of(behind.load(Ordering::Relaxed) as usize);
        let is_all_read = || way.published.0.head.load(Ordering::SeqCst) == tail;
        let Some((at, length)) = memory.filter(|_| is_all_read()) else { return };
        way.taken.0.gives_back.store(1, Ordering::Relaxed);
        // Pairs with those of `hold` and `let_go`: a sender sees the word and writes elsewhere, or this sees its
        // word, or what it has written.
        fence(Ordering::SeqCst);
        if way.published.0.keeps.load(Ordering::SeqCst) == 0 && is_all_read() {
            give(at, length);
            behind.store(0, Ordering::Relaxed);
        }
        way.taken.0.gives_back.store(0, Ordering::Release);
    }

    /// The memory of a large ring: offset and length.
    fn memory_of(&self, ring: usize) -> Option<(usize, usize)> {
        let large = (LARGE..RINGS).contains(&ring);
        large.then(|| {
            (ring_begin(self.smallest, ring) as usize, ring_size(self.smallest, ring) as usize)
        })
    }

    /// Free `bytes` that were read where [`Session::at`] has said. Senders that wait are woken at the mark that
    /// they have set.
    #[inline]
    pub fn consumed(&self, bytes: usize) -> Wake {
        let way = self.incoming();
        let tail = way.taken.0.tail.load(Ordering::Relaxed).wrapping_add(bytes as u64);
        way.taken.0.tail.store(tail, Ordering::Release);
        let mark = way.published.0.mark.load(Ordering::Relaxed);
        if tail.wrapping_sub(mark).cast_signed() >= 0 {
            way.for_room.0.wake()
        } else {
            Wake::default()
        }
    }

    /// Bytes of the other side that were taken from the TCP connection.
    #[must_use]
    #[inline]
    pub fn taken_from_tcp(&self) -> u64 {
        self.incoming().receiving.0.by_tcp.load(Ordering::Relaxed)
    }

    /// Bytes that were ever written into the rings of the other side.
    #[must_use]
    #[inline]
    pub fn head_in(&self) -> u64 {
        self.incoming().published.0.head.load(Ordering::Acquire)
    }

    /// Whether urgent bytes stay in the stream that this end reads (`SO_OOBINLINE`, tcp(7)).
    #[must_use]
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.end().inline.load(Ordering::Relaxed) != 0
    }

    /// The urgent byte, if it was neither received out of band nor passed by.
    #[must_use]
    #[inline]
    pub fn urgent(&self) -> Option<u8> {
        let way = self.incoming();
        let mark = way.published.0.urgent.load(Ordering::Acquire);
        let head = way.published.0.head.load(Ordering::Acquire);
        let tail = way.taken.0.tail.load(Ordering::Relaxed);
        let fresh = mark != 0
            && mark != way.receiving.0.urgent.load(Ordering::Relaxed)
            && head.wrapping_sub(mark).cast_signed() >= 0
            && tail.wrapping_sub(mark).cast_signed() < 0;
        fresh.then(|| way.published.0.urgent_byte.load(Ordering::Relaxed) as u8)
    }

    /// The urgent byte was received out of band.
    pub fn took_urgent(&self) {
        let way = self.incoming();
        let mark = way.published.0.urgent.load(Ordering::Relaxed);
        way.receiving.0.urgent.store(mark, Ordering::Relaxed);
    }

    /// Where the urgent byte lies, if [`Incoming::at_mark`]: a read that follows one which ended there passes over it,
    /// which [`Session::consumed`] is told as of any other byte. This may be the first one of its ring.
    ///
    /// # Errors
    /// As of [`Session::at`].
    #[cold]
    pub fn at_mark(&self, incoming: &Incoming) -> Result<Stretches, Violation> {
        self.at(&Incoming { bytes: incoming.all, ..*incoming }, 0, 1)
    }
}

/// Where a ring was left, and for which one.
#[derive(Clone, Copy)]
struct Left {
    at: u64,
    next: usize,
}

impl Left {
    #[inline]
    fn of(way: &Way, ring: usize) -> Option<Left> {
        let word = way.published.0.left[ring % RINGS].load(Ordering::Acquire).checked_sub(1)?;
        // 62 bits of a position: no connection carries more.
        Some(Left { at: word >> 2, next: word as usize % RINGS })
    }

    fn word(self) -> u64 {
        (self.at << 2 | self.next as u64).wrapping_add(1)
    }
}
