//! Receiving.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use transom_switch::session::{Road, Session, Stretches};

use super::ends::{end_of_input, is_look};
use super::patience::Patience;
use super::vectors::{Vector, checked, copy, cut};
use super::{PIECE, advance, broken, is_nonblocking, wake};
use crate::control;
use crate::epoll;
use crate::ready;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// The outcome of an attempt to receive.
enum Got {
    Bytes(usize),
    /// Nothing now. The road says where to wait.
    Nothing(Road),
}

/// How a call receives.
pub(crate) struct Receive<'a> {
    pub(crate) vectors: &'a [Vector],
    pub(crate) flags: c_int,
    /// Flags of the message and control data; while TCP is used, the kernel fills them.
    pub(crate) message: Option<&'a mut libc::msghdr>,
}

/// A flag of this library's own, in no program's way: SO_PEEK_OFF and SO_RCVLOWAT do not concern the call, as they do
/// not concern the kernel's `splice`.
pub(crate) const FROM_NEXT: c_int = 1 << 29;

/// Receive.
pub(crate) fn receive(held: &Socket, fd: c_int, mut what: Receive<'_>) -> Result<usize, Errno> {
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    let room = what.message.as_ref().map_or(0, |message| message.msg_controllen);
    let got = receive_bytes(held, &session, fd, &mut what)?;
    if let Some(message) = what.message
        && session.road_in() == Ok(Road::Ring)
    {
        // SAFETY: the caller's message.
        unsafe { control::put((held, fd), &session, message, (room, got)) };
    }
    Ok(got)
}

fn receive_bytes(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &mut Receive<'_>,
) -> Result<usize, Errno> {
    if what.flags & libc::MSG_OOB != 0
        && (session.road_in() == Ok(Road::Ring) || session.urgent().is_some())
    {
        return receive_urgent(session, what);
    }
    if what.flags & libc::MSG_ERRQUEUE != 0 {
        return Err(libc::EAGAIN);
    }
    let wanted = checked(what.vectors)?;
    let peek = what.flags & libc::MSG_PEEK != 0;
    // A call that waits does so for this much: SO_RCVLOWAT (socket(7)), or all of it (recv(2)).
    let asked = session.end().low_water.load(Ordering::Relaxed).max(1) as usize;
    let low_water = if what.flags & FROM_NEXT == 0 { asked } else { 1 };
    let least = if what.flags & libc::MSG_WAITALL != 0 { wanted } else { low_water.min(wanted) };
    let mut done = 0;
    let mut patience = Patience::default();
    loop {
        let fd = held.descriptor(fd);
        let over_tcp = session.road_in() != Ok(Road::Ring);
        if asked > 1 {
            ready::note_mark(held, session, fd);
        }
        match attempt(held, session, fd, what, (done, wanted)) {
            Ok(Got::Bytes(0)) => return Ok(done),
            Ok(Got::Bytes(bytes)) if peek => {
                let enough = bytes >= least || is_nonblocking(held, fd, what.flags);
                if enough || patience.wait_for_more(held, session, fd, bytes).is_err() {
                    return Ok(bytes);
                }
            }
            Ok(Got::Bytes(bytes)) => {
                done += bytes;
                epoll::taken(held);
                // The last bytes that came over TCP do not end a read: those in the ring follow.
                let border = over_tcp && done < wanted && session.road_in() == Ok(Road::Ring);
                // A read that has got something ends before the urgent byte.
                if done >= least && !border || over_tcp && done < wanted && sys::is_at_mark(fd) {
                    return Ok(done);
                }
            }
            Ok(Got::Nothing(_)) if done > 0 && done >= least => return Ok(done),
            Ok(Got::Nothing(road)) => {
                let passed = begin_of_look(session, what.flags);
                let waited = if is_nonblocking(held, fd, what.flags) {
                    Err(libc::EAGAIN)
                } else if passed > 0 {
                    patience.wait_for_more(held, session, fd, passed)
                } else {
                    patience.wait_for_bytes(held, session, fd, (road, done > 0))
                };
                if let Err(error) = waited {
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
                if wanted == 0 {
                    return Ok(0);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

/// Where a look at the stream begins: SO_PEEK_OFF (socket(7)), if it is set.
fn peek_offset(session: &Session<'_>) -> Option<usize> {
    session.end().peek_offset.load(Ordering::Relaxed).checked_sub(1).map(|offset| offset as usize)
}

/// As [`peek_offset`], for a call with these flags; 0: it begins at what is read next.
fn begin_of_look(session: &Session<'_>, flags: c_int) -> usize {
    let by_offset = flags & (libc::MSG_PEEK | FROM_NEXT) == libc::MSG_PEEK;
    if by_offset { peek_offset(session).unwrap_or(0) } else { 0 }
}

/// As [`begin_of_look`], among the bytes of the ring: those that came over TCP, and are unread, lie before them.
fn begin_in_ring(session: &Session<'_>, flags: c_int) -> usize {
    let before = match session.road_in() {
        Ok(Road::Tcp(Some(left))) => left as usize,
        _ => 0,
    };
    begin_of_look(session, flags).saturating_sub(before)
}

/// `bytes` were looked at, or taken: SO_PEEK_OFF moves on, or back.
fn move_peek_offset(session: &Session<'_>, peek: bool, bytes: usize) {
    if let Some(offset) = peek_offset(session) {
        let moved = if peek { offset + bytes } else { offset.saturating_sub(bytes) };
        // A peer may have written the word.
        session.end().peek_offset.store((moved as u32).wrapping_add(1), Ordering::Relaxed);
    }
}

fn attempt(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &mut Receive<'_>,
    (done, wanted): (usize, usize),
) -> Result<Got, Errno> {
    let _lock = held.receiving(session)?;
    loop {
        let road = session.road_in().map_err(|_| broken(held))?;
        match road {
            // An end of which `poll` tells is one that a call gets, or a program would ask again and again.
            Road::Tcp(_) if held.is_broken() => {
                no_message(what);
                return if held.report_end() { Err(libc::ECONNRESET) } else { Ok(Got::Bytes(0)) };
            }
            Road::Tcp(limit) => {
                let begin = begin_of_look(session, what.flags);
                let most = limit.map_or(usize::MAX, |left| (left as usize).saturating_sub(begin));
                if most == 0 {
                    no_message(what);
                    return by_ring(held, session, fd, what, (done, wanted - done));
                }
                match by_tcp(held, session, fd, what, (done, most))? {
                    Some(Got::Bytes(bytes)) if bytes == most => {
                        return look_on(held, session, fd, what, (bytes, wanted)).map(Got::Bytes);
                    }
                    Some(got) => return Ok(got),
                    None => {}
                }
            }
            Road::Ring => {
                advance(held, session, fd);
                no_message(what);
                return by_ring(held, session, fd, what, (done, wanted - done));
            }
        }
    }
}

/// The ring has nothing beside its bytes.
fn no_message(what: &mut Receive<'_>) {
    if let Some(message) = &mut what.message {
        // The kernel begins with this one.
        (message.msg_flags, message.msg_controllen) = (what.flags & libc::MSG_CMSG_CLOEXEC, 0);
        if !message.msg_name.is_null() {
            message.msg_namelen = 0;
        }
    }
}

/// A look has seen the last bytes that came over TCP: those in the ring follow.
fn look_on(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &Receive<'_>,
    (bytes, wanted): (usize, usize),
) -> Result<usize, Errno> {
    if what.flags & libc::MSG_PEEK == 0 || bytes == 0 || bytes >= wanted {
        return Ok(bytes);
    }
    match by_ring(held, session, fd, what, (bytes, wanted - bytes))? {
        Got::Bytes(more) => Ok(bytes + more),
        Got::Nothing(_) => Ok(bytes),
    }
}

/// Bytes of the stream's first part, which came over TCP. `None`: look again.
#[inline(never)]
fn by_tcp(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &mut Receive<'_>,
    (done, most): (usize, usize),
) -> Result<Option<Got>, Errno> {
    let mut vectors = cut(what.vectors, done, most);
    // SAFETY: zeros are a message without parts.
    let mut own: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(message) = &what.message {
        own = **message;
    }
    (own.msg_iov, own.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
    let flags = what.flags & !(libc::MSG_WAITALL | FROM_NEXT) | libc::MSG_DONTWAIT;
    let begin = begin_of_look(session, what.flags);
    let begins = |at: c_int| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, at);
    if begin > 0 {
        begins(begin as c_int);
    }
    let takes = flags & (libc::MSG_PEEK | libc::MSG_OOB) == 0;
    let at_mark = takes && !session.is_inline() && sys::is_at_mark(fd);
    // SAFETY: the vectors are parts of the caller's buffers, and the rest is the caller's message.
    let got = unsafe { sys::receive_message(fd, &raw mut own, flags) };
    // Behind the mark the kernel has passed over the urgent byte, which the sender has counted (tcp(7)).
    if at_mark && !sys::is_at_mark(fd) {
        session.received_by_tcp(1).map_err(|_| broken(held))?;
    }
    if begin > 0 {
        // For this call only: the kernel has not seen what calls took from the ring.
        begins(-1);
    }
    if let Some(message) = &mut what.message {
        let (vectors, count) = (message.msg_iov, message.msg_iovlen);
        **message = own;
        (message.msg_iov, message.msg_iovlen) = (vectors, count);
    }
    match got {
        Ok(0) if vectors.is_empty() => Ok(Some(Got::Bytes(0))),
        Ok(0) => {
            if session.end().read_shut.load(Ordering::Relaxed) != 0 {
                return Ok(Some(Got::Bytes(0)));
            }
            // The peer has closed. What it wrote into the ring before is seen now.
            held.set_gone();
            let ring = session.road_in() == Ok(Road::Ring);
            Ok(if ring { None } else { Some(Got::Bytes(0)) })
        }
        Ok(bytes) if flags & (libc::MSG_PEEK | libc::MSG_OOB) != 0 => {
            // The sender has published by now how many of them are the program's.
            let seen = match session.road_in().map_err(|_| broken(held))? {
                Road::Ring if flags & libc::MSG_OOB == 0 => 0,
                Road::Tcp(Some(left)) => bytes.min((left as usize).saturating_sub(begin)),
                _ => bytes,
            };
            if what.flags & (libc::MSG_PEEK | FROM_NEXT) == libc::MSG_PEEK {
                move_peek_offset(session, true, seen);
            }
            Ok((seen > 0).then_some(Got::Bytes(seen)))
        }
        Ok(bytes) => {
            let payload = session.received_by_tcp(bytes as u64).map_err(|_| broken(held))?;
            if what.flags & FROM_NEXT == 0 {
                move_peek_offset(session, false, payload as usize);
            }
            Ok((payload > 0).then_some(Got::Bytes(payload as usize)))
        }
        Err(libc::EAGAIN) => {
            let road = session.road_in().map_err(|_| broken(held))?;
            Ok((road != Road::Ring).then_some(Got::Nothing(road)))
        }
        Err(error @ (libc::ECONNRESET | libc::EPIPE | libc::ETIMEDOUT)) => {
            held.set_gone();
            match session.road_in() {
                Ok(Road::Ring) => Ok(None),
                _ if held.report_end() => Err(error),
                // A call before has reported it.
                _ => Ok(Some(Got::Bytes(0))),
            }
        }
        Err(error) => Err(error),
    }
}

#[inline]
fn by_ring(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &Receive<'_>,
    (skip, wanted): (usize, usize),
) -> Result<Got, Errno> {
    if what.flags & libc::MSG_PEEK != 0 {
        of_ring::<true>(held, session, fd, what, (skip, wanted))
    } else {
        of_ring::<false>(held, session, fd, what, (skip, wanted))
    }
}

/// `PEEK`: the call looks, and takes nothing.
#[inline(never)]
fn of_ring<const PEEK: bool>(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &Receive<'_>,
    (skip, wanted): (usize, usize),
) -> Result<Got, Errno> {
    let mut done = 0;
    loop {
        let gone = held.is_gone();
        let mut incoming = session.arrived().map_err(|_| broken(held))?;
        let mut passed = if PEEK { (begin_in_ring(session, what.flags) + done) as u64 } else { 0 };
        if incoming.all > passed && wanted == 0 {
            return Ok(Got::Bytes(0));
        }
        // A read that has got something ends before the urgent byte.
        let ends = incoming.at_mark && skip + done > 0;
        if PEEK && incoming.at_mark && !ends && incoming.bytes == 0 {
            // A look passes over the urgent byte, and leaves it where it is.
            (incoming.bytes, incoming.at_mark) = (incoming.all, false);
            passed += 1;
        }
        let there = if ends { 0 } else { incoming.bytes.saturating_sub(passed) };
        if there > 0 && done < wanted {
            let most = (wanted - done).min(PIECE);
            let stretches = session.at(&incoming, passed, most).map_err(|_| broken(held))?;
            let count = stretches.length();
            let copied = if what.flags & libc::MSG_TRUNC == 0 {
                let rings = held.bytes(session.side().other());
                // SAFETY: stretches lie in the rings.
                unsafe { copy(rings, stretches, what.vectors, skip + done, true) }
            } else {
                count
            };
            // Of a piece that the program has no memory for, nothing is taken.
            if copied < count {
                return if done > 0 { Ok(Got::Bytes(done)) } else { Err(libc::EFAULT) };
            }
            if !PEEK {
                consume(held, session, fd, &stretches);
            }
            done += count;
            // Otherwise there was no more a moment ago.
            if done < wanted && (count == PIECE || (count as u64) < there) {
                continue;
            }
            if what.flags & FROM_NEXT == 0 {
                move_peek_offset(session, PEEK, done);
            }
            return Ok(Got::Bytes(done));
        }
        if done > 0 {
            if what.flags & FROM_NEXT == 0 {
                move_peek_offset(session, PEEK, done);
            }
            return Ok(Got::Bytes(done));
        }
        if ends {
            return Ok(Got::Bytes(0));
        }
        if incoming.at_mark {
            let passed = session.at_mark(&incoming).map_err(|_| broken(held))?;
            consume(held, session, fd, &passed);
            continue;
        }
        if incoming.finished {
            // The end is one of all bytes, those included that went past this library.
            held.look_at_tcp(fd);
            let broken = skip == 0 && held.is_broken() && held.report_end();
            return if broken { Err(libc::ECONNRESET) } else { Ok(Got::Bytes(0)) };
        }
        if gone {
            return end_of_input(held, session, &incoming, skip).map(Got::Bytes);
        }
        // Bytes that were written before the peer closed are seen at the next turn.
        if is_look(held, session) && held.look_at_tcp(fd) {
            continue;
        }
        let read_shut = session.end().read_shut.load(Ordering::Relaxed) != 0;
        return Ok(if read_shut { Got::Bytes(0) } else { Got::Nothing(Road::Ring) });
    }
}

#[cold]
fn receive_urgent(session: &Session<'_>, what: &Receive<'_>) -> Result<usize, Errno> {
    let (Some(byte), false) = (session.urgent(), session.is_inline()) else {
        return Err(libc::EINVAL);
    };
    let wanted = checked(what.vectors)?;
    let mut byte = [byte];
    let stretches = Stretches { first: (0, 1), ..Stretches::default() };
    // SAFETY: the array is one byte.
    let copied = unsafe { copy(byte.as_mut_ptr(), stretches, what.vectors, 0, true) };
    if copied < wanted.min(1) {
        return Err(libc::EFAULT);
    }
    if what.flags & libc::MSG_PEEK == 0 {
        session.took_urgent();
    }
    Ok(wanted.min(1))
}

/// Bytes of the rings are read. The memory of a large ring goes back to the kernel once the ring is left, or everything
/// is read.
#[inline]
fn consume(held: &Socket, session: &Session<'_>, fd: c_int, stretches: &Stretches) {
    if let Some((at, length)) = session.left_behind(stretches) {
        give_back(held, session, at, length);
    }
    wake(session, fd, session.for_peer_room(), session.consumed(stretches.length()));
    if stretches.is_large() {
        session.give_back(|at, length| give_back(held, session, at, length));
    }
}

#[cold]
#[inline(never)]
fn give_back(held: &Socket, session: &Session<'_>, at: usize, length: usize) {
    sys::give_back(held.bytes(session.side().other()).wrapping_add(at), length);
}
