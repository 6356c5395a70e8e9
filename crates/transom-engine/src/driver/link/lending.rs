//! Shared regions over one link: those of this side that the peer's process has mapped, and those of the
//! peer's that this process has (docs/same-host.md, "Shared regions").
//!
//! A descriptor goes over the link's Unix socket when the first large payload lies in a region that the
//! peer has not been handed. The peer's verdict is read when the next piece leaves; until then pieces go through the
//! ring.

use transom_memory::Segment;
use transom_process::lending::{Borrowed as _, Borrowings, LEAST, Lendings, Lent, MAPS, NotLent};
use transom_process::ring::{RingViolation, Shared};
use transom_process::{Area, Duplex};
use transom_wire::Atomic;

use crate::driver::schedule::regions::{Handed, SharedRegions};
use crate::sys::{Borrowed, Fd, Host, Local, Region};
use crate::{Cx, Fault, HostMemory};

/// The memory that a link shares: its rings, and what the peer has lent.
#[derive(Debug)]
pub(super) struct LinkMemory {
    pub(super) rings: Region,
    pub(super) borrowed: Borrowings<Borrowed>,
}

impl Area for LinkMemory {
    #[inline]
    fn shared(&self) -> &Shared {
        self.rings.shared()
    }

    #[inline]
    fn address(&self, side: usize, offset: usize) -> u64 {
        self.rings.address(side, offset)
    }

    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        self.rings.fill_bytes(side, offset, bytes);
    }

    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        self.rings.read_bytes(side, offset, into);
    }

    fn lent(&self, lent: Lent, length: usize) -> Result<Option<u64>, RingViolation> {
        let found = self.borrowed.find(lent, length as u64)?;
        Ok(found.map(|map| map.address(lent.offset)))
    }

    #[inline]
    fn fetch_to_write(&self, line: usize) {
        self.rings.fetch_to_write(line);
    }

    #[inline]
    fn point(&self, name: &'static str) {
        self.rings.point(name);
    }
}

/// The side of a link that lends and borrows.
#[derive(Debug)]
pub(super) struct Lending {
    /// Both processes are the same user's, and the options allow it.
    allowed: bool,
    lendings: Lendings<Handed>,
    /// The peer's count of regions, as of the last look for descriptors.
    looked: u64,
}

impl Lending {
    pub(super) fn new(allowed: bool) -> Lending {
        Lending { allowed, lendings: Lendings::default(), looked: 0 }
    }

    /// Regions that the peer's process has mapped, and their bytes.
    pub(super) fn lent(&self) -> (usize, u64) {
        let all = self.lendings.mapped();
        all.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.length()))
    }

    /// Where `length` bytes of this process's memory, which it may read now, lie in a region that the
    /// peer has mapped. If they lie in one that the peer has not, the region is handed over.
    pub(super) fn find(
        &mut self,
        duplex: &Duplex<LinkMemory>,
        (regions, bell): (&SharedRegions, &Local),
        (address, length): (u64, u64),
    ) -> Option<Lent> {
        if !self.allowed || length < LEAST {
            return None;
        }
        let verdict = duplex.verdict();
        match self.lendings.find(address, length, verdict) {
            Ok(lent) => return Some(lent),
            Err(NotLent::NotMapped) => return None,
            Err(NotLent::NotHanded) => {}
        }
        if self.lendings.has_place(verdict)
            && let Some(region) = regions.find(address, length)
            && let Some(fd) = region.memory.fd()
            && bell.hand_over(&[1], fd).is_ok()
        {
            let count = self.lendings.handed_over(Handed::new(region));
            duplex.hand_over(count);
        }
        None
    }

    /// Whether a descriptor of the peer's may wait at the socket.
    #[inline]
    pub(super) fn has_descriptor(&mut self, handed_over: u64) -> bool {
        std::mem::replace(&mut self.looked, handed_over) != handed_over
    }

    /// The most descriptors that are taken in one look.
    pub(super) const AT_ONCE: usize = MAPS;

    /// A descriptor of the peer's has come. Whether its memory is mapped now.
    pub(super) fn on_descriptor(&mut self, duplex: &mut Duplex<LinkMemory>, fd: Fd) -> bool {
        let (allowed, mut mapped) = (self.allowed, false);
        let map = || {
            let map = if allowed { Borrowed::adopt(fd).ok() } else { None };
            mapped = map.is_some();
            map
        };
        let verdict = duplex.area_mut().borrowed.add(map);
        duplex.judge(verdict);
        mapped
    }
}

/// The shared regions of a link during one call, for the writing end of its rings.
#[derive(Debug)]
pub(super) struct Lender<'a> {
    pub(super) lending: &'a mut Lending,
    /// Those that the peer may map, and the socket by which they are handed over.
    pub(super) regions: &'a SharedRegions,
    pub(super) bell: &'a Local,
}

impl transom_process::Lender<LinkMemory> for Lender<'_> {
    #[inline]
    fn has_regions(&self) -> bool {
        !self.regions.is_empty()
    }

    fn find(&mut self, duplex: &Duplex<LinkMemory>, bytes: Segment) -> Option<Lent> {
        let Segment { host, length } = bytes;
        self.lending.find(duplex, (self.regions, self.bell), (host, length))
    }

    fn fill(&mut self, duplex: &Duplex<LinkMemory>, sink: Lent, payload: &[Segment]) -> bool {
        let length = payload.iter().map(|segment| segment.length).sum();
        let Ok(Some(map)) = duplex.area().borrowed.find(sink, length) else { return false };
        // A page that is gone is the source's, and the other way says so.
        !map.is_dropped() && Host.fill_lent(map, sink.offset, payload).is_ok()
    }
}

/// The program's memory, while a message is placed whose bytes lie in a region of the peer's. `None`: the
/// region is no longer mapped, because the peer has dropped it.
#[derive(Debug)]
pub(super) struct LentHost<'a>(pub(super) Option<&'a Borrowed>);

impl HostMemory for LentHost<'_> {
    fn append(&self, from: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.0.ok_or(Fault)?;
        let before = out.len();
        Host.append(from, length, out)?;
        if self.source_is_gone() {
            out.truncate(before);
            return Err(Fault);
        }
        Ok(())
    }

    fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Fault> {
        Host.read(from, into)
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        Host.write(to, bytes)
    }

    fn copy(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        Host.copy_lent(self.0.ok_or(Fault)?, from, to, length)
    }

    fn share(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        Host.share(from, to, length)
    }

    fn source_is_gone(&self) -> bool {
        self.0.is_none_or(Borrowed::is_dropped)
    }

    fn atomic(&self, word: u64, operation: Atomic) -> Result<u64, Fault> {
        Host.atomic(word, operation)
    }

    fn fetch_ahead(&self, line: usize) {
        Host.fetch_ahead(line);
    }
}

/// Call `work` with the program's memory as `host`.
pub(super) fn with_host<R>(
    cx: &mut Cx<'_>,
    host: &LentHost<'_>,
    work: impl FnOnce(&mut Cx<'_>) -> R,
) -> R {
    let Cx { now, memory, denials, shared, .. } = *cx;
    let mut cx = Cx {
        now,
        memory,
        lane: &mut *cx.lane,
        host,
        denials,
        shared,
        effects: &mut *cx.effects,
        trace: match &mut cx.trace {
            Some(trace) => Some(&mut **trace),
            None => None,
        },
    };
    work(&mut cx)
}
