//! Calls that close and duplicate descriptors, and that start processes.

use std::ffi::{c_int, c_long, c_uint};

use super::calls;
use crate::epoll;
use crate::lock;
use crate::table::{self, Entry, Left};
use crate::young;

/// A descriptor that is about to name something else, which is done when the result is dropped. One
/// that a fork of `vfork` names is its parent's still.
fn forget(fd: c_int) -> Option<Left> {
    let known = !matches!(table::entry(fd), Entry::Unknown) && table::may_change();
    known.then(|| table::forget(fd)).flatten()
}

fn duplicate(from: c_int, to: c_int) {
    if to >= 0 && table::may_change() {
        table::duplicate(from, to);
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

    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int, -1; |next| {
        let _left = (fd != new && is_open(fd)).then(|| forget(new));
        let done = next(fd, new, flags);
        duplicate(fd, done);
        done
    }

    fn fork() -> c_int, -1; |next| {
        if !table::may_change() {
            return next();
        }
        // The child holds every connection that its parent holds.
        table::each_socket(|_, session| {
            session.end().holders.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        });
        let paused = (epoll::pause(), table::pause());
        let child = next();
        if child == 0 {
            lock::forget_thread();
        }
        drop(paused);
        match child {
            0 => table::after_fork(),
            1.. => young::forked(false),
            -1 => table::each_socket(|_, session| {
                session.end().holders.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
            }),
            _ => {}
        }
        child
    }

    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
    ) -> c_long, -1; |next| {
        let _left = match number {
            libc::SYS_close => forget_range(a as c_uint, a as c_uint),
            libc::SYS_close_range if c == 0 => forget_range(a as c_uint, b as c_uint),
            _ => Vec::new(),
        };
        if number == libc::SYS_io_uring_setup && !young::freeze() {
            return crate::sys::fail(super::rings::REFUSED) as c_long;
        }
        next(number, a, b, c, d, e, f)
    }
}
