//! Which message or answer is next, and what became of those that went out.
//!
//! Segments of two messages are never mixed (iW 4.1). Acknowledgements may stand between segments:
//! only a Transom gets them. Messages and answers take turns.

use std::collections::VecDeque;

use transom_wire::{Around, Begin, Frame, Message, MessageId, Role, Time, Verdicts, Waiting};

use super::Stream;
use super::frames::control;
use crate::ddp::{TAGGED, Target, UNTAGGED};
use crate::extension::immediate_header;
use crate::faults::Fault;
use crate::rdmap::{Opcode, READ_REQUEST, ReadRequest, SEND_QUEUE, segment};
use crate::rfc7306::ATOMIC_REQUEST;
use crate::{Ready, fpdu};

/// Settled messages that are remembered, so that a late Terminate can be mapped to one.
const HISTORY: usize = 32;

/// The stream as far as it goes to the peer.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The ready-to-receive frame that must go first.
    pub(super) ready: Option<Ready>,
    /// The next message numbers of the two queues.
    pub(super) send_number: u32,
    pub(super) read_number: u32,
    pub(super) current: Option<Current>,
    /// The target that the next message has, and whether the peer is to be told.
    target: Option<u32>,
    pub(super) target_due: Option<u32>,
    /// The program's Sends and Writes that have gone out, settled ones first.
    pub(super) sent: VecDeque<Sent>,
    /// How many messages have gone out before the first of `sent`.
    pub(super) base: u64,
    /// How many messages that have gone out are settled.
    pub(super) settled: u64,
    /// How many messages that have gone out the peer vouches for.
    pub(super) vouched: u64,
    /// How many messages must be vouched for, so that every request that asks for a verdict has its own.
    pub(super) verdict_for: u64,
    pub(super) probing: bool,
    /// Reads and atomics under way, in order; the program's among them.
    pub(super) reads: VecDeque<Reading>,
    program_reads: u32,
    waits_for_read: bool,
    /// The next message needs to know what the peer takes.
    pub(super) waits_for_acquaintance: bool,
    /// The next number of an answer to an atomic.
    pub(super) atomic_number: u32,
    /// Answers and messages take turns: an answer had the last one.
    pub(super) answered: bool,
}

impl Default for Outbound {
    fn default() -> Outbound {
        Outbound {
            ready: None,
            send_number: 1,
            read_number: 1,
            current: None,
            target: None,
            target_due: None,
            sent: VecDeque::new(),
            base: 0,
            settled: 0,
            vouched: 0,
            verdict_for: 0,
            probing: false,
            reads: VecDeque::new(),
            program_reads: 0,
            waits_for_read: false,
            waits_for_acquaintance: false,
            atomic_number: 1,
            answered: false,
        }
    }
}

/// The message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) id: MessageId,
    pub(super) message: Message,
    pub(super) sent: u32,
    pub(super) announced: bool,
    /// The message's immediate data has gone out.
    pub(super) accompanied: bool,
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

/// A read or an atomic under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) asker: Asker,
    pub(super) number: u32,
    pub(super) fetch: Fetch,
}

/// The answer that is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetch {
    Read { request: ReadRequest, received: u32 },
    Atomic,
}

/// The receiver of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Program(MessageId),
    /// The ready-to-receive frame.
    Ready,
    /// No request: its arrival vouches for the messages before it.
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

    pub(super) fn current_write(&self) -> Option<(MessageId, What)> {
        let Current { id, message, .. } = self.current?;
        let Message::Write { token, address, length, .. } = message else { return None };
        Some((id, What::Write { token, address, length }))
    }

    /// Frames are waiting or under way.
    pub(super) fn is_busy(&self) -> bool {
        self.ready.is_some() || self.current.is_some()
    }

    /// A signalled Write has gone out that no verdict is under way for.
    pub(super) fn lacks_verdict(&self) -> bool {
        !self.probing && self.verdict_for > self.vouched
    }

    /// A read has been answered.
    pub(super) fn finish_read(&mut self, asker: Asker, resume: &mut bool) {
        if matches!(asker, Asker::Program(_)) {
            self.program_reads = self.program_reads.saturating_sub(1);
        }
        *resume |= std::mem::take(&mut self.waits_for_read);
    }

    /// Messages that have gone out.
    pub(super) fn gone(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    pub(super) fn under_way(&self) -> u32 {
        u32::try_from(self.reads.len()).unwrap_or(u32::MAX)
    }
}

impl Stream {
    // ---- beginning ----------------------------------------------------------------------------

    pub(super) fn begin_message(&mut self, now: Time, id: MessageId, message: &Message) -> Begin {
        if !self.may_send(now) || self.outbound.current.is_some() {
            return Begin::Wait(Waiting::Start);
        }
        if message.is_extended() {
            match self.is_extended() {
                Some(true) => {}
                Some(false) => return Begin::Unknown,
                None => {
                    self.outbound.waits_for_acquaintance = true;
                    return Begin::Wait(Waiting::Start);
                }
            }
        }
        if message.needs_receive() && self.agreed.extension && !self.acks.pacer().spend() {
            let limit = self.acks.lacks_receive().then_some(self.config.common.receive_wait);
            let refused = self.acks.is_refused();
            return Begin::Wait(Waiting::Receive { limit, refused });
        }
        if !message.is_counted() {
            if !self.has_read_slot() {
                self.outbound.waits_for_read = true;
                return Begin::Wait(Waiting::ReadSlot);
            }
            self.outbound.program_reads += 1;
        }
        let (sent, announced, accompanied) = (0, false, false);
        let current = Current { id, message: *message, sent, announced, accompanied };
        self.outbound.current = Some(current);
        Begin::Started
    }

    pub(super) fn aim_at(&mut self, number: u32) -> bool {
        if self.agreed.extension && self.outbound.target != Some(number) {
            (self.outbound.target, self.outbound.target_due) = (Some(number), Some(number));
        }
        self.agreed.extension
    }

    /// Whether the peer takes immediate data and atomics, as far as that is known.
    fn is_extended(&self) -> Option<bool> {
        match self.config.common.role {
            Role::Itself => Some(true),
            _ if !self.agreed.extension => Some(false),
            _ => self.acks.extended(),
        }
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
        let frame = self.choose_message(now);
        if frame.is_some() && !self.agreed.extension {
            self.expect_sign_of_life(now);
        }
        frame
    }

    /// The next frame of an open stream.
    #[inline]
    fn choose_message(&mut self, now: Time) -> Option<Frame> {
        if let Some(ready) = self.outbound.ready.take() {
            self.hold(now);
            return Some(self.ready_frame(ready));
        }
        let has_data = self.outbound.current.is_some() || !self.inbound.answers.is_empty();
        let probe = self.wants_probe();
        if self.acks.is_owed()
            && (has_data
                || probe
                || self.acks.is_due(
                    now,
                    self.config.common.ack_delay,
                    self.config.common.ack_limit,
                ))
        {
            return Some(control(&self.acks.take().header(), &[]));
        }
        let begun = self
            .outbound
            .current
            .is_some_and(|current| current.sent > 0 || current.announced || current.accompanied);
        let answering = self.inbound.answers.front().is_some_and(|answer| answer.sent > 0);
        if begun {
            return self.message_frame();
        }
        if answering {
            return self.answer_frame();
        }
        if std::mem::take(&mut self.nudge.due) {
            return Some(self.ready_frame(Ready::Write));
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

    /// Nothing but an acknowledgement has to go before a message of one frame to a Transom.
    #[inline]
    pub(super) fn is_free_for_whole(&mut self, now: Time) -> bool {
        let waits = self.outbound.is_busy()
            || self.outbound.target_due.is_some()
            || !self.inbound.answers.is_empty()
            || self.last_words.is_some()
            || !self.start_up.0.is_empty();
        let plain = !self.agreed.extension || self.markers.is_some();
        !waits && !plain && self.may_send(now)
    }

    /// The bytes around the payload of a message of one frame to a Transom, if it may begin now: an
    /// acknowledgement that is owed is among those before it.
    pub(super) fn around_message(&mut self, now: Time, message: &Message) -> Option<Around> {
        let header = match message {
            Message::Write { immediate: None, length: 0, .. } => return None,
            Message::Write { .. } => TAGGED,
            Message::Send { .. } => UNTAGGED,
            Message::Read { .. } | Message::Atomic { .. } if !self.has_read_slot() => return None,
            Message::Read { .. } => UNTAGGED + READ_REQUEST,
            Message::Atomic { .. } => UNTAGGED + ATOMIC_REQUEST,
        };
        let lacks_receive = message.needs_receive() && self.acks.credit() == 0;
        let unknown = message.is_extended() && self.is_extended() != Some(true);
        let ulpdu = header + message.payload() as usize;
        if lacks_receive || unknown || ulpdu > self.ulpdu || !self.is_free_for_whole(now) {
            return None;
        }
        let before = self.size_before(message);
        Some(Around { front: before + fpdu::LENGTH + header, back: fpdu::behind(ulpdu) })
    }

    /// Bytes of the frames in front of that of a message: an acknowledgement that is owed, and immediate data.
    fn size_before(&self, message: &Message) -> usize {
        let frames = [self.acks.is_owed(), message.immediate().is_some()];
        frames.map(usize::from).iter().sum::<usize>() * fpdu::size(UNTAGGED)
    }

    /// Begin a message of one frame, and fill in what is around its payload.
    pub(super) fn begin_whole_message(&mut self, id: MessageId, message: &Message, to: &mut [u8]) {
        let checksum = self.agreed.checksum;
        let before = self.size_before(message);
        let (before, own) = to.split_at_mut(before.min(to.len()));
        let ack = self.acks.is_owed().then(|| self.acks.take().header());
        let immediate = message.immediate().map(|immediate| immediate_header(&immediate));
        let frames = before.chunks_exact_mut(fpdu::size(UNTAGGED));
        for (frame, header) in frames.zip(ack.into_iter().chain(immediate)) {
            fpdu::surround(frame, header.as_ref(), 0, checksum);
        }
        if message.needs_receive() {
            self.acks.pacer().spend();
        }
        let number = self.outbound.send_number;
        let (target, opcode, what, verdict) = match *message {
            Message::Write { token, address, length, verdict, .. } => {
                let target = Target::Tagged { stag: token, offset: address };
                (target, Opcode::Write, What::Write { token, address, length }, verdict)
            }
            Message::Send { solicited, invalidate, .. } => {
                self.outbound.send_number = number.wrapping_add(1);
                let ulp = invalidate.unwrap_or(0);
                let target = Target::Untagged { ulp, queue: SEND_QUEUE, number, offset: 0 };
                (
                    target,
                    Opcode::send(solicited, invalidate.is_some()),
                    What::Send { number },
                    false,
                )
            }
            Message::Read { .. } | Message::Atomic { .. } => {
                self.outbound.program_reads += 1;
                let (sent, announced, accompanied) = (0, false, false);
                let current = Current { id, message: *message, sent, announced, accompanied };
                self.outbound.current = Some(current);
                if let Some(frame) = self.message_frame() {
                    let header = frame.header().get(fpdu::LENGTH..).unwrap_or_default();
                    fpdu::surround(own, header, 0, checksum);
                }
                return;
            }
        };
        let header = segment(opcode, true, target).header();
        fpdu::surround(own, header.as_ref(), message.payload() as usize, checksum);
        self.outbound.answered = false;
        self.gone_out(id, what, verdict);
    }

    /// Whether another Read or atomic may be under way.
    fn has_read_slot(&self) -> bool {
        let out = &self.outbound;
        // A verdict and a ready-to-receive frame that is a Read have waited longer: the next free slots are theirs.
        let waiting = [out.lacks_verdict(), out.ready == Some(Ready::Read)];
        let taken = out.under_way() + waiting.map(u32::from).iter().sum::<u32>();
        taken < self.agreed.ord && out.program_reads < self.agreed.limits.outbound
    }

    // ---- outcome ------------------------------------------------------------------------------

    /// The last frame of a Send or Write was handed out.
    pub(super) fn gone_out(&mut self, id: MessageId, what: What, verdict: bool) {
        let verdict = verdict && self.agreed.verdicts == Verdicts::ProbedByRead;
        self.outbound.sent.push_back(Sent { id, what, verdict });
        if verdict {
            self.outbound.verdict_for = self.outbound.gone();
        }
        if !self.agreed.extension
            && let Some(through) = self.settle()
        {
            self.pending.done = Some(through);
        }
    }

    /// Plain peer: settles every message that waits for no verdict, in order.
    pub(super) fn settle(&mut self) -> Option<MessageId> {
        self.settle_below(MessageId(u64::MAX))
    }

    /// Settle messages before `end`.
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

    /// The peer closed in order, and its TCP has everything that went out: Writes that wait for a
    /// verdict have succeeded, as [`Verdicts::ProbedByRead`] says.
    pub(super) fn settle_delivered(&mut self) {
        if self.agreed.verdicts == Verdicts::ProbedByRead {
            let gone = self.outbound.gone();
            self.outbound.vouch(gone);
            self.pending.done = self.settle().or(self.pending.done);
        }
    }

    /// A verdict reported now makes an older one, not reported yet, superfluous.
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
            self.acks.pacer().start();
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
