//! FPDUs (F lines).

use super::*;

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
        assert_eq!(side.talk(), b"");
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

/// Zeros stand where no checksum was agreed, and are as wrong as any others where one was.
#[test]
fn f4_a_checksum_of_zeros_is_a_wrong_one() {
    for payload in [&b""[..], b"data", &[0; 64]] {
        let mut bytes = frame(WRITE, payload);
        let end = bytes.len();
        assert_ne!(bytes[end - fpdu::CRC..], [0; fpdu::CRC]);
        bytes[end - fpdu::CRC..].fill(0);
        assert_eq!(fpdu::parse(&bytes, true), Err(fpdu::Broken::Crc));
        assert!(matches!(fpdu::parse(&bytes, false), Ok(Some(_))));
        let mut side = peer();
        side.feed(&bytes);
        assert_eq!(side.violation.as_ref().unwrap().blame, Blame::Wire);
        refused(&mut side, (2, 0, 2));
    }
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
        assert!(side.wire.link_closed(side.now, true).is_err(), "cut at {cut}");
    }
    // Between the frames of one message too; between messages it is an orderly end.
    let mut side = peer();
    side.feed(&frame("0143 00000000 00000000 00000001 00000000", b"part"));
    assert!(side.wire.link_closed(side.now, true).is_err());
    let mut side = peer();
    side.feed(&bytes);
    assert_eq!(side.wire.link_closed(side.now, true), Ok(()));
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
