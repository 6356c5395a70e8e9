//! Memory to register.

use std::sync::atomic::{AtomicU8, Ordering};

const PAGE: usize = 4096;

#[derive(Debug)]
#[repr(align(4096))]
struct Page([AtomicU8; PAGE]);

/// Whole pages of this process. A peer may write to them at any time: hence atomics.
#[derive(Debug)]
pub struct Pages(Box<[Page]>);

impl Pages {
    /// The given number of pages of zeros.
    #[must_use]
    pub fn new(count: usize) -> Pages {
        Pages((0..count).map(|_| Page([const { AtomicU8::new(0) }; PAGE])).collect())
    }

    /// A page of this byte.
    #[must_use]
    pub fn of(byte: u8) -> Pages {
        let pages = Pages::new(1);
        pages.fill(|_| byte);
        pages
    }

    /// Where they begin.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// How many bytes they have.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is not a case")]
    pub fn len(&self) -> usize {
        self.0.len() * PAGE
    }

    fn cells(&self) -> impl Iterator<Item = &AtomicU8> {
        self.0.iter().flat_map(|page| &page.0)
    }

    /// The bytes that are there now.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.cells().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    /// Whether each byte is this one.
    #[must_use]
    pub fn is_all(&self, byte: u8) -> bool {
        self.cells().all(|cell| cell.load(Ordering::Relaxed) == byte)
    }

    /// Write to each byte what `f` says for its place.
    pub fn fill(&self, f: impl Fn(usize) -> u8) {
        for (i, cell) in self.cells().enumerate() {
            cell.store(f(i), Ordering::Relaxed);
        }
    }
}
