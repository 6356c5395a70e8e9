//! The writing end of a link's rings, as its connection sees it during one call.
//!
//! A frame is composed where it will stay: its header, and a payload that fits the slot, in eight words that
//! go into the slot at once; a longer payload in the data area. Pieces of a record that is longer than a frame
//! has room for are collected in a buffer.

use transom_memory::Segment;
use transom_wire::{Around, Carrier, Direct, Room};

use crate::duplex::{Area, Duplex};
use crate::lending::{LEAST, Lent};
use crate::record::{self, HEADER, Header};
use crate::ring::SMALL;

/// Records that a slot is fetched ahead of its own.
const AHEAD: u64 = 6;

/// The shared regions of both sides, as far as a link has any.
pub trait Lender<A> {
    /// Whether this side has any that the other one may map.
    fn has_regions(&self) -> bool;

    /// Where bytes of this process lie in a region that the other side has mapped. A region that it could map
    /// may be handed over meanwhile.
    fn find(&mut self, duplex: &Duplex<A>, bytes: Segment) -> Option<Lent>;

    /// Copy the payload of an answer, under the guard of its check, to a region that the other side has lent.
    /// `false`: not there.
    fn fill(&mut self, duplex: &Duplex<A>, sink: Lent, payload: &[Segment]) -> bool;
}

/// A link without shared regions.
#[derive(Clone, Copy, Debug)]
pub struct NoRegions;

impl<A> Lender<A> for NoRegions {
    #[inline]
    fn has_regions(&self) -> bool {
        false
    }

    fn find(&mut self, _duplex: &Duplex<A>, _bytes: Segment) -> Option<Lent> {
        None
    }

    fn fill(&mut self, _duplex: &Duplex<A>, _sink: Lent, _payload: &[Segment]) -> bool {
        false
    }
}

/// The place of the reserved frame.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// All of it in its slot.
    Slot,
    /// The payload at this offset in the data area.
    Area(usize),
    /// Behind so many bytes of the buffer.
    Waiting(usize),
}

/// The writing end of a link's rings, for one call.
#[derive(Debug)]
pub struct RingCarrier<'a, A, L> {
    duplex: &'a mut Duplex<A>,
    lender: L,
    /// Frames, and pieces of such, that are not in the ring, and how much of them is there by now.
    waiting: &'a mut Vec<u8>,
    written: &'a mut usize,
    /// Bytes that may leave before others have their turn, and bytes that have left.
    budget: usize,
    sent: usize,
    place: Place,
    /// The header of the reserved frame, and a payload that lies in its slot.
    record: [u8; SMALL],
    /// Bytes of its header, of its payload, and of that as far as it was put there.
    front: usize,
    length: usize,
    filled: usize,
}

impl<'a, A: Area, L: Lender<A>> RingCarrier<'a, A, L> {
    /// An end that lets `budget` bytes leave. What waits goes before anything else.
    #[inline]
    pub fn new(
        duplex: &'a mut Duplex<A>,
        lender: L,
        (waiting, written): (&'a mut Vec<u8>, &'a mut usize),
        budget: usize,
    ) -> RingCarrier<'a, A, L> {
        let (sent, front, length, filled) = (0, 0, 0, 0);
        let (place, record) = (Place::Slot, [0; SMALL]);
        RingCarrier {
            duplex,
            lender,
            waiting,
            written,
            budget,
            sent,
            place,
            record,
            front,
            length,
            filled,
        }
    }

    /// The rings.
    #[must_use]
    pub fn duplex(&self) -> &Duplex<A> {
        self.duplex
    }

    /// Bytes that have left.
    #[must_use]
    #[inline]
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Move what waits into the ring. `false`: there is no room for all of it.
    fn flush(&mut self) -> bool {
        self.waiting.is_empty() || self.duplex.write(self.waiting, self.written)
    }

    /// The bytes that were composed for a slot are not one record, or there is no slot: the buffer takes them.
    #[cold]
    fn wait(&mut self) {
        let record = self.record.get(..self.front + self.length).unwrap_or_default();
        self.waiting.extend_from_slice(record);
        self.flush();
    }

    /// Whether what is composed for a slot is one record. A header and nothing else in front of a payload is.
    #[inline(always)]
    fn is_one_record(&self) -> bool {
        self.front == HEADER || self.says_its_length()
    }

    /// Whether the header composed for a slot says how many bytes there are.
    fn says_its_length(&self) -> bool {
        record::to_words(&self.record)
            .and_then(Header::from_words)
            .is_some_and(|header| header.front() + header.payload() == self.front + self.length)
    }
}

impl<A: Area, L: Lender<A>> Carrier for RingCarrier<'_, A, L> {
    #[inline]
    fn room(&self) -> usize {
        let waiting = self.waiting.get(*self.written..).unwrap_or_default();
        if self.duplex.has_room(waiting) { self.budget.saturating_sub(self.sent) } else { 0 }
    }

    #[inline(always)]
    fn takes(&self, length: usize) -> bool {
        self.sent < self.budget && self.duplex.takes(length, self.waiting.len())
    }

    #[inline(always)]
    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        (self.front, self.length, self.filled) = (around.front, length, 0);
        if self.waiting.is_empty() && around.front >= HEADER {
            let end = around.front + length;
            if let Some(room) = self.record.get_mut(around.front..end) {
                self.place = Place::Slot;
                return Room::Here(room);
            }
            if around.front < SMALL
                && let Some(offset) = self.duplex.place(length)
            {
                self.place = Place::Area(offset);
                return Room::Shared(self.duplex.address(offset));
            }
        }
        // A frame that waits for room behind others is copied once more.
        let start = self.waiting.len();
        self.place = Place::Waiting(start);
        self.waiting.resize(start + around.front, 0);
        Room::Behind(self.waiting)
    }

    #[inline]
    fn put(&mut self, payload: &[u8]) {
        match self.place {
            Place::Slot => {
                let at = self.front + self.filled;
                if let Some(room) = self.record.get_mut(at..at + payload.len()) {
                    // Of a fixed size: most are words, and no call is needed for one.
                    if let (Ok(room), Ok(word)) =
                        (<&mut [u8; 8]>::try_from(&mut *room), <&[u8; 8]>::try_from(payload))
                    {
                        *room = *word;
                    } else {
                        room.copy_from_slice(payload);
                    }
                }
            }
            Place::Area(offset) => self.duplex.fill(offset + self.filled, payload),
            Place::Waiting(_) => self.waiting.extend_from_slice(payload),
        }
        self.filled += payload.len();
    }

    #[inline(always)]
    fn frame(&mut self) -> &mut [u8] {
        let bytes = match self.place {
            Place::Slot => self.record.get_mut(..self.front + self.length),
            Place::Area(_) => self.record.get_mut(..self.front),
            Place::Waiting(start) => self.waiting.get_mut(start..),
        };
        bytes.unwrap_or_default()
    }

    #[inline(always)]
    fn commit(&mut self) {
        let done = match self.place {
            Place::Slot => self.is_one_record() && self.duplex.write_record(&self.record, 0),
            // There is a slot: the place was reserved with it.
            Place::Area(_) => self.duplex.write_record(&self.record, self.length),
            Place::Waiting(_) => {
                self.flush();
                true
            }
        };
        if !done {
            self.wait();
        }
        if self.sent > 0 {
            self.duplex.fetch_ahead(AHEAD);
        }
        self.sent += self.front + self.length;
    }

    fn release(&mut self) {
        if let Place::Waiting(start) = self.place {
            self.waiting.truncate(start);
        }
    }

    #[inline]
    fn wants_lend(&self, length: usize) -> bool {
        length as u64 >= LEAST && (self.lender.has_regions() || self.duplex.has_sink())
    }

    fn lend(&mut self, header: &[u8], payload: &[Segment], _trailer: &[u8]) -> Direct {
        if !self.flush() || !self.waiting.is_empty() {
            return Direct::Copy;
        }
        let length = payload.iter().map(|segment| segment.length as usize).sum::<usize>();
        let RingCarrier { duplex, lender, .. } = self;
        let sink = duplex.sink(header);
        let done = match (payload, sink) {
            (_, Some(sink)) => lender.fill(duplex, sink, payload) && duplex.write_placed(header),
            ([one], None) if Duplex::<A>::may_lend(header) => {
                lender.find(duplex, *one).is_some_and(|lent| duplex.write_lent(header, lent))
            }
            _ => false,
        };
        if done {
            self.sent += HEADER + length;
            Direct::Taken
        } else {
            Direct::Copy
        }
    }

    #[inline]
    fn wants_sink(&self, length: u64) -> bool {
        length >= LEAST && self.lender.has_regions()
    }

    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool {
        if !self.flush() || !self.waiting.is_empty() {
            return false;
        }
        let lent = self.lender.find(self.duplex, sink);
        let done = lent.is_some_and(|lent| self.duplex.write_read(header, lent));
        self.sent += if done { HEADER } else { 0 };
        done
    }
}
