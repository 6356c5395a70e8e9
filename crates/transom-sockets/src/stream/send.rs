//! Sending.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use transom_switch::layout::{LARGE, ring_begin, ring_size};
use transom_switch::session::{Session, Stretches, Violation};

use super::ends::{is_look, is_reset, take_error};
use super::patience::Patience;
use super::vectors::{Vector, checked, copy, cut, total};
use super::{PIECE, broken, doorbell, is_nonblocking, road_out, wake_reader};
use crate::budget;
use crate::cancel;
use crate::epoll;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// Send. `message`: control data and a target, which the kernel reads while TCP is used.
pub(crate) fn send(
    held: &Socket,
    fd: c_int,
    vectors: &[Vector],
    flags: c_int,
    message: Option<&libc::msghdr>,
) -> Result<usize, Errno> {
    send_deferred(held, fd);
    if held.deferred.is_sending() && !is_nonblocking(held, fd, flags) {
        checked(vectors)?;
        return defer(held, vectors, flags);
    }
    let sent = send_now(held, fd, vectors, flags, message);
    send_deferred(held, fd);
    sent
}

/// Send what handlers of signals have left to the calls that they have interrupted.
#[inline]
pub(super) fn send_deferred(held: &Socket, fd: c_int) {
    if !held.deferred.is_empty() {
        send_pieces(held, fd);
    }
}

#[cold]
fn send_pieces(held: &Socket, fd: c_int) {
    while !held.deferred.is_empty() {
        let is_free = |session: Session<'_>| held.sending(&session).is_ok();
        let (Some(_sending), true) = (held.deferred.begin(), held.session().is_some_and(is_free))
        else {
            return;
        };
        for mut piece in held.deferred.take() {
            let (mut left, flags) = (piece.bytes.as_mut_slice(), piece.flags | libc::MSG_NOSIGNAL);
            while !left.is_empty() {
                let rest = [Vector { iov_base: left.as_mut_ptr().cast(), iov_len: left.len() }];
                match send_now(held, fd, &rest, flags, None) {
                    Ok(sent) => left = left.get_mut(sent..).unwrap_or_default(),
                    // Another signal.
                    Err(libc::EINTR) => cancel::goes_on(),
                    // The next call is told of the end.
                    Err(_) => break,
                }
            }
        }
    }
}

/// In a handler of a signal whose thread is sending: leave the bytes to the interrupted call.
#[cold]
fn defer(held: &Socket, vectors: &[Vector], flags: c_int) -> Result<usize, Errno> {
    let mut bytes = vec![0; total(vectors)];
    let stretches = Stretches { first: (0, bytes.len()), ..Stretches::default() };
    // SAFETY: the array has so many bytes.
    let copied = unsafe { copy(bytes.as_mut_ptr(), stretches, vectors, 0, false) };
    if copied < bytes.len() {
        return Err(libc::EFAULT);
    }
    held.deferred.put(bytes, flags);
    Ok(copied)
}

fn send_now(
    held: &Socket,
    fd: c_int,
    vectors: &[Vector],
    flags: c_int,
    message: Option<&libc::msghdr>,
) -> Result<usize, Errno> {
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    let wanted = checked(vectors)?;
    if flags & libc::MSG_FASTOPEN != 0 {
        // This asks for a connection (tcp(7)).
        return Err(libc::EISCONN);
    }
    let nonblocking = is_nonblocking(held, fd, flags);
    let mut done = 0;
    let mut patience = Patience::default();
    // A call that waits for nothing takes at once what the largest ring has room for, as TCP does.
    let mut deep = nonblocking;
    loop {
        let fd = held.descriptor(fd);
        let sent = {
            let _lock = match held.sending(&session) {
                Err(libc::EAGAIN) if !nonblocking && done == 0 => {
                    return defer(held, vectors, flags);
                }
                lock => lock?,
            };
            if road_out(&session, fd) {
                push(held, &session, fd, vectors, (done, wanted), (flags, deep))
            } else {
                send_by_tcp(&session, fd, vectors, (done, flags), message)
            }
        };
        match sent {
            Ok(bytes) => done += bytes,
            Err(libc::EAGAIN) => {}
            Err(libc::EPIPE) if done == 0 => {
                if flags & libc::MSG_NOSIGNAL == 0 {
                    sys::raise_pipe();
                }
                return Err(libc::EPIPE);
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        if done >= wanted {
            return Ok(done);
        }
        epoll::changed(held);
        let waited = if nonblocking {
            Err(libc::EAGAIN)
        } else {
            let queued = session.queued();
            let waited = patience.wait_for_room(held, &session, fd, (deep, done > 0));
            deep |= queued == session.queued();
            waited
        };
        if let Err(error) = waited {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
    }
}

/// Under the lock of sending: what the kernel takes at once.
#[inline(never)]
fn send_by_tcp(
    session: &Session<'_>,
    fd: c_int,
    vectors: &[Vector],
    (done, flags): (usize, c_int),
    message: Option<&libc::msghdr>,
) -> Result<usize, Errno> {
    // SAFETY: zeros are a message without parts.
    let mut own = message.map_or_else(|| unsafe { std::mem::zeroed() }, |message| *message);
    let mut rest = cut(vectors, done, usize::MAX);
    (own.msg_iov, own.msg_iovlen) = (rest.as_mut_ptr(), rest.len());
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the vectors and the message are the caller's.
    let sent = unsafe { sys::send_message(fd, &raw const own, flags) }?;
    session.sent_by_tcp(sent as u64);
    Ok(sent)
}

/// Why a send would take nothing, before anything is taken from where its bytes are: the error, with SIGPIPE.
pub(crate) fn cannot(held: &Socket, fd: c_int) -> Option<Errno> {
    let session = held.session()?;
    let gone = session.sends_by_ring() && held.look_at_tcp(fd);
    let refused = gone && (held.was_refused() || is_reset(held, &session));
    if !session.has_finished() && !refused {
        return None;
    }
    let error = take_error(held, &session).unwrap_or(libc::EPIPE);
    if error == libc::EPIPE {
        sys::raise_pipe();
    }
    Some(error)
}

/// Put into the rings what there is room for. `deep`: into large ones, too.
fn push(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    vectors: &[Vector],
    (mut done, wanted): (usize, usize),
    (flags, deep): (c_int, bool),
) -> Result<usize, Errno> {
    let before = done;
    let look = is_look(held, session);
    let gone = held.is_gone() || look && held.look_at_tcp(fd);
    if gone || session.has_finished() {
        return push_in_vain(held, session, fd, gone, (before, wanted));
    }
    session.settle();
    let rings = held.bytes(session.side());
    let mut kept = Kept { held, session, large: false };
    while done < wanted {
        let Ok(stretches) = place(held, session, (wanted - done).min(PIECE), deep) else {
            held.set_broken();
            return Err(libc::EPIPE);
        };
        let count = stretches.length();
        if count == 0 {
            session.found_full();
            break;
        }
        kept.large |= stretches.is_large();
        // SAFETY: stretches lie in the rings.
        let copied = unsafe { copy(rings, stretches, vectors, done, false) };
        // Of a piece that the program has no memory for, nothing is sent.
        if copied < count {
            return if done > before { Ok(done - before) } else { Err(libc::EFAULT) };
        }
        if flags & libc::MSG_OOB != 0 && done + count == wanted {
            // SAFETY: the last byte of those that were just copied.
            let byte = unsafe { rings.wrapping_add(stretches.last()).read_volatile() };
            session.mark_urgent(count, byte);
        }
        done += count;
        wake_reader(session, fd, session.filled(count));
    }
    Ok(done - before)
}

/// A call that may write into large rings, whose memory stays meanwhile ([`Session::hold`]).
struct Kept<'a> {
    held: &'a Socket,
    session: &'a Session<'a>,
    /// Whether room in one was found.
    large: bool,
}

impl Drop for Kept<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.large {
            let_go(self.held, self.session);
        }
    }
}

#[cold]
#[inline(never)]
fn let_go(held: &Socket, session: &Session<'_>) {
    if let Some((at, length)) = session.let_go() {
        sys::give_back(held.bytes(session.side()).wrapping_add(at), length);
    }
}

/// Nothing is sent: the peer has closed, or this end has finished.
#[cold]
fn push_in_vain(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    gone: bool,
    (done, wanted): (usize, usize),
) -> Result<usize, Errno> {
    let closed = gone && !session.has_finished() && !is_reset(held, session);
    if closed && wanted == 0 && !held.was_refused() {
        return Ok(0);
    }
    if closed && held.refuse() {
        // Over TCP these bytes leave before the peer's reset arrives, and the reset wakes the threads that wait for the
        // connection.
        doorbell(session, fd);
        return Ok((wanted - done).min(PIECE));
    }
    // A call that has sent something leaves the error for the next one.
    let error = if done == 0 { take_error(held, session) } else { None };
    Err(error.unwrap_or(libc::EPIPE))
}

/// Room for up to `wanted` bytes, in the next ring if there is none in this one. None: the reader has to make some.
#[inline]
fn place(
    held: &Socket,
    session: &Session<'_>,
    wanted: usize,
    deep: bool,
) -> Result<Stretches, Violation> {
    let room = session.room(wanted)?;
    // The smallest ring had its memory before the connection was switched.
    if room.ring == 0 && room.length() > 0 {
        return Ok(room);
    }
    place_elsewhere(held, session, wanted, deep)
}

/// As [`place`], where the smallest ring does not do.
#[inline(never)]
fn place_elsewhere(
    held: &Socket,
    session: &Session<'_>,
    wanted: usize,
    deep: bool,
) -> Result<Stretches, Violation> {
    let room = session.room(wanted)?;
    let other = if room.length() == 0 {
        session.larger().filter(|larger| deep || *larger < LARGE)
    } else if have_memory(held, session, &room) {
        return Ok(room);
    } else {
        session.smaller()
    };
    Ok(match other.map(|other| session.room_in(other, wanted)) {
        Some(room) if have_memory(held, session, &room) => {
            session.change_to(room.ring);
            room
        }
        _ => Stretches::default(),
    })
}

/// Bytes that a send would take at once, of `wanted`.
pub(crate) fn room(held: &Socket, session: &Session<'_>, wanted: usize) -> Result<usize, Errno> {
    let _lock = held.sending(session)?;
    let mut kept = Kept { held, session, large: false };
    let room = place(held, session, wanted, true).map_err(|_| broken(held))?;
    kept.large = room.is_large();
    Ok(room.length())
}

/// Whether the kernel has memory for these bytes: a copy into pages that it cannot provide would be the end of the
/// process.
#[inline]
fn have_memory(held: &Socket, session: &Session<'_>, room: &Stretches) -> bool {
    if room.ring == 0 {
        return true;
    }
    let begin = ring_begin(held.ring(), room.ring) as usize;
    let size = ring_size(held.ring(), room.ring) as usize;
    let rings = held.bytes(session.side());
    let asked = |at: usize, length: usize| sys::populate(rings.wrapping_add(at), length).is_ok();
    if room.is_large() {
        let stretches = [room.first, room.second];
        let there = session.hold()
            && budget::allows(room.ring, room.length())
            && stretches.into_iter().all(|(at, length)| length == 0 || asked(at, length));
        if !there {
            let_go(held, session);
        }
        return there;
    }
    let ready = held.populated.load(Ordering::Relaxed) as usize;
    if ready >= size {
        return true;
    }
    let end = if room.second.1 > 0 { size } else { room.first.0 + room.first.1 - begin };
    if end <= ready {
        return true;
    }
    let upto = end.next_multiple_of(16 << 10).min(size);
    let there = asked(begin + ready, upto - ready);
    if there {
        held.populated.store(upto as u64, Ordering::Relaxed);
    }
    there
}
