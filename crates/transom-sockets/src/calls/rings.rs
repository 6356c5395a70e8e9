//! Calls of liburing that set up an io_uring. Bytes of a ring go past this library, so that no connection is
//! switched behind one, and a process with a switched connection gets none: the error is that of a kernel
//! whose administrator has forbidden rings, with which programs reckon.

use std::ffi::{c_int, c_uint, c_void};

use super::calls;
use crate::young;

/// The error of a process that gets no ring.
pub(super) const REFUSED: c_int = libc::EPERM;

calls! {
    fn io_uring_queue_init(
        entries: c_uint, ring: *mut c_void, flags: c_uint
    ) -> c_int, -libc::ENOSYS; |next| {
        if young::freeze() { next(entries, ring, flags) } else { -REFUSED }
    }

    fn io_uring_queue_init_params(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void
    ) -> c_int, -libc::ENOSYS; |next| {
        if young::freeze() { next(entries, ring, parameters) } else { -REFUSED }
    }

    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, size: usize
    ) -> c_int, -libc::ENOSYS; |next| {
        if young::freeze() { next(entries, ring, parameters, memory, size) } else { -REFUSED }
    }

    fn io_uring_setup(
        entries: c_uint, parameters: *mut c_void
    ) -> c_int, -libc::ENOSYS; |next| {
        if young::freeze() { next(entries, parameters) } else { -REFUSED }
    }
}
