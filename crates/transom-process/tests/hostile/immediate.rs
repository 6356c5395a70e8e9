//! Immediate data: behind the header of the first record of a Write, in place of the address of a Send.

use transom_process::record::{IMMEDIATE, INVALIDATE, SOLICITED, WORD};

use transom_wire::Around;

use super::*;

const NOT_GRANTED: &str = "a Write with immediate data for which no receive was granted";

/// The most payload beside immediate data in a slot.
const BESIDE: usize = INLINE - WORD;

fn send_with(value: u64, length: usize, flags: u8) -> Header {
    Header { address: value, ..send(length, flags | IMMEDIATE) }
}

#[test]
fn it_comes_with_its_message_and_with_no_later_one() {
    for (length, solicited) in [0, 8, BESIDE, BESIDE + 1, INLINE + 1, LARGEST_PAYLOAD]
        .into_iter()
        .zip([false, true].into_iter().cycle())
    {
        let flags = if solicited { SOLICITED } else { 0 };
        let mut side = open();
        side.grant(4, false);
        side.record_with(write(7, 0x1000, length, LAST | IMMEDIATE | flags), 0xFFFF_FFFF);
        let brought = Got::Immediate(0xFFFF_FFFF, solicited);
        assert_eq!(side.taken(), [wrote(7, 0x1000, length, true), brought]);
        side.record(write(7, 0x1000, 8, LAST));
        assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true)]);
        side.record(send_with(5, length, LAST | flags));
        let [Got::Send { last: true, .. }, brought] = &side.taken()[..] else { panic!() };
        assert_eq!(*brought, Got::Immediate(5, solicited));
    }
}

#[test]
fn of_a_message_of_several_records_the_last_one_brings_it() {
    let mut side = open();
    side.grant(2, false);
    let announced = Header { flags: IMMEDIATE | SOLICITED, ..announce(7, 0x1000, 100) };
    side.record_with(announced, 1);
    side.record(write(7, 0x1000, 40, 0));
    side.record(write(7, 0x1028, 60, LAST));
    let announced = Got::Announced { token: 7, address: 0x1000, length: 100 };
    let (first, last) = (wrote(7, 0x1000, 40, false), wrote(7, 0x1028, 60, true));
    assert_eq!(side.taken(), [announced, first, last, Got::Immediate(1, true)]);
    side.record(send_with(2, 8, 0));
    side.record(send_with(2, 8, LAST));
    assert_eq!(side.taken(), [sent(0, 8, false), sent(8, 8, true), Got::Immediate(2, false)]);
}

#[test]
fn a_write_that_brings_it_needs_a_receive() {
    let announced = Header { flags: IMMEDIATE, ..announce(7, 0, 100) };
    for first in [write(7, 0, 8, LAST | IMMEDIATE), announced] {
        let mut side = open();
        side.grant(1, false);
        side.record_with(write(7, 0, 8, LAST | IMMEDIATE), 1);
        side.taken();
        side.record_with(first, 1);
        broken(&mut side, "receives", NOT_GRANTED);
    }
    // A Write with immediate data counts as a Send does; a Write without needs no receive.
    let mut side = open();
    side.grant(1, false);
    side.record_with(write(7, 0, 8, LAST | IMMEDIATE), 1);
    side.record(write(7, 0, 8, LAST));
    side.taken();
    side.record(send(8, LAST));
    broken(&mut side, "receives", "a Send for which no receive was granted");
}

#[test]
fn it_stands_in_the_first_record_of_a_write_and_in_each_of_a_send() {
    let mut side = open();
    side.grant(4, false);
    side.record(announce(7, 0, 100));
    side.record_with(write(7, 0, 100, LAST | IMMEDIATE), 1);
    side.taken();
    let partial = "Write { token: 7, next: 0, left: 100, immediate: None }";
    broken(&mut side, "messages", &format!("100 bytes to 0x7 at 0x0 in {partial}"));
    for (second, partial) in [
        (send(8, LAST), "Send { flags: 16, address: 5, next: 8 }"),
        (send_with(6, 8, LAST), "Send { flags: 16, address: 5, next: 8 }"),
    ] {
        let mut side = open();
        side.grant(4, false);
        side.record(send_with(5, 8, 0));
        side.taken();
        side.record(second);
        broken(&mut side, "messages", &format!("a Send inside {partial}"));
    }
}

#[test]
fn it_has_four_bytes_and_no_token_beside_it() {
    let announced = Header { flags: IMMEDIATE, ..announce(7, 0, 100) };
    for record in [write(7, 0, 8, LAST | IMMEDIATE), announced, send_with(1 << 32, 8, LAST)] {
        let mut side = open();
        side.grant(1, false);
        side.record_with(record, 1 << 32);
        broken(&mut side, "messages", "a value of more than four bytes");
    }
    let mut side = open();
    side.grant(1, false);
    side.record(send_with(1, 8, LAST | INVALIDATE));
    broken(&mut side, "messages", "a Send with Invalidate and immediate data");
}

/// Without a ring, a record that ends within the word is not there yet.
#[test]
fn a_part_of_it_is_left_where_it_is() {
    let header = write(7, 0x1000, 8, LAST | IMMEDIATE);
    let bytes = [&record::to_bytes(header.words())[..], &5_u64.to_ne_bytes(), &pattern(8)].concat();
    let mut side = open();
    side.grant(1, false);
    for count in 0..bytes.len() {
        assert_eq!(side.hear(&bytes[..count]), 0, "{count}");
    }
    side.records += 1;
    assert_eq!(side.hear(&bytes), bytes.len());
    assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true), Got::Immediate(5, false)]);
}

/// The region of a Write that is lent has its name where immediate data would stand.
#[test]
fn a_write_that_is_lent_has_none() {
    let mut side = open();
    side.grant(1, false);
    side.record_with(write(7, 0, 8, LAST | IMMEDIATE | record::LENT), 1);
    lied(&mut side, RingViolation::Region);
}

#[test]
fn ours_is_part_of_the_first_record_of_its_message() {
    let with = |length, solicited| {
        let immediate = Some(Immediate { value: 0x1234_5678, solicited });
        Message::Write { token: 7, address: 0x1000, length, verdict: true, immediate }
    };
    for (length, solicited) in [(0, false), (8, true), (BESIDE as u32, false), (5000, true)] {
        let flags = LAST | IMMEDIATE | if solicited { SOLICITED } else { 0 };
        let front = HEADER + WORD;
        // As a whole, and frame by frame.
        let mut side = open();
        side.beside(4 << 32 | 1);
        side.taken();
        let around = side.wire.around(side.now, &with(length, solicited));
        assert_eq!(around, Some(Around { front, back: 0 }), "{length}");
        side.post(with(length, solicited));
        let said = side.said();
        let [(header, bytes)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(*header, write(7, 0x1000, length as usize, flags));
        assert_eq!(bytes[..WORD], 0x1234_5678_u64.to_ne_bytes());
        let mut other = open();
        other.beside(4 << 32 | 1);
        other.taken();
        let mut room = vec![0; front + length as usize];
        other.wire.begin_whole(other.now, MessageId(0), &with(length, solicited), &mut room);
        let words = record::to_words(&room).and_then(Header::from_words);
        assert_eq!(words.map(|words| Header { ack: 0, ..words }), Some(*header));
        assert_eq!(room[HEADER..front], bytes[..WORD]);
    }
    let mut side = open();
    side.beside(4 << 32 | 1);
    side.taken();
    side.post(with(100_000, true));
    let said = side.said();
    let kinds: Vec<_> = said.iter().map(|(header, _)| (header.kind, header.flags)).collect();
    let first = (RecordKind::Announce, IMMEDIATE | SOLICITED);
    assert_eq!(kinds, [first, (RecordKind::Write, 0), (RecordKind::Write, LAST)]);
    let (invalidate, immediate) = (None, Some(9));
    side.post(Message::Send { length: 0, solicited: false, invalidate, immediate });
    let said = side.said();
    let [(header, bytes)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*header, &bytes[..]), (send_with(9, 0, LAST), &[][..]));
}

/// A Write that brings it waits for a receive as a Send does.
#[test]
fn ours_waits_for_a_receive() {
    let mut side = open();
    let immediate = Some(Immediate { value: 1, solicited: false });
    let message = Message::Write { token: 7, address: 0x1000, length: 8, verdict: true, immediate };
    assert_eq!(side.wire.around(side.now, &message), None);
    assert!(matches!(side.begin(message), Begin::Wait(Waiting::Receive { .. })));
    assert_eq!(side.begin(our_write(8)), Begin::Started, "one without does not");
    side.transmit();
    side.said();
    side.beside(1 << 32 | 2);
    assert_eq!(side.begin(message), Begin::Started);
    side.transmit();
    assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })), "it was used");
}
