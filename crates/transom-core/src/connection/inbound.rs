//! Bytes of the peer: messages placed, checked, delivered.

use transom_memory::{Purpose, Token, queue_pair_admits};
use transom_wire::{
    Bytes, Event, Immediate, MessageId, Operation, Refusal, RefusalClass, Role, Time,
};

use super::ending::{Refused, refusal_event};
use super::{Attention, Connection, ConnectionPhase};
use crate::copy::{AccessError, Accessor};
use crate::dialect::DeadWindow;
use crate::exec::{Arrival, Execution, Value};
use crate::queue::Progress;
use crate::trace::What;
use crate::{
    CompletionKind, ConnectionEvent, Cx, DenialCause, DenialRecord, EndReason, QueuePairEvent,
    QueuePairKind, QueuePairState, Status,
};

/// The fate of the messages that come from the peer.
#[derive(Debug)]
pub(super) enum Intake {
    /// Each is taken.
    Reading,
    /// A message waits for a receive, and those behind it wait, too.
    Paused(Paused),
    /// The one that is coming in is dropped to its end.
    Dropping,
    /// No more bytes are read: those that wait for a queue pair are as many as may wait.
    Held,
}

/// A message that found no receive. Plain peers know no credits; between Transoms the sender holds
/// the message instead.
#[derive(Debug)]
pub(super) struct Paused {
    pub(super) since: Time,
    what: Waiting,
}

#[derive(Debug)]
enum Waiting {
    /// A piece of a Send, and its bytes.
    Send(Send, Vec<u8>),
    /// A Write that is placed; its bytes.
    Write(Immediate, u32),
}

/// A piece of a Send, without its bytes.
#[derive(Clone, Copy, Debug)]
struct Send {
    offset: u32,
    last: bool,
    solicited: bool,
    invalidate: Option<u32>,
    immediate: Option<u32>,
}

const NO_IMMEDIATE: &str = "the peer's message brings immediate data, which this interface has no place \
                            for: send without it";
const NO_READS: &str = "the queue pair serves no Reads and atomics at all: give it a number of them when it \
                        is made ready to receive";
const NO_TARGETS: &str = "the peer names a shared receive queue, and this queue pair is no receive side of an \
                          XRC domain";
const NO_SUCH_TARGET: &str = "the peer's message names no shared receive queue of the XRC domain that this queue \
                              pair belongs to: the number is that of a queue of another domain, of one that \
                              is destroyed, or none at all";
const SENDS_ALONE: &str =
    "the queue pair has no receive side: it sends to shared receive queues of an XRC domain";

impl Connection {
    /// Events that did not come from bytes; whether there were any.
    pub(super) fn poll(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.wire.poll_event() {
            self.handle(cx, event);
            any = true;
        }
        any
    }

    /// Complete what can be completed.
    pub(super) fn retire(&mut self, cx: &mut Cx<'_>) {
        let Some(execution) = &mut self.execution else { return };
        if execution.retire(cx.effects) {
            let denial = execution.requests.front().map_or(0, |slot| slot.denial);
            self.end(cx, EndReason::RequestFailed, denial);
        }
    }

    pub(super) fn handle(&mut self, cx: &mut Cx<'_>, event: Event<'_>) {
        let refusing = self.phase == ConnectionPhase::Refusing;
        if let Some(operation) = event.asks_for() {
            if refusing {
                if operation.is_answered() {
                    let _ = self.wire.decline(Operation::Read);
                }
                return;
            }
            if !self.find_target(cx, operation) {
                return;
            }
        }
        match event {
            Event::Target { .. } if refusing => {}
            Event::ConnectRequest { limits, private } => {
                cx.effects.event(ConnectionEvent::Requested { limits, private: private.into() });
            }
            Event::Accepted { limits, private } => {
                cx.effects.event(ConnectionEvent::Accepted { limits, private: private.into() });
            }
            Event::Rejected { private } => {
                cx.effects.event(ConnectionEvent::Rejected { private: private.into() });
                self.give_up(cx);
            }
            Event::Established => self.open(cx),
            Event::Done { through } => self.done(cx, through),
            Event::PeerFailed { id, error } => self.peer_failed(cx, id, error),
            Event::Resume => self.attention.clear(Attention::REQUEST_WAITS),
            Event::CreditWanted => {
                self.attention.set(Attention::CREDIT | Attention::CREDIT_ASKED);
            }
            Event::Target { number } => self.on_target(cx, number),
            Event::WriteAnnounced { token, address, length } => {
                self.used(cx);
                let judged = self.remote(Purpose::RemoteWrite, length, |accessor| {
                    accessor.probe(cx, token, address, length)
                });
                if let Err(error) = judged {
                    self.refuse(cx, Operation::Write, error);
                }
            }
            Event::Write { token, address, payload, last, immediate } => {
                self.used(cx);
                if !self.is_dropping() {
                    self.write(cx, token, address, payload, last.then_some(immediate));
                }
                self.drop_rest(cx, Operation::Write, last, immediate.is_some());
            }
            Event::Send { offset, payload, last, solicited, invalidate, immediate } => {
                self.used(cx);
                let send = Send { offset, last, solicited, invalidate, immediate };
                if !self.is_dropping() && !self.send(cx, send, payload) {
                    if self.has_waited(cx) {
                        self.intake = Intake::Dropping;
                    } else {
                        self.park(cx, send, payload);
                    }
                }
                self.drop_rest(cx, Operation::Send, last, true);
            }
            Event::ReadRequest { .. } if self.refuses_reads() => {
                self.used(cx);
                self.refuse_unsupported(cx, Operation::Read, NO_READS);
            }
            Event::Atomic { .. } if self.refuses_reads() => {
                self.used(cx);
                self.refuse_unsupported(cx, Operation::Atomic, NO_READS);
            }
            Event::Atomic { token, address, operation } => {
                self.used(cx);
                let done = self.remote(Purpose::RemoteAtomic, 8, |accessor| {
                    accessor.change(cx, token, address, operation)
                });
                match done {
                    Ok(old) => {
                        self.wire.answer(cx.now, old);
                        self.trace(cx, What::Executed { operation: Operation::Atomic });
                    }
                    Err(error) => self.refuse(cx, Operation::Atomic, error),
                }
            }
            Event::AtomicAnswer { id, value } => {
                self.read_data(cx, id, 0, Bytes::Own(&value.to_ne_bytes()), true);
            }
            Event::ReadRequest { token, address, length, .. } => {
                self.used(cx);
                let length = u64::from(length);
                let judged = self.remote(Purpose::RemoteRead, length, |accessor| {
                    accessor.probe(cx, token, address, length)
                });
                if let Err(error) = judged {
                    self.refuse(cx, Operation::Read, error);
                } else {
                    if let Some(execution) =
                        self.execution.as_ref().filter(|_| self.target.is_some())
                    {
                        self.reading.push_back(execution.domain);
                    }
                    self.trace(cx, What::Executed { operation: Operation::Read });
                }
            }
            Event::ReadData { id, offset, payload, last } => {
                self.read_data(cx, id, offset, payload, last);
            }
        }
    }

    /// The peer says whom its messages are for from here on. Which queue that is, is looked at when they come.
    fn on_target(&mut self, cx: &mut Cx<'_>, number: u32) {
        self.used(cx);
        match &self.execution {
            Some(execution) if execution.kind == QueuePairKind::XrcReceive => {
                self.target = Some(number);
            }
            _ => self.refuse_unsupported(cx, Operation::Send, NO_TARGETS),
        }
    }

    /// Find the shared receive queue that the peer's message is for, where there are several: its protection
    /// domain is that of the message. `false`: the message is refused.
    fn find_target(&mut self, cx: &mut Cx<'_>, operation: Operation) -> bool {
        let Some(execution) = &mut self.execution else { return true };
        let why = match execution.kind {
            QueuePairKind::XrcSend => SENDS_ALONE,
            QueuePairKind::XrcReceive => {
                let found = self.target.zip(cx.shared);
                let found = found.and_then(|(number, shared)| Some((number, shared.aim(number)?)));
                if let Some((number, domain)) = found {
                    (execution.target, execution.domain) = (number, domain);
                    return true;
                }
                NO_SUCH_TARGET
            }
            _ => return true,
        };
        self.used(cx);
        self.refuse_unsupported(cx, operation, why);
        false
    }

    /// Behind each piece of a message: if it is dropped, the last one ends that. `receives`: the peer has
    /// spent credit for it.
    pub(super) fn drop_rest(
        &mut self,
        cx: &mut Cx<'_>,
        operation: Operation,
        last: bool,
        receives: bool,
    ) {
        if self.is_dropping() && last {
            (self.intake, self.written) = (Intake::Reading, 0);
            self.taken += u64::from(receives);
            self.executed(cx, operation);
        }
    }

    /// Whether a receive is posted that no pass has carried over yet: a message must not fail for want of it.
    pub(super) fn has_receive_in_front(&self) -> bool {
        self.execution.as_ref().is_some_and(Execution::has_receive_in_front)
    }

    /// Whether messages of an unreliable peer have found no receive for as long as one may wait: the next
    /// is dropped at once.
    fn has_waited(&mut self, cx: &Cx<'_>) -> bool {
        if self.has_receive_in_front() {
            self.none_since = None;
        }
        let limit = self.execution.as_ref().filter(|execution| execution.is_unreliable());
        let limit = limit.and_then(|execution| execution.pair.limits().receive);
        let since = self.none_since;
        since.zip(limit).is_some_and(|(since, limit)| since.after(limit) <= cx.now)
    }

    /// The message that waits for a receive has waited long enough, and is lost.
    pub(super) fn drop_paused(&mut self, cx: &mut Cx<'_>) {
        match self.take_paused() {
            Some(Paused { what: Waiting::Send(send, _), .. }) => {
                self.intake = Intake::Dropping;
                self.drop_rest(cx, Operation::Send, send.last, true);
            }
            Some(Paused { what: Waiting::Write(..), .. }) => {
                self.intake = Intake::Dropping;
                self.drop_rest(cx, Operation::Write, true, true);
            }
            None => {}
        }
    }

    /// The peer uses the connection: it is established, whatever else was agreed
    /// (ND2 4.1, 4.7.2 "or first data").
    fn used(&mut self, cx: &mut Cx<'_>) {
        if self.phase == ConnectionPhase::Setup && self.execution.is_some() {
            self.open(cx);
        }
        self.see_message();
    }

    /// A message of the peer's has come: the first one is an event (Verbs V104).
    #[inline]
    pub(super) fn see_message(&mut self) {
        if !std::mem::replace(&mut self.message_seen, true) {
            self.attention.set(Attention::EVENT);
        }
    }

    /// Judge on behalf of the peer: the queue pair first, then the token. No bytes need no leave.
    pub(super) fn remote<T>(
        &self,
        purpose: Purpose,
        length: u64,
        then: impl FnOnce(Accessor) -> Result<T, AccessError>,
    ) -> Result<T, AccessError> {
        match &self.execution {
            Some(execution) if !queue_pair_admits(execution.pair.access(), purpose, length) => {
                Err(AccessError::QueuePair(purpose))
            }
            Some(execution) => then(Accessor { actor: execution.actor(self.config.id), purpose }),
            None => Err(AccessError::Missing),
        }
    }

    /// Place a piece of a Write. `end`: the last one, and whether immediate data comes with it.
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        token: u32,
        address: u64,
        payload: Bytes<'_>,
        end: Option<Option<Immediate>>,
    ) {
        let placed = self.remote(Purpose::RemoteWrite, payload.len() as u64, |accessor| {
            accessor.place(cx, token, address, payload)
        });
        if let Err(error) = placed {
            return self.refuse(cx, Operation::Write, error);
        }
        if cx.trace.is_some() {
            let (operation, length) = (Operation::Write, payload.len() as u32);
            self.trace(cx, What::Placed { operation, address, length });
        }
        let Some(immediate) = end else {
            self.written = self.written.saturating_add(payload.len() as u32);
            return;
        };
        let length = std::mem::take(&mut self.written).saturating_add(payload.len() as u32);
        match immediate {
            None => self.executed(cx, Operation::Write),
            Some(immediate) if !self.notify(cx, immediate, length) => {
                let what = Waiting::Write(immediate, length);
                let since = *self.none_since.get_or_insert(cx.now);
                self.pause(Paused { since, what });
            }
            Some(_) => {}
        }
    }

    /// A Write with immediate data is placed: complete a receive. `false`: there is none.
    fn notify(&mut self, cx: &mut Cx<'_>, immediate: Immediate, length: u32) -> bool {
        if !self.config.dialect.immediate {
            self.refuse_unsupported(cx, Operation::Write, NO_IMMEDIATE);
            return true;
        }
        let Some(execution) = &mut self.execution else { return true };
        if !execution.has_receive(cx.shared) {
            return false;
        }
        self.none_since = None;
        self.taken += 1;
        let Immediate { value, solicited } = immediate;
        let kind = CompletionKind::ReceiveWrite;
        let value = Value::Immediate(value);
        execution.complete_receive(cx.effects, &Arrival { kind, length, solicited, value });
        self.executed(cx, Operation::Write);
        true
    }

    fn refuses_reads(&self) -> bool {
        self.execution.as_ref().is_some_and(|execution| execution.pair.limits().refuses_reads)
    }

    /// The peer asks for an operation that this side supports for no peer; `why` says so.
    fn refuse_unsupported(&mut self, cx: &mut Cx<'_>, operation: Operation, why: &'static str) {
        let class = RefusalClass::Unsupported;
        let denial = self.record(cx, None, DenialCause::Other(why));
        self.refused(cx, operation, class, denial);
    }

    fn executed(&mut self, cx: &mut Cx<'_>, operation: Operation) {
        self.wire.executed(cx.now);
        self.trace(cx, What::Executed { operation });
        if self.config.role == Role::Itself
            && let Some(execution) = &mut self.execution
        {
            execution.next_succeeded();
        }
    }

    /// Deliver a piece of a Send. `false`: there is no receive for it.
    fn send(&mut self, cx: &mut Cx<'_>, send: Send, payload: Bytes<'_>) -> bool {
        if send.immediate.is_some() && !self.config.dialect.immediate {
            self.refuse_unsupported(cx, Operation::Send, NO_IMMEDIATE);
            return true;
        }
        let Some(execution) = &mut self.execution else { return true };
        if !execution.receiving {
            if !execution.has_receive(cx.shared) {
                return false;
            }
            self.none_since = None;
            execution.receiving = true;
        }
        let Some(slot) = execution.receives.front().copied() else { return false };
        let offset = u64::from(send.offset);
        let end = offset + payload.len() as u64;
        let accessor =
            Accessor { actor: execution.receiver(self.config.id), purpose: Purpose::ReceiveBuffer };
        if end > slot.length {
            let cause = DenialCause::Other(
                "the peer's message is longer than the receive that it met: post longer receives, \
                 or send less",
            );
            self.refuse_receive(cx, Status::ReceiveTooSmall, RefusalClass::TooLong, cause);
            return true;
        }
        if let Err(error) = accessor.place_list(cx, &execution.receives, &slot, offset, payload) {
            self.refuse_filled(cx, error);
            return true;
        }
        if !send.last {
            return true;
        }
        if let Some(token) = send.invalidate {
            let (actor, token) = (execution.actor(self.config.id), Token(token));
            // A window that its owner has closed before is dead to the peer, too (NDK INV-7, ND1 INV-2); a close that
            // comes while this one is under way is not.
            let fatal = self.config.dialect.dead_window != DeadWindow::Ignored;
            let late = fatal && !cx.memory.is_open(token);
            let closed = match cx.memory.close_for_peer(token, &actor, cx.now.0) {
                Ok(()) if late => Err(None),
                closed => closed.map_err(Some),
            };
            if let Err(error) = closed {
                let (class, cause) = match error {
                    Some(transom_memory::DeregisterError::NotYours(denial)) => {
                        let denial: Box<transom_memory::Denial> = denial;
                        (crate::copy::class(&denial), DenialCause::Peer(denial))
                    }
                    Some(transom_memory::DeregisterError::Busy(_)) => (
                        RefusalClass::NotInvalidatable,
                        DenialCause::Other(
                            "the peer asked to take memory from a region that windows are bound \
                             to: have them invalidated first (`transom explain peer_closes`)",
                        ),
                    ),
                    _ => (
                        RefusalClass::NotInvalidatable,
                        DenialCause::Other(
                            "the peer asked to close what is not a live window (`transom explain peer_closes`)",
                        ),
                    ),
                };
                let denial = self.record(cx, None, cause);
                if self.is_unreliable() {
                    self.intake = Intake::Dropping;
                    return true;
                }
                let (operation, since) = (Operation::Invalidate, cx.now);
                let (receive, event) =
                    (Some(Status::InvalidRequest), Some(QueuePairEvent::AccessError));
                self.refuse_message(
                    cx,
                    Refused { operation, class, denial, receive, event, since },
                );
                return true;
            }
        }
        let value = match (send.invalidate, send.immediate) {
            (Some(token), _) => Value::Invalidated(token),
            (None, Some(bytes)) => Value::Immediate(bytes),
            (None, None) => Value::None,
        };
        let (kind, length) = (CompletionKind::Receive, end as u32);
        let solicited = send.solicited;
        execution.complete_receive(cx.effects, &Arrival { kind, length, solicited, value });
        self.taken += 1;
        self.executed(cx, Operation::Send);
        true
    }

    /// Keep a piece of a Send until there is a receive.
    fn park(&mut self, cx: &mut Cx<'_>, send: Send, payload: Bytes<'_>) {
        let kept = match payload {
            Bytes::Own(bytes) => bytes.to_vec(),
            // Of the answer to a Read only, which nothing waits for.
            Bytes::Placed { .. } => return self.refuse(cx, Operation::Send, AccessError::Missing),
            Bytes::Shared { address, length } => {
                let mut kept = Vec::new();
                if cx.host.append(address, length as usize, &mut kept).is_err() {
                    let gone = cx.host.source_is_gone();
                    let why = if gone { AccessError::Withdrawn } else { AccessError::Missing };
                    return self.refuse(cx, Operation::Send, why);
                }
                kept
            }
        };
        let since = *self.none_since.get_or_insert(cx.now);
        self.pause(Paused { since, what: Waiting::Send(send, kept) });
    }

    /// The memory of a receive was refused: the peer did nothing wrong and learns no more than that (ND2 4.5).
    pub(super) fn refuse_filled(&mut self, cx: &mut Cx<'_>, error: AccessError) {
        let cause = error.cause(false);
        self.refuse_receive(cx, Status::LocalAccess, RefusalClass::Internal, cause);
    }

    /// A receive failed: it completes with `status`, the peer's Send with what its dialect makes of
    /// `class`, and both queue pairs end.
    fn refuse_receive(
        &mut self,
        cx: &mut Cx<'_>,
        status: Status,
        class: RefusalClass,
        cause: DenialCause,
    ) {
        let context =
            self.execution.as_ref().and_then(|e| e.receives.front()).map(|slot| slot.context);
        let denial = self.record(cx, context, cause);
        if self.is_unreliable() {
            // The receive waits for the next Send.
            self.intake = Intake::Dropping;
            return;
        }
        let (operation, receive, since) = (Operation::Send, Some(status), cx.now);
        self.refuse_message(cx, Refused { operation, class, denial, receive, event: None, since });
    }

    /// The message that waits has waited long enough: nothing completes here (ND2 4.5).
    pub(super) fn refuse_parked(&mut self, cx: &mut Cx<'_>, cause: DenialCause) {
        let operation = match &self.intake {
            Intake::Paused(Paused { what: Waiting::Write(..), .. }) => Operation::Write,
            _ => Operation::Send,
        };
        let denial = self.record(cx, None, cause);
        let (class, since) = (RefusalClass::NoReceive, cx.now);
        let (receive, event) = (None, None);
        self.refuse_message(cx, Refused { operation, class, denial, receive, event, since });
    }

    /// A message waits for a receive.
    fn pause(&mut self, paused: Paused) {
        self.intake = Intake::Paused(paused);
        self.attention.set(Attention::INTAKE_PAUSED);
    }

    /// No message waits for a receive any more.
    pub(super) fn take_paused(&mut self) -> Option<Paused> {
        if !self.is_paused() {
            return None;
        }
        self.attention.clear(Attention::INTAKE_PAUSED);
        match std::mem::replace(&mut self.intake, Intake::Reading) {
            Intake::Paused(paused) => Some(paused),
            _ => None,
        }
    }

    /// Whether a message of the peer's waits for a receive.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.intake, Intake::Paused(_))
    }

    /// Whether the message that is coming in is dropped to its end.
    fn is_dropping(&self) -> bool {
        matches!(self.intake, Intake::Dropping)
    }

    /// Try the message that waits for a receive, if one does.
    #[inline]
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>) {
        if self.attention.has(Attention::INTAKE_PAUSED) {
            self.resume_paused(cx);
        }
    }

    #[cold]
    fn resume_paused(&mut self, cx: &mut Cx<'_>) {
        let Some(paused) = self.take_paused() else { return };
        let waits = matches!(self.phase, ConnectionPhase::Open | ConnectionPhase::Setup)
            && match &paused.what {
                Waiting::Send(send, payload) => !self.send(cx, *send, Bytes::Own(payload)),
                Waiting::Write(immediate, length) => !self.notify(cx, *immediate, *length),
            };
        if waits {
            self.pause(paused);
        } else {
            // From now on it is listened to again.
            self.heard = cx.now;
        }
    }

    fn read_data(
        &mut self,
        cx: &mut Cx<'_>,
        id: MessageId,
        offset: u32,
        payload: Bytes<'_>,
        last: bool,
    ) {
        let Some(execution) = &mut self.execution else { return };
        // The wire has matched the answer to a request of ours that it knows to be unanswered.
        let Some(sequence) = execution.find(id.0) else { return };
        let Some(slot) = execution.requests.get(sequence).copied() else { return };
        let purpose = self.config.dialect.sink;
        let accessor = Accessor { actor: execution.actor(self.config.id), purpose };
        let offset = u64::from(offset);
        if let Err(error) = accessor.place_list(cx, &execution.requests, &slot, offset, payload) {
            let class = error.class();
            let denial = self.record(cx, Some(slot.context), error.cause(false));
            let operation = Operation::Read;
            self.wire.refuse(cx.now, Some(&Refusal { operation, class, explanation: None }));
            if let Some(execution) = &mut self.execution {
                execution.fail(sequence, Status::LocalAccess, denial);
            }
            return self.end(cx, EndReason::RequestFailed, denial);
        }
        if cx.trace.is_some() {
            let (operation, length) = (Operation::Read, payload.len() as u32);
            self.trace(cx, What::Placed { operation, address: offset, length });
        }
        let Some(execution) = &mut self.execution else { return };
        if last {
            if let Some(slot) = execution.requests.get_mut(sequence) {
                slot.progress = Progress::Done;
            }
            execution.reads = execution.reads.saturating_sub(1);
            self.attention.clear(Attention::REQUEST_WAITS);
            self.retire(cx);
        }
    }

    /// Whether a message of the peer's that names `region` is being executed: its Write, of which not
    /// everything has been placed, or its Read, whose answer has not left completely.
    #[must_use]
    pub fn is_executing(&self, region: Token) -> bool {
        self.ended.is_none() && self.wire.is_using(region.0)
    }

    /// The peer has executed our messages up to this one.
    pub(super) fn done(&mut self, cx: &mut Cx<'_>, through: MessageId) {
        let Some(execution) = &mut self.execution else { return };
        // Never further than what has left completely, whatever the peer claims.
        let begun = execution.next_message - u64::from(execution.under_way.is_some());
        execution.succeeded = execution.succeeded.max(through.0.saturating_add(1)).min(begun);
        self.trace(cx, What::Acknowledged { through });
        self.retire(cx);
    }

    /// Refuse what the peer asked for last.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, operation: Operation, error: AccessError) {
        let class = error.class();
        let cause = error.cause(true);
        let guess = matches!(&cause, DenialCause::Peer(denial) if denial.is_guess());
        let denial = self.record(cx, None, cause);
        if self.is_unreliable() && !guess {
            self.intake = Intake::Dropping;
            return;
        }
        self.refused(cx, operation, class, denial);
    }

    /// A message of the peer's that fills no receive was refused.
    fn refused(&mut self, cx: &mut Cx<'_>, operation: Operation, class: RefusalClass, denial: u64) {
        let event = Some(refusal_event(class)).filter(|_| !self.is_unreliable());
        let (receive, since) = (None, cx.now);
        self.refuse_message(cx, Refused { operation, class, denial, receive, event, since });
    }

    pub(super) fn explanation(&self, cx: &Cx<'_>, denial: u64) -> Option<String> {
        if self.config.explain { cx.denials.explain(denial) } else { None }
    }

    pub(super) fn record(&self, cx: &mut Cx<'_>, request: Option<u64>, cause: DenialCause) -> u64 {
        let queue_pair = self.execution.as_ref().map(|e| e.number);
        let record = DenialRecord { time: cx.now, peer: None, queue_pair, request, cause };
        let denial = cx.denials.record(record);
        self.trace(cx, What::Denied { denial });
        denial
    }

    /// Whether the program may post already.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == ConnectionPhase::Open
            && self
                .execution
                .as_ref()
                .is_some_and(|execution| execution.pair.state() == QueuePairState::Connected)
    }
}
