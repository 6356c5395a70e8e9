//! Regions that one side lends to the other: a *shared region* is mapped by the peer's process, so
//! that the owner of a Write's target copies its bytes once, out of the region itself, and the owner of what
//! is read copies them once, into it.
//!
//! A region is handed over as a descriptor beside the rings, and the sides count descriptors: the
//! count is the region's number on the link. The receiver answers with a verdict word; a record that
//! names a region leaves only once its sender has read that the region is mapped. Everything a record
//! says about a region is judged by [`Borrowings::find`], against the size that the receiver's kernel
//! has told.

use std::collections::VecDeque;

use crate::ring::RingViolation;

/// Regions of one side that the other side maps at a time, over one link.
pub const MAPS: usize = 16;
/// The fewest bytes that are taken out of a region: fewer are cheaper through the ring.
pub const LEAST: u64 = 4096;
/// The most bytes of one region: address space of the peer's.
pub const LARGEST: u64 = 1 << 36;

/// A place in a region that the sender of a record has lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The region's number on this link; the first is 1.
    pub number: u32,
    /// Bytes from the beginning of the region.
    pub offset: u64,
}

impl Lent {
    /// As the place travels in a slot.
    #[must_use]
    pub fn words(self) -> [u64; 4] {
        [u64::from(self.number), self.offset, 0, 0]
    }

    /// From what travelled; `None`: no number that a region could have.
    #[must_use]
    pub fn from_words([number, offset, ..]: [u64; 4]) -> Option<Lent> {
        Some(Lent { number: u32::try_from(number).ok()?, offset })
    }
}

/// The verdict on the region of a number: whether the peer has mapped it.
#[must_use]
pub fn verdict(number: u32, mapped: bool) -> u64 {
    u64::from(number) << 1 | u64::from(mapped)
}

/// A region of this side.
pub trait Lendable {
    /// The offset of these bytes in the region; `None` if not all of them lie in it, or the region
    /// has been dropped.
    fn offset_of(&self, address: u64, length: u64) -> Option<u64>;

    /// Whether the region has been dropped.
    fn is_dropped(&self) -> bool;

    /// The peer has mapped the region.
    fn on_mapped(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Asked,
    Mapped,
    Refused,
}

#[derive(Debug)]
struct Lending<R> {
    region: R,
    number: u32,
    fate: Fate,
}

/// The regions of this side that the peer of a link has been handed.
#[derive(Debug)]
pub struct Lendings<R> {
    regions: Vec<Lending<R>>,
    /// Descriptors handed over.
    handed: u32,
}

impl<R> Default for Lendings<R> {
    fn default() -> Lendings<R> {
        Lendings { regions: Vec::new(), handed: 0 }
    }
}

/// Why bytes lie in no region that the peer has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLent {
    /// In none that the peer was handed.
    NotHanded,
    /// In one that the peer was handed and has not mapped, or could not.
    NotMapped,
}

impl<R: Lendable> Lendings<R> {
    /// The place of these bytes in a region that the peer has mapped. `verdict`: the peer's last one.
    ///
    /// # Errors
    /// The bytes go through the ring.
    pub fn find(&mut self, address: u64, length: u64, verdict: u64) -> Result<Lent, NotLent> {
        self.learn(verdict);
        let found =
            |one: &Lending<R>| Some((one.number, one.fate, one.region.offset_of(address, length)?));
        match self.regions.iter().find_map(found) {
            Some((number, Fate::Mapped, offset)) => Ok(Lent { number, offset }),
            Some(_) => Err(NotLent::NotMapped),
            None => Err(NotLent::NotHanded),
        }
    }

    /// Take in the peer's last verdict, which is about the last region. The first one is final.
    fn learn(&mut self, word: u64) {
        let Some(last) = self.regions.last_mut().filter(|last| last.fate == Fate::Asked) else {
            return;
        };
        if word == verdict(last.number, true) {
            last.fate = Fate::Mapped;
            last.region.on_mapped();
        } else if word == verdict(last.number, false) {
            last.fate = Fate::Refused;
        }
    }

    /// Whether another region may be handed over now: one at a time is asked about, and so many are
    /// mapped. Those that were dropped are forgotten. `verdict`: the peer's last one.
    pub fn has_place(&mut self, verdict: u64) -> bool {
        self.learn(verdict);
        self.regions.retain(|one| !one.region.is_dropped());
        let answered = verdict >> 1 == u64::from(self.handed);
        answered && self.regions.len() < MAPS
    }

    /// A region was handed over; the count to say.
    pub fn handed_over(&mut self, region: R) -> u32 {
        self.handed += 1;
        self.regions.push(Lending { region, number: self.handed, fate: Fate::Asked });
        self.handed
    }

    /// The regions that the peer has mapped, as far as is known.
    pub fn mapped(&self) -> impl Iterator<Item = &R> {
        let live = |one: &&Lending<R>| one.fate == Fate::Mapped && !one.region.is_dropped();
        self.regions.iter().filter(live).map(|one| &one.region)
    }
}

/// The Reads under way over a link, as far as the carrier has to know: answers come in the order of their
/// Reads.
#[derive(Debug, Default)]
pub struct Reads {
    /// Where the next answer to each Read of the peer's goes, if its sink was lent; oldest first.
    theirs: VecDeque<Option<Lent>>,
    /// Whether the sink of each Read of this side's was lent.
    ours: VecDeque<bool>,
}

impl Reads {
    /// A Read of this side's leaves.
    pub fn asked(&mut self, lent: bool) {
        self.ours.push_back(lent);
    }

    /// A Read of the peer's has come.
    pub fn on_read(&mut self, sink: Option<Lent>) {
        self.theirs.push_back(sink);
    }

    /// Where the next answer to the oldest Read of the peer's may be copied.
    #[must_use]
    pub fn sink(&self) -> Option<Lent> {
        self.theirs.front().copied().flatten()
    }

    /// An answer of so many bytes leaves; `last`: of its Read.
    pub fn answered(&mut self, length: u64, last: bool) {
        if let Some(Some(sink)) = self.theirs.front_mut() {
            sink.offset = sink.offset.saturating_add(length);
        }
        if last {
            self.theirs.pop_front();
        }
    }

    /// An answer of the peer's has come; `placed`: without its bytes. `false`: the sink was not lent.
    #[must_use]
    pub fn on_answer(&mut self, placed: bool, last: bool) -> bool {
        let lent = self.ours.front().copied().unwrap_or(false);
        if last {
            self.ours.pop_front();
        }
        lent || !placed
    }
}

/// A mapping of a region of the peer's.
pub trait Borrowed {
    /// The bytes of the region.
    fn length(&self) -> u64;

    /// Whether the peer has dropped the region.
    fn is_dropped(&self) -> bool;
}

/// The regions of a link's peer that this side has mapped.
#[derive(Debug)]
pub struct Borrowings<M> {
    maps: Vec<(u32, M)>,
    /// Descriptors that have come.
    come: u32,
}

impl<M> Default for Borrowings<M> {
    fn default() -> Borrowings<M> {
        Borrowings { maps: Vec::new(), come: 0 }
    }
}

impl<M: Borrowed> Borrowings<M> {
    /// A descriptor has come: `map` it, unless as many are mapped as may be. The verdict.
    pub fn add(&mut self, map: impl FnOnce() -> Option<M>) -> u64 {
        self.come = self.come.saturating_add(1);
        self.tidy();
        let map = if self.maps.len() < MAPS { map() } else { None };
        let mapped = map.is_some();
        self.maps.extend(map.map(|map| (self.come, map)));
        verdict(self.come, mapped)
    }

    /// The region in which so many bytes from `lent` on lie; `None`: this side has no mapping of it any
    /// more, or never had one. The peer may drop a region while records that name it are still to be read.
    ///
    /// # Errors
    /// The peer was wrong: [`RingViolation::Region`].
    pub fn find(&self, lent: Lent, length: u64) -> Result<Option<&M>, RingViolation> {
        if !(1..=self.come).contains(&lent.number) {
            return Err(RingViolation::Region);
        }
        let found = self.maps.iter().find(|(number, _)| *number == lent.number);
        let Some((_, map)) = found else { return Ok(None) };
        let end = lent.offset.checked_add(length).ok_or(RingViolation::Region)?;
        if end <= map.length() { Ok(Some(map)) } else { Err(RingViolation::Region) }
    }

    /// Unmap the regions that the peer has dropped.
    pub fn tidy(&mut self) {
        self.maps.retain(|(_, map)| !map.is_dropped());
    }

    /// The regions that are mapped.
    pub fn maps(&self) -> impl Iterator<Item = &M> {
        self.maps.iter().map(|(_, map)| map)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A region, or a mapping of it, of so many bytes at an address; whether it was dropped.
    #[derive(Clone, Debug)]
    struct Plain(u64, u64, Rc<Cell<bool>>);

    impl Plain {
        fn new(at: u64, length: u64) -> Plain {
            Plain(at, length, Rc::default())
        }
    }

    impl Lendable for Plain {
        fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
            let offset = address.checked_sub(self.0)?;
            (offset.checked_add(length)? <= self.1 && !self.2.get()).then_some(offset)
        }
        fn is_dropped(&self) -> bool {
            self.2.get()
        }
    }

    impl Borrowed for Plain {
        fn length(&self) -> u64 {
            self.1
        }
        fn is_dropped(&self) -> bool {
            self.2.get()
        }
    }

    #[test]
    fn a_place_survives_the_journey_and_other_words_are_none() {
        let lent = Lent { number: u32::MAX, offset: u64::MAX };
        assert_eq!(Lent::from_words(lent.words()), Some(lent));
        assert_eq!(Lent::from_words([1 << 32, 0, 0, 0]), None);
    }

    #[test]
    fn bytes_outside_of_a_region_or_of_another_number_are_found_nowhere() {
        let mut borrowed = Borrowings::default();
        assert_eq!(borrowed.add(|| Some(Plain::new(0, 8192))), verdict(1, true));
        let find = |number, offset, length| borrowed.find(Lent { number, offset }, length).is_ok();
        assert!(find(1, 0, 8192) && find(1, 8191, 1) && find(1, 8192, 0));
        assert!(!find(1, 0, 8193) && !find(1, 8192, 1) && !find(1, u64::MAX, 2));
        assert!(!find(0, 0, 1) && !find(2, 0, 1), "numbers that no region has");
    }

    #[test]
    fn no_more_are_mapped_than_may_be_and_what_was_dropped_makes_room() {
        let mut borrowed = Borrowings::default();
        let first = Plain::new(0, 4096);
        assert_eq!(borrowed.add(|| Some(first.clone())), verdict(1, true));
        for number in 2..=MAPS as u32 {
            assert_eq!(borrowed.add(|| Some(Plain::new(0, 1))), verdict(number, true));
        }
        let number = MAPS as u32 + 1;
        let never = || -> Option<Plain> { panic!("mapped one too many") };
        assert_eq!(borrowed.add(never), verdict(number, false));
        assert_eq!(borrowed.maps().count(), MAPS);
        first.2.set(true);
        assert_eq!(borrowed.add(|| Some(Plain::new(0, 1))), verdict(number + 1, true));
        let find = |all: &Borrowings<_>, number| {
            all.find(Lent { number, offset: 0 }, 1).map(|map| map.is_some())
        };
        assert_eq!(find(&borrowed, 1), Ok(false), "dropped and unmapped, which is no violation");
        assert_eq!(find(&borrowed, number), Ok(false), "refused");
        assert_eq!(borrowed.add(|| None), verdict(number + 2, false), "what is no region");
        assert_eq!(find(&borrowed, number + 1), Ok(true));
        assert_eq!(find(&borrowed, number + 2), Ok(false));
        assert_eq!(find(&borrowed, number + 3), Err(RingViolation::Region), "never handed over");
    }

    #[test]
    fn a_region_is_named_once_the_peer_has_mapped_it_and_until_it_is_dropped() {
        let mut lendings = Lendings::default();
        let region = Plain::new(0x1000, 8192);
        assert_eq!(lendings.find(0x1000, 1, 0), Err(NotLent::NotHanded), "not handed over");
        assert!(lendings.has_place(0));
        assert_eq!(lendings.handed_over(region.clone()), 1);
        assert!(!lendings.has_place(0), "one question at a time");
        assert_eq!(lendings.find(0x1000, 1, 0), Err(NotLent::NotMapped), "not answered");
        assert_eq!(
            lendings.find(0x1000, 1, verdict(2, true)),
            Err(NotLent::NotMapped),
            "another one's answer"
        );
        assert_eq!(lendings.mapped().count(), 0);
        let found = lendings.find(0x1008, 8184, verdict(1, true));
        assert_eq!(found, Ok(Lent { number: 1, offset: 8 }));
        assert_eq!(
            lendings.find(0x1008, 8185, verdict(1, true)),
            Err(NotLent::NotHanded),
            "not inside"
        );
        assert_eq!(lendings.find(0xFFF, 8, verdict(1, true)), Err(NotLent::NotHanded));
        assert_eq!(lendings.mapped().count(), 1);
        region.2.set(true);
        assert_eq!(lendings.mapped().count(), 0);
        assert_eq!(lendings.find(0x1008, 8, verdict(1, true)), Err(NotLent::NotHanded), "dropped");
    }

    #[test]
    fn answers_go_to_the_sinks_of_their_reads_in_order() {
        let mut reads = Reads::default();
        let sink = |offset| Some(Lent { number: 1, offset });
        assert_eq!(reads.sink(), None);
        for next in [sink(8), None, sink(100)] {
            reads.on_read(next);
        }
        assert_eq!(reads.sink(), sink(8));
        reads.answered(16, false);
        assert_eq!(reads.sink(), sink(24));
        reads.answered(16, true);
        assert_eq!(reads.sink(), None);
        reads.answered(16, false);
        reads.answered(0, true);
        assert_eq!(reads.sink(), sink(100));
        reads.answered(0, true);
        assert_eq!(reads.sink(), None);
    }

    #[test]
    fn bytes_that_stay_away_are_missed_where_no_sink_was_lent() {
        let mut reads = Reads::default();
        assert!(!reads.on_answer(true, true), "nothing was asked");
        assert!(reads.on_answer(false, true), "the core refuses that");
        for lent in [true, false, true] {
            reads.asked(lent);
        }
        assert!(reads.on_answer(true, false) && reads.on_answer(false, false));
        assert!(reads.on_answer(true, true));
        assert!(reads.on_answer(false, false) && !reads.on_answer(true, true));
        assert!(reads.on_answer(true, true));
        assert!(!reads.on_answer(true, false));
    }

    #[test]
    fn a_refused_region_is_never_named_and_places_are_bounded() {
        let mut lendings = Lendings::default();
        assert_eq!(lendings.handed_over(Plain::new(0, 4096)), 1);
        assert_eq!(lendings.find(0, 8, verdict(1, false)), Err(NotLent::NotMapped));
        assert_eq!(
            lendings.find(0, 8, verdict(1, true)),
            Err(NotLent::NotMapped),
            "a verdict is final"
        );
        let last = (2..=MAPS as u32).map(|number| {
            assert!(lendings.has_place(verdict(number - 1, true)));
            let region = Plain::new(u64::from(number) << 20, 4096);
            assert_eq!(lendings.handed_over(region.clone()), number);
            region
        });
        let last = last.last().unwrap();
        let word = verdict(MAPS as u32, true);
        assert!(!lendings.has_place(word), "all places are taken");
        last.2.set(true);
        assert!(lendings.has_place(word), "a dropped region leaves its place");
    }
}
