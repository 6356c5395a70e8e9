//! Receiving and sending on a connection that has a segment.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use transom_switch::layout::{LARGE, ring_begin, ring_size};
use transom_switch::session::{Incoming, Road, Session, State, Stretches, Violation};
use transom_switch::wait::{Rung, Wait, Wake};

use super::control;
use super::epoll;
use super::ready;
use super::sys::{self, Errno};
use super::table::Socket;
use super::user;

/// Bytes copied at once: the other side works on them while the next ones are copied.
const PIECE: usize = 64 << 10;
/// Ticks of the processor's clock, some 20 µs: a call that finds nothing looks at the TCP socket of a peer that may
/// have died, unless one did so less long ago. What a program knows of the death of another process has taken
/// longer.
const LOOKS: u64 = 60_000;
/// Calls behind the departure of a process from the other end that look in any case: the kernel may tell this
/// end a moment later that it was the last one.
const ALERT: u32 = 8;
/// How long a thread sleeps on a word before it looks at the TCP socket, or sleeps there. No round number:
/// a signal between two sleeps does not end the call, and timers of programs have round numbers.
pub(crate) const NAP: Duration = Duration::from_millis(43);

/// How long a blocking sender waits for a reader of a ring that has 256 KiB, before it takes memory for more.
const GROWS: Duration = Duration::from_millis(5);

type Vector = libc::iovec;

/// Send the peer one byte that its kernel can see. Before this direction has changed to the ring the byte
/// would be one of the program's: a thread that waits for room then looks from time to time. Returns whether the
/// kernel has taken it.
fn doorbell(session: &Session<'_>, fd: c_int) -> bool {
    if !session.sends_by_ring() {
        return false;
    }
    session.end().rung.fetch_add(1, Ordering::Release);
    let sent = sys::send(fd, &[0], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == Ok(1);
    if !sent {
        // Without room there are doorbells that were not taken, and the socket is readable.
        session.end().rung.fetch_sub(1, Ordering::Release);
    }
    sent
}

/// The sleeps of other processes' epoll sets that this process has ended lately.
static RUNG: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Bytes, or their end, have been published: wake whom that has to wake. A set that sleeps with several
/// sockets gets one doorbell for all of them.
#[inline]
fn wake_reader(session: &Session<'_>, fd: c_int, wake: Wake) {
    if wake.sleepers {
        sys::wake(session.for_peer_bytes().word(), i32::MAX);
    }
    if wake.doorbell {
        let (rung, sleep) = (Rung(&RUNG), session.peer_sleep());
        if !rung.has(sleep) && doorbell(session, fd) {
            rung.note(sleep);
        }
    }
}

/// Wake whom a change has to wake.
#[inline]
pub(crate) fn wake(session: &Session<'_>, fd: c_int, wait: &Wait, wake: Wake) {
    if wake.sleepers {
        sys::wake(wait.word(), i32::MAX);
    }
    if wake.doorbell {
        doorbell(session, fd);
    }
}

/// The TCP socket of this end is closed: the peer looks at its own at its next call, and so do threads that sleep
/// on a word.
pub(crate) fn closed(session: &Session<'_>) {
    session.end().departures.fetch_add(1, Ordering::Release);
    for wait in [session.for_peer_bytes(), session.for_peer_room()] {
        if wait.wake_sleepers() {
            sys::wake(wait.word(), i32::MAX);
        }
    }
}

/// Take doorbells from the TCP stream that were sent before this call.
pub(crate) fn drain(session: &Session<'_>, fd: c_int) {
    if session.road_in() != Ok(Road::Ring) {
        return;
    }
    let mut left = session.doorbells();
    let mut bytes = [0; 256];
    while left > 0 {
        let most = left.min(bytes.len());
        match sys::receive(fd, &mut bytes[..most], libc::MSG_DONTWAIT) {
            Ok(got) if got > 0 => {
                session.end().drained.fetch_add(got as u64, Ordering::Relaxed);
                left -= got;
            }
            _ => return,
        }
    }
}

/// Copy `stretches` of a side's rings to or from what the vectors name, behind their first `skip` bytes; how many
/// were copied. Fewer than there are: the program has no memory there.
///
/// # Safety
/// `rings` has every byte of the stretches.
#[inline]
unsafe fn copy(
    rings: *mut u8,
    stretches: Stretches,
    vectors: &[Vector],
    skip: usize,
    out: bool,
) -> usize {
    // Most calls have one buffer, and most bytes lie in one stretch.
    if let ([vector], 0) = (vectors, stretches.second.1) {
        let (at, length) = stretches.first;
        let (inside, buffer) = (rings.wrapping_add(at), vector.iov_base.cast::<u8>());
        let (buffer, room) = (buffer.wrapping_add(skip), vector.iov_len.saturating_sub(skip));
        let (from, to) = if out { (inside, buffer) } else { (buffer, inside) };
        // SAFETY: the rings have `length` bytes there. The other side may write them at the same time, and garbles
        // its own bytes only. The program's memory need not be there.
        return unsafe { user::copy(from, to, length.min(room)) };
    }
    // SAFETY: the caller's.
    unsafe { copy_pieces(rings, stretches, vectors, skip, out) }
}

/// As [`copy`], between any number of stretches and buffers.
///
/// # Safety
/// As of `copy`.
#[inline(never)]
unsafe fn copy_pieces(
    rings: *mut u8,
    stretches: Stretches,
    vectors: &[Vector],
    mut skip: usize,
    out: bool,
) -> usize {
    let mut pieces = [stretches.first, stretches.second].into_iter();
    let (mut at, mut left) = pieces.next().unwrap_or_default();
    let mut done = 0;
    for vector in vectors {
        if skip >= vector.iov_len {
            skip -= vector.iov_len;
            continue;
        }
        let mut buffer = vector.iov_base.cast::<u8>().wrapping_add(skip);
        let mut room = vector.iov_len - skip;
        skip = 0;
        while room > 0 {
            if left == 0 {
                match pieces.next() {
                    Some((next, length)) if length > 0 => (at, left) = (next, length),
                    _ => return done,
                }
            }
            let count = room.min(left);
            let inside = rings.wrapping_add(at);
            let (from, to) = if out { (inside, buffer) } else { (buffer, inside) };
            // SAFETY: the rings have `count` bytes there. The other side may write them at the same time, and
            // garbles its own bytes only. The program's memory need not be there.
            let copied = unsafe { user::copy(from, to, count) };
            done += copied;
            if copied < count {
                return done;
            }
            buffer = buffer.wrapping_add(count);
            (at, left, room) = (at + count, left - count, room - count);
        }
    }
    done
}

/// Bytes that one call moves at most: MAX_RW_COUNT of the kernel's.
const MOST: usize = 0x7FFF_F000;

/// The bytes of what a call was given, as far as it moves them.
pub(crate) fn total(vectors: &[Vector]) -> usize {
    vectors.iter().fold(0, |sum: usize, vector| sum.saturating_add(vector.iov_len)).min(MOST)
}

/// As [`total`], of vectors that the kernel would take: no length is negative (readv(2)), and none leads out of the
/// program's half of the addresses.
fn checked(vectors: &[Vector]) -> Result<usize, Errno> {
    const END: usize = 0x7FFF_FFFF_F000;
    let (mut sum, mut inside) = (0_usize, true);
    for vector in vectors {
        if vector.iov_len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        inside &= vector.iov_base.addr().saturating_add(vector.iov_len) <= END;
        sum = sum.saturating_add(vector.iov_len);
    }
    if inside { Ok(sum.min(MOST)) } else { Err(libc::EFAULT) }
}

/// The vectors behind their first `skip` bytes, and no more than `most` bytes.
fn cut(vectors: &[Vector], mut skip: usize, mut most: usize) -> Vec<Vector> {
    let mut kept = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let passed = skip.min(vector.iov_len);
        skip -= passed;
        let length = (vector.iov_len - passed).min(most);
        if length > 0 {
            let iov_base = vector.iov_base.cast::<u8>().wrapping_add(passed).cast();
            kept.push(Vector { iov_base, iov_len: length });
            most -= length;
        }
    }
    kept
}

/// The peer has closed, or its process has ended: how this end's reads end.
#[cold]
fn end_of_input(
    held: &Socket,
    session: &Session<'_>,
    incoming: Option<&Incoming>,
) -> Result<usize, Errno> {
    let orderly = incoming.is_some_and(|incoming| incoming.finished) || !is_reset(held, session);
    if orderly || !held.report_end() { Ok(0) } else { Err(libc::ECONNRESET) }
}

/// Whether the end of the peer is a reset: it asked for one, has left bytes unread, or broke a rule.
pub(crate) fn is_reset(held: &Socket, session: &Session<'_>) -> bool {
    held.is_broken()
        || held.is_gone()
            && (session.peer().abortive.load(Ordering::Relaxed) != 0 || !session.is_all_read())
}

/// The error of a connection that was reset, once (SO_ERROR of socket(7)): behind an orderly end of the peer's
/// direction it is EPIPE.
#[cold]
pub(crate) fn take_error(held: &Socket, session: &Session<'_>) -> Option<Errno> {
    let reset = is_reset(held, session);
    let fresh = held.is_gone() && (reset || held.was_refused()) && held.report_end();
    let ended = !held.is_broken() && session.arrived().is_ok_and(|incoming| incoming.finished);
    fresh.then_some(if reset && !ended { libc::ECONNRESET } else { libc::EPIPE })
}

/// Whether this call is one that looks at the TCP socket, whatever the rings say.
pub(crate) fn is_look(held: &Socket, session: &Session<'_>) -> bool {
    let departures = session.peer().departures.load(Ordering::Acquire);
    if departures != held.departures.load(Ordering::Relaxed) {
        held.departures.store(departures, Ordering::Relaxed);
        held.alert.store(ALERT, Ordering::Relaxed);
    }
    let alert = held.alert.load(Ordering::Relaxed);
    if alert > 0 {
        held.alert.store(alert - 1, Ordering::Relaxed);
        return true;
    }
    let now = sys::ticks();
    let due = now.wrapping_sub(held.looked.load(Ordering::Relaxed)) > LOOKS;
    if due {
        held.looked.store(now, Ordering::Relaxed);
    }
    due
}

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

/// A flag of this library's own, in no program's way: a look begins at what is read next, whatever SO_PEEK_OFF
/// says.
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
    if what.flags & libc::MSG_OOB != 0 && session.road_in() == Ok(Road::Ring) {
        return receive_urgent(session, what);
    }
    if what.flags & libc::MSG_ERRQUEUE != 0 {
        return Err(libc::EAGAIN);
    }
    let wanted = checked(what.vectors)?;
    let peek = what.flags & libc::MSG_PEEK != 0;
    let by_offset = what.flags & (libc::MSG_PEEK | FROM_NEXT) == libc::MSG_PEEK;
    // A call that waits does so for this much: SO_RCVLOWAT (socket(7)), or all of it (recv(2)).
    let low_water = session.end().low_water.load(Ordering::Relaxed).max(1) as usize;
    let least = if what.flags & libc::MSG_WAITALL != 0 { wanted } else { low_water.min(wanted) };
    let mut done = 0;
    let mut patience = Patience::default();
    loop {
        let over_tcp = session.road_in() != Ok(Road::Ring);
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
                if done >= least && !border {
                    return Ok(done);
                }
            }
            Ok(Got::Nothing(_)) if done > 0 && done >= least => return Ok(done),
            Ok(Got::Nothing(road)) => {
                let passed = if by_offset { peek_offset(session).unwrap_or(0) } else { 0 };
                let waited = if is_nonblocking(held, fd, what.flags) {
                    Err(libc::EAGAIN)
                } else if passed > 0 {
                    patience.wait_for_more(held, session, fd, passed)
                } else {
                    patience.wait_for_bytes(held, session, fd, road)
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

/// `bytes` were looked at, or taken: SO_PEEK_OFF moves on, or back.
fn move_peek_offset(session: &Session<'_>, peek: bool, bytes: usize) {
    if let Some(offset) = peek_offset(session) {
        let moved = if peek { offset + bytes } else { offset.saturating_sub(bytes) };
        session.end().peek_offset.store(moved as u32 + 1, Ordering::Relaxed);
    }
}

/// Bytes that FIONREAD counts; `None`: the kernel has them all.
pub(crate) fn unread(session: &Session<'_>, fd: c_int) -> Option<u64> {
    let before = match session.road_in() {
        Ok(Road::Ring) => 0,
        Ok(Road::Tcp(Some(left))) => left.min(sys::unread(fd)),
        _ => return None,
    };
    Some(before + session.arrived().map_or(0, |incoming| incoming.bytes))
}

fn is_nonblocking(held: &Socket, fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || held.young.is_nonblocking(fd)
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
            Road::Tcp(limit) => {
                let most = limit.map_or(usize::MAX, |limit| limit as usize);
                if let Some(got) = by_tcp(held, session, fd, what, (done, most))? {
                    return Ok(got);
                }
            }
            Road::Ring => {
                advance(held, session, fd);
                if let Some(message) = &mut what.message {
                    (message.msg_flags, message.msg_controllen) = (0, 0);
                    message.msg_namelen = 0;
                }
                return by_ring(held, session, fd, what, (done, wanted - done));
            }
        }
    }
}

#[cold]
fn broken(held: &Socket) -> Errno {
    held.set_broken();
    held.report_end();
    libc::ECONNRESET
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
    // SAFETY: the vectors are parts of the caller's buffers, and the rest is the caller's message.
    let got = unsafe { sys::receive_message(fd, &raw mut own, flags) };
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
            Ok(match session.road_in().map_err(|_| broken(held))? {
                Road::Ring if flags & libc::MSG_OOB == 0 => None,
                Road::Tcp(Some(left)) => Some(Got::Bytes(bytes.min(left as usize))),
                _ => Some(Got::Bytes(bytes)),
            })
        }
        Ok(bytes) => {
            let payload = session.received_by_tcp(bytes as u64).map_err(|_| broken(held))?;
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

fn by_ring(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &Receive<'_>,
    (skip, wanted): (usize, usize),
) -> Result<Got, Errno> {
    let peek = what.flags & libc::MSG_PEEK != 0;
    let mut done = 0;
    loop {
        let gone = held.is_gone();
        let incoming = session.arrived().map_err(|_| broken(held))?;
        if incoming.all > 0 && wanted == 0 {
            return Ok(Got::Bytes(0));
        }
        let by_offset = what.flags & (libc::MSG_PEEK | FROM_NEXT) == libc::MSG_PEEK;
        let offset = if by_offset { peek_offset(session).unwrap_or(0) } else { 0 };
        let passed = if peek { (offset + done) as u64 } else { 0 };
        // A read that has got something ends before the urgent byte.
        let there =
            if incoming.at_mark && done > 0 { 0 } else { incoming.bytes.saturating_sub(passed) };
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
            if !peek {
                give_back(held, session, stretches);
                wake(session, fd, session.for_peer_room(), session.consumed(count));
            }
            done += count;
            // Otherwise there was no more a moment ago.
            if done < wanted && (count == PIECE || (count as u64) < there) {
                continue;
            }
            if by_offset || !peek {
                move_peek_offset(session, peek, done);
            }
            return Ok(Got::Bytes(done));
        }
        if done > 0 {
            if by_offset || !peek {
                move_peek_offset(session, peek, done);
            }
            return Ok(Got::Bytes(done));
        }
        if incoming.at_mark {
            wake(session, fd, session.for_peer_room(), session.pass_mark());
            continue;
        }
        if incoming.finished {
            // The end is one of all bytes, those included that went past this library.
            held.look_at_tcp(fd);
            let broken = held.is_broken() && held.report_end();
            return if broken { Err(libc::ECONNRESET) } else { Ok(Got::Bytes(0)) };
        }
        if gone {
            return end_of_input(held, session, Some(&incoming)).map(Got::Bytes);
        }
        if session.end().read_shut.load(Ordering::Relaxed) != 0 {
            return Ok(Got::Bytes(0));
        }
        // Bytes that were written before the peer closed are seen at the next turn.
        if !(is_look(held, session) && held.look_at_tcp(fd)) {
            return Ok(Got::Nothing(Road::Ring));
        }
    }
}

#[cold]
fn receive_urgent(session: &Session<'_>, what: &Receive<'_>) -> Result<usize, Errno> {
    let inline = session.end().inline.load(Ordering::Relaxed) != 0;
    let (Some(byte), false) = (session.urgent(), inline) else { return Err(libc::EINVAL) };
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

/// Before bytes of a large ring are said to be read: the kernel gets their memory.
#[inline]
fn give_back(held: &Socket, session: &Session<'_>, stretches: Stretches) {
    if stretches.is_large() {
        give_back_now(held, session, stretches);
    }
}

#[inline(never)]
fn give_back_now(held: &Socket, session: &Session<'_>, stretches: Stretches) {
    let rings = held.bytes(session.side().other());
    for (at, length) in session.given_back(&stretches) {
        if length > 0 {
            sys::give_back(rings.wrapping_add(at), length);
        }
    }
}

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
fn send_deferred(held: &Socket, fd: c_int) {
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
                    Err(libc::EINTR) => {}
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
    let nonblocking = is_nonblocking(held, fd, flags);
    let mut done = 0;
    let mut patience = Patience::default();
    // What waits for nothing takes at once what the largest ring has room for, as TCP does.
    let mut deep = nonblocking;
    loop {
        let sent = {
            let _lock = match held.sending(&session) {
                Err(libc::EAGAIN) if !nonblocking && done == 0 => {
                    return defer(held, vectors, flags);
                }
                lock => lock?,
            };
            if road_out(held, &session, fd) {
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
        epoll::found_full(held);
        let waited = if nonblocking {
            Err(libc::EAGAIN)
        } else {
            let queued = session.queued();
            let waited = patience.wait_for_room(held, &session, fd, deep);
            deep |= queued == session.queued();
            waited
        };
        if let Err(error) = waited {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
    }
}

/// Whether the next byte goes through the ring. Bytes that the program has written past this library
/// keep this direction on TCP.
#[inline]
fn road_out(held: &Socket, session: &Session<'_>, fd: c_int) -> bool {
    session.sends_by_ring() || change_road(held, session, fd)
}

#[cold]
fn change_road(held: &Socket, session: &Session<'_>, fd: c_int) -> bool {
    if session.state() != State::Claimed {
        return false;
    }
    let counted = session.counted_by_tcp();
    let counts = sys::look_at_tcp(fd).and_then(|seen| seen.counts);
    if held.is_gone() || counts.is_none_or(|counts| counts.sent != counted) {
        return false;
    }
    super::offer::no_delay(fd);
    session.road_out() == Road::Ring
}

/// Agree to the change from TCP to the ring, if the other side has, without having anything to send.
#[inline]
pub(crate) fn advance(held: &Socket, session: &Session<'_>, fd: c_int) {
    if !session.sends_by_ring() {
        agree(held, session, fd);
    }
}

#[cold]
fn agree(held: &Socket, session: &Session<'_>, fd: c_int) {
    if session.state() == State::Claimed
        && let Ok(lock) = held.sending(session)
    {
        road_out(held, session, fd);
        drop(lock);
        send_deferred(held, fd);
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
        return push_in_vain(held, session, gone, (before, wanted));
    }
    session.settle();
    let rings = held.bytes(session.side());
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

/// Nothing is sent: the peer has closed, or this end has finished.
#[cold]
fn push_in_vain(
    held: &Socket,
    session: &Session<'_>,
    gone: bool,
    (done, wanted): (usize, usize),
) -> Result<usize, Errno> {
    if gone && !session.has_finished() && !is_reset(held, session) && held.refuse() {
        // So much is on its way before the answer comes.
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
    place(held, session, wanted, true).map(|room| room.length()).map_err(|_| broken(held))
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
        return [room.first, room.second]
            .into_iter()
            .all(|(at, length)| length == 0 || asked(at, length));
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

/// How a call waits: it looks for a while, then sleeps on the word, then in the kernel.
#[derive(Default)]
pub(crate) struct Patience {
    /// When the call gives up, and when it goes to sleep in the kernel; 0: not asked yet.
    deadline: u64,
    drowsy: u64,
}

impl Patience {
    /// The time limit of the socket's, asked for once.
    fn start(&mut self, fd: c_int, option: c_int) {
        if self.deadline == 0 {
            let limit = sys::option::<[i64; 2]>(fd, libc::SOL_SOCKET, option).unwrap_or_default();
            let limit = (limit[0] as u64).saturating_mul(1_000_000_000) + limit[1] as u64 * 1000;
            let now = sys::now();
            self.deadline = if limit == 0 { u64::MAX } else { now.saturating_add(limit) };
            self.drowsy = now + NAP.as_nanos() as u64;
        }
    }

    #[inline(never)]
    fn wait_for_bytes(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        road: Road,
    ) -> Result<(), Errno> {
        let there = || has_input(held, session);
        if road == Road::Ring && held.spin.look(None, there) {
            return Ok(());
        }
        self.start(fd, libc::SO_RCVTIMEO);
        let now = sys::now();
        if now >= self.deadline {
            return Err(libc::EAGAIN);
        }
        if road == Road::Ring && (now < self.drowsy || self.deadline != u64::MAX) {
            return self.nap(held, session, fd, (session.for_bytes(), NAP), &there);
        }
        ready::sleep_in_kernel(held, session, fd, self.deadline)
    }

    /// Behind a look that has shown less than the call waits for. An error: nothing more comes, or in time.
    #[inline(never)]
    fn wait_for_more(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        seen: usize,
    ) -> Result<(), Errno> {
        let ended = || {
            held.is_gone()
                || session.end().read_shut.load(Ordering::Relaxed) != 0
                || session.arrived().map_or(true, |incoming| incoming.finished)
        };
        let more = || session.arrived().is_ok_and(|incoming| incoming.all > seen as u64);
        self.start(fd, libc::SO_RCVTIMEO);
        let over = sys::now() >= self.deadline || session.road_in() != Ok(Road::Ring);
        if !more() && (over || ended()) {
            return Err(libc::EAGAIN);
        }
        self.nap(held, session, fd, (session.for_bytes(), NAP), &|| more() || ended())
    }

    #[inline(never)]
    fn wait_for_room(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        deep: bool,
    ) -> Result<(), Errno> {
        if !session.sends_by_ring() {
            self.start(fd, libc::SO_SNDTIMEO);
            let left = self.deadline.saturating_sub(sys::now());
            let mut room = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
            // The road may change meanwhile.
            let limit = left.min(NAP.as_nanos() as u64);
            sys::poll(&mut room, Some(limit), std::ptr::null())?;
            return if left == 0 { Err(libc::EAGAIN) } else { Ok(()) };
        }
        let there = || held.is_gone() || session.is_writable();
        if held.spin.look(None, there) {
            return Ok(());
        }
        self.start(fd, libc::SO_SNDTIMEO);
        if sys::now() >= self.deadline {
            return Err(libc::EAGAIN);
        }
        let limit = if deep { NAP } else { GROWS };
        self.nap(held, session, fd, (session.for_room(), limit), &there)
    }

    /// Sleep on the word, if the peer still lives; for a while only, because a peer that is killed wakes
    /// nobody.
    fn nap(
        &self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        (wait, limit): (&Wait, Duration),
        there: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let value = wait.fall_asleep();
        if there() || session.has_finished() && std::ptr::eq(wait, session.for_room()) {
            return Ok(());
        }
        // A peer that closes its socket wakes behind that, so that the close is seen here.
        if held.look_at_tcp(fd) {
            return Ok(());
        }
        let left = Duration::from_nanos(self.deadline.saturating_sub(sys::now()));
        // A socket with a time limit goes on behind no signal (signal(7)).
        let sleep = if self.deadline == u64::MAX { sys::sleep_on } else { sys::sleep_until_signal };
        match sleep(wait.word(), value, left.min(limit)) {
            Err(libc::ETIMEDOUT) => Ok(()),
            done => done,
        }
    }
}

/// Whether a read of the ring would not block.
pub(crate) fn has_input(held: &Socket, session: &Session<'_>) -> bool {
    held.is_gone()
        || session.end().read_shut.load(Ordering::Relaxed) != 0
        || session.arrived().map_or(true, |incoming| incoming.all > 0 || incoming.finished)
}

/// `shutdown`.
pub(crate) fn shutdown(held: &Socket, fd: c_int, how: c_int) -> Result<(), Errno> {
    send_deferred(held, fd);
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    let (reads, writes) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Err(libc::EINVAL),
    };
    // A peer that has not agreed by now finds an ordinary end of TCP.
    session.withdraw();
    let by_ring = {
        let _lock = held.sending(&session)?;
        road_out(held, &session, fd)
    };
    if !by_ring {
        return sys::shutdown(fd, how).map(|_| ());
    }
    if held.look_at_tcp(fd) {
        return sys::shutdown(fd, how).map(|_| ());
    }
    if writes {
        let woken = {
            let _lock = held.sending(&session)?;
            session.finish()
        };
        wake_reader(&session, fd, woken);
        wake_own(session.for_room());
    }
    if reads {
        session.end().read_shut.store(1, Ordering::SeqCst);
        // Only the kernel can wake this end's threads that sleep there. It sends nothing, but the socket
        // stays readable from now on, so that doorbells are not seen by `poll`.
        let sleeping = session.end().waiting.load(Ordering::SeqCst) > 0;
        if sleeping || epoll::asleep() > 0 || session.road_in() != Ok(Road::Ring) {
            session.end().read_shut.store(2, Ordering::SeqCst);
            let _ = sys::shutdown(fd, libc::SHUT_RD);
        }
        wake_own(session.for_bytes());
    }
    Ok(())
}

fn wake_own(wait: &Wait) {
    let word: &AtomicU32 = wait.word();
    sys::wake(word, i32::MAX);
}
