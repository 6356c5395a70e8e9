//! Calls that ask and change what a socket is set to.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::Ordering;

use transom_switch::session::Road;

use super::calls;
use crate::stream;
use crate::sys;
use crate::table::{self, Held};

type Size = libc::socklen_t;

const TCP_ULP: c_int = 31;
const SIOCATMARK: c_ulong = 0x8905;

/// The number that a call was given.
unsafe fn number(at: *const c_void, size: Size) -> c_int {
    // SAFETY: the caller has so many bytes there.
    if at.is_null() || size < 4 { 0 } else { unsafe { at.cast::<c_int>().read_unaligned() } }
}

/// `Some`: the call ends here, with this result.
unsafe fn set(
    held: &Held,
    level: c_int,
    name: c_int,
    at: *const c_void,
    size: Size,
) -> Option<c_int> {
    let session = held.session()?;
    let end = session.end();
    // SAFETY: the caller's.
    let value = unsafe { number(at, size) };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) if size >= 8 => {
            // SAFETY: two numbers are there.
            let time = unsafe { number(at.wrapping_byte_add(4), 4) };
            end.abortive.store(u32::from(value != 0 && time == 0), Ordering::Relaxed);
            None
        }
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => {
            end.inline.store(u32::from(value != 0), Ordering::Relaxed);
            None
        }
        // The kernel would not report a doorbell.
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            end.low_water.store(value.max(0).cast_unsigned(), Ordering::Relaxed);
            Some(0)
        }
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => Some(sys::fail(libc::EOPNOTSUPP) as c_int),
        // The kernel would encrypt doorbells only.
        (libc::IPPROTO_TCP, TCP_ULP) => Some(sys::fail(libc::ENOENT) as c_int),
        // A doorbell never waits.
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) if session.sends_by_ring() => {
            Some(0)
        }
        _ => None,
    }
}

/// The value of an option that the segment keeps.
fn get(held: &Held, fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let session = held.session()?;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            Some(session.end().low_water.load(Ordering::Relaxed).max(1).cast_signed())
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if session.road_in() == Ok(Road::Ring) => {
            // The kernel's error may come from doorbells that a process left when it ended.
            held.look_at_tcp(fd);
            let reset = held.is_gone() && stream::is_reset(held, &session) && held.report_end();
            Some(if reset { libc::ECONNRESET } else { 0 })
        }
        _ => None,
    }
}

calls! {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, size: Size) -> c_int, -1; |next| {
        match table::hold_known(fd).and_then(|held| set(&held, level, name, at, size)) {
            Some(done) => done,
            None => next(fd, level, name, at, size),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, size: *mut Size) -> c_int, -1; |next| {
        let kept = table::hold_known(fd).and_then(|held| get(&held, fd, level, name));
        match (kept, size.as_mut()) {
            (Some(value), Some(size)) if *size >= 4 && !to.is_null() => {
                to.cast::<c_int>().write_unaligned(value);
                *size = 4;
                0
            }
            _ => next(fd, level, name, to, size),
        }
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int, -1; |next| {
        const SIOCOUTQ: c_ulong = libc::TIOCOUTQ;
        let Some(held) = table::hold_known(fd) else { return next(fd, request, argument) };
        let Some(session) = held.session() else { return next(fd, request, argument) };
        let to = argument as *mut c_int;
        let ring = session.road_in() == Ok(Road::Ring);
        match request {
            libc::FIONBIO => {
                let done = next(fd, request, argument);
                if done == 0 {
                    held.young.set_nonblocking(*to != 0);
                }
                done
            }
            libc::FIONREAD if ring => {
                *to = session.arrived().map_or(0, |incoming| incoming.bytes as c_int);
                0
            }
            SIOCATMARK if ring => {
                *to = c_int::from(session.arrived().is_ok_and(|incoming| incoming.at_mark));
                0
            }
            SIOCOUTQ if session.sends_by_ring() => {
                *to = session.queued() as c_int;
                0
            }
            _ => next(fd, request, argument),
        }
    }

    fn fcntl(fd: c_int, what: c_int, argument: usize) -> c_int, -1; |next| {
        control(fd, what, argument, next(fd, what, argument))
    }

    fn fcntl64(fd: c_int, what: c_int, argument: usize) -> c_int, -1; |next| {
        control(fd, what, argument, next(fd, what, argument))
    }

    fn __fcntl(fd: c_int, what: c_int, argument: usize) -> c_int, -1; |next| {
        control(fd, what, argument, next(fd, what, argument))
    }

    fn sockatmark(fd: c_int) -> c_int, -1; |next| {
        let mut at_mark: c_int = 0;
        match ioctl(fd, SIOCATMARK, &raw mut at_mark as usize) {
            0 => at_mark,
            _ => -1,
        }
    }
}

/// Bring table and segment up to date behind a call of `fcntl`.
fn control(fd: c_int, what: c_int, argument: usize, done: c_int) -> c_int {
    match what {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC if done >= 0 => {
            super::descriptors::duplicate(fd, done);
        }
        libc::F_SETFL if done == 0 => {
            if let Some(held) = table::hold_known(fd) {
                held.young.set_nonblocking(argument as c_int & libc::O_NONBLOCK != 0);
            }
        }
        _ => {}
    }
    done
}
