//! Pages that vanish, for tests.

use rustix::fd::OwnedFd;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

pub(super) const PAGE: usize = 4096;

/// Two pages, of which the second one is taken away in some manner.
pub(super) struct Pages {
    base: *mut u8,
    file: OwnedFd,
}

/// A name, and how two pages come about of which the second one has gone.
type Way = (&'static str, fn() -> Pages);

/// The ways in which a page vanishes: two pages of which the second one has gone.
pub(super) const WAYS: &[Way] = &[
    ("munmap", || {
        let pages = Pages::new();
        pages.unmap_second();
        pages
    }),
    ("mprotect", || {
        let pages = Pages::new();
        pages.protect_second(false);
        pages
    }),
    ("truncation", || {
        let pages = Pages::new();
        rustix::fs::ftruncate(&pages.file, PAGE as u64).unwrap();
        pages
    }),
];

impl Pages {
    pub(super) fn new() -> Pages {
        Pages::of_file(2 * PAGE as u64)
    }

    /// Pages of a file of so many bytes.
    pub(super) fn of_file(length: u64) -> Pages {
        let file = rustix::fs::memfd_create("transom", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, length).unwrap();
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping.
        let base = unsafe {
            mmap(std::ptr::null_mut(), 2 * PAGE, rw, MapFlags::SHARED, &file, 0).unwrap()
        };
        Pages { base: base.cast(), file }
    }

    pub(super) fn at(&self, offset: usize) -> u64 {
        self.base as u64 + offset as u64
    }

    pub(super) fn unmap_second(&self) {
        // SAFETY: the second page is ours and no reference to it exists.
        unsafe { munmap(self.base.wrapping_add(PAGE).cast(), PAGE).unwrap() };
    }

    /// Take the right to write from the second page, and that to read unless it stays `readable`.
    pub(super) fn protect_second(&self, readable: bool) {
        let to = if readable { MprotectFlags::READ } else { MprotectFlags::empty() };
        // SAFETY: as above.
        unsafe { mprotect(self.base.wrapping_add(PAGE).cast(), PAGE, to).unwrap() };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: ours; unmapping a hole is not an error.
        unsafe { munmap(self.base.cast(), 2 * PAGE).unwrap() };
    }
}
