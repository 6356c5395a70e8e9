//! How long a call waits, and where.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_switch::session::{Road, Session};
use transom_switch::wait::Wait;

use super::{has_input, unread};
use crate::cancel;
use crate::ready;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// How long a thread sleeps on a word before it looks at the TCP socket, or sleeps there. No round number:
/// a signal between two sleeps does not end the call, and timers of programs have round numbers.
pub(crate) const NAP: Duration = Duration::from_millis(43);

/// How long a blocking sender waits for a reader of a ring that has 256 KiB, before it takes memory for more.
const GROWS: Duration = Duration::from_millis(5);

/// How a call waits: it looks for a while, then sleeps on the word, then in the kernel.
#[derive(Default)]
pub(super) struct Patience {
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
    pub(super) fn wait_for_bytes(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        (road, some): (Road, bool),
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
            return self.nap(held, session, fd, (session.for_bytes(), NAP, some), &there);
        }
        ready::sleep_in_kernel(held, session, fd, (self.deadline, some))
    }

    /// Behind a look that has shown less than the call waits for. An error: nothing more comes, or in time.
    #[inline(never)]
    pub(super) fn wait_for_more(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        seen: usize,
    ) -> Result<(), Errno> {
        let ended = || {
            held.is_gone()
                || session.end().read_shut.load(Ordering::Relaxed) != 0
                || session.arrived().map_or(true, |incoming| {
                    // A look ends before an urgent byte, too.
                    incoming.finished || incoming.bytes < incoming.all
                })
        };
        let more = || unread(session, fd).unwrap_or_else(|| sys::unread(fd)) > seen as u64;
        self.start(fd, libc::SO_RCVTIMEO);
        if !more() && (sys::now() >= self.deadline || ended()) {
            return Err(libc::EAGAIN);
        }
        // Bytes that come over TCP wake nobody who sleeps on a word.
        let by_ring = session.road_in() == Ok(Road::Ring);
        let limit = if by_ring { NAP } else { Duration::from_nanos(ready::SHORT) };
        self.nap(held, session, fd, (session.for_bytes(), limit, true), &|| more() || ended())
    }

    #[inline(never)]
    pub(super) fn wait_for_room(
        &mut self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        (deep, some): (bool, bool),
    ) -> Result<(), Errno> {
        if !session.sends_by_ring() {
            self.start(fd, libc::SO_SNDTIMEO);
            let left = self.deadline.saturating_sub(sys::now());
            let mut room = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
            // The road may change meanwhile.
            let limit = left.min(NAP.as_nanos() as u64);
            let _asleep = held.sleeps();
            cancel::asleep(|| sys::poll(&mut room, Some(limit), std::ptr::null()))?;
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
        self.nap(held, session, fd, (session.for_room(), limit, some), &there)
    }

    /// Sleep on the word, if the peer still lives; for a while only, because a peer that is killed wakes
    /// nobody. `some`: the call has done a part of what it was asked for.
    fn nap(
        &self,
        held: &Socket,
        session: &Session<'_>,
        fd: c_int,
        (wait, limit, some): (&Wait, Duration, bool),
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
        // A socket with a time limit goes on behind no signal, nor does a call that has a part to report (signal(7)).
        let goes_on = self.deadline == u64::MAX && !some;
        let sleep = if goes_on { sys::sleep_on } else { sys::sleep_until_signal };
        let _asleep = held.sleeps();
        match cancel::asleep(|| sleep(wait.word(), value, left.min(limit))) {
            Err(libc::ETIMEDOUT) => Ok(()),
            done => done,
        }
    }
}
