//! Which values tokens have, and when a value comes back.
//!
//! A token is 32 bits: a position in the directory (12), a slot (12), a key (8), stored and compared
//! whole. 0 is never issued. Slots come in chunks of 4096, and each chunk sits at a random position
//! of the directory. Free slots wait in a queue; a new token takes a random one from its older half.
//! Each slot walks its own secret cycle through its 256 keys.
//!
//! **Reuse.** A slot that was freed is used again only after at least [`QUARANTINE`]` / 2` = 1,024
//! other slots were taken or freed; a table with `n` slots keeps at least `n / 16` free ones waiting,
//! so that it is `n / 32` for large ones. A token's value comes back after its slot was used 256
//! times: not before 256 x 1,024 = 262,144 tokens were taken or freed in between, 8 million for
//! a table of 2^20 slots. A token that was closed therefore stays dead for as long as anyone can
//! reasonably hold on to it; not for ever, which 32 bits cannot promise (a bind every 150 ns uses up
//! all 2^32 values in eleven minutes). Standing tokens (fast registration) never change: their
//! reuse distance is zero, by demand (NDK FR-13), and their scope has to defend them.
//!
//! **Guessing.** The scope is the first defence: tokens of another queue pair or connection are
//! refused even when guessed, so only live tokens of scope `Domain` with remote rights can be hit,
//! by peers connected to that domain. Let there be `n` of them.
//! - One who has seen no token hits one after 2^32 / (n + 1) guesses on average, 2^31 for n = 1.
//! - One who holds a token knows the position of its chunk, and with time that of every chunk: of a
//!   table of `c` chunks he expects 2^20 c / (n + 1) guesses: 524,288 for n = 1 in one chunk.
//! - For tokens of scope `QueuePair` or `Connection` no number of guesses suffices: the only ones
//!   that would work are those that the peer was given.
//!
//! Every wrong guess costs the connection on which it was made.

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
    /// Tokens issued so far.
    issued: u32,
    /// Secret of the slot.
    twist: [u8; 2],
}

/// Issues tokens and takes their slots back.
#[derive(Debug)]
pub(crate) struct Issuer {
    random: Random,
    /// Two secret permutations of the keys, common to all slots.
    outer: [u8; KEYS],
    inner: [u8; KEYS],
    free: VecDeque<Place>,
    /// Directory positions still unused, in random order.
    positions: Vec<u16>,
    slots: usize,
}

impl Issuer {
    /// `chunks`: at most so many.
    pub(crate) fn new(seed: [u8; 32], chunks: usize) -> Issuer {
        let mut random = Random::new(seed);
        let mut outer = std::array::from_fn(|key| key as u8);
        random.shuffle(&mut outer);
        let mut inner = std::array::from_fn(|key| key as u8);
        random.shuffle(&mut inner);
        let mut positions: Vec<u16> = (1..DIRECTORY as u16).collect();
        random.shuffle(&mut positions);
        positions.truncate(chunks.max(1));
        positions.shrink_to_fit();
        Issuer { random, outer, inner, free: VecDeque::new(), positions, slots: 0 }
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
        self.free.extend((0..CHUNK).map(|slot| Place::new(position, slot)));
        (0..CHUNK)
            .map(|_| {
                let [a, b, ..] = self.random.word().to_le_bytes();
                Cycle { issued: 0, twist: [a, b] }
            })
            .collect()
    }

    /// A free slot, if enough of them would be left waiting.
    pub(crate) fn take(&mut self) -> Option<Place> {
        if self.free.len() <= QUARANTINE {
            return None;
        }
        // The slot drawn changes places with the oldest, which stays in the older half.
        let drawn = self.random.below((self.free.len() / 2) as u32);
        self.free.swap(0, drawn as usize);
        self.free.pop_front()
    }

    /// A slot waits for its next use.
    pub(crate) fn put_back(&mut self, place: Place) {
        self.free.push_back(place);
    }

    /// The slot's next token.
    pub(crate) fn issue(&self, place: Place, cycle: &mut Cycle) -> Token {
        let key = self.key(cycle, cycle.issued as u8);
        cycle.issued = cycle.issued.saturating_add(1);
        place.with_key(key)
    }

    /// Whether the slot has ever issued this token.
    pub(crate) fn has_issued(&self, token: Token, cycle: &Cycle) -> bool {
        let steps = (cycle.issued as usize).min(KEYS);
        (0..steps).any(|step| self.key(cycle, step as u8) == token.0 as u8)
    }

    /// The key at a step of the slot's cycle: all 256 in an order that takes the two permutations to
    /// foretell.
    fn key(&self, cycle: &Cycle, step: u8) -> u8 {
        let [a, b] = cycle.twist;
        let inner = self.inner[usize::from(step ^ a)];
        self.outer[usize::from(inner ^ b)]
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
