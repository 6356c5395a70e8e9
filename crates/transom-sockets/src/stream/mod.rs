//! The bytes of a connection that has a segment: by which road they go, and whom they wake.

mod ends;
mod patience;
mod receive;
mod send;
mod vectors;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use transom_switch::session::{Incoming, Road, Session, State};
use transom_switch::wait::{Rung, Wait, Wake};

use super::sys::{self, Errno};
use super::table::Socket;

pub(crate) use ends::{
    closed, error_before, error_now, is_closed, is_left, is_look, is_reset, shutdown, tcp_state,
};
pub(crate) use patience::NAP;
pub(crate) use receive::{FROM_NEXT, Receive, receive};
pub(crate) use send::{cannot, room, send};
pub(crate) use vectors::total;

/// Bytes copied at once: the other side works on them while the next ones are copied.
const PIECE: usize = 64 << 10;

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

/// Take doorbells from the TCP stream that were sent before this call.
pub(crate) fn drain(session: &Session<'_>, fd: c_int) {
    drain_if(session, fd, || true);
}

/// As [`drain`], unless a thread sleeps for them: that is asked behind their count, so that the doorbell of a thread
/// which falls asleep later is not among them.
pub(crate) fn drain_if(session: &Session<'_>, fd: c_int, may: impl FnOnce() -> bool) {
    if session.road_in() != Ok(Road::Ring) {
        return;
    }
    let mut left = session.doorbells();
    if left == 0 || !may() {
        return;
    }
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

/// Bytes that FIONREAD counts; `None`: the kernel has them all.
pub(crate) fn unread(session: &Session<'_>, fd: c_int) -> Option<u64> {
    let before = match session.road_in() {
        Ok(Road::Ring) => 0,
        Ok(Road::Tcp(Some(left))) => left.min(sys::unread(fd)),
        _ => return None,
    };
    let inline = session.is_inline();
    let count = |incoming: Incoming| if inline { incoming.all } else { incoming.bytes };
    Some(before + session.arrived().map_or(0, count))
}

/// Whether a read of the ring would not block.
pub(crate) fn has_input(held: &Socket, session: &Session<'_>) -> bool {
    held.is_gone()
        || session.end().read_shut.load(Ordering::Relaxed) != 0
        || session.arrived().map_or(true, |incoming| incoming.all > 0 || incoming.finished)
}

fn is_nonblocking(held: &Socket, fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || held.young.is_nonblocking(fd)
}

#[cold]
fn broken(held: &Socket) -> Errno {
    held.set_broken();
    held.report_end();
    libc::ECONNRESET
}

/// Whether the next byte goes through the ring. Bytes that the program has written past this library
/// keep this direction on TCP.
#[inline]
fn road_out(session: &Session<'_>, fd: c_int) -> bool {
    session.sends_by_ring() || change_road(session, fd)
}

#[cold]
fn change_road(session: &Session<'_>, fd: c_int) -> bool {
    if session.state() != State::Claimed {
        return false;
    }
    let counted = session.counted_by_tcp();
    let counts = sys::look_at_tcp(fd).and_then(|seen| seen.counts);
    if counts.is_none_or(|counts| counts.sent != counted) {
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
        road_out(session, fd);
        drop(lock);
        send::send_deferred(held, fd);
    }
}
