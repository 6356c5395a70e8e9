//! Asynchronous I/O of the C library: threads of its own read and write, by calls that do not come here.
//! A connection that is young stays with TCP; one that is switched is refused at the call, as by a system
//! without these calls (aio_read(3)).

use std::ffi::{c_int, c_void};

use super::calls;
use crate::said::Why;
use crate::table;

type Control = *mut c_void;

/// Whether the connection of a control block can be used by the kernel's socket: its descriptor is the
/// first word.
unsafe fn may_go_on(control: *const c_void) -> bool {
    // SAFETY: the caller's control block, or null.
    let Some(fd) = (unsafe { control.cast::<c_int>().as_ref() }) else { return true };
    may_use_kernel(*fd)
}

/// Whether the kernel's socket has the bytes of a descriptor, from now on and for good.
pub(super) fn may_use_kernel(fd: c_int) -> bool {
    if table::hold(fd).is_some() {
        return false;
    }
    table::stays(fd, Why::Background);
    // Another thread may have switched it meanwhile.
    table::hold(fd).is_none()
}

calls! {
    fn aio_read(control: Control) -> c_int, -1; |next| {
        if may_go_on(control) { next(control) } else { crate::sys::fail(libc::ENOSYS) as c_int }
    }

    fn aio_read64(control: Control) -> c_int, -1; |next| {
        if may_go_on(control) { next(control) } else { crate::sys::fail(libc::ENOSYS) as c_int }
    }

    fn aio_write(control: Control) -> c_int, -1; |next| {
        if may_go_on(control) { next(control) } else { crate::sys::fail(libc::ENOSYS) as c_int }
    }

    fn aio_write64(control: Control) -> c_int, -1; |next| {
        if may_go_on(control) { next(control) } else { crate::sys::fail(libc::ENOSYS) as c_int }
    }

    fn lio_listio(mode: c_int, list: *const Control, count: c_int, event: *mut c_void) -> c_int, -1; |next| {
        if all_may_go_on(list, count) {
            next(mode, list, count, event)
        } else {
            crate::sys::fail(libc::ENOSYS) as c_int
        }
    }

    fn lio_listio64(mode: c_int, list: *const Control, count: c_int, event: *mut c_void) -> c_int, -1; |next| {
        if all_may_go_on(list, count) {
            next(mode, list, count, event)
        } else {
            crate::sys::fail(libc::ENOSYS) as c_int
        }
    }
}

unsafe fn all_may_go_on(list: *const Control, count: c_int) -> bool {
    let count = usize::try_from(count).unwrap_or_default();
    // SAFETY: the caller's list has so many control blocks, or nulls.
    unsafe { (0..count).all(|at| may_go_on(*list.wrapping_add(at))) }
}
