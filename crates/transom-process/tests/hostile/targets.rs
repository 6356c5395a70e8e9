//! A target stands between messages, and holds for those behind it.

use super::*;

fn target(token: u32) -> Header {
    Header { token, ..Header::new(RecordKind::Target) }
}

#[test]
fn it_is_known_as_soon_as_it_comes_and_asks_for_nothing() {
    let mut side = open();
    side.grant(1, false);
    for number in [0, 7, u32::MAX] {
        side.record(target(number));
        assert_eq!(side.taken(), [Got::Target(number)]);
    }
    side.record(write(7, 0x1000, 8, LAST));
    side.record(send(8, LAST));
    assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true), sent(0, 8, true)]);
}

#[test]
fn it_stands_between_messages() {
    let mut side = open();
    side.record(announce(7, 0, 100));
    side.taken();
    side.record(target(1));
    let partial = "Write { token: 7, next: 0, left: 100, immediate: None }";
    broken(&mut side, "messages", &format!("a target inside an unfinished {partial}"));
}

#[test]
fn ours_goes_in_front_of_the_messages_that_it_is_for() {
    let mut side = open();
    side.beside(4 << 32 | 1);
    side.taken();
    for (aims, said) in [(&[7][..], Some(7)), (&[7], None), (&[8, 9], Some(9)), (&[0], Some(0))] {
        aims.iter().for_each(|number| assert!(side.wire.aim(*number)));
        assert_eq!(side.said(), [], "not by itself");
        side.post(our_write(8));
        let all: Vec<_> =
            side.said().iter().map(|(header, _)| (header.kind, header.token)).collect();
        let expected = said.map(|number| (RecordKind::Target, number)).into_iter();
        assert_eq!(all[..all.len() - 1], expected.collect::<Vec<_>>());
        assert_eq!(all[all.len() - 1].0, RecordKind::Write);
    }
}
