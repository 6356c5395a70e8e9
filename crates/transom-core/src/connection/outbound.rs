//! Requests of ours: started in order, framed, completed.

use transom_memory::{Purpose, Segment, queue_pair_admits};
use transom_wire::{
    Begin, Frame, Immediate, Message, MessageId, Operation as WireOperation, Payload, ReadSlot,
    Refusal, RefusalClass, Waiting, Wire,
};

use super::ending::refusal_event;
use super::{Attention, Connection, ConnectionConfig, Phase, Quiet, ReceiveWait};
use crate::copy::{AccessError, Accessor, LARGEST_COPY};
use crate::dialect::PeerGone;
use crate::local::LocalActor;
use crate::output::{Direct, Output};
use crate::queue::{Piece, Progress, Slot};
use crate::request::why_unsupported;
use crate::trace::{FrameTrace, Tracer, What};
use crate::{Cx, DenialCause, EndReason, Execution, Flags, Operation, QueuePairKind, Status};

/// Credit that a peer is given in advance whose messages may find no receive.
const IN_ADVANCE: u64 = 1 << 16;

/// The wire's name for the sink of a Read of ours. The peer only echoes it.
const SINK: u32 = 1;

const NO_IMMEDIATE: &str = "the peer has no immediate data: it is an iWARP adapter, was told to do without \
                            Transom's extension, or is a Transom of an earlier version";
const NO_ATOMICS: &str = "the peer has no atomics: it is an iWARP adapter, was told to do without Transom's \
                          extension, or is a Transom of an earlier version";

const NO_TARGETS: &str = "the peer has no shared receive queues that messages name: it is an iWARP adapter, or \
                          was told to do without Transom's extension";

const NO_RECEIVE_AT_ONCE: &str = "the peer had no receive posted when this Send came, and the queue pair tries \
                                  once: let it try again (`transom explain posted_receive`)";

const UNANSWERED: &str = "an unreliable queue pair gets no answers, so it has no Reads and no atomics: use a \
                          reliable one";

impl Connection {
    /// Write what there is to write while `out` has room.
    pub fn transmit<O: Output>(&mut self, cx: &mut Cx<'_>, out: &mut O) {
        let quiet = self.quiet(cx);
        if quiet.is_none() {
            self.resume(cx);
            self.poll(cx);
            self.cancel_late_posts(cx);
        }
        self.announce(cx);
        if let Some(quiet) = quiet.or_else(|| self.quiet(cx)) {
            self.start_run(quiet, cx, out);
            let all = self.execution.as_ref().is_some_and(Execution::is_all_gone);
            if all && !self.wire.has_output() {
                return;
            }
        }
        self.transmit_frames(cx, out);
    }

    /// Write what was posted to a connection that was quiet before: nothing else is to be written.
    #[inline]
    pub fn transmit_posted<O: Output>(&mut self, quiet: Quiet, cx: &mut Cx<'_>, out: &mut O) {
        let known = self.knows_receives();
        if !known {
            self.announce(cx);
        }
        self.start_run(quiet, cx, out);
        if !known || !self.execution.as_ref().is_some_and(Execution::is_all_gone) {
            self.transmit_frames(cx, out);
        }
    }

    /// Start what may start, and write the wire's frames, one by one.
    fn transmit_frames(&mut self, cx: &mut Cx<'_>, out: &mut dyn Output) {
        loop {
            self.start_all(cx);
            self.refuse_if_answered(cx);
            if self.phase == Phase::Closed || self.muted || out.room() == 0 {
                break;
            }
            let Some(frame) = self.wire.next_frame(cx.now) else {
                if self.phase == Phase::Closing {
                    self.muted = true;
                } else if self.poll(cx) {
                    // Sending has changed the wire's state: a request that waited may start.
                    self.announce(cx);
                    continue;
                }
                break;
            };
            if self.phase == Phase::Closing && frame.payload != Payload::None {
                // The requests have completed: their memory is the program's again (ND2 4.9).
                self.muted = true;
                break;
            }
            self.emit(cx, &frame, out);
        }
        self.poll(cx);
        self.retire(cx);
    }

    /// Start what may start.
    pub(super) fn start_all(&mut self, cx: &mut Cx<'_>) {
        if let Some(execution) = &mut self.execution
            && execution.pair.sends_failed()
        {
            execution.cancel_behind_failure();
            return self.retire(cx);
        }
        let startable = self.execution.as_ref().is_some_and(|e| e.startable().is_some());
        if !startable || !self.is_open() {
            return;
        }
        while !self.attention.has(Attention::WAITS) && self.start(cx) {}
        self.retire(cx);
    }

    /// Tell the wire how many receives there have been.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>) {
        if self.ended.is_some() {
            // A receive taken from a shared queue now would be lost to the others.
            return;
        }
        let Some(execution) = &mut self.execution else { return };
        // A queue that is empty now has this connection run when a receive is posted.
        self.attention.clear(Attention::CREDIT_ASKED);
        if execution.is_unreliable() || execution.kind == QueuePairKind::XrcReceive {
            // Messages that find no receive are dropped, or wait here: which queue they are for is not
            // known before. So none waits for leave.
            let total = self.taken + IN_ADVANCE;
            if self.told_receives.is_none_or(|told| total - told > IN_ADVANCE / 2) {
                self.told_receives = Some(total);
                self.wire.receives_posted(cx.now, total, false);
            }
        } else if execution.shares_receives() {
            let first = self.told_receives.is_none();
            let granted = self.attention.has(Attention::CREDIT)
                && cx
                    .shared
                    .is_some_and(|shared| shared.take(execution.number, &mut execution.receives));
            if granted {
                self.attention.clear(Attention::CREDIT);
                execution.receives_posted += 1;
            }
            if first || granted {
                self.told_receives = Some(execution.receives_posted);
                self.wire.receives_posted(cx.now, execution.receives_posted, true);
            }
        } else if self.told_receives != Some(execution.receives_posted) {
            self.told_receives = Some(execution.receives_posted);
            self.wire.receives_posted(cx.now, execution.receives_posted, false);
        }
    }

    /// Start the next request. `false`: there is none, or it has to wait.
    fn start(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(execution) = &self.execution else { return false };
        let Some(slot) = execution.startable().copied() else { return false };
        if slot.flags.contains(Flags::READ_FENCE) && execution.reads > 0 {
            return false;
        }
        let (domain, number) = (execution.domain, execution.number);
        let actor = LocalActor { domain, number, dialect: self.config.dialect };
        if let Some(done) = actor.execute(cx, &execution.requests, &slot) {
            self.local(cx, &slot, done);
            return true;
        }
        match slot.operation {
            Operation::Unsupported { status } => {
                let cause = DenialCause::Other(why_unsupported(status));
                self.fail_next(cx, status, Some((slot.context, cause)));
                true
            }
            operation if execution.is_unreliable() && operation.fetches() => {
                let cause = DenialCause::Other(UNANSWERED);
                self.fail_next(cx, Status::NotSupported, Some((slot.context, cause)));
                true
            }
            _ => self.begin(cx, &slot),
        }
    }

    /// A request without a message was executed.
    fn local(&mut self, cx: &mut Cx<'_>, slot: &Slot, done: Result<(), DenialCause>) {
        match done {
            Ok(()) => {
                if let Some(execution) = &mut self.execution {
                    execution.advance(Progress::Done);
                }
            }
            Err(why) => {
                self.fail_next(cx, Status::InvalidRequest, Some((slot.context, why)));
            }
        }
    }

    /// The next request fails by itself, once all before it have completed.
    pub(super) fn fail_next(
        &mut self,
        cx: &mut Cx<'_>,
        status: Status,
        why: Option<(u64, DenialCause)>,
    ) {
        let denial = why.map_or(0, |(context, cause)| self.record(cx, Some(context), cause));
        if let Some(execution) = &mut self.execution {
            let sequence = execution.next;
            execution.fail(sequence, status, denial);
            execution.next += 1;
        }
    }

    fn begin(&mut self, cx: &mut Cx<'_>, slot: &Slot) -> bool {
        let Some(execution) = &self.execution else { return false };
        let fetches = slot.operation.fetches();
        let purpose = if fetches { self.config.dialect.sink } else { Purpose::LocalSource };
        let accessor = Accessor { actor: execution.actor(self.config.id), purpose };
        if !slot.inline
            && let Err(error) = accessor.probe_list(cx, &execution.requests, slot)
        {
            let cause = error.cause(false);
            self.fail_next(cx, Status::LocalAccess, Some((slot.context, cause)));
            return false;
        }
        if fetches && self.facts.as_ref().is_some_and(|facts| facts.limits.outbound == 0) {
            let cause = DenialCause::Other(
                "the read limit agreed for this direction is 0: ask for more when connecting \
                 (`transom explain read_limit`)",
            );
            self.fail_next(cx, Status::InvalidRequest, Some((slot.context, cause)));
            return false;
        }
        let length = slot.length as u32;
        let solicited = slot.flags.contains(Flags::SOLICIT);
        let verdict = !slot.flags.contains(Flags::SILENT_SUCCESS);
        let send =
            |invalidate, immediate| Message::Send { length, solicited, invalidate, immediate };
        let message = match slot.operation {
            Operation::Write { token, address } => {
                Message::Write { token, address, length, verdict, immediate: None }
            }
            Operation::WriteWithImmediate { token, address, immediate: value } => {
                let immediate = Some(Immediate { value, solicited });
                Message::Write { token, address, length, verdict, immediate }
            }
            Operation::Read { token, address } => {
                Message::Read { token, address, length, sink_token: SINK, sink_address: 0 }
            }
            Operation::Atomic { token, address, change: operation } => {
                Message::Atomic { token, address, operation }
            }
            Operation::SendWithInvalidate { token } => send(Some(token), None),
            Operation::SendWithImmediate { immediate } => send(None, Some(immediate)),
            _ => send(None, None),
        };
        let id = MessageId(execution.next_message);
        if execution.kind == QueuePairKind::XrcSend && !self.wire.aim(slot.target) {
            let cause = DenialCause::Other(NO_TARGETS);
            self.fail_next(cx, Status::NotSupported, Some((slot.context, cause)));
            return false;
        }
        match self.wire.begin(cx.now, id, &message) {
            Begin::Unknown => {
                let cause = DenialCause::Other(match message {
                    Message::Atomic { .. } => NO_ATOMICS,
                    _ => NO_IMMEDIATE,
                });
                self.fail_next(cx, Status::NotSupported, Some((slot.context, cause)));
                false
            }
            Begin::Wait(waiting) => {
                self.attention.set(Attention::WAITS);
                if let Waiting::Receive { limit, refused } = waiting {
                    // The limit goes when the peer turns out to have a shared queue; some dialects
                    // have none (WSD N-3).
                    let limit = limit.filter(|_| self.config.dialect.receive_wait.is_some());
                    let own = self.config.dialect.peer_gone == PeerGone::Await;
                    if own && refused && execution.pair.limits().one_try {
                        let cause = DenialCause::Other(NO_RECEIVE_AT_ONCE);
                        let status = self.config.dialect.no_receive;
                        self.fail_next(cx, status, Some((slot.context, cause)));
                        return false;
                    }
                    self.receive_wait = match (self.receive_wait, limit) {
                        // The peer's first grant is on its way.
                        _ if execution.is_unreliable() => ReceiveWait::None,
                        (ReceiveWait::Since(_), _) if own => self.receive_wait,
                        _ if own => ReceiveWait::Since(cx.now),
                        (ReceiveWait::Until(_), Some(_)) => self.receive_wait,
                        (_, Some(limit)) => ReceiveWait::Until(cx.now.after(limit)),
                        (_, None) => ReceiveWait::None,
                    };
                } else {
                    self.receive_wait = ReceiveWait::None;
                }
                false
            }
            Begin::Started => {
                self.receive_wait = ReceiveWait::None;
                let Some(execution) = &mut self.execution else { return false };
                if execution.owed().is_none() {
                    self.owing = cx.now;
                }
                if let Some(slot) = execution.requests.get_mut(execution.next) {
                    slot.message = id.0;
                }
                execution.next_message += 1;
                execution.reads += u32::from(fetches);
                execution.under_way = Some(execution.next);
                execution.advance(Progress::Running);
                let operation = message.operation();
                self.trace(cx, What::Begun { id, operation, length });
                true
            }
        }
    }

    /// Write one frame.
    fn emit(&mut self, cx: &mut Cx<'_>, frame: &Frame, out: &mut dyn Output) {
        let before = if shows_frames(cx) { out.buffer().len() } else { 0 };
        if let Some(refused) = &mut self.refused {
            refused.since = cx.now;
        }
        let result = match frame.payload {
            Payload::None => {
                copy(&mut *self.wire, out, frame, |_| Ok(()));
                Ok(())
            }
            Payload::Message { id, offset } => self.emit_message(cx, frame, id, offset, out),
            Payload::Memory { slot, token, address } => {
                self.emit_memory(cx, frame, slot, token, address, out)
            }
        };
        if cx.trace.is_some() {
            let (header, payload) = (frame.header_length, frame.length);
            self.trace(cx, What::FrameOut { header, payload });
        }
        if let Some(tracer) = cx.trace.as_deref_mut().filter(|tracer| tracer.wants_frames())
            && let Some(bytes) = out.buffer().get(before..).filter(|bytes| !bytes.is_empty())
        {
            tracer.frame(&FrameTrace { framing: self.wire.framing(), inbound: false, bytes });
        }
        if let Err(torn) = result
            && torn
        {
            // Half a frame is out: nothing further can be said on this link.
            self.enter(Phase::Closed);
        }
    }

    /// A frame of a message of ours. `Err(true)`: the link is torn.
    fn emit_message(
        &mut self,
        cx: &mut Cx<'_>,
        frame: &Frame,
        id: MessageId,
        offset: u32,
        out: &mut dyn Output,
    ) -> Result<(), bool> {
        let Connection { config, wire, execution: Some(execution), .. } = self else {
            return Ok(());
        };
        let sequence = execution.under_way;
        let Some(slot) = sequence.and_then(|s| execution.requests.get(s)) else { return Ok(()) };
        debug_assert_eq!(slot.message, id.0, "a wire frames the message under way");
        let accessor =
            Accessor { actor: execution.actor(config.id), purpose: Purpose::LocalSource };
        let (offset, length) = (u64::from(offset), u64::from(frame.length));
        let lent = matches!(slot.operation, Operation::Read { .. })
            && may_lend_sink(cx, out, slot)
            && lend_sink(cx, config, execution, slot, frame, out);
        // A Read Request has a message and no payload.
        let one = if slot.inline || length == 0 || !may_lend(cx, out, frame) {
            None
        } else {
            execution.requests.piece(slot, offset).filter(|piece| piece.length >= length)
        };
        let direct = match one {
            Some(piece) => {
                direct(&mut **wire, cx, frame, accessor, piece.token, piece.address, out)
            }
            None => Ok(Direct::Copy),
        };
        let torn = matches!(direct, Ok(Direct::Torn));
        let error = match direct {
            Ok(Direct::Taken) => None,
            Ok(Direct::Copy) if lent => None,
            Ok(Direct::Copy) => copy(&mut **wire, out, frame, |buffer| {
                if length == 0 {
                    return Ok(());
                }
                accessor.fetch_list(cx, &execution.requests, slot, offset, length, buffer)
            }),
            Ok(Direct::Fault | Direct::Torn) => {
                let piece = one.unwrap_or(Piece { token: 0, address: 0, length });
                Some(AccessError::Vanished { token: piece.token, address: piece.address, length })
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            if frame.last {
                execution.under_way = None;
                let progress = execution.sent();
                if let Some(slot) = sequence.and_then(|s| execution.requests.get_mut(s)) {
                    slot.progress = progress;
                }
            }
            return Ok(());
        };
        let (context, operation) = (slot.context, slot.operation);
        let denial = self.record(cx, Some(context), error.cause(false));
        if let Some(execution) = &mut self.execution
            && let Some(sequence) = sequence
        {
            execution.fail(sequence, Status::LocalAccess, denial);
        }
        let operation = match operation {
            Operation::Write { .. } | Operation::WriteWithImmediate { .. } => WireOperation::Write,
            Operation::Read { .. } => WireOperation::Read,
            Operation::Atomic { .. } => WireOperation::Atomic,
            _ => WireOperation::Send,
        };
        let class = RefusalClass::Internal;
        let explanation = None;
        self.wire.abandon(cx.now, frame, &Refusal { operation, class, explanation });
        self.end(cx, EndReason::RequestFailed, denial);
        Err(torn)
    }

    /// A frame of an answer to the peer's Read: checked anew, as every piece is.
    fn emit_memory(
        &mut self,
        cx: &mut Cx<'_>,
        frame: &Frame,
        _slot: ReadSlot,
        token: u32,
        address: u64,
        out: &mut dyn Output,
    ) -> Result<(), bool> {
        let Connection { config, wire, execution: Some(execution), reading, .. } = self else {
            return Ok(());
        };
        let mut actor = execution.actor(config.id);
        if let Some(domain) = reading.front() {
            actor.domain = *domain;
        }
        if frame.last {
            reading.pop_front();
        }
        let accessor = Accessor { actor, purpose: Purpose::RemoteRead };
        let length = u64::from(frame.length);
        let direct = if !queue_pair_admits(execution.pair.access(), Purpose::RemoteRead, length) {
            Err(AccessError::QueuePair(Purpose::RemoteRead))
        } else if length == 0 || !may_lend(cx, out, frame) {
            Ok(Direct::Copy)
        } else {
            direct(&mut **wire, cx, frame, accessor, token, address, out)
        };
        let torn = matches!(direct, Ok(Direct::Torn));
        let error = match direct {
            Ok(Direct::Taken) => None,
            Ok(Direct::Copy) => copy(&mut **wire, out, frame, |buffer| {
                accessor.fetch(cx, token, address, length, buffer)
            }),
            Ok(Direct::Fault | Direct::Torn) => {
                Some(AccessError::Vanished { token, address, length })
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else { return Ok(()) };
        let class = error.class();
        let denial = self.record(cx, None, error.cause(true));
        let text = self.explanation(cx, denial);
        let operation = WireOperation::Read;
        let refusal = Refusal { operation, class, explanation: text.as_deref() };
        self.wire.abandon(cx.now, frame, &refusal);
        self.blame_own(None, operation, class, denial);
        self.refused = None; // this one comes first
        self.events[0] = Some(refusal_event(class));
        self.end(cx, EndReason::Refused, denial);
        Err(torn)
    }
}

/// Whether the sink of a Read is to be named to the link: not if a copy of the frame is to be shown.
fn may_lend_sink(cx: &Cx<'_>, out: &dyn Output, slot: &Slot) -> bool {
    !shows_frames(cx) && out.wants_sink(slot.length)
}

/// Name the sink of a Read to the link, if all of it lies in one piece. `true`: the frame is on its way.
fn lend_sink(
    cx: &mut Cx<'_>,
    config: &ConnectionConfig,
    execution: &Execution,
    slot: &Slot,
    frame: &Frame,
    out: &mut dyn Output,
) -> bool {
    let whole = execution.requests.piece(slot, 0).filter(|piece| piece.length == slot.length);
    let Some(Piece { token, address, length }) = whole else { return false };
    let accessor = Accessor { actor: execution.actor(config.id), purpose: config.dialect.sink };
    let host = accessor.host_of(cx, token, address, length);
    host.is_some_and(|host| out.request(frame.header(), Segment { host, length }))
}

/// A tracer wants to see every frame.
fn shows_frames(cx: &Cx<'_>) -> bool {
    cx.trace.as_deref().is_some_and(Tracer::wants_frames)
}

/// Whether a frame is to be offered without a copy: not if a copy of it is to be shown.
fn may_lend(cx: &Cx<'_>, out: &mut dyn Output, frame: &Frame) -> bool {
    !shows_frames(cx) && out.wants_direct(frame.length as usize)
}

/// Copy a frame into the buffer.
#[inline]
fn copy(
    wire: &mut dyn Wire,
    out: &mut dyn Output,
    frame: &Frame,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<(), AccessError>,
) -> Option<AccessError> {
    let buffer = out.buffer();
    let start = buffer.len();
    buffer.extend_from_slice(frame.header());
    if let Err(error) = payload(buffer) {
        buffer.truncate(start);
        return Some(error);
    }
    if frame.sealed {
        wire.seal(frame, buffer, start);
    }
    None
}

/// Offer a frame without a copy: only where nothing in it depends on the payload.
fn direct(
    wire: &mut dyn Wire,
    cx: &mut Cx<'_>,
    frame: &Frame,
    accessor: Accessor,
    token: u32,
    address: u64,
    out: &mut dyn Output,
) -> Result<Direct, AccessError> {
    let length = u64::from(frame.length);
    if length > LARGEST_COPY as u64 {
        return Ok(Direct::Copy);
    }
    let Some(trailer) = wire.trailer(frame) else { return Ok(Direct::Copy) };
    let tail = trailer.bytes.get(..usize::from(trailer.length)).unwrap_or_default();
    let lent = accessor
        .lend(cx, token, address, length, |segments| out.direct(frame.header(), segments, tail))?;
    match lent {
        Some(Direct::Copy) | None => {
            // The frame counts as sealed: finish it here.
            let buffer = out.buffer();
            let start = buffer.len();
            buffer.extend_from_slice(frame.header());
            if let Err(error) = accessor.fetch(cx, token, address, length, buffer) {
                buffer.truncate(start);
                return Err(error);
            }
            buffer.extend_from_slice(tail);
            Ok(Direct::Taken)
        }
        Some(done) => Ok(done),
    }
}
