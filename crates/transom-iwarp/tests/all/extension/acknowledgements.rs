//! Acknowledgements: when they leave, and what a lie in one leads to.

use super::*;

#[test]
fn an_owed_acknowledgement_rides_on_the_next_frame_before_its_data() {
    let mut pair = quiet();
    pair.active.send(b"ping");
    pair.passive.feed(&pair.active.talk());
    assert_eq!(pair.passive.talk(), b"", "alone, it waits");
    pair.passive.send(b"pong");
    let answer = pair.passive.talk();
    assert_eq!(frames(&answer), [ack(1, 1000), Frame::Other(Opcode::Send)]);
    pair.active.feed(&answer);
    let pong = Got::Send { data: b"pong".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.active.taken(), [Got::Done(0), pong]);
}

/// A passive side that has executed one message and said nothing.
fn owing() -> Side {
    let mut pair = quiet();
    pair.active.send(b"ping");
    pair.passive.feed(&pair.active.talk());
    assert_eq!(pair.passive.talk(), b"");
    pair.passive
}

#[test]
fn alone_it_leaves_after_two_idle_passes() {
    let mut side = owing();
    side.wire.release(Release::IdlePass);
    assert_eq!(side.talk(), b"");
    side.wire.release(Release::IdlePass);
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    side.wire.release(Release::IdlePass);
    side.wire.release(Release::IdlePass);
    assert_eq!(side.talk(), b"", "once");
}

#[test]
fn alone_it_leaves_after_20_us() {
    let mut side = owing();
    assert_eq!(side.wire.deadline(), Some(side.now.after(Duration::from_micros(20))));
    side.wait(Duration::from_nanos(19_999));
    assert_eq!(side.talk(), b"");
    side.wait(Duration::from_nanos(1));
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    assert_eq!(side.wire.deadline(), None, "an idle connection wants no timer");
}

#[test]
fn alone_it_leaves_on_flush() {
    let mut side = owing();
    assert!(!side.wire.has_output(), "it waits for something to ride on");
    side.wire.release(Release::Now);
    assert!(side.wire.has_output());
    assert_eq!(frames(&side.talk()), [ack(1, 1000)]);
    assert!(!side.wire.has_output());
    side.wire.release(Release::Now);
    assert_eq!(side.talk(), b"");
}

#[test]
fn sixteen_owed_are_not_kept_waiting() {
    let mut pair = quiet();
    for round in 0..16 {
        pair.active.write(7, 0, b"data", true);
        pair.passive.feed(&pair.active.talk());
        let said = pair.passive.talk();
        assert_eq!(said.is_empty(), round < 15, "round {round}");
        pair.active.feed(&said);
    }
    assert_eq!(pair.active.taken(), [Got::Done(15)]);
}

#[test]
fn nothing_is_acknowledged_before_it_was_executed() {
    let mut pair = quiet();
    pair.passive.busy = true;
    pair.active.send(b"ping");
    pair.settle();
    assert_eq!(pair.active.taken(), []);
    pair.passive.wire.executed(pair.passive.now);
    pair.settle();
    assert_eq!(pair.active.taken(), [Got::Done(0)]);
    // Reports of what never came are not passed on.
    pair.passive.wire.executed(pair.passive.now);
    pair.settle();
    assert_eq!((pair.active.taken(), &pair.active.violation), (vec![], &None));
}

#[test]
fn reads_are_not_counted() {
    let mut pair = quiet();
    pair.active.read(1, 0, 8);
    pair.active.send(b"ping");
    pair.active.read(1, 0, 8);
    pair.settle();
    let got = pair.active.taken();
    assert!(got.contains(&Got::Done(1)), "{got:?}");
    assert!(!got.iter().any(|got| matches!(got, Got::Done(0 | 2))), "{got:?}");
}

#[test]
fn hostile_acknowledgements_and_refusals_end_the_stream() {
    // Of a message never sent; taking back a receive; with bytes behind it; not whole.
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000001 000003e8", b""));
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000000 000003e7", b""));
    extension_fault(quiet().active, &extra("414f 00000000 00000004 00000000 000003e8", b"x"));
    extension_fault(quiet().active, &extra("014f 00000000 00000004 00000000 000003e8", b""));
    // A refusal with an unknown operation, with a gap in its text.
    extension_fault(quiet().active, &extra("414f 07000000 00000006 00000001 00000000", b"no"));
    extension_fault(quiet().active, &extra("414f 00000000 00000006 00000001 00000001", b"no"));
    // An announcement of another size; two of them; with another message behind it.
    extension_fault(quiet().active, &extra("414f 00000007 00000005 00000000 00000100", b"short"));
    let announce = extra("414f 00000007 00000005 00000000 00000100", &[0; 8]);
    let send = extra("4143 00000000 00000000 00000001 00000000", b"data");
    let elsewhere = extra("8140 00000007 0000000000000008", b"data");
    for second in [&announce, &send, &elsewhere] {
        let mut side = quiet().active;
        side.feed(&announce);
        assert_eq!(side.taken(), [Got::Announced { token: 7, address: 0, length: 256 }]);
        extension_fault(side, second);
    }
    // A Write of several frames without announcement.
    extension_fault(quiet().active, &extra("8140 00000007 0000000000000000", b"data"));
}

#[test]
fn refusals_cannot_fill_memory() {
    let mut side = quiet().active;
    let text = [b'x'; 96];
    for part in 0..5 {
        side.feed(&extra(&format!("014f 00000000 00000006 00000001 {:08x}", part * 96), &text));
        assert_eq!(side.violation, None);
    }
    extension_fault(side, &extra("014f 00000000 00000006 00000001 000001e0", &text));
}
