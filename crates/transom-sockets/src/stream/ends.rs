//! How a connection ends: by `shutdown`, by the peer's close or death, by a reset.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_switch::session::{Incoming, Road, Session, State};
use transom_switch::wait::Wait;

use super::send::send_deferred;
use super::{road_out, wake_reader};
use crate::epoll;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// Ticks of the processor's clock, some 20 µs: a call that finds nothing looks at the TCP socket of a peer that may
/// have died, unless one did so less long ago. What a program knows of the death of another process has taken
/// longer.
const LOOKS: u64 = 60_000;
/// Calls behind the departure of a process from the other end that look in any case: the kernel may tell this
/// end a moment later that it was the last one.
const ALERT: u32 = 8;

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

/// Whether a process has left the other end a moment ago, perhaps as the last one.
#[inline]
pub(crate) fn is_left(held: &Socket, session: &Session<'_>) -> bool {
    let departures = session.peer().departures.load(Ordering::Acquire);
    if departures != held.departures.load(Ordering::Relaxed) {
        held.departures.store(departures, Ordering::Relaxed);
        held.alert.store(ALERT, Ordering::Relaxed);
    }
    let alert = held.alert.load(Ordering::Relaxed);
    if alert > 0 {
        held.alert.store(alert - 1, Ordering::Relaxed);
    }
    alert > 0
}

/// Whether this call is one that looks at the TCP socket, whatever the rings say.
pub(crate) fn is_look(held: &Socket, session: &Session<'_>) -> bool {
    if is_left(held, session) {
        return true;
    }
    let now = sys::ticks();
    let due = now.wrapping_sub(held.looked.load(Ordering::Relaxed)) > LOOKS;
    if due {
        held.looked.store(now, Ordering::Relaxed);
    }
    due
}

/// Whether TCP has no connection any more, nor the name of a peer: behind the ends of both directions in whatever
/// order, behind a reset, and behind the answer to what was sent to a peer that had closed.
pub(crate) fn is_closed(held: &Socket, session: &Session<'_>, fd: c_int) -> bool {
    if session.sends_by_ring() {
        held.look_at_tcp(fd);
    }
    let answered = || session.has_finished() || held.was_refused() || is_reset(held, session);
    is_over(session) || held.is_gone() && answered()
}

/// Whether both directions have ended in the rings: TCP keeps no state then.
fn is_over(session: &Session<'_>) -> bool {
    session.has_finished() && session.arrived().is_ok_and(|incoming| incoming.finished)
}

/// Whether the end of the peer is a reset: it asked for one, has left bytes unread, or broke a rule. One of a
/// connection whose directions have both ended is none: TCP keeps no state by then that it could concern
/// (RFC 9293, 3.6). A peer that has not claimed the segment counts nothing there: the kernel knows its resets.
pub(crate) fn is_reset(held: &Socket, session: &Session<'_>) -> bool {
    let left = || session.peer().abortive.load(Ordering::Relaxed) != 0 || !session.is_all_read();
    let counts = || session.state() == State::Claimed;
    held.is_broken() || held.is_gone() && counts() && left() && !is_over(session)
}

/// The peer has closed, or its process has ended: how this end's reads end. A call that has got something leaves
/// the error for the next one.
#[cold]
pub(super) fn end_of_input(
    held: &Socket,
    session: &Session<'_>,
    incoming: &Incoming,
    got: usize,
) -> Result<usize, Errno> {
    let orderly = incoming.finished || !is_reset(held, session);
    if orderly || got > 0 || !held.report_end() { Ok(0) } else { Err(libc::ECONNRESET) }
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

/// As [`take_error`], where the end need not be known yet.
pub(crate) fn error_now(held: &Socket, fd: c_int) -> Option<Errno> {
    let session = held.session()?;
    let known = sys::option(fd, libc::SOL_SOCKET, libc::SO_ERROR).ok().filter(|error| *error != 0);
    if session.state() != State::Claimed {
        return known;
    }
    held.look_at_tcp(fd);
    // Behind the change to the ring the kernel's error may come from doorbells that a process left when it ended.
    let counts = session.road_in() != Ok(Road::Ring);
    take_error(held, &session).or_else(|| known.filter(|_| counts && held.report_end()))
}

/// As [`error_now`], of a call that looks at the TCP socket as often as any.
pub(crate) fn error_before(held: &Socket, fd: c_int) -> Option<Errno> {
    let session = held.session()?;
    if session.road_in() == Ok(Road::Ring) && !is_look(held, &session) {
        return take_error(held, &session);
    }
    error_now(held, fd)
}

/// The state of the connection, as `TCP_INFO` has it, where the kernel's socket has seen no end: those of a direction
/// are in the segment.
pub(crate) fn tcp_state(held: &Socket, session: &Session<'_>, fd: c_int, of_kernel: u8) -> u8 {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT2: u8 = 5;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    let finished = session.arrived().is_ok_and(|incoming| incoming.finished);
    match (of_kernel, session.has_finished(), finished) {
        (ESTABLISHED, false, true) => CLOSE_WAIT,
        (ESTABLISHED, true, false) => FIN_WAIT2,
        (ESTABLISHED, true, true) => CLOSE,
        (CLOSE_WAIT, ..) if is_closed(held, session, fd) => CLOSE,
        _ => of_kernel,
    }
}

/// `shutdown`.
pub(crate) fn shutdown(held: &Socket, fd: c_int, how: c_int) -> Result<(), Errno> {
    send_deferred(held, fd);
    let Some(session) = held.session() else { return Err(libc::EBADF) };
    let over = is_closed(held, &session, fd);
    let done = end_directions(held, &session, fd, how, over);
    let done = if over && done.is_ok() { Err(libc::ENOTCONN) } else { done };
    if done != Err(libc::EINVAL) {
        session.end().shutdowns.fetch_add(1, Ordering::SeqCst);
        epoll::changed(held);
    }
    done
}

fn end_directions(
    held: &Socket,
    session: &Session<'_>,
    fd: c_int,
    how: c_int,
    over: bool,
) -> Result<(), Errno> {
    let (reads, writes) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Err(libc::EINVAL),
    };
    // A peer that has not agreed by now finds an ordinary end of TCP.
    session.withdraw();
    let by_ring = {
        let _lock = held.sending(session)?;
        road_out(session, fd)
    };
    if !by_ring {
        return sys::shutdown(fd, how).map(|_| ());
    }
    if held.look_at_tcp(fd) {
        if writes && !over {
            let _lock = held.sending(session)?;
            let _ = session.finish();
        }
        return sys::shutdown(fd, how).map(|_| ());
    }
    if writes {
        let woken = {
            let _lock = held.sending(session)?;
            session.finish()
        };
        wake_reader(session, fd, woken);
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
