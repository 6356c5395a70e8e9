//! Immediate data.

use super::*;

#[test]
fn v87_immediate_data_goes_in_front_of_its_message() {
    let mut pair = quiet();
    let value = 0x1234_5678;
    let largest = u32::try_from(pair.active.wire.facts().unwrap().largest_payload).unwrap();
    for (length, solicited) in [(0, false), (8, true), (largest + 1, false)] {
        let data = vec![3; length as usize];
        pair.active.post(with_immediate(length, value, solicited), &data);
        let said = pair.active.talk();
        pair.passive.feed(&said);
        let said = frames(&said);
        assert_eq!(said[0], Frame::Immediate(Immediate { value, solicited }));
        assert_eq!(said.len(), if length > largest { 4 } else { 2 });
        let got = pair.passive.taken();
        let write = Got::Write { token: 7, address: 0x1000, data };
        assert_eq!(got[got.len() - 2..], [write, Got::Immediate(value, solicited)]);
    }
    let (length, solicited, invalidate) = (4, true, None);
    let send = Message::Send { length, solicited, invalidate, immediate: Some(7) };
    pair.active.post(send, b"data");
    pair.settle();
    let sent = Got::Send { data: b"data".to_vec(), solicited: true, invalidate: None };
    assert_eq!(pair.passive.taken(), [sent, Got::Immediate(7, true)]);
    assert_eq!(pair.active.taken(), [Got::Done(3)], "each is one message");
    // The announcement belongs to one message.
    pair.active.write(7, 0, b"data", true);
    pair.settle();
    assert!(matches!(pair.passive.taken()[..], [Got::Write { .. }]));
}

#[test]
fn v87_a_write_with_immediate_data_uses_a_receive() {
    let mut pair = quiet();
    pair.passive.wire.receives_posted(pair.passive.now, 1001, false);
    pair.settle();
    for _ in 0..1000 {
        pair.active.post(with_immediate(0, 1, false), &[]);
    }
    pair.active.send(b"the last");
    pair.settle();
    assert_eq!(pair.passive.taken().len(), 2001);
    pair.active.taken();
    pair.active.post(with_immediate(0, 1, false), &[]);
    pair.settle();
    assert!(matches!(pair.active.waiting, Some(Waiting::Receive { limit: Some(_), .. })));
    assert_eq!(pair.passive.taken(), []);
    pair.passive.wire.receives_posted(pair.passive.now, 1002, false);
    pair.settle();
    assert_eq!(pair.passive.taken().len(), 2);
    // A shared queue is asked for what such Writes have used, too.
    let mut pair = quiet();
    pair.passive.wire.receives_posted(pair.passive.now, 1000, true);
    pair.settle();
    for _ in 0..1001 {
        pair.active.post(with_immediate(0, 1, false), &[]);
    }
    pair.settle();
    let wanted = pair.passive.taken().into_iter().filter(|got| *got == Got::CreditWanted);
    assert_eq!(wanted.count(), 1);
}

#[test]
fn v87_hostile_immediate_data_ends_the_stream() {
    let immediate = extra("414f 00000001 00000007 00000000 00000000", b"");
    // With bytes behind it; not whole.
    extension_fault(quiet().active, &extra("414f 00000001 00000007 00000000 00000000", b"x"));
    extension_fault(quiet().active, &extra("014f 00000001 00000007 00000000 00000000", b""));
    // In front of a read request, of itself, of a Send that closes a window, of an answer.
    let read = extra("4141 00000000 00000001 00000001 00000000", &[0; 28]);
    let closes = extra("4144 00000007 00000000 00000001 00000000", b"data");
    for second in [&read, &immediate, &closes] {
        let mut side = quiet().active;
        side.feed(&immediate);
        assert_eq!((side.taken(), &side.violation), (vec![], &None));
        extension_fault(side, second);
    }
    let mut side = quiet().active;
    side.read(7, 0, 4);
    side.talk();
    side.feed(&immediate);
    extension_fault(side, &extra("c142 00000051 0000000000005000", b"data"));
    // Behind an announcement, and inside a message.
    let mut side = quiet().active;
    side.feed(&extra("414f 00000007 00000005 00000000 00000100", &[0; 8]));
    side.taken();
    extension_fault(side, &immediate);
    let mut side = quiet().active;
    side.feed(&extra("0143 00000000 00000000 00000001 00000000", b"data"));
    side.feed(&immediate);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)), "no frame may stand there");
    // To a side that has not agreed to the extension it is an unknown operation.
    let mut side = Pair::plain().active;
    side.taken();
    side.feed(&immediate);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)));
}

#[test]
fn v87_a_stream_that_ends_behind_immediate_data_is_cut_short() {
    let mut side = quiet().active;
    side.feed(&extra("414f 00000001 00000007 00000000 00000000", b""));
    assert!(side.wire.link_closed(side.now, false).is_err());
}
