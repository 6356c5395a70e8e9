//! Which message or answer is next, and what became of those that went out.

use std::collections::VecDeque;

use transom_wire::{
    Around, Begin, Frame, Immediate, MAX_HEADER, Message, MessageId, Payload, ReadSlot, Refusal,
    Waiting,
};

use super::Channel;
use super::inbound::Answer;
use crate::record::{self, HEADER, Header, LARGEST_PAYLOAD, RecordKind, WORD};

/// The stream as far as it goes to the peer.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Records that went out, and how many of them the peer has executed.
    pub(super) records: u64,
    pub(super) acknowledged: u64,
    /// Records of this side's own making, on their way out, and how much of them has gone.
    words: (Vec<u8>, usize),
    pub(super) current: Option<Current>,
    /// The target that the next message has, and whether the peer is to be told.
    target: Option<u32>,
    target_due: Option<u32>,
    /// Sends and Writes that went out and were not acknowledged.
    sent: VecDeque<Sent>,
    /// Reads and atomics under way, in order.
    pub(super) reads: VecDeque<Reading>,
    pub(super) waits_for_read: bool,
    /// Answers and messages take turns: an answer had the last one.
    answered: bool,
}

/// The message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    id: MessageId,
    message: Message,
    /// Number of its first record.
    first: u64,
    gone: u32,
    announced: bool,
}

/// A Send or Write that has gone out: its records are `first..end`.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: MessageId,
    first: u64,
    end: u64,
}

/// A read or an atomic under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) id: MessageId,
    record: u64,
    pub(super) awaits: Awaits,
}

/// The answer that is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaits {
    /// To a read.
    Bytes { length: u32, received: u32 },
    /// To an atomic.
    Word,
}

impl Outbound {
    /// Queue a record that is no message: it goes before everything else.
    pub(super) fn queue_control(&mut self, header: Header, text: &[u8]) {
        let length = u32::try_from(text.len()).unwrap_or(0);
        let (words, gone) = &mut self.words;
        words.drain(..*gone);
        *gone = 0;
        words.extend_from_slice(&record::to_bytes(Header { length, ..header }.words()));
        words.extend_from_slice(text);
        self.records += 1;
    }

    pub(super) fn has_words(&self) -> bool {
        self.words.1 < self.words.0.len()
    }

    pub(super) fn forget_words(&mut self) {
        self.words = (Vec::new(), 0);
    }

    /// The peer has executed so many more records; the youngest message that it knows to be done.
    pub(super) fn acknowledge(&mut self, more: u32) -> Option<MessageId> {
        self.acknowledged += u64::from(more);
        let mut through = None;
        while let Some(sent) = self.sent.front().filter(|sent| sent.end <= self.acknowledged) {
            through = Some(sent.id);
            self.sent.pop_front();
        }
        through
    }

    /// The message that a record belongs to.
    pub(super) fn named(&self, record: u64) -> Option<MessageId> {
        let read = self.reads.iter().find(|read| read.record == record).map(|read| read.id);
        let sent = || self.sent.iter().find(|s| (s.first..s.end).contains(&record)).map(|s| s.id);
        let current =
            || self.current.filter(|c| (c.first..self.records).contains(&record)).map(|c| c.id);
        read.or_else(sent).or_else(current)
    }
}

fn frame(header: &[u8], payload: Payload, length: u32, last: bool) -> Frame {
    let mut room = [0; MAX_HEADER];
    let used = header.len().min(MAX_HEADER);
    if let (Some(room), Some(header)) = (room.get_mut(..used), header.get(..used)) {
        room.copy_from_slice(header);
    }
    let header_length = u8::try_from(used).unwrap_or(0);
    Frame { header: room, header_length, payload, length, back: 0, sealed: false, last }
}

/// Whether a message is one record.
#[inline]
fn is_one_record(message: &Message) -> bool {
    message.payload() as usize <= LARGEST_PAYLOAD
}

/// Bytes of a message of one record in front of its payload.
#[inline]
fn front_of(message: &Message) -> usize {
    match message {
        Message::Write { immediate: Some(_), .. } => HEADER + WORD,
        // The operands are no bytes of the engine's.
        Message::Atomic { .. } => HEADER + record::OPERANDS,
        Message::Send { .. } | Message::Write { .. } | Message::Read { .. } => HEADER,
    }
}

/// The flags and the address of a Send. One with immediate data invalidates nothing.
fn send_fields(solicited: bool, invalidate: Option<u32>, immediate: Option<u32>) -> (u8, u64) {
    let flags = if solicited { record::SOLICITED } else { 0 }
        | if invalidate.is_some() { record::INVALIDATE } else { 0 }
        | if immediate.is_some() { record::IMMEDIATE } else { 0 };
    (flags, u64::from(invalidate.or(immediate).unwrap_or(0)))
}

/// The flags of the first record of a Write, and the word behind its header.
fn write_fields(immediate: Option<Immediate>) -> (u8, u64) {
    let Some(Immediate { value, solicited }) = immediate else { return (0, 0) };
    let solicited = if solicited { record::SOLICITED } else { 0 };
    (record::IMMEDIATE | solicited, u64::from(value))
}

/// A header, and the word behind it if it has one.
fn bytes_of(header: &Header, word: u64) -> ([u8; HEADER + WORD], usize) {
    let mut bytes = [0; HEADER + WORD];
    let (head, rest) = bytes.split_at_mut(HEADER);
    head.copy_from_slice(&record::to_bytes(header.words()));
    rest.copy_from_slice(&word.to_ne_bytes());
    (bytes, header.front())
}

impl Channel {
    pub(super) fn begin_message(&mut self, id: MessageId, message: &Message) -> Begin {
        if !self.handshake.is_open() || self.outbound.current.is_some() {
            return Begin::Wait(Waiting::Start);
        }
        if message.is_extended() && !self.extended {
            return Begin::Unknown;
        }
        if message.needs_receive() && !self.flow_control.spend() {
            let limit =
                self.flow_control.lacks_receive().then_some(self.handshake.config().receive_wait);
            let refused = self.flow_control.is_refused();
            return Begin::Wait(Waiting::Receive { limit, refused });
        }
        if !message.is_counted() && !self.has_read_slot() {
            self.outbound.waits_for_read = true;
            return Begin::Wait(Waiting::ReadSlot);
        }
        let first = self.outbound.records;
        let message = *message;
        let (gone, announced) = (0, false);
        self.outbound.current = Some(Current { id, message, first, gone, announced });
        Begin::Started
    }

    pub(super) fn aim_at(&mut self, number: u32) {
        if self.outbound.target != Some(number) {
            (self.outbound.target, self.outbound.target_due) = (Some(number), Some(number));
        }
    }

    /// Nothing has to go before a message of one record.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        let waits = self.outbound.current.is_some()
            || self.outbound.target_due.is_some()
            || self.outbound.has_words()
            || !self.inbound.answers.is_empty();
        !waits && self.handshake.is_open()
    }

    /// The bytes around the payload of a message of one record, if it may begin now.
    #[inline]
    pub(super) fn around_message(&self, message: &Message) -> Option<Around> {
        let may_begin = match message {
            Message::Write { immediate: None, .. } => true,
            Message::Send { .. } | Message::Write { .. } => self.flow_control.credit() > 0,
            Message::Read { .. } | Message::Atomic { .. } => self.has_read_slot(),
        };
        let known = self.extended || !message.is_extended();
        let begins = may_begin && known && is_one_record(message) && self.is_free();
        begins.then(|| Around { front: front_of(message), back: 0 })
    }

    /// Begin a message of one record, and write its header.
    #[inline]
    pub(super) fn begin_whole_message(&mut self, id: MessageId, message: &Message, to: &mut [u8]) {
        let record = self.outbound.records;
        if let Message::Write { token, address, length, immediate: None, .. } = *message {
            // As most are, and all of them have the same flags.
            let last = u64::from(token) | u64::from(length) << 32;
            let words = [record::WHOLE_WRITE << 32, self.ack_word(), address, last];
            self.outbound.sent.push_back(Sent { id, first: record, end: record + 1 });
            self.outbound.records = record + 1;
            self.outbound.answered = false;
            if let Some(room) = to.first_chunk_mut::<HEADER>() {
                *room = record::to_bytes(words);
            }
            return;
        }
        self.begin_whole_other(id, message, to);
    }

    #[inline(never)]
    fn begin_whole_other(&mut self, id: MessageId, message: &Message, to: &mut [u8]) {
        if message.needs_receive() {
            self.flow_control.spend();
        }
        self.outbound.answered = false;
        self.write_whole((id, message), self.outbound.records, to);
    }

    /// Write the header of a message of one record, and what stands behind it. `first`: the message's first record,
    /// if another one is in front of this.
    fn write_whole(&mut self, (id, message): (MessageId, &Message), first: u64, to: &mut [u8]) {
        let record = self.outbound.records;
        let header = match *message {
            Message::Write { token, address, length, immediate, .. } => {
                let (flags, word) = write_fields(immediate);
                if let Some(room) = to.get_mut(HEADER..HEADER + WORD) {
                    room.copy_from_slice(&word.to_ne_bytes());
                }
                Header { flags, token, address, length, ..Header::new(RecordKind::Write) }
            }
            Message::Send { length, solicited, invalidate, immediate } => {
                let (flags, address) = send_fields(solicited, invalidate, immediate);
                Header { flags, address, length, ..Header::new(RecordKind::Send) }
            }
            Message::Read { token, address, length, .. } => {
                let awaits = Awaits::Bytes { length, received: 0 };
                self.outbound.reads.push_back(Reading { id, record, awaits });
                Header { token, address, length, ..Header::new(RecordKind::Read) }
            }
            Message::Atomic { token, address, operation } => {
                self.outbound.reads.push_back(Reading { id, record, awaits: Awaits::Word });
                let (detail, operands) = record::operands(operation);
                if let Some(room) = to.get_mut(HEADER..HEADER + record::OPERANDS) {
                    room.copy_from_slice(&operands);
                }
                let length = record::OPERANDS as u32;
                Header { detail, token, address, length, ..Header::new(RecordKind::Atomic) }
            }
        };
        // An atomic's record has no last one behind it: the flag is for messages of several records.
        let last = if header.kind == RecordKind::Atomic { 0 } else { record::LAST };
        let (flags, ack) = (header.flags | last, self.ack_word());
        self.outbound.records += 1;
        if message.is_counted() {
            self.outbound.sent.push_back(Sent { id, first, end: record + 1 });
        }
        if let Some(room) = to.first_chunk_mut::<HEADER>() {
            *room = record::to_bytes(Header { flags, ack, ..header }.words());
        }
    }

    /// Whether another Read or atomic may be under way.
    fn has_read_slot(&self) -> bool {
        let under_way = u32::try_from(self.outbound.reads.len()).unwrap_or(u32::MAX);
        under_way < self.limits.outbound
    }

    pub(super) fn choose_frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.next_words() {
            return Some(frame);
        }
        if !self.handshake.is_open() {
            return None;
        }
        // Records of two messages are never mixed: what has begun goes on. Otherwise they take turns.
        let current = self.outbound.current;
        let begun = current.is_some_and(|current| current.gone > 0 || current.announced);
        let answering = self.inbound.is_answering();
        let turn = answering || !self.outbound.answered || current.is_none();
        if !begun
            && turn
            && let Some(frame) = self.answer_frame()
        {
            self.outbound.answered = true;
            return Some(frame);
        }
        self.outbound.answered = false;
        self.message_frame()
    }

    fn next_words(&mut self) -> Option<Frame> {
        let (words, gone) = &mut self.outbound.words;
        let rest = words.get(*gone..).filter(|rest| !rest.is_empty())?;
        let piece = rest.get(..MAX_HEADER).unwrap_or(rest);
        let frame = frame(piece, Payload::None, 0, false);
        *gone += piece.len();
        if *gone == words.len() {
            self.outbound.forget_words();
        }
        Some(frame)
    }

    /// A record with what the peer is to learn on it.
    fn record(&mut self, header: Header, payload: Payload, length: u32) -> Frame {
        self.record_with((header, 0), payload, length)
    }

    /// A record with a word behind its header, if it has one.
    fn record_with(
        &mut self,
        (mut header, word): (Header, u64),
        payload: Payload,
        length: u32,
    ) -> Frame {
        header.ack = self.ack_word();
        self.outbound.records += 1;
        // The answer to a read of nothing ends nothing that the engine knows of.
        let last = header.has(record::LAST) && payload != Payload::None;
        let (bytes, front) = bytes_of(&header, word);
        frame(bytes.get(..front).unwrap_or_default(), payload, length, last)
    }

    fn answer_frame(&mut self) -> Option<Frame> {
        let answer = match self.inbound.answers.front_mut()? {
            Answer::Read(read) => read,
            Answer::Atomic(old) => {
                // The engine has answered it before it asks for frames.
                let address = (*old)?;
                self.inbound.answers.pop_front();
                let header = Header { address, ..Header::new(RecordKind::AtomicAnswer) };
                return Some(self.record(header, Payload::None, 0));
            }
        };
        let length = answer.left.min(LARGEST_PAYLOAD as u32);
        let slot = ReadSlot((answer.record & 0xFFFF_FFFF) as u32);
        let (token, address) = (answer.token, answer.address);
        answer.left -= length;
        answer.begun = true;
        answer.address = address.wrapping_add(u64::from(length));
        let last = answer.left == 0;
        if last {
            self.inbound.answers.pop_front();
        }
        let flags = if last { record::LAST } else { 0 };
        let header = Header { flags, length, ..Header::new(RecordKind::Answer) };
        let payload = match length {
            0 => Payload::None,
            _ => Payload::Memory { slot, token, address },
        };
        Some(self.record(header, payload, length))
    }

    fn message_frame(&mut self) -> Option<Frame> {
        let Current { id, message, first, gone, announced } = self.outbound.current?;
        if let Some(token) = self.outbound.target_due.take() {
            return Some(self.record(
                Header { token, ..Header::new(RecordKind::Target) },
                Payload::None,
                0,
            ));
        }
        if is_one_record(&message) {
            self.outbound.current = None;
            let mut bytes = [0; MAX_HEADER];
            self.write_whole((id, &message), first, &mut bytes);
            let bytes = bytes.get(..front_of(&message)).unwrap_or_default();
            let payload = Payload::Message { id, offset: 0 };
            return Some(frame(bytes, payload, message.payload(), true));
        }
        let length = message.payload();
        let now = (length - gone).min(LARGEST_PAYLOAD as u32);
        let last = gone + now == length;
        let flags = if last { record::LAST } else { 0 };
        let header = match message {
            Message::Write { token, address, immediate, .. } if !announced => {
                if let Some(current) = &mut self.outbound.current {
                    current.announced = true;
                }
                let (flags, word) = write_fields(immediate);
                let header =
                    Header { flags, token, address, length, ..Header::new(RecordKind::Announce) };
                return Some(self.record_with((header, word), Payload::None, 0));
            }
            Message::Write { token, address, .. } => {
                let address = address.wrapping_add(u64::from(gone));
                Header { flags, token, address, length: now, ..Header::new(RecordKind::Write) }
            }
            Message::Send { solicited, invalidate, immediate, .. } => {
                let (of_send, address) = send_fields(solicited, invalidate, immediate);
                let flags = flags | of_send;
                Header { flags, address, length: now, ..Header::new(RecordKind::Send) }
            }
            // Each is one record.
            Message::Read { .. } | Message::Atomic { .. } => return None,
        };
        let frame = self.record(header, Payload::Message { id, offset: gone }, now);
        if let Some(current) = &mut self.outbound.current {
            current.gone += now;
            if last {
                self.outbound.current = None;
                let end = self.outbound.records;
                self.outbound.sent.push_back(Sent { id, first, end });
            }
        }
        Some(frame)
    }

    /// The payload of the last frame could not be supplied: its record never was.
    pub(super) fn abandon_frame(&mut self, frame: &Frame, refusal: &Refusal<'_>) {
        self.outbound.records = self.outbound.records.saturating_sub(1);
        match frame.payload {
            Payload::Memory { slot, .. } => {
                // The peer counts its records as we do, and slots are their last 32 bits.
                let high = self.inbound.last & !0xFFFF_FFFF;
                let record = high | u64::from(slot.0);
                let record =
                    if record > self.inbound.last { record.wrapping_sub(1 << 32) } else { record };
                let explanation = refusal.explanation;
                self.send_end(Some(refusal.operation), refusal.class, record, explanation);
            }
            // A message of ours: nothing the peer did.
            _ => self.send_end(None, refusal.class, u64::MAX, None),
        }
    }
}

// Every record but those that carry text fits one header.
const _: () = assert!(HEADER + record::OPERANDS <= MAX_HEADER && WORD <= record::OPERANDS);
