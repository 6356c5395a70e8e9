//! Memory that lies in several pieces (NDK MR-2: lists of pages; `iova` registrations).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::table::of_hash_table;
use crate::{RegisterError, Segment};

/// The pieces of one region, in order, each with the offset of its first byte.
#[derive(Debug)]
pub(crate) struct List {
    pieces: Box<[(u64, Segment)]>,
}

/// The sum of the segments of a registration.
#[derive(Debug)]
pub(crate) enum Layout {
    One(Segment),
    Many(List, u64),
}

impl Layout {
    /// Judge the segments: no empty ones, neighbours joined, nothing that wraps.
    pub(crate) fn of(segments: &[Segment]) -> Result<Layout, RegisterError> {
        // The pieces before the last one: an ordinary buffer has none, and nothing is allocated.
        let mut before: Vec<(u64, Segment)> = Vec::new();
        let mut last: Option<(u64, Segment)> = None;
        let mut length = 0_u64;
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            if crate::range::wraps(segment.host, segment.length) {
                return Err(RegisterError::Wraps);
            }
            let offset = length;
            length = length.checked_add(segment.length).ok_or(RegisterError::Wraps)?;
            match &mut last {
                Some((_, last)) if last.host.checked_add(last.length) == Some(segment.host) => {
                    last.length += segment.length;
                }
                _ => before.extend(last.replace((offset, *segment))),
            }
        }
        match last {
            None => Err(RegisterError::Empty),
            Some((_, only)) if before.is_empty() => Ok(Layout::One(only)),
            Some(last) => {
                before.push(last);
                Ok(Layout::Many(List { pieces: before.into_boxed_slice() }, length))
            }
        }
    }

    /// Bytes of all segments.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Layout::One(segment) => segment.length,
            Layout::Many(_, length) => *length,
        }
    }
}

impl List {
    /// Every piece.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.pieces.iter().map(|(_, segment)| *segment)
    }

    /// The pieces of `[offset, offset + length)`.
    pub(crate) fn cut(&self, offset: u64, length: u64) -> Segments<'_> {
        let first = self.pieces.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let rest = self.pieces.get(first..).unwrap_or_default();
        let skip = offset.saturating_sub(rest.first().map_or(0, |(start, _)| *start));
        Segments { left: length, host: 0, pieces: rest, skip }
    }
}

/// Where the bytes of a [`Grant`](crate::Grant) lie, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Bytes still to come.
    left: u64,
    /// Where they lie, if `pieces` is empty.
    host: u64,
    pieces: &'a [(u64, Segment)],
    /// Bytes to leave out of the first piece.
    skip: u64,
}

impl Segments<'_> {
    #[inline]
    pub(crate) fn one(host: u64, length: u64) -> Segments<'static> {
        Segments { left: length, host, pieces: &[], skip: 0 }
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        if self.left == 0 {
            return None;
        }
        let Some(((_, piece), pieces)) = self.pieces.split_first() else {
            let length = std::mem::take(&mut self.left);
            return Some(Segment { host: self.host, length });
        };
        self.pieces = pieces;
        let skip = std::mem::take(&mut self.skip);
        let length = (piece.length - skip).min(self.left);
        // After the last piece nothing is left: lists are cut inside their length.
        self.left = if pieces.is_empty() { 0 } else { self.left - length };
        Some(Segment { host: piece.host + skip, length })
    }
}

/// The lists of every region that has one, by a number that is never used again.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    inner: Mutex<Numbered>,
}

/// The counters that an `Arc` puts before its value.
const COUNTS: usize = 2 * size_of::<usize>();

#[derive(Debug, Default)]
struct Numbered {
    last: u64,
    lists: HashMap<u64, Arc<List>>,
}

impl Lists {
    fn lock(&self) -> std::sync::MutexGuard<'_, Numbered> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, list: List) -> u64 {
        let mut numbered = self.lock();
        numbered.last += 1;
        let number = numbered.last;
        numbered.lists.insert(number, Arc::new(list));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<List>> {
        self.lock().lists.get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) {
        self.lock().lists.remove(&number);
    }

    /// Memory that the lists occupy, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let lists = &self.lock().lists;
        let pieces: usize = lists.values().map(|list| list.pieces.len()).sum();
        pieces * size_of::<(u64, Segment)>()
            + lists.len() * (COUNTS + size_of::<List>())
            + of_hash_table(lists.capacity(), size_of::<(u64, Arc<List>)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(host: u64, length: u64) -> Segment {
        Segment { host, length }
    }

    fn list(segments: &[Segment]) -> List {
        match Layout::of(segments) {
            Ok(Layout::Many(list, _)) => list,
            other => panic!("not many: {other:?}"),
        }
    }

    /// NDK MR-2: byte i of the region is byte i of the chain, wherever the cut falls.
    #[test]
    fn ndk_mr2_every_cut_yields_the_bytes_of_the_chain() {
        let segments = [segment(1000, 3), segment(5000, 1), segment(70, 4)];
        let bytes: Vec<u64> =
            segments.iter().flat_map(|s| (s.host..s.host + s.length).collect::<Vec<_>>()).collect();
        let list = list(&segments);
        for offset in 0..8 {
            for length in 0..=8 - offset {
                let cut: Vec<u64> =
                    list.cut(offset, length).flat_map(|s| s.host..s.host + s.length).collect();
                assert_eq!(cut, bytes[offset as usize..(offset + length) as usize]);
            }
        }
    }

    #[test]
    fn neighbours_are_joined_and_empty_segments_left_out() {
        let chain = [segment(0, 0), segment(4096, 10), segment(4106, 6), segment(9, 0)];
        assert!(matches!(Layout::of(&chain), Ok(Layout::One(one)) if one == segment(4096, 16)));
        assert!(matches!(Layout::of(&[]), Err(RegisterError::Empty)));
        assert!(matches!(Layout::of(&[segment(5, 0)]), Err(RegisterError::Empty)));
    }

    #[test]
    fn segments_at_the_end_of_the_address_space() {
        let last = segment(u64::MAX - 3, 4);
        assert!(matches!(Layout::of(&[last]), Ok(Layout::One(one)) if one == last));
        let beyond = segment(u64::MAX - 3, 5);
        assert!(matches!(Layout::of(&[beyond]), Err(RegisterError::Wraps)));
        // Address 0, which follows the last byte of the address space is not its neighbour.
        assert_eq!(list(&[last, segment(0, 2)]).cut(0, 6).count(), 2);
        let huge = segment(1, u64::MAX);
        assert!(matches!(Layout::of(&[huge, huge]), Err(RegisterError::Wraps)));
    }
}
