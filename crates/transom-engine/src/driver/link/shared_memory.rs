//! Records between a link's rings and its connection: the counterpart of `tcp`.
//!
//! A side that polls needs no signal; a side that sleeps has set a mark in the shared memory, and
//! the writer that finds the mark rings its socket, once. A thread sets the mark and then looks
//! again before it sleeps (`Link::before_sleep`), so nothing is written unseen in between.

use std::time::Duration;

use transom_core::LinkEnd;
use transom_memory::Segment;
use transom_process::Duplex;
use transom_process::lending::{Borrowed as _, Borrowings, LEAST};
use transom_process::record::{self, HEADER, Header};
use transom_process::ring::{Found, INLINE, Record, RingViolation};
use transom_wire::{Message, MessageId, Time, Wire};

use super::carrier::Carrier;
use super::lending::{Lending, LentHost, LinkMemory, with_host};
use super::silence::Silence;
use super::tcp::FRAME;
use super::{Link, State};
use crate::driver::config::path::Place;
use crate::driver::schedule::regions::SharedRegions;
use crate::sys::{Host, Local, Region};
use crate::{Connection, Cx, Direct, Output, SmallRecord};

/// Small records taken before it is asked whether to acknowledge.
pub(super) const SOME: u32 = 16;
/// The cost of a small record, in the unit of [`FRAME`].
const SMALL: usize = FRAME / 4;
/// Records that a slot is fetched ahead of its own.
const AHEAD: u64 = 6;
/// How often a thread that never sleeps asks whether the other side has ended.
const LOOK: Duration = Duration::from_millis(10);
/// A data area that was in use is given back after so long without payload.
const TIDY: Duration = Duration::from_secs(1);
/// A deadline that is noticed so much too late says nothing about the other side: this process, or
/// its machine, was stopped.
const STOOD_STILL: Duration = Duration::from_secs(1);
/// Times that a pass looks again before it leaves the rest to the next one.
const AGAIN: u32 = 4;

/// Two rings of a link, under its lock.
#[derive(Debug)]
pub(crate) struct Rings {
    duplex: Duplex<LinkMemory>,
    lending: Lending,
    /// Our place among the links of the adapter that share memory.
    _place: Place,
    /// The descriptor to wait for is new since the link's descriptor was last armed.
    pub(crate) moved: bool,
    /// When to ask again whether the other side has ended, and whether it has.
    look: Time,
    over: bool,
    /// How much had gone through our data area when it was last asked about and given back; since when.
    used: u64,
    tidied: u64,
    since: Time,
}

impl Rings {
    /// Fresh ones. `mine`: 0 for the active side, 1 for the passive one. `lends`: this side and the peer
    /// may map shared regions of each other's.
    pub(crate) fn new((rings, place): (Region, Place), mine: usize, lends: bool) -> Rings {
        let memory = LinkMemory { rings, borrowed: Borrowings::default() };
        Rings {
            duplex: Duplex::new(memory, mine),
            lending: Lending::new(lends),
            _place: place,
            moved: true,
            look: Time(0),
            over: false,
            used: 0,
            tidied: 0,
            since: Time(0),
        }
    }

    /// Where it lies, for a test that writes to it.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> (usize, usize) {
        self.duplex.area().rings.whole()
    }

    /// Bytes of payload that have gone through our data area.
    #[cfg(test)]
    pub(crate) fn placed(&self) -> u64 {
        self.duplex.producer().placed()
    }

    /// Whether there is something to read, or the other side is known to have ended.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.duplex.has_news() || self.over
    }

    /// A thread looks by itself at `now`: `true` if there is something to read. Before it leaves it
    /// to others to look, it looks a few times.
    pub(crate) fn glance(&mut self, bell: &Local, now: Time, tries: u32) -> bool {
        // Whether we have said that we sleep makes no difference: at worst we are rung for once. To take
        // it back here could be to take it back from the background thread, which relies on it.
        if now >= self.look {
            self.ask(bell, now);
        }
        // No pause in between: it would last as long as the whole journey of a small record.
        (0..tries).any(|_| self.has_news())
    }

    /// Ask the socket whether the other side has ended, and forget that it rang.
    fn ask(&mut self, bell: &Local, now: Time) {
        self.look = now.after(LOOK);
        for _ in 0..Lending::AT_ONCE {
            let (here, fd) = bell.silence();
            self.over |= !here;
            let Some(fd) = fd else { break };
            self.lending.on_descriptor(&mut self.duplex, &fd);
        }
    }

    /// Take the regions that the peer has handed over, before a record names one.
    #[inline]
    fn take_regions(&mut self, bell: &Local, now: Time) {
        if self.lending.has_descriptor(self.duplex.handed_over()) {
            self.ask(bell, now);
        }
    }

    /// Shared regions of this side that the peer's process has mapped, and their bytes.
    pub(crate) fn lent(&self) -> (usize, u64) {
        self.lending.lent()
    }

    /// Regions of the peer's that this process has mapped, and their bytes.
    pub(crate) fn borrowed(&self) -> (usize, u64) {
        let all = self.duplex.area().borrowed.maps();
        all.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.length()))
    }

    /// The link comes to rest: give pages of our data area back, when no payload has gone through it
    /// for a while. `Some`: when to ask again.
    pub(crate) fn tidy(&mut self, now: Time) -> Option<Time> {
        self.duplex.area_mut().borrowed.tidy();
        let producer = self.duplex.producer();
        let used = producer.placed();
        if used == self.tidied {
            return None;
        }
        if used != self.used || !producer.is_all_read() {
            (self.used, self.since) = (used, now);
        }
        let when = self.since.after(TIDY);
        if now < when {
            return Some(when);
        }
        self.tidied = used;
        self.duplex.area().rings.give_back(self.duplex.mine());
        None
    }

    /// A frame whose payload lies in application memory, without a copy of ours in between.
    fn write_direct(&mut self, header: &[u8], payload: &[Segment]) -> Direct {
        let total = payload.iter().map(|segment| segment.length).sum();
        let gather = |into: &mut [u8]| Host.gather(payload, into);
        let fill =
            |memory: &LinkMemory, side, offset| Host.fill(&memory.rings, side, offset, payload);
        match self.duplex.write_direct(header, total, gather, fill) {
            Ok(true) => Direct::Taken,
            Ok(false) => Direct::Copy,
            Err(_) => Direct::Fault,
        }
    }

    /// Acknowledge beside the records, if it is time, and wake the other side if it sleeps.
    pub(super) fn acknowledge(&mut self, connection: &mut Connection, bell: &Local, now: Time) {
        let word = connection.wire().acknowledgement(now);
        if self.duplex.acknowledge(word) {
            bell.ring();
        }
    }

    /// Wake the other side if it sleeps, and something was written.
    #[inline]
    pub(super) fn wake(&mut self, bell: &Local) {
        if self.duplex.acknowledge(None) {
            bell.ring();
        }
    }

    /// The next record, if it is a small Write. A violation stays for the ordinary read.
    #[inline]
    pub(super) fn read_small(&mut self, record: &mut SmallRecord) -> bool {
        let next = self.duplex.read_small(&mut record.header, &mut record.payload);
        if next.is_err() {
            self.put_back();
        }
        next == Ok(true)
    }

    /// The record that was read last was none for [`Connection::receive_run`].
    pub(super) fn put_back(&mut self) {
        self.duplex.put_back();
    }
}

impl Link {
    /// Take records until there are none, the quota is used up or a control call waits. `false`: there
    /// was nothing.
    pub(crate) fn receive_records(&self, state: &mut State, cx: &mut Cx<'_>, asks: bool) -> bool {
        let mut any = false;
        if let (Some(rings), Some(bell)) = (state.carrier.rings_mut(), self.bell.get())
            && asks
        {
            rings.ask(bell, cx.now);
        }
        if state.read_paused && state.connection.wants_read() {
            any = true;
            self.process_partial(state, cx);
        }
        let budget = self.shared.pass_budget();
        let (mut taken, mut unacknowledged, mut small) = (0, 0, SmallRecord::default());
        loop {
            if state.connection.awaits_queue_pair() {
                // The records of the ring stay where they are until then.
                if state.carrier.rings().is_some_and(|rings| rings.over) {
                    state.connection.link_closed(cx, LinkEnd::Closed);
                }
                break;
            }
            state.read_paused = !state.connection.wants_read();
            if state.read_paused || taken >= budget || self.lock.is_wanted() && any {
                break;
            }
            let State { carrier: Carrier::SharedMemory(rings), connection, .. } = &mut *state
            else {
                break;
            };
            // Small Writes, as far as they follow each other; then what comes behind them.
            let (mut count, mut violation) = (0, None);
            let all_small = connection.receive_run(cx, &mut small, &mut |record| {
                if count == SOME {
                    return false;
                }
                let next = rings.duplex.read_small(&mut record.header, &mut record.payload);
                violation = next.err();
                count += u32::from(next == Ok(true));
                next == Ok(true)
            });
            if count > 0 {
                any = true;
                taken += count as usize * SMALL;
                unacknowledged += count;
            }
            let next = match violation {
                Some(violation) => Some(Err(violation)),
                None if !all_small => Record::of_small(&small.header, &small.payload).map(Ok),
                None if count == SOME => None,
                None => {
                    if let Some(bell) = self.bell.get() {
                        rings.take_regions(bell, cx.now);
                    }
                    rings.duplex.read()
                }
            };
            let (header, body) = match next {
                Some(Ok(Record { header, body })) => {
                    any = true;
                    taken += FRAME + header.payload();
                    if matches!(body, Found::At(_)) {
                        unacknowledged = SOME; // its place is wanted back soon
                    }
                    (Some(header), body)
                }
                Some(Err(violation)) => {
                    state.connection.broken(cx, violation.text());
                    return true;
                }
                None if count == SOME => (None, Found::At(0)),
                None => match rings.duplex.news_beside() {
                    Ok(Some(header)) => {
                        any = true;
                        (Some(header), Found::Inline([0; INLINE / 8]))
                    }
                    Ok(None) if rings.over => {
                        state.connection.link_closed(cx, LinkEnd::Closed);
                        return true;
                    }
                    Ok(None) => break,
                    Err(violation) => {
                        state.connection.broken(cx, violation.text());
                        return true;
                    }
                },
            };
            if let Some(header) = header {
                hand_on(state, cx, &header, body);
                unacknowledged += 1;
            }
            if unacknowledged >= SOME {
                unacknowledged = 0;
                self.acknowledge_and_wake(state, cx.now);
            }
        }
        if any {
            self.acknowledge_and_wake(state, cx.now);
        }
        any
    }

    /// Acknowledge and wake, as far as it is time.
    pub(crate) fn acknowledge_and_wake(&self, state: &mut State, now: Time) {
        if let (Some(rings), Some(bell)) = (state.carrier.rings_mut(), self.bell.get()) {
            rings.acknowledge(&mut state.connection, bell, now);
        }
    }

    /// Have the connection say what it has to say, and write it.
    pub(crate) fn send_records(&self, state: &mut State, cx: &mut Cx<'_>) {
        let budget = self.shared.pass_budget();
        let mut sent = 0;
        loop {
            let State { connection, out, written, carrier, .. } = state;
            let Some(rings) = carrier.rings_mut() else { return };
            let flowing = rings.duplex.write(&mut out.bytes, written);
            let before = sent;
            let stop = sent >= budget || self.lock.is_wanted() && sent > 0;
            let waiting = out.bytes.len();
            let lenders = self.bell.get().map(|bell| (&self.shared.regions, bell));
            let out_bytes = &mut out.bytes;
            let mut outlet =
                Records { rings, out: out_bytes, written, budget, sent, stop, flowing, lenders };
            connection.transmit(cx, &mut outlet);
            sent = outlet.sent + out.bytes.len().saturating_sub(waiting);
            let flowing = rings.duplex.write(&mut out.bytes, written);
            let over = stop || sent >= budget || self.lock.is_wanted();
            if state.end_send(over, flowing, sent > before) {
                break;
            }
            // Let the other side begin while we go on.
            self.acknowledge_and_wake(state, cx.now);
        }
        self.acknowledge_and_wake(state, cx.now);
        self.mind_silence(state, cx);
    }

    /// A side that reads nothing for too long, while we have more for it than fits, is given up, as TCP
    /// does it (TCP_USER_TIMEOUT). A connection that has nothing to write waits as long as it takes.
    fn mind_silence(&self, state: &mut State, cx: &mut Cx<'_>) {
        let waiting = !state.out.bytes.is_empty() || state.connection.wants_write();
        let Some(rings) = state.carrier.rings_mut() else { return };
        let Some(since) = rings.duplex.stuck_since(waiting, cx.now) else { return };
        let end = since.after(self.shared.options.silence);
        if cx.now < end {
            return self.note(end);
        }
        if cx.now > end.after(STOOD_STILL) {
            rings.duplex.forget_stuck(); // it was us who stood still, and maybe both
            return self.note(cx.now.after(STOOD_STILL));
        }
        let _ = self.silence.set(Silence::Untaken);
        state.connection.link_closed(cx, LinkEnd::TimedOut);
    }

    /// The end of a pass behind which a thread sleeps: say so, unless there is more to do. `work`
    /// makes another pass.
    pub(crate) fn before_sleep(&self, state: &mut State, mut work: impl FnMut(&mut State)) {
        for _ in 0..AGAIN {
            let Some(rings) = state.carrier.rings_mut() else { return };
            let slept = rings.duplex.fall_asleep() && !rings.over;
            if slept || !state.connection.wants_read() || state.connection.awaits_queue_pair() {
                return self.set_unread(false);
            }
            rings.duplex.wake_up();
            work(state);
        }
        self.set_unread(state.carrier.is_shared_memory());
    }
}

/// A record, to whom it is for, by the ordinary way.
fn hand_on(state: &mut State, cx: &mut Cx<'_>, header: &Header, body: Found) {
    // Payload of the program's lies elsewhere; all other is a text.
    let mut room = [0; HEADER + record::LARGEST_TEXT];
    let Some(rings) = state.carrier.rings() else { return };
    let used = rings.duplex.copy(header, body, &mut room);
    let bytes = room.get(..used).unwrap_or_default();
    let lent = match body {
        Found::Lent(lent) => rings.duplex.area().borrowed.find(lent, 0).ok().map(LentHost),
        Found::Inline(_) | Found::At(_) | Found::Sink(_) | Found::Placed => None,
    };
    let connection = &mut state.connection;
    let received = match &lent {
        Some(host) => with_host(cx, host, |cx| connection.receive(cx, bytes)),
        None => connection.receive(cx, bytes),
    };
    let left = bytes.get(received.consumed.min(used)..).unwrap_or_default();
    if lent.is_some() && !left.is_empty() {
        // The address holds for this call only: the region may be unmapped before the next one.
        return connection.broken(cx, RingViolation::Region.text());
    }
    state.partial.extend_from_slice(left);
}

/// A ring's writing end for one call of [`Connection::transmit`](crate::Connection::transmit).
pub(super) struct Records<'a> {
    rings: &'a mut Rings,
    out: &'a mut Vec<u8>,
    written: &'a mut usize,
    budget: usize,
    sent: usize,
    stop: bool,
    flowing: bool,
    /// Where regions are found that the peer may map, and the socket by which they are handed over.
    lenders: Option<(&'a SharedRegions, &'a Local)>,
}

impl<'a> Records<'a> {
    /// An output into rings. `out` holds what is written before anything else.
    #[inline]
    pub(super) fn new(
        rings: &'a mut Rings,
        (out, written): (&'a mut Vec<u8>, &'a mut usize),
        budget: usize,
    ) -> Records<'a> {
        let (sent, stop, flowing, lenders) = (0, false, true, None);
        Records { rings, out, written, budget, sent, stop, flowing, lenders }
    }
}

impl Records<'_> {
    /// Write a frame whose payload the peer copies out of a shared region of this side's.
    #[inline]
    fn leave_in_region(&mut self, header: &[u8], payload: &[Segment]) -> bool {
        let (Some(lenders), [one]) = (self.lenders, payload) else { return false };
        if lenders.0.is_empty() {
            return false;
        }
        let Rings { duplex, lending, .. } = &mut *self.rings;
        if !Duplex::<LinkMemory>::may_lend(header) {
            return false;
        }
        let lent = lending.find(duplex, lenders, (one.host, one.length));
        lent.is_some_and(|lent| duplex.write_lent(header, lent))
    }
}

impl Records<'_> {
    /// Copy the payload of an answer, under the guard of its check, to the sink that the peer has lent.
    #[inline]
    fn copy_to_sink(&mut self, header: &[u8], payload: &[Segment]) -> bool {
        let duplex = &mut self.rings.duplex;
        let Some(sink) = duplex.sink(header) else { return false };
        let length = payload.iter().map(|segment| segment.length).sum();
        let Ok(Some(map)) = duplex.area().borrowed.find(sink, length) else { return false };
        // A page that is gone is the source's, and the other way says so.
        !map.is_dropped()
            && Host.fill_lent(map, sink.offset, payload).is_ok()
            && duplex.write_placed(header)
    }
}

impl Output for Records<'_> {
    fn room(&self) -> usize {
        let waiting = self.out.get(*self.written..).unwrap_or_default();
        let room = self.rings.duplex.has_room(waiting);
        if self.stop || !self.flowing || self.sent >= self.budget || !room {
            0
        } else {
            self.budget - self.sent
        }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    fn wants_direct(&self, _length: usize) -> bool {
        true
    }

    fn small_room(&self) -> usize {
        let free = !self.stop && self.flowing && self.sent < self.budget;
        if free && self.rings.duplex.has_small_room(self.out.len()) { INLINE } else { 0 }
    }

    #[inline(always)]
    fn small(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        let header = wire.whole(now, id, message);
        let Some(header) = &header else { return false };
        self.rings.duplex.write_small(header, payload);
        if self.sent > 0 {
            self.rings.duplex.fetch_ahead(AHEAD);
        }
        self.sent += HEADER + payload.len();
        true
    }

    fn wants_sink(&self, length: u64) -> bool {
        length >= LEAST && self.lenders.is_some_and(|(regions, _)| !regions.is_empty())
    }

    fn request(&mut self, header: &[u8], sink: Segment) -> bool {
        // The bytes of `out` go first.
        if !self.rings.duplex.write(self.out, self.written) || !self.out.is_empty() {
            self.flowing = false;
            return false;
        }
        let (Some(lenders), Rings { duplex, lending, .. }) = (self.lenders, &mut *self.rings)
        else {
            return false;
        };
        let lent = lending.find(duplex, lenders, (sink.host, sink.length));
        let done = lent.is_some_and(|lent| duplex.write_read(header, lent));
        self.sent += if done { HEADER } else { 0 };
        done
    }

    fn direct(&mut self, header: &[u8], payload: &[Segment], _trailer: &[u8]) -> Direct {
        // The bytes of `out` go first.
        if !self.rings.duplex.write(self.out, self.written) || !self.out.is_empty() {
            self.flowing = false;
            return Direct::Copy;
        }
        let done = if self.leave_in_region(header, payload) || self.copy_to_sink(header, payload) {
            Direct::Taken
        } else {
            self.rings.write_direct(header, payload)
        };
        if done == Direct::Taken {
            self.sent += HEADER + payload.iter().map(|s| s.length as usize).sum::<usize>();
        }
        done
    }
}
