//! Slots and data areas in which the peer has written what it likes.

use transom_process::ring::Slot;

use super::*;

/// Write a record to the slot at `at`, as if the ring were in its `lap`-th lap. Laps begin at 1.
fn forge(slots: &[Slot], at: usize, lap: u32, words: record::Words) {
    let mut producer = Producer::new(1, DATA);
    for turn in 0..lap {
        assert!(producer.publish(&slots[at..=at], words, Body::Inline([turn.into(); 4])));
        assert_eq!(producer.consumed(turn + 1), Ok(true));
    }
}

/// A record is one when it carries the lap that its reader is in, and no other.
#[test]
fn a_slot_of_another_lap_holds_nothing() {
    let words = write(7, 0x1000, 8, LAST).words();
    let fresh = || Vec::from_iter((0..4).map(|_| Slot::default()));
    let mut record = [0; SMALL];
    for lap in [0, 2, 3, 4] {
        let (slots, mut consumer) = (fresh(), Consumer::new(4, DATA));
        forge(&slots, 0, lap, words);
        assert!(!consumer.has_next(&slots), "{lap}");
        assert_eq!(consumer.take_small(&slots, &mut record), Taken::Nothing);
        assert_eq!(consumer.take(&slots), None);
    }
    // In its second lap, the first lap's records are old; those that lie ahead are not looked at.
    let (slots, mut consumer) = (fresh(), Consumer::new(4, DATA));
    for at in 0..4 {
        forge(&slots, at, 1, words);
    }
    for _ in 0..4 {
        assert!(consumer.take(&slots).unwrap().is_ok());
    }
    forge(&slots, 1, 2, words);
    assert_eq!(consumer.take(&slots), None);
    forge(&slots, 0, 2, words);
    for _ in 0..2 {
        assert_eq!(consumer.take_small(&slots, &mut record), Taken::Inline);
        assert_eq!(record[HEADER..], record::to_bytes([1; 4]));
    }
    assert_eq!(consumer.take(&slots), None);
}

/// A slot that lies is not passed over.
#[test]
fn a_ring_violation_is_reported_again() {
    let slots = Vec::from_iter((0..4).map(|_| Slot::default()));
    let mut consumer = Consumer::new(4, DATA);
    forge(&slots, 0, 1, Header::new(RecordKind::Ack).words());
    for _ in 0..3 {
        assert_eq!(consumer.take(&slots), Some(Err(RingViolation::Record)));
        assert!(consumer.has_next(&slots));
    }
}

/// A payload of 32 bytes at most lies in its slot; longer ones lie in the data area, one behind the other.
#[test]
fn a_payload_lies_in_its_slot_if_it_fits() {
    let mut record = [0; SMALL];
    for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, LARGEST_PAYLOAD] {
        let slots = Vec::from_iter((0..4).map(|_| Slot::default()));
        forge(&slots, 0, 1, write(7, 0x1000, length, LAST).words());
        let fits = length <= INLINE;
        let mut consumer = Consumer::new(4, DATA);
        let taken = if fits { Taken::Inline } else { Taken::At(0, length) };
        assert_eq!(consumer.take_small(&slots, &mut record), taken);
        assert_eq!(consumer.take_small(&slots, &mut record), Taken::Nothing);
        let body = Consumer::new(4, DATA).take(&slots).unwrap().unwrap().body;
        assert_eq!(matches!(body, Found::Inline(_)), fits);
        assert!(fits || matches!(body, Found::At(0, _)));
    }
}

/// Every payload that a peer can announce lies in the data area, wherever the last one has ended.
#[test]
fn no_payload_reaches_behind_the_data_area() {
    for data in [DATA, 2 * LARGEST_PAYLOAD, 3 * LARGEST_PAYLOAD] {
        let slots = Vec::from_iter((0..4).map(|_| Slot::default()));
        let (mut writer, mut reader) = (Producer::new(4, data), Consumer::new(4, data));
        let mut records = 0;
        for length in [33, 64, 65, 100, 4096, 65_471, 65_472, 65_473, 65_535, 65_536]
            .into_iter()
            .cycle()
            .take(1000)
        {
            let place = writer.place(length).unwrap();
            let header = write(7, 0, length, LAST);
            assert!(writer.publish(&slots, header.words(), Body::Placed(length, 0)));
            let Found::At(offset, _) = reader.take(&slots).unwrap().unwrap().body else { panic!() };
            assert_eq!(offset, place);
            assert!(offset + length <= data && offset.is_multiple_of(64), "{length} at {offset}");
            records += 1;
            assert_eq!(writer.consumed(records), Ok(true));
        }
    }
}

/// A data area takes what fits, to the last byte, and not one cache line more. What was read makes room
/// for as much again.
#[test]
fn a_data_area_is_never_over_filled() {
    let line = 64;
    for data in [2 * LARGEST_PAYLOAD, DATA] {
        let slots = Vec::from_iter((0..64).map(|_| Slot::default()));
        let mut writer = Producer::new(64, data);
        let publish = |writer: &mut Producer, length| {
            let words = write(7, 0, length, LAST).words();
            writer.publish(&slots, words, Body::Placed(length, 0))
        };
        // All but one cache line.
        let whole = data / LARGEST_PAYLOAD;
        for _ in 1..whole {
            assert!(publish(&mut writer, LARGEST_PAYLOAD));
        }
        assert!(publish(&mut writer, LARGEST_PAYLOAD - line));
        for too_long in [line + 1, 2 * line, LARGEST_PAYLOAD] {
            assert!(!writer.has_room(too_long), "{too_long}");
            assert_eq!(writer.place(too_long), None);
            assert!(!publish(&mut writer, too_long));
        }
        assert_eq!(writer.place(line), Some(data - line));
        assert!(writer.has_room(line) && publish(&mut writer, line));
        // Full: nothing but what fits a slot.
        assert!(!writer.has_room(INLINE + 1) && !publish(&mut writer, INLINE + 1));
        assert!(writer.has_room(INLINE) && !writer.is_all_read());
        assert_eq!(writer.placed(), data as u64);
        // The first one was read: as much fits again, at the beginning.
        assert_eq!(writer.consumed(1), Ok(true));
        assert_eq!(writer.place(LARGEST_PAYLOAD + 1), None);
        assert_eq!(writer.place(LARGEST_PAYLOAD), Some(0));
        assert!(publish(&mut writer, LARGEST_PAYLOAD));
        assert!(!writer.has_room(INLINE + 1));
    }
}

/// A payload that does not fit behind the last one goes to the beginning, and the rest counts as
/// used.
#[test]
fn a_payload_is_never_split() {
    let data = 2 * LARGEST_PAYLOAD;
    let slots = Vec::from_iter((0..8).map(|_| Slot::default()));
    let (mut writer, mut reader) = (Producer::new(8, data), Consumer::new(8, data));
    let publish = |writer: &mut Producer, length| {
        assert!(writer.publish(&slots, write(7, 0, length, LAST).words(), Body::Placed(length, 0)));
    };
    publish(&mut writer, LARGEST_PAYLOAD - 63);
    assert_eq!(writer.place(LARGEST_PAYLOAD), Some(LARGEST_PAYLOAD), "a part of a line is a line");
    publish(&mut writer, 64);
    // The rest is 64 bytes too short, and the beginning has not been read.
    assert_eq!(writer.place(LARGEST_PAYLOAD), None);
    assert_eq!(writer.place(LARGEST_PAYLOAD - 64), Some(LARGEST_PAYLOAD + 64));
    assert_eq!(writer.consumed(1), Ok(true));
    assert_eq!(writer.place(LARGEST_PAYLOAD), Some(0));
    publish(&mut writer, LARGEST_PAYLOAD);
    assert_eq!(writer.placed(), (data + LARGEST_PAYLOAD) as u64, "the rest was skipped");
    assert_eq!(writer.place(64), None, "nothing is free between them");
    for at in [0, LARGEST_PAYLOAD, 0] {
        assert_eq!(reader.take(&slots).unwrap().unwrap().body, Found::At(at, 0));
    }
}

/// Numbers are modulo 2^32, so a number is older or younger by which way round is shorter.
#[test]
fn only_what_was_written_can_have_been_read() {
    let slots = Vec::from_iter((0..8).map(|_| Slot::default()));
    let words = write(7, 0, 8, LAST).words();
    let mut writer = Producer::new(8, DATA);
    assert_eq!(writer.consumed(1), Err(RingViolation::Acknowledged), "of an empty ring");
    for _ in 0..5 {
        assert!(writer.publish(&slots, words, Body::Inline([0; 4])));
    }
    for lie in [6, 7, 0x7FFF_FFFF] {
        assert_eq!(writer.consumed(lie), Err(RingViolation::Acknowledged), "{lie}");
        assert_eq!((writer.all_consumed(), writer.free_slots()), (0, 3), "and changes nothing");
    }
    for older in [0, 0x8000_0000, u32::MAX] {
        assert_eq!(writer.consumed(older), Ok(false));
    }
    assert_eq!(writer.consumed(3), Ok(true));
    assert_eq!((writer.all_consumed(), writer.free_slots()), (3, 6));
    for older in [0, 2, 3, 0x8000_0003] {
        assert_eq!(writer.consumed(older), Ok(false));
    }
    assert_eq!(writer.consumed(6), Err(RingViolation::Acknowledged));
    assert_eq!(writer.consumed(5), Ok(true));
    assert_eq!((writer.all_consumed(), writer.free_slots()), (5, 8));
}

/// Room is as many slots as there are.
#[test]
fn a_ring_has_as_many_slots_as_it_says() {
    let slots = Vec::from_iter((0..8).map(|_| Slot::default()));
    let words = write(7, 0, 8, LAST).words();
    let mut writer = Producer::new(8, DATA);
    assert_eq!(writer.slots(), 8);
    for free in (1..=8).rev() {
        assert_eq!((writer.free_slots(), writer.has_room(0)), (free, true));
        let ahead = writer.slot_ahead(&slots, 9).unwrap();
        assert!(std::ptr::eq(ahead, &slots[(8 - free + 9) % 8]));
        assert!(writer.publish(&slots, words, Body::Inline([0; 4])));
    }
    assert_eq!((writer.free_slots(), writer.has_room(0)), (0, false));
    assert!(!writer.publish(&slots, words, Body::Inline([0; 4])));
    assert_eq!(writer.free_slots(), 0);
}
