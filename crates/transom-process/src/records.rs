//! The records of a ring as the frames of a wire, one after the other, and the word beside them.

use transom_wire::Frames;

use crate::duplex::{Area, Duplex, Next};
use crate::record::{self, HEADER};
use crate::ring::{RingViolation, SMALL};

/// The cost of a record, and of so many bytes of it that do not lie in its slot, in bytes.
pub const UNIT: usize = 256;

/// The reason why there is no further frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The records cost as much as they may.
    Spent,
    /// There is nothing to read.
    Empty,
    /// The next record is to be [read](Duplex::read) by itself.
    Left,
    /// The other side has broken a rule of the ring.
    Broken(RingViolation),
}

/// Records of the other side, until they cost so much.
#[derive(Debug)]
pub struct Records<'a, A> {
    duplex: &'a mut Duplex<A>,
    /// The one that was read last.
    record: [u8; SMALL],
    most: usize,
    cost: usize,
    stop: Stop,
}

impl<'a, A: Area> Records<'a, A> {
    /// Until they cost `most` [`UNIT`]s: one each, and one for every so many bytes that lie elsewhere.
    #[inline]
    pub fn new(duplex: &'a mut Duplex<A>, most: usize) -> Records<'a, A> {
        Records { duplex, record: [0; SMALL], most, cost: 0, stop: Stop::Spent }
    }

    /// The cost of those that were read, and why there is no further one.
    #[must_use]
    #[inline]
    pub fn end(self) -> (usize, Stop) {
        (self.cost, self.stop)
    }

    /// The word beside the records, which was written after them.
    fn word(&mut self) -> Result<bool, RingViolation> {
        let Some(header) = self.duplex.news_beside()? else { return Ok(false) };
        if let Some(room) = self.record.first_chunk_mut::<HEADER>() {
            *room = record::to_bytes(header.words());
        }
        Ok(true)
    }
}

impl<A: Area> Frames for Records<'_, A> {
    #[inline(always)]
    fn next(&mut self) -> Option<&[u8]> {
        if self.cost >= self.most {
            self.stop = Stop::Spent;
            return None;
        }
        let mut elsewhere = 0;
        let next = match self.duplex.read_small(&mut self.record, &mut elsewhere) {
            Ok(Next::Record) => Ok(true),
            Ok(Next::None) => self.word(),
            Ok(Next::Left) => {
                self.stop = Stop::Left;
                return None;
            }
            Err(violation) => Err(violation),
        };
        match next {
            Ok(true) => {
                self.cost += 1 + elsewhere / UNIT;
                Some(&self.record)
            }
            Ok(false) => {
                self.stop = Stop::Empty;
                None
            }
            Err(violation) => {
                self.stop = Stop::Broken(violation);
                None
            }
        }
    }

    #[inline(always)]
    fn taken(&mut self, _: usize) {}
}
