//! Start-up (S lines).

use super::*;

#[test]
fn s1_a_connection_without_bytes_times_out() {
    let mut side = passive();
    let limit = Config::new(Role::Passive).common.handshake_timeout;
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
    side.wait(Config::new(Role::Passive).common.handshake_timeout);
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
    let caps = Config::new(Role::Passive).common.read_caps;
    let Some(Got::Request { limits, .. }) = side.got.first() else { unreachable!() };
    assert_eq!(*limits, caps);
    let limits = ReadLimits { inbound: u32::MAX, outbound: u32::MAX };
    side.wire.accept(side.now, limits, b"").unwrap();
    assert_eq!(side.wire.facts().unwrap().limits, caps);
    // The inbound limit as sent, the outbound one with the slot for verdicts.
    assert_eq!(side.talk(), reply("5002 0004 0080 0081"));
}

#[test]
fn s12_a_request_without_a_ready_frame_gets_ours() {
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
    assert_eq!(side.violation.as_ref().unwrap().rule, "RFC 5044 7.1.2");
    closed_silently(side, Blame::Peer);
}
