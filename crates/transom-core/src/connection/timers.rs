//! Time. The driver asks for the [`deadline`](Connection::deadline) and calls when it has passed.

use std::time::Duration;

use transom_wire::Time;

use super::inbound::Intake;
use super::{CLOSE_WITHIN, Connection, ConnectionPhase, LinkEnd, QUIET, QUIET_WITHIN, ReceiveWait};
use crate::{ConnectionEvent, Cx, DenialCause, EndReason, QueuePairKind};

/// Silence that is noticed so much after its time is our own: this process, or its machine, stood
/// still (SIGSTOP, a paused virtual machine), and the peer may have done so with it.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// The earlier of two moments that need not be.
fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Connection {
    /// When [`on_deadline`](Connection::on_deadline) wants to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.phase == ConnectionPhase::Closed {
            return None;
        }
        let wire = self.wire.deadline();
        let silence = earlier(self.silent_at(), self.parked_until());
        let end = earlier(earlier(self.close_by, self.answered_by()), self.lingers_until());
        earlier(earlier(wire, silence), earlier(self.blocked_until(), end))
    }

    /// The ends of the time-outs that run, in the order of [`TIME_OUTS`](super::TIME_OUTS).
    pub(super) fn time_outs(&self) -> [Option<Time>; super::TIME_OUTS.len()] {
        if self.phase == ConnectionPhase::Closed {
            return [None; super::TIME_OUTS.len()];
        }
        let (silent, parked) = (self.silent_at(), self.parked_until());
        let (wire, answered) = (self.wire.deadline(), self.answered_by());
        [wire, silent, parked, self.blocked_until(), self.close_by, answered]
    }

    /// Until when the next request may wait for a receive of the peer's.
    fn blocked_until(&self) -> Option<Time> {
        match self.receive_wait {
            ReceiveWait::None => None,
            ReceiveWait::Until(time) => Some(time),
            ReceiveWait::Since(since) => {
                Some(since.after(self.execution.as_ref()?.pair.limits().receive?))
            }
        }
    }

    /// When a plain peer has had its time to finish.
    fn lingers_until(&self) -> Option<Time> {
        let since = self.lingers?;
        Some(since.max(self.heard).after(QUIET).min(since.after(QUIET_WITHIN)))
    }

    /// When a peer that owes something has been silent for too long.
    fn silent_at(&self) -> Option<Time> {
        // While a Send waits for a receive here, nothing is read: that is not the peer's silence.
        if self.phase != ConnectionPhase::Open || self.is_paused() {
            return None;
        }
        if !self.execution.as_ref()?.owes() {
            return None;
        }
        Some(self.heard.max(self.owing).after(self.config.dialect.silence))
    }

    /// Until when the next answer in front of what is refused has to go.
    fn answered_by(&self) -> Option<Time> {
        Some(self.refused.as_ref()?.since.after(self.config.dialect.silence))
    }

    /// Until when a Send of a plain peer may wait for a receive here.
    fn parked_until(&self) -> Option<Time> {
        let Intake::Paused(paused) = &self.intake else { return None };
        let execution = self.execution.as_ref()?;
        // The sender of an XRC message knows nothing of receives, so its own limit does not run.
        if execution.is_unreliable() || execution.kind == QueuePairKind::XrcReceive {
            return Some(paused.since.after(execution.pair.limits().receive?));
        }
        if execution.shares_receives() {
            return None;
        }
        Some(paused.since.after(self.config.dialect.receive_wait?))
    }

    /// Time has passed.
    pub fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        if self.phase == ConnectionPhase::Closed {
            return;
        }
        if due(self.lingers_until()) {
            self.lingers = None;
        }
        if self.close_by.is_some_and(|by| by.after(STOOD_STILL) < now) {
            self.close_by = Some(now.after(CLOSE_WITHIN)); // what we have to say has had no time
        }
        if due(self.close_by) {
            // The peer does not read what we have to say, or does not close.
            self.enter(ConnectionPhase::Closed);
            cx.effects.event(ConnectionEvent::Parted(LinkEnd::TimedOut));
            return;
        }
        if let Some(refused) = self.refused.filter(|_| due(self.answered_by())) {
            return self.end(cx, EndReason::Refused, refused.denial);
        }
        if self.silent_at().is_some_and(|at| at.after(STOOD_STILL) < cx.now) {
            self.heard = cx.now; // it gets the whole time again
        }
        let (blocked, paused, silent) =
            (due(self.blocked_until()), due(self.parked_until()), due(self.silent_at()));
        if due(self.wire.deadline())
            && let Err(violation) = self.wire.on_deadline(cx.now)
        {
            let setup = self.phase == ConnectionPhase::Setup;
            let denial = self.record(cx, None, DenialCause::Violation(violation));
            let reason = if setup { EndReason::TimedOut } else { EndReason::Violation };
            self.end(cx, reason, denial);
            return;
        }
        self.poll(cx);
        if silent {
            return self.time_out(cx);
        }
        if paused && !self.has_receive_in_front() {
            self.resume(cx);
            if self.is_unreliable() {
                self.drop_paused(cx);
            } else if self.is_paused() {
                let cause = DenialCause::Other("a Send of the peer found no receive in time");
                return self.refuse_parked(cx, cause);
            }
        }
        if blocked {
            // The receive may have been announced in time, and be noticed only now.
            self.start_all(cx);
        }
        if due(self.blocked_until()) {
            self.receive_wait = ReceiveWait::None;
            let context = self.execution.as_ref().and_then(|e| e.startable()).map(|s| s.context);
            if let Some(context) = context {
                let cause = DenialCause::Other(
                    "the peer posted no receive for this Send in time (`transom explain posted_receive`)",
                );
                let status = self.config.dialect.no_receive;
                self.fail_next(cx, status, Some((context, cause)));
            }
        }
        self.retire(cx);
    }
}
