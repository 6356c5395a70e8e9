//! Writes of a few bytes that begin, and leave, in one call.

use transom_wire::{Begin, MessageId, Refusal};

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
        for length in 1..=fpdu::SMALL {
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
        assert!(!whole(side, &fits, &mut out) && out.is_empty(), "{why}");
    };
    let mut out = Vec::new();
    let mut side = quiet().active;
    assert!(!whole(&mut side, &[], &mut out) && !whole(&mut side, &[1; fpdu::SMALL + 1], &mut out));
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
    side.wire.refuse(side.now, &refusal);
    declines(&mut side, "the stream is dead");
    let immediate = Some(Immediate { value: 1, solicited: false });
    let mut side = quiet().active;
    let message = Message::Write { token: 7, address: 0, length: 8, verdict: true, immediate };
    assert!(!side.wire.append_whole(side.now, MessageId(0), &message, &[1; 8], &mut out));
}
