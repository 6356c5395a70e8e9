//! The answer, when it is yes.

use std::sync::Arc;

use crate::entry::Entry;
use crate::hazard::{Cell, EVERYTHING, Hazard};
use crate::segments::{List, Segments};
use crate::{Access, Denial, Memory, Nanoseconds, Segment, Token};

/// The most bytes of one [`Grant`], so that a close waits for one short copy at most.
pub const LARGEST_GRANT: u64 = 64 * 1024;

/// Bytes of the word that an atomic changes.
const WORD: u64 = 8;

/// A place where one thread at a time announces what it is touching, so that a close can wait for
/// it. Each driver thread owns one.
///
/// A [`Grant`] that is leaked (`mem::forget`) stays announced, and a close of its token waits,
/// until the lane's next check, [`Lane::rest`], or the lane's end: safe, but late.
#[derive(Debug)]
pub struct Lane {
    /// Which table it belongs to.
    pub(crate) table: u64,
    pub(crate) hazard: Hazard,
    /// The segment list used last: needs no lock to be used again.
    pub(crate) list: Option<(u64, Arc<List>)>,
}

impl Lane {
    /// Nothing is under way on this lane, whatever was leaked; and keep nothing that is not needed.
    /// For a thread that is about to block.
    pub fn rest(&mut self) {
        self.hazard.cell().clear();
        self.list = None;
    }
}

/// Permission for one non-blocking copy of at most [`LARGEST_GRANT`] bytes. While it lives, a close
/// of the token waits; so it is never held while waiting for bytes, a lock or user code.
#[derive(Debug)]
#[must_use = "the permission ends when the grant is dropped"]
pub struct Grant<'lane> {
    /// Cleared at the end. A pass clears it itself.
    pub(crate) cell: Option<&'lane Cell>,
    pub(crate) list: Option<&'lane List>,
    /// `None` if there are no bytes. The guard keeps its words as they were judged.
    pub(crate) entry: Option<&'lane Entry>,
    /// Where the first byte lies, if there is no list.
    pub(crate) host: u64,
    /// Offset of the first byte in what the token names.
    pub(crate) skip: u64,
    pub(crate) length: u64,
}

impl Grant<'_> {
    /// The region that holds the bytes: its token. `Token(0)` if there are no bytes.
    #[must_use]
    #[inline]
    pub fn region(&self) -> Token {
        self.entry.map_or(Token(0), Entry::region)
    }

    /// Offset of the first byte in the region.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> u64 {
        self.entry.map_or(0, |entry| entry.offset().wrapping_add(self.skip))
    }

    /// Bytes: as many as were asked for.
    #[must_use]
    #[inline]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the word of an atomic really lies: eight bytes in one piece, at a multiple of 8 there and
    /// by the address that was asked for. `None`: no instruction changes them as one, so the access is
    /// refused with [`Memory::misaligned`].
    #[must_use]
    pub fn word(&self) -> Option<u64> {
        let asked = self.entry?.base().wrapping_add(self.skip);
        let whole = |piece: &Segment| piece.length == WORD && piece.host.is_multiple_of(WORD);
        let piece = self.segments().next().filter(whole)?;
        asked.is_multiple_of(WORD).then_some(piece.host)
    }

    /// Have `each` do something with every piece of the bytes, in order, as long as it succeeds.
    ///
    /// # Errors
    /// The first one of `each`.
    #[inline(always)]
    pub fn try_each<E>(&self, mut each: impl FnMut(Segment) -> Result<(), E>) -> Result<(), E> {
        match self.list {
            // As most are: without the state of an iterator.
            None if self.length == 0 => Ok(()),
            None => each(Segment { host: self.host, length: self.length }),
            Some(_) => self.segments().try_for_each(each),
        }
    }

    /// Where the bytes really lie, in order.
    #[inline]
    pub fn segments(&self) -> Segments<'_> {
        match self.list {
            None => Segments::one(self.host, self.length),
            Some(list) => list.cut(self.offset(), self.length),
        }
    }
}

impl Drop for Grant<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cell) = self.cell {
            cell.clear();
        }
    }
}

/// Several accesses in a row under one guard: [`Memory::pass`]. As long as it lives, every close
/// waits; so, like a [`Grant`], it is never held while waiting for bytes, a lock or user code. It
/// starts a new guard of itself after [`LARGEST_GRANT`] bytes or [`LONGEST_PASS`] checks.
#[derive(Debug)]
pub struct Pass<'lane> {
    memory: &'lane Memory,
    lane: &'lane mut Lane,
    bytes: u64,
    checks: u32,
}

/// The most checks under one guard of a [`Pass`].
pub const LONGEST_PASS: u32 = 64;

impl<'lane> Pass<'lane> {
    pub(crate) fn new(memory: &'lane Memory, lane: &'lane mut Lane) -> Pass<'lane> {
        Pass { memory, lane, bytes: 0, checks: 0 }
    }

    /// As [`Memory::check`], for a guard's fence now and then rather than each time.
    ///
    /// # Errors
    /// The [`Denial`] of the first rule that the access breaks.
    #[inline(always)]
    pub fn check(&mut self, access: &Access, now: Nanoseconds) -> Result<Grant<'_>, Box<Denial>> {
        if access.length > self.bytes || self.checks == 0 {
            self.lane.hazard.announce(EVERYTHING);
            (self.bytes, self.checks) = (LARGEST_GRANT.max(access.length), LONGEST_PASS);
        }
        self.bytes -= access.length;
        self.checks -= 1;
        let answer = self.memory.judge_in_pass(self.lane, access, now);
        if answer.is_err() {
            // The refusal has ended the guard.
            self.checks = 0;
        }
        answer
    }

    /// As [`Memory::probe`]: a yes permits no copy, and needs no guard.
    ///
    /// # Errors
    /// The [`Denial`] of the first rule that the access breaks.
    pub fn probe(&mut self, access: &Access, now: Nanoseconds) -> Result<(), Box<Denial>> {
        let answer = self.memory.probe(self.lane, access, now);
        if answer.is_err() {
            // The refusal has ended the guard.
            self.checks = 0;
        }
        answer
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.lane.hazard.cell().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hazard::Hazards;

    const TOKEN: Token = Token(0x0010_0203);

    /// No lane can delay a close by asking again and again: only the guard that was there counts.
    #[test]
    fn a_close_does_not_wait_for_later_guards_on_the_same_token() {
        let mut hazards = Hazards::default();
        let mut hazard = hazards.join();
        hazard.announce(TOKEN);
        let held = hazards.holding(|token| token == TOKEN);
        assert!(!held[0].is_over());
        hazard.announce(TOKEN);
        assert!(held[0].is_over());
        held[0].wait();
    }

    /// Design rule 5: a guard counts, however many there were on its lane before.
    #[test]
    fn no_announcement_looks_like_none() {
        let mut hazards = Hazards::default();
        let mut hazard = hazards.join();
        hazard.sequence = u32::MAX - 4;
        for _ in 0..5 {
            hazard.announce(EVERYTHING);
            assert_eq!(hazards.holding(|_| false).len(), 1);
        }
    }

    #[test]
    fn only_guards_on_the_token_and_on_everything_are_waited_for() {
        let mut hazards = Hazards::default();
        let mut lanes: Vec<Hazard> = (0..4).map(|_| hazards.join()).collect();
        lanes[0].announce(TOKEN);
        lanes[1].announce(Token(TOKEN.0 + 1));
        lanes[2].announce(EVERYTHING);
        assert_eq!(hazards.holding(|token| token == TOKEN).len(), 2);
        assert_eq!(hazards.holding(|_| false).len(), 1);
        assert_eq!(hazards.count(|token| token == TOKEN), 1);
        lanes[2].cell().clear();
        assert_eq!(hazards.holding(|_| false).len(), 0);
    }

    /// A lane that ends leaves its cell, empty, to the next; no lane shares one.
    #[test]
    fn cells_are_used_again_and_never_shared() {
        let mut hazards = Hazards::default();
        let (mut first, mut second) = (hazards.join(), hazards.join());
        first.announce(TOKEN);
        second.announce(TOKEN);
        assert_eq!(hazards.count(|token| token == TOKEN), 2);
        let bytes = hazards.bytes();
        drop(first);
        assert_eq!(hazards.count(|token| token == TOKEN), 1);
        let mut third = hazards.join();
        third.announce(TOKEN);
        assert_eq!(hazards.count(|token| token == TOKEN), 2);
        assert_eq!(hazards.bytes(), bytes);
        // Each cell has its own two lines, two more for its counts, and a pointer to it.
        assert!((2 * (256 + 8)..=2 * 256 + 8 * 8).contains(&bytes), "{bytes}");
    }

    /// A table with one region of 128 KiB, and how to ask for bytes of it.
    fn table() -> (Memory, impl Fn(u64) -> Access) {
        let memory = Memory::new([1; 32], crate::Config::default());
        let scope = crate::Scope::Domain(crate::DomainId(1));
        let segments = [crate::Segment { host: 0, length: 2 * LARGEST_GRANT }];
        let rights = crate::Rights::LOCAL_READ;
        let registration = crate::Registration { scope, rights, base: 0, segments: &segments };
        let token = memory.register(&registration).unwrap();
        let purpose = crate::Purpose::LocalSource;
        let actor = scope.actor();
        (memory, move |length| Access { actor, purpose, token, address: 0, length })
    }

    /// The guards that a close of anything would wait for now.
    fn guard(memory: &Memory) -> crate::hazard::Held {
        let mut held = memory.lock().hazards.holding(|_| true);
        assert_eq!(held.len(), 1);
        held.remove(0)
    }

    fn guards(memory: &Memory) -> usize {
        memory.lock().hazards.holding(|_| true).len()
    }

    /// Design rule 5: a pass is no longer than one copy.
    #[test]
    fn a_pass_starts_a_new_guard_after_its_checks_or_bytes() {
        let (memory, ask) = table();
        let mut lane = memory.lane();
        let mut pass = memory.pass(&mut lane);
        assert_eq!(guards(&memory), 0, "nothing is held before the first check");
        drop(pass.check(&ask(1), 0));
        let first = guard(&memory);
        assert_eq!(memory.passes(), 1);
        for _ in 1..LONGEST_PASS {
            drop(pass.check(&ask(1), 0));
            assert!(!first.is_over());
        }
        drop(pass.check(&ask(1), 0));
        assert!(first.is_over(), "after as many checks");
        let second = guard(&memory);
        drop(pass.check(&ask(LARGEST_GRANT - 1), 0));
        assert!(!second.is_over());
        drop(pass.check(&ask(1), 0));
        assert!(second.is_over(), "after as many bytes");
        drop(pass);
        assert_eq!(guards(&memory), 0);
    }

    /// Whichever table the lane was made for, and without a new cell for a lane of its own.
    #[test]
    fn a_close_sees_the_guards_of_the_lanes_it_is_checked_on() {
        let (memory, ask) = table();
        let other = Memory::new([2; 32], crate::Config::default());
        let mut lane = other.lane();
        let mut pass = memory.pass(&mut lane);
        drop(pass.check(&ask(1), 0));
        assert_eq!((guards(&memory), guards(&other)), (1, 0));
        drop(pass);
        drop(lane);
        let mut lane = memory.lane();
        let before = memory.footprint();
        for _ in 0..3 {
            let grant = memory.check(&mut lane, &ask(1), 0).unwrap();
            assert_eq!(guards(&memory), 1);
            drop(grant);
            drop(memory.pass(&mut lane).check(&ask(1), 0));
        }
        assert_eq!(memory.footprint(), before);
    }

    /// The place of an extent is told under a guard that ends at once, of one piece only, and if all of it
    /// may be accessed.
    #[test]
    fn the_place_of_an_extent_is_that_of_what_may_be_accessed() {
        let (memory, ask) = table();
        let other = Memory::new([2; 32], crate::Config::default());
        let mut lane = other.lane();
        let inside = Access { address: 100, ..ask(2 * LARGEST_GRANT - 100) };
        assert_eq!(memory.host_of(&mut lane, &inside), Some(100), "longer than one copy");
        assert_eq!(guards(&memory), 0);
        let outside = Access { length: inside.length + 1, ..inside };
        assert_eq!(memory.host_of(&mut lane, &outside), None);
        let write = Access { purpose: crate::Purpose::ReadSink, ..inside };
        assert_eq!(memory.host_of(&mut lane, &write), None);
        let scope = crate::Scope::Domain(crate::DomainId(1));
        let segments = [0x1000, 0x3000].map(|host| crate::Segment { host, length: 8 });
        let rights = crate::Rights::LOCAL_READ;
        let registration = crate::Registration { scope, rights, base: 0, segments: &segments };
        let token = memory.register(&registration).unwrap();
        assert_eq!(memory.host_of(&mut lane, &Access { token, ..ask(8) }), None);
        memory.deregister(inside.token, crate::Unless::default(), 0).unwrap();
        assert_eq!(memory.host_of(&mut lane, &inside), None);
        assert_eq!(memory.host_of(&mut lane, &Access { token: Token(1), ..inside }), None);
        assert_eq!(guards(&memory), 0);
    }

    /// A refusal ends the guard of a pass, and the next check has one again.
    #[test]
    fn a_pass_goes_on_after_a_refusal() {
        let (memory, ask) = table();
        let mut lane = memory.lane();
        let mut pass = memory.pass(&mut lane);
        drop(pass.check(&ask(1), 0));
        let wrong = Access { token: Token(1), ..ask(1) };
        assert!(pass.check(&wrong, 0).is_err());
        assert_eq!(guards(&memory), 0);
        assert!(pass.check(&ask(1), 0).is_ok());
        assert_eq!(guards(&memory), 1);
        assert!(pass.probe(&ask(2 * LARGEST_GRANT), 0).is_ok());
        assert_eq!(guards(&memory), 1, "a probe that says yes leaves the guard alone");
        assert!(pass.probe(&wrong, 0).is_err());
        assert_eq!(guards(&memory), 0);
        assert!(pass.check(&ask(1), 0).is_ok());
        assert_eq!(guards(&memory), 1);
    }

    /// Design rule 5: the list of a region in several segments is fetched while nothing is
    /// announced, and then every close waits again, not that of this region alone.
    #[test]
    fn a_pass_over_several_segments_still_holds_every_token() {
        let (memory, ask) = table();
        let scope = crate::Scope::Domain(crate::DomainId(1));
        let segment = |host| crate::Segment { host, length: 8 };
        let segments = [segment(0x1000), segment(0x2000), segment(0x3000)];
        let rights = crate::Rights::LOCAL_READ;
        let registration = crate::Registration { scope, rights, base: 0, segments: &segments };
        let many = [(); 2].map(|()| memory.register(&registration).unwrap());
        let mut lane = memory.lane();
        let mut pass = memory.pass(&mut lane);
        // Each list is fetched once, and the first one again.
        for token in [many[0], many[0], many[1], many[0]] {
            let access = Access { token, ..ask(24) };
            assert_eq!(pass.check(&access, 0).unwrap().segments().count(), 3);
            let held = memory.lock().hazards.holding(|_| false);
            assert_eq!(held.len(), 1, "a close of any token waits");
            assert!(pass.check(&ask(1), 0).is_ok());
            assert!(!held[0].is_over(), "and goes on waiting");
        }
        drop(pass);
        assert_eq!(guards(&memory), 0);
    }

    /// A guard that is leaked stays, until the lane checks again, rests or ends.
    #[test]
    fn a_leaked_guard_ends_with_the_next_check_a_rest_or_the_lane() {
        let (memory, ask) = table();
        let mut lane = memory.lane();
        let leak = |lane: &mut Lane| {
            std::mem::forget(memory.check(lane, &ask(1), 0));
            assert_eq!(guards(&memory), 1);
        };
        leak(&mut lane);
        drop(memory.check(&mut lane, &ask(1), 0));
        assert_eq!(guards(&memory), 0);
        leak(&mut lane);
        drop(memory.check(&mut lane, &ask(0), 0));
        assert_eq!(guards(&memory), 0, "a check of no bytes too");
        leak(&mut lane);
        lane.rest();
        assert_eq!(guards(&memory), 0);
        leak(&mut lane);
        drop(lane);
        assert_eq!(guards(&memory), 0);
    }
}
