//! Requests of ours: started in order, framed, completed.

use transom_memory::{Purpose, Segment, queue_pair_admits};
use transom_wire::{
    Around, Begin, Carrier, Direct, Frame, Message, MessageId, Payload, Refusal, RefusalClass,
    Room, Waiting, Wire,
};

use super::ending::refusal_event;
use super::{Attention, Connection, ConnectionConfig, ConnectionPhase, Quiet, ReceiveWait};
use crate::copy::{AccessError, Accessor, LARGEST_COPY};
use crate::dialect::PeerGone;
use crate::local::LocalActor;
use crate::queue::{Piece, Progress, RequestQueue, Slot};
use crate::request::why_unsupported;
use crate::trace::{FrameTrace, Tracer, What};
use crate::{Cx, DenialCause, EndReason, Execution, Flags, Operation, QueuePairKind, Status};

/// Credit that a peer is given in advance whose messages may find no receive.
const IN_ADVANCE: u64 = 1 << 16;

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
    pub fn transmit<C: Carrier>(&mut self, cx: &mut Cx<'_>, out: &mut C) {
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
    pub fn transmit_posted<C: Carrier>(&mut self, quiet: Quiet, cx: &mut Cx<'_>, out: &mut C) {
        let known = self.knows_receives();
        if !known {
            self.announce(cx);
        }
        if self.execution.as_ref().is_some_and(|execution| !execution.is_all_begun()) {
            self.start_run(quiet, cx, out);
        }
        // The peer may wait to hear of a receive.
        let gone = self.execution.as_ref().is_some_and(Execution::is_all_gone);
        if !gone || !known && self.wire.has_output() {
            self.transmit_frames(cx, out);
        }
    }

    /// Start what may start, and write the wire's frames, one by one.
    fn transmit_frames<C: Carrier>(&mut self, cx: &mut Cx<'_>, out: &mut C) {
        loop {
            self.start_all(cx);
            self.refuse_if_answered(cx);
            let over = matches!(self.phase, ConnectionPhase::Drained | ConnectionPhase::Closed);
            if over || out.room() == 0 {
                break;
            }
            let Some(frame) = self.wire.next_frame(cx.now) else {
                if self.phase == ConnectionPhase::Closing {
                    self.enter(ConnectionPhase::Drained);
                } else if self.poll(cx) {
                    // Sending has changed the wire's state: a request that waited may start.
                    self.announce(cx);
                    continue;
                }
                break;
            };
            if self.phase == ConnectionPhase::Closing && frame.payload != Payload::None {
                // The requests have completed: their memory is the program's again (ND2 4.9).
                self.enter(ConnectionPhase::Drained);
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
        while !self.attention.has(Attention::REQUEST_WAITS) && self.start(cx) {}
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
        let Some(message) = slot.message() else {
            let cause = DenialCause::Other(why_unsupported(Status::NotSupported));
            self.fail_next(cx, Status::NotSupported, Some((slot.context, cause)));
            return false;
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
                    Message::Send { .. } | Message::Write { .. } => NO_IMMEDIATE,
                    Message::Read { .. } => why_unsupported(Status::NotSupported),
                });
                self.fail_next(cx, Status::NotSupported, Some((slot.context, cause)));
                false
            }
            Begin::Wait(waiting) => {
                self.attention.set(Attention::REQUEST_WAITS);
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
                let (operation, length) = (message.operation(), slot.length as u32);
                self.trace(cx, What::Begun { id, operation, length });
                true
            }
        }
    }

    /// Write one frame.
    fn emit<C: Carrier>(&mut self, cx: &mut Cx<'_>, frame: &Frame, out: &mut C) {
        if let Some(refused) = &mut self.refused {
            refused.since = cx.now;
        }
        let torn = match frame.payload {
            Payload::None => write(&mut *self.wire, cx, frame, Source::None, out).is_err(),
            Payload::Message { id, offset } => self.emit_message(cx, frame, id, offset, out),
            Payload::Memory { token, address, .. } => {
                self.emit_memory(cx, frame, token, address, out)
            }
        };
        if cx.trace.is_some() {
            let (header, payload) = (frame.header_length, frame.length);
            self.trace(cx, What::FrameOut { header, payload });
        }
        if torn {
            // Half a frame is out: nothing further can be said on this link.
            self.enter(ConnectionPhase::Closed);
        }
    }

    /// A frame of a message of ours. `true`: the link is torn.
    fn emit_message<C: Carrier>(
        &mut self,
        cx: &mut Cx<'_>,
        frame: &Frame,
        id: MessageId,
        offset: u32,
        out: &mut C,
    ) -> bool {
        let Connection { config, wire, execution: Some(execution), .. } = self else {
            return false;
        };
        let sequence = execution.under_way;
        let Some(slot) = sequence.and_then(|s| execution.requests.get(s)) else { return false };
        debug_assert_eq!(slot.message, id.0, "a wire frames the message under way");
        let accessor =
            Accessor { actor: execution.actor(config.id), purpose: Purpose::LocalSource };
        let (offset, length) = (u64::from(offset), u64::from(frame.length));
        let queue = &execution.requests;
        let source = if length == 0 {
            Source::None // a Read has a message and no payload
        } else if slot.inline {
            Source::Inline(queue.inline(slot, offset, length))
        } else if let Some(piece) = queue.piece(slot, offset).filter(|piece| length <= piece.length)
        {
            Source::Memory(accessor, Piece { length, ..piece })
        } else {
            Source::List(accessor, queue, slot, offset)
        };
        let sunk = matches!(slot.operation, Operation::Read { .. })
            && may_lend_sink(cx, out, slot)
            && lend_sink(cx, config, execution, slot, frame, out);
        let done = if sunk { Ok(()) } else { write(&mut **wire, cx, frame, source, out) };
        let Err(Failed { error, torn }) = done else {
            if frame.last {
                execution.under_way = None;
                let progress = execution.sent();
                if let Some(slot) = sequence.and_then(|s| execution.requests.get_mut(s)) {
                    slot.progress = progress;
                }
            }
            return false;
        };
        let (context, operation) = (slot.context, slot.operation);
        let denial = self.record(cx, Some(context), error.cause(false));
        if let Some(execution) = &mut self.execution
            && let Some(sequence) = sequence
        {
            execution.fail(sequence, Status::LocalAccess, denial);
        }
        if let Some(operation) = operation.on_wire() {
            let refusal = Refusal { operation, class: RefusalClass::Internal, explanation: None };
            self.wire.abandon(cx.now, frame, &refusal);
        }
        self.end(cx, EndReason::RequestFailed, denial);
        torn
    }

    /// A frame of an answer to the peer's Read: checked anew, as every piece is.
    fn emit_memory<C: Carrier>(
        &mut self,
        cx: &mut Cx<'_>,
        frame: &Frame,
        token: u32,
        address: u64,
        out: &mut C,
    ) -> bool {
        let Connection { config, wire, execution: Some(execution), reading, .. } = self else {
            return false;
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
        let done = if queue_pair_admits(execution.pair.access(), Purpose::RemoteRead, length) {
            let source = Source::Memory(accessor, Piece { token, address, length });
            write(&mut **wire, cx, frame, source, out)
        } else {
            Err(Failed { error: AccessError::QueuePair(Purpose::RemoteRead), torn: false })
        };
        let Err(Failed { error, torn }) = done else { return false };
        let class = error.class();
        let denial = self.record(cx, None, error.cause(true));
        let text = self.explanation(cx, denial);
        let operation = transom_wire::Operation::Read;
        let refusal = Refusal { operation, class, explanation: text.as_deref() };
        self.wire.abandon(cx.now, frame, &refusal);
        self.blame_own(None, operation, class, denial);
        self.refused = None; // this one comes first
        self.events[0] = Some(refusal_event(class));
        self.end(cx, EndReason::Refused, denial);
        torn
    }
}

/// Where the payload of a frame comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    None,
    /// Inline data, in two pieces, if it is there.
    Inline(Option<(&'a [u8], &'a [u8])>),
    /// All of it from one piece of memory.
    Memory(Accessor, Piece),
    /// A list, from this offset of its message on.
    List(Accessor, &'a RequestQueue, &'a Slot, u64),
}

/// A frame whose payload could not be read.
struct Failed {
    error: AccessError,
    /// A part of the frame is out.
    torn: bool,
}

impl From<AccessError> for Failed {
    fn from(error: AccessError) -> Failed {
        Failed { error, torn: false }
    }
}

/// Write a frame that the wire has begun: without a copy if the link wants that, or else by way of a place
/// that is reserved for it.
fn write<C: Carrier>(
    wire: &mut dyn Wire,
    cx: &mut Cx<'_>,
    frame: &Frame,
    source: Source<'_>,
    out: &mut C,
) -> Result<(), Failed> {
    let length = frame.length as usize;
    if let Source::Memory(accessor, piece) = source
        && may_lend(cx, out, length)
        && lend(wire, cx, frame, (accessor, piece), out)?
    {
        return Ok(());
    }
    let front = usize::from(frame.header_length);
    let mut room = out.reserve(Around { front, back: usize::from(frame.back) }, length);
    let shared = if let Room::Shared(address) = &room { Some(*address) } else { None };
    let supplied = match source {
        Source::None => Ok(()),
        Source::Inline(Some((first, second))) => {
            out.put(first);
            out.put(second);
            Ok(())
        }
        Source::Inline(None) => Err(AccessError::Missing),
        Source::Memory(accessor, piece) => accessor.fetch(cx, piece, &mut room),
        Source::List(accessor, queue, slot, offset) => {
            accessor.fetch_list(cx, queue, slot, (offset, u64::from(frame.length)), &mut room)
        }
    };
    if let Err(error) = supplied {
        out.release();
        return Err(error.into());
    }
    let bytes = out.frame();
    if let Some(room) = bytes.get_mut(..front) {
        room.copy_from_slice(frame.header());
    }
    wire.seal(frame, bytes);
    if shows_frames(cx) {
        show(wire, cx, bytes, shared.map(|address| (address, length)));
    }
    out.commit();
    Ok(())
}

/// Show a frame of this side's, whose payload may lie in memory that is shared with the peer.
#[cold]
fn show(wire: &dyn Wire, cx: &mut Cx<'_>, frame: &[u8], shared: Option<(u64, usize)>) {
    let mut all = Vec::new();
    let mut bytes = frame;
    if let Some((address, length)) = shared {
        all.extend_from_slice(frame);
        // Pages of shared memory are there; otherwise the payload is missing where the frame is shown.
        let _ = cx.host.append(address, length, &mut all);
        bytes = &all;
    }
    if let Some(tracer) = cx.trace.as_deref_mut() {
        tracer.frame(&FrameTrace { framing: wire.framing(), inbound: false, bytes });
    }
}

/// Whether the sink of a Read is to be named to the link: not if a copy of the frame is to be shown.
fn may_lend_sink<C: Carrier>(cx: &Cx<'_>, out: &C, slot: &Slot) -> bool {
    !shows_frames(cx) && out.wants_sink(slot.length)
}

/// Name the sink of a Read to the link, if all of it lies in one piece. `true`: the frame is on its way.
fn lend_sink<C: Carrier>(
    cx: &mut Cx<'_>,
    config: &ConnectionConfig,
    execution: &Execution,
    slot: &Slot,
    frame: &Frame,
    out: &mut C,
) -> bool {
    let whole = execution.requests.piece(slot, 0).filter(|piece| piece.length == slot.length);
    let Some(Piece { token, address, length }) = whole else { return false };
    let accessor = Accessor { actor: execution.actor(config.id), purpose: config.dialect.sink };
    let host = accessor.host_of(cx, token, address, length);
    host.is_some_and(|host| out.lend_sink(frame.header(), Segment { host, length }))
}

/// A tracer wants to see every frame.
fn shows_frames(cx: &Cx<'_>) -> bool {
    cx.trace.as_deref().is_some_and(Tracer::wants_frames)
}

/// Whether a frame is to be offered without a copy: not if a copy of it is to be shown.
fn may_lend<C: Carrier>(cx: &Cx<'_>, out: &C, length: usize) -> bool {
    length > 0 && length <= LARGEST_COPY && !shows_frames(cx) && out.wants_lend(length)
}

/// Offer a frame without a copy: only where nothing in it depends on the payload. `false`: nothing was done.
fn lend<C: Carrier>(
    wire: &mut dyn Wire,
    cx: &mut Cx<'_>,
    frame: &Frame,
    (accessor, Piece { token, address, length }): (Accessor, Piece),
    out: &mut C,
) -> Result<bool, Failed> {
    let Some(trailer) = wire.trailer(frame) else { return Ok(false) };
    let tail = trailer.bytes.get(..usize::from(trailer.length)).unwrap_or_default();
    let lent = accessor
        .lend(cx, token, address, length, |segments| out.lend(frame.header(), segments, tail))?;
    let torn = match lent {
        Some(Direct::Taken) => return Ok(true),
        Some(Direct::Copy) | None => return Ok(false),
        Some(Direct::Fault) => false,
        Some(Direct::Torn) => true,
    };
    Err(Failed { error: AccessError::Vanished { token, address, length }, torn })
}
