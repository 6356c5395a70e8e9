//! The short way of Writes of one frame: posted, judged, copied and published, without a pass; and,
//! over shared memory, received, judged, placed and settled. What TCP has brought has one in `tcp.rs`
//! (`Link::receive_few`). A Bind has a short way on every link.
//!
//! `State::quiet` says that nothing about a link asks for a pass: it is computed behind each one, and
//! taken back before each. What turns out to be unusual on the way is left to a pass, in order.

use transom_memory::Lane;
use transom_wire::Time;

use super::carrier::Carrier;
use super::notifications::Notifications;
use super::rings::{Records, WholeRecords};
use super::shared_memory::SOME;
use super::tcp::Outlet;
use super::{Link, LinkDenials, State};
use crate::driver::capture::tap::Tap;
use crate::sys::{self, Host};
use crate::{Cx, Effects, Output, Status};

impl Link {
    /// Whether nothing about the link asks for a pass, so that whole Writes may go the short way.
    pub(super) fn is_quiet(&self, state: &State) -> bool {
        !matches!(state.carrier, Carrier::Upgrading(..))
            && !state.gone
            && !state.is_pending()
            && !state.read_paused
            && !state.shares_receives
            && state.partial.is_empty()
            && state.starting.is_none()
            && !Tap::is_wanted(self)
            && state.connection.is_quiet()
    }

    /// Whether the short way is open: as [`Link::is_quiet`], no thread waits here, and nothing is
    /// due yet.
    #[inline]
    pub(super) fn is_short(&self, state: &State, now: Time) -> bool {
        state.quiet && now < state.housekeeping_at && !self.is_waited_for()
    }

    /// Have `post` put whole Writes behind what is posted, and send them. `None`: that is not for now, and
    /// nothing has happened. The second value: a pass must follow ([`Link::catch_up`]).
    pub(crate) fn post_short(
        &self,
        post: impl FnOnce(&mut State) -> Option<Result<(), Status>>,
    ) -> Option<(Result<(), Status>, bool)> {
        let now = sys::recently();
        if !self.watch.is_leased(now) {
            return None;
        }
        let (done, left) = self.lock.try_with(|state| {
            if !self.is_short(state, now) {
                return None;
            }
            let posted = post(state)?;
            let sent = posted.is_err() || self.send_short(state, now);
            Some((posted, !sent))
        })?;
        done.map(|(posted, more)| (posted, more || left))
    }

    /// Have `bind` execute a Bind, after which an open connection needs no pass. `None` and the
    /// second value: as of [`Link::post_short`].
    pub(crate) fn bind_short(
        &self,
        bind: impl FnOnce(&mut State) -> Option<Result<(), Status>>,
    ) -> Option<(Result<(), Status>, bool)> {
        // Only a pass reports to a tracer.
        if self.shared.options.trace.is_some() {
            return None;
        }
        let (done, left) = self.lock.try_with(|state| {
            let open = state.connection.is_open() && state.connection.ended().is_none();
            if open { bind(state) } else { None }
        })?;
        done.map(|done| (done, left))
    }

    /// The core's tools on the short way: no shared receives, and no tracer.
    #[inline]
    pub(super) fn short_cx<'a>(
        &'a self,
        now: Time,
        lane: &'a mut Lane,
        effects: &'a mut Effects,
        denials: &'a LinkDenials<'_>,
    ) -> Cx<'a> {
        let memory = &self.shared.memory;
        Cx { now, memory, lane, host: &Host, denials, shared: None, effects, trace: None }
    }

    /// Send the whole Writes that were posted. `false`: something is left. A call: compiled into each way
    /// to post it would leave that way no registers.
    #[inline(never)]
    fn send_short(&self, state: &mut State, now: Time) -> bool {
        let budget = self.shared.pass_budget();
        let State { connection, carrier, lane, effects, out, written, .. } = &mut *state;
        let (memory, denials) = (&self.shared.memory, LinkDenials(self));
        let all = match carrier {
            Carrier::SharedMemory(rings) => {
                let Some(bell) = self.bell.get() else { return false };
                let lane = lane.get_or_insert_with(|| memory.lane());
                let mut cx = self.short_cx(now, lane, effects, &denials);
                let lenders = Some((&self.shared.regions, bell));
                let mut outlet = Records::new(rings, (&mut out.bytes, written), lenders, budget);
                let all = connection.transmit_whole(&mut cx, &mut outlet);
                rings.wake(bell);
                all
            }
            Carrier::Tcp(tcp) => {
                // The lane is the thread's: a close of memory looks at all lanes, and such links are many.
                let mut worker = self.shared.workers.take();
                let (lane, _) = worker.tools(memory);
                let mut cx = self.short_cx(now, lane, effects, &denials);
                let mut outlet = Outlet::new(self, (out, written), tcp, budget);
                let all = connection.transmit_whole::<dyn Output>(&mut cx, &mut outlet);
                outlet.write() && all
            }
            Carrier::Upgrading(..) => false,
        };
        let all = all && effects.list.is_empty();
        if now < state.housekeeping_at {
            state.idle_until = Some(state.housekeeping_at);
        }
        state.quiet = all;
        if !all {
            state.report();
        }
        all
    }

    /// Take the whole Writes that have come, as far as they follow each other. `false`: a pass must follow.
    pub(super) fn receive_short(
        &self,
        state: &mut State,
        now: Time,
        notifications: &mut Notifications,
    ) -> bool {
        if !self.is_short(state, now) {
            return false;
        }
        let State { connection, carrier, lane, effects, .. } = &mut *state;
        let (Some(rings), Some(bell)) = (carrier.rings_mut(), self.bell.get()) else {
            return false;
        };
        let lane = lane.get_or_insert_with(|| self.shared.memory.lane());
        let denials = LinkDenials(self);
        let mut cx = self.short_cx(now, lane, effects, &denials);
        let mut records = WholeRecords::new(rings, SOME);
        let usual = connection.receive_run(&mut cx, &mut records);
        let WholeRecords { cost, violation, .. } = records;
        if !usual || violation.is_some() {
            // The ordinary read says which record it is, or what is wrong with it.
            rings.duplex.put_back();
        }
        let quiet = usual && cost > 0 && connection.is_still_quiet();
        if !quiet {
            state.quiet = false;
            return false;
        }
        rings.acknowledge(connection, bell, now);
        // A change of the queue pair's state ends the connection, which is not quiet then: there is
        // nothing to report.
        self.events.post(&mut state.effects, state.qp.as_ref(), notifications);
        state.idle_until = Some(state.housekeeping_at);
        true
    }
}
