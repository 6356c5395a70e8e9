//! Where the entries are: chunks of one-line entries at random positions of a directory.

use std::sync::OnceLock;

use crate::entry::Entry;
use crate::token::{CHUNK, DIRECTORY, Place};

// A check reads one cache line.
const _: () = assert!(size_of::<Entry>() == 64 && align_of::<Entry>() == 64);

type Chunk = Box<[Entry; CHUNK]>;

/// Every entry. Chunks are added and never taken away.
#[derive(Debug)]
pub(crate) struct Table {
    directory: Box<[OnceLock<Chunk>; DIRECTORY]>,
}

/// The bytes that a hash table occupies: an eighth of its places stays free, and each has a byte of
/// its own.
pub(crate) fn of_hash_table(capacity: usize, entry: usize) -> usize {
    capacity * 8 / 7 * (entry + 1)
}

/// A boxed array, built on the heap.
pub(crate) fn boxed<T, const N: usize>(make: impl FnMut() -> T) -> Option<Box<[T; N]>> {
    let items: Vec<T> = std::iter::repeat_with(make).take(N).collect();
    items.into_boxed_slice().try_into().ok()
}

impl Table {
    pub(crate) fn new() -> Table {
        let directory = boxed(OnceLock::new);
        // The length is N by construction; the other arm costs a stack's worth of room, not a
        // panic.
        let directory =
            directory.unwrap_or_else(|| Box::new([const { OnceLock::new() }; DIRECTORY]));
        Table { directory }
    }

    /// The entry at a place, if its chunk exists.
    #[inline]
    pub(crate) fn entry(&self, place: Place) -> Option<&Entry> {
        Some(&self.directory[place.position()].get()?[place.slot()])
    }

    /// Memory that the entries of so many slots and the directory occupy.
    pub(crate) fn bytes(slots: usize) -> usize {
        slots * size_of::<Entry>() + DIRECTORY * size_of::<OnceLock<Chunk>>()
    }

    /// Make the chunk of a position. `false` if it exists.
    pub(crate) fn add_chunk(&self, position: usize) -> bool {
        match (self.directory.get(position), boxed(Entry::new)) {
            (Some(cell), Some(chunk)) => cell.set(chunk).is_ok(),
            _ => false,
        }
    }
}
