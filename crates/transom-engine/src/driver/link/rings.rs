//! The two rings of a link, under its lock: what is read from the peer's and written into this side's.

use std::convert::Infallible;
use std::time::Duration;

use transom_memory::Segment;
use transom_process::lending::{Borrowed as _, Borrowings, LEAST};
use transom_process::record::HEADER;
use transom_process::ring::INLINE;
use transom_process::{Area, Duplex};
use transom_wire::{Message, MessageId, Time, Wire};

use super::lending::{Lending, LinkMemory};
use crate::driver::config::path::Place;
use crate::driver::schedule::regions::SharedRegions;
use crate::sys::{self, GivingBack, Host, Local, Region, Rung};
use crate::{Connection, Direct, Output};

/// Records that a slot is fetched ahead of its own.
const AHEAD: u64 = 6;
/// How often a thread that never sleeps asks whether the other side has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Pause before a descriptor of the peer's is fetched again for which this process had no place.
const STARVED: Duration = Duration::from_millis(5);
/// A data area that was in use is given back after so long without payload.
const TIDY: Duration = Duration::from_secs(1);

/// Two rings of a link, under its lock.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(super) duplex: Duplex<LinkMemory>,
    lending: Lending,
    /// Our place among the links of the adapter that share memory.
    _place: Place,
    /// The descriptor to wait for is new since the link's descriptor was last armed.
    pub(crate) moved: bool,
    /// When to ask again whether the other side has ended, and whether it has.
    look: Time,
    pub(super) over: bool,
    /// This process had no place for a descriptor that lies in the socket, so that nothing behind it is heard:
    /// when to look again.
    starved: Option<Time>,
    /// How much had gone through our data area when it was last asked about and given back; since when.
    used: u64,
    tidied: u64,
    since: Time,
    /// Our data area, of this size, is closed while its pages are given back.
    giving_back: Option<(GivingBack, usize)>,
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
            starved: None,
            used: 0,
            tidied: 0,
            since: Time(0),
            giving_back: None,
        }
    }

    /// Where it lies, for a test that writes to it.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> (usize, usize) {
        self.duplex.area().rings.whole()
    }

    /// Whether pages of our data area are being given back.
    #[cfg(test)]
    pub(crate) fn gives_back(&self) -> bool {
        self.giving_back.is_some()
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
    pub(super) fn ask(&mut self, bell: &Local, now: Time) {
        self.look = now.after(LOOK);
        self.starved = None;
        for _ in 0..Lending::AT_ONCE {
            let Rung { ended, fd, starved } = bell.silence();
            self.over |= ended;
            self.starved = starved.then(|| now.after(STARVED));
            let Some(fd) = fd else { break };
            let mapped = self.lending.on_descriptor(&mut self.duplex, fd);
            // Whatever it is, it waits to be released, and its sender may have more of them.
            self.over |= !mapped && sys::is_behind();
        }
    }

    /// Nothing in the socket is heard until then, because this process has no more descriptors.
    pub(super) fn starved(&self) -> Option<Time> {
        self.starved
    }

    /// Take the regions that the peer has handed over, before a record names one.
    #[inline]
    pub(super) fn take_regions(&mut self, bell: &Local, now: Time) {
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
        if let Some(giving) = self.duplex.area().rings.give_back(self.duplex.mine()) {
            self.giving_back = Some((giving, self.duplex.close_area()));
        }
        None
    }

    /// Something is to be sent: use the data area again. `Some`: when to ask again, because its pages are
    /// being given back this moment.
    pub(super) fn open_area(&mut self, now: Time) -> Option<Time> {
        let (giving, size) = self.giving_back.as_ref()?;
        if !giving.stop() {
            return Some(now.after(LOOK));
        }
        self.duplex.open_area(*size);
        self.giving_back = None;
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
    #[inline(always)]
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
}

/// A ring's writing end for one call of [`Connection::transmit`](crate::Connection::transmit).
pub(super) struct RingOutlet<'a> {
    pub(super) rings: &'a mut Rings,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) written: &'a mut usize,
    pub(super) budget: usize,
    pub(super) sent: usize,
    pub(super) stop: bool,
    pub(super) flowing: bool,
    /// Where regions are found that the peer may map, and the socket by which they are handed over.
    pub(super) lenders: Option<(&'a SharedRegions, &'a Local)>,
}

impl<'a> RingOutlet<'a> {
    /// An output into rings. `out` holds what is written before anything else.
    #[inline]
    pub(super) fn new(
        rings: &'a mut Rings,
        (out, written): (&'a mut Vec<u8>, &'a mut usize),
        lenders: Option<(&'a SharedRegions, &'a Local)>,
        budget: usize,
    ) -> RingOutlet<'a> {
        let (sent, stop, flowing) = (0, false, true);
        RingOutlet { rings, out, written, budget, sent, stop, flowing, lenders }
    }
}

impl RingOutlet<'_> {
    /// Write what waits in the buffer.
    pub(super) fn flush(self) {
        self.rings.duplex.write(self.out, self.written);
    }

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

impl RingOutlet<'_> {
    /// Whether so many bytes are worth a look at the shared regions of this side's, and there are any.
    #[inline]
    fn may_stay_in_region(&self, length: u64) -> bool {
        length >= LEAST && self.lenders.is_some_and(|(regions, _)| !regions.is_empty())
    }

    /// Write a Write of inline data that does not fit a slot.
    #[cold]
    fn write_large(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        let fill = |memory: &LinkMemory, side, offset| {
            memory.fill_bytes(side, offset, payload);
            Ok::<(), Infallible>(())
        };
        let header = || wire.whole(now, id, message);
        let written = self.rings.duplex.write_large(payload.len(), fill, header);
        let done = written.unwrap_or(false);
        self.sent += if done { HEADER + payload.len() } else { 0 };
        done
    }

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

impl Output for RingOutlet<'_> {
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

    #[inline(always)]
    fn takes(&self, length: usize) -> bool {
        let free = !self.stop && self.flowing && self.sent < self.budget;
        // A payload that can stay in a shared region of ours has a way of its own.
        free && self.rings.duplex.takes(length, self.out.len())
            && !(length > INLINE && self.may_stay_in_region(length as u64))
    }

    #[inline(always)]
    fn whole(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        if payload.len() > INLINE {
            return self.write_large((wire, now), id, message, payload);
        }
        let header = wire.whole(now, id, message);
        let Some(header) = &header else { return false };
        self.rings.duplex.write_small(header, payload);
        if self.sent > 0 {
            self.rings.duplex.fetch_ahead(AHEAD);
        }
        self.sent += HEADER + payload.len();
        true
    }

    fn lend_whole(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[Segment],
    ) -> Direct {
        let length = payload.iter().map(|segment| segment.length as usize).sum();
        let fill =
            |memory: &LinkMemory, side, offset| Host.fill(&memory.rings, side, offset, payload);
        let header = || wire.whole(now, id, message);
        match self.rings.duplex.write_large(length, fill, header) {
            Ok(true) => {
                self.sent += HEADER + length;
                Direct::Taken
            }
            Ok(false) => Direct::Copy,
            Err(_) => Direct::Fault,
        }
    }

    fn wants_sink(&self, length: u64) -> bool {
        self.may_stay_in_region(length)
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
