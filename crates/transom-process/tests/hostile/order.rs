//! The records that this side sends, in order, while the peer asks for something else.

use super::*;

/// The records that the peer reads: kinds, and whether the message ends there.
fn kinds(side: &mut Side) -> Vec<(RecordKind, bool)> {
    side.said().iter().map(|(header, _)| (header.kind, header.has(LAST))).collect()
}

/// A message of ours is not held up by a peer that always reads, nor an answer by our messages.
#[test]
fn answers_and_messages_take_turns() {
    let mut side = open();
    for _ in 0..3 {
        side.record(read(7, 0x1000, 8));
    }
    assert_eq!(side.begin(our_write(8)), Begin::Started);
    let (answered, written) = ((RecordKind::Answer, true), (RecordKind::Write, true));
    assert_eq!(kinds(&mut side), [answered, written, answered, answered]);
}

/// Records of two messages are never mixed: the peer would take that for a broken stream.
#[test]
fn what_has_begun_goes_on() {
    let most = LARGEST_PAYLOAD as u32;
    // A Write that has been announced, and one of which a part is out.
    for frames in [1, 2] {
        let mut side = open();
        assert_eq!(side.begin(our_write(2 * most)), Begin::Started);
        for _ in 0..frames {
            let frame = side.wire.next_frame(side.now).unwrap();
            side.out.extend([frame.header(), &pattern(frame.length as usize)].concat());
        }
        side.record(read(7, 0x1000, 8));
        let whole =
            [(RecordKind::Announce, false), (RecordKind::Write, false), (RecordKind::Write, true)];
        assert_eq!(
            kinds(&mut side),
            [&whole[..], &[(RecordKind::Answer, true)]].concat(),
            "{frames}"
        );
    }
    // A Send, which has no announcement.
    let mut side = open();
    side.beside(1 << 32 | 1);
    let send = Message::Send {
        length: most + 1,
        solicited: true,
        invalidate: Some(0x55),
        immediate: None,
    };
    assert_eq!(side.begin(send), Begin::Started);
    side.record(read(7, 0x1000, 8));
    let said = side.said();
    let [(answer, _), (first, _), (last, _)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(answer.kind, RecordKind::Answer, "nothing had begun");
    let flags = record::SOLICITED | record::INVALIDATE;
    assert_eq!((first.kind, first.flags, first.address), (RecordKind::Send, flags, 0x55));
    assert_eq!((last.kind, last.flags, last.address), (RecordKind::Send, flags | LAST, 0x55));
    assert_eq!((first.length, last.length), (most, 1));
    // An answer.
    let mut side = open();
    side.record(read(7, 0x1000, 2 * most));
    let frame = side.wire.next_frame(side.now).unwrap();
    side.out.extend([frame.header(), &pattern(frame.length as usize)].concat());
    assert_eq!(side.begin(our_write(8)), Begin::Started);
    let expected =
        [(RecordKind::Answer, false), (RecordKind::Answer, true), (RecordKind::Write, true)];
    assert_eq!(kinds(&mut side), expected);
}

/// Pieces lie one behind the other, under one announcement.
#[test]
fn a_long_write_is_announced_once_and_goes_on_where_it_was() {
    let most = LARGEST_PAYLOAD as u32;
    let mut side = open();
    side.post(our_write(2 * most + 5));
    let said: Vec<_> =
        side.said().iter().map(|(h, _)| (h.kind, h.token, h.address, h.length)).collect();
    let at = |records: u64| 0x1000 + records * u64::from(most);
    let expected = [
        (RecordKind::Announce, 7, at(0), 2 * most + 5),
        (RecordKind::Write, 7, at(0), most),
        (RecordKind::Write, 7, at(1), most),
        (RecordKind::Write, 7, at(2), 5),
    ];
    assert_eq!(said, expected);
    // A message that fits one record is not announced.
    side.post(our_write(most));
    assert_eq!(kinds(&mut side), [(RecordKind::Write, true)]);
}

/// A Read and an atomic are one record each, as they are when they begin and leave step by step; of both no
/// more are under way than agreed.
#[test]
fn fetches_of_one_record_are_those_of_any_other_way() {
    let operation = Atomic::FetchAdd { add: 1 };
    let atomic = Message::Atomic { token: 7, address: 0x1000, operation };
    for message in [our_read(8), atomic] {
        let mut stepwise = open();
        assert_eq!(stepwise.begin(message), Begin::Started);
        let expected = stepwise.wire.next_frame(stepwise.now).unwrap();
        let mut side = open();
        let around = side.wire.around(side.now, &message).unwrap();
        let mut bytes = vec![0; around.front];
        side.wire.begin_whole(side.now, MessageId(0), &message, &mut bytes);
        assert_eq!((&bytes[..], around.back), (expected.header(), 0));
        let mut begun = 1;
        while side.wire.around(side.now, &message).is_some() {
            side.wire.begin_whole(side.now, MessageId(begun), &message, &mut bytes);
            begun += 1;
        }
        assert_eq!(begun, u64::from(LIMITS.outbound));
    }
}

/// A small Write has a way of its own when nothing goes before it.
#[test]
fn a_small_write_overtakes_nothing() {
    let writes = |side: &mut Side, length| whole(side, 50, &our_write(length)).is_some();
    let mut side = open();
    let largest = LARGEST_PAYLOAD as u32;
    assert!(writes(&mut side, largest) && !writes(&mut side, largest + 1));
    // An answer that is owed, a message under way, other kinds of messages.
    let mut side = open();
    side.record(read(7, 0x1000, 8));
    assert!(!writes(&mut side, 8));
    side.said();
    assert!(writes(&mut side, 8));
    let mut side = open();
    assert_eq!(side.begin(our_write(8)), Begin::Started);
    assert!(!writes(&mut side, 8));
    assert_eq!(whole(&mut open(), 0, &SEND), None, "there is no receive for it");
    // The last record of start-up.
    let mut side = active();
    side.record(limits(RecordKind::Reply, LIMITS));
    side.wire.confirm(side.now).unwrap();
    assert!(!writes(&mut side, 8));
    assert_eq!(kinds(&mut side), [(RecordKind::Ready, false)]);
    assert!(writes(&mut side, 8));
}

/// The record is counted, and completes, as any other does.
#[test]
fn a_small_write_is_a_record_like_any_other() {
    let mut side = open();
    let header = whole(&mut side, 5, &our_write(8)).unwrap();
    let expected = Header { ack: 2, ..write(7, 0x1000, 8, LAST) };
    assert_eq!(Header::from_words(record::words_of(&header)), Some(expected));
    side.out.extend_from_slice(&header);
    side.out.extend_from_slice(&pattern(8));
    side.transmit();
    side.beside(1);
    assert_eq!(side.taken(), [], "the Reply");
    side.beside(2);
    assert_eq!(side.taken(), [Got::Done(5)]);
}

/// A Send of one record uses a receive of the peer's, and is left to its turn where there is none.
#[test]
fn a_small_send_needs_a_receive() {
    let mut side = open();
    let Message::Send { length, .. } = SEND else { panic!("a Send") };
    let [solicited, invalidate] =
        [(true, None), (false, Some(9))].map(|(solicited, invalidate)| Message::Send {
            length,
            solicited,
            invalidate,
            immediate: None,
        });
    assert_eq!(whole(&mut side, 0, &SEND), None);
    side.beside(3 << 32);
    side.taken();
    let plain = Header { flags: LAST, length, ..Header::new(RecordKind::Send) };
    for (number, (message, expected)) in [
        (SEND, plain),
        (solicited, Header { flags: LAST | record::SOLICITED, ..plain }),
        (invalidate, Header { flags: LAST | record::INVALIDATE, address: 9, ..plain }),
    ]
    .into_iter()
    .enumerate()
    {
        let header = whole(&mut side, number as u64, &message).unwrap();
        let header = Header::from_words(record::words_of(&header)).unwrap();
        assert_eq!(Header { ack: 0, ..header }, expected);
    }
    assert_eq!(side.wire.credit(), Some(0));
    assert_eq!(whole(&mut side, 3, &SEND), None, "three were granted");
}
