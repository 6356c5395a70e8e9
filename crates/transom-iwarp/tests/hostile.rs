//! The hostile-input checklist of iW 14, a test per line, named after it. `rules.toml` says which
//! lines are held elsewhere.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Got, Pair, Side, hex, terminate_code};
use transom_iwarp::{Config, Ready, Stream, fpdu, mpa};
use transom_wire::{Blame, ReadLimits, RefusalClass, Role, Wire};

// ---- start-up ---------------------------------------------------------------------------------

fn passive() -> Side {
    Side::new(Config::new(Role::Passive))
}

fn request(rest: &str) -> Vec<u8> {
    [&mpa::REQUEST_KEY[..], &hex(rest)].concat()
}

fn reply(rest: &str) -> Vec<u8> {
    [&mpa::REPLY_KEY[..], &hex(rest)].concat()
}

/// An active side that waits for its Reply.
fn waiting() -> Side {
    let mut side = Side::new(Config::new(Role::Active));
    side.wire.connect(side.now, common::LIMITS, b"").unwrap();
    side.talk();
    side
}

/// The stream has ended without a word and without an event.
fn closed_silently(mut side: Side, blame: Blame) {
    assert_eq!(side.violation.as_ref().unwrap().blame, blame);
    assert_eq!(side.taken(), []);
    assert_eq!(side.talk(), []);
    assert!(!side.wire.has_output());
    assert_eq!(side.wire.deadline(), None);
    assert!(side.wire.facts().is_none());
}

#[test]
fn s1_a_connection_without_bytes_times_out() {
    let mut side = passive();
    let limit = Config::new(Role::Passive).handshake_timeout;
    assert_eq!(side.wire.deadline(), Some(side.now.after(limit)));
    side.wait(limit - Duration::from_nanos(1));
    assert_eq!(side.violation, None);
    side.wait(Duration::from_nanos(1));
    closed_silently(side, Blame::Peer);
}

#[test]
fn s2_a_byte_per_second_does_not_move_the_timer() {
    let mut side = passive();
    let bytes = request("5002 0004 8001 c001");
    for byte in &bytes {
        side.feed(&[*byte]);
        side.wait(Duration::from_secs(1));
        if side.violation.is_some() {
            break;
        }
    }
    assert_eq!(side.now.0, 5_000_000_000);
    closed_silently(side, Blame::Peer);
}

#[test]
fn s3_no_start_up_frame_is_refused_at_its_first_wrong_byte() {
    for bytes in [&b"\x16\x03\x01"[..], b"GET / HTTP/1.1\r\n\r\n", b"MPA ID Req frame", b"N"] {
        let mut side = passive();
        side.feed(bytes);
        closed_silently(side, Blame::Peer);
    }
    // The other direction's key.
    let mut side = passive();
    side.feed(&mpa::REPLY_KEY);
    closed_silently(side, Blame::Peer);
}

#[test]
fn s4_revisions_0_and_above_2_are_refused() {
    for revision in ["00", "03", "ff"] {
        let mut side = passive();
        side.feed(&request(&format!("50{revision} 0000")));
        closed_silently(side, Blame::Peer);
        let mut side = waiting();
        side.feed(&reply(&format!("50{revision} 0000")));
        closed_silently(side, Blame::Peer);
    }
}

#[test]
fn s5_private_data_beyond_512_is_refused_without_reading_it() {
    for length in ["0201", "ffff"] {
        let mut side = passive();
        side.feed(&request(&format!("5002 {length}")));
        closed_silently(side, Blame::Peer);
        let mut side = waiting();
        side.feed(&reply(&format!("5002 {length}")));
        closed_silently(side, Blame::Peer);
    }
}

#[test]
fn s6_private_data_that_does_not_come_times_out() {
    let mut side = passive();
    side.feed(&request("4001 0200 00010203040506070809"));
    assert_eq!(side.taken(), []);
    assert_eq!(side.violation, None);
    side.wait(Config::new(Role::Passive).handshake_timeout);
    closed_silently(side, Blame::Peer);
}

#[test]
fn s7_enhanced_start_up_without_its_word_is_refused() {
    for length in 0..4 {
        let rest = format!("5002 000{length} {}", "00".repeat(length));
        let mut side = passive();
        side.feed(&request(&rest));
        closed_silently(side, Blame::Peer);
        let mut side = waiting();
        side.feed(&reply(&rest));
        closed_silently(side, Blame::Peer);
    }
}

#[test]
fn s8_the_enhanced_flag_means_nothing_in_revision_1() {
    let mut side = passive();
    side.feed(&request("5001 0004 61626364"));
    let got = side.taken();
    assert!(matches!(&got[..], [Got::Request { private, .. }] if private == b"abcd"), "{got:?}");
    side.wire.accept(side.now, common::LIMITS, b"").unwrap();
    assert_eq!(side.talk(), reply("4001 0000"));
}

#[test]
fn s9_the_reject_flag_of_a_request_is_ignored_and_not_mirrored() {
    let mut side = passive();
    side.feed(&request("7002 0004 8001 c001"));
    assert!(matches!(side.taken()[..], [Got::Request { .. }]));
    side.wire.accept(side.now, common::LIMITS, b"").unwrap();
    assert_eq!(side.talk()[16] & mpa::REJECT, 0);
}

#[test]
fn s10_a_peer_that_asks_for_markers_gets_them() {
    let mut side = passive();
    side.feed(&request("c001 0000"));
    side.wire.accept(side.now, common::LIMITS, b"").unwrap();
    assert_eq!(side.talk(), reply("4001 0000"));
    assert!(side.wire.facts().unwrap().markers);
    side.feed(&frame("4143 00000000 00000000 00000001 00000000", b""));
    side.send(b"");
    assert_eq!(&side.talk()[..8], &hex("00000000 0012 4143"));
}

#[test]
fn s11_read_limits_are_capped() {
    let mut side = passive();
    side.feed(&request("5002 0004 3ffe 3ffe"));
    let caps = Config::new(Role::Passive).read_caps;
    let Some(Got::Request { limits, .. }) = side.got.first() else { unreachable!() };
    assert_eq!(*limits, caps);
    let limits = ReadLimits { inbound: u32::MAX, outbound: u32::MAX };
    side.wire.accept(side.now, limits, b"").unwrap();
    assert_eq!(side.wire.facts().unwrap().limits, caps);
    // The inbound limit as told, the outbound one with the slot for verdicts.
    assert_eq!(side.talk(), reply("5002 0004 0080 0081"));
}

#[test]
fn s12_a_request_that_names_no_ready_frame_is_told_ours() {
    let mut side = passive();
    side.feed(&request("5002 0004 8001 0001"));
    side.wire.accept(side.now, common::LIMITS, b"").unwrap();
    let word = side.talk();
    assert_eq!((word[20] & 0xC0, word[22] & 0xC0), (0x80, 0xC0));
}

#[test]
fn s13_a_reply_that_names_no_ready_frame_is_terminated() {
    for word in ["8001 0001", "c001 0001"] {
        // None at all; only a Send, which was not offered.
        let mut side = waiting();
        side.feed(&reply(&format!("5002 0004 {word}")));
        assert_eq!(side.taken(), []);
        assert_eq!(terminate_code(&side.talk()), Some((2, 0, 7)));
        assert_eq!(side.violation.unwrap().rule, "RFC 6581 9.2");
    }
}

#[test]
fn s14_bytes_behind_a_request_end_it() {
    let mut side = passive();
    let mut bytes = request("5002 0004 8001 c001");
    bytes.push(0);
    side.feed(&bytes);
    assert!(matches!(side.taken()[..], [Got::Request { .. }]));
    closed_silently(side, Blame::Peer);
}

#[test]
fn s15_start_up_frames_among_messages_are_broken_frames() {
    let mut pair = Pair::plain();
    pair.passive.got.clear();
    let mut bytes = request("5002 0004 8001 c001");
    bytes.resize(fpdu::size(0x4d50), 0);
    pair.passive.feed(&bytes);
    assert_eq!(pair.passive.taken(), []);
    assert_eq!(terminate_code(&pair.passive.talk()), Some((2, 0, 2)));
    let mut pair = Pair::plain();
    let mut bytes = reply("5002 0004 8001 c001");
    bytes.resize(fpdu::size(0x4d50), 0);
    pair.active.feed(&bytes);
    assert_eq!(terminate_code(&pair.active.talk()), Some((2, 0, 2)));
}

#[test]
fn s16_a_half_open_connection_is_small() {
    assert!(size_of::<Stream>() <= 1024, "{} bytes", size_of::<Stream>());
}

#[test]
fn s17_private_data_is_never_looked_at() {
    // Start-up frames inside private data, and every byte there is.
    let nested = request("5002 0004 8001 c001");
    let all: Vec<u8> = (0..=255).collect();
    for private in [&nested[..], &all, b"", &[0xff; 508]] {
        let mut active = Side::new(Config::new(Role::Active));
        active.wire.connect(active.now, common::LIMITS, private).unwrap();
        let mut side = passive();
        side.feed(&active.talk());
        let got = side.taken();
        assert!(matches!(&got[..], [Got::Request { private: p, .. }] if p == private), "{got:?}");
        side.wire.accept(side.now, common::LIMITS, private).unwrap();
        active.feed(&side.talk());
        let got = active.taken();
        assert!(matches!(&got[..], [Got::Accepted { private: p, .. }] if p == private), "{got:?}");
    }
}

#[test]
fn s18_two_initiators_notice_each_other() {
    let mut side = waiting();
    side.feed(&request("5002 0004 8001 c001"));
    assert_eq!(side.violation.as_ref().unwrap().rule, "iW 1.2 rule 6");
    closed_silently(side, Blame::Peer);
}

// ---- framing ----------------------------------------------------------------------------------

/// An FPDU with a right checksum.
fn frame(header: &str, payload: &[u8]) -> Vec<u8> {
    let ulpdu = [&hex(header)[..], payload].concat();
    raw(&ulpdu)
}

fn raw(ulpdu: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).unwrap();
    let mut bytes = [&length.to_be_bytes()[..], ulpdu].concat();
    fpdu::seal(&mut bytes, 0, true);
    bytes
}

/// A plain passive side that has been connected to, and has shown everything so far.
fn peer() -> Side {
    peer_with(|config| config)
}

fn peer_with(change: fn(Config) -> Config) -> Side {
    let plain = |role| change(Config { extension: false, ..Config::new(role) });
    let mut pair = Pair::connected(plain(Role::Active), plain(Role::Passive));
    pair.passive.taken();
    pair.passive
}

/// The stream ended with this Terminate; nothing came out.
fn refused(side: &mut Side, code: (u8, u8, u8)) {
    assert_eq!(side.taken(), []);
    assert!(side.violation.is_some());
    let said = side.talk();
    assert_eq!(terminate_code(&said), Some(code));
    // Once, and nothing after it (RFC 5040 7.1).
    assert_eq!(side.talk(), []);
    assert!(!side.wire.has_output());
    assert!(side.wire.facts().is_some(), "what was agreed stays known");
    // What comes later is thrown away.
    let late = frame("4143 00000000 00000000 00000001 00000000", b"late");
    assert_eq!(side.wire.decode(side.now, &late).unwrap().consumed, late.len());
}

const SEND_1: &str = "4143 00000000 00000000 00000001 00000000";

#[test]
fn f1_a_frame_of_no_bytes() {
    let mut side = peer();
    side.feed(&[0, 0]);
    refused(&mut side, (2, 0, 3));
}

#[test]
fn f2_frames_shorter_than_their_header() {
    for length in 1..14 {
        let mut side = peer();
        side.feed(&[0, length]);
        refused(&mut side, (2, 0, 3));
    }
    let read = "4141 00000000 00000001 00000002 00000000";
    let terminate = "4147 00000000 00000002 00000001 00000000";
    for (header, least) in [(SEND_1, 18), (read, 46)] {
        for length in 14..least {
            let mut side = peer();
            let mut ulpdu = hex(header);
            ulpdu.resize(length, 0);
            side.feed(&raw(&ulpdu));
            refused(&mut side, (2, 0, 3));
        }
    }
    // A Terminate too short to say anything is not answered with one.
    for length in 18..22 {
        let mut side = peer();
        let mut ulpdu = hex(terminate);
        ulpdu.resize(length, 0);
        side.feed(&raw(&ulpdu));
        assert!(matches!(side.taken()[..], [Got::Failed { id: None, .. }]));
        assert_eq!(side.talk(), []);
    }
}

#[test]
fn f3_the_longest_frame_is_taken() {
    let mut side = peer();
    let data = vec![7; 65_535 - 18];
    let bytes = frame(SEND_1, &data);
    assert_eq!(bytes.len(), side.wire.facts().unwrap().largest_frame);
    side.feed(&bytes);
    assert_eq!(side.taken(), [Got::Send { data, solicited: false, invalidate: None }]);
}

#[test]
fn f4_nothing_of_a_frame_with_a_wrong_checksum_is_placed() {
    let whole = frame("c140 00012a07 0000000000001000", &[1; 64]);
    for at in 2..whole.len() {
        let mut side = peer();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        side.feed(&bytes);
        assert_eq!(side.violation.as_ref().unwrap().blame, Blame::Wire);
        refused(&mut side, (2, 0, 2));
    }
}

#[test]
fn f5_padding_need_not_be_zero() {
    let mut side = peer();
    let mut bytes = [&hex("0013"), &hex(SEND_1)[..], b"x", &[1, 2, 3]].concat();
    let crc = fpdu::crc(&bytes);
    bytes.extend_from_slice(&crc);
    side.feed(&bytes);
    assert_eq!(side.taken(), [Got::Send { data: b"x".into(), solicited: false, invalidate: None }]);
}

#[test]
fn f6_without_agreement_the_checksum_is_not_looked_at() {
    let mut side = peer_with(|config| Config { checksum: false, ..config });
    let mut bytes = frame(SEND_1, b"x");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(b"junk");
    side.feed(&bytes);
    assert_eq!(side.taken(), [Got::Send { data: b"x".into(), solicited: false, invalidate: None }]);
}

#[test]
fn f7_the_end_of_the_link_inside_a_frame_is_an_error() {
    let bytes = frame(SEND_1, b"xyz");
    for cut in 1..bytes.len() {
        let mut side = peer();
        side.feed(&bytes[..cut]);
        assert_eq!(side.taken(), []);
        assert!(side.wire.link_closed(side.now).is_err(), "cut at {cut}");
    }
    // Between the frames of one message too; between messages it is an orderly end.
    let mut side = peer();
    side.feed(&frame("0143 00000000 00000000 00000001 00000000", b"part"));
    assert!(side.wire.link_closed(side.now).is_err());
    let mut side = peer();
    side.feed(&bytes);
    assert_eq!(side.wire.link_closed(side.now), Ok(()));
}

#[test]
fn f8_a_byte_at_a_time() {
    let mut side = peer();
    for byte in frame(SEND_1, b"slowly") {
        assert_eq!(side.taken(), []);
        side.feed(&[byte]);
    }
    let data = b"slowly".to_vec();
    assert_eq!(side.taken(), [Got::Send { data, solicited: false, invalidate: None }]);
}

#[test]
fn f10_an_endless_frame_costs_nothing_here() {
    // The stream keeps no byte of an unfinished frame: the caller holds them, at most one frame.
    let mut side = peer();
    let bytes = frame(SEND_1, &[1; 60_000]);
    for _ in 0..1000 {
        let decoded = side.wire.decode(side.now, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((decoded.consumed, decoded.event), (0, None));
    }
}

// ---- DDP and RDMAP headers --------------------------------------------------------------------

const WRITE: &str = "c140 00012a07 0000000000001000";

fn with_byte(header: &str, at: usize, byte: u8) -> String {
    let mut bytes = hex(header);
    bytes[at] = byte;
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn h1_ddp_version() {
    for version in [0, 2, 3] {
        let mut side = peer();
        side.feed(&frame(&with_byte(WRITE, 0, 0xC0 | version), b"data"));
        refused(&mut side, (1, 1, 4));
        let mut side = peer();
        side.feed(&frame(&with_byte(SEND_1, 0, 0x40 | version), b"data"));
        refused(&mut side, (1, 2, 6));
    }
}

#[test]
fn h2_rdmap_version() {
    for version in [0, 2, 3] {
        let mut side = peer();
        side.feed(&frame(&with_byte(WRITE, 1, version << 6), b"data"));
        refused(&mut side, (0, 2, 5));
    }
}

#[test]
fn h3_unknown_opcodes() {
    for opcode in 8..16 {
        for header in [WRITE, SEND_1] {
            let mut side = peer();
            side.feed(&frame(&with_byte(header, 1, 0x40 | opcode), b"data"));
            refused(&mut side, (0, 2, 6));
        }
    }
    // With the extension, 15 is known, the others are not.
    for opcode in 8..15 {
        let mut side = Pair::transoms().passive;
        side.taken();
        side.feed(&frame(&with_byte(SEND_1, 1, 0x40 | opcode), b"data"));
        refused(&mut side, (0, 2, 6));
    }
}

#[test]
fn h4_the_tagged_bit_contradicts_the_opcode() {
    for opcode in [1, 3, 4, 5, 6, 7] {
        let mut side = peer();
        side.feed(&frame(&with_byte(WRITE, 1, 0x40 | opcode), &[0; 40]));
        refused(&mut side, (0, 2, 6));
    }
    for opcode in [0, 2] {
        let mut side = peer();
        side.feed(&frame(&with_byte(SEND_1, 1, 0x40 | opcode), &[0; 40]));
        refused(&mut side, (0, 2, 6));
    }
}

#[test]
fn h5_wrong_queues() {
    for queue in ["00000001", "00000002", "00000007", "ffffffff"] {
        let mut side = peer();
        side.feed(&frame(&format!("4143 00000000 {queue} 00000001 00000000"), b"data"));
        refused(&mut side, (1, 2, 1));
    }
    for queue in ["00000000", "00000007", "ffffffff"] {
        let mut side = peer();
        side.feed(&frame(&format!("4141 00000000 {queue} 00000002 00000000"), &[0; 28]));
        refused(&mut side, (1, 2, 1));
    }
    // Between Transoms: a queue the extension does not have.
    let mut side = Pair::transoms().passive;
    side.taken();
    side.feed(&frame("414f 00000000 00000007 00000000 00000000", b""));
    refused(&mut side, (1, 2, 1));
}

#[test]
fn h6_message_numbers() {
    for number in ["00000000", "00000002", "80000000", "ffffffff"] {
        let mut side = peer();
        side.feed(&frame(&format!("4143 00000000 00000000 {number} 00000000"), b"data"));
        refused(&mut side, (1, 2, 3));
        let mut side = peer();
        // 1 was the ready-to-receive frame; 2 would be right.
        let number = if number == "00000002" { "00000001" } else { number };
        side.feed(&frame(&format!("4141 00000000 00000001 {number} 00000000"), &[0; 28]));
        refused(&mut side, (1, 2, 3));
    }
    // The same number again.
    let mut side = peer();
    side.feed(&frame(SEND_1, b"data"));
    side.taken();
    side.feed(&frame(SEND_1, b"data"));
    refused(&mut side, (1, 2, 3));
}

#[test]
fn h8_message_offsets() {
    for offset in ["00000001", "80000001", "ffffffff"] {
        let mut side = peer();
        side.feed(&frame(&format!("4143 00000000 00000000 00000001 {offset}"), b""));
        refused(&mut side, (1, 2, 4));
        let mut side = peer();
        side.feed(&frame("0143 00000000 00000000 00000001 00000000", b"four"));
        side.feed(&frame(&format!("4143 00000000 00000000 00000001 {offset}"), b""));
        refused(&mut side, (1, 2, 4));
    }
}

#[test]
fn h9_offset_and_length_beyond_32_bits() {
    let mut side = peer();
    side.feed(&frame("4143 00000000 00000000 00000001 ffffffff", b"data"));
    refused(&mut side, (1, 2, 5));
}

/// Refuse the next Send, Write or Read.
fn refuse(side: &mut Side, class: RefusalClass) {
    side.refuse = Some((|_| true, class, ""));
}

#[test]
fn h10_a_send_without_receive() {
    let mut side = peer();
    refuse(&mut side, RefusalClass::NoReceive);
    side.feed(&frame(SEND_1, b"data"));
    assert_eq!(terminate_code(&side.talk()), Some((1, 2, 2)));
}

#[test]
fn h11_a_send_longer_than_its_receive() {
    let mut side = peer();
    side.feed(&frame("0143 00000000 00000000 00000001 00000000", b"fits"));
    refuse(&mut side, RefusalClass::TooLong);
    side.feed(&frame("4143 00000000 00000000 00000001 00000004", b"no more"));
    assert_eq!(side.taken(), []);
    assert_eq!(terminate_code(&side.talk()), Some((1, 2, 5)));
}

#[test]
fn h12_a_write_that_never_ends_must_go_on_where_it_was() {
    for (next, code) in [
        ("0140", (0, 2, 6)), // untagged
        ("8140 00012a07 0000000000001000", (1, 1, 1)),
        ("8140 00012a07 0000000000001005", (1, 1, 1)),
        ("8140 00012a08 0000000000001004", (1, 1, 0)),
    ] {
        let mut side = peer();
        side.feed(&frame("8140 00012a07 0000000000001000", b"four"));
        assert_eq!(side.violation, None);
        side.feed(&frame(next, &[1; 16]));
        refused(&mut side, code);
    }
    // 2^32 bytes are too many for any message; here, from what a Write announced.
    let mut side = Pair::transoms().passive;
    side.feed(&frame("414f 00012a07 00000005 00000000 00000005", &0x1000u64.to_be_bytes()));
    side.feed(&frame("8140 00012a07 0000000000001000", b"four"));
    side.taken();
    side.feed(&frame("8140 00012a07 0000000000001004", b"four"));
    refused(&mut side, (1, 1, 1));
}

#[test]
fn h13_empty_segments_that_are_not_the_last() {
    for header in ["8140 00012a07 0000000000001000", "0143 00000000 00000000 00000001 00000000"] {
        let mut side = peer();
        side.feed(&frame(header, b""));
        refused(&mut side, (0, 2, 0xFF));
    }
}

#[test]
fn h14_another_message_inside_an_unfinished_one() {
    let send = "0143 00000000 00000000 00000001 00000000";
    let write = "8140 00012a07 0000000000001000";
    let read = "4141 00000000 00000001 00000002 00000000";
    for (first, second, payload) in [
        (send, "4144 00000000 00000000 00000001 00000004", &b"data"[..]),
        (send, WRITE, b"data"),
        (send, read, &[0; 28]),
        (write, SEND_1, b"data"),
        (write, read, &[0; 28]),
    ] {
        let mut side = peer();
        side.feed(&frame(first, b"four"));
        assert_eq!(side.violation, None);
        side.feed(&frame(second, payload));
        refused(&mut side, (0, 2, 6));
    }
    // Not a Terminate: it may come at any frame boundary (iW 7.5).
    let mut side = peer();
    side.feed(&frame(send, b"four"));
    side.feed(&frame("4147 00000000 00000002 00000001 00000000", &[0, 0, 0, 0]));
    assert!(matches!(side.taken()[..], [Got::Failed { .. }]));
}

#[test]
fn h15_reserved_bits_are_ignored() {
    let mut side = peer();
    let mut header = hex(SEND_1);
    header[0] |= 0x3C;
    header[1] |= 0x30;
    header[2..6].copy_from_slice(&[0xff; 4]);
    side.feed(&raw(&[&header[..], b"x"].concat()));
    assert_eq!(side.taken(), [Got::Send { data: b"x".into(), solicited: false, invalidate: None }]);
}

#[test]
fn h16_terminates_are_parsed_within_bounds_and_never_answered() {
    let header = "4147 00000000 00000002 00000001 00000000";
    let payloads: [&[u8]; 5] = [
        b"",
        &[0x11, 1, 0xC0, 0],              // a header is claimed, none is there
        &[0x11, 1, 0xC0, 0, 0, 20, 0x41], // cut short
        &[0x01, 1, 0xE0, 0, 0, 46, 0x41, 0x41], // the Read Request too
        &[0xff; 4],
    ];
    for payload in payloads {
        let mut side = peer();
        side.feed(&frame(header, payload));
        assert!(matches!(side.taken()[..], [Got::Failed { id: None, .. }]));
        assert_eq!(side.talk(), []);
        // A second one is thrown away.
        side.feed(&frame(header, payload));
        assert_eq!(side.taken(), []);
    }
    for wrong in [
        "4147 00000000 00000001 00000001 00000000",
        "4147 00000000 00000002 00000002 00000000",
        "4147 00000000 00000002 00000001 00000001",
        "0147 00000000 00000002 00000001 00000000",
    ] {
        let mut side = peer();
        side.feed(&frame(wrong, &[0x20, 2, 0, 0]));
        let got = side.taken();
        assert!(
            matches!(&got[..], [Got::Failed { error, .. }] if error.class.is_none()),
            "{got:?}"
        );
        assert_eq!(side.talk(), []);
    }
}

fn read_request(number: u32, size: u32, source: u64) -> Vec<u8> {
    let mut payload = hex("00000500 0000000000001000");
    payload.extend_from_slice(&size.to_be_bytes());
    payload.extend_from_slice(&hex("00012a07"));
    payload.extend_from_slice(&source.to_be_bytes());
    frame(&format!("4141 00000000 00000001 {number:08x} 00000000"), &payload)
}

#[test]
fn h17_a_read_of_4_gib_is_one_question_about_its_whole_range() {
    let mut side = peer();
    side.feed(&read_request(2, u32::MAX, 0x2000));
    let asked = Got::Asked { slot: 2, token: 0x12a07, address: 0x2000, length: u32::MAX };
    assert_eq!(side.taken(), [asked]);
    // Its answer is made a frame at a time.
    let frame = side.wire.next_frame(side.now).unwrap();
    assert_eq!(frame.length as usize, side.wire.facts().unwrap().largest_payload);
}

#[test]
fn h18_read_requests_of_another_shape() {
    let payload = &read_request(2, 8, 0x2000)[20..48];
    let mut long = payload.to_vec();
    long.push(0);
    for (header, payload, code) in [
        ("0141 00000000 00000001 00000002 00000000", payload, (0, 2, 0xFF)),
        ("4141 00000000 00000001 00000002 00000004", payload, (1, 2, 4)),
        ("4141 00000000 00000001 00000002 00000000", &long[..], (0, 2, 0xFF)),
    ] {
        let mut side = peer();
        side.feed(&frame(header, payload));
        refused(&mut side, code);
    }
}

#[test]
fn h19_an_answer_to_no_read() {
    let mut side = peer();
    side.feed(&frame("c142 00000051 0000000000005000", b"data"));
    refused(&mut side, (0, 2, 6));
}

#[test]
fn h20_answers_are_checked_segment_by_segment() {
    let first = "8142 00000051 0000000000005000";
    // Against a read of 16 bytes to token 0x51 at 0x5000.
    for (frames, code) in [
        (vec![("c142 00000052 0000000000005000", 16)], (1, 1, 0)),
        (vec![("c142 00000051 0000000000005001", 16)], (1, 1, 1)),
        (vec![("c142 00000051 0000000000005000", 17)], (1, 1, 1)), // longer
        (vec![("c142 00000051 0000000000005000", 15)], (1, 1, 1)), // shorter, last
        (vec![("8142 00000051 0000000000005000", 16)], (1, 1, 1)), // all, but not last
        (vec![("c142 00000051 0000000000005000", 0)], (1, 1, 1)),
        (vec![(first, 8), ("c142 00000052 0000000000005008", 8)], (1, 1, 0)),
        (vec![(first, 8), ("c142 00000051 0000000000006008", 8)], (1, 1, 1)),
        (vec![(first, 8), ("c142 00000051 0000000000005000", 8)], (1, 1, 1)),
        (vec![(first, 8), ("c142 00000051 0000000000005008", 9)], (1, 1, 1)),
    ] {
        let mut side = peer();
        side.read(9, 0x2000, 16);
        side.talk();
        for (header, length) in frames {
            assert_eq!(side.violation, None);
            side.feed(&frame(header, &vec![1; length]));
        }
        refused(&mut side, code);
    }
}

#[test]
fn h21_an_answer_whose_sink_is_gone() {
    let mut side = peer();
    side.read(9, 0x2000, 16);
    side.talk();
    refuse(&mut side, RefusalClass::Token);
    side.feed(&frame("c142 00000051 0000000000005000", &[1; 16]));
    assert_eq!(side.taken(), []);
    assert_eq!(terminate_code(&side.talk()), Some((1, 1, 0)));
}

// ---- tokens: what the peer is told --------------------------------------------------------------

fn told(class: RefusalClass, bytes: &[u8]) -> (u8, u8, u8) {
    let mut side = peer();
    refuse(&mut side, class);
    side.feed(bytes);
    assert_eq!(side.taken(), []);
    terminate_code(&side.talk()).unwrap()
}

#[test]
fn g1_g2_g13_no_such_token() {
    assert_eq!(told(RefusalClass::Token, &frame(WRITE, b"data")), (1, 1, 0));
    assert_eq!(told(RefusalClass::Token, &read_request(2, 8, 0)), (0, 1, 0));
}

#[test]
fn g3_g4_token_of_another_domain_or_stream() {
    assert_eq!(told(RefusalClass::Scope, &frame(WRITE, b"data")), (1, 1, 2));
    assert_eq!(told(RefusalClass::Scope, &read_request(2, 8, 0)), (0, 1, 3));
}

#[test]
fn g5_right() {
    assert_eq!(told(RefusalClass::Right, &frame(WRITE, b"data")), (0, 1, 2));
    assert_eq!(told(RefusalClass::Right, &read_request(2, 8, 0)), (0, 1, 2));
}

#[test]
fn g6_a_range_that_wraps_around_is_refused_before_anyone_is_asked() {
    let mut side = peer();
    side.feed(&frame("c140 00012a07 fffffffffffffff8", &[1; 16]));
    refused(&mut side, (1, 1, 3));
    let mut side = peer();
    side.feed(&read_request(2, 16, u64::MAX - 7));
    refused(&mut side, (0, 1, 4));
    // The last bytes there are do not wrap.
    let mut side = peer();
    side.feed(&frame("c140 00012a07 fffffffffffffff8", &[1; 8]));
    assert_eq!(side.taken().len(), 1);
    // As the engine would say it.
    assert_eq!(told(RefusalClass::Wrap, &frame(WRITE, b"data")), (1, 1, 3));
    assert_eq!(told(RefusalClass::Wrap, &read_request(2, 8, 0)), (0, 1, 4));
}

#[test]
fn g7_bounds() {
    assert_eq!(told(RefusalClass::Bounds, &frame(WRITE, b"data")), (1, 1, 1));
    assert_eq!(told(RefusalClass::Bounds, &read_request(2, 8, 0)), (0, 1, 1));
}

#[test]
fn g8_nothing_is_asked_about_a_read_of_nothing() {
    let mut side = peer();
    side.feed(&read_request(2, 0, u64::MAX));
    assert_eq!(side.taken(), []);
    assert_eq!(side.talk(), frame("c142 00000500 0000000000001000", b""));
    // A Write of nothing is a message all the same.
    side.feed(&frame("c140 00000000 ffffffffffffffff", b""));
    assert_eq!(side.taken(), [Got::Write { token: 0, address: u64::MAX, data: vec![] }]);
}

#[test]
fn g10_invalidations() {
    let send = frame("4144 00012a07 00000000 00000001 00000000", b"data");
    assert_eq!(told(RefusalClass::NotInvalidatable, &send), (0, 2, 9));
    let invalidate = transom_wire::Operation::Invalidate;
    let code = |class| transom_iwarp::faults::Fault::of(invalidate, class).row().code;
    assert_eq!(code(RefusalClass::Token), (0, 2, 9));
    assert_eq!(code(RefusalClass::Scope), (0, 1, 9));
}

// ---- floods -----------------------------------------------------------------------------------

#[test]
fn q1_more_reads_than_agreed() {
    let mut side = peer();
    for number in 2..6 {
        side.feed(&read_request(number, 8, 0x2000));
    }
    assert_eq!(side.taken().len(), 4);
    side.feed(&read_request(6, 8, 0x2000));
    refused(&mut side, (1, 2, 2));
    // Reads of nothing count as well.
    let mut side = peer();
    for number in 2..6 {
        side.feed(&read_request(number, 0, 0));
    }
    side.feed(&read_request(6, 0, 0));
    refused(&mut side, (1, 2, 2));
}

#[test]
fn q2_answers_are_made_when_they_can_be_sent() {
    let mut side = peer();
    for number in 2..6 {
        side.feed(&read_request(number, u32::MAX, 0));
    }
    // Nothing is buffered: one frame per call, and memory is asked for each.
    let before = side.out.len();
    let frame = side.step().unwrap();
    assert!(side.out.len() - before <= fpdu::size(usize::from(frame.header_length) + 65_535));
    assert!(side.wire.has_output());
}

#[test]
fn q3_nothing_waits_for_a_peer_that_reads_nothing() {
    // Last words are ready at once, and few; how long they may take to leave is the engine's affair.
    let mut side = peer();
    side.feed(&[0, 0]);
    assert!(side.wire.next_frame(side.now).is_some());
    assert!(side.wire.next_frame(side.now).is_none());
    assert_eq!(side.wire.deadline(), None);
}

#[test]
fn q5_a_flood_of_empty_writes_is_legal_and_leaves_nothing_behind() {
    let mut side = peer();
    for _ in 0..10_000 {
        side.feed(&frame("c140 00000001 0000000000000000", b""));
    }
    assert_eq!(side.taken().len(), 10_000);
    assert!(!side.wire.has_output());
}

#[test]
fn ready_to_receive_frames_of_every_kind_and_none() {
    // iW 18 L5: siw sends a Write; hardware a Read; tolerated: any valid frame (iW 12.2).
    let config =
        |ready| Config { extension: false, preferred_ready: ready, ..Config::new(Role::Passive) };
    for (ready, first, got) in [
        (Ready::Write, frame("c140 00000001 0000000000000000", b""), vec![Got::Established]),
        (Ready::Read, read_request(1, 0, 0), vec![Got::Established]),
        (
            Ready::Read,
            frame(SEND_1, b"x"),
            vec![
                Got::Established,
                Got::Send { data: b"x".to_vec(), solicited: false, invalidate: None },
            ],
        ),
    ] {
        let mut side = Side::new(config(ready));
        side.feed(&request("5002 0004 8001 c001"));
        side.wire.accept(side.now, common::LIMITS, b"").unwrap();
        side.talk();
        side.taken();
        side.feed(&first);
        assert_eq!(side.taken(), got);
        assert_eq!(side.violation, None);
    }
}

#[test]
fn the_first_frame_is_checked_like_any_other() {
    let mut side = Side::new(Config::new(Role::Passive));
    side.feed(&request("5002 0004 8001 c001"));
    side.wire.accept(side.now, common::LIMITS, b"").unwrap();
    side.talk();
    side.taken();
    side.feed(&frame("c140 00000001 0000000000000000", b"")[..19]);
    assert_eq!(side.taken(), []);
    let mut bad = frame("c140 00000001 0000000000000000", b"");
    bad[5] ^= 1;
    side.input.clear();
    side.feed(&bad);
    assert_eq!(side.taken(), []);
    assert_eq!(terminate_code(&side.talk()), Some((2, 0, 2)));
}
