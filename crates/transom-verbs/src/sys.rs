//! Calls that the standard library lacks: `errno`, the end of the process, mappings.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Pages of a descriptor in this process, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    length: usize,
}

impl Mapping {
    /// The size of a page: addresses and offsets of a mapping are multiples of it.
    pub(crate) const PAGE: u64 = 4096;

    /// The pages of `length` bytes from `offset` on, shared with others that map them. Where writing is not
    /// asked for, it need not be allowed.
    pub(crate) fn of(
        fd: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        writes: bool,
    ) -> Result<Mapping> {
        let before = offset % Mapping::PAGE;
        let invalid = || Error::from_raw_os_error(libc::EINVAL);
        let length = length.checked_add(before).ok_or_else(invalid)?;
        let length = usize::try_from(length).map_err(|_| invalid())?;
        let offset = libc::off_t::try_from(offset - before).map_err(|_| invalid())?;
        let map = |protection| {
            // SAFETY: new pages, at an address of the kernel's choice.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    protection,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    offset,
                )
            };
            let failed = at == libc::MAP_FAILED;
            if failed { Err(Error::last_os_error()) } else { Ok(at.expose_provenance()) }
        };
        let address = match map(libc::PROT_READ | libc::PROT_WRITE) {
            Err(_) if !writes => map(libc::PROT_READ)?,
            mapped => mapped?,
        };
        Ok(Mapping { address, length })
    }

    /// The address of the first page.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages are this mapping's own, and nothing of this library refers to them any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.length) };
    }
}

/// Have pages there, for reading or for writing, that lie in memory of the program's. `EINVAL`, too, of a kernel before
/// Linux 5.14.
pub(crate) fn prefetch(host: u64, length: u64, write: bool) -> Result<()> {
    let begin = host & !(Mapping::PAGE - 1);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // Not by name: libfabric and UCX put functions of their own in the place of that name.
    // SAFETY: the kernel has pages come, and changes none that are there; where no memory is, it says so.
    let done = unsafe { libc::syscall(libc::SYS_madvise, begin, host - begin + length, advice) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Set this thread's `errno`.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Have a function called at the end of the process.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function is never unloaded (`-z nodelete`).
    unsafe { libc::atexit(function) };
}
