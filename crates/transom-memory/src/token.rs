//! Which values tokens have, and when a value comes back.
//!
//! A token is 32 bits: a position in the directory (12), a slot (12), a key (8), stored and
//! compared whole. 0 is never issued. Slots come in chunks of 4096, and each chunk sits at a random
//! position of the directory. Free slots wait in a queue; a new token takes a random one from its
//! older half. Each slot walks its own secret cycle through its 256 keys.
//!
//! **Reuse.** Between the freeing of a slot and its next use at least [`QUARANTINE`] = 2,048 other
//! slots are taken or freed; a table of `n` slots keeps `n / 16` free ones waiting, if that is
//! more, and then it is `n / 16`. A token's value comes back when its slot has been used 256 times
//! more: not before 256 x 2,048 = 524,288 tokens were taken or closed, 16 million in a table of
//! 2^20 slots. A token that was closed stays dead for as long as anyone can reasonably hold on to
//! it; not for ever, which 32 bits cannot promise (a bind every 150 ns uses up all 2^32 values in
//! eleven minutes). Standing tokens (fast registration) never change: their reuse distance is zero,
//! by demand (NDK FR-13), and their scope has to defend them.
//!
//! **Guessing.** The scope is the first defence: tokens of another queue pair or connection are
//! refused even when guessed, so only live tokens of scope `Domain` with remote rights can be hit,
//! by peers connected to that domain. Let there be `n` of them.
//! - One who has seen no token hits one after 2^32 / (n + 1) guesses on average, 2^31 for n = 1.
//! - One who holds a token knows the position of its chunk, and with time that of every chunk: of a
//!   table of `c` chunks he expects 2^20 c / (n + 1) guesses: 524,288 for n = 1 in one chunk.
//! - One who has seen six tokens of one slot, one after the other, knows enough to search for that
//!   slot's secret, and to foretell its keys. The secret says nothing about other slots.
//! - For tokens of scope `QueuePair` or `Connection` no number of guesses suffices: the only ones
//!   that would work are those that the peer was given.
//!
//! Every wrong guess costs the connection on which it was made, and an actor that goes on guessing
//! waits for the next one: docs/SECURITY.md has what that makes of these figures.

use std::collections::VecDeque;

use crate::random::Random;

/// A 32-bit token: what `ibverbs` calls a key, iWARP an STag and NetworkDirect a token. 0 is never
/// handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Slots in a chunk.
pub(crate) const CHUNK: usize = 1 << 12;
/// Positions in the directory. The first is never used: so no token is 0.
pub(crate) const DIRECTORY: usize = 1 << 12;
/// Keys of a slot.
const KEYS: usize = 1 << 8;
/// Slots that wait at least in the queue of the free.
pub(crate) const QUARANTINE: usize = 2048;
/// A table of `n` slots keeps `n / SPARE` waiting.
const SPARE: usize = 16;

/// Where a token's entry lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// No place at all, for lists.
    pub(crate) const NONE: Place = Place(u32::MAX);

    #[inline]
    pub(crate) fn of(token: Token) -> Place {
        Place(token.0 >> 8)
    }

    #[inline]
    pub(crate) fn new(position: usize, slot: usize) -> Place {
        Place((position << 12 | slot) as u32)
    }

    #[inline]
    pub(crate) fn position(self) -> usize {
        self.0 as usize >> 12 & (DIRECTORY - 1)
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize & (CHUNK - 1)
    }

    fn with_key(self, key: u8) -> Token {
        Token(self.0 << 8 | u32::from(key))
    }
}

/// A slot's way through its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cycle {
    /// Tokens issued so far; from 256 on, how many beyond a multiple of it, plus 256.
    issued: u16,
    secret: [u8; 6],
}

impl Cycle {
    /// The key at a step: all 256 in an order that takes the secret to foretell. Each round adds a
    /// byte of the secret and mixes: a product with an odd number carries low bits up, the shift
    /// carries high bits down, and both can be undone, so no two steps have the same key.
    #[inline]
    fn key(&self, step: u8) -> u8 {
        self.secret.iter().fold(step, |key, byte| {
            let mixed = (key ^ byte).wrapping_mul(0xb5);
            mixed ^ mixed >> 4
        })
    }
}

/// Issues tokens and takes their slots back.
#[derive(Debug)]
pub(crate) struct Issuer {
    random: Random,
    free: VecDeque<Place>,
    /// Directory positions still unused, in random order.
    positions: Vec<u16>,
    slots: usize,
}

impl Issuer {
    /// `chunks`: at most so many.
    pub(crate) fn new(seed: [u8; 32], chunks: usize) -> Issuer {
        let mut random = Random::new(seed);
        let mut positions: Vec<u16> = (1..DIRECTORY as u16).collect();
        random.shuffle(&mut positions);
        positions.truncate(chunks.max(1));
        positions.shrink_to_fit();
        Issuer { random, free: VecDeque::new(), positions, slots: 0 }
    }

    /// Whether the next token should wait for one more chunk, and where that chunk belongs.
    pub(crate) fn wants_chunk(&mut self) -> Option<usize> {
        if self.free.len() > QUARANTINE.max(self.slots / SPARE) {
            return None;
        }
        self.positions.pop().map(usize::from)
    }

    /// The slots of a new chunk are free; each gets a secret.
    pub(crate) fn add_chunk(&mut self, position: usize) -> Vec<Cycle> {
        self.slots += CHUNK;
        let mut fresh: Vec<Place> = (0..CHUNK).map(|slot| Place::new(position, slot)).collect();
        self.random.shuffle(&mut fresh);
        self.free.extend(fresh);
        (0..CHUNK)
            .map(|_| {
                let [[a, b, c, d], [e, f, ..]] = [(); 2].map(|()| self.random.word().to_le_bytes());
                Cycle { issued: 0, secret: [a, b, c, d, e, f] }
            })
            .collect()
    }

    /// A free slot, if enough of them would be left waiting.
    pub(crate) fn take(&mut self) -> Option<Place> {
        if self.free.len() <= QUARANTINE {
            return None;
        }
        // The oldest takes the place of the slot drawn, and stays in the older half.
        let drawn = self.random.below((self.free.len() / 2) as u32);
        self.free.swap_remove_front(drawn as usize)
    }

    /// A slot waits for its next use.
    pub(crate) fn put_back(&mut self, place: Place) {
        self.free.push_back(place);
    }

    /// The slot's next token.
    pub(crate) fn issue(place: Place, cycle: &mut Cycle) -> Token {
        let key = cycle.key(cycle.issued as u8);
        cycle.issued =
            if cycle.issued < 2 * KEYS as u16 - 1 { cycle.issued + 1 } else { KEYS as u16 };
        place.with_key(key)
    }

    /// Whether the slot has ever issued this token.
    pub(crate) fn has_issued(&self, token: Token, cycle: &Cycle) -> bool {
        let steps = usize::from(cycle.issued).min(KEYS);
        (0..steps).any(|step| cycle.key(step as u8) == token.0 as u8)
    }

    /// Slots that exist.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Memory it occupies besides itself, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.free.capacity() * size_of::<Place>() + self.positions.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// An issuer with its slots' cycles, as the control path uses it.
    struct Table {
        issuer: Issuer,
        cycles: HashMap<Place, Cycle>,
    }

    impl Table {
        fn new(seed: u8, chunks: usize) -> Table {
            Table { issuer: Issuer::new([seed; 32], chunks), cycles: HashMap::new() }
        }

        fn issue(&mut self) -> Option<Token> {
            if let Some(position) = self.issuer.wants_chunk() {
                let cycles = self.issuer.add_chunk(position);
                let places = (0..CHUNK).map(|slot| Place::new(position, slot));
                self.cycles.extend(places.zip(cycles));
            }
            let place = self.issuer.take()?;
            let cycle = self.cycles.get_mut(&place).unwrap();
            Some(Issuer::issue(place, cycle))
        }
    }

    /// ND2 5.4: a stale token does not come back to life. The stated reuse distance holds in
    /// the case in which slots come back soonest: a full table that closes each token at once.
    #[test]
    fn nd2_5_4_no_token_returns_before_the_stated_distance() {
        let mut table = Table::new(1, 1);
        // A table of one chunk: slot and key tell its tokens apart.
        let mut last = vec![0; CHUNK * KEYS];
        let (mut returned, mut soonest) = (0, u32::MAX);
        // As short a queue as there can be.
        while table.cycles.is_empty() || table.issuer.free.len() > QUARANTINE + 1 {
            table.issue();
        }
        for time in 1..550_000 {
            let token = table.issue().unwrap();
            table.issuer.put_back(Place::of(token));
            let before = std::mem::replace(&mut last[token.0 as usize % (CHUNK * KEYS)], time);
            if before > 0 {
                returned += 1;
                soonest = soonest.min(time - before);
            }
        }
        // Each round takes one and frees one.
        let stated = (KEYS * QUARANTINE / 2) as u32;
        assert!(returned > 0, "the test must reach the first return");
        assert!(soonest >= stated, "a token came back after {soonest}, not {stated}");
    }

    /// A slot rests while at least QUARANTINE others are taken or freed.
    #[test]
    fn nd2_5_4_a_freed_slot_rests_in_the_younger_half() {
        let mut table = Table::new(2, 1);
        let mut live = Vec::new();
        while let Some(token) = table.issue() {
            live.push(token);
        }
        // As short a queue as there can be, and it stays so.
        let mut freed: HashMap<Place, u64> = HashMap::new();
        for time in 0..100_000_u64 {
            let place = Place::of(live.swap_remove(time as usize * 7919 % live.len()));
            table.issuer.put_back(place);
            freed.insert(place, time);
            let token = table.issue().unwrap();
            if let Some(then) = freed.get(&Place::of(token)) {
                // Each round takes one and frees one.
                assert!(time - then >= (QUARANTINE / 2) as u64, "slept {}", time - then);
            }
            live.push(token);
        }
    }

    /// ND2 5.4: REC never 0. The directory's first position is never used, so no draw can make it.
    #[test]
    fn nd2_5_4_no_token_is_zero() {
        let mut issuer = Issuer::new([3; 32], usize::MAX);
        assert_eq!(issuer.positions.len(), DIRECTORY - 1);
        let positions: HashSet<u16> = issuer.positions.iter().copied().collect();
        assert_eq!(positions.len(), DIRECTORY - 1);
        assert!(!positions.contains(&0));
        // Nor does a slot issue it at any step of its cycle.
        let position = issuer.wants_chunk().unwrap();
        for (slot, mut cycle) in issuer.add_chunk(position).into_iter().enumerate() {
            for _ in 0..3 {
                assert_ne!(Issuer::issue(Place::new(position, slot), &mut cycle), Token(0));
            }
        }
    }

    #[test]
    fn a_slot_uses_all_its_keys_before_any_again() {
        let mut issuer = Issuer::new([4; 32], 1);
        let position = issuer.wants_chunk().unwrap();
        let mut cycles = issuer.add_chunk(position);
        let place = Place::new(position, 17);
        let cycle = &mut cycles[17];
        let first: Vec<Token> = (0..KEYS).map(|_| Issuer::issue(place, cycle)).collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), KEYS);
        assert!(first.iter().all(|token| Place::of(*token) == place));
        for round in 2..6 {
            let again: Vec<Token> = (0..KEYS).map(|_| Issuer::issue(place, cycle)).collect();
            assert_eq!(first, again, "round {round}");
        }
    }

    /// Flipping a bit of the secret changes nearly every step (15 of 16, as for random steps),
    /// whichever bit it is.
    #[test]
    fn each_bit_of_the_secret_counts() {
        let mut random = Random::new([11; 32]);
        let secrets: Vec<[u8; 6]> =
            (0..64).map(|_| std::array::from_fn(|_| random.word() as u8)).collect();
        for bit in 0..48 {
            let mut changed = 0;
            for secret in &secrets {
                let mut other = *secret;
                other[bit / 8] ^= 1 << (bit % 8);
                let [one, two] = [*secret, other].map(|secret| Cycle { issued: 0, secret });
                changed += (0..=u8::MAX).filter(|step| one.key(*step) != two.key(*step)).count();
            }
            assert!(changed > 64 * 256 * 7 / 8, "bit {bit}: {changed} of {}", 64 * 256);
        }
    }

    #[test]
    fn a_slot_remembers_what_it_issued() {
        let mut issuer = Issuer::new([5; 32], 1);
        let position = issuer.wants_chunk().unwrap();
        let mut cycle = issuer.add_chunk(position)[9];
        let place = Place::new(position, 9);
        let mut issued = HashSet::new();
        for _ in 0..KEYS {
            for key in 0..=u8::MAX {
                let token = place.with_key(key);
                assert_eq!(issuer.has_issued(token, &cycle), issued.contains(&token));
            }
            issued.insert(Issuer::issue(place, &mut cycle));
        }
        // And once round, everything.
        Issuer::issue(place, &mut cycle);
        assert!((0..=u8::MAX).all(|key| issuer.has_issued(place.with_key(key), &cycle)));
    }

    /// ND2 5.4, design rule 7: unpredictable. Two seeds share neither positions, slots nor keys;
    /// and slots of one table do not walk the same cycle.
    #[test]
    fn tokens_depend_on_the_seed_and_cycles_on_the_slot() {
        let draw = |seed| {
            let mut table = Table::new(seed, 8);
            (0..64).map(|_| table.issue().unwrap()).collect::<Vec<_>>()
        };
        let (one, two) = (draw(6), draw(7));
        assert_eq!(one, draw(6));
        assert!(one.iter().zip(&two).all(|(a, b)| a != b));
        assert_ne!(Place::of(one[0]).position(), Place::of(two[0]).position());
        let mut issuer = Issuer::new([8; 32], 1);
        let position = issuer.wants_chunk().unwrap();
        let mut cycles = issuer.add_chunk(position);
        let walks: HashSet<Vec<u32>> = (0..100)
            .map(|slot| {
                let place = Place::new(position, slot);
                (0..8).map(|_| Issuer::issue(place, &mut cycles[slot]).0 & 0xff).collect()
            })
            .collect();
        assert!(walks.len() > 95, "only {} different walks of 100", walks.len());
    }

    /// The next slot is one that waits in the older half, and any of them; of a new chunk any at
    /// all.
    #[test]
    fn slots_are_drawn_from_all_of_the_older_half() {
        let (mut slots, mut ranks) = (HashSet::new(), HashSet::new());
        for seed in 0..200 {
            let mut table = Table::new(seed, 1);
            slots.insert(Place::of(table.issue().unwrap()).slot());
            let waiting: Vec<Place> = table.issuer.free.iter().copied().collect();
            let next = table.issuer.take().unwrap();
            ranks.insert(waiting.iter().position(|place| *place == next).unwrap());
        }
        assert!(ranks.iter().all(|rank| *rank < CHUNK / 2), "the younger half waits");
        assert!(slots.iter().any(|slot| *slot >= CHUNK / 2), "a new chunk's order is told");
        assert!(slots.len() > 150 && ranks.len() > 150, "{} and {}", slots.len(), ranks.len());
    }

    #[test]
    fn a_chunk_is_added_when_few_slots_wait_and_not_before() {
        // A large table keeps one slot in sixteen waiting, a small one 2,048.
        const CHUNKS: usize = 12;
        let mut table = Table::new(9, CHUNKS);
        assert_eq!(table.issuer.slots(), 0);
        let mut issued = 0;
        while table.issue().is_some() {
            issued += 1;
            let slots = table.issuer.slots();
            let short = (slots / 16).max(2048);
            assert!(slots <= issued + short + CHUNK);
            assert!(slots == CHUNKS * CHUNK || table.issuer.free.len() >= short, "at {slots}");
        }
        // The last ones stay in quarantine.
        assert_eq!((table.issuer.slots(), issued), (CHUNKS * CHUNK, CHUNKS * CHUNK - QUARANTINE));
    }
}
