//! Files in memory: the system's calls.

use std::fs::File;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Map the first `length` bytes of a file, to be read.
pub(crate) fn map(file: &File, length: usize) -> std::io::Result<*mut u8> {
    let (anywhere, read) = (std::ptr::null_mut(), ProtFlags::READ);
    // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
    let start = unsafe { mmap(anywhere, length, read, MapFlags::SHARED, file, 0)? };
    Ok(start.cast())
}

/// End a mapping.
///
/// # Safety
/// `start` and `length` are those of a mapping of [`map`]'s, and nothing refers to its bytes.
pub(crate) unsafe fn unmap(start: *mut u8, length: usize) {
    // SAFETY: the caller's promise. There is nothing to be done about a failure.
    let _ = unsafe { munmap(start.cast(), length) };
}
