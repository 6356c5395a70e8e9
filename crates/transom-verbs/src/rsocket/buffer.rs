//! Registered memory of ours, and the bytes of the program's that calls copy from and to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

use transom_engine::{Sge, raw};

use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region};

/// Bytes of the program's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    address: usize,
    length: usize,
}

impl Span {
    /// # Safety
    /// As long as the span is used, `length` bytes at `address` are the program's to read or, where
    /// they are filled, to write.
    pub(crate) unsafe fn new(address: *const u8, length: usize) -> Result<Span> {
        let address = address.expose_provenance();
        if address == 0 && length > 0 {
            return Err(Errno::EFAULT);
        }
        Ok(Span { address, length })
    }

    pub(crate) fn len(self) -> usize {
        self.length
    }

    /// The bytes behind the first `count`.
    pub(crate) fn behind(self, count: usize) -> Span {
        let count = count.min(self.length);
        Span { address: self.address + count, length: self.length - count }
    }

    fn first(self, count: usize) -> Span {
        Span { length: count.min(self.length), ..self }
    }

    fn as_slice<'a>(self) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the promise of `new`.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.address), self.length)
        }
    }

    fn as_mut<'a>(self) -> &'a mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the promise of `new`; bytes of a C program are initialised for what is done here,
        // which is to write them.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}

/// Zeroed memory that a connection's peer may write, or that its requests name.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Arc<Region>,
    start: usize,
    layout: Layout,
}

/// A cache line: the engine's copies begin at one.
const ALIGNMENT: usize = 64;

impl Buffer {
    pub(crate) fn new(domain: &Arc<Domain>, size: usize, access: u32) -> Result<Buffer> {
        let layout = Layout::from_size_align(size.max(1), ALIGNMENT).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Errno::ENOMEM);
        }
        let start = start.expose_provenance();
        // SAFETY: the memory is this value's alone, no reference to it is made, and `drop` frees it
        // behind the end of the region.
        let region = unsafe {
            Region::new(domain, start as u64, layout.size() as u64, start as u64, access)
        };
        match region {
            Ok(region) => Ok(Buffer { region, start, layout }),
            Err(error) => {
                free(start, layout);
                Err(error)
            }
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.layout.size()).unwrap_or(u32::MAX)
    }

    pub(crate) fn key(&self) -> u32 {
        self.region.token.0
    }

    /// An entry of a request's list.
    pub(crate) fn entry(&self, at: u32, length: u32) -> Sge {
        Sge { token: self.key(), address: self.address() + u64::from(at), length }
    }

    fn holds(&self, at: u32, length: usize) -> bool {
        (at as usize).checked_add(length).is_some_and(|end| end <= self.layout.size())
    }

    /// Copy from the program: as many bytes as `from` has, but at most `most`.
    pub(crate) fn fill(&self, at: u32, from: Span, most: u32) {
        let bytes = from.first(most as usize).as_slice();
        if self.holds(at, bytes.len()) {
            // SAFETY: registered memory of this value's, inside it; only copies of the engine, which
            // expects this, may touch it meanwhile.
            let _ = unsafe { raw::copy_in(self.address() + u64::from(at), bytes) };
        }
    }

    /// Copy to the program: as many bytes as `into` has, but at most `most`.
    pub(crate) fn copy_to(&self, at: u32, into: Span, most: u32) {
        self.read(at, into.first(most as usize).as_mut());
    }

    /// Copy bytes that the peer may be changing.
    pub(crate) fn read(&self, at: u32, into: &mut [u8]) {
        if self.holds(at, into.len()) {
            // SAFETY: registered memory of this value's, inside it.
            let _ = unsafe { raw::copy_out(self.address() + u64::from(at), into) };
        }
    }

    /// Write bytes that the peer may be reading or changing.
    pub(crate) fn write(&self, at: u32, bytes: &[u8]) {
        if self.holds(at, bytes.len()) {
            // SAFETY: as in `fill`.
            let _ = unsafe { raw::copy_in(self.address() + u64::from(at), bytes) };
        }
    }
}

fn free(start: usize, layout: Layout) {
    // SAFETY: `alloc_zeroed` has returned it for this layout, and nobody has freed it.
    unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout) };
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Memory that the adapter may still write is never given back.
        if self.region.deregister().is_ok() {
            free(self.start, self.layout);
        }
    }
}
