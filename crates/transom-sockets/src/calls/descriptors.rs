//! Calls that close and duplicate descriptors, and that start processes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::calls;
use crate::table::{self, Entry, Left};

/// A descriptor that is about to name something else, which is done when the result is dropped. One
/// that a fork of `vfork` names is its parent's still.
fn forget(fd: c_int) -> Option<Left> {
    let known = !matches!(table::entry(fd), Entry::Unknown) && table::may_change();
    known.then(|| table::forget(fd)).flatten()
}

pub(super) fn duplicate(from: c_int, to: c_int) {
    if to >= 0 && table::may_change() {
        table::duplicate(from, to);
        if to <= 2 && table::hold(to).is_some() {
            super::stdio::take_over(to);
        }
    }
}

fn forget_range(first: c_uint, last: c_uint) -> Vec<Left> {
    if table::may_change() {
        table::forget_range(first as usize, last as usize)
    } else {
        Vec::new()
    }
}

fn is_open(fd: c_int) -> bool {
    crate::sys::status_flags(fd).is_ok()
}

calls! {
    fn close(fd: c_int) -> c_int, -1; |next| {
        let _left = forget(fd);
        next(fd)
    }

    fn __close(fd: c_int) -> c_int, -1; |next| {
        let _left = forget(fd);
        next(fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, -1; |next| {
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        let closes = flags & CLOSE_RANGE_CLOEXEC == 0 && first <= last;
        let _left = closes.then(|| forget_range(first, last));
        next(first, last, flags)
    }

    fn closefrom(first: c_int) -> (), Default::default(); |next| {
        let _left = forget_range(first.max(0) as c_uint, c_uint::MAX);
        next(first);
    }

    fn dup(fd: c_int) -> c_int, -1; |next| {
        let new = next(fd);
        duplicate(fd, new);
        new
    }

    fn dup2(fd: c_int, new: c_int) -> c_int, -1; |next| {
        let _left = (fd != new && is_open(fd)).then(|| forget(new));
        let done = next(fd, new);
        if fd != new {
            duplicate(fd, done);
        }
        done
    }

    fn __dup2(fd: c_int, new: c_int) -> c_int, -1; |next| {
        dup2(fd, new)
    }

    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int, -1; |next| {
        let _left = (fd != new && is_open(fd)).then(|| forget(new));
        let done = next(fd, new, flags);
        duplicate(fd, done);
        done
    }

    fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int, -1; |next| {
        let new = next(process, fd, flags);
        if new >= 0 && table::may_change() {
            table::set_unknown(new);
        }
        new
    }

    fn daemon(stays: c_int, keeps: c_int) -> c_int, -1; |next| {
        let done = next(stays, keeps);
        if done == 0 && keeps == 0 {
            replaced();
        }
        done
    }

    fn login_tty(fd: c_int) -> c_int, -1; |next| {
        let done = next(fd);
        if done == 0 {
            replaced();
        }
        done
    }

    fn forkpty(
        main: *mut c_int, name: *mut c_char, terminal: *const c_void, size: *const c_void
    ) -> c_int, -1; |next| {
        let child = next(main, name, terminal, size);
        if child == 0 {
            replaced();
        }
        child
    }
}

/// The C library has put something else in place of the first three descriptors.
fn replaced() {
    drop(forget_range(0, 2));
}
