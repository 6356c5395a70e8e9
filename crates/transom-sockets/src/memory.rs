//! The library's own memory.
//!
//! Calls that a handler of a signal may make (`signal-safety(7)`) must not allocate by `malloc`, which the handler
//! may have interrupted, and an allocator that the program brings along may call `read` or `close` while it
//! holds its own locks. Memory of this library comes from the kernel, in blocks of powers of two, by lists
//! without locks.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::sys;

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

/// Blocks of 16 bytes to 32 KiB; more comes from the kernel each time.
const SMALLEST: usize = 16;
const CLASSES: usize = 12;
const REGION: usize = 256 << 10;
const PAGE: usize = 4096;

/// The free blocks of each size: the address of the first one, and in the upper bits a count of changes, so that
/// a block which was taken and given back meanwhile is not mistaken for itself. Each begins with the address of
/// the next one.
static FREE: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];
const ADDRESS: u64 = (1 << 48) - 1;
const CHANGE: u64 = 1 << 48;

/// The region that new blocks come from. It begins with how much of it is used.
static LATEST: AtomicPtr<AtomicUsize> = AtomicPtr::new(null_mut());

/// The class of a layout. `None`: pages of its own.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    let class = (size / SMALLEST).trailing_zeros() as usize;
    (class < CLASSES && layout.align() <= PAGE).then_some(class)
}

/// The word in a free block.
///
/// # Safety
/// `at` is the address of a block.
unsafe fn next<'a>(at: u64) -> &'a AtomicU64 {
    // SAFETY: blocks are never unmapped, begin at a multiple of 16, and have room for the word.
    unsafe { &*(at as *const AtomicU64) }
}

fn used_before(class: usize) -> Option<*mut u8> {
    let list = FREE.get(class)?;
    let take = |seen: u64| {
        let at = Some(seen & ADDRESS).filter(|at| *at != 0)?;
        // SAFETY: the list has blocks. One that another thread has taken meanwhile gives a wrong word, and then
        // the count has changed.
        let next = unsafe { next(at) }.load(Ordering::Relaxed);
        Some((seen & !ADDRESS).wrapping_add(CHANGE) | next & ADDRESS)
    };
    let taken = list.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
    Some((taken & ADDRESS) as *mut u8)
}

fn fresh(class: usize) -> Option<*mut u8> {
    let size = SMALLEST << class;
    loop {
        let latest = LATEST.load(Ordering::Acquire);
        // SAFETY: a region, which is never unmapped once it is the latest one.
        if let Some(used) = unsafe { latest.as_ref() } {
            let place = |used: usize| used.next_multiple_of(size.min(PAGE));
            let take = |used: usize| Some(place(used) + size).filter(|end| *end <= REGION);
            if let Ok(before) = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
                return Some(latest.cast::<u8>().wrapping_add(place(before)));
            }
        }
        let region = sys::pages(REGION)?.cast::<AtomicUsize>();
        // SAFETY: just mapped, and this call's alone.
        unsafe { &*region }.store(size_of::<AtomicUsize>(), Ordering::Relaxed);
        let (order, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        if LATEST.compare_exchange(latest, region, order, otherwise).is_err() {
            // SAFETY: no other call has seen it.
            unsafe { sys::unmap(region.cast(), REGION) };
        }
    }
}

// SAFETY: a block has the size and the alignment of its layout, is nobody else's until it is given back, and no
// call unwinds.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => used_before(class).or_else(|| fresh(class)).unwrap_or(null_mut()),
            None if layout.align() > PAGE => null_mut(),
            None => sys::pages(layout.size()).unwrap_or(null_mut()),
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else {
            // SAFETY: mapped by `alloc`, and the caller's no more.
            return unsafe { sys::unmap(at.cast(), layout.size()) };
        };
        let put = |seen: u64| {
            // SAFETY: a block that is the caller's no more, and not in the list yet.
            unsafe { next(at as u64) }.store(seen & ADDRESS, Ordering::Relaxed);
            Some((seen & !ADDRESS).wrapping_add(CHANGE) | at as u64 & ADDRESS)
        };
        let _ = FREE[class].fetch_update(Ordering::AcqRel, Ordering::Acquire, put);
    }
}
