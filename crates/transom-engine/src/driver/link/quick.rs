//! The quick steps of a link: what a thread posts is judged, copied and published at once, and what has come is
//! placed, answered and completed, without a pass.
//!
//! [`Attention`](crate::Attention) has a bit for each state that needs a pass; [`Link::quiet`] asks for it, and the
//! steps that send demand its answer. A state that turns up on the way is left to a pass, in order. A Bind sends
//! nothing, and asks for less.

use std::sync::Arc;

use transom_memory::Lane;
use transom_process::{Records, Stop};
use transom_wire::Time;

use super::carrier::Carrier;
use super::notifications::Notifications;
use super::outlet::Outlet;
use super::queues::Queues;
use super::shared_memory::SOME;
use super::{Link, LinkDenials, LinkPhase, LinkState};
use crate::driver::capture::tap::Tap;
use crate::sys::{self, Host};
use crate::{Attention, Connection, Cx, Effect, Effects, Quiet, Status};

/// The peer is about to hear that there is no receive for its message, and one may wait in front of the link, or in
/// a shared queue: a receive that is posted counts (Verbs V94).
pub(super) fn has_unseen_receive(connection: &Connection, qp: &Option<Arc<dyn Queues>>) -> bool {
    connection.lacks_receive()
        && (connection.seeks_receive() || qp.as_ref().is_some_and(|qp| qp.is_waiting()))
}

impl Link {
    /// Whether nothing is unusual about the link, no thread waits here, and nothing is due yet.
    #[inline]
    pub(super) fn quiet(&self, state: &LinkState, now: Time) -> Option<Quiet> {
        let quiet = state.connection.is_quiet()?;
        (now < state.housekeeping_at && !self.is_waited_for()).then_some(quiet)
    }

    /// A pass is over: what it has left behind that asks for another one.
    pub(super) fn conclude(&self, state: &mut LinkState) {
        let chosen = matches!(state.carrier, Carrier::Tcp(_) | Carrier::SharedMemory(_));
        let carrier = !chosen || state.phase != LinkPhase::Open;
        let pending = state.is_pending();
        let behind = state.connection.wire().has_output();
        let attention = state.connection.attention();
        attention.put(Attention::CARRIER, carrier);
        attention.put(Attention::PENDING, pending);
        attention.put(Attention::PARTIAL, !state.partial.is_empty());
        attention.put(Attention::STARTING, state.starting.is_some());
        attention.put(Attention::TRACED, Tap::is_wanted(self));
        attention.put(Attention::BEHIND, behind);
    }

    /// Have `post` put requests or receives behind what is posted, and send what there is to send. `None`: a pass
    /// has to do that, and nothing has happened. The second value: a pass must follow ([`Link::catch_up`]).
    pub(crate) fn post_quick<R>(
        &self,
        post: impl FnOnce(&mut LinkState) -> Option<R>,
    ) -> Option<(R, bool)> {
        let now = sys::recently();
        if !self.watch.is_leased(now) {
            return None;
        }
        let mut notifications = Notifications::default();
        let (done, left) = self.lock.try_with(|state| {
            let quiet = self.quiet(state, now)?;
            let posted = post(state)?;
            let sent = self.send_quick(quiet, state, now, &mut notifications);
            Some((posted, !sent))
        })?;
        notifications.fire();
        done.map(|(posted, more)| (posted, more || left))
    }

    /// Have `bind` execute a Bind, after which an open connection needs no pass. `None` and the
    /// second value: as of [`Link::post_quick`].
    pub(crate) fn bind_now(
        &self,
        bind: impl FnOnce(&mut LinkState) -> Option<Result<(), Status>>,
    ) -> Option<(Result<(), Status>, bool)> {
        let (done, left) = self.lock.try_with(|state| {
            let connection = &state.connection;
            let open = connection.is_open() && connection.ended().is_none();
            // Only a pass tells a tracer or a capture of a Bind, or of its refusal.
            let quick = open && !connection.has_attention(Attention::TRACED);
            if quick { bind(state) } else { None }
        })?;
        done.map(|done| (done, left))
    }

    /// The core's tools in a quick step: no shared receives, and no tracer.
    #[inline]
    pub(super) fn quick_cx<'a>(
        &'a self,
        now: Time,
        lane: &'a mut Lane,
        effects: &'a mut Effects,
        denials: &'a LinkDenials<'_>,
    ) -> Cx<'a> {
        let memory = &self.shared.memory;
        Cx { now, memory, lane, host: &Host, denials, shared: None, effects, trace: None }
    }

    /// Send what was posted. `false`: a pass must follow. A call: compiled into each way to post, it would leave
    /// that way no registers.
    #[inline(never)]
    fn send_quick(
        &self,
        quiet: Quiet,
        state: &mut LinkState,
        now: Time,
        notifications: &mut Notifications,
    ) -> bool {
        let budget = self.shared.pass_budget();
        let LinkState { connection, carrier, lane, effects, out, written, .. } = &mut *state;
        let (memory, denials) = (&self.shared.memory, LinkDenials(self));
        match carrier {
            Carrier::SharedMemory(rings) => {
                let Some(bell) = self.bell.get() else { return false };
                let lane = lane.get_or_insert_with(|| memory.lane());
                let mut cx = self.quick_cx(now, lane, effects, &denials);
                let lenders = (&self.shared.regions, bell);
                let mut outlet = rings.carrier(lenders, (&mut out.bytes, written), budget);
                connection.transmit_posted(quiet, &mut cx, &mut outlet);
                rings.wake(bell);
            }
            Carrier::Tcp(tcp) => {
                // The lane is the thread's: a close of memory looks at all lanes, and such links are many.
                let mut worker = self.shared.workers.take();
                let (lane, _) = worker.tools(memory);
                let mut cx = self.quick_cx(now, lane, effects, &denials);
                let mut outlet = Outlet::new(self, (out, written), tcp, budget);
                connection.transmit_posted(quiet, &mut cx, &mut outlet);
                outlet.write();
            }
            Carrier::Upgrading(..) => return false,
        }
        self.is_done(state, notifications)
    }

    /// Take the records that have come, as far as they need no more. `false`: a pass must follow.
    pub(super) fn receive_quick(
        &self,
        state: &mut LinkState,
        now: Time,
        notifications: &mut Notifications,
    ) -> bool {
        let Some(_) = self.quiet(state, now) else { return false };
        let LinkState { connection, carrier, lane, effects, out, written, qp, .. } = &mut *state;
        let (Some(rings), Some(bell)) = (carrier.rings_mut(), self.bell.get()) else {
            return false;
        };
        let lane = lane.get_or_insert_with(|| self.shared.memory.lane());
        let denials = LinkDenials(self);
        let mut cx = self.quick_cx(now, lane, effects, &denials);
        let mut records = Records::new(&mut rings.duplex, SOME);
        let (_, silent) = connection.receive_frames(&mut cx, &mut records);
        let (cost, stop) = records.end();
        if let Stop::Broken(violation) = stop {
            connection.broken(&mut cx, violation.text());
        }
        if has_unseen_receive(connection, qp) {
            let _ = self.is_done(state, notifications);
            return false;
        }
        if !silent && connection.wants_write() {
            let lenders = (&self.shared.regions, bell);
            let budget = self.shared.pass_budget();
            let mut outlet = rings.carrier(lenders, (&mut out.bytes, written), budget);
            connection.transmit(&mut cx, &mut outlet);
        }
        rings.acknowledge(connection, bell, now);
        // Nothing to read: the other side may have ended.
        self.is_done(state, notifications) && stop != Stop::Left && cost > 0
    }

    /// The end of a quick step: pass on what has completed. Whether nothing is left for a pass.
    #[inline(always)]
    pub(super) fn is_done(&self, state: &mut LinkState, notifications: &mut Notifications) -> bool {
        let nothing = state.effects.list.is_empty() && state.out.bytes.is_empty();
        if nothing && state.connection.is_quiet().is_some() {
            // Requests were settled at most.
            self.events.post(&mut state.effects, state.qp.as_ref(), notifications);
            state.idle_until = Some(state.housekeeping_at);
            return true;
        }
        self.is_done_with_effects(state, notifications)
    }

    fn is_done_with_effects(
        &self,
        state: &mut LinkState,
        notifications: &mut Notifications,
    ) -> bool {
        let completions = |effect: &Effect| matches!(effect, Effect::Complete(..));
        if !state.out.bytes.is_empty() {
            state.connection.attention().set(Attention::PENDING);
        }
        let all =
            state.connection.is_quiet().is_some() && state.effects.list.iter().all(completions);
        if all {
            self.events.post(&mut state.effects, state.qp.as_ref(), notifications);
            state.idle_until = Some(state.housekeeping_at);
        } else {
            state.connection.attention().set(Attention::BEHIND);
        }
        all
    }
}
