//! The peer's records: order, contiguity and length, as far as they can be judged without asking whose
//! memory it is. What passes becomes an event.

use std::collections::VecDeque;

use transom_wire::{
    Blame, Bytes, Decoded, Event, Immediate, MessageId, Operation, PeerError, ReadSlot, Refusal,
    RefusalClass, Time, Violation, explanation_of,
};

use super::Channel;
use super::outbound::{Awaits, Reading};
use crate::flow_control::CREDITS;
use crate::record::{self, HEADER, Header, LARGEST_PAYLOAD, RecordKind};
use crate::ring::INLINE;

/// A message of which not all has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Partial {
    #[default]
    None,
    /// Announced; `left` bytes are missing.
    Write {
        token: u32,
        next: u64,
        left: u32,
        immediate: Option<Immediate>,
    },
    Send {
        flags: u8,
        address: u64,
        next: u32,
    },
    Answer,
}

/// A read or an atomic of the peer that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Read(Read),
    /// The value of the word before, once the engine has changed it.
    Atomic(Option<u64>),
}

/// A read of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Number of its record.
    pub(super) record: u64,
    pub(super) token: u32,
    pub(super) address: u64,
    pub(super) left: u32,
    /// A part of the answer has gone out.
    pub(super) begun: bool,
}

/// The stream as far as it comes from the peer.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// Records that have come.
    taken: u64,
    /// The last of them ends a message that has not been executed; its bytes.
    held: Option<u32>,
    /// Number of the record that the last event came from.
    pub(super) last: u64,
    /// The message in progress answers a read of ours.
    answered: bool,
    /// Sends, and Writes with immediate data, that have begun, modulo 2^28.
    sends: u32,
    partial: Partial,
    pub(super) answers: VecDeque<Answer>,
}

impl Inbound {
    /// Records that were executed, modulo 2^32.
    pub(super) fn executed(&self) -> u32 {
        let held = self.held.is_some();
        (self.taken.wrapping_sub(u64::from(held)) & 0xFFFF_FFFF) as u32
    }

    /// The message that waited was executed.
    pub(super) fn release(&mut self) -> Option<u32> {
        self.held.take()
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.partial != Partial::None
    }

    /// A message that names this token has begun and not ended.
    pub(super) fn is_using(&self, token: u32) -> bool {
        matches!(self.partial, Partial::Write { token: begun, .. } if begun == token)
            || self.answers.iter().any(|answer| match answer {
                Answer::Read(read) => read.token == token,
                // Executed as soon as it came.
                Answer::Atomic(_) => false,
            })
    }

    /// The engine has carried out the atomic that came last.
    pub(super) fn answer(&mut self, value: u64) {
        if let Some(Answer::Atomic(old)) = self.answers.back_mut() {
            *old = Some(value);
        }
    }

    /// The answer to a read has begun and not ended.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.answers.front(), Some(Answer::Read(Read { begun: true, .. })))
    }
}

/// A rule of this wire that the peer broke.
type Broken = (&'static str, String);

impl Channel {
    /// The next record.
    pub(super) fn on_record<'b>(
        &mut self,
        now: Time,
        bytes: &'b [u8],
    ) -> Result<Decoded<'b>, Violation> {
        let Some(words) = record::to_words(bytes) else { return Ok(Decoded::NOTHING) };
        let Some(header) = Header::from_words(words) else {
            return Err(self.broken(("records", "a record of no known kind".into())));
        };
        let length = header.payload();
        if length > header.kind.largest_payload() {
            let detail = format!("{length} bytes behind a {:?}", header.kind);
            return Err(self.broken(("records", detail)));
        }
        let front = header.front();
        let Some((before, rest)) = bytes.split_at_checked(front) else {
            return Ok(Decoded::NOTHING);
        };
        let word = before.get(HEADER..).and_then(<[u8]>::first_chunk).copied();
        let elsewhere = header.has(record::ELSEWHERE) && header.kind.carries_data();
        let placed = header.has(record::LENT) && header.kind == RecordKind::Answer;
        let behind = match (placed, elsewhere) {
            (true, _) => 0,
            (_, true) => 8,
            _ => length,
        };
        let Some(payload) = rest.get(..behind) else { return Ok(Decoded::NOTHING) };
        // At most the largest payload, which was asked above.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let payload = if placed {
            Bytes::Placed { length }
        } else if elsewhere {
            let mut address = [0; 8];
            address.copy_from_slice(payload);
            Bytes::Shared { address: u64::from_ne_bytes(address), length }
        } else {
            Bytes::Own(payload)
        };
        let counts = header.kind != RecordKind::Ack;
        if counts {
            self.inbound.last = self.inbound.taken;
            self.inbound.answered =
                matches!(header.kind, RecordKind::Answer | RecordKind::AtomicAnswer);
        }
        let event = if self.handshake.is_open() {
            self.learn(header.ack).map_err(|broken| self.broken(broken))?;
            let word = word.map(u64::from_ne_bytes);
            self.take(now, (&header, word), payload).map_err(|broken| self.broken(broken))?
        } else {
            let private = payload.own().unwrap_or_default();
            let Some(event) = self.start_up(&header, private) else {
                let detail = format!("a {:?} where start-up has not come so far", header.kind);
                return Err(self.silent(detail));
            };
            Some(event)
        };
        // A record that breaks a rule is never acknowledged.
        self.inbound.taken += u64::from(counts);
        Ok(Decoded::of(front + behind, event))
    }

    /// A Write that is one record, as most are: what passes here passes [`Channel::on_record`] with the same
    /// outcome. Behind its payload there may be more.
    #[inline(always)]
    pub(super) fn on_whole_write<'b>(&mut self, bytes: &'b [u8]) -> Option<Decoded<'b>> {
        let (header, rest) = bytes.split_first_chunk()?;
        let [first, ack, address, last] = record::words_of(header);
        let (token, length) = ((last & 0xFFFF_FFFF) as u32, (last >> 32) as u32);
        if !self.handshake.is_open() || self.inbound.is_unfinished() {
            return None;
        }
        let (payload, behind) = match record::kind_of(first) {
            record::WHOLE_WRITE if (1..=INLINE as u32).contains(&length) => {
                (Bytes::Own(rest.get(..length as usize)?), length as usize)
            }
            record::WHOLE_WRITE_ELSEWHERE if (1..=LARGEST_PAYLOAD as u32).contains(&length) => {
                let address = u64::from_ne_bytes(*rest.first_chunk()?);
                (Bytes::Shared { address, length }, 8)
            }
            _ => return None,
        };
        // A violation changes nothing here; the other way reports it.
        self.learn(ack).ok()?;
        self.take_whole(length);
        let event = Some(Event::Write { token, address, payload, last: true, immediate: None });
        let (done, news) = self.take_news();
        Some(Decoded { consumed: HEADER + behind, done, news, event })
    }

    /// As [`Channel::on_whole_write`], a Send that is one record and invalidates nothing.
    #[inline(never)]
    pub(super) fn on_whole_send<'b>(&mut self, bytes: &'b [u8]) -> Option<Decoded<'b>> {
        let (header, rest) = bytes.split_first_chunk()?;
        let [first, ack, word, last] = record::words_of(header);
        let (kind, length) = (record::kind_of(first), (last >> 32) as u32);
        let has = |flag: u8| kind & u64::from(flag) << 8 != 0;
        let immediate = if has(record::IMMEDIATE) { Some(u32::try_from(word).ok()?) } else { None };
        if !self.handshake.is_open() || self.inbound.is_unfinished() || !self.has_granted() {
            return None;
        }
        let (payload, behind) = match kind & !record::WITH_SEND {
            record::WHOLE_SEND if (0..=INLINE as u32).contains(&length) => {
                (Bytes::Own(rest.get(..length as usize)?), length as usize)
            }
            record::WHOLE_SEND_ELSEWHERE if (1..=LARGEST_PAYLOAD as u32).contains(&length) => {
                let address = u64::from_ne_bytes(*rest.first_chunk()?);
                (Bytes::Shared { address, length }, 8)
            }
            _ => return None,
        };
        self.learn(ack).ok()?;
        self.take_whole(length);
        self.inbound.sends = self.inbound.sends.wrapping_add(1) & CREDITS;
        let (solicited, invalidate) = (has(record::SOLICITED), None);
        let (offset, last) = (0, true);
        let event = Some(Event::Send { offset, payload, last, solicited, invalidate, immediate });
        let (done, news) = self.take_news();
        Some(Decoded { consumed: HEADER + behind, done, news, event })
    }

    /// A message of one record has come.
    #[inline(always)]
    fn take_whole(&mut self, length: u32) {
        self.inbound.last = self.inbound.taken;
        self.inbound.answered = false;
        self.inbound.taken += 1;
        self.inbound.held = Some(length);
        self.cut = false;
    }

    /// A decoded record, and with it the acknowledgements that have become known.
    #[inline(always)]
    pub(super) fn with_news<'b>(&mut self, decoded: Decoded<'b>) -> Decoded<'b> {
        let (done, news) = self.take_news();
        Decoded { done, news, ..decoded }
    }

    /// The news of messages of this side's, and whether there are other events.
    #[inline(always)]
    fn take_news(&mut self) -> (Option<MessageId>, bool) {
        let pending = &mut self.pending;
        (pending.done.take(), pending.resume || pending.credit_wanted)
    }

    #[inline(always)]
    fn learn(&mut self, word: u64) -> Result<(), Broken> {
        let (acknowledged, sent) = (self.outbound.acknowledged, self.outbound.records);
        let Some(news) = self.flow_control.learn(word, acknowledged, sent, self.inbound.sends)
        else {
            return Err(("acknowledgements", "the peer has executed what was not sent".into()));
        };
        if let Some(through) = self.outbound.acknowledge(news.executed) {
            self.pending.done = Some(through);
        }
        self.pending.resume |= news.resume;
        self.pending.credit_wanted |= news.wanted;
        Ok(())
    }

    fn take<'b>(
        &mut self,
        now: Time,
        (header, word): (&Header, Option<u64>),
        payload: Bytes<'b>,
    ) -> Result<Option<Event<'b>>, Broken> {
        let event = match header.kind {
            RecordKind::Announce => self.on_announce(header, word)?,
            RecordKind::Write => self.on_write(header, word, payload)?,
            RecordKind::Send => self.on_send(header, payload)?,
            RecordKind::Read => return self.on_read(header),
            RecordKind::Answer => self.on_answer(header, payload)?,
            RecordKind::Atomic => self.on_atomic(header, payload)?,
            RecordKind::AtomicAnswer => self.on_atomic_answer(header)?,
            RecordKind::Refuse => self.on_refusal(header, payload),
            RecordKind::Target => return self.on_target(header),
            RecordKind::Ack => return Ok(None),
            RecordKind::Request | RecordKind::Reply | RecordKind::Reject | RecordKind::Ready => {
                return Err(("start-up", format!("a {:?} after start-up", header.kind)));
            }
        };
        let ends = header.kind.is_counted() && header.has(record::LAST);
        if ends {
            self.inbound.held = Some(header.payload() as u32);
        } else {
            self.flow_control.executed(now, header.length.min(record::LARGEST_PAYLOAD as u32));
        }
        Ok(Some(event))
    }

    fn idle_or(&self, what: &str) -> Result<(), Broken> {
        match self.inbound.partial {
            Partial::None => Ok(()),
            partial => Err(("messages", format!("{what} inside an unfinished {partial:?}"))),
        }
    }

    fn on_target<'b>(&mut self, header: &Header) -> Result<Option<Event<'b>>, Broken> {
        self.idle_or("a target")?;
        Ok(Some(Event::Target { number: header.token }))
    }

    /// Whether a receive is granted that no message has used. Counts are modulo 2^28.
    #[inline]
    fn has_granted(&self) -> bool {
        self.inbound.sends != self.flow_control.announced_credits()
    }

    /// A message that has begun uses one of the receives granted.
    fn use_receive(&mut self, what: &str) -> Result<(), Broken> {
        if !self.has_granted() {
            return Err(("receives", format!("{what} for which no receive was granted")));
        }
        self.inbound.sends = self.inbound.sends.wrapping_add(1) & CREDITS;
        Ok(())
    }

    /// The immediate data of a Write that begins, which uses a receive.
    fn begin_immediate(
        &mut self,
        header: &Header,
        word: Option<u64>,
    ) -> Result<Option<Immediate>, Broken> {
        let Some(word) = word else { return Ok(None) };
        let value = four_bytes(word)?;
        self.use_receive("a Write with immediate data")?;
        Ok(Some(Immediate { value, solicited: header.has(record::SOLICITED) }))
    }

    fn on_announce<'b>(&mut self, header: &Header, word: Option<u64>) -> Result<Event<'b>, Broken> {
        self.idle_or("an announcement")?;
        let &Header { token, address, length, .. } = header;
        if length == 0 {
            return Err(("messages", "an announced Write of nothing".into()));
        }
        let immediate = self.begin_immediate(header, word)?;
        // A range that wraps around is the engine's to refuse.
        self.inbound.partial = Partial::Write { token, next: address, left: length, immediate };
        Ok(Event::WriteAnnounced { token, address, length: u64::from(length) })
    }

    fn on_write<'b>(
        &mut self,
        header: &Header,
        word: Option<u64>,
        payload: Bytes<'b>,
    ) -> Result<Event<'b>, Broken> {
        let &Header { token, address, length, .. } = header;
        let last = header.has(record::LAST);
        let immediate = match self.inbound.partial {
            Partial::None if last => self.begin_immediate(header, word)?,
            Partial::None => {
                return Err(("messages", "a Write of several records, not announced".into()));
            }
            Partial::Write { token: expected, next, left, immediate }
                if token == expected
                    && word.is_none()
                    && address == next
                    && length <= left
                    && last == (length == left)
                    && length > 0 =>
            {
                let (next, left) = (next.wrapping_add(u64::from(length)), left - length);
                self.inbound.partial = Partial::Write { token, next, left, immediate };
                immediate.filter(|_| last)
            }
            partial => {
                let detail = format!("{length} bytes to {token:#x} at {address:#x} in {partial:?}");
                return Err(("messages", detail));
            }
        };
        if last {
            self.inbound.partial = Partial::None;
        }
        Ok(Event::Write { token, address, payload, last, immediate })
    }

    fn on_send<'b>(&mut self, header: &Header, payload: Bytes<'b>) -> Result<Event<'b>, Broken> {
        let last = header.has(record::LAST);
        let flags = header.flags & (record::SOLICITED | record::INVALIDATE | record::IMMEDIATE);
        let value = if header.has(record::INVALIDATE | record::IMMEDIATE) {
            Some(four_bytes(header.address)?)
        } else {
            None
        };
        let invalidate = value.filter(|_| header.has(record::INVALIDATE));
        let immediate = value.filter(|_| header.has(record::IMMEDIATE));
        if invalidate.is_some() && immediate.is_some() {
            return Err(("messages", "a Send with Invalidate and immediate data".into()));
        }
        let offset = match self.inbound.partial {
            Partial::None => {
                self.use_receive("a Send")?;
                0
            }
            Partial::Send { flags: begun, address, next }
                if begun == flags && address == header.address =>
            {
                next
            }
            partial => return Err(("messages", format!("a Send inside {partial:?}"))),
        };
        let Some(next) = offset.checked_add(header.length).filter(|_| last || header.length > 0)
        else {
            return Err(("messages", "a Send that never ends".into()));
        };
        self.inbound.partial = if last {
            Partial::None
        } else {
            Partial::Send { flags, address: header.address, next }
        };
        let solicited = header.has(record::SOLICITED);
        let immediate = immediate.filter(|_| last);
        Ok(Event::Send { offset, payload, last, solicited, invalidate, immediate })
    }

    fn on_read<'b>(&mut self, header: &Header) -> Result<Option<Event<'b>>, Broken> {
        let &Header { token, address, length, .. } = header;
        let record = self.inbound.last;
        let read = Read { record, token, address, left: length, begun: false };
        self.owe_answer("a read", Answer::Read(read))?;
        let slot = ReadSlot((record & 0xFFFF_FFFF) as u32);
        // A read of nothing names nothing that could be checked.
        Ok((length > 0).then_some(Event::ReadRequest { slot, token, address, length }))
    }

    /// A request begins that will be answered: by itself, and not one too many.
    fn owe_answer(&mut self, what: &str, answer: Answer) -> Result<(), Broken> {
        self.idle_or(what)?;
        let limit = self.limits.inbound;
        if u32::try_from(self.inbound.answers.len()).unwrap_or(u32::MAX) >= limit {
            let detail = format!("more than the {limit} reads and atomics at a time agreed");
            return Err(("reads", detail));
        }
        self.inbound.answers.push_back(answer);
        Ok(())
    }

    fn on_atomic<'b>(&mut self, header: &Header, payload: Bytes<'b>) -> Result<Event<'b>, Broken> {
        let operands = payload.own().unwrap_or_default();
        let Some(operation) = record::read_operands(header.detail, operands) else {
            let detail = format!("an atomic of kind {}, {} bytes", header.detail, operands.len());
            return Err(("messages", detail));
        };
        self.owe_answer("an atomic", Answer::Atomic(None))?;
        let &Header { token, address, .. } = header;
        Ok(Event::Atomic { token, address, operation })
    }

    fn on_atomic_answer<'b>(&mut self, header: &Header) -> Result<Event<'b>, Broken> {
        self.idle_or("the answer to an atomic")?;
        let Some(Reading { id, awaits: Awaits::Word, .. }) = self.outbound.reads.front().copied()
        else {
            return Err(("reads", "the answer to an atomic nobody asked for".into()));
        };
        self.outbound.reads.pop_front();
        self.pending.resume |= std::mem::take(&mut self.outbound.waits_for_read);
        Ok(Event::AtomicAnswer { id, value: header.address })
    }

    fn on_answer<'b>(&mut self, header: &Header, payload: Bytes<'b>) -> Result<Event<'b>, Broken> {
        if self.inbound.partial != Partial::Answer {
            self.idle_or("the answer to a read")?;
        }
        let (length, last) = (header.length, header.has(record::LAST));
        let Some(Reading { id, awaits: Awaits::Bytes { length: whole, received }, .. }) =
            self.outbound.reads.front_mut()
        else {
            return Err(("reads", "the answer to a read nobody asked for".into()));
        };
        let left = *whole - *received;
        if length > left || last != (length == left) || length == 0 && !last {
            return Err(("reads", format!("an answer of {length} bytes of {left}")));
        }
        let (id, offset) = (*id, *received);
        *received += length;
        self.inbound.partial = if last { Partial::None } else { Partial::Answer };
        if last {
            self.outbound.reads.pop_front();
            self.pending.resume |= std::mem::take(&mut self.outbound.waits_for_read);
        }
        Ok(Event::ReadData { id, offset, payload, last })
    }

    /// The peer ends the stream.
    fn on_refusal<'b>(&mut self, header: &Header, payload: Bytes<'b>) -> Event<'b> {
        let (operation, class) = record::read_detail(header.detail);
        let id = self.outbound.named(header.address);
        let text = payload.own().unwrap_or_default();
        let explanation = explanation_of(text);
        let code = match (operation, class) {
            (Some(operation), Some(class)) => format!("{operation:?} refused: {class:?}"),
            _ => "the peer says that a rule of the path was broken".to_owned(),
        };
        self.handshake.end();
        Event::PeerFailed { id, error: PeerError { class, operation, code, explanation } }
    }

    /// The peer broke a rule: the stream is dead. The peer learns that, but not why.
    pub(super) fn broken(&mut self, (rule, detail): Broken) -> Violation {
        if self.handshake.is_open() {
            let ack = self.ack_word();
            self.outbound.queue_control(
                Header { ack, address: u64::MAX, ..Header::new(RecordKind::Refuse) },
                &[],
            );
        }
        self.handshake.end();
        Violation { blame: Blame::Peer, rule, detail }
    }

    /// The engine refuses what the last record asked for.
    pub(super) fn send_refusal(&mut self, refusal: &Refusal<'_>) {
        if self.inbound.answered {
            // The sink of our own read is gone: nothing the peer asked for.
            return self.send_end(None, RefusalClass::Internal, u64::MAX, None);
        }
        let record = self.inbound.last;
        self.send_end(Some(refusal.operation), refusal.class, record, refusal.explanation);
    }

    /// End the stream, and say why: which record of the peer's was refused, if one was.
    pub(super) fn send_end(
        &mut self,
        operation: Option<Operation>,
        class: RefusalClass,
        record: u64,
        explanation: Option<&str>,
    ) {
        if self.handshake.is_open() {
            let detail = record::detail(operation, Some(class));
            let ack = self.ack_word();
            let header = Header { detail, address: record, ack, ..Header::new(RecordKind::Refuse) };
            self.outbound.queue_control(header, fitting(explanation.unwrap_or("")).as_bytes());
        }
        self.handshake.end();
    }
}

/// The value of a token or of immediate data.
fn four_bytes(word: u64) -> Result<u32, Broken> {
    u32::try_from(word).map_err(|_| ("messages", "a value of more than four bytes".to_owned()))
}

/// Cuts a text to what fits, at a character's boundary.
fn fitting(text: &str) -> &str {
    let mut end = text.len().min(record::LARGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}
