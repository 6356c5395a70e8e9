//! Announcements of Writes of several segments.

use super::*;

#[test]
fn writes_of_several_segments_are_announced_and_others_are_not() {
    let mut pair = quiet();
    let largest = pair.active.wire.facts().unwrap().largest_payload;
    pair.active.write(7, 0x1000, &vec![1; largest], true);
    assert_eq!(frames(&pair.active.talk()), [Frame::Other(Opcode::Write)]);
    pair.active.write(7, 0x1000, &vec![1; largest + 1], true);
    let said = frames(&pair.active.talk());
    let announce = Frame::Announce(7, 0x1000, u32::try_from(largest + 1).unwrap());
    assert_eq!(said, [announce, Frame::Other(Opcode::Write), Frame::Other(Opcode::Write)]);
}

#[test]
fn a_write_refused_at_its_announcement_moves_no_byte() {
    let mut pair = quiet();
    pair.passive.refuse = Some((
        |event| matches!(event, Event::WriteAnnounced { .. }),
        RefusalClass::Bounds,
        "41 bytes past the end",
    ));
    pair.active.send(b"before");
    pair.active.write(7, 0x1000, &[1; 200_000], true);
    pair.run();
    let before = Got::Send { data: b"before".to_vec(), solicited: false, invalidate: None };
    assert_eq!(pair.passive.taken(), [before]);
    let got = pair.active.taken();
    let [Got::Done(0), Got::Failed { id: Some(1), error }] = &got[..] else {
        unreachable!("{got:?}")
    };
    assert_eq!(error.class, Some(RefusalClass::Bounds));
    assert_eq!(error.operation, Some(Operation::Write));
    assert_eq!(error.explanation.as_deref(), Some("41 bytes past the end"));
    assert!(error.code.starts_with("Terminate 1/1/01"), "{}", error.code);
}

/// While the Write is still being sent, the refusal names it, and not an older message that
/// waits for its acknowledgement.
#[test]
fn a_write_is_refused_while_it_is_sent() {
    let mut pair = quiet();
    pair.passive.refuse = Some((
        |event| matches!(event, Event::WriteAnnounced { .. }),
        RefusalClass::Bounds,
        "41 bytes past the end",
    ));
    pair.active.write(7, 0x1000, b"before", true);
    pair.active.write(7, 0x1000, &[1; 400_000], true);
    // The first one, the announcement, a piece.
    for _ in 0..3 {
        assert!(pair.active.step().is_some());
    }
    assert_eq!(pair.active.next_id, 2, "the second one is under way");
    let sent = std::mem::take(&mut pair.active.out);
    pair.passive.feed(&sent);
    let answer = pair.passive.talk();
    pair.active.feed(&answer);
    let got = pair.active.taken();
    let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!((*id, error.class), (Some(1), Some(RefusalClass::Bounds)), "{got:?}");
}
