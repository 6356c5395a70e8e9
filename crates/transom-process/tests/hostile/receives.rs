//! A Send needs a receive that was granted to the peer.

use super::*;

const TURN: u64 = 1 << 61;
const SHARED: u64 = 1 << 62;
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
fn a_receive_not_granted_to_the_peer_does_not_count() {
    let mut side = open();
    side.wire.receives_posted(side.now, 1, false);
    side.record(send(8, LAST));
    broken(&mut side, "receives", NOT_GRANTED);
}

/// A receive that a Send does not use is there for the next one, however often more are granted.
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
fn a_wish_is_granted_when_no_receive_is_left() {
    for (granted, wanted) in [(0, true), (1, false)] {
        let mut side = open();
        side.grant(granted, true);
        side.beside(1 | WANTED);
        assert_eq!(side.taken() == [Got::CreditWanted], wanted, "{granted}");
        assert_eq!(side.violation, None);
    }
    // Receives of its own are there when they are posted: a wish asks no shared queue for one.
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

/// A plain receive queue is waited for as long as agreed, a shared one without limit; and before its
/// first word a peer may merely be slow.
#[test]
fn how_long_a_send_waits_is_the_peers_receive_queues_affair() {
    let wait = Duration::from_secs(1);
    for (word, limit) in [(None, None), (Some(1), Some(wait)), (Some(1 | SHARED), None)] {
        let mut side = open();
        if let Some(word) = word {
            side.beside(word);
        }
        assert_eq!(
            side.begin(SEND),
            Begin::Wait(Waiting::Receive { limit, refused: false }),
            "{word:?}"
        );
    }
    // The latest word about the peer's queue counts.
    let mut side = open();
    for (number, (word, limit)) in
        [(1, Some(wait)), (1 | SHARED, None), (1, Some(wait))].into_iter().enumerate()
    {
        side.beside(word);
        // A Send that waits for the other kind of queue is tried again.
        assert_eq!(side.taken() == [Got::Resume], number > 0);
        assert_eq!(side.begin(SEND), Begin::Wait(Waiting::Receive { limit, refused: false }));
    }
}

/// The word says where receives come from, and that a Send waits, for as long as one does; each wish is
/// another word.
#[test]
fn the_word_says_what_this_side_grants_and_wants() {
    let mut side = open();
    side.grant(3, true);
    assert_eq!(side.ours().acknowledged(), side_word(3, 2) | SHARED);
    side.grant(3, false);
    assert_eq!(side.ours().acknowledged(), side_word(3, 2));
    let mut wish = None;
    for round in 1..4 {
        assert!(matches!(side.begin(SEND), Begin::Wait(Waiting::Receive { .. })));
        side.transmit();
        let word = side.ours().acknowledged();
        assert_eq!(word & WANTED, WANTED);
        assert_ne!(wish.replace(word), Some(word), "nobody looks twice at the same word");
        side.beside(side_word(round, round));
        side.post(SEND);
        side.grant(3 + round, false);
        assert_eq!(side.ours().acknowledged() & WANTED, 0);
    }
}

/// Nothing is said when there is nothing to say.
#[test]
fn a_word_is_due_when_something_is_owed() {
    let mut side = open();
    side.wire.release(Release::Now);
    assert_eq!(side.wire.acknowledgement(side.now.after(Duration::from_secs(1))), None);
    side.wire.receives_posted(side.now, 0, false);
    side.wire.release(Release::Now);
    assert_eq!(side.wire.acknowledgement(side.now), None, "as many as before");
    side.wire.receives_posted(side.now, 1, false);
    assert_eq!(side.wire.acknowledgement(side.now), None, "it may ride along");
    side.wire.release(Release::Now);
    assert_eq!(side.wire.acknowledgement(side.now), Some(side_word(1, 2)));
    // A receive that is waited for is granted at once; a wish that a grant has crossed owes nothing.
    let mut side = open();
    side.beside(1 | WANTED);
    side.wire.receives_posted(side.now, 1, false);
    assert_eq!(side.wire.acknowledgement(side.now), Some(side_word(1, 2)));
    side.beside(1 | WANTED | TURN);
    assert_eq!(side.wire.acknowledgement(side.now), None);
    // A receive that was posted, and not granted yet, is granted by a wish.
    side.wire.receives_posted(side.now, 2, false);
    side.beside(1 | WANTED);
    assert_eq!(side.wire.acknowledgement(side.now), Some(side_word(2, 2)));
}

fn side_word(granted: u64, executed: u64) -> u64 {
    granted << 32 | executed
}
