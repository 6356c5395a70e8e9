//! Frames of the peer: validated in the order of iW 5.5, then handed to the engine as events.
//!
//! A frame is checked as a whole (length, checksum, headers, sequence) before anything of it leaves
//! this module, and a fault ends the stream: nothing here has to be undone.

use std::collections::VecDeque;

use transom_wire::{Bytes, Decoded, Event, Glance, Immediate, Violation};

use super::{HandshakePhase, Stream};
use crate::ddp::{self, Segment, Target};
use crate::extension::{ACK_QUEUE, Ack, Announce, Extra, Unread};
use crate::faults::Fault;
use crate::fpdu::{self, Broken};
use crate::rdmap::{self, ATOMIC_QUEUE, Opcode, READ_QUEUE, READ_REQUEST, ReadRequest, SEND_QUEUE};

/// The first two bytes of a Write that is one segment, and of an acknowledgement or another frame of the
/// extension that is one.
const WHOLE_WRITE: [u8; 2] = rdmap::whole(Opcode::Write);
const WHOLE_EXTRA: [u8; 2] = rdmap::whole(Opcode::Experimental);

/// A fault and what was seen.
pub(super) type Found = (Fault, String);

/// The stream as far as it came from the peer.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Expected message numbers of the two queues; both start at 1 (RFC 5041 4.2).
    pub(super) send_number: u32,
    pub(super) read_number: u32,
    /// The message whose last segment has not come.
    pub(super) partial: Partial,
    /// The Write that must come next.
    pub(super) announced: Option<Announce>,
    /// The next message must be a Send or Write, which brings this.
    pub(super) immediate: Option<Immediate>,
    /// Writes that have consumed a receive: each counts as a Send does.
    pub(super) notified: u32,
    /// Sends and Writes that have come completely; the number of the one under way is one more.
    pub(super) messages: u32,
    /// Messages among these that the engine has not reported as executed.
    pub(super) unexecuted: u32,
    /// Number, among Sends and Writes, of the message of the last event.
    pub(super) blamed: u32,
    /// That event was the answer to a read of ours: refusing it is about our own memory.
    pub(super) answered: bool,
    /// The headers of the last frame, for a Terminate about it.
    pub(super) last: Offending,
    /// A first frame that was verified and announced as `Established`; its length field is used up.
    verified: Option<u16>,
    /// The next number of an answer to an atomic of ours.
    pub(super) atomic_number: u32,
    /// Reads and atomics of the peer, in order; at most as many as start-up allowed.
    pub(super) answers: VecDeque<Answer>,
}

impl Default for Inbound {
    fn default() -> Inbound {
        Inbound {
            send_number: 1,
            read_number: 1,
            partial: Partial::None,
            announced: None,
            immediate: None,
            notified: 0,
            messages: 0,
            unexecuted: 0,
            blamed: 0,
            answered: false,
            last: Offending::default(),
            verified: None,
            atomic_number: 1,
            answers: VecDeque::new(),
        }
    }
}

impl Inbound {
    /// A message has begun and not ended.
    pub(super) fn is_unfinished(&self) -> bool {
        self.partial != Partial::None || self.immediate.is_some()
    }

    /// A message that names this token has begun and not ended.
    pub(super) fn is_using(&self, token: u32) -> bool {
        matches!(self.partial, Partial::Write { stag, .. } if stag == token)
            || self.announced.is_some_and(|announced| announced.token == token)
            || self.answers.iter().any(|answer| match answer.asked {
                Asked::Read(request) => request.source_stag == token,
                // Executed as soon as it came.
                Asked::Atomic { .. } => false,
            })
    }

    /// The engine has carried out the atomic that came last.
    pub(super) fn answer(&mut self, value: u64) {
        if let Some(Answer { asked: Asked::Atomic { old, .. }, .. }) = self.answers.back_mut() {
            *old = Some(value);
        }
    }
}

/// The message of the peer's that has begun and is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    None,
    Send { opcode: Opcode, next: u32 },
    Write { stag: u32, next: u64, total: u64 },
    Response,
}

/// A read or an atomic of the peer that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) number: u32,
    pub(super) asked: Asked,
    /// Bytes of it that have gone out.
    pub(super) sent: u32,
}

/// The request of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read(ReadRequest),
    /// `old`: what the word held before, once the engine has changed it.
    Atomic {
        identifier: u32,
        old: Option<u64>,
    },
}

/// The headers of a frame that may be complained about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offending {
    bytes: [u8; ddp::UNTAGGED + READ_REQUEST],
    used: usize,
    /// ULPDU_Length.
    pub(super) length: u16,
}

impl Default for Offending {
    fn default() -> Offending {
        Offending { bytes: [0; ddp::UNTAGGED + READ_REQUEST], used: 0, length: 0 }
    }
}

impl Offending {
    /// `headers`: as much of the ULPDU as may be complained about; `length`: of all of it.
    #[inline(always)]
    fn keep(&mut self, headers: &[u8], length: usize) {
        self.used = headers.len().min(self.bytes.len());
        self.length = u16::try_from(length).unwrap_or(u16::MAX);
        if let Some((room, bytes)) = self.bytes.get_mut(..self.used).zip(headers.get(..self.used)) {
            room.copy_from_slice(bytes);
        }
    }

    /// A header that did not come in this form: an announced Write's, an answer's request.
    pub(super) fn of(header: &[u8], request: &[u8], length: u16) -> Offending {
        let mut offending = Offending::default();
        for (room, byte) in offending.bytes.iter_mut().zip(header.iter().chain(request)) {
            *room = *byte;
        }
        offending.used = header.len() + request.len();
        offending.length = length;
        offending
    }

    /// The DDP header, if a whole one came, and the Read Request behind it, if it was one.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        let bytes = self.bytes.get(..self.used).unwrap_or(&[]);
        let Some(segment) = Segment::parse(bytes) else { return (&[], &[]) };
        let (header, rest) = bytes.split_at(bytes.len() - segment.payload.len());
        let is_read = header.len() == ddp::UNTAGGED
            && rdmap::opcode(segment.control) == Some(Opcode::ReadRequest);
        (header, rest.get(..READ_REQUEST).filter(|_| is_read).unwrap_or(&[]))
    }
}

impl Stream {
    pub(super) fn on_frame<'b>(&mut self, bytes: &'b [u8]) -> Result<Decoded<'b>, Violation> {
        let verified = self.inbound.verified;
        let (ulpdu, consumed) = match verified {
            Some(length) => {
                let size = fpdu::size(usize::from(length)) - fpdu::LENGTH;
                match (bytes.get(..usize::from(length)), bytes.get(..size)) {
                    (Some(ulpdu), Some(_)) => (ulpdu, size),
                    _ => return Ok(Decoded::NOTHING),
                }
            }
            None => match fpdu::parse(bytes, self.agreed.checksum) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return Ok(Decoded::NOTHING),
                Err(broken) => return Err(self.broken(broken)),
            },
        };
        self.inbound.verified = None;
        self.inbound.last.keep(ulpdu, ulpdu.len());
        self.pending.resume |= self.held.take().is_some();
        // A Terminate instead of a ready-to-receive frame: the connection never came to be.
        let farewell = ulpdu.get(1) == Some(&Opcode::Terminate.control());
        if self.handshake.phase() == HandshakePhase::WaitReady && !farewell {
            return self.first_frame(ulpdu, consumed);
        }
        let taken = self.on_segment(ulpdu);
        (self.acquainted, self.nudge.at) = (true, None);
        match taken {
            Ok(event) => Ok(Decoded::of(consumed, event)),
            Err((fault, detail)) => Err(self.fault(fault, detail)),
        }
    }

    /// A frame of the two kinds that come most often, while nothing of the peer's is unfinished: known by the
    /// first two bytes of its header. What passes here passes [`Stream::on_frame`] with the same outcome.
    pub(super) fn on_predicted<'b>(&mut self, bytes: &'b [u8]) -> Option<Decoded<'b>> {
        let inbound = &self.inbound;
        let usual = self.agreed.extension
            && self.handshake.is_open()
            && inbound.verified.is_none()
            && inbound.announced.is_none()
            && !inbound.is_unfinished();
        let kind: &[u8; 2] = bytes.get(fpdu::LENGTH..)?.first_chunk()?;
        if !usual || *kind != WHOLE_WRITE && *kind != WHOLE_EXTRA {
            return None;
        }
        let Ok(Some((ulpdu, consumed))) = fpdu::parse(bytes, self.agreed.checksum) else {
            return None;
        };
        let Segment { target, payload, .. } = Segment::parse(ulpdu)?;
        let (event, done) = match target {
            Target::Tagged { stag: token, offset: address } if !payload.is_empty() => {
                self.count(true);
                let payload = Bytes::Own(payload);
                (Some(Event::Write { token, address, payload, last: true, immediate: None }), None)
            }
            Target::Untagged { queue: ACK_QUEUE, ulp, number, offset } if payload.is_empty() => {
                // A violation changes nothing here; the other way reports it.
                (None, self.on_ack(&Ack::parse(ulp, number, offset)).ok()?)
            }
            _ => return None,
        };
        // A Terminate names the header of a Write that is refused. Nobody complains about an
        // acknowledgement that has passed.
        let header = ulpdu.first_chunk::<{ ddp::TAGGED }>()?;
        self.inbound.last.keep(header, ulpdu.len());
        (self.held, self.acquainted, self.cut) = (None, true, false);
        let news = self.pending.resume || self.pending.credit_wanted;
        Some(Decoded { consumed, done, news, event })
    }

    /// Size and token of what may be a frame. Nothing is verified.
    pub(super) fn guess_frame(&self, bytes: &[u8]) -> Option<Glance> {
        if !self.handshake.is_open() || self.inbound.verified.is_some() {
            return None;
        }
        let (&length, ulpdu) = bytes.split_first_chunk::<{ fpdu::LENGTH }>()?;
        let length = fpdu::size(usize::from(u16::from_be_bytes(length)));
        let token = match Segment::parse(ulpdu)?.target {
            Target::Tagged { stag, .. } => Some(stag),
            Target::Untagged { .. } => None,
        };
        Some(Glance { length, token })
    }

    fn broken(&mut self, broken: Broken) -> Violation {
        self.inbound.last = Offending::default();
        match broken {
            Broken::Short(length) => {
                let detail = format!("a frame of {length} bytes; the shortest header has 14");
                self.fault(Fault::ShortFrame, detail)
            }
            Broken::Crc => {
                let detail = "a frame whose CRC32c does not match its bytes".to_owned();
                self.fault(Fault::Crc, detail)
            }
        }
    }

    /// The frame that ends start-up on a passive side. A ready-to-receive frame is used up here; of
    /// any other, only its length field is: the next call finds the rest, already verified.
    fn first_frame<'b>(&mut self, ulpdu: &[u8], consumed: usize) -> Result<Decoded<'b>, Violation> {
        self.handshake.open();
        self.start_acks();
        self.pending.resume = true;
        let ready_write = Segment::parse(ulpdu).is_some_and(|segment| {
            segment.payload.is_empty()
                && segment.last
                && segment.version() == ddp::VERSION
                && segment.control == Opcode::Write.control()
                && matches!(segment.target, Target::Tagged { .. })
        });
        if !ready_write {
            self.inbound.verified = Some(self.inbound.last.length);
        }
        let consumed = if ready_write { consumed } else { fpdu::LENGTH };
        Ok(Decoded::of(consumed, Some(Event::Established)))
    }

    /// A DDP segment, whole and with its checksum verified.
    fn on_segment<'b>(&mut self, ulpdu: &'b [u8]) -> Result<Option<Event<'b>>, Found> {
        let Some(segment) = Segment::parse(ulpdu) else {
            return Err((Fault::ShortFrame, format!("{} bytes of untagged segment", ulpdu.len())));
        };
        let tagged = matches!(segment.target, Target::Tagged { .. });
        if segment.version() != ddp::VERSION {
            let fault = if tagged { Fault::DdpVersionTagged } else { Fault::DdpVersionUntagged };
            return Err((fault, format!("DDP version {}; expected 1", segment.version())));
        }
        if rdmap::version(segment.control) != rdmap::VERSION {
            let found = rdmap::version(segment.control);
            return Err((Fault::RdmapVersion, format!("RDMAP version {found}; expected 1")));
        }
        let Some(opcode) = rdmap::opcode(segment.control) else {
            return Err((Fault::Opcode, format!("opcode {}", segment.control & 0x0F)));
        };
        if opcode.tagged() != tagged {
            let is = if tagged { "a tagged" } else { "an untagged" };
            return Err((Fault::TagBit, format!("{is} segment of {opcode:?}")));
        }
        if segment.payload.is_empty() && !segment.last && opcode != Opcode::Experimental {
            let detail = format!("a segment of {opcode:?} without bytes that is not the last");
            return Err((Fault::EmptySegment, detail));
        }
        match (opcode, segment.target) {
            (Opcode::Write, Target::Tagged { stag, offset }) => {
                self.on_write(&segment, stag, offset)
            }
            (Opcode::ReadResponse, Target::Tagged { stag, offset }) => {
                self.on_response(&segment, stag, offset)
            }
            (Opcode::Terminate, _) => Ok(self.on_terminate(&segment)),
            (Opcode::Experimental, target) if self.agreed.extension => {
                match Extra::parse(target, segment.last, segment.payload) {
                    Ok(extra) => self.on_extra(extra),
                    Err(Unread::Queue) => Err(wrong_queue(opcode, target)),
                    Err(Unread::Malformed) => {
                        Err((Fault::Extension, "a malformed extension frame".into()))
                    }
                }
            }
            (Opcode::ReadRequest, Target::Untagged { queue, number, offset, .. }) => {
                if queue != READ_QUEUE {
                    return Err(wrong_queue(opcode, segment.target));
                }
                self.on_read(&segment, number, offset)
            }
            (
                Opcode::Send
                | Opcode::SendInvalidate
                | Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate,
                Target::Untagged { ulp, queue, number, offset },
            ) => {
                if queue != SEND_QUEUE {
                    return Err(wrong_queue(opcode, segment.target));
                }
                self.on_send(&segment, opcode, ulp, number, offset)
            }
            (Opcode::AtomicRequest, Target::Untagged { queue, number, offset, .. })
                if self.agreed.extension =>
            {
                if queue != READ_QUEUE {
                    return Err(wrong_queue(opcode, segment.target));
                }
                self.on_atomic(&segment, number, offset)
            }
            (Opcode::AtomicResponse, Target::Untagged { queue, number, offset, .. })
                if self.agreed.extension =>
            {
                if queue != ATOMIC_QUEUE {
                    return Err(wrong_queue(opcode, segment.target));
                }
                self.on_atomic_answer(&segment, number, offset)
            }
            _ => Err((Fault::Opcode, format!("{opcode:?}, which this side does not speak"))),
        }
    }
}

fn wrong_queue(opcode: Opcode, target: Target) -> Found {
    (Fault::Queue, format!("{opcode:?} on the wrong queue: {target:?}"))
}

#[cfg(test)]
mod tests {
    use transom_wire::{Event, Receiving, Role, Time};

    use super::*;
    use crate::{Config, Stream, TerminateForm};

    /// A passive side without private data that takes frames without checksum.
    fn open() -> Stream {
        let config =
            Config { checksum: false, terminate: TerminateForm::Rfc, ..Config::siw(Role::Passive) };
        let mut stream = Stream::new(config, Time(0));
        stream.handshake.open();
        stream.agreed.ird = 4;
        stream
    }

    fn send(number: u32) -> Vec<u8> {
        let target = Target::Untagged { ulp: 0, queue: SEND_QUEUE, number, offset: 0 };
        let mut bytes = vec![0, 18];
        bytes.extend_from_slice(rdmap::segment(Opcode::Send, true, target).header().as_ref());
        fpdu::seal(&mut bytes, 0, false);
        bytes
    }

    #[test]
    fn h7_message_numbers_wrap_at_2_to_the_32() {
        let mut stream = open();
        stream.inbound.send_number = u32::MAX;
        for number in [u32::MAX, 0, 1] {
            let bytes = send(number);
            let decoded = stream.decode(Time(0), &bytes).unwrap();
            assert!(matches!(decoded.event, Some(Event::Send { last: true, .. })));
        }
        // And on the read queue.
        stream.inbound.read_number = u32::MAX;
        for number in [u32::MAX, 0] {
            let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
            let header = rdmap::segment(Opcode::ReadRequest, true, target).header();
            let mut bytes = [&[0, 46], header.as_ref(), &[0; READ_REQUEST]].concat();
            fpdu::seal(&mut bytes, 0, false);
            assert!(stream.decode(Time(0), &bytes).is_ok());
        }
    }

    #[test]
    fn h12_a_write_of_4_gib_has_no_last_byte() {
        // RFC 5041 4: a message is shorter than 2^32 bytes.
        let mut stream = open();
        let next = 0x1_0000_0000;
        stream.inbound.partial = Partial::Write { stag: 7, next, total: u64::from(u32::MAX) - 3 };
        let header = |last, offset| {
            let target = Target::Tagged { stag: 7, offset };
            rdmap::segment(Opcode::Write, last, target).header()
        };
        let frame = |last, offset| {
            let mut bytes = [&[0, 16], header(last, offset).as_ref(), &[1, 2]].concat();
            fpdu::seal(&mut bytes, 0, false);
            bytes
        };
        assert!(stream.decode(Time(0), &frame(false, next)).is_ok());
        let violation = stream.decode(Time(0), &frame(true, next + 2)).unwrap_err();
        assert!(violation.detail.starts_with("base or bounds"), "{violation}");
    }
}
