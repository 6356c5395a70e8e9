//! Writes of one frame that begin, and leave, in one call.

use transom_wire::{Begin, Bytes, MessageId, Refusal};

use super::*;
use crate::common::memory;

const TARGET: (u32, u64) = (7, 0x1000);

/// Append a whole Write. `false`: nothing has happened.
fn whole(side: &mut Side, data: &[u8], out: &mut Vec<u8>) -> bool {
    let (token, address) = TARGET;
    let length = data.len() as u32;
    let message = Message::Write { token, address, length, verdict: true, immediate: None };
    let done = side.wire.append_whole(side.now, MessageId(side.next_id), &message, data, out);
    side.next_id += u64::from(done);
    done
}

/// The frame is byte for byte the one that a Write has which begins and leaves step by step, the owed
/// acknowledgement before it; and it is acknowledged like that one.
#[test]
fn a_whole_write_is_the_frame_of_any_other() {
    for checksum in [false, true] {
        let largest = quiet().active.wire.facts().unwrap().largest_payload;
        let longer = [fpdu::SMALL + 1, 1000, largest];
        for length in (1..=fpdu::SMALL).chain(longer) {
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

/// What may not go before it, or needs more than one frame, takes the other way, and nothing has happened.
#[test]
fn a_whole_write_overtakes_nothing() {
    let fits = [1; fpdu::SMALL];
    let declines = |side: &mut Side, why: &str| {
        let mut out = Vec::new();
        assert!(!side.wire.is_free(side.now), "{why}");
        assert!(!whole(side, &fits, &mut out) && out.is_empty(), "{why}");
    };
    let mut out = Vec::new();
    let mut side = quiet().active;
    let largest = side.wire.facts().unwrap().largest_payload;
    assert!(!whole(&mut side, &[], &mut out) && !whole(&mut side, &vec![1; largest + 1], &mut out));
    assert!(out.is_empty() && side.wire.is_free(side.now));
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
    side.wire.refuse(side.now, &refusal);
    declines(&mut side, "the stream is dead");
    let immediate = Some(Immediate { value: 1, solicited: false });
    let mut side = quiet().active;
    let message = Message::Write { token: 7, address: 0, length: 8, verdict: true, immediate };
    assert!(!side.wire.append_whole(side.now, MessageId(0), &message, &[1; 8], &mut out));
}

// ---- received ---------------------------------------------------------------------------------------

/// The outcome of some bytes: what has come, why the stream ended, and what is said then.
type Outcome = (Vec<Got>, Option<transom_wire::Violation>, Vec<u8>);

fn outcome(mut side: Side, bytes: &[u8], refuse: bool) -> (Outcome, usize) {
    let any: fn(&Event<'_>) -> bool = |event| matches!(event, Event::Write { .. });
    side.refuse = refuse.then_some((any, RefusalClass::Bounds, "because"));
    side.feed(bytes);
    side.wire.flush(side.now);
    let said = side.talk();
    ((side.taken(), side.violation.take(), said), side.whole)
}

/// Gives the same bytes to a side that looks for whole frames first, and to one that does not: both
/// must say and do the same. Returns how many frames were taken as a whole.
#[track_caller]
fn taken_whole(fresh: impl Fn() -> Side, bytes: &[u8]) -> usize {
    let mut count = 0;
    for refuse in [false, true] {
        let (expected, _) = outcome(fresh(), bytes, refuse);
        let mut side = fresh();
        side.short = true;
        let (got, whole) = outcome(side, bytes, refuse);
        assert_eq!(got, expected, "{bytes:02x?}");
        if !refuse {
            count = whole;
        }
    }
    count
}

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
    // It is padded.
    fpdu::seal(&mut bytes, 0, checksum);
    bytes
}

const WRITE: &str = "c140 00000007 0000000000001000";
/// Both Writes were executed.
const DONE: &str = "414f 00000004 00000004 00000002 000003e8";

/// Of every length, with nothing or something behind it, and an acknowledgement before or behind it.
#[test]
fn a_write_of_one_frame_is_taken_as_a_whole() {
    for checksum in [false, true] {
        let ack = frame(DONE, b"", checksum);
        for length in (0..=fpdu::SMALL + 1).chain([1000, 65_535 - 14]) {
            let payload = memory(TARGET.0, TARGET.1, length);
            let write = frame(WRITE, &payload, checksum);
            let small = usize::from(length > 0);
            let taken = |bytes: &[&[u8]]| taken_whole(|| with_writes(checksum), &bytes.concat());
            assert_eq!(taken(&[&write]), small, "{length} {checksum}");
            assert_eq!(taken(&[&ack, &write]), 1 + small);
            assert_eq!(taken(&[&write, &ack]), small + 1);
            assert_eq!(taken(&[&write, &write, &ack]), 2 * small + 1);
            assert_eq!(taken(&[&write, &write[..1]]), small);
        }
    }
}

/// What a frame says of itself, and where it ends.
#[test]
fn a_whole_frame_is_where_it_says() {
    let mut side = with_writes(true);
    let (ack, write) = (frame(DONE, b"", true), frame(WRITE, b"payload", true));
    let both = [&ack[..], &write].concat();
    let placing = side.wire.on_whole(&both).unwrap();
    let nothing = Bytes::Own(b"");
    assert_eq!((placing.consumed, placing.payload, placing.news), (ack.len(), nothing, false));
    assert_eq!(placing.done, Some(MessageId(1)));
    let placing = side.wire.on_whole(&write).unwrap();
    let (token, address) = TARGET;
    let expected = (write.len(), token, address, Bytes::Own(b"payload"));
    assert_eq!((placing.consumed, placing.token, placing.address, placing.payload), expected);
    assert_eq!((placing.done, placing.news), (None, false));
}

/// Until its last byte is there, it waits.
#[test]
fn a_frame_that_has_not_come_whole_is_left() {
    for checksum in [false, true] {
        for whole in [frame(DONE, b"", checksum), frame(WRITE, b"payload", checksum)] {
            for cut in 0..whole.len() {
                let mut side = with_writes(checksum);
                assert_eq!(side.wire.on_whole(&whole[..cut]), None, "{cut}");
                assert_eq!(taken_whole(|| with_writes(checksum), &whole[..cut]), 0);
            }
            // In two pieces, of which the ordinary way has seen the first.
            let begun = || {
                let mut side = with_writes(checksum);
                side.feed(&whole[..9]);
                side
            };
            assert_eq!(taken_whole(begun, &whole[9..]), 1);
        }
    }
}

/// Each bit of each field: a frame of another kind then is none of these, any other is what it says.
#[test]
fn each_field_is_judged_as_by_the_ordinary_way() {
    for checksum in [false, true] {
        for whole in [frame(DONE, b"", checksum), frame(WRITE, b"payload", checksum)] {
            let covered = whole.len() - fpdu::CRC;
            for bit in 0..8 * covered {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let broken = taken_whole(|| with_writes(checksum), &bytes);
                let kind = (16..32).contains(&bit);
                assert!(!kind && !checksum || broken == 0, "bit {bit}");
                bytes.truncate(covered);
                fpdu::seal(&mut bytes, 0, checksum);
                let sealed = taken_whole(|| with_writes(checksum), &bytes);
                assert!(!kind || sealed == 0, "bit {bit}");
            }
            for bit in 8 * covered..8 * whole.len() {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let taken = taken_whole(|| with_writes(checksum), &bytes);
                assert_eq!(taken, usize::from(!checksum), "a wrong checksum");
            }
        }
    }
}

/// A violation is reported by the ordinary way, and has changed nothing before.
#[test]
fn an_acknowledgement_that_lies_is_left() {
    for lie in [
        "414f 00000004 00000004 00000003 000003e8",
        "414f 00000004 00000004 ffffffff 000003e8",
        "414f 00000004 00000004 00000002 000003e7",
        "414f 00000004 00000009 00000002 000003e8",
    ] {
        let bytes = extra(lie, b"");
        assert_eq!(with_writes(true).wire.on_whole(&bytes), None, "{lie}");
        assert_eq!(taken_whole(|| with_writes(true), &bytes), 0, "{lie}");
    }
    let long = extra(DONE, b"x");
    assert_eq!(taken_whole(|| with_writes(true), &long), 0, "it has bytes");
    // Credit that the peer waits for, and flags of a later version.
    for flags in ["00000003", "00000007", "80000004"] {
        let bytes = extra(&DONE.replace("00000004 00000004", &format!("{flags} 00000004")), b"");
        assert_eq!(taken_whole(|| with_writes(true), &bytes), 1, "{flags}");
    }
}

/// A frame of a stream that is not between two messages, or not open.
#[test]
fn nothing_is_taken_as_a_whole_while_anything_is_unusual() {
    let write = extra(WRITE, b"payload");
    let bytes = &write;
    for (why, first) in [
        ("a Send is unfinished", extra("0143 00000000 00000000 00000001 00000000", b"data")),
        ("a Write is announced", extra("414f 00000007 00000005 00000000 00000100", &[0; 8])),
        ("immediate data waits", extra("414f 00000001 00000007 00000000 00000000", b"")),
    ] {
        let begun = || {
            let mut side = with_writes(true);
            side.feed(&first);
            assert_eq!(side.violation, None);
            side
        };
        assert_eq!(begun().wire.on_whole(bytes), None, "{why}");
        assert_eq!(taken_whole(begun, bytes), 0, "{why}");
    }
    assert_eq!(Pair::plain().active.wire.on_whole(bytes), None, "nobody acknowledges");
    assert_eq!(Side::new(Config::new(Role::Passive)).wire.on_whole(bytes), None, "not open");
    let mut side = with_writes(true);
    side.wire.fail(side.now);
    assert_eq!(side.wire.on_whole(bytes), None, "the stream is dead");
}
