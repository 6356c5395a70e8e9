//! Messages of ours, and answers to the peer's reads, as frames.
//!
//! Segments of two messages are never mixed (iW 4.1). Acknowledgements may stand between segments:
//! only a Transom gets them. Messages and answers take turns.

use std::collections::VecDeque;

use transom_wire::{
    Begin, Frame, MAX_HEADER, Message, MessageId, Payload, ReadSlot, Time, Verdicts, Waiting,
};

use super::{Phase, Stream};
use crate::Ready;
use crate::ddp::{TAGGED, Target, UNTAGGED};
use crate::extension::Announce;
use crate::faults::Fault;
use crate::rdmap::{self, Opcode, READ_QUEUE, ReadRequest, SEND_QUEUE};

/// Settled messages that are remembered, so that a late Terminate can be mapped to one.
const HISTORY: usize = 32;

/// The stream as far as it goes to the peer.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The ready-to-receive frame that must go first.
    pub(super) ready: Option<Ready>,
    /// The next message numbers of the two queues.
    send_number: u32,
    read_number: u32,
    current: Option<Current>,
    /// The program's Sends and Writes that have gone out, settled ones first.
    pub(super) sent: VecDeque<Sent>,
    /// How many messages have gone out before the first of `sent`, and how many are settled.
    pub(super) base: u64,
    pub(super) settled: u64,
    /// Messages the peer vouches for, and the youngest that needs it (both: messages gone out).
    vouched: u64,
    verdict_for: u64,
    probing: bool,
    /// Reads under way, in order; the program's among them.
    pub(super) reads: VecDeque<Reading>,
    program_reads: u32,
    waits_for_read: bool,
    /// Answers and messages take turns: an answer had the last one.
    answered: bool,
}

impl Default for Outbound {
    fn default() -> Outbound {
        Outbound {
            ready: None,
            send_number: 1,
            read_number: 1,
            current: None,
            sent: VecDeque::new(),
            base: 0,
            settled: 0,
            vouched: 0,
            verdict_for: 0,
            probing: false,
            reads: VecDeque::new(),
            program_reads: 0,
            waits_for_read: false,
            answered: false,
        }
    }
}

/// The message under way.
#[derive(Clone, Copy, Debug)]
struct Current {
    id: MessageId,
    message: Message,
    sent: u32,
    announced: bool,
}

/// A Send or Write that has gone out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) id: MessageId,
    pub(super) what: What,
    verdict: bool,
}

/// How a peer names it.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Send { number: u32 },
    Write { token: u32, address: u64, length: u32 },
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) asker: Asker,
    pub(super) number: u32,
    pub(super) request: ReadRequest,
    pub(super) received: u32,
}

/// Who wants the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Program(MessageId),
    /// The ready-to-receive frame.
    Ready,
    /// Nobody: its arrival vouches for the messages before it.
    Verdict {
        through: u64,
    },
}

impl Outbound {
    /// The peer vouches for the first `through` messages.
    pub(super) fn vouch(&mut self, through: u64) {
        self.vouched = self.vouched.max(through);
        self.probing = false;
    }

    /// The message whose frames are under way.
    pub(super) fn current_id(&self) -> Option<MessageId> {
        self.current.map(|current| current.id)
    }

    pub(super) fn current_send(&self, number: u32) -> Option<MessageId> {
        let current = self.current.filter(|_| number == self.send_number)?;
        matches!(current.message, Message::Send { .. }).then_some(current.id)
    }

    pub(super) fn current_write(&self, stag: u32, offset: u64) -> Option<MessageId> {
        let current = self.current?;
        let Message::Write { token, address, length, .. } = current.message else { return None };
        let within = offset.wrapping_sub(address) < u64::from(length.max(1));
        (token == stag && within).then_some(current.id)
    }

    /// Frames are waiting or under way.
    pub(super) fn busy(&self) -> bool {
        self.ready.is_some()
            || self.current.is_some()
            || self.verdict_for > self.vouched && !self.probing
    }

    pub(super) fn finish_read(&mut self, resume: &mut bool) {
        self.program_reads = self.program_reads.saturating_sub(1);
        *resume |= std::mem::take(&mut self.waits_for_read);
    }

    /// Messages that have gone out.
    pub(super) fn gone(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    fn under_way(&self) -> u32 {
        u32::try_from(self.reads.len()).unwrap_or(u32::MAX)
    }
}

/// A frame with a header and no payload yet. `length` counts the payload that will follow.
fn frame(parts: [&[u8]; 2], payload: Payload, length: u32, last: bool) -> Frame {
    let mut header = [0; MAX_HEADER];
    let [first, second] = parts;
    let mut used = 2;
    for part in [first, second] {
        if let Some(room) = header.get_mut(used..used + part.len()) {
            room.copy_from_slice(part);
            used += part.len();
        }
    }
    let ulpdu = u16::try_from(used as u64 - 2 + u64::from(length)).unwrap_or(u16::MAX);
    header[..2].copy_from_slice(&ulpdu.to_be_bytes());
    let header_length = u8::try_from(used).unwrap_or(u8::MAX);
    Frame { header, header_length, payload, length, sealed: true, last }
}

/// A frame that belongs to no message.
pub(super) fn control(first: &[u8], second: &[u8]) -> Frame {
    frame([first, second], Payload::None, 0, false)
}

impl Stream {
    /// How much of `left` fits behind a header of `header` bytes.
    fn piece(&self, left: u32, header: usize) -> u32 {
        u32::try_from(self.ulpdu - header).unwrap_or(u32::MAX).min(left)
    }

    // ---- beginning ----------------------------------------------------------------------------

    pub(super) fn begin_message(&mut self, now: Time, id: MessageId, message: &Message) -> Begin {
        if !self.may_send(now) || self.outbound.current.is_some() {
            return Begin::Wait(Waiting::Start);
        }
        match message {
            Message::Send { .. } if self.agreed.extension && !self.acks.spend() => {
                let limit = (!self.acks.peer_shared()).then_some(self.config.receive_wait);
                return Begin::Wait(Waiting::Receive { limit });
            }
            Message::Read { .. } => {
                let out = &mut self.outbound;
                if out.program_reads >= self.agreed.limits.outbound
                    || out.under_way() >= self.agreed.ord
                {
                    out.waits_for_read = true;
                    return Begin::Wait(Waiting::ReadSlot);
                }
                out.program_reads += 1;
            }
            _ => {}
        }
        self.outbound.current = Some(Current { id, message: *message, sent: 0, announced: false });
        Begin::Started
    }

    // ---- choosing -----------------------------------------------------------------------------

    pub(super) fn choose_frame(&mut self, now: Time) -> Option<Frame> {
        if let Some(frame) = self.start_up_frame() {
            return Some(frame);
        }
        if self.last_words.is_some() {
            return self.last_word();
        }
        if !self.may_send(now) {
            return None;
        }
        if let Some(ready) = self.outbound.ready.take() {
            return Some(self.ready_frame(ready));
        }
        let has_data = self.outbound.current.is_some() || !self.inbound.answers.is_empty();
        let probe = self.wants_probe();
        if self.acks.owed()
            && (has_data
                || probe
                || self.acks.due(now, self.config.ack_delay, self.config.ack_limit))
        {
            return Some(control(self.acks.take().header().as_ref(), &[]));
        }
        let begun = self.outbound.current.is_some_and(|current| current.sent > 0);
        let answering = self.inbound.answers.front().is_some_and(|answer| answer.sent > 0);
        if begun {
            return self.message_frame();
        }
        if answering {
            return self.answer_frame();
        }
        if probe {
            return Some(self.probe_frame());
        }
        let turn = !self.outbound.answered || self.outbound.current.is_none();
        if turn && !self.inbound.answers.is_empty() {
            return self.answer_frame();
        }
        self.message_frame()
    }

    fn start_up_frame(&mut self) -> Option<Frame> {
        let (bytes, sent) = &mut self.start_up;
        let rest = bytes.get(*sent..).filter(|rest| !rest.is_empty())?;
        let piece = rest.len().min(MAX_HEADER);
        let mut header = [0; MAX_HEADER];
        for (room, byte) in header.iter_mut().zip(rest) {
            *room = *byte;
        }
        *sent += piece;
        if *sent == bytes.len() {
            self.start_up = (Vec::new(), 0);
        }
        let header_length = u8::try_from(piece).unwrap_or(u8::MAX);
        let payload = Payload::None;
        Some(Frame { header, header_length, payload, length: 0, sealed: false, last: false })
    }

    // ---- frames -------------------------------------------------------------------------------

    fn ready_frame(&mut self, ready: Ready) -> Frame {
        match ready {
            // Token 1: Chelsio's hardware refuses 0, even for no bytes (iW 2.4).
            Ready::Write => {
                let target = Target::Tagged { stag: 1, offset: 0 };
                control(rdmap::segment(Opcode::Write, true, target).header().as_ref(), &[])
            }
            Ready::Read => self.read_of_nothing(Asker::Ready),
        }
    }

    fn read_of_nothing(&mut self, asker: Asker) -> Frame {
        let request =
            ReadRequest { sink_stag: 0, sink_offset: 0, size: 0, source_stag: 1, source_offset: 0 };
        self.read_frame(asker, request, Payload::None)
    }

    fn read_frame(&mut self, asker: Asker, request: ReadRequest, payload: Payload) -> Frame {
        let out = &mut self.outbound;
        let number = out.read_number;
        out.read_number = number.wrapping_add(1);
        out.reads.push_back(Reading { asker, number, request, received: 0 });
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
        let header = rdmap::segment(Opcode::ReadRequest, true, target).header();
        let last = payload != Payload::None;
        frame([header.as_ref(), &request.to_bytes()], payload, 0, last)
    }

    /// A signalled Write has gone out that no verdict is under way for, and a slot is free.
    fn wants_probe(&self) -> bool {
        let out = &self.outbound;
        !out.probing && out.verdict_for > out.vouched && out.under_way() < self.agreed.ord
    }

    fn probe_frame(&mut self) -> Frame {
        self.outbound.probing = true;
        self.read_of_nothing(Asker::Verdict { through: self.outbound.gone() })
    }

    fn message_frame(&mut self) -> Option<Frame> {
        let mut current = self.outbound.current?;
        let Current { id, message, sent, announced } = current;
        let payload = Payload::Message { id, offset: sent };
        let (frame, what, verdict) = match message {
            Message::Send { length, solicited, invalidate } => {
                let number = self.outbound.send_number;
                let piece = self.piece(length - sent, UNTAGGED);
                let last = sent + piece == length;
                let ulp = invalidate.unwrap_or(0);
                let target = Target::Untagged { ulp, queue: SEND_QUEUE, number, offset: sent };
                let opcode = Opcode::send(solicited, invalidate.is_some());
                let header = rdmap::segment(opcode, last, target).header();
                if last {
                    self.outbound.send_number = number.wrapping_add(1);
                }
                (frame([header.as_ref(), &[]], payload, piece, last), What::Send { number }, false)
            }
            Message::Write { token, address, length, verdict } => {
                let piece = self.piece(length - sent, TAGGED);
                let last = sent + piece == length;
                if self.agreed.extension && !last && !announced {
                    current.announced = true;
                    self.outbound.current = Some(current);
                    let announce = Announce { token, address, length };
                    return Some(control(announce.header().as_ref(), &address.to_be_bytes()));
                }
                let offset = address.wrapping_add(u64::from(sent));
                let target = Target::Tagged { stag: token, offset };
                let header = rdmap::segment(Opcode::Write, last, target).header();
                let what = What::Write { token, address, length };
                (frame([header.as_ref(), &[]], payload, piece, last), what, verdict)
            }
            Message::Read { token, address, length, sink_token, sink_address } => {
                self.outbound.current = None;
                self.outbound.answered = false;
                let request = ReadRequest {
                    sink_stag: sink_token,
                    sink_offset: sink_address,
                    size: length,
                    source_stag: token,
                    source_offset: address,
                };
                return Some(self.read_frame(Asker::Program(id), request, payload));
            }
        };
        current.sent += frame.length;
        self.outbound.current = if frame.last { None } else { Some(current) };
        if frame.last {
            self.outbound.answered = false;
            self.gone_out(id, what, verdict);
        }
        Some(frame)
    }

    fn answer_frame(&mut self) -> Option<Frame> {
        let answer = *self.inbound.answers.front()?;
        let ReadRequest { sink_stag, sink_offset, size, source_stag, source_offset } =
            answer.request;
        let piece = self.piece(size - answer.sent, TAGGED);
        let sent = u64::from(answer.sent);
        let last = answer.sent + piece == size;
        let target = Target::Tagged { stag: sink_stag, offset: sink_offset.wrapping_add(sent) };
        let header = rdmap::segment(Opcode::ReadResponse, last, target).header();
        let payload = Payload::Memory {
            slot: ReadSlot(answer.number),
            token: source_stag,
            address: source_offset.wrapping_add(sent),
        };
        let payload = if size == 0 { Payload::None } else { payload };
        if last {
            self.inbound.answers.pop_front();
            self.outbound.answered = true;
        } else if let Some(answer) = self.inbound.answers.front_mut() {
            answer.sent += piece;
        }
        Some(frame([header.as_ref(), &[]], payload, piece, last && size > 0))
    }

    // ---- outcome ------------------------------------------------------------------------------

    /// The last frame of a Send or Write was handed out.
    fn gone_out(&mut self, id: MessageId, what: What, verdict: bool) {
        let verdict = verdict && self.agreed.verdicts == Verdicts::ProbedByRead;
        self.outbound.sent.push_back(Sent { id, what, verdict });
        if verdict {
            self.outbound.verdict_for = self.outbound.gone();
        }
        if !self.agreed.extension {
            if let Some(through) = self.settle() {
                self.pending.done = Some(through);
            }
        }
    }

    /// Plain peer: settles every message that waits for no verdict, in order.
    pub(super) fn settle(&mut self) -> Option<MessageId> {
        self.settle_below(MessageId(u64::MAX))
    }

    /// The same, for messages before `end`.
    pub(super) fn settle_below(&mut self, end: MessageId) -> Option<MessageId> {
        let out = &mut self.outbound;
        let mut through = None;
        while let Some(sent) = out.at(out.settled) {
            if sent.id >= end || sent.verdict && out.settled >= out.vouched {
                break;
            }
            through = Some(sent.id);
            out.settled += 1;
        }
        out.forget();
        through
    }

    /// A verdict that is told now makes an older one, not told yet, superfluous.
    pub(super) fn overtake(&mut self, done: Option<MessageId>) {
        if done.is_some() {
            self.pending.done = None;
        }
    }

    /// With the extension: the peer has executed this many messages.
    pub(super) fn acknowledged(
        &mut self,
        executed: u32,
    ) -> Result<Option<MessageId>, (Fault, String)> {
        let out = &mut self.outbound;
        let told = (out.settled & 0xFFFF_FFFF) as u32;
        let more = u64::from(executed.wrapping_sub(told));
        if out.settled + more > out.gone() {
            let detail =
                format!("the peer acknowledges {more} messages of {}", out.gone() - out.settled);
            return Err((Fault::Extension, detail));
        }
        if more == 0 {
            return Ok(None);
        }
        out.settled += more;
        let done = out.at(out.settled - 1).map(|sent| sent.id);
        out.forget();
        Ok(done)
    }

    pub(super) fn start_acks(&mut self) {
        if self.agreed.extension {
            self.acks.start();
        }
    }
}

impl Outbound {
    /// The `index`th message that went out.
    pub(super) fn at(&self, index: u64) -> Option<&Sent> {
        self.sent.get(usize::try_from(index.checked_sub(self.base)?).ok()?)
    }

    /// Drops settled messages, but for the youngest.
    fn forget(&mut self) {
        while self.settled - self.base > HISTORY as u64 {
            self.sent.pop_front();
            self.base += 1;
        }
    }
}

impl Stream {
    /// Whether a fault may still be answered with a Terminate.
    pub(super) fn can_terminate(&self) -> bool {
        matches!(self.phase, Phase::WaitReply | Phase::Accepted | Phase::WaitReady | Phase::Open)
    }
}
