//! The rings one after the other: what fits, what wraps, and what a liar can write.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::VecDeque;

use proptest::prelude::*;
use transom_process::record::{
    ELSEWHERE, HEADER, Header, LARGEST_PAYLOAD, LAST, LENT, RecordKind, SOLICITED, to_bytes,
    to_words,
};
use transom_process::ring::{
    Body, Consumer, DATA, Found, INLINE, Producer, RingViolation, SMALL, Slot, Taken, Traffic,
};

fn slots(count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::default()).collect()
}

fn header(number: u64, length: usize) -> Header {
    Header { address: number, length: length as u32, ..Header::new(RecordKind::Write) }
}

fn body(producer: &Producer, length: usize) -> (Body, Option<usize>) {
    if length <= INLINE {
        (Body::Inline([length as u64; 4]), None)
    } else {
        (Body::Placed(length, 0), producer.place(length))
    }
}

#[test]
fn the_layout_is_what_both_sides_were_built_with() {
    use std::mem::{align_of, offset_of, size_of};
    use transom_process::ring::{Shared, Side};
    assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
    assert_eq!(size_of::<Side>(), 384 + 64 * transom_process::ring::SLOTS);
    assert_eq!(size_of::<Shared>(), 2 * size_of::<Side>());
    assert_eq!(offset_of!(Shared, sides), 0);
}

#[test]
fn a_closed_area_takes_no_payload_and_goes_on_where_it_was() {
    let slots = slots(4);
    let mut producer = Producer::new(4, DATA);
    assert!(producer.publish(&slots, header(0, 100).words(), Body::Placed(100, 0)));
    let (size, placed) = (producer.close_area(), producer.placed());
    assert!(producer.has_room(INLINE) && !producer.has_room(INLINE + 1));
    assert!(!producer.publish(&slots, header(1, 100).words(), Body::Placed(100, 0)));
    assert!(producer.publish(&slots, header(1, 0).words(), Body::Inline([0; 4])));
    producer.open_area(size);
    assert_eq!((size, producer.placed()), (DATA, placed));
    assert!(producer.publish(&slots, header(2, 100).words(), Body::Placed(100, 0)));
}

#[test]
fn a_slot_is_not_written_again_before_its_record_was_acknowledged() {
    let slots = slots(4);
    let (mut producer, mut consumer) = (Producer::new(4, DATA), Consumer::new(4, DATA));
    for number in 0..4 {
        assert!(producer.publish(&slots, header(number, 0).words(), Body::Inline([0; 4])));
    }
    assert!(!producer.has_room(0));
    assert!(!producer.publish(&slots, header(9, 0).words(), Body::Inline([0; 4])));
    assert_eq!(producer.consumed(5), Err(RingViolation::Acknowledged));
    assert_eq!(consumer.take(&slots).unwrap().unwrap().header.address, 0);
    assert_eq!(producer.consumed(1), Ok(true));
    assert_eq!(producer.consumed(0), Ok(false), "an older word changes nothing");
    assert!(producer.publish(&slots, header(4, 0).words(), Body::Inline([0; 4])));
    for number in 1..5 {
        assert_eq!(consumer.take(&slots).unwrap().unwrap().header.address, number);
    }
    assert_eq!(consumer.take(&slots), None);
}

/// A record whose header says enough is taken as it lies. Any other is left to `take`, with all that it checks.
#[test]
fn a_record_can_be_taken_as_it_lies() {
    let slots = slots(4);
    let (mut producer, mut consumer) = (Producer::new(4, DATA), Consumer::new(4, DATA));
    let mut record = [0; SMALL];
    assert_eq!(consumer.take_small(&slots, &mut record), Taken::Nothing, "there is none");
    let small = Header { flags: LAST, ack: 5, token: 7, ..header(1, INLINE) };
    let words = [1, 2, 3, u64::MAX];
    assert!(producer.publish(&slots, small.words(), Body::Inline(words)));
    assert_eq!(consumer.take_small(&slots, &mut record), Taken::Inline);
    assert_eq!(to_words(&record).and_then(Header::from_words), Some(small));
    assert_eq!(record[HEADER..], to_bytes(words));
    let long = Header { length: 100, ..small };
    for (other, expected) in [
        (Header { flags: 0, ..small }, Taken::Inline),
        (Header { flags: LAST | SOLICITED, ..small }, Taken::Inline),
        (Header { flags: LAST | ELSEWHERE, ..small }, Taken::Inline),
        (Header { flags: LAST | LENT, ..small }, Taken::Left),
        (Header { detail: 1, ..small }, Taken::Inline),
        (Header { kind: RecordKind::Send, ..small }, Taken::Inline),
        (Header { kind: RecordKind::Send, ..long }, Taken::At(0, 100)),
        (Header { kind: RecordKind::Read, ..long }, Taken::Inline),
        (Header { kind: RecordKind::Refuse, ..small }, Taken::Inline),
        (Header { kind: RecordKind::Refuse, ..long }, Taken::Left),
        (Header { kind: RecordKind::Ack, ..small }, Taken::Left),
        (Header { length: u32::MAX, ..small }, Taken::Left),
    ] {
        let (mut producer, mut consumer) = (Producer::new(4, DATA), Consumer::new(4, DATA));
        let slots = self::slots(4);
        assert!(producer.publish(&slots, other.words(), Body::Inline(words)));
        assert_eq!(consumer.take_small(&slots, &mut record), expected, "{other:?}");
        assert_eq!(consumer.has_next(&slots), expected == Taken::Left);
        if expected != Taken::Left {
            let flags = other.flags & !ELSEWHERE; // who says where the payload lies is this side
            let header = to_words(&record).and_then(Header::from_words);
            assert_eq!(header, Some(Header { flags, ..other }));
        }
    }
}

#[test]
fn a_slot_with_anything_else_in_it_is_a_violation() {
    for (kind, length) in [
        (RecordKind::Ack, 0),
        (RecordKind::Write, LARGEST_PAYLOAD + 1),
        (RecordKind::Request, 513),
        (RecordKind::Refuse, usize::MAX >> 32),
    ] {
        let slots = slots(4);
        let mut producer = Producer::new(4, DATA);
        let header = Header { length: length as u32, ..Header::new(kind) };
        assert!(producer.publish(&slots, header.words(), Body::Inline([0; 4])));
        assert_eq!(
            Consumer::new(4, DATA).take(&slots),
            Some(Err(RingViolation::Record)),
            "{kind:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Both ends agree on every place without telling each other, payloads under way do not overlap,
    /// and all that is acknowledged can be used again.
    #[test]
    fn both_ends_agree_on_every_place(
        lengths in proptest::collection::vec(0..=LARGEST_PAYLOAD, 1..400),
        keep in 0..12_usize,
    ) {
        let slots = slots(16);
        let (mut producer, mut consumer) = (Producer::new(16, DATA), Consumer::new(16, DATA));
        let mut under_way: VecDeque<(u64, usize, Option<usize>)> = VecDeque::new();
        let mut acknowledged = 0_u32;
        let (mut sent, mut read) = (Traffic::default(), Traffic::default());
        let count = |traffic: &mut Traffic, length: usize| {
            traffic.records += 1;
            traffic.bytes += SMALL as u64 + if length > INLINE { length as u64 } else { 0 };
        };
        for (number, length) in lengths.into_iter().enumerate() {
            while under_way.len() > keep || !producer.has_room(length) {
                let (number, length, place) = under_way.pop_front().unwrap();
                let record = consumer.take(&slots).unwrap().unwrap();
                prop_assert_eq!(record.header, header(number, length));
                prop_assert_eq!(record.body, match place {
                    None => Found::Inline([length as u64; 4]),
                    Some(place) => Found::At(place, 0),
                });
                acknowledged += 1;
                count(&mut read, length);
                prop_assert_eq!(producer.consumed(acknowledged), Ok(true));
            }
            let (body, place) = body(&producer, length);
            if let Some(place) = place {
                prop_assert!(place + length <= DATA);
                for (_, other, at) in under_way.iter().filter_map(|u| Some((u.0, u.1, u.2?))) {
                    prop_assert!(place + length <= at || at + other <= place, "overlap");
                }
            }
            prop_assert!(producer.publish(&slots, header(number as u64, length).words(), body));
            under_way.push_back((number as u64, length, place));
            count(&mut sent, length);
        }
        prop_assert_eq!((producer.traffic(), consumer.traffic()), (sent, read));
    }

    /// Whatever stands in the slots: no panic, no offset outside the data area.
    #[test]
    fn noise_in_the_slots_does_no_harm(words in proptest::collection::vec(any::<[u64; 4]>(), 1..64)) {
        let slots = slots(8);
        let mut consumer = Consumer::new(8, DATA);
        let mut producer = Producer::new(8, DATA);
        for (at, noise) in words.into_iter().enumerate() {
            let _ = producer.consumed(at as u32);
            producer.publish(&slots, noise, Body::Inline(noise));
            match consumer.take_small(&slots, &mut [0; SMALL]) {
                Taken::Nothing | Taken::Left => {}
                Taken::Inline => continue,
                Taken::At(offset, length) => {
                    prop_assert!(length > INLINE && offset + length <= DATA);
                    continue;
                }
            }
            match consumer.take(&slots) {
                Some(Ok(record)) => if let Found::At(offset, _) = record.body {
                    prop_assert!(offset + record.header.payload() <= DATA);
                },
                Some(Err(_)) => return Ok(()),
                None => prop_assert!(false, "a record was published"),
            }
        }
    }
}
