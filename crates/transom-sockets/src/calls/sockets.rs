//! Calls that make, connect and end sockets.

use std::ffi::{c_int, c_void};

use super::{answer_int, calls};
use crate::epoll;
use crate::offer;
use crate::stream;
use crate::table::{self, Entry};

type Address = *const c_void;
type Size = libc::socklen_t;

/// The address that a call was given.
unsafe fn address(at: Address, size: Size) -> Option<std::net::SocketAddr> {
    if at.is_null() || size as usize > 128 {
        return None;
    }
    // SAFETY: the caller has so many bytes there.
    offer::address(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size as usize) })
}

calls! {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int, -1; |next| {
        let fd = next(family, kind, protocol);
        let stream = kind & 0xF == libc::SOCK_STREAM && matches!(protocol, 0 | libc::IPPROTO_TCP);
        if fd >= 0 && table::may_change() {
            if stream && matches!(family, libc::AF_INET | libc::AF_INET6) {
                table::set_fresh(fd);
            } else {
                table::set_plain(fd);
            }
        }
        fd
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int, -1; |next| {
        let done = next(fd, backlog);
        if done == 0 && table::may_change() && matches!(table::entry(fd), Entry::Fresh | Entry::Unknown) {
            offer::listens(fd);
        }
        done
    }

    fn connect(fd: c_int, to: Address, size: Size) -> c_int, -1; |next| {
        let target = match table::entry(fd) {
            Entry::Fresh => address(to, size),
            Entry::Socket(socket) if socket.session().is_none() => address(to, size),
            _ => None,
        };
        let offered = match target {
            Some(target) if table::may_change() => offer::offer(fd, target),
            _ => false,
        };
        if offered && let Entry::Socket(socket) = table::entry(fd) {
            epoll::offered(socket, fd);
        }
        let done = next(fd, to, size);
        if offered {
            let error = *libc::__errno_location();
            if done == 0 || matches!(error, libc::EINPROGRESS | libc::EINTR) {
                if let Some(target) = target {
                    offer::connecting(fd, target);
                }
            } else {
                offer::discard(fd);
            }
            *libc::__errno_location() = error;
        }
        done
    }

    fn accept(fd: c_int, from: *mut c_void, size: *mut Size) -> c_int, -1; |next| {
        let new = next(fd, from, size);
        accepted(fd, new);
        new
    }

    fn accept4(fd: c_int, from: *mut c_void, size: *mut Size, flags: c_int) -> c_int, -1; |next| {
        let new = next(fd, from, size, flags);
        accepted(fd, new);
        new
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int, -1; |next| {
        match table::hold(fd) {
            Some(held) => answer_int(stream::shutdown(&held, fd, how).map(|()| 0)),
            None => next(fd, how),
        }
    }
}

fn accepted(listener: c_int, new: c_int) {
    if new >= 0 && table::may_change() {
        table::set_unknown(new);
        if let Entry::Unknown | Entry::Fresh = table::entry(listener) {
            offer::listens(listener);
        }
    }
}
