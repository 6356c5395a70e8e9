//! Writes of one frame that begin, and leave, in one call.

use transom_wire::{Begin, MessageId, Refusal};

use super::*;
use crate::common::memory;

const TARGET: (u32, u64) = (7, 0x1000);
/// Bytes of a small payload.
const SMALL: usize = 32;

/// Append a message of one frame. `false`: it does not go that way, and nothing has happened.
fn append(side: &mut Side, message: &Message, payload: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(around) = side.wire.around(side.now, message) else { return false };
    let start = out.len();
    out.resize(start + around.front, 0x5A);
    out.extend_from_slice(payload);
    out.resize(out.len() + around.back, 0x5A);
    side.wire.begin_whole(side.now, MessageId(side.next_id), message, &mut out[start..]);
    side.next_id += 1;
    true
}

/// Append a whole Write. `false`: nothing has happened.
fn whole(side: &mut Side, data: &[u8], out: &mut Vec<u8>) -> bool {
    let (token, address) = TARGET;
    let length = data.len() as u32;
    let message = Message::Write { token, address, length, verdict: true, immediate: None };
    append(side, &message, data, out)
}

/// The frame is byte for byte the one that a Write has which begins and leaves step by step, the owed
/// acknowledgement before it; and it is acknowledged like that one.
#[test]
fn a_whole_write_is_the_frame_of_any_other() {
    for checksum in [false, true] {
        let largest = quiet().active.wire.facts().unwrap().largest_payload;
        let longer = [SMALL + 1, 1000, largest];
        for length in (1..=SMALL).chain(longer) {
            let data = memory(TARGET.0, TARGET.1, length);
            let configs = [Role::Active, Role::Passive].map(|role| {
                let mut config = Config::new(role);
                config.checksum = checksum;
                config
            });
            let [mut stepwise, mut at_once] = [(), ()].map(|()| {
                let [active, passive] = configs.clone();
                let mut pair = Pair::connected(active, passive);
                pair.settle();
                pair.active.send(b"ping");
                pair.passive.feed(&pair.active.talk());
                pair.passive.taken();
                pair.active.taken();
                pair
            });
            stepwise.passive.write(TARGET.0, TARGET.1, &data, true);
            let expected = stepwise.passive.talk();
            let mut out = b"before".to_vec();
            assert!(whole(&mut at_once.passive, &data, &mut out));
            assert_eq!(out, [b"before", &expected[..]].concat(), "{length} {checksum}");
            assert_eq!(at_once.passive.talk(), b"", "the acknowledgement has left");
            at_once.active.feed(&out[6..]);
            let (token, address) = TARGET;
            assert_eq!(at_once.active.taken(), [Got::Done(0), Got::Write { token, address, data }]);
            at_once.settle();
            assert_eq!(at_once.passive.taken(), [Got::Done(0)]);
        }
    }
}

/// A message that may not go before others, or needs several frames, takes the other way, and nothing has happened.
#[test]
fn a_whole_write_overtakes_nothing() {
    let fits = [1; SMALL];
    let declines = |side: &mut Side, why: &str| {
        let mut out = Vec::new();
        assert!(!whole(side, &fits, &mut out) && out.is_empty(), "{why}");
    };
    let mut out = Vec::new();
    let mut side = quiet().active;
    let largest = side.wire.facts().unwrap().largest_payload;
    assert!(!whole(&mut side, &[], &mut out) && !whole(&mut side, &vec![1; largest + 1], &mut out));
    assert!(out.is_empty());
    assert!(whole(&mut side, &fits, &mut out));
    let message =
        Message::Write { token: 7, address: 0, length: 8, verdict: true, immediate: None };
    let mut side = quiet().active;
    assert_eq!(side.wire.begin(side.now, MessageId(0), &message), Begin::Started);
    declines(&mut side, "a message is under way");
    let mut pair = quiet();
    pair.passive.read(TARGET.0, TARGET.1, 8);
    pair.active.feed(&pair.passive.talk());
    declines(&mut pair.active, "an answer is owed");
    pair.active.talk();
    assert!(whole(&mut pair.active, &fits, &mut out), "it has left");
    declines(&mut Pair::plain().active, "the peer acknowledges nothing");
    declines(&mut Side::new(Config::new(Role::Active)), "nothing was agreed");
    let mut side = quiet().active;
    let refusal = Refusal {
        operation: transom_wire::Operation::Write,
        class: RefusalClass::Token,
        explanation: None,
    };
    side.wire.refuse(side.now, Some(&refusal));
    declines(&mut side, "the stream is dead");
}

/// Immediate data goes in front of its message, in the frames that it has there step by step.
#[test]
fn v87_a_whole_message_has_its_immediate_data_in_front() {
    let (token, address) = TARGET;
    let largest = quiet().active.wire.facts().unwrap().largest_payload;
    for (length, solicited) in [(0, false), (8, true), (SMALL + 1, false), (1000, true)] {
        let data = memory(token, address, length);
        let length = data.len() as u32;
        for message in [
            with_immediate(length, 0x1234_5678, solicited),
            Message::Send { length, solicited, invalidate: None, immediate: Some(9) },
        ] {
            let [mut stepwise, mut at_once] = [(), ()].map(|()| {
                let mut pair = quiet();
                // An acknowledgement is owed, and goes first.
                pair.passive.send(b"ping");
                pair.active.feed(&pair.passive.talk());
                pair.active.taken();
                pair
            });
            stepwise.active.post(message, &data);
            let expected = stepwise.active.talk();
            let mut out = Vec::new();
            assert!(append(&mut at_once.active, &message, &data, &mut out), "{message:?}");
            assert_eq!(out, expected, "{message:?}");
            at_once.passive.feed(&out);
            stepwise.passive.feed(&expected);
            assert_eq!(at_once.passive.taken(), stepwise.passive.taken());
        }
    }
    let mut out = Vec::new();
    let longer = with_immediate(largest as u32 + 1, 1, false);
    assert!(!append(&mut quiet().active, &longer, &vec![1; largest + 1], &mut out));
    // To a peer that has no receive, or does not know such data, none goes.
    let message = with_immediate(8, 1, false);
    assert!(!append(&mut Pair::plain().active, &message, &[1; 8], &mut out));
    let mut side = quiet().active;
    let mut sent = 0;
    while append(&mut side, &message, &[1; 8], &mut Vec::new()) {
        sent += 1;
    }
    assert_eq!(sent, 1000, "each uses a receive");
    assert!(out.is_empty());
}

// ---- received ---------------------------------------------------------------------------------------

/// An active side with two Writes under way. The peer's checksums are agreed on, or not.
fn with_writes(checksum: bool) -> Side {
    let [active, passive] = [Role::Active, Role::Passive].map(|role| {
        let mut config = Config::new(role);
        config.checksum = checksum;
        config
    });
    let mut pair = Pair::connected(active, passive);
    pair.settle();
    for address in [0, 8] {
        pair.active.write(7, address, b"data", true);
    }
    pair.active.talk();
    pair.active.taken();
    pair.active
}

fn frame(header: &str, payload: &[u8], checksum: bool) -> Vec<u8> {
    let mut bytes = extra(header, payload);
    bytes.truncate(bytes.len() - fpdu::CRC);
    // The frame is padded.
    fpdu::seal(&mut bytes, 0, checksum);
    bytes
}

const WRITE: &str = "c140 00000007 0000000000001000";
/// Both Writes were executed.
const DONE: &str = "414f 00000004 00000004 00000002 000003e8";

/// A Write of one frame and an acknowledgement are known by the first two bytes of their headers: they mean what
/// they say, of every length, and with one of the other before or behind it.
#[test]
fn a_frame_that_comes_often_is_what_it_says() {
    let (token, address) = TARGET;
    for checksum in [false, true] {
        let ack = frame(DONE, b"", checksum);
        for length in (0..=SMALL + 1).chain([1000, 65_535 - 14]) {
            let data = memory(token, address, length);
            let write = frame(WRITE, &data, checksum);
            let wrote = Got::Write { token, address, data };
            for (bytes, expected) in [
                ([&ack[..], &write].concat(), [Got::Done(1), wrote.clone()]),
                ([&write[..], &ack].concat(), [wrote.clone(), Got::Done(1)]),
            ] {
                let mut side = with_writes(checksum);
                side.feed(&bytes);
                assert_eq!(side.taken(), expected, "{length} {checksum}");
                assert_eq!(side.violation, None);
            }
        }
    }
}

/// Until its last byte is there, it waits.
#[test]
fn a_frame_that_has_not_come_whole_is_left() {
    for checksum in [false, true] {
        for whole in [frame(DONE, b"", checksum), frame(WRITE, b"payload", checksum)] {
            for cut in 1..whole.len() {
                let mut side = with_writes(checksum);
                side.feed(&whole[..cut]);
                assert_eq!((side.taken(), side.violation.take()), (vec![], None), "{cut}");
                side.feed(&whole[cut..]);
                assert_eq!(side.taken().len(), 1, "{cut}");
            }
        }
    }
}

/// Each bit of it, where a checksum was agreed.
#[test]
fn a_frame_with_a_wrong_checksum_is_a_violation() {
    for whole in [frame(DONE, b"", true), frame(WRITE, b"payload", true)] {
        for bit in 8 * fpdu::LENGTH..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut side = with_writes(true);
            side.feed(&bytes);
            assert_eq!(side.taken(), [], "bit {bit}");
            assert!(side.violation.is_some(), "bit {bit}");
        }
    }
}

/// A lie about what was executed or granted, in a frame that is known by its header.
#[test]
fn an_acknowledgement_that_lies_is_a_violation() {
    for lie in [
        "414f 00000004 00000004 00000003 000003e8",
        "414f 00000004 00000004 ffffffff 000003e8",
        "414f 00000004 00000004 00000002 000003e7",
        "414f 00000004 00000009 00000002 000003e8",
    ] {
        let mut side = with_writes(true);
        side.feed(&extra(lie, b""));
        assert_eq!(side.taken(), [], "{lie}");
        assert!(side.violation.is_some(), "{lie}");
    }
    let mut side = with_writes(true);
    side.feed(&extra(DONE, b"x"));
    assert!(side.violation.is_some(), "it has bytes");
}

/// A Write of one frame where another message, or none, has to come.
#[test]
fn a_write_that_may_not_come_is_a_violation() {
    let write = extra(WRITE, b"payload");
    for (why, first) in [
        ("a Send is unfinished", extra("0143 00000000 00000000 00000001 00000000", b"data")),
        ("a Write is announced", extra("414f 00000007 00000005 00000000 00000100", &[0; 8])),
    ] {
        let mut side = with_writes(true);
        side.feed(&first);
        assert_eq!(side.violation, None);
        side.taken();
        side.feed(&write);
        assert_eq!(side.taken(), [], "{why}");
        assert!(side.violation.is_some(), "{why}");
    }
    let mut side = with_writes(true);
    side.feed(&extra("414f 00000001 00000007 00000000 00000000", b""));
    side.feed(&write);
    let brought = side.taken().iter().any(|got| matches!(got, Got::Immediate(1, false)));
    assert!(brought, "immediate data waits for it");
}
