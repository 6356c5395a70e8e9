//! Files in memory: the system's calls.

use std::fs::File;
use std::io;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY,
    UnmapViewOfFile,
};

/// Map the first `length` bytes of a file, to be read.
pub(crate) fn map(file: &File, length: usize) -> io::Result<*mut u8> {
    let (file, none) = (file.as_raw_handle(), std::ptr::null());
    // SAFETY: a fresh view at an address of the system's choice disturbs nothing; it outlives the handle
    // of its section.
    let start = unsafe {
        let section = CreateFileMappingW(file, none, PAGE_READONLY, 0, 0, std::ptr::null());
        if section.is_null() {
            return Err(io::Error::last_os_error());
        }
        let view = MapViewOfFile(section, FILE_MAP_READ, 0, 0, length).Value;
        let error = io::Error::last_os_error();
        CloseHandle(section);
        if view.is_null() {
            return Err(error);
        }
        view
    };
    Ok(start.cast())
}

/// End a mapping.
///
/// # Safety
/// `start` is that of a mapping of [`map`]'s, and nothing refers to its bytes.
pub(crate) unsafe fn unmap(start: *mut u8, _length: usize) {
    // SAFETY: the caller's promise. There is nothing to be done about a failure.
    unsafe { UnmapViewOfFile(MEMORY_MAPPED_VIEW_ADDRESS { Value: start.cast() }) };
}
