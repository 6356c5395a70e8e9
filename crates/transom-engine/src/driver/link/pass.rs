//! A pass over a link, in five steps: carry posts over, receive, keep deadlines, send, notify. Behind
//! it, [`Link::rearm`] makes sure that a thread looks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use transom_wire::Time;

use super::carrier::Carrier;
use super::control::report;
use super::notifications::Notifications;
use super::queues::Queues;
use super::tcp::First;
use super::work::{Posts, Then, Work};
use super::{Link, LinkDenials, LinkPhase, LinkState};
use crate::driver::capture::tap::Tap;
use crate::driver::config::options::Resets;
use crate::driver::schedule::workers::Worker;
use crate::sys::Host;
use crate::trace::Tracer;
use crate::{Attention, Cx, Effect, Execution, LinkWish};

/// A pass: the work that is asked of it, and the work that its thread has done already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) work: Work,
    pub(crate) now: Time,
    /// The outcome of a receive that was done ahead.
    pub(crate) first: First,
    /// A look has found something to read.
    pub(crate) found: bool,
}

impl Pass {
    /// A pass that begins with nothing done.
    pub(crate) fn of(work: Work, now: Time) -> Pass {
        Pass { work, now, first: None, found: false }
    }
}

impl Link {
    /// Make a pass, with the link's lock held.
    pub(crate) fn pass(
        &self,
        state: &mut LinkState,
        worker: &mut Worker,
        pass: Pass,
        notifications: &mut Notifications,
    ) {
        if state.gone {
            return;
        }
        if pass.work.posts == Posts::Waiting {
            state.exchange();
        }
        self.with_cx(state, worker, pass.now, |state, cx, staging| {
            self.exchange_bytes(state, cx, staging, pass);
            if pass.work.then != Then::GoOn {
                self.before_sleep(state, |state| {
                    self.exchange_bytes(state, cx, staging, Pass::of(Work::BLOCK, pass.now));
                });
            }
        });
        self.notify(state, notifications);
        if state.gone {
            return;
        }
        if self.may_defer_housekeeping(state, pass) {
            state.idle_until = Some(state.housekeeping_at);
        } else {
            self.rearm(state, pass.now, pass.work);
        }
        self.conclude(state);
    }

    /// Receive, keep deadlines, send: the steps of a pass that need the core.
    pub(crate) fn exchange_bytes(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        pass: Pass,
    ) {
        let overdue = state.deadline.is_some_and(|deadline| deadline <= cx.now);
        if state.phase == LinkPhase::Connecting && !self.finish_connect(state, cx) {
            if overdue {
                state.connection.on_deadline(cx);
            }
            return;
        }
        // Bytes that have arrived count, however late this side reads them: the peer sent them in
        // time.
        if pass.work.receive || overdue {
            self.receive_for(state, cx, staging, pass);
        }
        if overdue {
            state.connection.on_deadline(cx);
            self.note_silence(state);
        }
        if pass.work.then != Then::GoOn {
            state.connection.before_blocking(cx.now);
        }
        if state.connection.lacks_receive() {
            state.exchange(); // a receive that is posted already counts (Verbs V94)
        }
        let polls = pass.work == Work::POLL;
        if !polls || state.connection.wants_write() || !state.out.bytes.is_empty() {
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
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        pass: Pass,
    ) {
        let Pass { work, first, .. } = pass;
        let asks = work.then != Then::GoOn || work.served;
        let any = self.receive_bytes(state, cx, staging, (first, asks));
        if !any && first.is_none() {
            state.connection.idle_pass(cx.now);
        } else if any && work.lapsed {
            self.watch.kept_waiting();
        }
    }

    /// End the link if the connection wants that, and pass on what it has decided: completions to their
    /// queues, events to the link's owner.
    pub(crate) fn notify(&self, state: &mut LinkState, notifications: &mut Notifications) {
        self.note_silence(state);
        self.follow_wish(state);
        if state.starting.is_some()
            && state.effects.list.iter().any(|effect| matches!(effect, Effect::Event(_)))
        {
            // A request or an answer has arrived, so the peer is known.
            state.starting = None;
        }
        if state.connection.has_events()
            && let Some(qp) = &state.qp
        {
            // A reset takes this lock first, so that the count is that of the connection.
            let resets = Resets(qp.resets());
            for event in state.connection.take_events() {
                report(&self.shared, qp.number(), (event, resets), notifications);
            }
        }
        let over = state.connection.ended().is_some();
        let unused = if over { state.connection.take_unused() } else { None };
        match unused.and_then(|execution| Some((state.qp.take()?, execution))) {
            Some((qp, execution)) => self.hand_back(state, &qp, execution, notifications),
            None => self.events.post(&mut state.effects, state.qp.as_ref(), notifications),
        }
        if state.gone {
            self.tear_down(state, notifications);
        }
    }

    /// Close the link, or this side's direction of it, if the connection wants that.
    fn follow_wish(&self, state: &mut LinkState) {
        let all_written = state.out.bytes.is_empty();
        match state.connection.link_wish() {
            LinkWish::Keep => {}
            LinkWish::Finish if all_written && state.phase == LinkPhase::Open => {
                state.phase = LinkPhase::Finished;
                match self.bell.get() {
                    Some(bell) => bell.finish(),
                    None => self.stream.finish(),
                }
            }
            LinkWish::Finish => {}
            LinkWish::Close => state.gone = true,
        }
        if state.phase == LinkPhase::Connecting && state.connection.ended().is_some() {
            state.gone = true; // there is no peer to disconnect from
        }
    }

    /// Give the executing half of a queue pair back to the front half: its connection is over.
    fn hand_back(
        &self,
        state: &mut LinkState,
        qp: &Arc<dyn Queues>,
        execution: Execution,
        notifications: &mut Notifications,
    ) {
        qp.leave(self);
        if state.connection.is_outlived() {
            // Behind what has completed: the program may flush the queue pair at once.
            self.events.post(&mut state.effects, Some(qp), notifications);
            self.events.detach(qp.clone(), execution, notifications);
        } else {
            // Before the program learns that the Connect came to nothing: it may be tried again at once.
            qp.reclaim(execution, notifications);
            self.events.post(&mut state.effects, Some(qp), notifications);
        }
    }

    /// The link is gone: release its queue pair, its descriptors and its memory.
    pub(crate) fn tear_down(&self, state: &mut LinkState, notifications: &mut Notifications) {
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

    /// Call `make` with the thread's tools for a pass. Rings need no room to receive into, and have
    /// a lane of their own. That lane goes when the link goes to rest, because a close of memory
    /// looks at all lanes.
    pub(crate) fn with_worker<R>(
        &self,
        state: &mut LinkState,
        work: Work,
        make: impl FnOnce(&mut LinkState, &mut Worker) -> R,
    ) -> R {
        if !state.carrier.is_shared_memory() {
            return make(state, &mut self.shared.workers.take());
        }
        let mut worker = Worker { lane: state.lane.take(), ..Worker::default() };
        let result = make(state, &mut worker);
        state.lane = worker.lane.filter(|_| work.then != Then::Rest && !state.gone);
        result
    }

    /// Run `work` with everything the core may use.
    pub(crate) fn with_cx<R>(
        &self,
        state: &mut LinkState,
        worker: &mut Worker,
        now: Time,
        work: impl FnOnce(&mut LinkState, &mut Cx<'_>, &mut Vec<u8>) -> R,
    ) -> R {
        state.connection.attention().set(Attention::BEHIND);
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
}

impl LinkState {
    /// There is more to send than the socket takes, or it is not connected yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.out.bytes.is_empty() || self.more || self.phase == LinkPhase::Connecting
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
