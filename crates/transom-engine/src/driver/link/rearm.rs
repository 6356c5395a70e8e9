//! The end of a pass: deadlines, alarms and descriptors are set so that a thread looks at the link again.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use transom_wire::Time;

use super::carrier::Carrier;
use super::pass::Pass;
use super::rings::Rings;
use super::work::{Then, Work};
use super::{Link, LinkPhase, LinkState, NEVER};
use crate::Attention;

/// For how long passes may go on without a look at what is due.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_micros(20);

/// The events of a link's descriptor that a thread which sleeps waits for, as of the last [`Link::rearm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// None: bytes are not read on purpose, and would only keep waking it.
    Nothing,
    Bytes,
    /// Bytes, and room for what is pending.
    BytesAndRoom,
}

impl Interest {
    fn of(hears: bool, stuck: bool) -> Interest {
        match (hears, stuck) {
            (false, _) => Interest::Nothing,
            (true, false) => Interest::Bytes,
            (true, true) => Interest::BytesAndRoom,
        }
    }
}

/// An [`Interest`] that is written under the link's lock, and read without it.
#[derive(Debug)]
pub(super) struct AtomicInterest(AtomicU8);

impl Default for AtomicInterest {
    fn default() -> AtomicInterest {
        AtomicInterest(AtomicU8::new(Interest::Bytes as u8))
    }
}

impl AtomicInterest {
    pub(super) fn get(&self) -> Interest {
        match self.0.load(Ordering::Relaxed) {
            0 => Interest::Nothing,
            1 => Interest::Bytes,
            _ => Interest::BytesAndRoom,
        }
    }

    fn set(&self, interest: Interest) {
        if self.get() != interest {
            self.0.store(interest as u8, Ordering::Relaxed);
        }
    }
}

impl Link {
    /// Whether the deadlines may be checked a little later: a polling thread holds the lease, and
    /// has found something, or has posted. That thread will be back at once, or its lease will
    /// lapse. A full socket has to be armed for writing by the pass that finds it full.
    fn may_defer_housekeeping(&self, state: &LinkState, pass: Pass) -> bool {
        let Pass { work, now, found, .. } = pass;
        (found || work.is_posts() && self.watch.is_leased(now))
            && !matches!(state.carrier, Carrier::Upgrading(..))
            && now < state.housekeeping_at
            && !self.is_waited_for()
            && self.interest.get() == Interest::Bytes
            && !state.is_pending()
            && !state.connection.has_attention(Attention::UNREAD)
            && state.connection.wants_read()
            && state.connection.ended().is_none()
    }

    /// Make sure that a thread looks at the link again.
    pub(super) fn rearm(&self, state: &mut LinkState, pass: Pass) {
        if self.may_defer_housekeeping(state, pass) {
            state.idle_until = Some(state.housekeeping_at);
            return;
        }
        let Pass { work, now, .. } = pass;
        let rests = work.then == Then::Rest;
        let stuck = state.is_pending() && state.carrier.announces_room();
        self.note_deadline(state, now, work);
        let starved = state.carrier.rings().and_then(Rings::starved);
        if let Some(when) = starved {
            // A thread that waits for the descriptor would find it ready again and again.
            self.shared.say_starved();
            self.note(when);
        }
        let hears = starved.is_none() && state.connection.wants_read();
        self.follow_descriptor(state, now, rests, Interest::of(hears, stuck));
        self.arm(state, now, rests, (hears, stuck));
        let waited = self.is_waited_for();
        self.watch.note_unread(now, rests, self.is_unread(), self.alarm());
        if rests {
            state.release_buffers();
        }
        if let Some(rings) = state.carrier.rings_mut()
            && (rests || waited)
            && let Some(when) = rings.tidy(now)
        {
            self.note(when);
        }
    }

    /// Have the background thread look when the connection's deadline comes, and say until when a poll
    /// that finds nothing needs no pass.
    fn note_deadline(&self, state: &mut LinkState, now: Time, work: Work) {
        let rests = work.then == Then::Rest;
        // When the background thread has taken over, the next pass is to see what is due.
        state.housekeeping_at = if rests { Time(0) } else { now.after(HOUSEKEEPING_INTERVAL) };
        let unread = state.connection.has_attention(Attention::UNREAD);
        let idle = !state.is_pending() && !unread && state.connection.wants_read();
        let deadline = state.connection.deadline();
        state.deadline = deadline;
        state.idle_until = idle.then(|| deadline.unwrap_or(Time(NEVER)));
        if let Some(mut when) = deadline.filter(|_| !work.served) {
            if !rests {
                // A thread of the program was here just now and may be back at once; what is due
                // sooner than a lease can wait for it that long.
                when = when.max(now.after(self.shared.options.lease));
            }
            self.note(when);
        }
    }

    /// A thread that waits for a descriptor is to wait for another one, or for none, if that has changed.
    fn follow_descriptor(&self, state: &mut LinkState, now: Time, rests: bool, interest: Interest) {
        let moved = state.carrier.take_moved();
        let before = self.interest.get();
        self.interest.set(interest);
        let hears = |interest| interest != Interest::Nothing;
        if (hears(before) != hears(interest) || moved)
            && self.is_waited_for()
            && let Some(qp) = &state.qp
        {
            qp.look_again();
        }
        if moved && !rests {
            // The descriptor armed before is no longer read. A pass of the background thread arms
            // the new one.
            self.note(now);
        }
    }

    /// Arm the descriptor in epoll, unless a thread polls. `hears`: for bytes; `stuck`: what is pending waits for room.
    fn arm(&self, state: &mut LinkState, now: Time, rests: bool, (hears, stuck): (bool, bool)) {
        let asked = state.carrier.awaits_answer();
        if self.watch.stays_leased(now, self.alarm()) || !(rests || stuck || asked) {
            return;
        }
        let established = state.phase != LinkPhase::Connecting || asked;
        let read = hears && !self.is_waited_for() && established;
        if read || stuck {
            self.leave_unaccepted(state);
            let _ = self.home(state).arm(self.fd(), self.key, read, stuck);
        }
    }
}

impl LinkState {
    /// An idle connection holds no buffers, and no lane, because a close of memory looks at all lanes.
    fn release_buffers(&mut self) {
        self.lane = None;
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        if self.out.bytes.is_empty() {
            self.out.bytes = Vec::new();
        }
    }
}
