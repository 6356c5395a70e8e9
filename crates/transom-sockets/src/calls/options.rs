//! Calls that ask and change what a socket is set to.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use transom_switch::session::Road;

use super::calls;
use crate::ready;
use crate::stream;
use crate::sys;
use crate::table::{self, Held};
use crate::user;

type Size = libc::socklen_t;

const TCP_ULP: c_int = 31;
const TCP_ZEROCOPY_RECEIVE: c_int = 35;
const SO_TIMESTAMPING: c_int = 37;
const SIOCATMARK: c_ulong = 0x8905;

/// The number that a call was given. `None`: none, or at an address where the program has no memory.
fn number(at: *const c_void, size: Size) -> Option<c_int> {
    // A length is a number with a sign for the kernel.
    let fits = (4..=c_int::MAX.cast_unsigned()).contains(&size);
    // SAFETY: any bytes are a number.
    if fits { unsafe { user::fetch(at.cast::<c_int>()) } } else { None }
}

/// A number for `SO_RCVLOWAT` as the kernel takes it: no more than half of the bytes that it receives without being
/// read. The kernel keeps 1, since it would not report a doorbell otherwise.
fn low_water(fd: c_int, value: c_int) -> c_int {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    if (0..=1).contains(&value) {
        return value;
    }
    sys::set_option(fd, level, name, value);
    let kept = sys::option(fd, level, name).unwrap_or(value);
    sys::set_option(fd, level, name, 1);
    kept
}

/// `Some`: the call ends here, with this result.
fn set(
    (held, fd): (&Held, c_int),
    level: c_int,
    name: c_int,
    at: *const c_void,
    size: Size,
) -> Option<c_int> {
    let session = held.session()?;
    let end = session.end();
    // Otherwise the kernel has the words for it.
    let value = number(at, size)?;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) if size >= 8 => {
            let time = number(at.wrapping_byte_add(4), 4)?;
            end.abortive.store(u32::from(value != 0 && time == 0), Ordering::Relaxed);
            None
        }
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
            end.brief.store(u32::from(value < 0), Ordering::Relaxed);
            None
        }
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => {
            end.inline.store(u32::from(value != 0), Ordering::Relaxed);
            None
        }
        // The kernel would not report a doorbell.
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            let value = low_water(fd, value);
            ready::note_mark(held, &session, fd);
            end.low_water.store(value.max(0).cast_unsigned(), Ordering::Relaxed);
            ready::mark_was_set(held, &session, fd);
            Some(0)
        }
        // Nothing is in the kernel's hands when it is sent.
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY | SO_TIMESTAMPING) => {
            Some(sys::fail(libc::EOPNOTSUPP) as c_int)
        }
        // The kernel's queues have doorbells only.
        (libc::IPPROTO_TCP, libc::TCP_REPAIR) => Some(sys::fail(libc::EPERM) as c_int),
        // The kernel would encrypt doorbells only.
        (libc::IPPROTO_TCP, TCP_ULP) => Some(sys::fail(libc::ENOENT) as c_int),
        // A doorbell never waits, whatever the program wants of its bytes.
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => {
            let word = if name == libc::TCP_CORK { &end.cork } else { &end.no_delay };
            word.store(u32::from(value != 0), Ordering::Relaxed);
            session.sends_by_ring().then_some(0)
        }
        _ => None,
    }
}

/// Behind a call that has changed something in the kernel.
fn was_set(held: &Held, fd: c_int, level: c_int, name: c_int) {
    let Some(session) = held.session() else { return };
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            session.end().keep_congestion(sys::congestion(fd));
            if session.sends_by_ring() {
                sys::set_reno(fd);
            }
        }
        (libc::IPPROTO_TCP, libc::TCP_INQ)
        | (libc::SOL_SOCKET, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS) => {
            crate::control::take_wishes(fd, &session);
        }
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            let offset = sys::option::<c_int>(fd, level, name).unwrap_or(-1);
            let word = u32::try_from(offset).map_or(0, |offset| offset.saturating_add(1));
            session.end().peek_offset.store(word, Ordering::Relaxed);
            // A thread that waits for a doorbell looks at the first byte there is.
            sys::set_option(fd, level, name, -1);
        }
        _ => {}
    }
}

/// The value of an option.
enum Kept {
    Number(c_int),
    Name([u8; 16]),
    Error(c_int),
}

/// The value of an option that the segment keeps.
fn get(held: &Held, fd: c_int, level: c_int, name: c_int) -> Option<Kept> {
    let session = held.session()?;
    let end = session.end();
    let flag = |word: &AtomicU32| Kept::Number(word.load(Ordering::Relaxed).cast_signed());
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            Some(Kept::Number(end.low_water.load(Ordering::Relaxed).max(1).cast_signed()))
        }
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            Some(Kept::Number(end.peek_offset.load(Ordering::Relaxed).cast_signed() - 1))
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            Some(Kept::Number(stream::error_now(held, fd).unwrap_or(0)))
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(flag(&end.no_delay)),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => Some(flag(&end.cork)),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => Some(Kept::Name(end.congestion())),
        // Bytes would leave the stream here, past the ring.
        (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) => Some(Kept::Error(libc::EINVAL)),
        _ => None,
    }
}

/// Write what a call has to say: 0, or EFAULT.
fn put(to: *mut u8, bytes: &[u8]) -> c_int {
    // SAFETY: the slice has so many bytes, and the program's memory need not be there.
    let copied = unsafe { user::copy(bytes.as_ptr(), to, bytes.len()) };
    if copied == bytes.len() { 0 } else { sys::fail(libc::EFAULT) as c_int }
}

/// The kernel has written TCP_INFO, which begins with the state of the connection.
fn tell_state(held: &Held, fd: c_int, to: *mut u8, size: *const Size) {
    // SAFETY: any bytes are numbers.
    let (room, state) = unsafe { (user::fetch(size), user::fetch(to)) };
    if let (Some(1..), Some(state), Some(session)) = (room, state, held.session()) {
        put(to, &[stream::tcp_state(held, &session, fd, state)]);
    }
}

calls! {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, at: *const c_void, size: Size) -> c_int, -1; |next| {
        let Some(held) = table::hold(fd) else { return next(fd, level, name, at, size) };
        if let Some(done) = set((&held, fd), level, name, at, size) {
            return done;
        }
        let done = next(fd, level, name, at, size);
        if done == 0 {
            was_set(&held, fd, level, name);
        }
        done
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, size: *mut Size) -> c_int, -1; |next| {
        let Some(held) = table::hold(fd) else { return next(fd, level, name, to, size) };
        let given = user::fetch(size).filter(|size| !to.is_null() && i32::try_from(*size).is_ok());
        let kept = get(&held, fd, level, name);
        let (Some(kept), Some(room)) = (kept, given) else {
            let done = next(fd, level, name, to, size);
            if done == 0 && (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
                tell_state(&held, fd, to.cast(), size);
            }
            return done;
        };
        let (number, name) = match kept {
            Kept::Number(value) => (value.to_ne_bytes(), None),
            Kept::Name(name) => ([0; 4], Some(name)),
            Kept::Error(error) => return sys::fail(error) as c_int,
        };
        let bytes = name.as_ref().map_or(&number[..], |name| &name[..]);
        let bytes = &bytes[..bytes.len().min(room as usize)];
        match put(size.cast(), &(bytes.len() as Size).to_ne_bytes()) {
            0 => put(to.cast(), bytes),
            failed => failed,
        }
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int, -1; |next| {
        const SIOCOUTQ: c_ulong = libc::TIOCOUTQ;
        let Some(held) = table::hold(fd) else { return next(fd, request, argument) };
        let Some(session) = held.session() else { return next(fd, request, argument) };
        let to = argument as *mut c_int;
        let ring = session.road_in() == Ok(Road::Ring);
        match request {
            libc::FIONBIO => {
                let done = next(fd, request, argument);
                if done == 0 {
                    let wanted = user::fetch(argument as *const c_int);
                    held.young.set_nonblocking(wanted.is_some_and(|wanted| wanted != 0));
                }
                done
            }
            libc::FIONREAD => match stream::unread(&session, fd) {
                Some(unread) => put(to.cast(), &(unread as c_int).to_ne_bytes()),
                None => next(fd, request, argument),
            },
            SIOCATMARK if ring => {
                let at_mark = session.arrived().is_ok_and(|incoming| incoming.at_mark);
                put(to.cast(), &c_int::from(at_mark).to_ne_bytes())
            }
            // Bytes in the ring have arrived, as those that the peer's kernel has acknowledged (tcp(7)).
            SIOCOUTQ if session.sends_by_ring() => put(to.cast(), &0_i32.to_ne_bytes()),
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
            if let Some(held) = table::hold(fd) {
                held.young.set_nonblocking(argument as c_int & libc::O_NONBLOCK != 0);
            }
        }
        _ => {}
    }
    done
}
