//! Reads of the peer, and its answers to ours.

use super::*;

const NOBODY: &str = "the answer to a read nobody asked for";

#[test]
fn as_many_reads_at_a_time_as_were_agreed() {
    for agreed in [0, 1, 4] {
        // Reads of nothing count as well.
        for length in [8, 0] {
            let mut side = open_with(ReadLimits { inbound: agreed, outbound: 4 });
            for _ in 0..agreed {
                side.record(read(7, 0x1000, length));
            }
            let asked = if length > 0 { agreed as usize } else { 0 };
            assert_eq!(side.taken().len(), asked);
            side.record(read(7, 0x1000, length));
            let detail = format!("more than the {agreed} reads and atomics at a time agreed");
            broken(&mut side, "reads", &detail);
        }
    }
}

#[test]
fn an_answered_read_makes_room_for_another() {
    let mut side = open();
    for number in 2..6 {
        side.record(read(7, 0x1000, 8));
        let got = Got::Asked { slot: number, token: 7, address: 0x1000, length: 8 };
        assert_eq!(side.taken(), [got]);
    }
    let answers = side.said();
    assert_eq!(answers, vec![(answer(8, LAST), pattern(8)); 4]);
    for _ in 0..4 {
        side.record(read(7, 0x1000, 8));
    }
    assert_eq!((side.taken().len(), &side.violation), (4, &None));
    side.record(read(7, 0x1000, 8));
    broken(&mut side, "reads", "more than the 4 reads and atomics at a time agreed");
}

/// A read that is being answered still counts.
#[test]
fn a_read_counts_until_its_last_byte_has_been_sent() {
    let mut side = open_with(ReadLimits { inbound: 1, outbound: 4 });
    side.record(read(7, 0x1000, LARGEST_PAYLOAD as u32 + 1));
    assert!(side.wire.next_frame(side.now).is_some());
    side.taken();
    side.record(read(7, 0x1000, 8));
    broken(&mut side, "reads", "more than the 1 reads and atomics at a time agreed");
}

#[test]
fn an_answer_of_several_records_goes_on_where_it_was() {
    let mut side = open();
    let length = 2 * LARGEST_PAYLOAD + 5;
    side.record(read(7, 0x1000, length as u32));
    let mut addresses = Vec::new();
    while let Some(frame) = side.wire.next_frame(side.now) {
        let transom_wire::Payload::Memory { slot, token, address } = frame.payload else {
            panic!("{frame:?}")
        };
        assert_eq!((slot.0, token), (2, 7));
        addresses.push((address, frame.length, frame.last));
    }
    let most = LARGEST_PAYLOAD as u32;
    let next = 0x1000 + u64::from(most);
    assert_eq!(
        addresses,
        [(0x1000, most, false), (next, most, false), (next + u64::from(most), 5, true)]
    );
}

#[test]
fn an_answer_has_as_many_bytes_as_were_asked_for() {
    // All of it, in one piece or in several.
    for pieces in [&[100][..], &[99, 1], &[1, 33, 66]] {
        let mut side = open();
        side.post(our_read(100));
        let mut offset = 0;
        for (number, length) in pieces.iter().enumerate() {
            let last = number + 1 == pieces.len();
            side.record(answer(*length, if last { LAST } else { 0 }));
            let data = pattern(*length);
            assert_eq!(side.taken(), [Got::Answer { id: 0, offset, data, last }]);
            offset += *length as u32;
        }
    }
    let mut side = open();
    side.post(our_read(0));
    side.record(answer(0, LAST));
    assert_eq!(side.taken(), [Got::Answer { id: 0, offset: 0, data: vec![], last: true }]);
}

#[test]
fn an_answer_that_is_longer_or_shorter_is_refused() {
    // Bytes that have come of 100; bytes that come then, with this flag.
    for (before, length, flags) in [
        (0, 101, LAST),
        (0, 101, 0),
        (0, 1000, LAST),
        (0, 100, 0),
        (0, 99, LAST),
        (0, 0, LAST),
        (0, 0, 0),
        (99, 2, LAST),
        (99, 2, 0),
        (99, 1, 0),
        (99, 0, 0),
        (99, 0, LAST),
    ] {
        let mut side = open();
        side.post(our_read(100));
        side.said();
        if before > 0 {
            side.record(answer(before, 0));
        }
        side.taken();
        side.record(answer(length, flags));
        broken(&mut side, "reads", &format!("an answer of {length} bytes of {}", 100 - before));
    }
    for (length, flags) in [(0, 0), (1, LAST), (1, 0)] {
        let mut side = open();
        side.post(our_read(0));
        side.said();
        side.record(answer(length, flags));
        broken(&mut side, "reads", &format!("an answer of {length} bytes of 0"));
    }
}

#[test]
fn an_answer_without_a_request_is_a_violation() {
    let mut side = open();
    side.record(answer(8, LAST));
    broken(&mut side, "reads", NOBODY);
    // Nor twice.
    let mut side = open();
    side.post(our_read(8));
    side.said();
    side.record(answer(8, LAST));
    side.taken();
    side.record(answer(8, LAST));
    broken(&mut side, "reads", NOBODY);
    // Nor before it was asked: the read has begun, and its record has not been written.
    let mut side = open();
    assert_eq!(side.begin(our_read(8)), Begin::Started);
    side.record(answer(8, LAST));
    broken(&mut side, "reads", NOBODY);
}

/// Reads are answered in the order in which they were asked.
#[test]
fn an_answer_is_to_the_oldest_read() {
    let mut side = open();
    side.post(our_read(8));
    side.post(our_read(100));
    side.said();
    side.record(answer(8, LAST));
    side.taken();
    side.record(answer(8, LAST));
    broken(&mut side, "reads", "an answer of 8 bytes of 100");
}

/// A side asks for no more than was agreed, and goes on when one was answered.
#[test]
fn reads_of_ours_wait_for_their_turn() {
    let mut side = open();
    for _ in 0..4 {
        side.post(our_read(8));
    }
    assert_eq!(side.begin(our_read(8)), Begin::Wait(Waiting::ReadSlot));
    side.said();
    side.record(answer(7, 0));
    assert_eq!(side.taken().len(), 1, "an answer that goes on makes no room");
    side.record(answer(1, LAST));
    let got = side.taken();
    assert!(got.len() == 2 && got.contains(&Got::Resume), "{got:?}");
    side.post(our_read(8));
    assert_eq!(side.begin(our_read(8)), Begin::Wait(Waiting::ReadSlot));
}
