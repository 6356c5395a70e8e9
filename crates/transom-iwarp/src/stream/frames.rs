//! A frame at a time: its header, and where its payload comes from.

use transom_wire::{Atomic, Frame, MAX_HEADER, Message, MessageId, Payload, ReadSlot};

use super::Stream;
use super::inbound::Asked;
use super::outbound::{Asker, Current, Fetch, Reading, What};
use crate::Ready;
use crate::ddp::{Header, TAGGED, Target, UNTAGGED};
use crate::extension::{Announce, immediate_header, target_header};
use crate::rdmap::{self, ATOMIC_QUEUE, Opcode, READ_QUEUE, ReadRequest, SEND_QUEUE};
use crate::rfc7306::{AtomicRequest, AtomicResponse};

/// A frame with a header (a second part behind it is rare) and no payload yet. `length` counts the
/// payload that will follow.
#[inline]
fn frame(first: &Header, second: &[u8], payload: Payload, length: u32, last: bool) -> Frame {
    let mut header = [0; MAX_HEADER];
    // The whole array: what counts of it is said below, and a fixed size is one move.
    header[2..2 + UNTAGGED].copy_from_slice(first.room());
    let mut used = 2 + first.as_ref().len();
    if let Some(room) = header.get_mut(used..used + second.len()).filter(|r| !r.is_empty()) {
        room.copy_from_slice(second);
        used += second.len();
    }
    let ulpdu = u16::try_from(used as u64 - 2 + u64::from(length)).unwrap_or(u16::MAX);
    header[..2].copy_from_slice(&ulpdu.to_be_bytes());
    let header_length = u8::try_from(used).unwrap_or(u8::MAX);
    Frame { header, header_length, payload, length, back: 0, sealed: true, last }
}

/// A frame that belongs to no message.
pub(super) fn control(first: &Header, second: &[u8]) -> Frame {
    frame(first, second, Payload::None, 0, false)
}

impl Stream {
    /// How much of `left` fits behind a header of `header` bytes.
    fn piece(&self, left: u32, header: usize) -> u32 {
        u32::try_from(self.ulpdu - header).unwrap_or(u32::MAX).min(left)
    }

    pub(super) fn start_up_frame(&mut self) -> Option<Frame> {
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
        Some(Frame {
            header,
            header_length,
            payload,
            length: 0,
            back: 0,
            sealed: false,
            last: false,
        })
    }

    pub(super) fn ready_frame(&mut self, ready: Ready) -> Frame {
        match ready {
            // Token 1: Chelsio's hardware refuses 0, even for no bytes (iW 2.4).
            Ready::Write => {
                let target = Target::Tagged { stag: 1, offset: 0 };
                control(&rdmap::segment(Opcode::Write, true, target).header(), &[])
            }
            Ready::Read => self.read_of_nothing(Asker::Ready),
        }
    }

    fn read_of_nothing(&mut self, asker: Asker) -> Frame {
        let request =
            ReadRequest { sink_stag: 0, sink_offset: 0, size: 0, source_stag: 1, source_offset: 0 };
        self.read_frame(asker, request, Payload::None)
    }

    pub(super) fn read_frame(
        &mut self,
        asker: Asker,
        request: ReadRequest,
        payload: Payload,
    ) -> Frame {
        let out = &mut self.outbound;
        let number = out.read_number;
        out.read_number = number.wrapping_add(1);
        out.reads.push_back(Reading { asker, number, fetch: Fetch::Read { request, received: 0 } });
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
        let header = rdmap::segment(Opcode::ReadRequest, true, target).header();
        let last = payload != Payload::None;
        frame(&header, &request.to_bytes(), payload, 0, last)
    }

    pub(super) fn atomic_frame(
        &mut self,
        id: MessageId,
        stag: u32,
        offset: u64,
        change: Atomic,
    ) -> Frame {
        let out = &mut self.outbound;
        let number = out.read_number;
        out.read_number = number.wrapping_add(1);
        out.reads.push_back(Reading { asker: Asker::Program(id), number, fetch: Fetch::Atomic });
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
        let header = rdmap::segment(Opcode::AtomicRequest, true, target).header();
        let request = AtomicRequest::new(number, stag, offset, change);
        frame(&header, &request.to_bytes(), Payload::Message { id, offset: 0 }, 0, true)
    }

    /// A signalled Write has gone out that no verdict is under way for, and a slot is free.
    pub(super) fn wants_probe(&self) -> bool {
        // A read that has begun has its slot already.
        let out = &self.outbound;
        let begun = out.current.is_some_and(|c| matches!(c.message, Message::Read { .. }));
        out.lacks_verdict() && out.under_way() + u32::from(begun) < self.agreed.ord
    }

    pub(super) fn probe_frame(&mut self) -> Frame {
        self.outbound.probing = true;
        self.read_of_nothing(Asker::Verdict { through: self.outbound.gone() })
    }

    pub(super) fn message_frame(&mut self) -> Option<Frame> {
        let mut current = self.outbound.current?;
        if let Some(number) = self.outbound.target_due.take() {
            return Some(control(&target_header(number), &[]));
        }
        let Current { id, message, sent, announced, accompanied } = current;
        if let Some(immediate) = message.immediate().filter(|_| !accompanied) {
            current.accompanied = true;
            self.outbound.current = Some(current);
            return Some(control(&immediate_header(&immediate), &[]));
        }
        let payload = Payload::Message { id, offset: sent };
        let (frame, what, verdict) = match message {
            Message::Send { length, solicited, invalidate, .. } => {
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
                (frame(&header, &[], payload, piece, last), What::Send { number }, false)
            }
            Message::Write { token, address, length, verdict, .. } => {
                let piece = self.piece(length - sent, TAGGED);
                let last = sent + piece == length;
                if self.agreed.extension && !last && !announced {
                    current.announced = true;
                    self.outbound.current = Some(current);
                    let announce = Announce { token, address, length };
                    return Some(control(&announce.header(), &address.to_be_bytes()));
                }
                let offset = address.wrapping_add(u64::from(sent));
                let target = Target::Tagged { stag: token, offset };
                let header = rdmap::segment(Opcode::Write, last, target).header();
                let what = What::Write { token, address, length };
                (frame(&header, &[], payload, piece, last), what, verdict)
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
            Message::Atomic { token, address, operation } => {
                self.outbound.current = None;
                self.outbound.answered = false;
                return Some(self.atomic_frame(id, token, address, operation));
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

    pub(super) fn answer_frame(&mut self) -> Option<Frame> {
        let answer = *self.inbound.answers.front()?;
        let request = match answer.asked {
            Asked::Read(request) => request,
            Asked::Atomic { identifier, old } => {
                // The engine has answered it before it asks for frames.
                return self.atomic_answer(AtomicResponse { identifier, value: old? });
            }
        };
        let ReadRequest { sink_stag, sink_offset, size, source_stag, source_offset } = request;
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
        Some(frame(&header, &[], payload, piece, last && size > 0))
    }

    fn atomic_answer(&mut self, response: AtomicResponse) -> Option<Frame> {
        self.inbound.answers.pop_front();
        self.outbound.answered = true;
        let number = self.outbound.atomic_number;
        self.outbound.atomic_number = number.wrapping_add(1);
        let target = Target::Untagged { ulp: 0, queue: ATOMIC_QUEUE, number, offset: 0 };
        let header = rdmap::segment(Opcode::AtomicResponse, true, target).header();
        Some(control(&header, &response.to_bytes()))
    }
}
