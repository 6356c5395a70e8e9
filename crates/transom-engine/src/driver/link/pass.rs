//! A pass over a link, in five steps: handle events of the program, receive, keep deadlines,
//! send, notify. After it, [`Link::reschedule`] makes sure that a thread looks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_wire::Time;

use super::carrier::Carrier;
use super::control::report;
use super::notifications::Notifications;
use super::queues::Queues;
use super::tcp::First;
use super::{
    ARM, CARRIED, FLUSH, LAPSED, Link, LinkDenials, NEVER, POSTED, Phase, RECEIVE, SERVED, State,
};
use crate::driver::capture::tap::Tap;
use crate::driver::schedule::workers::Worker;
use crate::sys::{self, Host};
use crate::trace::Tracer;
use crate::{Cx, Effect, Execution, LinkWish};

/// For how long passes may go on without a look at what is due.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_micros(20);

impl Link {
    /// Run `work` with everything the core may use.
    pub(crate) fn with_cx<R>(
        &self,
        state: &mut State,
        worker: &mut Worker,
        now: Time,
        work: impl FnOnce(&mut State, &mut Cx<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        state.quiet = false;
        let shares = state.shares_receives;
        let qp = state.qp.take();
        let mut effects = std::mem::take(&mut state.effects);
        let denials = LinkDenials(self);
        let mut tap = Tap::of(self, state.captured);
        let (lane, staging) = worker.tools(&self.shared.memory);
        let mut cx = Cx {
            now,
            memory: &self.shared.memory,
            lane,
            host: &Host,
            denials: &denials,
            shared: qp.as_ref().filter(|_| shares).and_then(|qp| qp.shared_receives()),
            effects: &mut effects,
            trace: tap.as_mut().map(|tap| tap as &mut dyn Tracer),
        };
        let result = work(state, &mut cx, staging);
        state.captured = tap.and_then(|tap| tap.end);
        if state.qp.is_none() {
            state.qp = qp; // unless the call has just brought one
        }
        let path = || (state.carrier.name(), state.reason);
        self.observer.effects(&effects.list, path);
        state.effects = effects;
        state.report();
        result
    }

    #[inline]
    pub(crate) fn pass(&self, state: &mut State, bits: u8, notifications: &mut Notifications) {
        self.with_worker(state, bits, |state, worker| {
            self.pass_with(state, worker, sys::recently(), (bits, None, false), notifications);
        });
    }

    /// Call `work` with the thread's tools for a pass. Rings need no room to receive into, and have
    /// a lane of their own. That lane goes when the link goes to rest, because a close of memory
    /// looks at all lanes.
    pub(crate) fn with_worker<R>(
        &self,
        state: &mut State,
        bits: u8,
        work: impl FnOnce(&mut State, &mut Worker) -> R,
    ) -> R {
        if !state.carrier.is_shared_memory() {
            return work(state, &mut self.shared.workers.take());
        }
        let mut worker = Worker { lane: state.lane.take(), ..Worker::default() };
        let result = work(state, &mut worker);
        state.lane = worker.lane.filter(|_| bits & ARM == 0 && !state.gone);
        result
    }

    /// A pass whose first receive has been done, perhaps; `found`: there is something to read.
    pub(crate) fn pass_with(
        &self,
        state: &mut State,
        worker: &mut Worker,
        now: Time,
        (bits, first, found): (u8, First, bool),
        notifications: &mut Notifications,
    ) {
        if state.gone {
            return;
        }
        state.handle_posts(bits);
        self.with_cx(state, worker, now, |state, cx, staging| {
            self.exchange_bytes(state, cx, staging, bits, first);
            if bits & (FLUSH | ARM) != 0 {
                self.before_sleep(state, |state| {
                    self.exchange_bytes(state, cx, staging, RECEIVE | FLUSH, None);
                });
            }
        });
        self.notify(state, notifications);
        if state.gone {
            return;
        }
        if self.may_defer_housekeeping(state, now, bits, found) {
            state.idle_until = Some(state.housekeeping_at);
        } else {
            self.reschedule(state, now, bits);
        }
        state.quiet = self.is_quiet(state);
    }

    /// Whether the deadlines may be checked a little later: a polling thread holds the lease, and
    /// has found something, or has posted. That thread will be back at once, or its lease will
    /// lapse. A full socket has to be armed for writing by the pass that finds it full.
    fn may_defer_housekeeping(&self, state: &State, now: Time, bits: u8, found: bool) -> bool {
        let posted = bits != 0 && bits & !(CARRIED | POSTED) == 0;
        (found || posted && self.watch.is_leased(now))
            && !matches!(state.carrier, Carrier::Upgrading(..))
            && now < state.housekeeping_at
            && !self.is_waited_for()
            && !self.stuck.load(Ordering::Relaxed)
            && !state.is_pending()
            && !state.read_paused
            && state.connection.wants_read()
            && state.connection.ended().is_none()
    }

    /// Receive, keep deadlines, send: the steps of a pass that need the core.
    pub(crate) fn exchange_bytes(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        bits: u8,
        first: First,
    ) {
        let overdue = state.deadline.is_some_and(|deadline| deadline <= cx.now);
        if state.phase == Phase::Connecting && !self.finish_connect(state, cx) {
            if overdue {
                state.connection.on_deadline(cx);
            }
            return;
        }
        // Bytes that have arrived count, however late this side reads them: the peer sent them in
        // time.
        if bits & RECEIVE != 0 || overdue {
            self.receive_for(state, cx, staging, bits, first);
        }
        self.keep_deadlines(state, cx, bits, overdue);
        if bits != RECEIVE || state.connection.wants_write() || !state.out.bytes.is_empty() {
            self.send(state, cx);
        }
        if state.read_paused && state.connection.wants_read() {
            self.receive_bytes(state, cx, staging, (None, false));
            self.send(state, cx);
        }
    }

    #[inline]
    fn receive_for(
        &self,
        state: &mut State,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        bits: u8,
        first: First,
    ) {
        let asks = bits & (FLUSH | ARM | SERVED) != 0;
        let any = self.receive_bytes(state, cx, staging, (first, asks));
        if !any && first.is_none() {
            state.connection.idle_pass(cx.now);
        } else if any && bits & LAPSED != 0 {
            self.watch.kept_waiting();
        }
    }

    #[inline]
    fn keep_deadlines(&self, state: &mut State, cx: &mut Cx<'_>, bits: u8, overdue: bool) {
        if overdue {
            state.connection.on_deadline(cx);
            self.note_silence(state);
        }
        if bits & FLUSH != 0 {
            state.connection.before_blocking(cx.now);
        }
    }

    /// End the link if the connection wants that, and pass on what it has decided: completions to their
    /// queues, events to the link's owner.
    pub(crate) fn notify(&self, state: &mut State, notifications: &mut Notifications) {
        self.note_silence(state);
        let all_written = state.out.bytes.is_empty();
        match state.connection.link_wish() {
            LinkWish::Keep => {}
            LinkWish::Finish => {
                if all_written && state.phase == Phase::Open {
                    state.phase = Phase::Finished;
                    match self.bell.get() {
                        Some(bell) => bell.finish(),
                        None => self.stream.finish(),
                    }
                }
            }
            LinkWish::Close => state.gone = true,
        }
        if state.phase == Phase::Connecting && state.connection.ended().is_some() {
            state.gone = true; // there is no peer to disconnect from
        }
        if state.starting.is_some()
            && state.effects.list.iter().any(|effect| matches!(effect, Effect::Event(_)))
        {
            // A request or an answer has arrived, so the peer is known.
            state.starting = None;
        }
        let over = state.connection.ended().is_some();
        if state.connection.has_events()
            && let Some(qp) = &state.qp
        {
            for event in state.connection.take_events() {
                report(&self.shared, qp.number(), event, notifications);
            }
        }
        let unused = if over { state.connection.take_unused() } else { None };
        let undone = unused.and_then(|execution| Some((state.qp.take()?, execution)));
        if let Some((qp, execution)) = undone {
            qp.leave(self);
            if state.connection.is_outlived() {
                // Behind what has completed: the program may flush the queue pair at once.
                self.events.post(&mut state.effects, Some(&qp), notifications);
                self.events.detach(qp, execution, notifications);
            } else {
                // Before the program learns that the Connect came to nothing: it may be tried again at once.
                qp.reclaim(execution, notifications);
                self.events.post(&mut state.effects, Some(&qp), notifications);
            }
        } else {
            self.events.post(&mut state.effects, state.qp.as_ref(), notifications);
        }
        if state.gone {
            self.tear_down(state, notifications);
        }
    }

    pub(crate) fn tear_down(&self, state: &mut State, notifications: &mut Notifications) {
        let execution = state.connection.take_execution();
        if let (Some(qp), Some(execution)) = (state.qp.take(), execution) {
            // Completions may still be waiting among the events; none may overtake them (ND2 4.9).
            qp.leave(self);
            self.events.detach(qp, execution, notifications);
        }
        if let (Some(capture), Some(end)) = (&self.shared.capture, state.captured.take()) {
            capture.record(|recorder, now| recorder.close(end, now));
        }
        self.gone.store(true, Ordering::Relaxed);
        state.starting = None;
        state.partial = Vec::new();
        state.out.bytes = Vec::new();
        self.events.close();
        self.home(state).remove(self.fd());
        self.stream.shut();
        if let Some(bell) = self.bell.get() {
            bell.shut();
        }
        (state.carrier, state.lane) = (Carrier::tcp(None), None);
        self.shared.remove(self.key);
    }

    /// Make sure that a thread looks at the link again.
    pub(crate) fn reschedule(&self, state: &mut State, now: Time, bits: u8) {
        let pending = state.is_pending();
        let asked = state.carrier.awaits_answer();
        let stuck = pending && state.carrier.announces_room();
        if self.stuck.load(Ordering::Relaxed) != stuck {
            self.stuck.store(stuck, Ordering::Relaxed);
        }
        let arming = bits & ARM != 0;
        // When the background thread has taken over, the next pass is to see what is due.
        state.housekeeping_at = if arming { Time(0) } else { now.after(HOUSEKEEPING_INTERVAL) };
        let idle = !pending && !state.read_paused && state.connection.wants_read();
        let deadline = state.connection.deadline();
        state.deadline = deadline;
        state.idle_until = idle.then(|| deadline.unwrap_or(Time(NEVER)));
        let waited = self.is_waited_for();
        if let Some(mut when) = deadline.filter(|_| bits & SERVED == 0) {
            if !arming {
                // A thread of the program was here just now and may be back at once; what is due
                // sooner than a lease can wait for it that long.
                when = when.max(now.after(self.shared.options.lease));
            }
            self.note(when);
        }
        let moved = state.carrier.take_moved();
        if (self.set_read_paused(!state.connection.wants_read()) || moved)
            && waited
            && let Some(qp) = &state.qp
        {
            qp.look_again(); // a sleeper there must wait for another descriptor from now on
        }
        if moved && !arming {
            // The descriptor armed before is no longer read. A pass of the background thread arms
            // the new one.
            self.note(now);
        }
        if !self.watch.stays_leased(now, self.alarm()) && (arming || stuck || asked) {
            let established = state.phase != Phase::Connecting || asked;
            let read = state.connection.wants_read() && !waited && established;
            if read || stuck {
                self.leave_unaccepted(state);
                let _ = self.home(state).arm(self.fd(), self.key, read, stuck);
            }
        }
        if (arming || waited) && self.is_unread() {
            // The one that waits may not know: it was asleep before this pass, or left it to us.
            self.note(now);
        }
        if arming {
            // Going to sleep: an idle connection holds no buffers.
            if state.partial.is_empty() {
                state.partial = Vec::new();
            }
            if state.out.bytes.is_empty() {
                state.out.bytes = Vec::new();
            }
        }
        if let Some(rings) = state.carrier.rings_mut()
            && (arming || waited)
            && let Some(when) = rings.tidy(now)
        {
            self.note(when);
        }
    }
}

impl State {
    /// There is more to send than the socket takes, or it is not connected yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.out.bytes.is_empty() || self.more || self.phase == Phase::Connecting
    }

    /// Events of the program: carry new posts over, unless the thread that posted has done so.
    #[inline]
    fn handle_posts(&mut self, bits: u8) {
        if bits & !(RECEIVE | CARRIED) != 0 || bits == 0 {
            self.exchange();
        }
    }

    /// A queue pair to work on.
    pub(crate) fn attach(&mut self, qp: Arc<dyn Queues>) {
        self.shares_receives = qp.shared_receives().is_some();
        self.qp = Some(qp);
    }

    /// Carry new posts over, and the state back.
    pub(crate) fn exchange(&mut self) {
        if let (Some(qp), Some(execution)) = (&self.qp, self.connection.execution()) {
            qp.exchange(execution);
        }
    }

    /// The executing half of `qp`, if that is the link's queue pair (still, or already).
    pub(crate) fn execution_of<Q>(&mut self, qp: &Q) -> Option<&mut Execution> {
        let is_ours = self.qp.as_ref().is_some_and(|ours| std::ptr::addr_eq(Arc::as_ptr(ours), qp));
        if is_ours { self.connection.execution() } else { None }
    }

    /// After a pass: tell the front half of a state that it does not know.
    #[inline]
    pub(crate) fn report(&mut self) {
        let (Some(qp), Some(execution)) = (&self.qp, self.connection.execution()) else { return };
        if execution.is_news() {
            qp.exchange(execution);
        }
    }
}
