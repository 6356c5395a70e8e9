//! Records between a link's rings and its connection: the counterpart of `tcp`.
//!
//! A side that polls needs no signal; a side that sleeps has set a mark in the shared memory, and
//! the writer that finds the mark rings its socket, once. A thread sets the mark and then looks
//! again before it sleeps (`LinkState::falls_asleep`), so nothing is written unseen in between.

use std::time::Duration;

use transom_core::LinkEnd;
use transom_process::record::{self, HEADER, Header};
use transom_process::ring::{Found, Record, RingViolation};
use transom_process::{Records, Stop, UNIT};
use transom_wire::Time;

use super::carrier::Carrier;
use super::lending::{LentHost, with_host};
use super::quick::has_unseen_receive;
use super::rings::Rings;
use super::silence::Silence;
use super::tcp::FRAME;
use super::{Link, LinkState};
use crate::{Connection, Cx};

/// The cost of records that are taken before it is asked whether to acknowledge, in [`UNIT`]s.
pub(super) const SOME: usize = 16;
/// A deadline that is noticed so much too late says nothing about the other side: this process, or
/// its machine, was stopped.
const STOOD_STILL: Duration = Duration::from_secs(1);

impl Link {
    /// Take records until there are none, the quota is used up or a control call waits. `false`: there
    /// was nothing.
    pub(crate) fn receive_records(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        asks: bool,
    ) -> bool {
        let mut any = false;
        if let (Some(rings), Some(bell)) = (state.carrier.rings_mut(), self.bell.get())
            && asks
        {
            rings.ask(bell, cx.now);
        }
        let budget = self.shared.pass_budget();
        let mut taken = 0;
        loop {
            if state.connection.awaits_queue_pair() {
                // The records of the ring stay where they are until then.
                if state.carrier.rings().is_some_and(|rings| rings.over) {
                    state.connection.link_closed(cx, LinkEnd::Closed);
                }
                break;
            }
            let pauses = !state.connection.wants_read();
            if pauses || taken >= budget || self.lock.is_wanted() && any {
                break;
            }
            let LinkState { carrier: Carrier::SharedMemory(rings), connection, .. } = &mut *state
            else {
                break;
            };
            let mut records = Records::new(&mut rings.duplex, SOME);
            connection.receive_frames(cx, &mut records);
            let (cost, stop) = records.end();
            any |= cost > 0;
            taken += cost * UNIT;
            match stop {
                Stop::Spent => {}
                Stop::Empty if rings.over => {
                    connection.link_closed(cx, LinkEnd::Closed);
                    return true;
                }
                Stop::Empty => break,
                Stop::Broken(violation) => {
                    connection.broken(cx, violation.text());
                    return true;
                }
                Stop::Left => {
                    any = true;
                    taken += self.receive_left(state, cx);
                }
            }
            self.answer_records(state, cx.now);
        }
        if any {
            self.answer_records(state, cx.now);
        }
        any
    }

    /// Take the next record by itself: it names a region, or is a text. Its cost in bytes.
    fn receive_left(&self, state: &mut LinkState, cx: &mut Cx<'_>) -> usize {
        let LinkState { carrier: Carrier::SharedMemory(rings), connection, .. } = state else {
            return 0;
        };
        if let Some(bell) = self.bell.get() {
            rings.take_regions(bell, cx.now);
        }
        match rings.duplex.read() {
            Some(Ok(Record { header, body })) => {
                hand_on(rings, connection, cx, (&header, body));
                FRAME + header.payload()
            }
            Some(Err(violation)) => {
                connection.broken(cx, violation.text());
                0
            }
            None => 0,
        }
    }

    /// Acknowledge what was taken, unless a receive that has just been posted is part of the answer.
    fn answer_records(&self, state: &mut LinkState, now: Time) {
        if !has_unseen_receive(&state.connection, &state.qp) {
            self.acknowledge_and_wake(state, now);
        }
    }

    /// Acknowledge and wake, as far as it is time.
    pub(crate) fn acknowledge_and_wake(&self, state: &mut LinkState, now: Time) {
        if let (Some(rings), Some(bell)) = (state.carrier.rings_mut(), self.bell.get()) {
            rings.acknowledge(&mut state.connection, bell, now);
        }
    }

    /// Have the connection say what it has to say, and write it.
    pub(crate) fn send_records(&self, state: &mut LinkState, cx: &mut Cx<'_>) {
        let budget = self.shared.pass_budget();
        let mut sent = 0;
        if let Some(again) = state.carrier.rings_mut().and_then(|rings| rings.open_area(cx.now)) {
            self.note(again);
        }
        loop {
            let LinkState { connection, out, written, carrier, .. } = state;
            let Some(rings) = carrier.rings_mut() else { return };
            let Some(bell) = self.bell.get() else { return };
            let before = sent;
            let stop = sent >= budget || self.lock.is_wanted() && sent > 0;
            let flowing = rings.duplex.write(&mut out.bytes, written);
            let most = if stop || !flowing { 0 } else { budget - sent };
            let lenders = (&self.shared.regions, bell);
            let mut outlet = rings.carrier(lenders, (&mut out.bytes, written), most);
            connection.transmit(cx, &mut outlet);
            sent += outlet.sent();
            let flowing = rings.duplex.write(&mut out.bytes, written);
            let over = stop || sent >= budget || self.lock.is_wanted();
            if state.end_send(over, flowing, sent > before) {
                break;
            }
            // Let the other side begin while we go on.
            self.acknowledge_and_wake(state, cx.now);
        }
        self.acknowledge_and_wake(state, cx.now);
        self.mind_silence(state, cx);
    }

    /// A side that reads nothing for too long, while we have more for it than fits, is given up, as TCP
    /// does it (TCP_USER_TIMEOUT). A connection that has nothing to write waits as long as it takes.
    fn mind_silence(&self, state: &mut LinkState, cx: &mut Cx<'_>) {
        let waiting = !state.out.bytes.is_empty() || state.connection.wants_write();
        let Some(rings) = state.carrier.rings_mut() else { return };
        let Some(since) = rings.duplex.stuck_since(waiting, cx.now) else { return };
        let end = since.after(self.shared.options.silence);
        if cx.now < end {
            return self.note(end);
        }
        if cx.now > end.after(STOOD_STILL) {
            rings.duplex.forget_stuck(); // it was us who stood still, and maybe both
            return self.note(cx.now.after(STOOD_STILL));
        }
        let _ = self.silence.set(Silence::Untaken);
        state.connection.link_closed(cx, LinkEnd::TimedOut);
    }
}

impl LinkState {
    /// Tell the other side that this one sleeps from now on and wants to be woken. `false`: there is more to do.
    pub(super) fn falls_asleep(&mut self) -> bool {
        let Some(rings) = self.carrier.rings_mut() else { return true };
        let asleep = rings.duplex.fall_asleep() && !rings.over;
        let asleep = asleep || !self.connection.wants_read() || self.connection.awaits_queue_pair();
        if !asleep {
            rings.duplex.wake_up();
        }
        asleep
    }
}

/// A record, to the connection.
fn hand_on(
    rings: &Rings,
    connection: &mut Connection,
    cx: &mut Cx<'_>,
    (header, body): (&Header, Found),
) {
    // Payload of the program's lies elsewhere; all other is a text.
    let mut room = [0; HEADER + record::LARGEST_TEXT];
    let used = rings.duplex.copy(header, body, &mut room);
    let bytes = room.get(..used).unwrap_or_default();
    let lent = match body {
        Found::Lent(lent) => rings.duplex.area().borrowed.find(lent, 0).ok().map(LentHost),
        Found::Inline(_) | Found::At(..) | Found::Sink(_) | Found::Placed => None,
    };
    let received = match &lent {
        Some(host) => with_host(cx, host, |cx| connection.receive(cx, bytes)),
        None => connection.receive(cx, bytes),
    };
    if received.consumed < used {
        // The address holds for this call only: the region may be unmapped before the next one.
        connection.broken(cx, RingViolation::Region.text());
    }
}
