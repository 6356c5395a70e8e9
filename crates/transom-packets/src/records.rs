//! Records of shared memory as frames of iWARP: what the same messages would have been over TCP.

use transom_iwarp::ddp::Target;
use transom_iwarp::extension::{Announce, immediate_header, target_header};
use transom_iwarp::faults::Fault;
use transom_iwarp::mpa::{self, Enhanced, StartUp, UNLIMITED};
use transom_iwarp::rdmap::{
    self, ATOMIC_QUEUE, Opcode, READ_QUEUE, ReadRequest, SEND_QUEUE, TERMINATE_QUEUE,
};
use transom_iwarp::rfc7306::{AtomicRequest, AtomicResponse};
use transom_iwarp::terminate::Terminate;
use transom_iwarp::{TerminateForm, ddp, fpdu};
use transom_process::record::{self, HEADER, Header, RecordKind};
use transom_wire::Immediate;

/// Payload of one frame at most: half of what a record holds.
const PIECE: usize = record::LARGEST_PAYLOAD / 2;
/// The token that a Transom names as the sink of its Reads over TCP.
const SINK: u32 = 1;

/// A side's place in its queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    sends: u32,
    send_offset: u32,
    reads: u32,
    answered: u32,
    atomics: u32,
}

impl Default for Sender {
    fn default() -> Sender {
        // Message numbers begin with 1 (RFC 5041 5.1).
        Sender { sends: 1, send_offset: 0, reads: 1, answered: 0, atomics: 1 }
    }
}

/// Whether `bytes` are a record as a whole: its payload stands behind its header.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let Some(words) = record::to_words(bytes) else { return false };
    Header::from_words(words).is_none_or(|header| bytes.len() >= header.front() + header.payload())
}

/// Whether it counts: acknowledgements beside the records are no messages.
pub(crate) fn is_message(bytes: &[u8]) -> bool {
    let header = record::to_words(bytes).and_then(Header::from_words);
    header.is_none_or(|header| header.kind != RecordKind::Ack)
}

impl Sender {
    /// The frames of a record. None: no record that means anything.
    pub(crate) fn frames(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Some(header) = record::to_words(bytes).and_then(Header::from_words) else {
            return Vec::new();
        };
        let payload = bytes.get(header.front()..).unwrap_or_default();
        let mut frames: Vec<_> = self.immediate(&header, bytes).into_iter().collect();
        frames.extend(self.frames_of(&header, payload));
        frames
    }

    /// The frame of the immediate data that a record brings.
    fn immediate(&self, header: &Header, bytes: &[u8]) -> Option<Vec<u8>> {
        let word = match header.kind {
            // Each record of a Send has it.
            RecordKind::Send if self.send_offset == 0 => header.address,
            RecordKind::Write | RecordKind::Announce => {
                u64::from_ne_bytes(*bytes.get(HEADER..header.front())?.first_chunk()?)
            }
            _ => return None,
        };
        let value = u32::try_from(word).unwrap_or(0);
        let solicited = header.has(record::SOLICITED);
        header
            .has(record::IMMEDIATE)
            .then(|| seal(&immediate_header(&Immediate { value, solicited }), &[]))
    }

    fn frames_of(&mut self, header: &Header, payload: &[u8]) -> Vec<Vec<u8>> {
        match header.kind {
            RecordKind::Request | RecordKind::Reply | RecordKind::Reject => {
                vec![start_up(header, payload)]
            }
            RecordKind::Ready => {
                let target = Target::Tagged { stag: 1, offset: 0 };
                vec![frame(Opcode::Write, true, target, &[])]
            }
            RecordKind::Announce => {
                let &Header { token, address, length, .. } = header;
                let header = Announce { token, address, length }.header();
                vec![seal(&header, &address.to_be_bytes())]
            }
            RecordKind::Target => vec![seal(&target_header(header.token), &[])],
            RecordKind::Write => self.write(header, payload),
            RecordKind::Send => self.send(header, payload),
            RecordKind::Read => vec![self.read(header)],
            RecordKind::Answer => self.answer(header, payload),
            RecordKind::Atomic => vec![self.atomic(header, payload)],
            RecordKind::AtomicAnswer => vec![self.atomic_answer(header)],
            RecordKind::Refuse => vec![terminate(header)],
            RecordKind::Ack => Vec::new(),
        }
    }

    fn write(&self, header: &Header, payload: &[u8]) -> Vec<Vec<u8>> {
        let last = header.has(record::LAST);
        pieces(payload, |at, end, piece| {
            let offset = header.address.wrapping_add(at);
            frame(Opcode::Write, last && end, Target::Tagged { stag: header.token, offset }, piece)
        })
    }

    fn send(&mut self, header: &Header, payload: &[u8]) -> Vec<Vec<u8>> {
        let invalidates = header.has(record::INVALIDATE);
        let opcode = Opcode::send(header.has(record::SOLICITED), invalidates);
        let ulp = if invalidates { u32::try_from(header.address).unwrap_or(0) } else { 0 };
        let (last, number, before) = (header.has(record::LAST), self.sends, self.send_offset);
        let frames = pieces(payload, |at, end, piece| {
            let offset = before.wrapping_add(at as u32); // within a record
            let target = Target::Untagged { ulp, queue: SEND_QUEUE, number, offset };
            frame(opcode, last && end, target, piece)
        });
        if last {
            (self.sends, self.send_offset) = (number.wrapping_add(1), 0);
        } else {
            self.send_offset = before.wrapping_add(payload.len() as u32);
        }
        frames
    }

    fn read(&mut self, header: &Header) -> Vec<u8> {
        let number = self.reads;
        self.reads = number.wrapping_add(1);
        let request = ReadRequest {
            sink_stag: SINK,
            sink_offset: 0,
            size: header.length,
            source_stag: header.token,
            source_offset: header.address,
        };
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
        frame(Opcode::ReadRequest, true, target, &request.to_bytes())
    }

    fn atomic(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let number = self.reads;
        self.reads = number.wrapping_add(1);
        let target = Target::Untagged { ulp: 0, queue: READ_QUEUE, number, offset: 0 };
        // An atomic without operands breaks a rule of the records: its frame shows that they are
        // missing.
        let request = record::read_operands(header.detail, payload).map(|change| {
            AtomicRequest::new(number, header.token, header.address, change).to_bytes()
        });
        let request = request.as_ref().map_or(&[][..], |request| request);
        frame(Opcode::AtomicRequest, true, target, request)
    }

    fn atomic_answer(&mut self, header: &Header) -> Vec<u8> {
        let number = self.atomics;
        self.atomics = number.wrapping_add(1);
        let target = Target::Untagged { ulp: 0, queue: ATOMIC_QUEUE, number, offset: 0 };
        // The request has another number, which this direction does not show.
        let response = AtomicResponse { identifier: number, value: header.address };
        frame(Opcode::AtomicResponse, true, target, &response.to_bytes())
    }

    fn answer(&mut self, header: &Header, payload: &[u8]) -> Vec<Vec<u8>> {
        let (last, before) = (header.has(record::LAST), self.answered);
        self.answered = if last { 0 } else { before.wrapping_add(payload.len() as u32) };
        pieces(payload, |at, end, piece| {
            let offset = u64::from(before).wrapping_add(at);
            let target = Target::Tagged { stag: SINK, offset };
            frame(Opcode::ReadResponse, last && end, target, piece)
        })
    }
}

/// Payload in pieces that fit a frame: where each begins, and whether it is the last.
fn pieces(payload: &[u8], mut frame: impl FnMut(u64, bool, &[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    if payload.is_empty() {
        return vec![frame(0, true, &[])];
    }
    let count = payload.len().div_ceil(PIECE);
    let all = payload.chunks(PIECE).enumerate();
    all.map(|(n, piece)| frame((n * PIECE) as u64, n + 1 == count, piece)).collect()
}

fn frame(opcode: Opcode, last: bool, target: Target, payload: &[u8]) -> Vec<u8> {
    seal(&rdmap::segment(opcode, last, target).header(), payload)
}

fn seal(header: &ddp::Header, payload: &[u8]) -> Vec<u8> {
    let header = header.as_ref();
    let ulpdu = header.len() + payload.len();
    let mut out = Vec::with_capacity(fpdu::size(ulpdu));
    out.extend_from_slice(&u16::try_from(ulpdu).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    fpdu::seal(&mut out, 0, true);
    out
}

fn start_up(header: &Header, private: &[u8]) -> Vec<u8> {
    let limit = |limit: u64| u16::try_from(limit).unwrap_or(UNLIMITED).min(UNLIMITED - 1);
    let (kind, flag) = match header.kind {
        RecordKind::Request => (mpa::FrameKind::Request, mpa::OFFER),
        RecordKind::Reply => (mpa::FrameKind::Reply, mpa::ACCEPT),
        _ => (mpa::FrameKind::Reply, mpa::REJECT),
    };
    let ready = flag != mpa::REJECT;
    let enhanced = Enhanced {
        peer_to_peer: ready,
        send: false,
        write: ready,
        read: false,
        ird: limit(u64::from(header.inbound())),
        ord: limit(u64::from(header.token)),
    };
    let flags = flag | mpa::CHECKSUM | mpa::ENHANCED;
    let frame = StartUp { kind, flags, revision: 2, enhanced: Some(enhanced), private };
    let mut out = Vec::new();
    frame.write(&mut out);
    out
}

fn terminate(header: &Header) -> Vec<u8> {
    let fault = match record::read_detail(header.detail) {
        (Some(operation), Some(class)) => Fault::of(operation, class),
        (None, Some(_)) => Fault::Local,
        _ => Fault::Extension,
    };
    let (bytes, length) =
        Terminate { code: fault.row().code, about: None }.to_bytes(TerminateForm::Rfc);
    let target = Target::Untagged { ulp: 0, queue: TERMINATE_QUEUE, number: 1, offset: 0 };
    frame(Opcode::Terminate, true, target, bytes.get(..length).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use transom_iwarp::extension::Extra;
    use transom_wire::Atomic;

    use super::*;

    #[test]
    fn immediate_data_is_a_frame_in_front_of_its_message() {
        let extra_of = |frame: &[u8]| {
            let Ok(Some((ulpdu, _))) = fpdu::parse(frame, true) else { unreachable!("a frame") };
            let segment = ddp::Segment::parse(ulpdu);
            segment
                .map(|s| (s.control, Extra::parse(s.target, s.last, s.payload).ok()))
                .filter(|(control, _)| *control == Opcode::Experimental.control())
                .and_then(|(_, extra)| match extra {
                    Some(Extra::Immediate(immediate)) => Some(immediate),
                    _ => None,
                })
        };
        let value = 0x1234_5678;
        for (flag, solicited) in [(0, false), (record::SOLICITED, true)] {
            let immediate = Some(Immediate { value, solicited });
            let flags = flag | record::IMMEDIATE;
            for kind in [RecordKind::Write, RecordKind::Announce] {
                let header = Header { flags: flags | record::LAST, length: 8, ..Header::new(kind) };
                let word = u64::from(value).to_ne_bytes();
                let record = [&record::to_bytes(header.words())[..], &word, &[3; 8]].concat();
                let frames = Sender::default().frames(&record);
                assert_eq!(frames.len(), 2, "{kind:?}");
                assert_eq!(extra_of(&frames[0]), immediate);
                let without = Header { flags: record::LAST, ..header };
                let record = [&record::to_bytes(without.words())[..], &[3; 8]].concat();
                assert_eq!(frames[1..], Sender::default().frames(&record));
            }
            // Each record of a Send has it, and its first frame alone is behind it.
            let mut sender = Sender::default();
            for (last, count) in [(0, 2), (record::LAST, 1)] {
                let (flags, address, length) = (flags | last, u64::from(value), 8);
                let header = Header { flags, address, length, ..Header::new(RecordKind::Send) };
                let frames =
                    sender.frames(&[&record::to_bytes(header.words())[..], &[3; 8]].concat());
                assert_eq!(frames.len(), count);
                assert_eq!(extra_of(&frames[0]), immediate.filter(|_| count == 2));
            }
        }
    }

    #[test]
    fn an_atomic_and_its_answer_are_the_frames_that_they_would_have_been() {
        let changes =
            [Atomic::CompareSwap { compare: 1, swap: u64::MAX }, Atomic::FetchAdd { add: 9 }];
        let (mut asks, mut answers) = (Sender::default(), Sender::default());
        for (number, change) in (1..).zip(changes) {
            let (detail, operands) = record::operands(change);
            let (token, address, length) = (7, 0x1000, 16);
            let header =
                Header { detail, token, address, length, ..Header::new(RecordKind::Atomic) };
            let record = [&record::to_bytes(header.words())[..], &operands].concat();
            assert!(is_whole(&record) && !is_whole(&record[..record.len() - 1]));
            let place = |queue| Target::Untagged { ulp: 0, queue, number, offset: 0 };
            let request = AtomicRequest::new(number, token, address, change).to_bytes();
            let expected = frame(Opcode::AtomicRequest, true, place(READ_QUEUE), &request);
            assert_eq!(asks.frames(&record), [expected]);
            let header = Header { address: 41, ..Header::new(RecordKind::AtomicAnswer) };
            let answer = AtomicResponse { identifier: number, value: 41 }.to_bytes();
            let expected = frame(Opcode::AtomicResponse, true, place(ATOMIC_QUEUE), &answer);
            assert_eq!(answers.frames(&record::to_bytes(header.words())), [expected]);
        }
    }
}
