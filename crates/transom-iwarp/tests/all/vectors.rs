//! The vectors of iW 16, each decoded and encoded. Where a `Stream` can send a frame, it must send
//! these bytes; where it can receive one, it must decode it.

use crate::common::{self, Got, Pair, Side, hex};
use transom_iwarp::ddp::{Segment, Target};
use transom_iwarp::extension::Ack;
use transom_iwarp::fpdu::{self, Broken, Markers};
use transom_iwarp::mpa::{self, Enhanced, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};
use transom_iwarp::rfc7306::{AtomicRequest, AtomicResponse};
use transom_iwarp::terminate::{About, Terminate};
use transom_iwarp::{Config, Ready, TerminateForm};
use transom_wire::{Atomic, Message, ReadLimits, Role, StartUp as _, Time};

/// Decodes one FPDU with its checksum, and gives it again from the decoded header.
fn both_ways(vector: &str) -> (Segment<'static>, Vec<u8>) {
    let bytes: &'static [u8] = hex(vector).leak();
    let (ulpdu, used) = fpdu::parse(bytes, true).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    let segment = Segment::parse(ulpdu).unwrap();
    assert_eq!(seal(segment, segment.payload), bytes);
    (segment, bytes.to_vec())
}

fn seal(segment: Segment<'_>, payload: &[u8]) -> Vec<u8> {
    let header = segment.header();
    let length = u16::try_from(header.as_ref().len() + payload.len()).unwrap();
    let mut out = [&length.to_be_bytes(), header.as_ref(), payload].concat();
    fpdu::seal(&mut out, 0, true);
    out
}

fn send(opcode: Opcode, number: u32, ulp: u32) -> Segment<'static> {
    rdmap::segment(opcode, true, Target::Untagged { ulp, queue: 0, number, offset: 0 })
}

// ---- 16.1 ---------------------------------------------------------------------------------------

#[test]
fn crc32c_values_of_iw_16_1() {
    assert_eq!(fpdu::crc(b"123456789"), [0x83, 0x92, 0x06, 0xe3]);
    assert_eq!(fpdu::crc(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(fpdu::crc(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(fpdu::crc(&rising), [0x4e, 0x79, 0xdd, 0x46]);
    let falling: Vec<u8> = (0..32).rev().collect();
    assert_eq!(fpdu::crc(&falling), [0x5c, 0xdb, 0x3f, 0x11]);
}

/// Close an FPDU, with its checksum.
fn close(markers: &mut Markers, fpdu: &mut Vec<u8>) {
    let filled = fpdu.len();
    fpdu.resize(filled + markers.behind(filled), 0);
    markers.seal(fpdu, filled, true);
}

#[test]
fn figures_5_and_6_of_rfc_5044() {
    // Figure 5: a marker, then a Send of 24 zero bytes with message number 1.
    let mut markers = Markers::default();
    let mut out = hex("002a 4143 00000000 00000000 00000001 00000000");
    out.extend_from_slice(&[0; 24]);
    close(&mut markers, &mut out);
    assert_eq!(out.len(), 4 + 44 + 4);
    assert_eq!(out[..4], [0; 4]);
    assert_eq!(out[48..], [0x52, 0x23, 0x99, 0x83]);
    // This frame without its marker.
    let mut out = hex("002a 4143 00000000 00000000 00000001 00000000");
    out.extend_from_slice(&[0; 24]);
    fpdu::seal(&mut out, 0, true);
    assert_eq!(out[44..], [0xb7, 0x24, 0x3e, 0xc3]);
    // Figure 6: a Send with number 2 whose header ends at stream byte 512, where a marker points
    // back 20 bytes.
    let mut out = hex("002a 4143 00000000 00000000 00000002 00000000");
    out.extend_from_slice(&[0; 24]);
    // Reach stream position 492: 512 - 20.
    let mut four = Markers::default();
    let mut pad = vec![0; 484];
    close(&mut four, &mut pad);
    assert_eq!(pad.len(), 492);
    close(&mut four, &mut out);
    assert_eq!(out[20..24], [0, 0, 0, 0x14]);
    assert_eq!(out[out.len() - 4..], [0x84, 0x92, 0x58, 0x98]);
}

// ---- 16.2 ---------------------------------------------------------------------------------------

#[test]
fn a_zero_length_send() {
    let (segment, bytes) = both_ways("0012 4143 00000000 00000000 00000001 00000000 587be8c4");
    assert_eq!(segment, send(Opcode::Send, 1, 0));
    let mut pair = Pair::plain();
    pair.active.post(
        Message::Send { length: 0, solicited: false, invalidate: None, immediate: None },
        &[],
    );
    assert_eq!(pair.active.talk(), bytes);
}

#[test]
fn b_send_hello() {
    let (segment, bytes) =
        both_ways("0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c");
    assert_eq!(segment.payload, b"hello");
    let mut pair = Pair::plain();
    pair.active.send(b"hello");
    assert_eq!(pair.active.talk(), bytes);
    pair.passive.got.clear();
    pair.passive.feed(&bytes);
    let hello = Got::Send { data: b"hello".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.passive.taken(), [hello]);
}

#[test]
fn c_ready_to_receive_write_names_token_1() {
    let (segment, bytes) = both_ways("000e c140 00000001 0000000000000000 ebd34c5f");
    assert_eq!(segment.target, Target::Tagged { stag: 1, offset: 0 });
    let config =
        |role| Config { extension: false, preferred_ready: Ready::Write, ..Config::new(role) };
    let mut pair = Pair::new(config(Role::Active), config(Role::Passive));
    assert_eq!(ready_frame(&mut pair), bytes);
    pair.passive.feed(&bytes);
    assert_eq!(pair.passive.taken(), [Got::Established]);
}

/// The first frame of an active side.
fn ready_frame(pair: &mut Pair) -> Vec<u8> {
    let Pair { active: a, passive: p } = pair;
    a.wire.connect(a.now, common::LIMITS, b"").unwrap();
    p.feed(&a.talk());
    p.wire.accept(p.now, common::LIMITS, b"").unwrap();
    a.feed(&p.talk());
    a.wire.confirm(a.now).unwrap();
    a.wait(std::time::Duration::from_millis(20));
    p.taken();
    a.talk()
}

#[test]
fn c0_ready_to_receive_write_may_name_any_token() {
    let (_, bytes) = both_ways("000e c140 00000000 0000000000000000 a30572ab");
    let config =
        |role| Config { extension: false, preferred_ready: Ready::Write, ..Config::new(role) };
    let mut pair = Pair::new(config(Role::Active), config(Role::Passive));
    ready_frame(&mut pair);
    pair.passive.feed(&bytes);
    assert_eq!(pair.passive.taken(), [Got::Established]);
}

const D: &str = "002e 4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000000 \
                 00000001 0000000000000000 ba10e3c9";

#[test]
fn d_ready_to_receive_read_and_f_its_answer() {
    let (segment, bytes) = both_ways(D);
    let request = ReadRequest::parse(segment.payload).unwrap();
    assert_eq!((request.size, request.source_stag), (0, 1));
    let config =
        |role| Config { extension: false, preferred_ready: Ready::Read, ..Config::new(role) };
    let mut pair = Pair::new(config(Role::Active), config(Role::Passive));
    assert_eq!(ready_frame(&mut pair), bytes);
    pair.passive.feed(&bytes);
    assert_eq!(pair.passive.taken(), [Got::Established]);
    let (_, answer) = both_ways("000e c142 00000000 0000000000000000 6975d6ca");
    assert_eq!(pair.passive.talk(), answer);
    pair.active.taken();
    pair.active.feed(&answer);
    assert_eq!((pair.active.taken(), &pair.active.violation), (vec![], &None));
}

#[test]
fn e_read_request() {
    let (segment, _) = both_ways(
        "002e 4141 00000000 00000001 00000002 00000000 00000500 00007f0000001000 00001000 \
         00012a07 00007f0000002000 0c5e2ced",
    );
    let request = ReadRequest {
        sink_stag: 0x500,
        sink_offset: 0x7f00_0000_1000,
        size: 4096,
        source_stag: 0x12a07,
        source_offset: 0x7f00_0000_2000,
    };
    assert_eq!(ReadRequest::parse(segment.payload), Some(request));
    assert_eq!(request.to_bytes(), segment.payload);
}

#[test]
fn e_read_request_of_a_stream() {
    // The second read of a connection that began with one (D), as E with other numbers.
    let mut pair = Pair::plain();
    pair.active.post(
        Message::Read {
            token: 0x12a07,
            address: 0x7f00_0000_2000,
            length: 4096,
            sink_token: 0x500,
            sink_address: 0x7f00_0000_1000,
        },
        &[],
    );
    let expected =
        hex("002e 4141 00000000 00000001 00000002 00000000 00000500 00007f0000001000 00001000 \
         00012a07 00007f0000002000 0c5e2ced");
    assert_eq!(pair.active.talk(), expected);
}

#[test]
fn g_write() {
    let (segment, bytes) =
        both_ways("0016 c140 00012a07 0000000000001000 0001020304050607 cfa13f0a");
    assert_eq!(segment.target, Target::Tagged { stag: 0x12a07, offset: 0x1000 });
    let mut pair = Pair::plain();
    pair.active.write(0x12a07, 0x1000, &[0, 1, 2, 3, 4, 5, 6, 7], false);
    assert_eq!(pair.active.talk(), bytes);
    pair.passive.got.clear();
    pair.passive.feed(&bytes);
    let data = (0..8).collect();
    assert_eq!(pair.passive.taken(), [Got::Write { token: 0x12a07, address: 0x1000, data }]);
}

#[test]
fn h_send_with_solicited_event_and_invalidate() {
    let (segment, bytes) =
        both_ways("0016 4146 00012a07 00000000 00000003 00000000 deadbeef e240d48b");
    assert_eq!(segment.header(), send(Opcode::SendSolicitedInvalidate, 3, 0x12a07).header());
    let mut pair = Pair::plain();
    pair.active.send(b"1");
    pair.active.send(b"2");
    pair.run();
    let message =
        Message::Send { length: 4, solicited: true, invalidate: Some(0x12a07), immediate: None };
    pair.active.post(message, &[0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(pair.active.talk(), bytes);
    pair.passive.got.clear();
    pair.passive.feed(&bytes);
    let data = vec![0xde, 0xad, 0xbe, 0xef];
    let got = Got::Send { data, solicited: true, invalidate: Some(0x12a07) };
    assert_eq!(pair.passive.taken(), [got]);
}

fn terminate(vector: &str, form: TerminateForm, expected: &Terminate<'_>) {
    let (segment, _) = both_ways(vector);
    assert_eq!(Terminate::parse(segment.payload, false), Some((*expected, form)));
    let (bytes, used) = expected.to_bytes(form);
    assert_eq!(&bytes[..used], segment.payload);
}

#[test]
fn i_terminate_crc_in_both_orders() {
    let said = Terminate { code: (2, 0, 2), about: None };
    let rfc = "0016 4147 00000000 00000002 00000001 00000000 20020000 7fe42585";
    let siw = "0016 4147 00000000 00000002 00000001 00000000 02020000 75d367ed";
    terminate(rfc, TerminateForm::Rfc, &said);
    terminate(siw, TerminateForm::Siw, &said);
    // Our own, at a frame whose checksum is wrong.
    for (form, vector) in [(TerminateForm::Rfc, rfc), (TerminateForm::Siw, siw)] {
        let config = |role| Config { extension: false, terminate: form, ..Config::new(role) };
        let mut pair = Pair::connected(config(Role::Active), config(Role::Passive));
        pair.passive.feed(&hex("0012 4143 00000000 00000000 00000001 00000000 587be8c5"));
        assert_eq!(pair.passive.talk(), hex(vector));
    }
}

#[test]
fn j_terminate_with_a_sends_header_in_both_orders() {
    let header = hex("4143 00000000 00000000 00000009 00000000");
    let about = |length| About { length, length_valid: true, header: &header, request: &[] };
    let rfc = "002a 4147 00000000 00000002 00000001 00000000 1203c000 0012 4143 00000000 00000000 \
               00000009 00000000 ab4e9f8a";
    let siw = "002a 4147 00000000 00000002 00000001 00000000 21030300 0000 4143 00000000 00000000 \
               00000009 00000000 f5bcbf2d";
    let said = |length| Terminate { code: (1, 2, 3), about: Some(about(length)) };
    terminate(rfc, TerminateForm::Rfc, &said(0x12));
    terminate(siw, TerminateForm::Siw, &said(0));
    // Our own, at a Send that skips eight numbers.
    for (form, vector) in [(TerminateForm::Rfc, rfc), (TerminateForm::Siw, siw)] {
        let config = |role| Config { extension: false, terminate: form, ..Config::new(role) };
        let mut pair = Pair::connected(config(Role::Active), config(Role::Passive));
        pair.passive.feed(&seal(send(Opcode::Send, 9, 0), &[]));
        assert_eq!(pair.passive.talk(), hex(vector));
    }
}

#[test]
fn k_terminate_about_a_read_request() {
    let vector = "0046 4147 00000000 00000002 00000001 00000000 0100e000 002e 4141 00000000 \
                  00000001 00000002 00000000 00000500 0000000000001000 00001000 deadbe00 \
                  0000000000002000 e8f54c39";
    let header = hex("4141 00000000 00000001 00000002 00000000");
    let request = hex("00000500 0000000000001000 00001000 deadbe00 0000000000002000");
    let about = About { length: 0x2e, length_valid: true, header: &header, request: &request };
    terminate(vector, TerminateForm::Rfc, &Terminate { code: (0, 1, 0), about: Some(about) });
    // Our own: the read is refused because nothing has its token.
    let mut pair = Pair::plain();
    pair.passive.refuse = Some((
        |event| matches!(event, transom_wire::Event::ReadRequest { .. }),
        transom_wire::RefusalClass::Token,
        "not for plain peers",
    ));
    let (sink_token, sink_address) = (0x500, 0x1000);
    let read = Message::Read {
        token: 0xdead_be00,
        address: 0x2000,
        length: 0x1000,
        sink_token,
        sink_address,
    };
    pair.active.post(read, &[]);
    let request = pair.active.talk();
    pair.passive.feed(&request);
    assert_eq!(pair.passive.talk(), hex(vector));
}

/// iW 7.3: siw's length leaves out the headers. A Read Request is nothing else: 46 bytes less 18 of
/// its DDP header and 28 of its own.
#[test]
fn k_terminate_about_a_read_request_in_siws_order() {
    let vector = "0046 4147 00000000 00000002 00000001 00000000 10000700 0000 4141 00000000 \
                  00000001 00000002 00000000 00000500 0000000000001000 00001000 deadbe00 \
                  0000000000002000";
    let config = |role| {
        let terminate = TerminateForm::Siw;
        Config { extension: false, terminate, ..Config::new(role) }
    };
    let mut pair = Pair::connected(config(Role::Active), config(Role::Passive));
    pair.passive.refuse = Some((|_| true, transom_wire::RefusalClass::Token, ""));
    let (token, address, length) = (0xdead_be00, 0x2000, 0x1000);
    let (sink_token, sink_address) = (0x500, 0x1000);
    pair.active.post(Message::Read { token, address, length, sink_token, sink_address }, &[]);
    let request = pair.active.talk();
    pair.passive.feed(&request);
    assert_eq!(pair.passive.talk(), changed(vector, |_| ()));
}

#[test]
fn n_o_p_rfc_7306_is_understood_by_the_codec_and_refused_by_a_plain_stream() {
    let (request, atomic) = both_ways(
        "0046 414a 00000000 00000001 00000001 00000000 00000000 11223344 00012a07 \
         0000000000002000 0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff \
         6a0286ce",
    );
    let asked = AtomicRequest {
        operation: 0,
        identifier: 0x1122_3344,
        stag: 0x12a07,
        offset: 0x2000,
        data: 1,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    assert_eq!(AtomicRequest::parse(request.payload), Some(asked));
    assert_eq!(asked.to_bytes(), request.payload);
    let change = Atomic::FetchAdd { add: 1 };
    assert_eq!(asked.whole(), Some(change));
    assert_eq!(AtomicRequest::new(0x1122_3344, 0x12a07, 0x2000, change), asked);
    let (response, _) = both_ways(
        "001e 414b 00000000 00000003 00000001 00000000 11223344 0000000000000029 54c79053",
    );
    let answer = AtomicResponse { identifier: 0x1122_3344, value: 41 };
    assert_eq!(AtomicResponse::parse(response.payload), Some(answer));
    assert_eq!(answer.to_bytes(), response.payload);
    let (immediate, bytes) =
        both_ways("001a 4148 00000000 00000000 00000004 00000000 0000000012345678 b16c7437");
    assert_eq!(immediate.payload, 0x1234_5678_u64.to_be_bytes());
    let named = |segment: &Segment<'_>| rdmap::opcode(segment.control);
    assert_eq!(named(&request), Some(Opcode::AtomicRequest));
    assert_eq!(named(&response), Some(Opcode::AtomicResponse));
    assert_eq!(named(&immediate), Some(Opcode::Immediate));
    for frame in [atomic, bytes] {
        let mut pair = Pair::plain();
        pair.passive.feed(&frame);
        assert_eq!(common::terminate_code(&pair.passive.talk()), Some((0, 2, 6)));
    }
}

// ---- 16.3 ---------------------------------------------------------------------------------------

fn marked(side: &mut Side, data: &[u8]) -> Vec<u8> {
    side.send(data);
    side.talk()
}

#[test]
fn a_stream_with_markers() {
    // A responder that does not ask for a ready-to-receive frame, so that the first byte of the
    // vector is the first of the stream; its Reply asks for markers.
    let config = Config {
        extension: false,
        peer_to_peer: false,
        hold: std::time::Duration::ZERO,
        ..Config::new(Role::Active)
    };
    let mut side = Side::new(config);
    side.wire.connect(side.now, common::LIMITS, b"").unwrap();
    side.talk();
    let mut reply = mpa::REPLY_KEY.to_vec();
    reply.extend_from_slice(&hex("d0 02 0004 0004 0004"));
    side.feed(&reply);
    side.wire.confirm(side.now).unwrap();
    assert!(side.wire.facts().unwrap().markers);

    let first: Vec<u8> = (0..500u32).map(|i| i as u8).collect();
    let mut expected = hex("00000000 0206 4143 00000000 00000000 00000001 00000000");
    expected.extend_from_slice(&first[..488]);
    expected.extend_from_slice(&hex("000001fc"));
    expected.extend_from_slice(&first[488..]);
    expected.extend_from_slice(&hex("d63d9e92"));
    assert_eq!(expected.len(), 532);
    assert_eq!(marked(&mut side, &first), expected);

    let hello = hex("0017 4143 00000000 00000000 00000002 00000000 68656c6c6f 000000 16d8c75d");
    assert_eq!(marked(&mut side, b"hello"), hello);

    let mut long = hex("01c6 4143 00000000 00000000 00000003 00000000");
    long.resize(long.len() + 436, 0);
    long.extend_from_slice(&hex("da675609"));
    assert_eq!(marked(&mut side, &[0; 436]), long);

    let last = hex("00000000 0012 4143 00000000 00000000 00000004 00000000 94108224");
    assert_eq!(marked(&mut side, b""), last);
}

// ---- 16.4 ---------------------------------------------------------------------------------------

fn start_up(kind: FrameKind, vector: &str) -> (Vec<u8>, StartUp<'static>) {
    let key = if kind == FrameKind::Request { mpa::REQUEST_KEY } else { mpa::REPLY_KEY };
    let bytes = [&key[..], &hex(vector)].concat();
    let (frame, used) = StartUp::parse(bytes.clone().leak(), kind).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    let mut again = Vec::new();
    frame.write(&mut again);
    assert_eq!(again, bytes);
    (bytes, frame)
}

#[test]
fn m1_request_of_revision_1() {
    let (bytes, frame) = start_up(FrameKind::Request, "40 01 0000");
    assert_eq!((frame.flags, frame.revision, frame.enhanced), (mpa::CHECKSUM, 1, None));
    let revision = transom_iwarp::Revision::One;
    let mut side = Side::new(Config { revision, extension: false, ..Config::new(Role::Active) });
    side.wire.connect(Time(0), common::LIMITS, b"").unwrap();
    assert_eq!(side.talk(), bytes);
}

#[test]
fn private_data_that_does_not_fit_is_cut_by_the_codec() {
    let enhanced = Some(Enhanced::default());
    for (enhanced, most) in [(None, 512), (enhanced, 508)] {
        let flags = if enhanced.is_some() { mpa::ENHANCED } else { 0 };
        let private = &[7; 600];
        let frame = StartUp { kind: FrameKind::Reply, flags, revision: 2, enhanced, private };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let (frame, used) = StartUp::parse(&bytes, FrameKind::Reply).unwrap().unwrap();
        assert_eq!((frame.private.len(), used), (most, bytes.len()));
    }
}

const SIXTEEN: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

#[test]
fn m2_request_m4_reply_m5_reject() {
    let (request, frame) = start_up(FrameKind::Request, "50 02 0008 8010 c010 61626364");
    let word =
        Enhanced { peer_to_peer: true, send: false, write: true, read: true, ird: 16, ord: 16 };
    assert_eq!((frame.enhanced, frame.private), (Some(word), &b"abcd"[..]));
    let config = |role| Config { extension: false, verdict_reads: false, ..Config::new(role) };
    let mut active = Side::new(config(Role::Active));
    active.wire.connect(Time(0), SIXTEEN, b"abcd").unwrap();
    assert_eq!(active.talk(), request);

    let (reply, _) = start_up(FrameKind::Reply, "50 02 0004 8010 4010");
    let mut passive = Side::new(config(Role::Passive));
    passive.feed(&request);
    passive.wire.accept(Time(0), SIXTEEN, b"").unwrap();
    assert_eq!(passive.talk(), reply);
    active.feed(&reply);
    assert_eq!(active.taken(), [Got::Accepted { limits: SIXTEEN, private: vec![] }]);

    let (reject, _) = start_up(FrameKind::Reply, "70 02 0006 8010 c010 6e6f");
    let mut passive = Side::new(config(Role::Passive));
    passive.feed(&request);
    passive.wire.reject(Time(0), b"no").unwrap();
    assert_eq!(passive.talk(), reject);
    let mut active = Side::new(config(Role::Active));
    active.wire.connect(Time(0), SIXTEEN, b"abcd").unwrap();
    active.talk();
    active.feed(&reject);
    assert_eq!(active.taken(), [Got::Rejected { private: b"no".to_vec() }]);
}

#[test]
fn m3_request_of_siw() {
    let (bytes, _) = start_up(FrameKind::Request, "10 02 0004 0001 0001");
    let mut side = Side::new(Config::siw(Role::Active));
    let one = ReadLimits { inbound: 1, outbound: 1 };
    side.wire.connect(Time(0), one, b"").unwrap();
    assert_eq!(side.talk(), bytes);
    // A=0: our passive side takes the connection for established with its Reply (iW 2.4).
    let mut passive = Side::new(Config::new(Role::Passive));
    passive.feed(&bytes);
    passive.wire.accept(Time(0), one, b"").unwrap();
    passive.talk();
    assert!(passive.taken().contains(&Got::Established));
}

// ---- 16.5 ---------------------------------------------------------------------------------------

/// The answer of a plain passive side to a frame, as Terminate code.
fn answer(bytes: &[u8]) -> (u8, u8, u8) {
    let mut pair = Pair::plain();
    pair.passive.got.clear();
    pair.passive.feed(bytes);
    assert!(pair.passive.violation.is_some());
    assert_eq!(pair.passive.taken(), [], "something was placed");
    common::terminate_code(&pair.passive.talk()).unwrap()
}

/// Changes a vector without its checksum, then closes it again.
fn changed(vector: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = hex(vector);
    change(&mut bytes);
    fpdu::seal(&mut bytes, 0, true);
    bytes
}

const A: &str = "0012 4143 00000000 00000000 00000001 00000000";
const G: &str = "0016 c140 00012a07 0000000000001000 0001020304050607";

#[test]
fn negative_a_checksum() {
    let mut bytes = changed(A, |_| ());
    bytes[20] ^= 1;
    assert_eq!(fpdu::parse(&bytes, true), Err(Broken::Crc));
    assert_eq!(answer(&bytes), (2, 0, 2));
}

#[test]
fn negative_a_message_number_2_first() {
    assert_eq!(answer(&changed(A, |bytes| bytes[13] = 2)), (1, 2, 3));
}

#[test]
fn negative_a_queue_5() {
    assert_eq!(answer(&changed(A, |bytes| bytes[9] = 5)), (1, 2, 1));
}

#[test]
fn negative_b_length_0x0011() {
    let mut bytes = hex("0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c");
    bytes[1] = 0x11;
    assert_eq!(answer(&bytes), (2, 0, 2));
    // With a checksum that fits, it is a segment shorter than its header.
    assert_eq!(answer(&changed("0011 4143 00000000 00000000 00000001 000000", |_| ())), (2, 0, 3));
}

#[test]
fn negative_g_ddp_version_rdmap_version_opcode() {
    assert_eq!(answer(&changed(G, |bytes| bytes[2] = 0xc2)), (1, 1, 4));
    assert_eq!(answer(&changed(G, |bytes| bytes[3] = 0x80)), (0, 2, 5));
    assert_eq!(answer(&changed(G, |bytes| bytes[3] = 0x4c)), (0, 2, 6));
}

#[test]
fn negative_f_unasked() {
    assert_eq!(answer(&hex("000e c142 00000000 0000000000000000 6975d6ca")), (0, 2, 6));
}

// ---- the extension's own ----------------------------------------------------------------------

#[test]
fn an_acknowledgement_is_one_header() {
    let ack = Ack {
        executed: 0x0102_0304,
        credits: 0x0506_0708,
        shared: true,
        wanted: true,
        extended: true,
        none: true,
    };
    let bytes = hex("414f 0000000f 00000004 01020304 05060708");
    assert_eq!(ack.header().as_ref(), bytes);
}
