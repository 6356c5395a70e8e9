//! DDP and RDMAP headers (H lines).

use super::*;

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
    // With the extension, atomics (10, 11) and 15 are known, the others are not.
    for opcode in [8, 9, 12, 13, 14] {
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
    side.feed(&frame("414f 00000000 00000009 00000000 00000000", b""));
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
    // A number that was used before.
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
        assert_eq!(side.talk(), b"");
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
        assert_eq!(side.talk(), b"");
    }
}

#[test]
fn h17_a_read_of_4_gib_is_one_question_about_its_whole_range() {
    let mut side = peer();
    side.feed(&read_request(2, u32::MAX, 0x2000));
    let asked = Got::Asked { slot: 2, token: 0x12a07, address: 0x2000, length: u32::MAX };
    assert_eq!(side.taken(), [asked]);
    // The answer is made a frame at a time.
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

/// A Read of no bytes that asks for a verdict is answered by siw with as many bytes as it has sent
/// before. Bytes like these belong to nothing: none comes out, and the Write is done. Answers to
/// the program's own Reads stay what they were asked for (iW H20).
#[test]
fn h20_bytes_that_answer_a_verdict_go_nowhere() {
    for pieces in [
        vec![("c142 00000000 0000000000000000", 16)],
        vec![("8142 00000000 0000000000000000", 16), ("c142 00000000 0000000000000010", 8)],
    ] {
        let mut side = peer();
        side.write(9, 0, b"data", true);
        side.talk();
        for (header, length) in pieces {
            side.feed(&frame(header, &vec![0xEE; length]));
        }
        assert_eq!(side.violation, None);
        assert_eq!(side.taken(), [Got::Done(0)]);
        side.read(9, 0, 0);
        side.talk();
        side.feed(&frame("c142 00000051 0000000000005000", &[0xEE]));
        refused(&mut side, (1, 1, 1));
    }
}
