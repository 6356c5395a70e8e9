//! Calls that make, connect and end sockets.

use std::ffi::{c_int, c_void};

use transom_switch::layout::Side;

use super::{answer_int, calls};
use crate::epoll;
use crate::offer;
use crate::said::{self, Why};
use crate::stream;
use crate::sys;
use crate::table::{self, Entry};
use crate::user;
use crate::young::{self, Served, Use};

type Address = *const c_void;
type Size = libc::socklen_t;

/// The address that a call was given. `None`: no address of the Internet, or none at all.
unsafe fn address(at: Address, size: Size) -> Option<std::net::SocketAddr> {
    let mut bytes = [0_u8; 28];
    let length = bytes.len().min(size as usize);
    // SAFETY: there is room for so many bytes.
    let whole = unsafe { user::fetch_into(at.cast(), bytes.as_mut_ptr(), length) };
    offer::address(bytes.get(..length).filter(|_| whole)?)
}

/// Whether a call was given an address of no family, which ends a connection (connect(2)).
unsafe fn is_none(at: Address, size: Size) -> bool {
    // SAFETY: a plain word.
    let family = unsafe { user::fetch(at.cast::<libc::sa_family_t>()) };
    size >= 2 && family == Some(libc::AF_UNSPEC as libc::sa_family_t)
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
        if done == 0 && table::may_change() {
            if let Entry::Socket(socket) = table::entry(fd) {
                // Sets have it as the kernel does.
                epoll::leave_alone(socket, fd);
                drop(table::forget(fd));
            }
            if let Entry::Fresh | Entry::Unknown = table::entry(fd) {
                offer::listens(fd);
            }
        }
        done
    }

    fn connect(fd: c_int, to: Address, size: Size) -> c_int, -1; |next| {
        let mine = match table::entry(fd) {
            Entry::Fresh => true,
            Entry::Socket(socket) => !socket.is_attached(),
            _ => false,
        };
        if let (false, Some(held)) = (mine, table::hold_known(fd))
            && let (true, Some(session)) = (is_none(to, size), held.session())
        {
            // Without an address the connection is reset. Doorbells left behind would be looked for, and the error of
            // the reset taken with them.
            stream::drain(&session, fd);
            session.end().abortive.store(1, std::sync::atomic::Ordering::Relaxed);
            let done = next(fd, to, size);
            held.set_gone();
            let in_sets = held.sets.load(std::sync::atomic::Ordering::SeqCst) > 0;
            epoll::disconnected(&held);
            drop(held);
            let left = table::forget(fd);
            if in_sets {
                // Sets know nothing of the next connection of this socket.
                table::set_plain(fd);
            } else {
                table::set_fresh(fd);
            }
            drop(left);
            return done;
        }
        let done = next(fd, to, size);
        if mine && table::may_change() {
            let error = *libc::__errno_location();
            if done == 0 || matches!(error, libc::EINPROGRESS | libc::EINTR) {
                match address(to, size) {
                    Some(target) if offer::wanted(target) => young::begin(fd, Side::Active),
                    _ => {
                        said::stayed(offer::why_not());
                        table::stays(fd, offer::why_not());
                    }
                }
            }
            *libc::__errno_location() = error;
        }
        done
    }

    fn __connect(fd: c_int, to: Address, size: Size) -> c_int, -1; |next| {
        connect(fd, to, size)
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

    fn getpeername(fd: c_int, to: *mut c_void, size: *mut Size) -> c_int, -1; |next| {
        let held = table::hold_known(fd);
        match held.as_ref().and_then(|held| Some((held, held.session()?))) {
            Some((held, session)) if stream::is_closed(held, &session, fd) => {
                sys::fail(libc::ENOTCONN) as c_int
            }
            _ => next(fd, to, size),
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int, -1; |next| {
        match young::enter(fd, Use::Wait) {
            Served::Ours(held) => answer_int(stream::shutdown(&held, fd, how).map(|()| 0)),
            Served::Kernel(flight) => {
                flight.stays(Why::Shut);
                next(fd, how)
            }
        }
    }
}

fn accepted(listener: c_int, new: c_int) {
    if new >= 0 && table::may_change() {
        if let Entry::Unknown | Entry::Fresh = table::entry(listener) {
            offer::listens(listener);
        }
        table::set_plain(new);
        // Streams of the C library may use the first three.
        if matches!(table::entry(listener), Entry::Listener) {
            match (new > 2, offer::may_switch()) {
                (true, true) => young::begin(new, Side::Passive),
                (false, _) => said::stayed(Why::Stream),
                (_, false) => said::stayed(offer::why_not()),
            }
        }
    }
}
