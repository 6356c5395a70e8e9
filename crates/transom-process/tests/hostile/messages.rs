//! Order, contiguity and length of the peer's Writes and Sends.

use transom_process::record::{ELSEWHERE, INVALIDATE, SOLICITED};

use super::*;

/// A side in the middle of an announced Write of 100 bytes to token 7 at 0x1000: 40 have come.
fn inside_a_write() -> Side {
    let mut side = open();
    side.record(announce(7, 0x1000, 100));
    side.record(write(7, 0x1000, 40, 0));
    let announced = Got::Announced { token: 7, address: 0x1000, length: 100 };
    assert_eq!(side.taken(), [announced, wrote(7, 0x1000, 40, false)]);
    side
}

/// A side in the middle of a Send: 40 bytes have come. There is another receive.
fn inside_a_send() -> Side {
    let mut side = open();
    side.grant(2, false);
    side.record(send(40, 0));
    assert_eq!(side.taken(), [sent(0, 40, false)]);
    side
}

/// A side in the middle of the answer to a read of 100 bytes: 40 have come.
fn inside_an_answer() -> Side {
    let mut side = open();
    side.post(our_read(100));
    side.said();
    side.record(answer(40, 0));
    assert_eq!(side.taken(), [Got::Answer { id: 0, offset: 0, data: pattern(40), last: false }]);
    side
}

const IN_WRITE: &str = "Write { token: 7, next: 4136, left: 60, immediate: None }";
const IN_SEND: &str = "Send { flags: 0, address: 0, next: 40 }";

/// The messages that the peer may be in the middle of, with names.
fn unfinished() -> [(Side, &'static str); 3] {
    [(inside_a_write(), IN_WRITE), (inside_a_send(), IN_SEND), (inside_an_answer(), "Answer")]
}

#[test]
fn a_write_of_one_record_needs_no_announcement() {
    let mut side = open();
    for length in [0, 1, INLINE, INLINE + 1, LARGEST_PAYLOAD] {
        side.record(write(7, 0x1000, length, LAST));
        assert_eq!(side.taken(), [wrote(7, 0x1000, length, true)]);
    }
    assert_eq!(side.acknowledged(), side.records);
}

#[test]
fn a_write_of_several_records_needs_one() {
    for length in [0, 8, 100] {
        let mut side = open();
        side.record(write(7, 0x1000, length, 0));
        broken(&mut side, "messages", "a Write of several records, not announced");
    }
}

#[test]
fn an_announced_write_comes_in_pieces_one_behind_the_other() {
    let mut side = inside_a_write();
    side.record(write(7, 0x1028, 59, 0));
    side.record(write(7, 0x1063, 1, LAST));
    assert_eq!(side.taken(), [wrote(7, 0x1028, 59, false), wrote(7, 0x1063, 1, true)]);
    // The next message needs an announcement of its own.
    side.record(write(7, 0x1064, 1, 0));
    broken(&mut side, "messages", "a Write of several records, not announced");
}

#[test]
fn a_piece_goes_where_the_announcement_says() {
    for (token, address, length, flags) in [
        // Elsewhere, by one byte either way and by far; through another token.
        (7, 0x1027, 20, 0),
        (7, 0x1029, 20, 0),
        (7, 0x1000, 20, 0),
        (7, 0, 20, 0),
        (6, 0x1028, 20, 0),
        (8, 0x1028, 60, LAST),
        // Longer than announced, by one byte and by many.
        (7, 0x1028, 61, LAST),
        (7, 0x1028, 61, 0),
        (7, 0x1028, 1000, LAST),
        // The last one without the flag; the flag too soon.
        (7, 0x1028, 60, 0),
        (7, 0x1028, 59, LAST),
        (7, 0x1028, 8, LAST),
        // None of its bytes.
        (7, 0x1028, 0, 0),
        (7, 0x1028, 0, LAST),
    ] {
        let mut side = inside_a_write();
        side.record(write(token, address, length, flags));
        let detail = format!("{length} bytes to {token:#x} at {address:#x} in {IN_WRITE}");
        broken(&mut side, "messages", &detail);
    }
}

#[test]
fn the_first_piece_goes_where_the_announcement_says() {
    for (token, address, length) in [(7, 0x1001, 40), (8, 0x1000, 40), (7, 0x1000, 101)] {
        let mut side = open();
        side.record(announce(7, 0x1000, 100));
        side.taken();
        side.record(write(token, address, length, 0));
        let begun = "Write { token: 7, next: 4096, left: 100, immediate: None }";
        let detail = format!("{length} bytes to {token:#x} at {address:#x} in {begun}");
        broken(&mut side, "messages", &detail);
    }
}

/// Whether the range may be written to is the owner's to say (design rule 1), wherever it ends.
#[test]
fn an_announced_range_may_wrap_around_as_far_as_the_wire_is_concerned() {
    let mut side = open();
    let from = u64::MAX - 9;
    side.record(announce(7, from, u32::MAX));
    side.record(write(7, from, 20, 0));
    side.record(write(7, 10, 20, 0));
    let announced = Got::Announced { token: 7, address: from, length: u32::MAX.into() };
    let got = [announced, wrote(7, from, 20, false), wrote(7, 10, 20, false)];
    assert_eq!(side.taken(), got);
}

#[test]
fn an_announcement_announces_something() {
    let mut side = open();
    side.record(announce(7, 0x1000, 0));
    broken(&mut side, "messages", "an announced Write of nothing");
    let mut side = open();
    side.record(announce(7, 0x1000, 1));
    side.record(write(7, 0x1000, 1, LAST));
    let announced = Got::Announced { token: 7, address: 0x1000, length: 1 };
    assert_eq!(side.taken(), [announced, wrote(7, 0x1000, 1, true)]);
}

#[test]
fn no_announcement_inside_an_unfinished_message() {
    for (mut side, inside) in unfinished() {
        side.record(announce(7, 0x1028, 60));
        let detail = format!("an announcement inside an unfinished {inside}");
        broken(&mut side, "messages", &detail);
    }
}

#[test]
fn no_write_inside_an_unfinished_send_or_answer() {
    // A small one, which has a way of its own, and one that lies in the data area.
    for length in [8, 100] {
        for (mut side, inside) in [(inside_a_send(), IN_SEND), (inside_an_answer(), "Answer")] {
            side.record(write(7, 0x1000, length, LAST));
            let detail = format!("{length} bytes to 0x7 at 0x1000 in {inside}");
            broken(&mut side, "messages", &detail);
        }
    }
}

#[test]
fn no_send_inside_an_unfinished_write_or_answer() {
    for (mut side, inside) in [(inside_a_write(), IN_WRITE), (inside_an_answer(), "Answer")] {
        side.grant(2, false);
        side.record(send(8, LAST));
        broken(&mut side, "messages", &format!("a Send inside {inside}"));
    }
}

#[test]
fn no_read_inside_an_unfinished_message() {
    for length in [0, 8] {
        for (mut side, inside) in unfinished() {
            side.record(read(7, 0x1000, length));
            broken(&mut side, "messages", &format!("a read inside an unfinished {inside}"));
        }
    }
}

#[test]
fn no_answer_inside_an_unfinished_write_or_send() {
    for (mut side, inside) in [(inside_a_write(), IN_WRITE), (inside_a_send(), IN_SEND)] {
        side.post(our_read(8));
        side.said();
        side.record(answer(8, LAST));
        let detail = format!("the answer to a read inside an unfinished {inside}");
        broken(&mut side, "messages", &detail);
    }
}

/// Control records of the peer may come at any time.
#[test]
fn a_refusal_inside_an_unfinished_message_is_taken() {
    for (mut side, _) in unfinished() {
        side.record(Header { address: u64::MAX, ..Header::new(RecordKind::Refuse) });
        assert!(matches!(side.taken()[..], [Got::Failed { id: None, .. }]));
        assert_eq!(side.said(), []);
        ended(&mut side);
    }
}

#[test]
fn the_link_does_not_end_inside_a_message() {
    for (mut side, _) in unfinished() {
        let violation = side.wire.link_closed(side.now, false).unwrap_err();
        assert_eq!(violation.blame, Blame::Peer);
        assert_eq!(violation.detail, "the link ended in the middle of a message");
        ended(&mut side);
    }
    // An announcement alone is one that has begun; behind a message there is nothing.
    let mut side = open();
    side.record(announce(7, 0x1000, 100));
    assert!(side.wire.link_closed(side.now, false).is_err());
    let mut side = inside_a_write();
    side.record(write(7, 0x1028, 60, LAST));
    assert_eq!(side.wire.link_closed(side.now, false), Ok(()));
    assert_eq!(side.violation, None);
}

#[test]
fn a_send_of_several_records_is_one_message() {
    let mut side = inside_a_send();
    side.record(send(100, 0));
    side.record(send(0, LAST));
    assert_eq!(side.taken(), [sent(40, 100, false), sent(140, 0, true)]);
    side.record(send(8, LAST));
    assert_eq!(side.taken(), [sent(0, 8, true)], "a second one, with the second receive");
}

#[test]
fn a_send_that_invalidates_or_is_solicited_says_so_in_each_record() {
    let first = Header { address: 0x55, ..send(40, SOLICITED | INVALIDATE) };
    let begun = format!("Send {{ flags: {}, address: 85, next: 40 }}", SOLICITED | INVALIDATE);
    let start = || {
        let mut side = open();
        side.grant(1, false);
        side.record(first);
        side.taken();
        side
    };
    for (flags, address) in [
        (LAST | INVALIDATE, 0x55),
        (LAST | SOLICITED, 0x55),
        (LAST, 0x55),
        (LAST | SOLICITED | INVALIDATE, 0x56),
    ] {
        let mut side = start();
        side.record(Header { flags, address, ..send(40, 0) });
        broken(&mut side, "messages", &format!("a Send inside {begun}"));
    }
    let mut side = start();
    side.record(Header { flags: LAST | SOLICITED | INVALIDATE, ..first });
    let got = |offset, last| Got::Send {
        offset,
        data: pattern(40),
        last,
        solicited: true,
        invalidate: Some(0x55),
    };
    assert_eq!(side.taken(), [got(40, true)]);
    // Each flag for itself; without the flag the address means nothing.
    for flags in [0, SOLICITED, INVALIDATE] {
        let mut side = open();
        side.grant(1, false);
        side.record(Header { address: 0x55, ..send(40, LAST | flags) });
        let (solicited, invalidate) = (flags == SOLICITED, (flags == INVALIDATE).then_some(0x55));
        let data = pattern(40);
        assert_eq!(
            side.taken(),
            [Got::Send { offset: 0, data, last: true, solicited, invalidate }]
        );
    }
}

/// Token 0 names nothing: neither does a value that does not fit a token.
#[test]
fn an_invalidation_names_a_token_of_32_bits() {
    for (address, fits) in [(0xFFFF_FFFF, true), (0x1_0000_0000, false), (u64::MAX, false)] {
        let mut side = open();
        side.grant(1, false);
        side.record(Header { address, ..send(0, LAST | INVALIDATE) });
        if fits {
            let (data, invalidate) = (vec![], Some(0xFFFF_FFFF));
            let got = Got::Send { offset: 0, data, last: true, solicited: false, invalidate };
            assert_eq!(side.taken(), [got]);
        } else {
            broken(&mut side, "messages", "a value of more than four bytes");
        }
    }
}

#[test]
fn a_send_that_makes_no_progress_is_refused() {
    let mut side = open();
    side.grant(1, false);
    side.record(send(0, 0));
    broken(&mut side, "messages", "a Send that never ends");
    let mut side = inside_a_send();
    side.record(send(0, 0));
    broken(&mut side, "messages", "a Send that never ends");
}

/// Lengths of messages have 32 bits. The payloads are named, not copied.
#[test]
fn a_send_has_no_more_bytes_than_a_length_can_say() {
    let named = |length: usize, flags| {
        let header = send(length, flags | ELSEWHERE);
        [&record::to_bytes(header.words())[..], &common::BASE.to_ne_bytes()].concat()
    };
    let filled = |last: usize| {
        let mut side = open();
        side.grant(1, false);
        let piece = named(LARGEST_PAYLOAD, 0);
        for _ in 0..65_535 {
            let decoded = side.wire.decode(side.now, &piece).unwrap();
            assert!(decoded.event.is_some() && decoded.consumed == piece.len());
        }
        side.records += 65_536;
        assert_eq!(side.acknowledged(), side.records - 1);
        (side.hear(&named(last, LAST)), side)
    };
    let (_, mut side) = filled(LARGEST_PAYLOAD - 1);
    let [Got::Send { offset, data, last: true, .. }] = &side.taken()[..] else { panic!() };
    assert_eq!(u64::from(*offset) + data.len() as u64, u64::from(u32::MAX));
    let (_, mut side) = filled(LARGEST_PAYLOAD);
    broken(&mut side, "messages", "a Send that never ends");
}
