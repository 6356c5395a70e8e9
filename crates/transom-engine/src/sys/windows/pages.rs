//! Checks that there is memory behind a range to register (ND2 R9). Holes, reserved memory that is not
//! committed, pages that may not be read, and read-only pages registered for writing are refused. The
//! copy handles what happens to the pages later: no check at registration replaces the one at placement.

use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEMORY_BASIC_INFORMATION, PAGE_EXECUTE, PAGE_EXECUTE_READWRITE,
    PAGE_EXECUTE_WRITECOPY, PAGE_GUARD, PAGE_NOACCESS, PAGE_READWRITE, PAGE_WRITECOPY,
    VirtualQuery,
};

use super::maps::{Mapping, PageError, check};

/// The pages at `address` and those behind them that are alike. `None` if nothing is committed there.
fn query(address: u64) -> Option<Mapping> {
    let mut about = MEMORY_BASIC_INFORMATION::default();
    let at = usize::try_from(address).ok()?;
    let size = size_of::<MEMORY_BASIC_INFORMATION>();
    // SAFETY: asks about any address, and writes into `about` only.
    if unsafe { VirtualQuery(std::ptr::without_provenance(at), &raw mut about, size) } == 0
        || about.State != MEM_COMMIT
    {
        return None;
    }
    let protection = about.Protect;
    let start = about.BaseAddress.addr() as u64;
    Some(Mapping {
        start,
        end: start + about.RegionSize as u64,
        // A guard page is the edge of a stack that may grow.
        read: protection & (PAGE_NOACCESS | PAGE_GUARD | PAGE_EXECUTE) == 0,
        write: protection
            & (PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY)
            != 0,
    })
}

/// Check `length` bytes at `start`. `write`: they must be writable too.
///
/// # Errors
/// The first page that is not there, or lacks the access.
pub fn check_pages(start: u64, length: u64, write: bool) -> Result<(), PageError> {
    check_ranges([(start, length)], write)
}

/// Check ranges (address, bytes), with one question to the system for each run of pages that are alike.
pub fn check_ranges(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    write: bool,
) -> Result<(), PageError> {
    check(ranges, write, |at| Ok(query(at))).unwrap_or(Ok(()))
}
