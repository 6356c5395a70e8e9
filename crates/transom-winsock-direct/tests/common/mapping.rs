//! Pages that go away while the adapter uses them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use rustix::mm::MprotectFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use transom_winsock_direct::Range;

use super::PAGE;

// SAFETY: plain memory, on every thread.
unsafe impl Send for Mapping {}
unsafe impl Sync for Mapping {}

/// Pages that can be taken away, and put back as others at the same place.
pub struct Mapping {
    base: *mut c_void,
    pages: usize,
}

impl Mapping {
    /// The given number of pages of this byte.
    pub fn of(pages: usize, byte: u8) -> Mapping {
        // Far below where the system puts what has no fixed place: when a part of it is unmapped,
        // no other thread's allocation takes its place.
        static NEXT: AtomicUsize = AtomicUsize::new(0x20_0000_0000);
        let at = NEXT.fetch_add(1 << 30, Ordering::Relaxed);
        let mapping = Mapping { base: std::ptr::with_exposed_provenance_mut(at), pages };
        mapping.map_again(0, pages, byte);
        mapping
    }
    fn at(&self, page: usize) -> *mut c_void {
        self.base.cast::<u8>().wrapping_add(page * PAGE).cast()
    }
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }
    pub fn size(&self) -> u64 {
        (self.pages * PAGE) as u64
    }
    /// The whole of it.
    pub fn range(&self) -> Range {
        Range { address: self.address(), length: self.size() as u32 }
    }
    pub fn unmap(&self, page: usize, count: usize) {
        unsafe { munmap(self.at(page), count * PAGE) }.unwrap();
    }
    pub fn protect(&self, page: usize, flags: MprotectFlags) {
        unsafe { mprotect(self.at(page), PAGE, flags) }.unwrap();
    }
    /// Other memory where this was unmapped. The place must have been; nothing else is displaced.
    pub fn map_again(&self, page: usize, count: usize, byte: u8) {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        let (both, length) = (ProtFlags::READ | ProtFlags::WRITE, count * PAGE);
        unsafe {
            let at = mmap_anonymous(self.at(page), length, both, flags).unwrap();
            at.expose_provenance();
            std::ptr::write_bytes(at.cast::<u8>(), byte, length);
        }
    }
    /// The byte at this place now.
    pub fn byte(&self, at: usize) -> u8 {
        unsafe { self.base.cast::<u8>().add(at).read_volatile() }
    }
    /// The bytes that are there now, when no peer writes to it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pages * PAGE];
        unsafe { self.base.cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }
    pub fn is_all(&self, byte: u8) -> bool {
        self.bytes().iter().all(|own| *own == byte)
    }
}
