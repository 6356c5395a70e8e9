//! Plain bytes from a peer's program or library, and every codec of the wires: whatever
//! comes in, what is understood says the same when it is written and read again.

use transom::Grant;
use transom_iwarp::TerminateForm;
use transom_iwarp::ddp::Segment;
use transom_iwarp::extension::{Extra, immediate_header, target_header};
use transom_iwarp::fpdu;
use transom_iwarp::mpa::{FrameKind, StartUp};
use transom_iwarp::rdmap::{self, ReadRequest};
use transom_iwarp::rfc7306::{AtomicRequest, AtomicResponse};
use transom_iwarp::terminate::Terminate;
use transom_process::record;
use transom_winsock_direct::descriptor::Descriptor;

/// Input: one byte that says what the rest is.
pub fn descriptors(input: &[u8]) {
    let [what, bytes @ ..] = input else { return };
    match what % 10 {
        0 => grant(bytes),
        1 => winsock(bytes),
        2 => header(bytes),
        3 => start_up(bytes, FrameKind::Request),
        4 => start_up(bytes, FrameKind::Reply),
        5 => frame(bytes, false),
        6 => frame(bytes, true),
        7 => segment(bytes),
        8 => terminate(bytes),
        _ => payloads(bytes),
    }
}

fn grant(bytes: &[u8]) {
    match Grant::from_bytes(bytes) {
        Ok(grant) => {
            assert_eq!(grant.to_bytes()[..], *bytes, "one encoding only");
            assert!(grant.address().checked_add(grant.len()).is_some());
        }
        Err(error) => assert_eq!(error.blame(), transom::Blame::Peer, "{error}"),
    }
}

fn winsock(bytes: &[u8]) {
    if let Ok(descriptor) = Descriptor::decode(bytes) {
        assert_eq!(descriptor.encode()[..], *bytes, "one encoding only");
    }
}

fn header(bytes: &[u8]) {
    let Some(words) = record::to_words(bytes) else {
        assert!(bytes.len() < record::HEADER);
        return;
    };
    assert_eq!(record::to_bytes(words)[..], bytes[..record::HEADER]);
    let Some(header) = record::Header::from_words(words) else { return };
    assert_eq!(record::Header::from_words(header.words()), Some(header));
    let (operation, class) = record::read_detail(header.detail);
    assert_eq!(record::read_detail(record::detail(operation, class)), (operation, class));
}

fn start_up(bytes: &[u8], kind: FrameKind) {
    let Ok(Some((frame, used))) = StartUp::parse(bytes, kind) else { return };
    assert!(used <= bytes.len() && frame.private.len() <= transom_iwarp::mpa::MAX_PRIVATE);
    let mut out = Vec::new();
    frame.write(&mut out);
    assert_eq!(out, bytes[..used]);
    for cut in 0..used {
        assert_eq!(StartUp::parse(&bytes[..cut], kind), Ok(None), "cut at {cut}");
    }
}

fn frame(bytes: &[u8], checksum: bool) {
    let Ok(Some((ulpdu, used))) = fpdu::parse(bytes, checksum) else { return };
    assert!(used <= bytes.len() && used <= fpdu::LARGEST && used == fpdu::size(ulpdu.len()));
    let mut out = bytes[..fpdu::LENGTH + ulpdu.len()].to_vec();
    fpdu::seal(&mut out, 0, true);
    assert_eq!(fpdu::parse(&out, true), Ok(Some((ulpdu, used))));
}

fn segment(bytes: &[u8]) {
    let Some(segment) = Segment::parse(bytes) else { return };
    let header = segment.header();
    let again = [header.as_ref(), segment.payload].concat();
    assert_eq!(again, bytes);
    if let Some(opcode) = rdmap::opcode(segment.control) {
        assert_eq!(rdmap::opcode(opcode.control()), Some(opcode));
        if !opcode.tagged() && matches!(opcode as u8, 3..=6) {
            assert_eq!(rdmap::Opcode::send(opcode.solicited(), opcode.invalidates()), opcode);
        }
    }
    extra(&segment);
}

fn extra(segment: &Segment<'_>) {
    let Ok(extra) = Extra::parse(segment.target, segment.last, segment.payload) else { return };
    let header = match extra {
        Extra::Ack(ack) => ack.header(),
        Extra::Announce(announce) => announce.header(),
        Extra::Refusal(refused) => refused.header(),
        Extra::Immediate(immediate) => immediate_header(&immediate),
        Extra::Target(number) => target_header(number),
    };
    let bytes = [header.as_ref(), segment.payload].concat();
    let again = Segment::parse(&bytes).unwrap();
    assert_eq!(Extra::parse(again.target, again.last, again.payload), Ok(extra));
}

fn terminate(bytes: &[u8]) {
    let [start_up, bytes @ ..] = bytes else { return };
    let Some((found, form)) = Terminate::parse(bytes, start_up % 2 == 1) else { return };
    for form in [form, TerminateForm::Rfc, TerminateForm::Siw] {
        let (out, length) = found.to_bytes(form);
        assert!(length <= out.len());
        let _ = Terminate::parse(&out[..length], start_up % 2 == 1);
    }
}

fn payloads(bytes: &[u8]) {
    if let Some(read) = ReadRequest::parse(bytes) {
        assert_eq!(ReadRequest::parse(&read.to_bytes()), Some(read));
    }
    if let Some(atomic) = AtomicRequest::parse(bytes) {
        assert_eq!(AtomicRequest::parse(&atomic.to_bytes()), Some(atomic));
    }
    if let Some(answer) = AtomicResponse::parse(bytes) {
        assert_eq!(AtomicResponse::parse(&answer.to_bytes()), Some(answer));
    }
}
