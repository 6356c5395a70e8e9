//! Single records: kind, length, flags, and their order.

use transom_process::record::{ELSEWHERE, INVALIDATE, LARGEST_TEXT, SOLICITED};

use super::*;

const ALL: [RecordKind; 14] = [
    RecordKind::Request,
    RecordKind::Reply,
    RecordKind::Reject,
    RecordKind::Ready,
    RecordKind::Announce,
    RecordKind::Write,
    RecordKind::Send,
    RecordKind::Read,
    RecordKind::Answer,
    RecordKind::Refuse,
    RecordKind::Ack,
    RecordKind::Atomic,
    RecordKind::AtomicAnswer,
    RecordKind::Target,
];

/// A side that expects every kind of message there is.
fn ready() -> Side {
    let mut side = open();
    side.grant(4, false);
    side
}

fn with_kind(number: u8) -> record::Words {
    let [first, rest @ ..] = write(7, 0x1000, 8, LAST).words();
    let words = [first & !(0xFF << 32) | u64::from(number) << 32, rest[0], rest[1], rest[2]];
    assert_eq!(Header::from_words(words).is_some(), (1..=14).contains(&number));
    words
}

#[test]
fn a_record_of_no_known_kind_is_refused() {
    for number in [0, 15, 0x7F, 0xFF] {
        let mut side = open();
        side.raw(with_kind(number));
        side.look();
        lied(&mut side, RingViolation::Record);
        // And by the wire itself.
        let mut side = open();
        let bytes = [record::to_bytes(with_kind(number)), [1; HEADER]].concat();
        assert_eq!(side.hear(&bytes), bytes.len());
        side.records += 1;
        broken(&mut side, "records", "a record of no known kind");
    }
    assert_eq!(
        RingViolation::Record.text(),
        "a slot of the peer's ring holds no record that belongs into one"
    );
}

/// An acknowledgement alone is never in a slot: it would take a place that is not counted.
#[test]
fn an_acknowledgement_is_not_in_a_slot() {
    let mut side = open();
    side.record(Header { ack: 1, ..Header::new(RecordKind::Ack) });
    lied(&mut side, RingViolation::Record);
}

#[test]
fn each_kind_has_its_largest_payload() {
    for kind in ALL {
        let most = match kind {
            RecordKind::Write | RecordKind::Send | RecordKind::Answer => 65_536,
            RecordKind::Request | RecordKind::Reply | RecordKind::Reject | RecordKind::Refuse => {
                512
            }
            RecordKind::Atomic => 16,
            RecordKind::Ready
            | RecordKind::Announce
            | RecordKind::Read
            | RecordKind::Ack
            | RecordKind::AtomicAnswer
            | RecordKind::Target => 0,
        };
        assert_eq!(kind.largest_payload(), most, "{kind:?}");
        if most == 0 {
            continue; // the length means something else, or nothing
        }
        for length in [most + 1, usize::MAX >> 32] {
            let header = Header { length: length as u32, flags: LAST, ..Header::new(kind) };
            let mut side = ready();
            side.raw(header.words());
            side.look();
            lied(&mut side, RingViolation::Record);
            let mut side = ready();
            side.hear(&record::to_bytes(header.words()));
            side.records += 1;
            broken(&mut side, "records", &format!("{length} bytes behind a {kind:?}"));
        }
    }
}

#[test]
fn the_largest_payload_is_taken() {
    let most = LARGEST_PAYLOAD;
    let mut side = ready();
    side.record(write(7, 0x1000, most, LAST));
    side.record(send(most, LAST));
    side.post(our_read(most as u32));
    side.record(answer(most, LAST));
    let data = pattern(most);
    let answered = Got::Answer { id: 0, offset: 0, data, last: true };
    assert_eq!(side.taken(), [wrote(7, 0x1000, most, true), sent(0, most, true), answered]);
    side.record(Header {
        length: LARGEST_TEXT as u32,
        address: u64::MAX,
        ..Header::new(RecordKind::Refuse)
    });
    let [Got::Failed { error, .. }] = &side.taken()[..] else { panic!() };
    assert!(error.explanation.is_some());
    // A Read and an announcement have a length, and no payload.
    let mut side = ready();
    side.record(read(7, 0x1000, u32::MAX));
    side.record(announce(7, 0x1000, u32::MAX));
    assert_eq!(side.taken().len(), 2);
    for (kind, mut side) in [(RecordKind::Request, passive()), (RecordKind::Reply, active())] {
        side.record(Header { length: LARGEST_TEXT as u32, ..Header::new(kind) });
        let private = pattern(LARGEST_TEXT);
        assert!(
            matches!(&side.taken()[..], [Got::Request { private: p, .. } | Got::Accepted { private: p, .. }] if *p == private)
        );
    }
}

/// Start-up is over once, on both sides.
#[test]
fn no_record_of_start_up_after_start_up() {
    for open in [open, open_active] {
        for kind in [RecordKind::Request, RecordKind::Reply, RecordKind::Reject, RecordKind::Ready]
        {
            let mut side = open();
            side.record(Header::new(kind));
            broken(&mut side, "start-up", &format!("a {kind:?} after start-up"));
        }
    }
}

/// Where the payload lies is what this side has found out: the peer's own word for it is taken off.
#[test]
fn a_payload_is_where_the_ring_says_and_not_where_the_peer_says() {
    for length in [8, INLINE, 100] {
        let mut side = ready();
        side.record(write(7, 0x1000, length, LAST | ELSEWHERE));
        assert_eq!(side.taken(), [wrote(7, 0x1000, length, true)], "{length}");
        side.record(send(length, LAST | ELSEWHERE));
        assert_eq!(side.taken(), [sent(0, length, true)]);
        side.post(our_read(length as u32));
        side.record(answer(length, LAST | ELSEWHERE));
        let answered = Got::Answer { id: 0, offset: 0, data: pattern(length), last: true };
        assert_eq!(side.taken(), [answered]);
    }
    // Eight bytes of a slot are the payload, and no address.
    let mut side = ready();
    let mut room = [0; HEADER + 8];
    let header = write(7, 0x1000, 8, LAST | ELSEWHERE);
    let used = side.duplex.copy(&header, Found::Inline([common::BASE; 4]), &mut room);
    let decoded = side.wire.decode(side.now, &room[..used]).unwrap();
    let payload = Bytes::Own(&common::BASE.to_ne_bytes());
    assert_eq!(
        decoded.event,
        Some(Event::Write { token: 7, address: 0x1000, payload, last: true, immediate: None })
    );
    // Text is copied out of the data area, and is never an address either.
    let mut side = ready();
    let refusal = Header { address: u64::MAX, length: 40, ..Header::new(RecordKind::Refuse) };
    side.record(Header { flags: ELSEWHERE, ..refusal });
    let [Got::Failed { error, .. }] = &side.taken()[..] else { panic!() };
    assert_eq!(error.explanation.as_ref().unwrap().chars().count(), 40);
}

/// Flags that a kind does not have mean nothing, and do not change what the others mean.
#[test]
fn unknown_flags_mean_nothing() {
    for flag in [1 << 3, 1 << 5, SOLICITED, INVALIDATE] {
        let mut side = open();
        side.record(write(7, 0x1000, 8, LAST | flag));
        assert_eq!(side.taken(), [wrote(7, 0x1000, 8, true)], "{flag:#x}");
        side.record(Header { flags: flag, ..read(7, 0x1000, 8) });
        assert_eq!(side.taken().len(), 1);
    }
}

/// Records come in pieces over a link of bytes: nothing happens before the last one is there.
#[test]
fn a_part_of_a_record_is_left_where_it_is() {
    for (header, length) in [
        (write(7, 0x1000, 100, LAST), 100),
        (send(8, LAST), 8),
        (read(7, 0x1000, 8), 0),
        (Header { length: 40, ..Header::new(RecordKind::Refuse) }, 40),
        (write(7, 0x1000, 5000, LAST | ELSEWHERE), 8),
    ] {
        let mut side = ready();
        let bytes = [&record::to_bytes(header.words())[..], &common::BASE.to_ne_bytes()].concat();
        let bytes = if header.has(ELSEWHERE) {
            bytes
        } else {
            [&bytes[..HEADER], &pattern(length)].concat()
        };
        for count in 0..bytes.len() {
            assert_eq!(side.hear(&bytes[..count]), 0, "{count} bytes of {header:?}");
        }
        assert_eq!((side.taken(), side.acknowledged()), (vec![], 2));
        // Behind it there is the beginning of another one.
        assert_eq!(side.hear(&[&bytes[..], &bytes[..7]].concat()), bytes.len());
        assert_eq!(side.taken().len(), 1);
    }
}

#[test]
fn the_link_does_not_end_inside_a_record() {
    let bytes = record::to_bytes(read(7, 0x1000, 8).words());
    let mut side = ready();
    assert_eq!(side.hear(&bytes[..HEADER - 1]), 0);
    let violation = side.wire.link_closed(side.now, false).unwrap_err();
    assert_eq!(
        (violation.blame, &violation.detail[..]),
        (Blame::Peer, "the link ended in the middle of a record")
    );
    ended(&mut side);
    // Nothing is left over between records.
    let mut side = ready();
    assert_eq!(side.hear(&bytes[..HEADER - 1]), 0);
    assert_eq!(side.hear(&bytes), HEADER);
    assert_eq!(side.hear(&[]), 0);
    assert_eq!(side.wire.link_closed(side.now, false), Ok(()));
}
