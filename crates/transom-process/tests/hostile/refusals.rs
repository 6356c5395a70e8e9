//! Refusals: their records to the peer, and those of a peer.

use transom_process::record::{LARGEST_TEXT, detail};
use transom_wire::Payload;

use super::*;

/// A Refuse of the peer's.
fn refusal(operation: Operation, class: RefusalClass, record: u64, length: usize) -> Header {
    Header {
        detail: detail(Some(operation), Some(class)),
        address: record,
        length: length as u32,
        ..Header::new(RecordKind::Refuse)
    }
}

/// The refusal that the peer gets for one of its records.
fn told(side: &mut Side) -> (u16, u64, String) {
    let said = side.said_with_words();
    let [(header, text)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((header.kind, header.flags, header.token), (RecordKind::Refuse, 0, 0));
    ended(side);
    (header.detail, header.address, String::from_utf8(text.clone()).unwrap())
}

#[test]
fn the_peer_learns_which_record_was_refused_and_as_what() {
    for class in RefusalClass::ALL {
        let records = [
            (Operation::Write, write(7, 0x1000, 8, LAST)),
            (Operation::Write, write(7, 0x1000, 100, LAST)),
            (Operation::Write, announce(7, 0x1000, 100)),
            (Operation::Read, read(7, 0x1000, 8)),
            (Operation::Send, send(8, LAST)),
        ];
        for (operation, header) in records {
            let mut side = open();
            side.grant(1, false);
            side.refuse = Some((|_| true, class, "because"));
            side.hear_record(header);
            assert_eq!((side.taken(), &side.violation), (vec![], &None));
            let expected = (detail(Some(operation), Some(class)), 2, "because".to_owned());
            assert_eq!(told(&mut side), expected);
        }
    }
}

/// A later piece: what came before it was executed, and is acknowledged with the refusal.
#[test]
fn a_piece_that_is_refused_is_named_itself() {
    let mut side = open();
    side.record(write(7, 0, 8, LAST));
    side.record(announce(7, 0x1000, 100));
    side.record(write(7, 0x1000, 40, 0));
    side.taken();
    side.refuse = Some((|_| true, RefusalClass::Token, ""));
    side.record(write(7, 0x1028, 60, LAST));
    assert_eq!(side.taken(), []);
    let said = side.said_with_words();
    assert_eq!((said[0].0.address, said[0].0.ack as u32), (5, 5));
    ended(&mut side);
}

/// The memory that an answer was to go to is this side's own affair.
#[test]
fn an_answer_that_cannot_be_placed_is_not_the_peers_fault() {
    for earlier in [false, true] {
        let mut side = open();
        if earlier {
            side.record(write(7, 0, 8, LAST));
        }
        side.post(our_read(8));
        side.said();
        side.taken();
        side.refuse = Some((|_| true, RefusalClass::Bounds, "private"));
        side.record(answer(8, LAST));
        let nothing = (detail(None, Some(RefusalClass::Internal)), u64::MAX, String::new());
        assert_eq!(told(&mut side), nothing);
    }
    // A Write behind an answer is one again.
    {
        let mut side = open();
        side.post(our_read(8));
        side.said();
        side.record(answer(8, LAST));
        side.taken();
        side.refuse = Some((|_| true, RefusalClass::Bounds, ""));
        side.hear_record(write(7, 0, 8, LAST));
        let bounds = detail(Some(Operation::Write), Some(RefusalClass::Bounds));
        assert_eq!(told(&mut side), (bounds, 3, String::new()));
    }
}

/// Memory that a read asks for can be gone when its answer is made: the read is refused then.
#[test]
fn an_answer_that_cannot_be_made_refuses_its_read() {
    let mut side = open();
    for _ in 0..3 {
        side.record(read(7, 0x1000, 8));
    }
    side.taken();
    assert!(side.wire.next_frame(side.now).is_some());
    let frame = side.wire.next_frame(side.now).unwrap();
    assert!(matches!(frame.payload, Payload::Memory { slot, .. } if slot.0 == 3));
    let (operation, class) = (Operation::Read, RefusalClass::Token);
    let refusal = Refusal { operation, class, explanation: Some("closed") };
    side.wire.abandon(side.now, &frame, &refusal);
    let frame = side.wire.next_frame(side.now).unwrap();
    let header = Header::from_words(record::to_words(frame.header()).unwrap()).unwrap();
    assert_eq!((header.kind, header.address), (RecordKind::Refuse, 3));
    assert_eq!(header.detail, detail(Some(operation), Some(class)));
    assert_eq!(side.wire.next_frame(side.now).map(|_| ()), None);
    // A message of ours that could not be supplied is no fault of the peer's.
    let mut side = open();
    assert_eq!(side.begin(our_write(100)), Begin::Started);
    let frame = side.wire.next_frame(side.now).unwrap();
    side.wire.abandon(side.now, &frame, &refusal);
    let internal = (detail(None, Some(RefusalClass::Token)), u64::MAX, String::new());
    assert_eq!(told(&mut side), internal);
}

/// This side gives up by itself.
#[test]
fn a_side_that_fails_blames_no_message() {
    let mut side = open();
    side.record(write(7, 0x1000, 8, LAST));
    side.taken();
    side.wire.refuse(side.now, None);
    let nothing = (detail(None, Some(RefusalClass::Internal)), u64::MAX, String::new());
    assert_eq!(told(&mut side), nothing);
    // During start-up there is no word for it.
    let mut side = passive();
    side.wire.refuse(side.now, None);
    assert_eq!(side.said(), []);
    ended(&mut side);
}

/// Text that does not fit is cut at the end, by whole characters.
#[test]
fn an_explanation_is_cut_at_a_character() {
    for (text, kept) in [
        ("x".repeat(LARGEST_TEXT), LARGEST_TEXT),
        ("x".repeat(LARGEST_TEXT + 1), LARGEST_TEXT),
        ("é".repeat(LARGEST_TEXT / 2), LARGEST_TEXT),
        (format!("x{}", "é".repeat(LARGEST_TEXT / 2)), LARGEST_TEXT - 1),
        (format!("xx{}", "€".repeat(LARGEST_TEXT / 3)), LARGEST_TEXT),
        (format!("{}x", "€".repeat(LARGEST_TEXT / 3)), LARGEST_TEXT - 1),
    ] {
        let mut side = open();
        side.record(write(7, 0x1000, 8, LAST));
        side.taken();
        let (operation, class) = (Operation::Write, RefusalClass::Bounds);
        side.wire.refuse(side.now, Some(&Refusal { operation, class, explanation: Some(&text) }));
        assert_eq!(told(&mut side).2, text[..kept]);
    }
}

// ---- what a peer may say --------------------------------------------------------------------------

fn failed(side: &mut Side) -> (Option<u64>, PeerError) {
    let got = side.taken();
    let [Got::Failed { id, error }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(side.violation, None);
    assert_eq!(side.said(), [], "there is no answer to it");
    ended(side);
    (*id, error.clone())
}

#[test]
fn a_refusal_names_the_message_that_the_record_belongs_to() {
    // The Reply is record 0. Then a small Write, one of three records, a Read, a Send.
    let messages = || {
        let mut side = open();
        side.beside(1 | 1 << 32);
        side.taken();
        side.post(our_write(8));
        side.post(our_write(LARGEST_PAYLOAD as u32 + 1));
        side.post(our_read(8));
        side.post(SEND);
        side.said();
        side
    };
    let named = [None, Some(0), Some(1), Some(1), Some(1), Some(2), Some(3), None];
    for (record, id) in (0..).zip(named) {
        let mut side = messages();
        side.record(refusal(Operation::Write, RefusalClass::Bounds, record, 0));
        assert_eq!(failed(&mut side).0, id, "record {record}");
    }
    for record in [1 << 32 | 1, u64::MAX] {
        let mut side = messages();
        side.record(refusal(Operation::Write, RefusalClass::Bounds, record, 0));
        assert_eq!(failed(&mut side).0, None, "{record:#x}");
    }
    // An executed record cannot be refused any more.
    let mut side = messages();
    let ack = 2 | 1 << 32;
    side.record(Header { ack, ..refusal(Operation::Write, RefusalClass::Bounds, 1, 0) });
    assert!(matches!(side.taken()[..], [Got::Done(0), Got::Failed { id: None, .. }]));
}

/// A message of which only the beginning is out: a record that has not been written names nothing.
#[test]
fn a_refusal_names_the_message_under_way() {
    for (record, id) in [(0, None), (1, Some(0)), (2, Some(0)), (3, None)] {
        let mut side = open();
        assert_eq!(side.begin(our_write(3 * LARGEST_PAYLOAD as u32)), Begin::Started);
        for _ in 0..2 {
            assert!(side.wire.next_frame(side.now).is_some());
        }
        side.record(refusal(Operation::Write, RefusalClass::Bounds, record, 0));
        assert_eq!(failed(&mut side).0, id, "record {record}");
    }
}

#[test]
fn what_a_peer_says_is_read_as_far_as_it_means_something() {
    for operation in Operation::ALL {
        for class in RefusalClass::ALL {
            let mut side = open();
            side.record(refusal(operation, class, u64::MAX, 0));
            let error = PeerError {
                class: Some(class),
                operation: Some(operation),
                code: format!("{operation:?} refused: {class:?}"),
                explanation: None,
            };
            assert_eq!(failed(&mut side), (None, error));
        }
    }
    // The numbers behind the last ones, and none.
    for (detail, operation, class) in [
        (0, None, None),
        (6, None, None),
        (12 << 8, None, None),
        (1, Some(Operation::Send), None),
        (9 << 8, None, Some(RefusalClass::Internal)),
        (0xFFFF, None, None),
    ] {
        let mut side = open();
        side.record(Header { detail, address: u64::MAX, ..Header::new(RecordKind::Refuse) });
        let (id, error) = failed(&mut side);
        assert_eq!((id, error.operation, error.class), (None, operation, class), "{detail:#x}");
        assert_eq!(error.code, "the peer says that a rule of the path was broken");
    }
}

/// The text of a refusal is for people to read: nothing in it steers their terminal.
#[test]
fn an_explanation_of_the_peers_is_printable() {
    for (text, shown) in [
        (&b"plain"[..], "plain"),
        (b"a\x1b[2Jb\nc\0d\x7f", "a [2Jb c d "),
        (b"\xFF\xFEx", "\u{FFFD}\u{FFFD}x"),
        ("\u{9b}é".as_bytes(), " é"),
        ("to \u{202e}tuo\u{2069}\u{2028}".as_bytes(), "to  tuo  "),
    ] {
        let mut side = open();
        let header = refusal(Operation::Send, RefusalClass::TooLong, u64::MAX, text.len());
        side.hear(&[&record::to_bytes(header.words())[..], text].concat());
        assert_eq!(failed(&mut side).1.explanation.as_deref(), Some(shown));
    }
}

/// The acknowledgements in a refusal still count.
#[test]
fn a_refusal_acknowledges_as_any_record_does() {
    let mut side = open();
    side.post(our_write(8));
    side.post(our_write(8));
    side.said();
    side.record(Header { ack: 2, ..refusal(Operation::Write, RefusalClass::Bounds, 2, 0) });
    let got = side.taken();
    assert!(matches!(got[..], [Got::Done(0), Got::Failed { id: Some(1), .. }]), "{got:?}");
}
