//! The peer's messages, segment by segment: sequence, contiguity and length, as far as they can be
//! judged without asking whose memory it is. A message that passes becomes an event. Ranges that
//! wrap around pass: the engine refuses them with all others, so that its record of them is the
//! same over every wire.

use transom_wire::{Event, MessageId, ReadSlot};

use super::Stream;
use super::inbound::{Answer, Asked, Found, Offending, Partial};
use super::outbound::{Asker, Fetch, Reading};
use crate::ddp::{Segment, Target};
use crate::extension::{Ack, Announce, Extra};
use crate::faults::Fault;
use crate::rdmap::{self, Opcode, READ_REQUEST, ReadRequest};
use crate::rfc7306::{AtomicRequest, AtomicResponse};

impl Stream {
    fn idle_or(&self, what: &str) -> Result<(), Found> {
        match self.inbound.partial {
            Partial::None => Ok(()),
            partial => {
                Err((Fault::Interleaved, format!("{what} inside an unfinished {partial:?}")))
            }
        }
    }

    /// A Send or Write is complete, or a part of it has come.
    pub(super) fn count(&mut self, last: bool) {
        self.inbound.blamed = self.inbound.messages.wrapping_add(1);
        self.inbound.answered = false;
        if last {
            self.inbound.messages = self.inbound.blamed;
            self.inbound.unexecuted = self.inbound.unexecuted.saturating_add(1);
            self.inbound.partial = Partial::None;
        }
    }

    pub(super) fn on_write<'b>(
        &mut self,
        segment: &Segment<'b>,
        stag: u32,
        offset: u64,
    ) -> Result<Option<Event<'b>>, Found> {
        let (payload, last) = (segment.payload, segment.last);
        let length = payload.len() as u64;
        let before = match self.inbound.partial {
            Partial::Write { stag: expected, .. } if stag != expected => {
                let detail = format!("token {stag:#010x} in a Write to {expected:#010x}");
                return Err((Fault::WriteToken, detail));
            }
            Partial::Write { next, .. } if offset != next => {
                let detail = format!("a Write goes on at {offset:#x}; expected {next:#x}");
                return Err((Fault::WriteBounds, detail));
            }
            Partial::Write { total, .. } => total,
            _ => {
                self.idle_or("a Write")?;
                self.check_announced(stag, offset, last)?;
                0
            }
        };
        let total = before + length;
        let announced = self.inbound.announced.map(|announce| u64::from(announce.length));
        if total > announced.unwrap_or(u64::from(u32::MAX))
            || last && announced.is_some_and(|announced| announced != total)
        {
            let detail = format!("a Write of {total} bytes, announced with {announced:?}");
            return Err((Fault::WriteBounds, detail));
        }
        self.inbound.partial = Partial::Write { stag, next: offset.wrapping_add(length), total };
        let immediate = if last { self.inbound.immediate.take() } else { None };
        if last {
            self.inbound.announced = None;
        }
        if immediate.is_some() {
            self.inbound.notified = self.inbound.notified.wrapping_add(1);
        }
        self.count(last);
        let payload = payload.into();
        Ok(Some(Event::Write { token: stag, address: offset, payload, last, immediate }))
    }

    /// With the extension, a Write of more than one segment is the announced one.
    fn check_announced(&self, stag: u32, offset: u64, last: bool) -> Result<(), Found> {
        match self.inbound.announced {
            Some(write) if (write.token, write.address) != (stag, offset) => Err((
                Fault::Extension,
                format!("a Write to {stag:#010x} at {offset:#x} after {write:?}"),
            )),
            None if self.agreed.extension && !last => {
                Err((Fault::Extension, "a Write of several frames that was not announced".into()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn on_send<'b>(
        &mut self,
        segment: &Segment<'b>,
        opcode: Opcode,
        ulp: u32,
        number: u32,
        offset: u32,
    ) -> Result<Option<Event<'b>>, Found> {
        let (payload, last) = (segment.payload, segment.last);
        let expected = match self.inbound.partial {
            Partial::Send { opcode: begun, next } if begun == opcode => next,
            _ => {
                self.idle_or("a Send")?;
                self.check_unannounced("a Send")?;
                if opcode.invalidates() {
                    self.check_unaccompanied("a Send with Invalidate")?;
                }
                0
            }
        };
        self.check_number(number, self.inbound.send_number)?;
        let end = u64::from(offset) + payload.len() as u64;
        let Ok(next) = u32::try_from(end) else {
            return Err((Fault::TooLong, format!("a Send of at least {end} bytes")));
        };
        if offset != expected {
            let detail = format!("a Send goes on at offset {offset}; expected {expected}");
            return Err((Fault::Offset, detail));
        }
        self.inbound.partial = Partial::Send { opcode, next };
        self.count(last);
        if last {
            self.inbound.send_number = number.wrapping_add(1);
        }
        let immediate = if last { self.inbound.immediate.take() } else { None };
        Ok(Some(Event::Send {
            offset,
            payload: payload.into(),
            last,
            solicited: opcode.solicited(),
            invalidate: opcode.invalidates().then_some(ulp),
            immediate: immediate.map(|immediate| immediate.value),
        }))
    }

    fn check_number(&self, number: u32, expected: u32) -> Result<(), Found> {
        if number == expected {
            return Ok(());
        }
        Err((Fault::Number, format!("message number {number}; expected {expected}")))
    }

    fn check_unannounced(&self, what: &str) -> Result<(), Found> {
        match self.inbound.announced {
            None => Ok(()),
            Some(write) => Err((Fault::Extension, format!("{what} after {write:?}"))),
        }
    }

    /// Immediate data belongs to a Send or Write, and to nothing else.
    fn check_unaccompanied(&self, what: &str) -> Result<(), Found> {
        match self.inbound.immediate {
            None => Ok(()),
            Some(_) => Err((Fault::Extension, format!("{what} behind immediate data"))),
        }
    }

    pub(super) fn on_read<'b>(
        &mut self,
        segment: &Segment<'b>,
        number: u32,
        offset: u32,
    ) -> Result<Option<Event<'b>>, Found> {
        self.check_request("a read request", number, offset)?;
        let length = segment.payload.len();
        if length < READ_REQUEST {
            return Err((Fault::ShortFrame, format!("a read request of {length} bytes, not 28")));
        }
        let Some(request) = ReadRequest::parse(segment.payload).filter(|_| segment.last) else {
            let detail = "a read request of more than one segment or more than 28 bytes".into();
            return Err((Fault::ReadRequestLength, detail));
        };
        let ReadRequest { source_stag, source_offset, size, .. } = request;
        self.owe_answer(number, Asked::Read(request))?;
        // A read of nothing names nothing that could be checked (RFC 5040 5.2).
        Ok((size > 0).then_some(Event::ReadRequest {
            slot: ReadSlot(number),
            token: source_stag,
            address: source_offset,
            length: size,
        }))
    }

    /// A request that will be answered begins: by itself, and the next one of its queue.
    fn check_request(&self, what: &str, number: u32, offset: u32) -> Result<(), Found> {
        self.idle_or(what)?;
        self.check_unannounced(what)?;
        self.check_unaccompanied(what)?;
        self.check_number(number, self.inbound.read_number)?;
        if offset != 0 {
            return Err((Fault::Offset, format!("{what} at offset {offset}; expected 0")));
        }
        Ok(())
    }

    fn owe_answer(&mut self, number: u32, asked: Asked) -> Result<(), Found> {
        // A ready-to-receive frame may be a read where none are served.
        let limit = self.agreed.ird.max(u32::from(!self.acquainted));
        if u32::try_from(self.inbound.answers.len()).unwrap_or(u32::MAX) >= limit {
            let detail =
                format!("more than the {limit} reads and atomics at a time that were agreed");
            return Err((Fault::ReadLimit, detail));
        }
        self.inbound.read_number = number.wrapping_add(1);
        self.inbound.blamed = number;
        self.inbound.answered = false;
        self.inbound.answers.push_back(Answer { number, asked, sent: 0 });
        Ok(())
    }

    pub(super) fn on_atomic<'b>(
        &mut self,
        segment: &Segment<'b>,
        number: u32,
        offset: u32,
    ) -> Result<Option<Event<'b>>, Found> {
        self.check_request("an atomic", number, offset)?;
        let request = AtomicRequest::parse(segment.payload).filter(|_| segment.last);
        let Some(request) = request else {
            let detail =
                format!("an atomic of {} bytes, not 52 in one frame", segment.payload.len());
            return Err((Fault::Extension, detail));
        };
        let Some(operation) = request.whole() else {
            let detail = "an atomic that neither adds to a whole word nor swaps one".into();
            return Err((Fault::Extension, detail));
        };
        let AtomicRequest { identifier, stag: token, offset: address, .. } = request;
        self.owe_answer(number, Asked::Atomic { identifier, old: None })?;
        Ok(Some(Event::Atomic { token, address, operation }))
    }

    pub(super) fn on_atomic_answer<'b>(
        &mut self,
        segment: &Segment<'b>,
        number: u32,
        offset: u32,
    ) -> Result<Option<Event<'b>>, Found> {
        let what = "the answer to an atomic";
        self.idle_or(what)?;
        self.check_unannounced(what)?;
        self.check_unaccompanied(what)?;
        self.check_number(number, self.inbound.atomic_number)?;
        let response = AtomicResponse::parse(segment.payload);
        let Some(response) = response.filter(|_| segment.last && offset == 0) else {
            let detail = format!("{what} of {} bytes, not 12 in one frame", segment.payload.len());
            return Err((Fault::Extension, detail));
        };
        let Some(Reading { asker: Asker::Program(id), number: asked, fetch: Fetch::Atomic }) =
            self.outbound.reads.front().copied()
        else {
            return Err((Fault::UnaskedResponse, format!("{what} nobody asked for")));
        };
        if response.identifier != asked {
            let detail = format!("{what} {}; expected {asked}", response.identifier);
            return Err((Fault::UnaskedResponse, detail));
        }
        self.inbound.atomic_number = number.wrapping_add(1);
        self.inbound.answered = true;
        self.outbound.reads.pop_front();
        self.outbound.finish_read(Asker::Program(id), &mut self.pending.resume);
        Ok(Some(Event::AtomicAnswer { id, value: response.value }))
    }

    pub(super) fn on_response<'b>(
        &mut self,
        segment: &Segment<'b>,
        stag: u32,
        offset: u64,
    ) -> Result<Option<Event<'b>>, Found> {
        if self.inbound.partial != Partial::Response {
            self.idle_or("the answer to a read")?;
            self.check_unannounced("the answer to a read")?;
            self.check_unaccompanied("the answer to a read")?;
        }
        let (payload, last) = (segment.payload, segment.last);
        let Some(Reading { asker, fetch: Fetch::Read { request, received }, .. }) =
            self.outbound.reads.front_mut()
        else {
            return Err((Fault::UnaskedResponse, "the answer to a read nobody asked for".into()));
        };
        let (asker, request) = (*asker, *request);
        let expected = request.sink_offset.wrapping_add(u64::from(*received));
        let left = request.size - *received;
        // siw answers a Read of no bytes with as many as it has sent before, from wherever that
        // lay. For a verdict nothing was to be placed, and nothing is: that it was answered is all
        // it says.
        let asked = !matches!(asker, Asker::Verdict { .. });
        // An answer of no bytes names nothing that could be checked (RFC 5041 5.2).
        if asked && !payload.is_empty() && stag != request.sink_stag {
            let detail =
                format!("an answer for {stag:#010x}; expected {:#010x}", request.sink_stag);
            return Err((Fault::ResponseToken, detail));
        }
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let misplaced = !payload.is_empty() && offset != expected;
        if asked && (misplaced || length > left || last != (length == left)) {
            let detail = format!(
                "an answer of {length} bytes at {offset:#x}{}; expected up to {left} at {expected:#x}",
                if last { ", the last," } else { "" },
            );
            return Err((Fault::ResponseRange, detail));
        }
        self.inbound.answered = true;
        let begin = *received;
        *received += if asked { length } else { 0 };
        self.inbound.partial = if last { Partial::None } else { Partial::Response };
        if last {
            self.outbound.reads.pop_front();
            self.outbound.finish_read(asker, &mut self.pending.resume);
        }
        Ok(match asker {
            Asker::Program(id) => {
                Some(Event::ReadData { id, offset: begin, payload: payload.into(), last })
            }
            Asker::Ready => None,
            Asker::Verdict { through } => {
                self.outbound.vouch(through);
                let done = self.settle();
                self.overtake(done);
                done.map(|through| Event::Done { through })
            }
        })
    }

    pub(super) fn on_extra<'b>(&mut self, extra: Extra<'_>) -> Result<Option<Event<'b>>, Found> {
        match extra {
            Extra::Ack(ack) => {
                self.on_ack(&ack).map(|done| done.map(|through| Event::Done { through }))
            }
            Extra::Announce(write) => {
                self.idle_or("an announcement")?;
                self.check_unannounced("an announcement")?;
                let Announce { token, address, length } = write;
                // A refusal answers the Write, not its announcement.
                let target = Target::Tagged { stag: token, offset: address };
                let header = rdmap::segment(Opcode::Write, false, target).header();
                let length_field = u16::try_from(length).unwrap_or(u16::MAX);
                self.inbound.last = Offending::of(header.as_ref(), &[], length_field);
                self.inbound.announced = Some(write);
                self.count(false);
                Ok(Some(Event::WriteAnnounced { token, address, length: u64::from(length) }))
            }
            Extra::Immediate(immediate) => {
                self.idle_or("immediate data")?;
                self.check_unannounced("immediate data")?;
                self.check_unaccompanied("immediate data")?;
                self.inbound.immediate = Some(immediate);
                Ok(None)
            }
            Extra::Target(number) => {
                self.idle_or("a target")?;
                self.check_unannounced("a target")?;
                self.check_unaccompanied("a target")?;
                // A refusal answers the message that follows.
                self.count(false);
                Ok(Some(Event::Target { number }))
            }
            Extra::Refusal(refused) => {
                self.on_refusal(&refused)?;
                Ok(None)
            }
        }
    }

    /// A violation changes nothing.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Result<Option<MessageId>, Found> {
        if self.acks.is_behind(ack) {
            return Err((Fault::Extension, "the peer takes back receives it granted".into()));
        }
        let done = self.acknowledged(ack.executed)?;
        let used = self.inbound.send_number.wrapping_sub(1).wrapping_add(self.inbound.notified);
        let news = self.acks.learn(ack, used);
        self.pending.resume |=
            news.resume || std::mem::take(&mut self.outbound.waits_for_acquaintance);
        self.pending.credit_wanted |= news.wanted;
        Ok(done)
    }
}
