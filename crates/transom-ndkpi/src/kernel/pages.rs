//! Pages that an MDL locks.

use transom_engine::raw;

use crate::Status;
use crate::mdl::{
    MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL, Mdl, MmBuildMdlForNonPagedPool,
    MmGetMdlVirtualAddress,
};

/// `LOCK_OPERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOperation {
    /// `IoReadAccess`: the pages are read.
    Read = 0,
    /// `IoWriteAccess`: the pages are written.
    Write = 1,
    /// `IoModifyAccess`: both.
    Modify = 2,
}

/// Check that the buffer at the list's virtual address is there, and writable unless `operation` is
/// `IoReadAccess` (0), and list its pages. Nothing is pinned: the provider copes with pages that
/// vanish (design rule 8). Returns `SUCCESS`, or with the list as it was `ACCESS_VIOLATION`, and
/// `INVALID_PARAMETER` for no list or a list whose pages are listed.
///
/// # Safety
/// `mdl` is null or a list with room for its pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TransomProbeAndLockPages(mdl: *mut Mdl, _mode: i8, operation: u32) -> i32 {
    // SAFETY: this function's contract.
    let Some(header) = (unsafe { mdl.as_mut() }) else { return Status::INVALID_PARAMETER.0 };
    if header.flags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL) != 0 {
        return Status::INVALID_PARAMETER.0;
    }
    let address = MmGetMdlVirtualAddress(header) as u64;
    let write = operation != LockOperation::Read as u32;
    if raw::check_pages(address, header.byte_count.into(), write).is_err() {
        return Status::ACCESS_VIOLATION.0;
    }
    // SAFETY: this function's contract.
    unsafe {
        MmBuildMdlForNonPagedPool(mdl);
        (*mdl).flags ^= MDL_SOURCE_IS_NONPAGED_POOL | MDL_PAGES_LOCKED;
    }
    Status::SUCCESS.0
}

/// [`TransomProbeAndLockPages`] in the shape of the original, which raises an exception where that
/// returns an error. Here the list has the flag `MDL_PAGES_LOCKED` or not, and no call takes one that
/// has not.
///
/// # Safety
/// As [`TransomProbeAndLockPages`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MmProbeAndLockPages(mdl: *mut Mdl, mode: i8, operation: u32) {
    // SAFETY: this function's contract.
    unsafe { TransomProbeAndLockPages(mdl, mode, operation) };
}

/// Unlock what [`MmProbeAndLockPages`] has locked. The list can be freed or locked again.
///
/// # Safety
/// `mdl` is null or a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MmUnlockPages(mdl: *mut Mdl) {
    // SAFETY: this function's contract.
    if let Some(header) = unsafe { mdl.as_mut() } {
        header.flags &= !MDL_PAGES_LOCKED;
    }
}
