//! The two rings of a link, under its lock: what is read from the peer's and written into this side's.

use std::time::Duration;

use transom_process::lending::{Borrowed as _, Borrowings};
use transom_process::{Duplex, RingCarrier};
use transom_wire::Time;

use super::lending::{Lender, Lending, LinkMemory};
use crate::Connection;
use crate::driver::config::path::Place;
use crate::driver::schedule::regions::SharedRegions;
use crate::sys::{self, GivingBack, Local, Region, Rung};

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
    /// How much had gone through our data area when that was last asked.
    used: u64,
    /// How much had gone through it when its pages were last given back.
    tidied: u64,
    /// When `used` last changed.
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

    /// The writing end, for one call: `regions` are those that the peer may map, and `bell` is how they are
    /// handed over.
    #[inline]
    pub(super) fn carrier<'a>(
        &'a mut self,
        (regions, bell): (&'a SharedRegions, &'a Local),
        (out, written): (&'a mut Vec<u8>, &'a mut usize),
        budget: usize,
    ) -> RingCarrier<'a, LinkMemory, Lender<'a>> {
        let Rings { duplex, lending, .. } = self;
        RingCarrier::new(duplex, Lender { lending, regions, bell }, (out, written), budget)
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
