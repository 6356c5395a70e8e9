//! Control calls on a link: they take its lock for real, and are finished when they return (design
//! rule 12).

use transom_memory::QueuePairId;

use super::notifications::{Notifications, Sink};
use super::pass::Pass;
use super::tools::Tools;
use super::work::Work;
use super::{Link, LinkPhase, LinkState};
use crate::driver::config::options::Resets;
use crate::driver::limits::refused_connects::ConnectRefusal;
use crate::driver::schedule::shared::Shared;
use crate::{Cx, EndReason, LinkWish, QueuePairEvent, Status, sys};

impl Link {
    /// A control call: takes the lock for real, and is finished, notices written, when it returns.
    /// Events that came in before it count (ND2 4.2 rules 5 and 6). `Some(true)`: the caller must
    /// [`drive`](Link::drive) once it holds no lock. `None`: the link is gone.
    pub(crate) fn control<R>(
        &self,
        notifications: &mut Notifications,
        call: impl FnOnce(&mut LinkState, &mut Cx<'_>) -> R,
    ) -> (Option<R>, bool) {
        self.lock.control(|state| {
            if state.phase == LinkPhase::Gone {
                return None;
            }
            let now = sys::now();
            let attended = self.is_attended(now);
            let connected = state.phase != LinkPhase::Connecting;
            state.carry();
            let mut tools = Tools::take(self, state, self.worker(state));
            let (mut cx, staging) = tools.core(now);
            if connected {
                self.receive(state, &mut cx, staging, Pass::of(Work::POLL, now));
            }
            let result = call(state, &mut cx);
            state.connection.before_blocking();
            tools.put_back(state);
            let pass = Pass::of(if attended { Work::POSTS } else { Work::REST }, now);
            if connected {
                self.pass(state, self.worker(state), pass, notifications);
            } else {
                self.end_pass(state, pass, notifications);
            }
            Some(result)
        })
    }

    /// A control call whose caller holds no lock.
    fn call(&self, call: impl FnOnce(&mut LinkState, &mut Cx<'_>)) {
        let mut notifications = Notifications::default();
        let _ = self.control(&mut notifications, call);
        notifications.fire();
        self.catch_up();
    }

    /// The program flushes the queue pair. [`Link::catch_up`] follows, with no lock held.
    pub(crate) fn flush(&self, notifications: &mut Notifications) {
        let _ = self.control(notifications, |state, cx| state.connection.flush(cx));
    }

    /// Process what has arrived. Completions of what the peer was told that it has done are in their
    /// queues when this returns, and what was judged before has been executed.
    pub(crate) fn process_arrived(&self) {
        self.call(|_, _| ());
    }

    /// Send again what is posted from now on. `false`: the queue pair is not here.
    pub(crate) fn resume_sends(&self) -> bool {
        let mut resumed = false;
        self.call(|state, cx| resumed = state.connection.resume_sends(cx));
        resumed
    }

    /// The queue pair begins anew, and has its other half back when this returns, behind all that had
    /// completed.
    pub(crate) fn reset(&self) {
        self.call(|state, cx| state.connection.reset(cx));
    }

    /// Catch up with what was left while a control call held the lock.
    pub(crate) fn catch_up(&self) {
        self.drive(Work::POSTS);
        self.deliver();
    }

    /// The last handle of the queue pair was dropped: disconnect, without a caller that waits.
    pub(crate) fn release(&self) {
        if let Some(owner) = self.owner().upgrade() {
            owner.release();
        }
    }

    /// The connection cannot go on, for a reason outside of it.
    pub(crate) fn fail(&self, reason: EndReason) {
        self.call(|state, cx| state.connection.fail(cx, reason));
    }

    /// Refuse the request that came over this link, or has yet to come: no program will take it.
    pub(crate) fn turn_away(&self, why: ConnectRefusal) {
        self.call(|state, cx| {
            let turned_away = state.connection.link_wish() != LinkWish::Keep;
            if state.connection.ended().is_none() && !turned_away {
                self.shared.refused_connects.count(why);
            }
            if state.connection.reject(cx, &[]).is_err() {
                state.connection.give_up(cx);
            }
        });
    }

    /// End the connection in order, behind what is owed, and complete nothing.
    pub(crate) fn finish(&self) {
        // A post that found the lock held is carried over now, and leaves before the end.
        self.process_arrived();
        // As for a queue pair that begins anew.
        self.reset();
    }

    /// Look at it, and see that others do.
    pub(crate) fn attend(&self) {
        self.drive(Work::ATTEND);
        self.deliver();
    }

    /// Cut the link at once and forget it: its adapter is closed. Nothing touches memory through it
    /// when this returns.
    pub(crate) fn cut(&self) {
        let mut notifications = Notifications::default();
        let _ = self.control(&mut notifications, |state, cx| {
            state.connection.disconnect(cx);
            state.phase = LinkPhase::Cut;
        });
        notifications.fire();
        self.deliver();
    }
}

/// Something has happened to a queue pair behind its program's back.
pub(crate) fn report(
    shared: &Shared,
    queue_pair: QueuePairId,
    (event, resets): (QueuePairEvent, Resets),
    notifications: &mut Notifications,
) {
    if let Some(events) = shared.options.events.clone() {
        let sink = Sink::call(move |_| (events.0)(queue_pair, event, resets));
        notifications.push(sink, Status::Success);
    }
}
