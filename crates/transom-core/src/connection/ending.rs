//! How connections end (ND2 4.5, 4.9).

use transom_wire::{MessageId, Operation, PeerError, Refusal, RefusalClass, Release, Role, Time};

use super::{CLOSE_WITHIN, Connection, ConnectionPhase, LinkEnd, ReceiveWait};
use crate::dialect::PeerGone;
use crate::exec::Outcome;
use crate::queue::Progress;
use crate::trace::What;
use crate::{
    ConnectionEvent, Cx, DenialCause, Dialect, End, EndReason, QueuePairEvent, QueuePairState,
    Status,
};

/// The status of a request that its responder has refused.
fn refused_as(
    dialect: &Dialect,
    class: Option<RefusalClass>,
    operation: Option<Operation>,
) -> Status {
    match class {
        Some(
            RefusalClass::Token
            | RefusalClass::Scope
            | RefusalClass::Right
            | RefusalClass::Bounds
            | RefusalClass::Wrap,
        ) if operation != Some(Operation::Send) => Status::RemoteAccess,
        Some(RefusalClass::NoReceive) => dialect.no_receive,
        Some(RefusalClass::TooLong) => Status::PeerReceiveTooSmall,
        Some(RefusalClass::Unsupported | RefusalClass::Misaligned) => Status::PeerInvalidRequest,
        _ => Status::RemoteError,
    }
}

/// The event of a queue pair that has refused a message of its peer's which fills no receive (Verbs V104).
pub(super) fn refusal_event(class: RefusalClass) -> QueuePairEvent {
    match class {
        RefusalClass::Internal => QueuePairEvent::Fatal,
        RefusalClass::Unsupported | RefusalClass::Misaligned => QueuePairEvent::RequestError,
        _ => QueuePairEvent::AccessError,
    }
}

/// A message of the peer's that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) operation: Operation,
    pub(super) class: RefusalClass,
    pub(super) denial: u64,
    /// The status of the receive that it was to fill.
    pub(super) receive: Option<Status>,
    /// The event of the queue pair.
    pub(super) event: Option<QueuePairEvent>,
    /// When it came, or when something last went out behind which it waits.
    pub(super) since: Time,
}

impl Connection {
    /// The program disconnects (ND2 4.9): acknowledged requests have succeeded, everything else is
    /// canceled in one batch, and the peer gets a disconnect. Call
    /// [`transmit`](Connection::transmit) and write before returning to the program: it may exit at
    /// once.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>) {
        if self.ended.is_none() {
            self.end(cx, EndReason::Disconnected, 0);
        } else {
            // The dialect has kept the requests of a connection that the peer ended.
            self.flush_execution(cx, 0);
        }
        let opened = self.has_opened();
        if let Some(execution) = &mut self.execution
            && opened
        {
            execution.pair.enter(QueuePairState::Disconnected);
        }
    }

    /// The program flushes the queue pair: nothing can be received any more, so the connection ends.
    /// Where the queue pair outlives one that had not begun, [`QueuePair::flush`](crate::QueuePair::flush)
    /// follows.
    pub fn flush(&mut self, cx: &mut Cx<'_>) {
        let awaits = self.config.dialect.peer_gone == PeerGone::Await;
        if self.ended.is_none() && self.phase == ConnectionPhase::Setup && awaits {
            self.outlived = true;
            self.end(cx, EndReason::Flushed, 0);
        } else if self.ended.is_none()
            && matches!(self.phase, ConnectionPhase::Open | ConnectionPhase::Refusing)
        {
            self.end(cx, EndReason::Flushed, 0);
        } else {
            self.flush_execution(cx, 0);
        }
    }

    /// A Connect was canceled or rejected: the link ends, and nothing completes. The queue pair's half
    /// goes back ([`take_unused`](Connection::take_unused)).
    pub fn give_up(&mut self, cx: &mut Cx<'_>) {
        if self.ended.is_none() {
            self.ended = Some(End { reason: EndReason::Disconnected, denial: 0 });
            self.close(cx.now);
        }
    }

    /// A completion queue of the queue pair is dead, or this side cannot go on for another reason.
    /// The peer's oldest request fails (ND2 4.5, "peer-side failure").
    pub fn fail(&mut self, cx: &mut Cx<'_>, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        if self.phase == ConnectionPhase::Open {
            self.wire.refuse(cx.now, None);
        }
        self.end(cx, reason, 0);
    }

    /// The link has ended, and everything that came before was [received](Connection::receive).
    pub fn link_closed(&mut self, cx: &mut Cx<'_>, how: LinkEnd) {
        if self.phase == ConnectionPhase::Closed {
            return;
        }
        // A frame cut short makes no difference to what the sides see of each other's end.
        let _ = self.wire.link_closed(cx.now, how == LinkEnd::Finished);
        if let Some(refused) = self.refused {
            self.end(cx, EndReason::Refused, refused.denial);
        }
        self.poll(cx);
        if self.ended.is_some() {
            cx.effects.event(ConnectionEvent::Parted(how));
        }
        match how {
            LinkEnd::Finished | LinkEnd::Closed if self.wire.retry_older() => {
                self.end(cx, EndReason::Unanswered, 0);
            }
            LinkEnd::Finished | LinkEnd::Closed => self.end(cx, EndReason::PeerDisconnected, 0),
            LinkEnd::TimedOut => self.time_out(cx),
            LinkEnd::Failed(status) => self.end(cx, EndReason::Link(status), 0),
        }
        self.enter(ConnectionPhase::Closed);
    }

    /// The peer is lost: the oldest request that it owes an answer times out, the rest are canceled.
    pub(super) fn time_out(&mut self, cx: &mut Cx<'_>) {
        if self.fails_with_peer()
            && let Some(execution) = &mut self.execution
            && let Some(oldest) = execution.owed().or_else(|| execution.oldest())
        {
            execution.fail(oldest, self.config.dialect.peer_lost, 0);
        }
        self.end(cx, EndReason::TimedOut, 0);
    }

    /// Whether a peer that fails, or is lost, fails a request of this side: none that was posted behind the
    /// end, and where requests outlive connections, none that waits for its connection (Verbs V77).
    fn fails_with_peer(&self) -> bool {
        let waits = self.config.dialect.peer_gone == PeerGone::Await && !self.has_opened();
        self.ended.is_none() && !waits && !self.is_unreliable()
    }

    /// The peer ended the stream with an error.
    pub(super) fn peer_failed(&mut self, cx: &mut Cx<'_>, id: Option<MessageId>, error: PeerError) {
        let (class, operation) = (error.class, error.operation);
        let blames = self.fails_with_peer();
        let Some(execution) = &mut self.execution else {
            let denial = self.record(cx, None, DenialCause::ByPeer(error));
            return self.end(cx, EndReason::PeerFailed, denial);
        };
        if let Some(id) = id {
            // The peer executes in order: what came before the one it blames was executed.
            let begun = execution.next_message;
            execution.succeeded = execution.succeeded.max(id.0.min(begun));
        }
        let blamed = id
            .and_then(|id| execution.find(id.0))
            .filter(|sequence| {
                execution.requests.get(*sequence).is_some_and(|s| s.progress != Progress::Done)
            })
            .or_else(|| execution.owed_kind(operation))
            // A request that waits at this side for the peer's leave is owed an answer, too.
            .or_else(|| execution.owed().or_else(|| execution.oldest()))
            .filter(|_| blames);
        let status = refused_as(self.config.dialect, class, operation);
        let context = blamed.and_then(|s| execution.requests.get(s)).map(|slot| slot.context);
        let denial = self.record(cx, context, DenialCause::ByPeer(error));
        if let Some(execution) = &mut self.execution
            && let Some(sequence) = blamed
        {
            execution.fail(sequence, status, denial);
        }
        self.end(cx, EndReason::PeerFailed, denial);
    }

    /// A message of the peer's is refused, once the answers to those before it have gone: a peer's requests
    /// succeed and fail in its order (Verbs V67).
    pub(super) fn refuse_message(&mut self, cx: &mut Cx<'_>, refused: Refused) {
        let Refused { operation, class, denial, .. } = refused;
        let own = self.wire.decline(operation);
        let blamed = self.blame_own(own, operation, class, denial);
        self.refused = Some(refused);
        let itself = self.config.role == Role::Itself;
        let waits = if itself { blamed } else { self.wire.owes_answers() };
        if self.phase != ConnectionPhase::Open || !waits {
            return self.end(cx, EndReason::Refused, denial);
        }
        self.enter(ConnectionPhase::Refusing);
        if itself {
            // The answers come back here: the end is that of any request that fails in its turn.
            self.retire(cx);
        }
    }

    /// Refuse what waits for that, if nothing is owed before it any more.
    pub(super) fn refuse_if_answered(&mut self, cx: &mut Cx<'_>) {
        if let Some(refused) = self.refused
            && self.config.role != Role::Itself
            && !self.wire.owes_answers()
        {
            self.end(cx, EndReason::Refused, refused.denial);
        }
    }

    /// Have the wire send the refusal. The peer learns the class, and more only if the owner says so.
    fn say_refusal(&mut self, cx: &mut Cx<'_>, refused: &Refused) {
        let &Refused { operation, class, denial, .. } = refused;
        let text = self.explanation(cx, denial);
        let explanation = text.as_deref();
        self.wire.refuse(cx.now, Some(&Refusal { operation, class, explanation }));
        if let (Some(status), Some(execution)) = (refused.receive, &mut self.execution) {
            execution.fail_receive(cx.effects, status, denial);
        }
        if refused.event.is_some() {
            self.events[0] = refused.event;
        }
    }

    /// This side has refused a message. Where both sides are one queue pair, the request that sent
    /// it fails: no peer will report that. `own`: its number, where that is known; or else it is the oldest
    /// of its kind. Whether there was one.
    pub(super) fn blame_own(
        &mut self,
        own: Option<MessageId>,
        operation: Operation,
        class: RefusalClass,
        denial: u64,
    ) -> bool {
        if self.config.role != Role::Itself {
            return false;
        }
        let status = refused_as(self.config.dialect, Some(class), Some(operation));
        let Some(execution) = &mut self.execution else { return false };
        let named = own.and_then(|id| execution.find(id.0));
        let blamed = named.or_else(|| execution.owed_kind(Some(operation)));
        if let Some(sequence) = blamed {
            execution.fail(sequence, status, denial);
        }
        blamed.is_some()
    }

    /// The connection is over. Remote access ends first, then the program gets the event, then its
    /// requests complete (ND2 W20, 4.9).
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, reason: EndReason, denial: u64) {
        if self.ended.is_some() {
            return;
        }
        let end = End { reason, denial };
        if let Some(refused) = self.refused.take() {
            self.say_refusal(cx, &refused);
        }
        self.ended = Some(end);
        let _ = self.take_paused();
        self.receive_wait = ReceiveWait::None;
        self.wire.release(Release::Now);
        self.close(cx.now);
        let in_order = matches!(reason, EndReason::Disconnected | EndReason::Flushed);
        self.lingers = (in_order && self.has_opened() && !self.has_extension()).then_some(cx.now);
        cx.memory.close_connection(self.config.id, cx.now.0);
        self.outlived |= self.may_be_outlived(reason);
        let opened = self.has_opened();
        if let Some(execution) = &mut self.execution {
            if self.outlived {
                execution.part(cx.effects, cx.shared);
            } else if opened || self.config.role == Role::Passive {
                cx.memory.close_queue_pair(execution.number, cx.now.0);
                let _ = execution.retire(cx.effects);
                execution.pair.enter(QueuePairState::Error);
                if matches!(reason, EndReason::Violation | EndReason::Overrun) {
                    self.events[0] = Some(QueuePairEvent::Fatal);
                }
                self.events[1] = execution.shares_receives().then_some(QueuePairEvent::LastReceive);
            }
        }
        self.trace(cx, What::Ended { reason });
        cx.effects.event(ConnectionEvent::Ended(end));
        if !self.keeps(reason) {
            self.flush_execution(cx, denial);
        } else if let Some(execution) = &mut self.execution
            && !self.outlived
        {
            execution.outcome = Outcome::Kept;
        }
    }

    /// The queue pair begins anew: end the connection, and leave the queue pair's half, whose requests
    /// no completion is to follow, to [`take_unused`](Connection::take_unused) (Verbs V68).
    pub fn reset(&mut self, cx: &mut Cx<'_>) {
        self.outlived = true;
        if self.ended.is_none() {
            self.end(cx, EndReason::Disconnected, 0);
        } else if let Some(execution) = &mut self.execution {
            execution.part(cx.effects, cx.shared);
        }
    }

    /// The dialect leaves the requests of a connection that the peer ended to the program.
    fn keeps(&self, reason: EndReason) -> bool {
        self.outlived
            || self.has_opened()
                && reason == EndReason::PeerDisconnected
                && self.config.dialect.peer_gone == PeerGone::Keep
    }

    /// The queue pair goes on as if nothing had been: the peer has left, or is lost, and no request of
    /// either side is to blame (Verbs V79). One that has failed by itself behind another that the peer owes an
    /// answer is to blame for nothing yet: the one in front fails first (Verbs V67).
    fn may_be_outlived(&self, reason: EndReason) -> bool {
        let Some(execution) = &self.execution else { return false };
        let outlives = self.config.dialect.peer_gone == PeerGone::Await && !self.unused();
        outlives
            && match reason {
                EndReason::PeerDisconnected | EndReason::Unanswered => !execution.fails_first(),
                EndReason::Link(Status::DeviceRemoved) => false,
                EndReason::Link(_) => !execution.fails_first(),
                EndReason::PeerFailed | EndReason::TimedOut => !execution.failed,
                // A peer that guesses loses its connection; the queue pair is not its to end.
                EndReason::Refused => !execution.failed && self.is_unreliable(),
                _ => false,
            }
    }

    fn flush_execution(&mut self, cx: &mut Cx<'_>, denial: u64) {
        if !self.unused()
            && let Some(execution) = &mut self.execution
        {
            if execution.outcome == Outcome::Kept {
                execution.outcome = Outcome::Opened;
            }
            execution.flush(cx.effects, cx.memory, cx.shared, cx.now, denial);
        }
    }

    /// Complete what was posted to a connection that has ended (ND2 4.1).
    pub(super) fn cancel_late_posts(&mut self, cx: &mut Cx<'_>) {
        if let Some(end) = self.ended
            && self.execution.as_ref().is_some_and(|e| {
                !e.requests.is_empty() || (!e.shares_receives() && !e.receives.is_empty())
            })
            && !self.keeps(end.reason)
        {
            self.flush_execution(cx, end.denial);
        }
    }

    pub(super) fn close(&mut self, now: Time) {
        if matches!(
            self.phase,
            ConnectionPhase::Setup | ConnectionPhase::Open | ConnectionPhase::Refusing
        ) {
            self.enter(ConnectionPhase::Closing);
            self.close_by = Some(now.after(CLOSE_WITHIN));
        }
    }
}
