//! Records through memory that both sides may write at any time.
//!
//! Each side has a [`Side`]: slots of one cache line for its own records, a word with what it
//! acknowledges, and a word that says that it sleeps. Payload that does not fit a slot lies in a data
//! area next to it, which this file knows by offsets only.
//!
//! A slot is valid when it carries the lap that its reader is in, so a record is published by one
//! store and found by one load; a small message is one cache line and nothing else. The writer uses a
//! slot again once its record was acknowledged. Positions are private: all that a side believes of the
//! other one is the content of a slot (each word read once, then checked) and how far it has read
//! (never further than was written).
//!
//! `tests/loom.rs` runs every interleaving of this file.

use super::lending::Lent;
use super::record::{self, ELSEWHERE, HEADER, Header, LARGEST_PAYLOAD, LENT, RecordKind, Words};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Slots of a side. A power of two.
pub const SLOTS: usize = super::sync::SLOTS;
/// Bytes of a side's data area.
pub const DATA: usize = 512 * 1024;
/// Bytes of payload that fit a slot.
pub const INLINE: usize = 32;
/// Bytes of a header, and room for as much payload as lies in a slot.
pub const SMALL: usize = HEADER + INLINE;
/// Where payload begins in the data area: at cache lines.
const ALIGN: u64 = 64;

/// The place of one record.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    words: [AtomicU64; 8],
}

/// A word with its cache line (two, because they are fetched in pairs) to itself.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Alone<T>(T);

/// The words that one side writes for the other one to read.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Side {
    ack: Alone<AtomicU64>,
    asleep: Alone<AtomicU32>,
    /// Regions handed over, and the verdict on the last one of the other side's.
    lending: Alone<[AtomicU64; 2]>,
    slots: [Slot; SLOTS],
}

/// All of the shared memory but for the data areas: the active side's part, the passive side's. Zeros
/// are a fresh one.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Shared {
    /// The two sides, indexed by the side that writes.
    pub sides: [Side; 2],
}

impl Default for Side {
    fn default() -> Side {
        let slots = std::array::from_fn(|_| Slot::default());
        Side { ack: Alone::default(), asleep: Alone::default(), lending: Alone::default(), slots }
    }
}

impl Side {
    /// The ring's slots.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Say what this side acknowledges, without a record to ride on.
    #[inline]
    pub fn acknowledge(&self, word: u64) {
        self.ack.0.store(word, Ordering::Release);
    }

    /// The word that this side has written last.
    #[must_use]
    #[inline]
    pub fn acknowledged(&self) -> u64 {
        self.ack.0.load(Ordering::Acquire)
    }

    /// Say how many regions this side has handed over.
    pub fn hand_over(&self, count: u32) {
        self.lending.0[0].store(u64::from(count), Ordering::Release);
    }

    /// How many regions this side says it has handed over.
    #[must_use]
    #[inline]
    pub fn handed_over(&self) -> u64 {
        self.lending.0[0].load(Ordering::Acquire)
    }

    /// Say what became of a region of the other side's.
    pub fn judge(&self, verdict: u64) {
        self.lending.0[1].store(verdict, Ordering::Release);
    }

    /// The last verdict of this side.
    #[must_use]
    pub fn verdict(&self) -> u64 {
        self.lending.0[1].load(Ordering::Acquire)
    }

    /// This side is going to sleep, unless it finds something when it looks again after this.
    pub fn fall_asleep(&self) {
        fall_asleep(&self.asleep.0);
    }

    /// This side looks by itself again.
    pub fn wake_up(&self) {
        wake_up(&self.asleep.0);
    }

    /// After a write for that side: whether the caller of this call, and no other, has to wake it.
    #[must_use]
    #[inline]
    pub fn must_ring(&self) -> bool {
        must_ring(&self.asleep.0)
    }
}

/// See [`Side::fall_asleep`].
pub(crate) fn fall_asleep(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    // Pairs with the one in `must_ring`: the other side sees us asleep, or we see what it wrote.
    fence(Ordering::SeqCst);
}

/// See [`Side::wake_up`].
pub(crate) fn wake_up(asleep: &AtomicU32) {
    asleep.store(0, Ordering::Relaxed);
}

/// See [`Side::must_ring`].
#[inline]
pub(crate) fn must_ring(asleep: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    let exchange =
        |word: &AtomicU32| word.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    asleep.load(Ordering::Relaxed) != 0 && exchange(asleep)
}

/// How much has gone through a ring in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Records.
    pub records: u64,
    /// Bytes of these: a slot each, and the payload that lies elsewhere.
    pub bytes: u64,
}

impl Traffic {
    fn of(records: u64, elsewhere: u64) -> Traffic {
        Traffic { records, bytes: elsewhere.saturating_add(records * SMALL as u64) }
    }
}

/// The payload of a record on its way into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The payload fits the slot (or there is none).
    Inline([u64; INLINE / 8]),
    /// The payload lies where [`Producer::place`] said, in this many bytes; and the word behind the header.
    Placed(usize, u64),
}

/// A breach of the ring's rules that an honest peer cannot commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingViolation {
    /// The acknowledged position lies beyond the records written.
    Acknowledged,
    /// A slot holds no record that belongs into one.
    Record,
    /// A record names bytes of a region that this side has not mapped, or that lie outside of it.
    Region,
}

/// How positions lie in a ring: its slots are 2 to the power `shift`, one more than `mask`. A division
/// would be most of what a look costs.
#[derive(Clone, Copy, Debug)]
struct Laps {
    shift: u32,
    mask: u64,
}

impl Laps {
    fn new(slots: usize) -> Laps {
        let shift = slots.max(1).ilog2();
        Laps { shift, mask: (1 << shift) - 1 }
    }

    /// Which lap a position is in.
    #[inline]
    fn lap(self, position: u64) -> u32 {
        // Slots are zero before the first lap.
        (((position >> self.shift) + 1) & 0xFFFF_FFFF) as u32
    }

    #[inline]
    fn index(self, position: u64) -> usize {
        (position & self.mask) as usize
    }
}

/// A division is dear, and the data area of a real ring has a power of two.
#[inline]
fn remainder(at: u64, size: u64) -> u64 {
    if size.is_power_of_two() { at & (size - 1) } else { at % size.max(1) }
}

/// Where `length` bytes go that follow position `at` of a data area of `size` bytes: begin and end. A
/// payload is never split, so it may skip what is left of the area.
fn stretch(at: u64, length: usize, size: usize) -> (u64, u64) {
    let (length, size) = ((length as u64).next_multiple_of(ALIGN), size as u64);
    let offset = remainder(at, size);
    let begin = if offset + length > size { at + (size - offset) } else { at };
    (begin, begin + length)
}

/// The writing end of a side's own slots.
#[derive(Debug)]
pub struct Producer {
    /// Records written, and how many of them were read.
    head: u64,
    freed: u64,
    /// Bytes written to the data area, and how many of them were given back.
    data: u64,
    data_freed: u64,
    /// Bytes of payload that went with records, and not in their slots.
    elsewhere: u64,
    data_size: usize,
    laps: Laps,
    /// Per slot: the end of its record's payload.
    ends: Box<[u64]>,
}

impl Producer {
    /// A producer for an empty ring of `slots` slots, a power of two.
    #[must_use]
    pub fn new(slots: usize, data_size: usize) -> Producer {
        let laps = Laps::new(slots);
        let ends = vec![0; 1 << laps.shift].into_boxed_slice();
        Producer { head: 0, freed: 0, data: 0, data_freed: 0, elsewhere: 0, data_size, laps, ends }
    }

    /// Whether a record with a payload of `length` bytes can be written.
    #[must_use]
    #[inline]
    pub fn has_room(&self, length: usize) -> bool {
        let free = self.head - self.freed < self.ends.len() as u64;
        free && (length <= INLINE || self.place(length).is_some())
    }

    /// Slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.ends.len()
    }

    /// Records that can be written, if their payload fits.
    #[must_use]
    #[inline]
    pub fn free_slots(&self) -> usize {
        self.ends.len() - (self.head - self.freed) as usize
    }

    /// Records that the other side has read so far.
    #[must_use]
    pub fn all_consumed(&self) -> u64 {
        self.freed
    }

    /// How much of the data area was used so far, all laps together.
    #[must_use]
    pub fn placed(&self) -> u64 {
        self.data
    }

    /// The records written so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic::of(self.head, self.elsewhere)
    }

    /// A record that was written names so many bytes, which lie outside of the ring.
    pub(crate) fn count_elsewhere(&mut self, bytes: usize) {
        self.elsewhere = self.elsewhere.saturating_add(bytes as u64);
    }

    /// Whether all payload in the data area was read.
    #[must_use]
    pub fn is_all_read(&self) -> bool {
        self.data == self.data_freed
    }

    /// Have no room for payload in the data area: its pages are on their way back to the system. How large
    /// it is, for [`Producer::open_area`].
    pub fn close_area(&mut self) -> usize {
        std::mem::take(&mut self.data_size)
    }

    /// Have room in the data area again.
    pub fn open_area(&mut self, size: usize) {
        self.data_size = size;
    }

    /// The slot of the record that comes `ahead` records after the next one.
    #[must_use]
    #[inline]
    pub fn slot_ahead<'s>(&self, slots: &'s [Slot], ahead: u64) -> Option<&'s Slot> {
        slots.get(self.laps.index(self.head.wrapping_add(ahead)))
    }

    /// Where a payload of `length` bytes goes, as an offset in the data area.
    #[must_use]
    #[inline]
    pub fn place(&self, length: usize) -> Option<usize> {
        let (begin, end) = stretch(self.data, length, self.data_size);
        let fits = end - self.data_freed <= self.data_size as u64;
        fits.then_some(remainder(begin, self.data_size as u64) as usize)
    }

    /// Write a record. `false`: there is no room, and nothing was written.
    #[inline(always)]
    pub fn publish(&mut self, slots: &[Slot], words: Words, body: Body) -> bool {
        let placed = if let Body::Placed(length, _) = body { length } else { 0 };
        if !self.has_room(placed) {
            return false;
        }
        let (lap, index) = (self.laps.lap(self.head), self.laps.index(self.head));
        let (Some(slot), Some(end)) = (slots.get(index), self.ends.get_mut(index)) else {
            return false;
        };
        if placed > 0 {
            self.data = stretch(self.data, placed, self.data_size).1;
            self.elsewhere += placed as u64;
        }
        *end = self.data;
        let [first, rest @ ..] = words;
        let [valid, places @ ..] = &slot.words;
        let (head, tail) = places.split_at(rest.len());
        for (place, word) in head.iter().zip(rest) {
            place.store(word, Ordering::Relaxed);
        }
        match body {
            Body::Inline(inline) => {
                for (place, word) in tail.iter().zip(inline) {
                    place.store(word, Ordering::Relaxed);
                }
            }
            Body::Placed(_, word) => {
                if let [place, ..] = tail {
                    place.store(word, Ordering::Relaxed);
                }
            }
        }
        // The payload in the data area was written before, by ordinary stores.
        valid.store(first & !0xFFFF_FFFF | u64::from(lap), Ordering::Release);
        self.head += 1;
        true
    }

    /// The other side has read so many records, modulo 2^32. An older number changes nothing.
    ///
    /// # Errors
    /// [`RingViolation::Acknowledged`] if the position lies beyond the records written.
    #[inline]
    pub fn consumed(&mut self, through: u32) -> Result<bool, RingViolation> {
        let more = through.wrapping_sub((self.freed & 0xFFFF_FFFF) as u32);
        if more == 0 || more > i32::MAX as u32 {
            return Ok(false);
        }
        if self.freed + u64::from(more) > self.head {
            return Err(RingViolation::Acknowledged);
        }
        self.freed += u64::from(more);
        if let Some(end) = self.ends.get(self.laps.index(self.freed - 1)) {
            self.data_freed = *end;
        }
        Ok(true)
    }
}

/// A record that was read out of a slot. The other side cannot change it any more, but for a
/// payload that lies in the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's header.
    pub header: Header,
    /// The record's payload.
    pub body: Found,
}

/// The outcome of [`Consumer::take_small`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There is no record.
    Nothing,
    /// The next record is left for [`Consumer::take`]: it names a region, has more text than fits a slot, or is
    /// none.
    Left,
    /// The payload is behind the header.
    Inline,
    /// The payload lies at this offset in the data area, and is so long.
    At(usize, usize),
}

/// The payload of a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the slot.
    Inline([u64; INLINE / 8]),
    /// At an offset in the data area; and the word behind the header.
    At(usize, u64),
    /// In a region that the other side has lent.
    Lent(Lent),
    /// None; the answer may go to such a region.
    Sink(Lent),
    /// In the sink, which this side has lent.
    Placed,
}

/// The reading end of the other side's slots.
#[derive(Debug)]
pub struct Consumer {
    /// Records read.
    next: u64,
    /// Bytes of the data area passed.
    data: u64,
    /// Bytes of payload that came with records, and not in their slots.
    elsewhere: u64,
    data_size: usize,
    laps: Laps,
}

impl Consumer {
    /// A consumer for an empty ring of `slots` slots, a power of two.
    #[must_use]
    pub fn new(slots: usize, data_size: usize) -> Consumer {
        Consumer { next: 0, data: 0, elsewhere: 0, data_size, laps: Laps::new(slots) }
    }

    /// The records read so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic::of(self.next, self.elsewhere)
    }

    /// A record that was read names so many bytes, which lie outside of the ring.
    pub(crate) fn count_elsewhere(&mut self, bytes: usize) {
        self.elsewhere = self.elsewhere.saturating_add(bytes as u64);
    }

    /// Whether there is a record to read.
    #[must_use]
    #[inline]
    pub fn has_next(&self, slots: &[Slot]) -> bool {
        let lap = self.laps.lap(self.next);
        slots
            .get(self.laps.index(self.next))
            .is_some_and(|slot| slot.words[0].load(Ordering::Relaxed) as u32 == lap)
    }

    /// Read the next record word by word to `record`, if its header says enough about it: what lies behind its
    /// payload there does not count.
    #[inline(always)]
    pub fn take_small(&mut self, slots: &[Slot], record: &mut [u8; SMALL]) -> Taken {
        let Some(slot) = slots.get(self.laps.index(self.next)) else { return Taken::Nothing };
        let [valid, places @ ..] = &slot.words;
        let first = valid.load(Ordering::Acquire);
        let [ack, address, last, inline @ ..] = places;
        let last = last.load(Ordering::Relaxed);
        let lap = self.laps.lap(self.next);
        let length = last >> 32;
        let mut here = length <= INLINE as u64;
        if first as u32 != lap {
            return Taken::Nothing;
        }
        if !record::is_whole(first) || length > LARGEST_PAYLOAD as u64 {
            let header = Header::from_words([first, 0, 0, last]);
            match header.filter(|header| header.is_small()) {
                Some(header) => here = header.fits_slot(),
                None => return Taken::Left,
            }
        }
        // The flag for a payload that is not here is this side's.
        let first = first & !(u64::from(ELSEWHERE) << 40);
        let words = [first, ack.load(Ordering::Relaxed), address.load(Ordering::Relaxed), last];
        let (header, payload) = record.split_at_mut(HEADER);
        for (room, word) in header.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_ne_bytes());
        }
        for (room, place) in payload.chunks_exact_mut(8).zip(inline) {
            room.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
        }
        self.next += 1;
        if here {
            return Taken::Inline;
        }
        let length = length as usize; // at most the largest payload
        Taken::At(self.pass_data(length), length)
    }

    /// The offset of a payload of `length` bytes, which is the next one in the data area.
    #[inline(never)]
    fn pass_data(&mut self, length: usize) -> usize {
        let (begin, end) = stretch(self.data, length, self.data_size);
        self.data = end;
        self.elsewhere += length as u64;
        remainder(begin, self.data_size as u64) as usize
    }

    /// Read the next record, if there is one. After a violation the ring is of no further use.
    #[inline]
    pub fn take(&mut self, slots: &[Slot]) -> Option<Result<Record, RingViolation>> {
        let slot = slots.get(self.laps.index(self.next))?;
        let first = slot.words[0].load(Ordering::Acquire);
        if first as u32 != self.laps.lap(self.next) {
            return None;
        }
        let [_, places @ ..] = &slot.words;
        let read = |at: usize| places.get(at).map_or(0, |place| place.load(Ordering::Relaxed));
        let header = Header::from_words([first, read(0), read(1), read(2)])
            .filter(|header| header.belongs_into_a_slot());
        let Some(header) = header else { return Some(Err(RingViolation::Record)) };
        let length = header.payload();
        let body = if header.has(LENT) {
            match (header.kind, Lent::from_words([read(3), read(4), 0, 0])) {
                (RecordKind::Write | RecordKind::Send, Some(lent)) if header.front() == HEADER => {
                    Found::Lent(lent)
                }
                (RecordKind::Read, Some(lent)) => Found::Sink(lent),
                (RecordKind::Answer, _) => Found::Placed,
                _ => return Some(Err(RingViolation::Region)),
            }
        } else if header.fits_slot() {
            Found::Inline([read(3), read(4), read(5), read(6)])
        } else {
            Found::At(self.pass_data(length), read(3))
        };
        self.next += 1;
        Some(Ok(Record { header, body }))
    }
}
