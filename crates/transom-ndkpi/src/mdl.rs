//! Memory descriptor lists in user space (NDK 4.3), in the layout of the original: a header of 48
//! bytes and one page frame number per page that the buffer spans.
//!
//! A page frame number is the address of a page of this process divided by the page size. Hence a
//! list can describe a buffer where it lies ([`MmBuildMdlForNonPagedPool`]), or pages from anywhere
//! under a virtual address of the caller's choice, which need not be mapped at all
//! ([`TransomBuildMdlForPages`]).
#![allow(non_snake_case, reason = "the names are those of the interface")]

use std::alloc::{Layout as Block, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::mem::{offset_of, size_of};

use transom_memory::{ChainError, PAGE as PAGE_SIZE, Piece};

/// The pages were listed by a probe-and-lock.
pub const MDL_PAGES_LOCKED: i16 = 0x0002;
/// The pages are those of a buffer that stays.
pub const MDL_SOURCE_IS_NONPAGED_POOL: i16 = 0x0004;
/// Made by [`IoAllocateMdl`].
pub const MDL_ALLOCATED: i16 = 0x0008;
/// Describes a part of what another one describes.
pub const MDL_PARTIAL: i16 = 0x0010;

const BUILT: i16 = MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL;

/// The header.
#[derive(Debug)]
#[repr(C)]
pub struct Mdl {
    /// Next of the chain.
    pub next: *mut Mdl,
    /// Bytes of header and page frame numbers.
    pub size: i16,
    /// `MDL_*`.
    pub flags: i16,
    /// Unused.
    pub allocation_processor_number: u16,
    /// Unused.
    pub reserved: u16,
    /// Bytes allocated, for [`IoFreeMdl`]: a partial list may describe less than it has room for.
    pub process: *mut c_void,
    /// Unused.
    pub mapped_system_va: *mut c_void,
    /// First page's virtual address.
    pub start_va: *mut c_void,
    /// Bytes.
    pub byte_count: u32,
    /// Offset of the first byte in the first page.
    pub byte_offset: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Mdl>() == 48);
    assert!(offset_of!(Mdl, start_va) == 32 && offset_of!(Mdl, byte_count) == 40);
};

/// Pages that `length` bytes from `address` touch.
fn spanned(address: u64, length: u64) -> u64 {
    ((address % PAGE_SIZE) + length).div_ceil(PAGE_SIZE)
}

fn block(address: u64, length: u32) -> Option<Block> {
    let pages = usize::try_from(spanned(address, u64::from(length))).ok()?;
    let bytes = pages.checked_mul(size_of::<usize>())?.checked_add(size_of::<Mdl>())?;
    Block::from_size_align(bytes, align_of::<Mdl>()).ok()
}

/// Bytes that a list for this buffer takes.
#[unsafe(no_mangle)]
pub extern "C" fn MmSizeOfMdl(base: *mut c_void, length: usize) -> usize {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    block(base as u64, length).map_or(0, |block| block.size())
}

/// Set up a header in memory of at least [`MmSizeOfMdl`] bytes.
///
/// # Safety
/// `mdl` points to that many writable bytes, aligned as a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MmInitializeMdl(mdl: *mut Mdl, base: *mut c_void, length: usize) {
    if mdl.is_null() {
        return;
    }
    let address = base as u64;
    let offset = address % PAGE_SIZE;
    let size = i16::try_from(MmSizeOfMdl(base, length)).unwrap_or(0);
    let header = Mdl {
        next: std::ptr::null_mut(),
        size,
        flags: 0,
        allocation_processor_number: 0,
        reserved: 0,
        process: std::ptr::null_mut(),
        mapped_system_va: std::ptr::null_mut(),
        start_va: base.wrapping_byte_sub(usize::try_from(offset).unwrap_or(0)),
        byte_count: u32::try_from(length).unwrap_or(u32::MAX),
        byte_offset: u32::try_from(offset).unwrap_or(0),
    };
    // SAFETY: the caller gives aligned, writable memory for it.
    unsafe { mdl.write(header) };
}

/// Allocate a list for `length` bytes at `address`. The three other arguments of the original have
/// no meaning here.
///
/// # Safety
/// None beyond those of C: `address` is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoAllocateMdl(
    address: *mut c_void,
    length: u32,
    _secondary: u8,
    _charge_quota: u8,
    _irp: *mut c_void,
) -> *mut Mdl {
    let Some(block) = block(address as u64, length) else { return std::ptr::null_mut() };
    // SAFETY: the block is never empty (it holds a header).
    let mdl = unsafe { alloc_zeroed(block) }.cast::<Mdl>();
    if mdl.is_null() {
        return mdl;
    }
    // SAFETY: freshly allocated with the size that the header needs.
    unsafe {
        MmInitializeMdl(mdl, address, length as usize);
        (*mdl).flags = MDL_ALLOCATED;
        (*mdl).process = std::ptr::without_provenance_mut(block.size());
    }
    mdl
}

/// Free a list made by [`IoAllocateMdl`]. The pages are not touched, nor the rest of its chain.
///
/// # Safety
/// `mdl` is NULL or came from [`IoAllocateMdl`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoFreeMdl(mdl: *mut Mdl) {
    // SAFETY: as this function's contract.
    let Some(header) = (unsafe { mdl.as_ref() }) else { return };
    if header.flags & MDL_ALLOCATED == 0 {
        return;
    }
    if let Ok(block) = Block::from_size_align(header.process.addr(), align_of::<Mdl>()) {
        // SAFETY: the block that `IoAllocateMdl` allocated and noted here.
        unsafe { dealloc(mdl.cast(), block) };
    }
}

/// The array of page frame numbers behind the header.
///
/// # Safety
/// None: only arithmetic.
#[unsafe(no_mangle)]
pub extern "C" fn MmGetMdlPfnArray(mdl: *const Mdl) -> *mut usize {
    mdl.wrapping_add(1).cast_mut().cast()
}

/// The virtual address of the first byte: an index, not a place.
#[unsafe(no_mangle)]
pub extern "C" fn MmGetMdlVirtualAddress(mdl: &Mdl) -> *mut c_void {
    mdl.start_va.wrapping_byte_add(mdl.byte_offset as usize)
}

/// The bytes it describes.
#[unsafe(no_mangle)]
pub extern "C" fn MmGetMdlByteCount(mdl: &Mdl) -> u32 {
    mdl.byte_count
}

/// Offset of the first byte in its page.
#[unsafe(no_mangle)]
pub extern "C" fn MmGetMdlByteOffset(mdl: &Mdl) -> u32 {
    mdl.byte_offset
}

/// Fill in the pages of the buffer at the list's own virtual address.
///
/// # Safety
/// `mdl` is a list with room for its pages ([`IoAllocateMdl`], or [`MmInitializeMdl`] in enough
/// memory).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MmBuildMdlForNonPagedPool(mdl: *mut Mdl) {
    // SAFETY: as this function's contract.
    let Some(header) = (unsafe { mdl.as_mut() }) else { return };
    let first = header.start_va as u64 / PAGE_SIZE;
    let pages = spanned(u64::from(header.byte_offset), u64::from(header.byte_count));
    header.flags |= MDL_SOURCE_IS_NONPAGED_POOL;
    let array = MmGetMdlPfnArray(mdl);
    for index in 0..pages {
        let (Ok(at), Ok(pfn)) = (usize::try_from(index), usize::try_from(first + index)) else {
            return;
        };
        // SAFETY: the list has room for every page that it spans.
        unsafe { array.add(at).write(pfn) };
    }
}

/// Fill in pages from anywhere. `pages` are page-aligned addresses of this process, as many as the
/// list spans; the list's virtual address need not be mapped. Returns 1, or 0 if the pages are too
/// few or not aligned (nothing is changed).
///
/// # Safety
/// As [`MmBuildMdlForNonPagedPool`], and `pages` points to `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TransomBuildMdlForPages(
    mdl: *mut Mdl,
    pages: *const *mut c_void,
    count: usize,
) -> u8 {
    // SAFETY: as this function's contract.
    let Some(header) = (unsafe { mdl.as_mut() }) else { return 0 };
    if pages.is_null() {
        return 0;
    }
    // SAFETY: the caller gives `count` addresses.
    let pages = unsafe { std::slice::from_raw_parts(pages, count) };
    let needed = spanned(u64::from(header.byte_offset), u64::from(header.byte_count));
    let aligned = pages.iter().all(|&page| (page as u64).is_multiple_of(PAGE_SIZE));
    if pages.len() as u64 != needed || !aligned {
        return 0;
    }
    header.flags |= MDL_PAGES_LOCKED;
    let array = MmGetMdlPfnArray(mdl);
    for (index, &page) in pages.iter().enumerate() {
        // SAFETY: the list has room for every page that it spans, and there are exactly so many.
        unsafe { array.add(index).write((page as u64 / PAGE_SIZE) as usize) };
    }
    1
}

/// Make `target` describe `length` bytes of `source` from `address` on (0: to its end).
///
/// # Safety
/// Both are lists; `source` is built, and `target` has room for the pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IoBuildPartialMdl(
    source: *const Mdl,
    target: *mut Mdl,
    address: *mut c_void,
    length: u32,
) {
    // SAFETY: as this function's contract.
    let (Some(from), Some(to)) = (unsafe { (source.as_ref(), target.as_mut()) }) else { return };
    let start = MmGetMdlVirtualAddress(from) as u64;
    let Some(skipped) = (address as u64).checked_sub(start) else { return };
    let Some(rest) = u64::from(from.byte_count).checked_sub(skipped) else { return };
    let length = if length == 0 { rest } else { u64::from(length).min(rest) };
    let first_page = (u64::from(from.byte_offset) + skipped) / PAGE_SIZE;
    let (allocated, bytes) = (to.flags & MDL_ALLOCATED, to.process);
    // SAFETY: the caller says that there is room.
    unsafe { MmInitializeMdl(target, address, usize::try_from(length).unwrap_or(0)) };
    // SAFETY: just written.
    unsafe {
        (*target).flags = MDL_PARTIAL | allocated;
        (*target).process = bytes;
    }
    let (out, array) = (MmGetMdlPfnArray(target), MmGetMdlPfnArray(source));
    for index in 0..spanned(address as u64, length) {
        let (Ok(to), Ok(at)) = (usize::try_from(index), usize::try_from(first_page + index)) else {
            return;
        };
        // SAFETY: both indices lie inside what the lists span.
        unsafe { out.add(to).write(array.add(at).read()) };
    }
}

/// Copies one list after the other out of a chain, so that judging it reads no memory that the
/// consumer could still change, and nothing of it is kept (NDK MR-9).
pub(crate) struct Chain(*const Mdl);

impl Chain {
    /// # Safety
    /// `first` is NULL or a list; every `next` likewise; each one built has the pages it spans. The
    /// chain does not change while the iterator lives.
    pub(crate) unsafe fn new(first: *const Mdl) -> Chain {
        Chain(first)
    }
}

impl Iterator for Chain {
    type Item = Result<Piece, ChainError>;

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: the contract of `new`.
        let mdl = unsafe { self.0.as_ref() }?;
        let array = MmGetMdlPfnArray(self.0);
        self.0 = mdl.next;
        if mdl.flags & BUILT == 0 || u64::from(mdl.byte_offset) >= PAGE_SIZE {
            return Some(Err(ChainError::NotBuilt));
        }
        let count = spanned(u64::from(mdl.byte_offset), u64::from(mdl.byte_count));
        let pages = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
            // SAFETY: a built list has the pages it spans (contract of `new`).
            unsafe { array.add(index).read() as u64 }.wrapping_mul(PAGE_SIZE)
        });
        Some(Ok(Piece {
            address: MmGetMdlVirtualAddress(mdl) as u64,
            length: mdl.byte_count,
            pages: pages.collect(),
        }))
    }
}
