//! Floods.

use super::*;

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

/// Only the frame that says ready may be a Read where none are served (iW 2.2); the next is one too
/// many.
#[test]
fn q1_a_read_behind_the_ready_frame_where_none_are_served() {
    let none = ReadLimits { inbound: 0, outbound: 0 };
    let write = frame("c140 00000001 0000000000000000", b"");
    for (first, number) in [(read_request(1, 0, 0), 2), (write, 1)] {
        let plain = Config { extension: false, least_reads: 0, ..Config::new(Role::Passive) };
        let mut side = Side::new(Config { preferred_ready: Ready::Write, ..plain });
        side.feed(&request("5002 0004 8000 8000"));
        side.wire.accept(side.now, none, b"").unwrap();
        side.talk();
        side.taken();
        side.feed(&first);
        assert_eq!((side.taken(), &side.violation), (vec![Got::Established], &None));
        side.talk();
        side.feed(&frame(WRITE, b"x"));
        assert_eq!(side.taken().len(), 1);
        side.feed(&read_request(number, 8, 0x2000));
        refused(&mut side, (1, 2, 2));
    }
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
    // The Terminate is ready at once, and short; how long it may take to leave is the engine's
    // affair.
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
    // iW L5: siw sends a Write; hardware a Read; tolerated: any valid frame (iW 12.2).
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
