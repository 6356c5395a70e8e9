//! A pass over a link, in five steps: carry posts over, receive, keep deadlines, send, notify. Behind
//! it, [`Link::rearm`] makes sure that a thread looks again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use transom_wire::Time;

use super::carrier::Carrier;
use super::control::report;
use super::notifications::Notifications;
use super::queues::Queues;
use super::quick::has_unseen_receive;
use super::tcp::First;
use super::tools::Tools;
use super::work::{Then, Work};
use super::{Link, LinkPhase, LinkState};
use crate::driver::config::options::Resets;
use crate::driver::schedule::workers::Worker;
use crate::{Attention, Cx, Effect, Execution, LinkWish};

/// How often a pass looks again, before it leaves the rest to the next one.
const AGAIN: u32 = 4;

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

    /// This work once more, of which nothing is done.
    fn again(self) -> Pass {
        let work = Work { receive: true, lapsed: false, ..self.work };
        Pass { work, first: None, ..self }
    }
}

impl Link {
    /// Make a pass, with the link's lock held.
    pub(crate) fn pass(
        &self,
        state: &mut LinkState,
        worker: Option<MutexGuard<'_, Worker>>,
        mut pass: Pass,
        notifications: &mut Notifications,
    ) {
        if state.phase == LinkPhase::Gone {
            return;
        }
        if pass.work.posts {
            state.carry();
        }
        let mut tools = Tools::take(self, state, worker);
        let (mut cx, staging) = tools.core(pass.now);
        for turn in 0..=AGAIN {
            self.receive(state, &mut cx, staging, pass);
            self.keep_deadlines(state, &mut cx);
            self.send(state, &mut cx, pass.work);
            if self.is_through(state, pass.work.then, turn == AGAIN) {
                break;
            }
            pass = pass.again();
        }
        tools.put_back(state);
        self.end_pass(state, pass, notifications);
    }

    /// Pass on what a pass has decided, and see that a thread looks again.
    pub(super) fn end_pass(
        &self,
        state: &mut LinkState,
        pass: Pass,
        notifications: &mut Notifications,
    ) {
        self.notify(state, notifications);
        if state.phase != LinkPhase::Gone {
            self.rearm(state, pass);
            self.conclude(state);
        }
    }

    /// Receive what has come, also the answer to a TCP connect. A pass that is to judge a deadline receives first:
    /// bytes that have arrived count, however late this side reads them, because the peer sent them in time.
    pub(super) fn receive(
        &self,
        state: &mut LinkState,
        cx: &mut Cx<'_>,
        staging: &mut Vec<u8>,
        Pass { work, first, .. }: Pass,
    ) {
        if state.phase == LinkPhase::Connecting && !self.finish_connect(state, cx) {
            return;
        }
        if !work.receive && !state.is_overdue(cx.now) {
            return;
        }
        let any = if state.carrier.is_shared_memory() {
            self.receive_records(state, cx, work.then != Then::GoOn || work.served)
        } else {
            self.receive_stream(state, cx, staging, first)
        };
        // A message waits for a receive, and what was received behind it may hold whole frames: no descriptor tells
        // of these when there is one.
        let pauses = !state.connection.wants_read();
        state.connection.attention().put(Attention::UNREAD, pauses);
        if !any && first.is_none() {
            state.connection.idle_pass();
        } else if any && work.lapsed {
            self.watch.kept_waiting();
        }
    }

    /// Tell the connection if its deadline has passed.
    fn keep_deadlines(&self, state: &mut LinkState, cx: &mut Cx<'_>) {
        if state.is_overdue(cx.now) {
            state.connection.on_deadline(cx);
            self.note_silence(state);
        }
    }

    /// Send what there is to send.
    fn send(&self, state: &mut LinkState, cx: &mut Cx<'_>, work: Work) {
        if state.phase == LinkPhase::Connecting {
            return;
        }
        if work.then != Then::GoOn {
            state.connection.before_blocking();
        }
        let has_receive = has_unseen_receive(&state.connection, &state.qp);
        if has_receive {
            state.carry();
        }
        let asked = work.posts || has_receive;
        if !asked && !state.connection.wants_write() && state.out.bytes.is_empty() {
            return;
        }
        if state.carrier.is_shared_memory() {
            self.send_records(state, cx);
        } else {
            self.send_stream(state, cx);
        }
    }

    /// Whether the thread may go on, or sleep. `last`: it does, and another pass has to follow if there is more.
    fn is_through(&self, state: &mut LinkState, then: Then, last: bool) -> bool {
        // A receive that has come meanwhile has a message of the peer's go on.
        let unread = state.connection.has_attention(Attention::UNREAD);
        let resumes = unread && state.connection.wants_read();
        if then == Then::GoOn && !resumes {
            return true;
        }
        let more = resumes || !state.falls_asleep();
        if last || !more {
            self.set_unread(more);
        }
        last || !more
    }

    /// End the link if the connection wants that, and pass on what it has decided: completions to their
    /// queues, events to the link's owner.
    fn notify(&self, state: &mut LinkState, notifications: &mut Notifications) {
        self.observer.effects(&state.effects.list, || (state.carrier.name(), state.reason));
        self.note_silence(state);
        let closes = self.follow_wish(state);
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
        if closes {
            self.tear_down(state, notifications);
        }
    }

    /// Close this side's direction of the link, if the connection wants that. Whether all of the link is to be
    /// closed.
    fn follow_wish(&self, state: &mut LinkState) -> bool {
        let wish = state.connection.link_wish();
        let all_written = state.out.bytes.is_empty();
        if wish == LinkWish::Finish && all_written && state.phase == LinkPhase::Open {
            state.phase = LinkPhase::Finished;
            // Over rings, too: once both sides have heard of the end, another connection may have the two addresses.
            self.stream.finish();
            if let Some(bell) = self.bell.get() {
                bell.finish();
            }
        }
        // Before a link is made there is no peer to disconnect from.
        let unmade = state.phase == LinkPhase::Connecting && state.connection.ended().is_some();
        unmade || wish == LinkWish::Close || state.phase == LinkPhase::Cut
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
    fn tear_down(&self, state: &mut LinkState, notifications: &mut Notifications) {
        let execution = state.connection.take_execution();
        if let (Some(qp), Some(execution)) = (state.qp.take(), execution) {
            // Completions may still be waiting among the events; none may overtake them (ND2 4.9).
            qp.leave(self);
            self.events.detach(qp, execution, notifications);
        }
        if let (Some(capture), Some(end)) = (&self.shared.capture, state.captured.take()) {
            capture.record(|recorder, now| recorder.close(end, now));
        }
        self.count(state);
        state.phase = LinkPhase::Gone;
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
}

impl LinkState {
    /// There is more to send than the socket takes, or it is not connected yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.out.bytes.is_empty()
            || self.connection.has_attention(Attention::MORE)
            || self.phase == LinkPhase::Connecting
    }

    /// A queue pair to work on.
    pub(crate) fn attach(&mut self, qp: Arc<dyn Queues>) {
        let shares = qp.shared_receives().is_some();
        self.connection.attention().put(Attention::SHARED, shares);
        self.qp = Some(qp);
    }

    /// The connection's deadline has passed.
    fn is_overdue(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Carry new posts over.
    pub(crate) fn carry(&mut self) {
        if let (Some(qp), Some(execution)) = (&self.qp, self.connection.execution()) {
            qp.carry(execution);
        }
    }

    /// The executing half of `qp`, if that is the link's queue pair (still, or already).
    pub(crate) fn execution_of<Q>(&mut self, qp: &Q) -> Option<&mut Execution> {
        let is_ours = self.qp.as_ref().is_some_and(|ours| std::ptr::addr_eq(Arc::as_ptr(ours), qp));
        if is_ours { self.connection.execution() } else { None }
    }
}
