//! Receiving and sending on a connection that has a segment.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use transom_switch::session::{Incoming, Road, Session, State, Stretches};
use transom_switch::wait::{Rung, Wait, Wake};

use super::epoll;
use super::lock::Locked;
use super::ready;
use super::sys::{self, Errno};
use super::table::Socket;

/// Bytes copied at once: the other side works on them while the next ones are copied.
const PIECE: usize = 64 << 10;
/// Calls between two looks at the TCP socket of a peer that may have died.
const LOOKS: u32 = 64;
/// How long a thread sleeps on a word before it looks at the TCP socket, or sleeps there. No round number:
/// a signal between two sleeps does not end the call, and timers of programs have round numbers.
pub(crate) const NAP: Duration = Duration::from_millis(43);

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

/// The TCP socket of this end is closed: threads of the peer's that sleep on a word look at theirs.
pub(crate) fn closed(session: &Session<'_>) {
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

/// Copy `stretches` of a ring to or from what the vectors name, behind their first `skip` bytes.
///
/// # Safety
/// `ring` has every byte of the stretches, and the vectors are the caller's buffers.
unsafe fn copy(ring: *mut u8, stretches: &Stretches, vectors: &[Vector], skip: usize, out: bool) {
    let (offset, first) = stretches.first;
    let mut pieces = [(offset, first), (0, stretches.second)].into_iter();
    let (mut at, mut left) = pieces.next().unwrap_or_default();
    let mut skip = skip;
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
                    _ => return,
                }
            }
            let count = room.min(left);
            let inside = ring.wrapping_add(at);
            // SAFETY: both have `count` bytes there, by the bounds of stretches and vectors. The other
            // side may write its ring at the same time, and garbles its own bytes only.
            unsafe {
                if out {
                    std::ptr::copy(inside, buffer, count);
                } else {
                    std::ptr::copy(buffer, inside, count);
                }
            }
            buffer = buffer.wrapping_add(count);
            (at, left, room) = (at + count, left - count, room - count);
        }
    }
}

pub(crate) fn total(vectors: &[Vector]) -> usize {
    vectors.iter().map(|vector| vector.iov_len).sum()
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

/// Whether this call is one that looks at the TCP socket, whatever the rings say.
pub(crate) fn is_look(held: &Socket) -> bool {
    held.calls.fetch_add(1, Ordering::Relaxed) % LOOKS == LOOKS - 1
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

/// Receive.
pub(crate) fn receive(held: &Socket, fd: c_int, mut what: Receive<'_>) -> Result<usize, Errno> {
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    if what.flags & libc::MSG_OOB != 0 && session.road_in() == Ok(Road::Ring) {
        return receive_urgent(held, &session, &what);
    }
    if what.flags & libc::MSG_ERRQUEUE != 0 {
        return Err(libc::EAGAIN);
    }
    let wanted = total(what.vectors);
    let all = what.flags & libc::MSG_WAITALL != 0 && what.flags & libc::MSG_PEEK == 0;
    let mut done = 0;
    let mut patience = Patience::default();
    loop {
        let got = attempt(held, &session, fd, &mut what, done);
        match got {
            Ok(Got::Bytes(0)) => return Ok(done),
            Ok(Got::Bytes(bytes)) => {
                done += bytes;
                epoll::taken(held);
                if !all || done >= wanted {
                    return Ok(done);
                }
            }
            Ok(Got::Nothing(_)) if wanted == 0 => return Ok(0),
            Ok(Got::Nothing(road)) => {
                let waited = if is_nonblocking(&session, what.flags) {
                    Err(libc::EAGAIN)
                } else {
                    patience.wait_for_bytes(held, &session, fd, road)
                };
                if let Err(error) = waited {
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

fn is_nonblocking(session: &Session<'_>, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || session.end().nonblocking.load(Ordering::Relaxed) != 0
}

fn attempt(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &mut Receive<'_>,
    done: usize,
) -> Result<Got, Errno> {
    let Some(_lock) = Locked::take(session.receive_lock()) else { return Err(libc::EAGAIN) };
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
                return by_ring(held, session, fd, what, done);
            }
        }
    }
}

fn broken(held: &Socket) -> Errno {
    held.set_broken();
    held.report_end();
    libc::ECONNRESET
}

/// Bytes of the stream's first part, which came over TCP. `None`: look again.
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
    let flags = what.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    // SAFETY: the vectors are parts of the caller's buffers, and the rest is the caller's message.
    let got = unsafe { sys::receive_message(fd, &raw mut own, flags) };
    if let Some(message) = &mut what.message {
        let (vectors, count) = (message.msg_iov, message.msg_iovlen);
        **message = own;
        (message.msg_iov, message.msg_iovlen) = (vectors, count);
    }
    match got {
        Ok(0) if vectors.is_empty() => Ok(Some(Got::Nothing(Road::Tcp(None)))),
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
            if session.road_in() == Ok(Road::Ring) { Ok(None) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

fn by_ring(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    what: &Receive<'_>,
    skip: usize,
) -> Result<Got, Errno> {
    let wanted = total(what.vectors) - skip;
    let mut done = 0;
    loop {
        let gone = held.is_gone();
        let incoming = session.arrived().map_err(|_| broken(held))?;
        if incoming.bytes > 0 && wanted > 0 {
            let piece = if what.flags & libc::MSG_PEEK != 0 { usize::MAX } else { PIECE };
            let stretches = session.at(&incoming, (wanted - done).min(piece));
            let ring = held.bytes(session.side().other());
            if what.flags & libc::MSG_TRUNC == 0 {
                // SAFETY: stretches lie in the ring; the vectors are the caller's.
                unsafe { copy(ring, &stretches, what.vectors, skip + done, true) };
            }
            let count = stretches.length();
            if what.flags & libc::MSG_PEEK != 0 {
                return Ok(Got::Bytes(count));
            }
            wake(session, fd, session.for_peer_room(), session.consumed(count));
            done += count;
            if done < wanted && count as u64 == piece as u64 && !incoming.at_mark {
                continue;
            }
            return Ok(Got::Bytes(done));
        }
        if done > 0 {
            return Ok(Got::Bytes(done));
        }
        if incoming.at_mark && wanted > 0 {
            wake(session, fd, session.for_peer_room(), session.pass_mark());
            continue;
        }
        if session.end().read_shut.load(Ordering::Relaxed) != 0 {
            return Ok(Got::Bytes(0));
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
        // Bytes that were written before the peer closed are seen at the next turn.
        if !(is_look(held) && held.look_at_tcp(fd)) {
            return Ok(Got::Nothing(Road::Ring));
        }
    }
}

fn receive_urgent(
    held: &Socket,
    session: &Session<'_>,
    what: &Receive<'_>,
) -> Result<usize, Errno> {
    let inline = session.end().inline.load(Ordering::Relaxed) != 0;
    let (Some(at), false) = (session.urgent(), inline) else { return Err(libc::EINVAL) };
    let stretches = Stretches { first: (at, 1), second: 0 };
    // SAFETY: the offset lies in the ring; the vectors are the caller's.
    unsafe { copy(held.bytes(session.side().other()), &stretches, what.vectors, 0, true) };
    if what.flags & libc::MSG_PEEK == 0 {
        session.took_urgent();
    }
    Ok(total(what.vectors).min(1))
}

/// Send. `message`: control data and a target, which the kernel reads while TCP is used.
pub(crate) fn send(
    held: &Socket,
    fd: c_int,
    vectors: &[Vector],
    flags: c_int,
    message: Option<&libc::msghdr>,
) -> Result<usize, Errno> {
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    let wanted = total(vectors);
    let mut done = 0;
    let mut patience = Patience::default();
    loop {
        let sent = {
            let Some(_lock) = Locked::take(session.send_lock()) else { return Err(libc::EAGAIN) };
            if road_out(held, &session, fd) {
                push(held, &session, fd, vectors, (done, flags))
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
        epoll::taken(held);
        let waited = if is_nonblocking(&session, flags) {
            Err(libc::EAGAIN)
        } else {
            patience.wait_for_room(held, &session, fd)
        };
        if let Err(error) = waited {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
    }
}

/// Whether the next byte goes through the ring. Bytes that the program has written past this library
/// keep this direction on TCP.
fn road_out(held: &Socket, session: &Session<'_>, fd: c_int) -> bool {
    if session.sends_by_ring() {
        return true;
    }
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
pub(crate) fn advance(held: &Socket, session: &Session<'_>, fd: c_int) {
    if !session.sends_by_ring()
        && session.state() == State::Claimed
        && let Some(_lock) = Locked::take(session.send_lock())
    {
        road_out(held, session, fd);
    }
}

/// Under the lock of sending: what the kernel takes at once.
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

/// Put into the ring what there is room for.
fn push(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    vectors: &[Vector],
    (mut done, flags): (usize, c_int),
) -> Result<usize, Errno> {
    let wanted = total(vectors);
    let before = done;
    let look = is_look(held);
    let gone = held.is_gone() || look && held.look_at_tcp(fd);
    if gone && !session.has_finished() && !is_reset(held, session) && held.refuse() {
        return Ok(wanted - before);
    }
    if session.has_finished() || gone {
        return Err(libc::EPIPE);
    }
    while done < wanted {
        let Ok(stretches) = session.room((wanted - done).min(PIECE)) else {
            held.set_broken();
            return Err(libc::EPIPE);
        };
        let count = stretches.length();
        if count == 0 {
            session.found_full();
            break;
        }
        let ring = held.bytes(session.side());
        have_memory(held, session, ring, count)?;
        // SAFETY: stretches lie in the ring; the vectors are the caller's.
        unsafe { copy(ring, &stretches, vectors, done, false) };
        if flags & libc::MSG_OOB != 0 && done + count == wanted {
            session.mark_urgent(count);
        }
        done += count;
        wake_reader(session, fd, session.filled(count));
    }
    Ok(done - before)
}

/// Before the first lap of this process ends: pages that the system cannot provide are an error here,
/// and would be the end of the process at the copy.
#[inline]
fn have_memory(
    held: &Socket,
    session: &Session<'_>,
    ring: *mut u8,
    count: usize,
) -> Result<(), Errno> {
    let ready = held.populated.load(Ordering::Relaxed);
    if ready >= held.ring() {
        return Ok(());
    }
    let end = session.written().saturating_add(count as u64).min(held.ring());
    // Another process may have written the first laps.
    let begin = if session.written() >= held.ring() { 0 } else { ready };
    if end > ready || begin == 0 {
        let upto = end.next_multiple_of(16 << 10).min(held.ring());
        let upto = if session.written() >= held.ring() { held.ring() } else { upto };
        let at = ring.wrapping_add(begin as usize);
        sys::populate(at, (upto - begin) as usize).map_err(|_| libc::ENOBUFS)?;
        held.populated.store(upto, Ordering::Relaxed);
    }
    Ok(())
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
            return self.nap(held, session, fd, session.for_bytes(), &there);
        }
        ready::sleep_in_kernel(held, session, fd, self.deadline)
    }

    fn wait_for_room(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
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
        let there = || held.is_gone() || session.room(1).map_or(true, |room| room.length() > 0);
        if held.spin.look(None, || held.is_gone() || session.is_writable()) {
            return Ok(());
        }
        self.start(fd, libc::SO_SNDTIMEO);
        if sys::now() >= self.deadline {
            return Err(libc::EAGAIN);
        }
        self.nap(held, session, fd, session.for_room(), &there)
    }

    /// Sleep on the word, if the peer still lives; for a while only, because a peer that is killed wakes
    /// nobody.
    fn nap(
        &self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        wait: &Wait,
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
        match sys::sleep_on(wait.word(), value, left.min(NAP)) {
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
        let Some(_lock) = Locked::take(session.send_lock()) else { return Err(libc::EAGAIN) };
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
            let Some(_lock) = Locked::take(session.send_lock()) else { return Err(libc::EAGAIN) };
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
