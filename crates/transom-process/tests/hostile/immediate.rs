//! Immediate data goes in front of the Send or Write that brings it, and in front of nothing else.

use super::*;

const NOT_GRANTED: &str = "a Write with immediate data for which no receive was granted";

fn immediate(value: u64, flags: u8) -> Header {
    Header { flags, address: value, ..Header::new(Kind::Immediate) }
}

#[test]
fn it_comes_with_the_message_behind_it_and_with_no_later_one() {
    for solicited in [false, true] {
        let flags = if solicited { record::SOLICITED } else { 0 };
        let mut side = open();
        side.grant(4, false);
        side.record(immediate(0xFFFF_FFFF, flags));
        assert_eq!(side.taken(), [], "not by itself");
        side.record(write(7, 0x1000, 8, LAST));
        let brought = Got::Immediate(0xFFFF_FFFF, solicited);
        assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true), brought]);
        side.record(write(7, 0x1000, 8, LAST));
        assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true)]);
        side.record(immediate(5, flags));
        side.record(send(8, LAST | flags));
        let [Got::Send { last: true, .. }, brought] = &side.taken()[..] else { panic!() };
        assert_eq!(*brought, Got::Immediate(5, solicited));
    }
}

#[test]
fn of_a_message_of_several_records_the_last_one_brings_it() {
    let mut side = open();
    side.grant(2, false);
    side.record(immediate(1, 0));
    side.record(announce(7, 0x1000, 100));
    side.record(write(7, 0x1000, 40, 0));
    side.record(write(7, 0x1028, 60, LAST));
    let announced = Got::Announced { token: 7, address: 0x1000, length: 100 };
    let (first, last) = (wrote(7, 0x1000, 40, false), wrote(7, 0x1028, 60, true));
    assert_eq!(side.taken(), [announced, first, last, Got::Immediate(1, false)]);
    side.record(immediate(2, 0));
    side.record(send(8, 0));
    side.record(send(8, LAST));
    assert_eq!(side.taken(), [sent(0, 8, false), sent(8, 8, true), Got::Immediate(2, false)]);
}

#[test]
fn a_write_that_brings_it_needs_a_receive() {
    for first in [write(7, 0, 8, LAST), announce(7, 0, 100)] {
        let mut side = open();
        side.grant(1, false);
        side.record(immediate(1, 0));
        side.record(write(7, 0, 8, LAST));
        side.taken();
        side.record(immediate(1, 0));
        side.record(first);
        broken(&mut side, "receives", NOT_GRANTED);
    }
    // A Write with immediate data counts as a Send does; a Write without needs no receive.
    let mut side = open();
    side.grant(1, false);
    side.record(immediate(1, 0));
    side.record(write(7, 0, 8, LAST));
    side.record(write(7, 0, 8, LAST));
    side.taken();
    side.record(send(8, LAST));
    broken(&mut side, "receives", "a Send for which no receive was granted");
}

#[test]
fn nothing_else_may_follow() {
    let closes = Header { address: 7, ..send(8, LAST | record::INVALIDATE) };
    for (record, what) in [
        (read(7, 0, 8), "a read"),
        (immediate(2, 0), "immediate data"),
        (closes, "a Send with Invalidate"),
    ] {
        let mut side = open();
        side.grant(4, false);
        side.record(immediate(1, 0));
        side.record(record);
        broken(&mut side, "messages", &format!("{what} behind immediate data"));
    }
    let mut side = open();
    side.grant(4, false);
    side.post(our_read(8));
    side.said();
    side.record(immediate(1, 0));
    side.record(answer(8, LAST));
    broken(&mut side, "messages", "the answer to a read behind immediate data");
}

#[test]
fn it_has_four_bytes_and_stands_between_messages() {
    let mut side = open();
    side.record(immediate(1 << 32, 0));
    broken(&mut side, "messages", "immediate data of more than four bytes");
    let mut side = open();
    side.record(announce(7, 0, 100));
    side.taken();
    side.record(immediate(1, 0));
    let partial = "Write { token: 7, next: 0, left: 100 }";
    broken(&mut side, "messages", &format!("immediate data inside an unfinished {partial}"));
}

#[test]
fn a_link_that_ends_behind_it_ends_in_the_middle_of_a_message() {
    let mut side = open();
    side.record(immediate(1, 0));
    let violation = side.wire.link_closed(side.now, false).unwrap_err();
    assert_eq!(violation.detail, "the link ended in the middle of a message");
}

#[test]
fn ours_goes_in_front_of_its_message_and_nothing_comes_between() {
    let with = |length, solicited| {
        let immediate = Some(Immediate { value: 0x1234_5678, solicited });
        Message::Write { token: 7, address: 0x1000, length, verdict: true, immediate }
    };
    let mut side = open();
    side.beside(4 << 32 | 1);
    side.taken();
    let small = whole(&mut side, 0, &with(8, false));
    assert_eq!(small, None, "it is not one record");
    assert_eq!(side.begin(with(100_000, true)), Begin::Started);
    let frame = side.wire.next_frame(side.now).unwrap();
    side.out.extend_from_slice(frame.header());
    side.record(read(7, 0x1000, 8));
    let said = side.said();
    let kinds: Vec<_> = said.iter().map(|(header, _)| header.kind).collect();
    assert_eq!(
        kinds,
        [Kind::Immediate, Kind::Announce, Kind::Write, Kind::Write, Kind::Answer],
        "an answer that is owed waits"
    );
    assert_eq!(said[0].0, immediate(0x1234_5678, record::SOLICITED));
    let (invalidate, immediate_data) = (None, Some(9));
    let (length, solicited) = (0, false);
    side.post(Message::Send { length, solicited, invalidate, immediate: immediate_data });
    let said = side.said();
    let kinds: Vec<_> = said.iter().map(|(header, _)| (header.kind, header.address)).collect();
    assert_eq!(kinds, [(Kind::Immediate, 9), (Kind::Send, 0)]);
}

/// A Write that brings it waits for a receive as a Send does.
#[test]
fn ours_waits_for_a_receive() {
    let mut side = open();
    let immediate = Some(Immediate { value: 1, solicited: false });
    let message = Message::Write { token: 7, address: 0x1000, length: 8, verdict: true, immediate };
    assert!(matches!(side.begin(message), Begin::Wait(Waiting::Receive { .. })));
    assert_eq!(side.begin(our_write(8)), Begin::Started, "one without does not");
    side.transmit();
    side.said();
    side.beside(1 << 32 | 2);
    assert_eq!(side.begin(message), Begin::Started);
    side.transmit();
    assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })), "it was used");
}
