//! The facts about a token that only the control path needs: counts, and the lists it hangs in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::entry::{Facts, ScopeKind};
use crate::hazard::Hazards;
use crate::table::{boxed, of_hash_table};
use crate::token::{CHUNK, Cycle, DIRECTORY, Issuer, Place};
use crate::{Name, Review, Scope, Token};

/// A place in a doubly linked list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    before: Place,
    after: Place,
}

const ALONE: Links = Links { before: Place::NONE, after: Place::NONE };

/// A slot's line in the books.
#[derive(Debug)]
pub(crate) struct TokenLedger {
    pub(crate) cycle: Cycle,
    /// Requests posted that name the region, if the front counts them.
    pub(crate) posted: u32,
    /// Windows of the region that are reserved or bound, or whose close still waits.
    pub(crate) windows: u32,
    first_window: Place,
    /// Among the windows of one region.
    sibling: Links,
    /// Among the tokens of one queue pair or connection.
    fellow: Links,
}

impl TokenLedger {
    fn new(cycle: Cycle) -> TokenLedger {
        TokenLedger {
            cycle,
            posted: 0,
            windows: 0,
            first_window: Place::NONE,
            sibling: ALONE,
            fellow: ALONE,
        }
    }
}

/// The owner of the tokens that a list holds: a queue pair or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owner {
    kind: ScopeKind,
    /// [`Facts::who`].
    who: u64,
}

impl Owner {
    /// A domain keeps no list: it ends with its table.
    #[inline]
    pub(crate) fn new(kind: ScopeKind, who: u64) -> Option<Owner> {
        (kind != ScopeKind::Domain).then_some(Owner { kind, who })
    }

    pub(crate) fn of(scope: &Scope) -> Option<Owner> {
        Owner::new(ScopeKind::of(scope), Facts::who(scope))
    }
}

/// Owners are numbered by this adapter, not by a peer: a multiplication is hash enough.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Ledgers are allocated by half chunks, which is little enough for an allocator to take them from
/// its heap. For this reason the chunks of entries, which it maps, lie side by side, and random
/// checks in a large table miss fewer pages of the page table (a third less time when checks
/// overlap).
const HALF: usize = CHUNK / 2;
/// The half chunks of a full directory.
const HALVES: usize = 2 * DIRECTORY;

/// The half chunk of a place, counted through the directory.
#[inline]
fn half_of(place: Place) -> usize {
    place.0 as usize / HALF % HALVES
}

/// Everything behind the control mutex.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) issuer: Issuer,
    pub(crate) hazards: Hazards,
    /// Findings about grants, if they are wanted.
    pub(crate) review: Option<Review>,
    /// Names of those tokens that have one, until their slots are used again.
    pub(crate) names: HashMap<Place, (Token, Name), BuildHasherDefault<Mix>>,
    /// For each half of each directory position its index in `halves`.
    index: Box<[u16; HALVES]>,
    halves: Vec<Box<[TokenLedger; HALF]>>,
    /// The youngest token of each owner that has one, but for `recent`.
    owners: HashMap<Owner, Place, BuildHasherDefault<Mix>>,
    /// The owner served last: a queue pair that opens and closes windows one after the other needs
    /// no look into `owners`.
    recent: Option<Owner>,
    /// The owner's youngest token, or [`Place::NONE`].
    youngest: Place,
}

impl Control {
    pub(crate) fn new(issuer: Issuer) -> Control {
        Control {
            issuer,
            hazards: Hazards::default(),
            review: None,
            names: HashMap::default(),
            index: Box::new([0; HALVES]),
            halves: Vec::new(),
            owners: HashMap::default(),
            recent: None,
            youngest: Place::NONE,
        }
    }

    /// Books for a new chunk.
    pub(crate) fn add_chunk(&mut self, position: usize) {
        let mut cycles = self.issuer.add_chunk(position).into_iter();
        for half in 0..CHUNK / HALF {
            self.index[half_of(Place::new(position, half * HALF))] = self.halves.len() as u16;
            // As many as a chunk has slots.
            let half = boxed(|| TokenLedger::new(cycles.next().unwrap_or_default()));
            self.halves.extend(half);
        }
    }

    /// The books of a place whose chunk exists: places come from the issuer, or were looked up in
    /// the table before.
    #[inline]
    pub(crate) fn ledger(&mut self, place: Place) -> &mut TokenLedger {
        let half = usize::from(self.index[half_of(place)]);
        &mut self.halves[half][place.slot() % HALF]
    }

    /// The youngest token of an owner, for change: the owner becomes the recent one.
    #[inline]
    fn youngest_mut(&mut self, owner: Owner) -> &mut Place {
        if self.recent != Some(owner) {
            self.turn_to(owner);
        }
        &mut self.youngest
    }

    #[cold]
    fn turn_to(&mut self, owner: Owner) {
        if let (Some(recent), true) = (self.recent, self.youngest != Place::NONE) {
            self.owners.insert(recent, self.youngest);
        }
        self.recent = Some(owner);
        self.youngest = self.owners.remove(&owner).unwrap_or(Place::NONE);
    }

    /// Enter a new token in the lists that it belongs to: its owner's, and a window in that of its
    /// region, which counts it.
    #[inline(always)]
    pub(crate) fn enter(&mut self, place: Place, owner: Option<Owner>, region: Option<Place>) {
        if owner.is_none() && region.is_none() {
            return;
        }
        let (mut fellow, mut sibling) = (ALONE, ALONE);
        if let Some(owner) = owner {
            fellow.after = std::mem::replace(self.youngest_mut(owner), place);
        }
        if let Some(region) = region {
            let ledger = self.ledger(region);
            ledger.windows += 1;
            sibling.after = std::mem::replace(&mut ledger.first_window, place);
        }
        let own = self.ledger(place);
        (own.fellow, own.sibling) = (fellow, sibling);
        if fellow.after != Place::NONE {
            self.ledger(fellow.after).fellow.before = place;
        }
        if sibling.after != Place::NONE {
            self.ledger(sibling.after).sibling.before = place;
        }
    }

    /// Take it out again. A window still counts until [`Control::window_gone`].
    #[inline]
    pub(crate) fn leave(&mut self, place: Place, owner: Option<Owner>, region: Option<Place>) {
        if owner.is_none() && region.is_none() {
            return;
        }
        let own = self.ledger(place);
        let fellow = std::mem::replace(&mut own.fellow, ALONE);
        let sibling = std::mem::replace(&mut own.sibling, ALONE);
        if fellow.after != Place::NONE {
            self.ledger(fellow.after).fellow.before = fellow.before;
        }
        if fellow.before != Place::NONE {
            self.ledger(fellow.before).fellow.after = fellow.after;
        } else if let Some(owner) = owner {
            *self.youngest_mut(owner) = fellow.after;
        }
        if sibling.after != Place::NONE {
            self.ledger(sibling.after).sibling.before = sibling.before;
        }
        if sibling.before != Place::NONE {
            self.ledger(sibling.before).sibling.after = sibling.after;
        } else if let Some(region) = region {
            self.ledger(region).first_window = sibling.after;
        }
    }

    /// The youngest token of an owner. A window is younger than its region.
    pub(crate) fn youngest(&mut self, owner: Owner) -> Option<Place> {
        Some(*self.youngest_mut(owner)).filter(|place| *place != Place::NONE)
    }

    /// Nothing is under way through one of the region's windows any more.
    pub(crate) fn window_gone(&mut self, region: Place) {
        let ledger = self.ledger(region);
        ledger.windows = ledger.windows.saturating_sub(1);
    }

    /// A window of a region that is still in its list.
    pub(crate) fn first_window(&mut self, region: Place) -> Option<Place> {
        Some(self.ledger(region).first_window).filter(|place| *place != Place::NONE)
    }

    /// The name of a token, if it has one.
    pub(crate) fn name(&self, token: Token) -> Option<Name> {
        self.names.get(&Place::of(token)).filter(|(named, _)| *named == token).map(|(_, it)| *it)
    }

    /// Memory it occupies, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let owners = of_hash_table(self.owners.capacity(), size_of::<(Owner, Place)>());
        let names = of_hash_table(self.names.capacity(), size_of::<(Place, (Token, Name))>());
        names
            + self.issuer.bytes()
            + self.hazards.bytes()
            + HALVES * size_of::<u16>()
            + self.halves.len() * HALF * size_of::<TokenLedger>()
            + owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionId, DomainId, QueuePairId};
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    /// Whichever owner was served last, each has its own tokens, youngest first, and one whose tokens
    /// are all gone leaves nothing behind.
    #[test]
    fn owners_that_take_turns_keep_their_own_tokens() {
        let mut control = Control::new(Issuer::new([1; 32], 1));
        let position = control.issuer.wants_chunk().unwrap();
        control.add_chunk(position);
        let owner = |n| Owner::of(&Scope::QueuePair(DomainId(1), QueuePairId(n)));
        let place = |n| Place::new(position, n);
        for slot in 0..9 {
            control.enter(place(slot), owner(slot as u32 % 3), None);
        }
        let all = |control: &mut Control, n: u32| {
            let mut found = Vec::new();
            let mut next = control.youngest(owner(n).unwrap());
            while let Some(place) = next {
                found.push(place.slot());
                let after = control.ledger(place).fellow.after;
                next = Some(after).filter(|place| *place != Place::NONE);
            }
            found
        };
        for n in 0..3 {
            assert_eq!(all(&mut control, n), [n as usize + 6, n as usize + 3, n as usize]);
        }
        // The youngest, the one in the middle, the oldest.
        for (slot, left) in [(6, [3, 0].as_slice()), (4, &[7, 1]), (2, &[8, 5])] {
            control.leave(place(slot), owner(slot as u32 % 3), None);
            assert_eq!(all(&mut control, slot as u32 % 3), left);
        }
        for slot in [0, 1, 3, 5, 7, 8] {
            control.leave(place(slot), owner(slot as u32 % 3), None);
        }
        for n in 0..3 {
            assert_eq!(all(&mut control, n), [0_usize; 0]);
        }
        assert!(control.owners.is_empty());
    }

    /// Owners spread over the buckets, whichever bits of the hash a table uses.
    #[test]
    fn owners_hash_apart() {
        let hashes: Vec<u64> = (0..4096)
            .flat_map(|n| {
                let connection = ConnectionId { number: n, epoch: 1 };
                let later = ConnectionId { number: n, epoch: 2 };
                let domain = DomainId(1);
                let scopes = [
                    Scope::QueuePair(domain, QueuePairId(n)),
                    Scope::QueuePair(domain, QueuePairId(n << 12)),
                    Scope::Connection(domain, connection),
                    Scope::Connection(domain, later),
                ];
                let owners = scopes.map(|scope| Owner::of(&scope).unwrap());
                owners.map(|owner| BuildHasherDefault::<Mix>::default().hash_one(owner))
            })
            .collect();
        let different = |bits: fn(u64) -> u64| {
            hashes.iter().map(|hash| bits(*hash)).collect::<HashSet<_>>().len()
        };
        assert!(different(|hash| hash) > 16_000);
        assert!(different(|hash| hash & 0x3fff) > 8_000);
        assert!(different(|hash| hash >> 50) > 8_000);
    }
}
