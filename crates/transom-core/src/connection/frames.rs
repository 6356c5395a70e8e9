//! Frames of the peer, one after the other. Messages of one frame that ask for nothing else are placed and
//! completed in the loop, under one guard; `inbound.rs` has everything else.

use transom_memory::{Memory, Pass, Purpose, Token};
use transom_wire::{
    Bytes, Decoded, Event, Frames, Glance, Immediate, MessageId, Operation, Role, Time, Violation,
};

use super::inbound::Intake;
use super::{Connection, ConnectionPhase, Received};
use crate::copy::{AccessError, Accessor, LARGEST_COPY};
use crate::exec::{Arrival, Value};
use crate::queue::{RequestQueue, Slot};
use crate::{Attention, CompletionKind, Cx, DenialCause, Effects, EndReason, HostMemory};

/// How far ahead frames are glanced at, in bytes: some twenty of the smallest Writes.
const AHEAD: usize = 512;
/// Fewer bytes than this are one small frame and an acknowledgement: there is nothing to overlap.
const BURST: usize = 96;

/// Bytes of a peer that wait for a queue pair, before nothing further is read.
const MOST_HELD: usize = 64 * 1024;

/// The circumstances of a copy: the guard of several frames, the program's memory, and the moment.
type Under<'a, 'b> = (&'a mut Pass<'b>, &'a dyn HostMemory, Time);

impl Connection {
    /// The next bytes of the link. Call it again with what was not consumed and more behind it.
    pub fn receive(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Received {
        let mut rest = bytes;
        let (frames, _) = self.receive_frames(cx, &mut rest);
        let consumed = bytes.len() - rest.len();
        Received { consumed, frames, read_paused: !self.wants_read() }
    }

    /// Take the peer's frames for as long as there are any, and the next one may be taken. How many those
    /// were, and whether all of them ended in this loop (Writes, Sends and acknowledgements), so that there is nothing
    /// to [transmit](Connection::transmit) behind them.
    pub fn receive_frames<F: Frames + ?Sized>(
        &mut self,
        cx: &mut Cx<'_>,
        frames: &mut F,
    ) -> (usize, bool) {
        self.resume(cx);
        let (mut count, mut ahead) = (0, 0);
        let mut quiet = self.quiet(cx);
        let mut all = quiet.is_some();
        // Messages that follow each other share a guard.
        let memory = cx.memory;
        let mut pass = memory.pass(&mut *cx.lane);
        while quiet.is_some() || self.takes_next(frames, cx.now) {
            let Some(bytes) = frames.next() else { break };
            self.heard = cx.now;
            self.attention.clear(Attention::REQUEST_WAITS);
            let decoded = match self.wire.decode(cx.now, bytes) {
                Ok(decoded) => decoded,
                Err(violation) => {
                    drop(pass);
                    let dead = bytes.len();
                    self.violated(cx, violation, bytes);
                    frames.taken(dead);
                    (quiet, count) = (None, count + 1);
                    pass = memory.pass(&mut *cx.lane);
                    continue;
                }
            };
            let Decoded { consumed, done, news, .. } = decoded;
            ahead = usize::saturating_sub(ahead, consumed);
            if let Some(rest) = bytes.get(consumed..).filter(|rest| rest.len() >= BURST) {
                self.fetch_ahead(memory, cx.host, rest, &mut ahead);
            }
            if done.is_some() || news {
                // News of our own requests comes first (ND2 4.2 rule 5).
                drop(pass);
                self.learn(cx, done, news);
                quiet = self.quiet(cx);
                pass = memory.pass(&mut *cx.lane);
            }
            let is_quiet = quiet.is_some();
            match decoded.event {
                None if is_quiet && consumed > 0 => frames.taken(consumed),
                Some(Event::Write { token, address, payload, last: true, immediate })
                    if is_quiet && (immediate.is_none() || self.takes_immediate()) =>
                {
                    self.see_message();
                    let under = (&mut pass, cx.host, cx.now);
                    let length = payload.len() as u32;
                    let placed = match payload {
                        Bytes::Own(own) => {
                            self.remote(Purpose::RemoteWrite, own.len() as u64, |accessor| {
                                accessor.put(under, token, address, Bytes::Own(own))
                            })
                        }
                        elsewhere => self.put_elsewhere(under, token, address, elsewhere),
                    };
                    frames.taken(consumed);
                    if let Err(error) = placed {
                        drop(pass);
                        self.refuse(cx, Operation::Write, error);
                        quiet = None;
                        pass = memory.pass(&mut *cx.lane);
                    } else if let Some(immediate) = immediate {
                        self.complete_written(cx.effects, immediate, length, cx.now);
                    } else {
                        self.written = 0;
                        self.wire.executed(cx.now);
                    }
                }
                Some(Event::Send {
                    offset: 0,
                    payload,
                    last: true,
                    solicited,
                    invalidate: None,
                    immediate,
                }) if is_quiet && self.takes_whole(payload, immediate) => {
                    self.see_message();
                    let under = (&mut pass, cx.host, cx.now);
                    let brings = (solicited, immediate);
                    let delivered = self.deliver_whole(under, cx.effects, payload, brings);
                    frames.taken(consumed);
                    if let Err(error) = delivered {
                        drop(pass);
                        self.refuse_filled(cx, error);
                        quiet = None;
                        pass = memory.pass(&mut *cx.lane);
                    }
                }
                _ if consumed == 0 => break,
                event => {
                    drop(pass);
                    let consumed = consumed.min(bytes.len());
                    self.take_frame(cx, event, bytes.get(..consumed).unwrap_or(bytes));
                    frames.taken(consumed);
                    (quiet, all) = (self.quiet(cx), false);
                    pass = memory.pass(&mut *cx.lane);
                }
            }
            count += 1;
        }
        drop(pass);
        all &= quiet.is_some();
        if !all {
            self.poll(cx);
            self.retire(cx);
        }
        (count, all)
    }

    /// Place a Write whose payload lies in memory that is shared with the peer. A call, so that the loop over
    /// frames keeps its registers for payloads that lie in them.
    #[inline(never)]
    fn put_elsewhere(
        &self,
        under: Under<'_, '_>,
        token: u32,
        address: u64,
        payload: Bytes<'_>,
    ) -> Result<(), AccessError> {
        self.remote(Purpose::RemoteWrite, payload.len() as u64, |accessor| {
            accessor.put(under, token, address, payload)
        })
    }

    /// Whether immediate data completes a receive that is here.
    fn takes_immediate(&self) -> bool {
        let receives = self.execution.as_ref().map(|execution| &execution.receives);
        self.config.dialect.immediate && receives.is_some_and(|receives| !receives.is_empty())
    }

    /// A Write with immediate data is placed, the last piece of which had `length` bytes: complete the receive at
    /// the front.
    #[inline(never)]
    fn complete_written(
        &mut self,
        effects: &mut Effects,
        Immediate { value, solicited }: Immediate,
        length: u32,
        now: Time,
    ) {
        let length = std::mem::take(&mut self.written).saturating_add(length);
        if let Some(execution) = &mut self.execution {
            let (kind, value) = (CompletionKind::ReceiveWrite, Value::Immediate(value));
            execution.complete_receive(effects, &Arrival { kind, length, solicited, value });
        }
        self.wire.executed(now);
    }

    /// Whether a Send of one frame fills a receive that is here and lies in one piece.
    #[inline]
    fn takes_whole(&self, payload: Bytes<'_>, immediate: Option<u32>) -> bool {
        if immediate.is_some() && !self.config.dialect.immediate {
            return false;
        }
        let receives = self.execution.as_ref().map(|execution| &execution.receives);
        let room = receives.and_then(RequestQueue::front).and_then(Slot::only);
        room.is_some_and(|room| payload.len() <= (room.length as usize).min(LARGEST_COPY))
    }

    /// Fill the receive at the front with a Send of one frame, and complete it. The Send may bring that it is
    /// solicited, and immediate data.
    #[inline(never)]
    fn deliver_whole(
        &mut self,
        under: Under<'_, '_>,
        effects: &mut Effects,
        payload: Bytes<'_>,
        (solicited, immediate): (bool, Option<u32>),
    ) -> Result<(), AccessError> {
        let Some(execution) = &mut self.execution else { return Err(AccessError::Missing) };
        let (now, length) = (under.2, payload.len() as u32);
        let actor = execution.receiver(self.config.id);
        let accessor = Accessor { actor, purpose: Purpose::ReceiveBuffer };
        let room = execution.receives.front().and_then(Slot::only).ok_or(AccessError::Missing)?;
        if !payload.is_empty() {
            accessor.put(under, room.token, room.address, payload)?;
        }
        let kind = CompletionKind::Receive;
        let value = immediate.map_or(Value::None, Value::Immediate);
        execution.complete_receive(effects, &Arrival { kind, length, solicited, value });
        self.wire.executed(now);
        Ok(())
    }

    /// Whether the next frame may be taken. What no longer counts is taken here, and thrown away: unread bytes
    /// would turn the end into a reset.
    fn takes_next<F: Frames + ?Sized>(&mut self, frames: &mut F, now: Time) -> bool {
        if self.drops_all() {
            while let Some(bytes) = frames.next() {
                let length = bytes.len();
                frames.taken(length);
                self.heard = now;
            }
            return false;
        }
        if self.awaits_queue_pair() {
            // Kept, but no more than this, so that the end behind it is seen.
            let held = frames.waiting() >= MOST_HELD;
            self.intake = if held { Intake::Held } else { Intake::Reading };
            return false;
        }
        !self.is_paused()
    }

    /// Our own messages up to `done` were executed, and there may be other news of them.
    fn learn(&mut self, cx: &mut Cx<'_>, done: Option<MessageId>, news: bool) {
        if let Some(through) = done {
            self.done(cx, through);
        }
        if news {
            self.poll(cx);
        }
    }

    /// Take a frame, of which the wire has made this event.
    fn take_frame(&mut self, cx: &mut Cx<'_>, event: Option<Event<'_>>, bytes: &[u8]) {
        self.show(cx, bytes);
        // News that came with it may have ended the connection: then nothing counts any more.
        if let Some(event) = event.filter(|_| self.ended.is_none()) {
            self.handle(cx, event);
        }
        self.judged(cx);
    }

    /// The peer's bytes break a rule of the wire.
    #[cold]
    fn violated(&mut self, cx: &mut Cx<'_>, violation: Violation, bytes: &[u8]) {
        let seen = self.wire.glance(bytes).map_or(bytes.len(), |frame| frame.length);
        self.show(cx, bytes.get(..seen).unwrap_or(bytes));
        let denial = self.record(cx, None, DenialCause::Violation(violation));
        self.end(cx, EndReason::Violation, denial);
        self.judged(cx);
    }

    /// Whether nothing that comes in counts any more. Of a connection to itself the answers do, in front of
    /// what is refused.
    fn drops_all(&self) -> bool {
        match self.phase {
            ConnectionPhase::Closing | ConnectionPhase::Drained | ConnectionPhase::Closed => true,
            ConnectionPhase::Refusing => self.config.role != Role::Itself,
            ConnectionPhase::Setup | ConnectionPhase::Open => false,
        }
    }

    /// The frame that was shown last has been judged.
    fn judged(&self, cx: &mut Cx<'_>) {
        if let Some(tracer) = cx.trace.as_deref_mut() {
            tracer.frame_judged();
        }
    }

    /// Have the lines fetched that judging the frames behind the first one will need, so that in a table larger
    /// than the caches they do not wait for memory one by one. `ahead` is how far this has come, counted from
    /// the first byte of the next frame.
    fn fetch_ahead(&self, memory: &Memory, host: &dyn HostMemory, rest: &[u8], ahead: &mut usize) {
        while *ahead < AHEAD {
            let next = self.wire.glance(rest.get(*ahead..).unwrap_or_default());
            let Some(Glance { length, token }) = next else { return };
            if let Some(line) = token.and_then(|token| memory.line(Token(token))) {
                host.fetch_ahead(line);
            }
            *ahead += length.max(1);
        }
    }
}
