//! A Send needs a receive that the peer was told of.

use super::*;

const WANTED: u64 = 1 << 63;
const NOT_GRANTED: &str = "a Send for which no receive was granted";

#[test]
fn as_many_sends_as_receives_were_granted() {
    for granted in 0..4 {
        let mut side = open();
        side.grant(granted, false);
        for _ in 0..granted {
            side.record(send(8, LAST));
            assert_eq!(side.taken(), [sent(0, 8, true)]);
        }
        side.record(send(8, LAST));
        broken(&mut side, "receives", NOT_GRANTED);
    }
}

#[test]
fn a_send_of_several_records_needs_one() {
    let mut side = open();
    side.grant(2, false);
    for last in [0, 0, LAST, 0, LAST] {
        side.record(send(8, last));
    }
    assert_eq!(side.taken().len(), 5);
    side.record(send(8, 0));
    broken(&mut side, "receives", NOT_GRANTED);
}

/// A peer that guesses that a receive has been posted has not been granted one.
#[test]
fn a_receive_that_the_peer_was_not_told_of_does_not_count() {
    let mut side = open();
    side.wire.receives_posted(side.now, 1, false);
    side.record(send(8, LAST));
    broken(&mut side, "receives", NOT_GRANTED);
}

/// What a Send does not use is there for the next one, however often more are granted.
#[test]
fn receives_add_up() {
    let mut side = open();
    for total in [1, 3, 6] {
        side.grant(total, false);
        side.record(send(8, LAST));
    }
    assert_eq!(side.taken().len(), 3);
    for _ in 0..3 {
        side.record(send(8, LAST));
    }
    assert_eq!(side.taken().len(), 3);
    side.record(send(8, LAST));
    broken(&mut side, "receives", NOT_GRANTED);
}

/// The peer's wish counts if it has used what it was granted; a wish of a peer that has a receive
/// left has crossed the grant.
#[test]
fn a_wish_is_heard_when_there_is_nothing_left() {
    for (granted, wanted) in [(0, true), (1, false)] {
        let mut side = open();
        side.grant(granted, true);
        side.beside(1 | WANTED);
        assert_eq!(side.taken() == [Got::CreditWanted], wanted, "{granted}");
        assert_eq!(side.violation, None);
    }
    // Receives of its own are there when they are posted: a wish asks nobody for one.
    let mut side = open();
    side.beside(1 | WANTED);
    assert_eq!(side.taken(), []);
}

/// Grants of the peer allow as many Sends of ours; older words take nothing back.
#[test]
fn what_the_peer_grants_can_be_used_once() {
    let mut side = open();
    let word = |granted: u64| side_word(granted, 0);
    side.beside(word(2));
    side.taken();
    side.post(SEND);
    side.beside(word(1));
    side.post(SEND);
    assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })));
    side.beside(word(3));
    assert_eq!(side.taken(), [Got::Resume]);
    side.post(SEND);
    assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })));
}

/// Whatever the word rides on: a small Write says that there is news before it is executed.
#[test]
fn grants_and_wishes_come_with_any_record() {
    for length in [8, 100] {
        let small = write(7, 0x1000, length, LAST);
        let mut side = open();
        assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })));
        side.record(Header { ack: side_word(1, 1), ..small });
        assert_eq!(side.taken(), [Got::Resume, wrote(7, 0x1000, length, true)]);
        side.post(SEND);
        let mut side = open();
        side.grant(0, true);
        side.record(Header { ack: 1 | WANTED, ..small });
        assert_eq!(side.taken(), [Got::CreditWanted, wrote(7, 0x1000, length, true)]);
    }
}

fn side_word(granted: u64, executed: u64) -> u64 {
    granted << 32 | executed
}
