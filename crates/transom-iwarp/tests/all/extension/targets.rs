//! Targets: the shared receive queues that messages are for.

use super::*;

#[test]
fn v155_a_target_goes_in_front_of_the_messages_that_it_is_for() {
    let mut pair = quiet();
    assert!(pair.active.wire.aim(7));
    assert_eq!(frames(&pair.active.talk()), [], "not by itself");
    pair.active.send(b"data");
    pair.active.write(1, 0, b"data", true);
    pair.active.read(1, 0, 4);
    let said = pair.active.talk();
    let [send, write, read] = [Opcode::Send, Opcode::Write, Opcode::ReadRequest].map(Frame::Other);
    assert_eq!(frames(&said), [Frame::Target(7), send, write, read]);
    pair.passive.feed(&said);
    assert_eq!(pair.passive.taken()[0], Got::Target(7));
    // A target that is set again is not said; of two before a message the last one counts.
    for (aims, said) in
        [(&[7][..], None), (&[8, 9], Some(9)), (&[0], Some(0)), (&[u32::MAX], Some(u32::MAX))]
    {
        aims.iter().for_each(|number| assert!(pair.active.wire.aim(*number)));
        pair.active.write(1, 0, b"data", true);
        let all = frames(&pair.active.talk());
        let expected = said.map(Frame::Target).into_iter().chain([Frame::Other(Opcode::Write)]);
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
    pair.run();
}

#[test]
fn v155_a_plain_peer_knows_no_targets() {
    let mut pair = Pair::plain();
    pair.active.taken();
    assert!(!pair.active.wire.aim(7));
    pair.active.write(1, 0, b"data", false);
    assert_eq!(frames(&pair.active.talk())[0], Frame::Other(Opcode::Write));
}

#[test]
fn v155_hostile_targets_end_the_stream() {
    let target = extra("414f 00000007 00000008 00000000 00000000", b"");
    let mut side = quiet().active;
    side.feed(&target);
    assert_eq!((side.taken(), side.violation), (vec![Got::Target(7)], None));
    // With bytes behind it; not whole; on a queue that there is not.
    extension_fault(quiet().active, &extra("414f 00000007 00000008 00000000 00000000", b"x"));
    extension_fault(quiet().active, &extra("014f 00000007 00000008 00000000 00000000", b""));
    let mut side = quiet().active;
    side.feed(&extra("414f 00000007 00000009 00000000 00000000", b""));
    assert!(side.taken().is_empty() && side.violation.is_some());
    // Behind immediate data, and behind an announcement.
    let mut side = quiet().active;
    side.feed(&extra("414f 00000001 00000007 00000000 00000000", b""));
    extension_fault(side, &target);
    let mut side = quiet().active;
    side.feed(&extra("414f 00000007 00000005 00000000 00000100", &[0; 8]));
    side.taken();
    extension_fault(side, &target);
    // Inside a message, and where no extension was agreed to.
    let mut side = quiet().active;
    side.feed(&extra("0143 00000000 00000000 00000001 00000000", b"data"));
    side.feed(&target);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)), "no frame may stand there");
    let mut side = Pair::plain().active;
    side.taken();
    side.feed(&target);
    assert_eq!(common::terminate_code(&side.talk()), Some((0, 2, 6)));
}

/// The message behind a target is the one that a refusal blames.
#[test]
fn v155_a_refusal_behind_a_target_names_the_message() {
    for refused in [0, 1] {
        let mut pair = quiet();
        pair.active.send(b"before");
        pair.run();
        pair.active.taken();
        pair.active.wire.aim(7);
        let refuse: fn(&Event<'_>) -> bool = match refused {
            0 => |event| matches!(event, Event::Target { .. }),
            _ => |event| matches!(event, Event::Send { .. }),
        };
        pair.passive.refuse = Some((refuse, RefusalClass::Unsupported, "no such queue"));
        pair.active.send(b"data");
        pair.run();
        let got = pair.active.taken();
        let blamed = got.iter().find_map(|got| match got {
            Got::Failed { id, error } => Some((*id, error.class)),
            _ => None,
        });
        assert_eq!(blamed, Some((Some(1), Some(RefusalClass::Unsupported))));
    }
}
