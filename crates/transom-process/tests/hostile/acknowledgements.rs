//! The peer's counts of executed records.

use super::*;

const NOT_SENT: &str = "the peer has executed what was not sent";

/// A side whose peer has read start-up (one record of ours) and nothing since; so many small Writes of
/// ours are under way.
fn with_writes(count: u64) -> Side {
    let mut side = open();
    for _ in 0..count {
        side.post(our_write(8));
    }
    side.said();
    side
}

/// Rides on records of every way there is into a side.
fn riding(word: u64) -> [Header; 3] {
    [
        // Small; in the data area; not a Write.
        write(7, 0x1000, 8, LAST),
        write(7, 0x1000, 100, LAST),
        read(7, 0x1000, 8),
    ]
    .map(|header| Header { ack: word, ..header })
}

#[test]
fn a_word_completes_what_it_acknowledges() {
    for executed in 1..4_u64 {
        let done = (executed > 1).then(|| Got::Done(executed - 2));
        let mut side = with_writes(2);
        side.beside(executed);
        assert_eq!(side.taken(), Vec::from_iter(done.clone()), "{executed} beside the records");
        for header in riding(executed) {
            let mut side = with_writes(2);
            side.record(header);
            let got = side.taken();
            assert_eq!(got.len(), 1 + done.iter().len(), "{executed} on {header:?}");
            assert!(done.iter().all(|done| got.contains(done)));
        }
    }
}

/// Counts of one more than was written, and many more. The ring notices, on whichever way the word
/// comes.
#[test]
fn acknowledging_records_never_written_is_a_violation() {
    for more in [4, 5, 0x7FFF_FFFF] {
        let mut side = with_writes(2);
        side.beside(more);
        lied(&mut side, RingViolation::Acknowledged);
        for header in riding(more) {
            let mut side = with_writes(2);
            side.record(header);
            lied(&mut side, RingViolation::Acknowledged);
            assert_eq!(side.acknowledged(), 2, "nothing is executed");
        }
    }
    assert_eq!(
        RingViolation::Acknowledged.text(),
        "the peer has acknowledged records that were never written"
    );
}

/// The wire notices by itself, whatever its records come through.
#[test]
fn the_wire_counts_what_it_has_sent() {
    for header in riding(4) {
        let mut side = with_writes(2);
        side.hear_record(header);
        broken(&mut side, "acknowledgements", NOT_SENT);
    }
    let mut side = with_writes(2);
    side.hear_record(Header { ack: 4, ..Header::new(RecordKind::Ack) });
    assert_eq!(side.taken(), []);
    let violation = side.violation.take().unwrap();
    assert_eq!((violation.rule, &violation.detail[..]), ("acknowledgements", NOT_SENT));
    let said = side.said_with_words();
    assert_eq!((said.len(), said[0].0.kind, said[0].0.ack as u32), (1, RecordKind::Refuse, 2));
    ended(&mut side);
}

/// A word that is older than one already seen has waited somewhere.
#[test]
fn an_older_word_changes_nothing() {
    let mut side = with_writes(3);
    side.beside(3);
    assert_eq!(side.taken(), [Got::Done(1)]);
    for older in [0, 1, 2, 3, 0x8000_0010, 0xFFFF_FFFF] {
        side.beside(older);
        side.hear_record(Header { ack: older, ..Header::new(RecordKind::Ack) });
        assert_eq!((side.taken(), &side.violation, side.lie), (vec![], &None, None), "{older:#x}");
    }
    side.beside(4);
    assert_eq!(side.taken(), [Got::Done(2)]);
}

/// A message is done when the last of its records is executed.
#[test]
fn a_part_of_a_message_is_not_the_message() {
    let mut side = open();
    side.post(our_write(LARGEST_PAYLOAD as u32 + 1));
    // The Reply, the announcement, two pieces.
    for executed in 1..4 {
        side.beside(executed);
        assert_eq!(side.taken(), [], "{executed}");
    }
    side.beside(4);
    assert_eq!(side.taken(), [Got::Done(0)]);
}

/// Records of the peer count as executed when the engine says so, each once; until then they are
/// not acknowledged.
#[test]
fn what_is_delivered_and_not_executed_is_not_acknowledged() {
    for header in [write(7, 0x1000, 8, LAST), write(7, 0x1000, 100, LAST), send(8, LAST)] {
        let mut side = open();
        side.grant(1, false);
        side.busy = true;
        let before = side.acknowledged();
        side.record(header);
        assert_eq!(side.taken().len(), 1);
        assert_eq!(side.acknowledged(), before, "{header:?}");
        side.wire.executed(side.now);
        assert_eq!(side.acknowledged(), before + 1);
    }
    // All others are executed when they have been understood.
    let mut side = open();
    side.busy = true;
    side.post(our_read(8));
    side.said();
    for header in [read(7, 0, 8), answer(8, LAST), announce(7, 0, 100), write(7, 0, 8, 0)] {
        let before = side.acknowledged();
        side.record(header);
        assert_eq!(side.acknowledged(), before + 1, "{header:?}");
    }
}

/// Where no place beside the records is agreed, a word is a record of its own, which is not counted.
#[test]
fn an_acknowledgement_of_its_own_is_no_record_that_counts() {
    let mut side = with_writes(2);
    for executed in [2, 3] {
        side.hear_record(Header { ack: executed, ..Header::new(RecordKind::Ack) });
        assert_eq!(side.taken(), [Got::Done(executed - 2)]);
    }
    assert_eq!(side.acknowledged(), 2);
}

/// A word of its own leaves at its deadline when nothing came that it could ride on, and once.
#[test]
fn an_acknowledgement_of_its_own_leaves_at_its_deadline() {
    let mut side = open();
    let _ = side.wire.acknowledgement(side.now);
    side.hear_record(write(7, 0x1000, 100, LAST));
    let deadline = side.wire.deadline().unwrap();
    side.wire.on_deadline(Time(deadline.0 - 1)).unwrap();
    assert_eq!(side.wire.acknowledgement(Time(deadline.0 - 1)), None, "it may still ride along");
    side.wire.on_deadline(deadline).unwrap();
    let word = side.wire.acknowledgement(deadline).unwrap();
    assert_eq!(word as u32, side.records);
    assert_eq!((side.wire.deadline(), side.wire.acknowledgement(deadline)), (None, None));
}
