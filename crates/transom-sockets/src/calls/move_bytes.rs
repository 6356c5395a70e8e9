//! `sendfile` and `splice`.

use std::ffi::{c_int, c_uint};

use super::{answer, calls};
use crate::cancel;
use crate::stream::{self, Receive};
use crate::sys::{self, Errno};
use crate::table::Held;
use crate::user;
use crate::young::{self, Served, Use};

const PIECE: usize = 64 << 10;

type Offset = *mut i64;

fn vectors(bytes: &mut [u8]) -> [libc::iovec; 1] {
    [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }]
}

/// Send from a file, from its position or from the offset, which is moved.
unsafe fn send_file(held: &Held, to: c_int, from: c_int, offset: Offset, count: usize) -> isize {
    // SAFETY: a plain word.
    let given = match unsafe { user::fetch_optional(offset) } {
        Ok(given) => given,
        Err(error) => return sys::fail(error),
    };
    let begin = given.map_or_else(|| sys::position(from), Ok);
    let mut at = match begin {
        Ok(at) if isize::try_from(count).is_ok() => at,
        Err(libc::EBADF) => return sys::fail(libc::EBADF),
        _ => return sys::fail(libc::EINVAL),
    };
    // Of files that are not on a disk, such as most of /proc, the kernel alone knows.
    let moves = if sys::has_length(from) { Ok(true) } else { sys::moves_from(from, at, count) };
    let moves = match moves {
        Ok(moves) => i64::from(moves),
        // A program that has given no offset asks for no place.
        Err(libc::ESPIPE) if given.is_none() => return sys::fail(libc::EINVAL),
        Err(error) => return sys::fail(error),
    };
    let mut room = vec![0; count.min(PIECE)];
    let mut done = 0;
    let mut end = Ok(());
    while done < count {
        let most = room.len().min(count - done);
        match sys::read_at(from, &mut room[..most], at) {
            Ok(0) => break,
            Ok(got) => {
                let sent = stream::send(held, to, &vectors(&mut room[..got]), 0, None);
                match sent {
                    Ok(sent) => {
                        (done, at) = (done + sent, at + sent as i64 * moves);
                        if sent < got {
                            break;
                        }
                    }
                    Err(error) => {
                        end = Err(error);
                        break;
                    }
                }
            }
            Err(error) => {
                // A folder or a pipe has no bytes at places, and is no source (sendfile(2)).
                let none = matches!(error, libc::EISDIR | libc::ESPIPE);
                end = Err(if none { libc::EINVAL } else { error });
                break;
            }
        }
    }
    match given {
        Some(_) if !user::put(offset, at) => end = Err(libc::EFAULT),
        Some(_) => {}
        None => sys::set_position(from, at),
    }
    match end {
        Err(error) if done == 0 => sys::fail(error),
        _ => done as isize,
    }
}

/// From a connection into a pipe: what the pipe takes is taken from the stream.
fn into_pipe(
    held: &Held,
    from: c_int,
    to: c_int,
    count: usize,
    flags: c_uint,
) -> Result<usize, Errno> {
    let nonblocking = flags & libc::SPLICE_F_NONBLOCK != 0;
    if nonblocking {
        let mut room = [libc::pollfd { fd: to, events: libc::POLLOUT, revents: 0 }];
        if sys::poll(&mut room, Some(0), std::ptr::null())? == 0 {
            return Err(libc::EAGAIN);
        }
    }
    // A pipe that is writable takes a page without blocking. Whether the connection is waited for is its own affair
    // (splice(2), SPLICE_F_NONBLOCK).
    let mut bytes = vec![0; count.min(if nonblocking { 4096 } else { PIECE })];
    let peek = |flags| Receive { vectors: &[], flags, message: None };
    let all = vectors(&mut bytes);
    let seen = stream::receive(
        held,
        from,
        Receive { vectors: &all, ..peek(libc::MSG_PEEK | stream::FROM_NEXT) },
    )?;
    let written = if seen == 0 { 0 } else { cancel::asleep(|| sys::write(to, &bytes[..seen]))? };
    let taken = vectors(&mut bytes[..written]);
    if written > 0 {
        stream::receive(
            held,
            from,
            Receive { vectors: &taken, ..peek(libc::MSG_DONTWAIT | stream::FROM_NEXT) },
        )?;
    }
    Ok(written)
}

/// From a pipe into a connection: no more than goes at once is taken from the pipe.
fn from_pipe(
    held: &Held,
    from: c_int,
    to: c_int,
    count: usize,
    flags: c_uint,
) -> Result<usize, Errno> {
    let session = held.session().ok_or(libc::EBADF)?;
    let mut there = [libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 }];
    let readable = sys::poll(&mut there, Some(0), std::ptr::null())? > 0;
    if !readable && flags & libc::SPLICE_F_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    // The pipe keeps what the connection does not take.
    if there[0].revents & libc::POLLIN != 0
        && let Some(error) = stream::cannot(held, to)
    {
        return Err(error);
    }
    stream::advance(held, &session, to);
    if !session.sends_by_ring() {
        let _lock = held.sending(&session)?;
        if !session.sends_by_ring() {
            let moved = cancel::asleep(|| sys::splice(from, to, count, flags))?;
            session.sent_by_tcp(moved as u64);
            return Ok(moved);
        }
    }
    let nonblocking = held.young.is_nonblocking(to);
    let room = stream::room(held, &session, PIECE)?;
    if room == 0 && nonblocking {
        session.found_full();
        return Err(libc::EAGAIN);
    }
    let most = count.min(if nonblocking { room } else { PIECE });
    let mut bytes = vec![0; most];
    let got = cancel::asleep(|| sys::read(from, &mut bytes))?;
    let mut done = 0;
    while done < got {
        match stream::send(held, to, &vectors(&mut bytes[done..got]), 0, None) {
            Ok(sent) => done += sent,
            // Another sender was faster: these bytes left the pipe, so they wait for room.
            Err(libc::EAGAIN | libc::EINTR) => {
                cancel::goes_on();
                sys::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The kernel's error for a `splice` whose one side is a connection, before it moves anything. `None`: there is none.
fn splices(
    (from, skip): (c_int, Offset),
    (to, at): (c_int, Offset),
    flags: c_uint,
) -> Option<Errno> {
    /// SPLICE_F_MOVE, SPLICE_F_NONBLOCK, SPLICE_F_MORE, SPLICE_F_GIFT.
    const KNOWN: c_uint = 0xF;
    let (source, target) = (sys::is_pipe(from), sys::is_pipe(to));
    if flags & !KNOWN != 0 {
        return Some(libc::EINVAL);
    }
    if sys::status_flags(from).is_err() || sys::status_flags(to).is_err() {
        return Some(libc::EBADF);
    }
    if source && !skip.is_null() || target && !at.is_null() {
        return Some(libc::ESPIPE);
    }
    // SAFETY: plain words.
    let there = |offset| unsafe { user::fetch_optional(offset) };
    if there(at).and(there(skip)).is_err() {
        return Some(libc::EFAULT);
    }
    // A connection has no places, and one of the two is a pipe.
    let placed = !skip.is_null() || !at.is_null();
    (placed || !source && !target).then_some(libc::EINVAL)
}

calls! {
    fn sendfile(to: c_int, from: c_int, offset: Offset, count: usize) -> isize, -1; |next| {
        let source = young::enter(from, Use::Receive);
        // Anything but a pipe takes nothing from a socket, and the kernel says so.
        if let Served::Ours(held) = &source
            && offset.is_null()
            && sys::is_pipe(to)
        {
            return answer(into_pipe(held, from, to, count, 0));
        }
        match young::enter(to, Use::Send(count)) {
            Served::Ours(held) => send_file(&held, to, from, offset, count),
            Served::Kernel(target) => {
                let done = target.sent(next(to, from, offset, count));
                match &source {
                    Served::Kernel(source) => source.received(0, done),
                    Served::Ours(_) => done,
                }
            }
        }
    }

    fn sendfile64(to: c_int, from: c_int, offset: Offset, count: usize) -> isize, -1; |next| {
        sendfile(to, from, offset, count)
    }

    #[waits]
    fn splice(
        from: c_int, skip: Offset, to: c_int, at: Offset, count: usize, flags: c_uint
    ) -> isize, -1; |next| {
        let source = match young::enter(from, Use::Receive) {
            Served::Ours(_) if count == 0 => return 0,
            Served::Ours(held) => {
                return answer(match splices((from, skip), (to, at), flags) {
                    Some(error) => Err(error),
                    None => into_pipe(&held, from, to, count, flags),
                });
            }
            Served::Kernel(flight) => flight,
        };
        match young::enter(to, Use::Send(count)) {
            Served::Ours(_) if count == 0 => 0,
            Served::Ours(held) => answer(match splices((from, skip), (to, at), flags) {
                Some(error) => Err(error),
                None => from_pipe(&held, from, to, count, flags),
            }),
            Served::Kernel(target) => {
                target.sent(source.received(0, next(from, skip, to, at, count, flags)))
            }
        }
    }
}
