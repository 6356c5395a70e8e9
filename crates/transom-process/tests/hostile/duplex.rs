//! A link's two rings as one side uses them, with a peer that keeps to nothing.

use super::*;

/// Two ends of one memory: the one under test is side 0.
fn ends(slots: usize) -> (Duplex<Plain>, Duplex<Plain>, Plain) {
    let memory = Plain::new();
    let end = |mine| Duplex::sized(memory.clone(), mine, slots, DATA);
    (end(0), end(1), memory)
}

fn frame(header: Header, length: usize) -> Vec<u8> {
    [&record::to_bytes(header.words())[..], &pattern(length)].concat()
}

fn publish(end: &mut Duplex<Plain>, header: Header) {
    let mut bytes = frame(header, header.payload());
    assert!(end.write(&mut bytes, &mut 0));
    assert_eq!(bytes, []);
}

/// The word beside the records was written after them, so it is read after them: else what it
/// acknowledges would be complete before what came first.
#[test]
fn the_word_beside_the_records_never_overtakes_one() {
    for header in [write(7, 0, 8, LAST), write(7, 0, 100, LAST), read(7, 0, 8)] {
        let (mut end, mut peer, _) = ends(4);
        publish(&mut end, write(7, 0, 8, LAST));
        publish(&mut peer, header);
        peer.area().shared().sides[1].acknowledge(1);
        for _ in 0..2 {
            assert_eq!(end.news_beside(), Ok(None), "behind {header:?}");
            assert!(end.has_news());
            assert_eq!(end.producer().all_consumed(), 0);
        }
        assert_eq!(end.read().unwrap().unwrap().header, header);
        let word = Header { ack: 1, ..Header::new(RecordKind::Ack) };
        assert_eq!(end.news_beside(), Ok(Some(word)));
        assert_eq!(end.producer().all_consumed(), 1);
        assert_eq!((end.news_beside(), end.has_news()), (Ok(None), false), "it is news once");
    }
}

/// A word of zeros is what a fresh ring has.
#[test]
fn a_word_is_news_when_it_has_changed() {
    let (mut end, peer, _) = ends(4);
    assert_eq!((end.news_beside(), end.has_news()), (Ok(None), false));
    for word in [1 << 32, 2 << 32, 2 << 32 | 1 << 63] {
        peer.area().shared().sides[1].acknowledge(word);
        assert!(end.has_news());
        assert_eq!(
            end.news_beside(),
            Ok(Some(Header { ack: word, ..Header::new(RecordKind::Ack) }))
        );
        assert!(!end.has_news());
    }
}

/// Every way on which an acknowledgement comes is one on which it can be a lie.
#[test]
fn an_acknowledgement_beyond_the_records_written_is_a_violation() {
    for (written, acknowledged, lies) in [(0, 0, false), (0, 1, true), (2, 2, false), (2, 3, true)]
    {
        let expected = if lies { Err(RingViolation::Acknowledged) } else { Ok(()) };
        let start = |header: Option<Header>| {
            let (mut end, mut peer, _) = ends(4);
            (0..written).for_each(|_| publish(&mut end, write(7, 0, 8, LAST)));
            if let Some(header) = header {
                publish(&mut peer, Header { ack: acknowledged, ..header });
            } else {
                peer.area().shared().sides[1].acknowledge(acknowledged | 1 << 32);
            }
            end
        };
        let mut end = start(Some(write(7, 0, 100, LAST)));
        assert_eq!(end.read().unwrap().map(|_| ()), expected);
        let mut end = start(Some(write(7, 0, 8, LAST)));
        let small = end.read_small(&mut [0; SMALL], &mut 0);
        assert_eq!(small, expected.map(|()| Next::Record));
        let mut end = start(None);
        assert_eq!(end.news_beside().map(|_| ()), expected);
        let consumed = if lies { 0 } else { acknowledged };
        assert_eq!(end.producer().all_consumed(), consumed);
    }
}

/// The ring says where payload lies, and only of records whose payload the program gets.
#[test]
fn the_peers_flag_for_a_payload_elsewhere_is_taken_off() {
    let (end, _, memory) = ends(4);
    memory.fill_bytes(1, 128, &pattern(100));
    let mut room = vec![0; 2 * LARGEST_PAYLOAD];
    for kind in [
        RecordKind::Write,
        RecordKind::Send,
        RecordKind::Answer,
        RecordKind::Refuse,
        RecordKind::Request,
        RecordKind::Read,
    ] {
        let honest = Header { flags: LAST, length: 8, ..Header::new(kind) };
        let length = honest.payload();
        let liar = Header { flags: LAST | record::ELSEWHERE, ..honest };
        let used = end.copy(&liar, Found::Inline([5; 4]), &mut room);
        let inline = &record::to_bytes([5; 4])[..length];
        assert_eq!(room[..used], [&record::to_bytes(honest.words())[..], inline].concat());
        for header in [Header { length: 100, ..honest }, Header { length: 100, ..liar }] {
            let used = end.copy(&header, Found::At(128, 0), &mut room);
            let flags = if kind.carries_data() { LAST | record::ELSEWHERE } else { LAST };
            let head = record::to_bytes(Header { flags, ..header }.words());
            let there = if kind.carries_data() {
                (common::BASE + common::APART + 128).to_ne_bytes().to_vec()
            } else {
                pattern(header.payload())
            };
            assert_eq!(room[..used], [&head[..], &there].concat(), "{header:?}");
        }
    }
}

/// The bytes left in the buffer are the beginning of a frame, or have no room in the ring.
#[test]
fn frames_leave_the_buffer_whole_and_in_order() {
    let (mut end, mut peer, _) = ends(4);
    let all: Vec<Header> =
        [(8, 1), (100, 2), (0, 3)].map(|(length, at)| write(7, at, length, LAST)).into();
    let bytes: Vec<u8> = all.iter().flat_map(|h| frame(*h, h.payload())).collect();
    // Byte by byte.
    let (mut buffer, mut written) = (Vec::new(), 0);
    let mut read = Vec::new();
    for byte in &bytes {
        buffer.push(*byte);
        assert!(end.write(&mut buffer, &mut written));
        assert!(written <= buffer.len());
        while let Some(record) = peer.read() {
            read.push(record.unwrap().header);
        }
    }
    assert_eq!((read, buffer, written), (all, vec![], 0));
    // More than there are slots for: the fifth stays, and leaves when one has been read.
    let (mut end, mut peer, _) = ends(4);
    let mut buffer: Vec<u8> = (0..5).flat_map(|at| frame(write(7, at, 8, LAST), 8)).collect();
    let mut written = 0;
    assert!(!end.write(&mut buffer, &mut written));
    assert_eq!((written, end.producer().free_slots()), (4 * 40, 0));
    assert!(!end.write(&mut buffer, &mut written), "and again");
    assert_eq!((peer.read().unwrap().unwrap().header.address, written), (0, 4 * 40));
    let _ = peer.acknowledge(Some(1));
    assert!(end.news_beside().unwrap().is_some());
    assert!(end.write(&mut buffer, &mut written));
    assert_eq!((buffer.len(), written), (0, 0));
    for address in 1..5 {
        assert_eq!(peer.read().unwrap().unwrap().header.address, address);
    }
    assert!(peer.read().is_none());
}

/// Room for a frame of any size, behind what waits: each header that waits takes a slot.
#[test]
fn room_counts_what_waits() {
    let (mut end, _, _) = ends(4);
    let waiting = frame(write(7, 0, 8, LAST), 8);
    assert!(end.has_room(&[]) && end.has_room(&waiting));
    for (free, behind) in [(3, true), (2, false), (1, false)] {
        publish(&mut end, write(7, 0, 8, LAST));
        assert_eq!((end.producer().free_slots(), end.has_room(&[])), (free, true));
        assert_eq!(end.has_room(&waiting), behind, "{free} slots are free");
    }
    publish(&mut end, write(7, 0, 8, LAST));
    assert!(!end.has_room(&[]));
    // The rest of a frame that has begun always has.
    let text = Header { length: 100, ..Header::new(RecordKind::Refuse) };
    for cut in [1, HEADER - 1, HEADER, HEADER + 99] {
        assert!(end.has_room(&frame(text, 100)[..cut]), "{cut}");
    }
    assert!(!end.has_room(&frame(text, 100)));
    // Slots alone are not enough: there has to be room for a payload.
    let (mut end, _, _) = ends(SLOTS);
    let line = 64;
    for length in [LARGEST_PAYLOAD; 7] {
        publish(&mut end, write(7, 0, length, LAST));
    }
    assert!(end.has_room(&[]));
    publish(&mut end, write(7, 0, line, LAST));
    assert!(!end.has_room(&[]) && end.takes(INLINE, 0));
}

/// A peer that reads nothing while something waits: since when. Each record that it reads gives it its
/// whole time again.
#[test]
fn a_peer_that_reads_nothing_is_noticed() {
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    let (mut end, mut peer, _) = ends(2);
    publish(&mut end, write(7, 0, 8, LAST));
    assert_eq!(end.stuck_since(true, at(1)), None, "there is room");
    publish(&mut end, write(7, 0, 8, LAST));
    assert_eq!(end.stuck_since(false, at(2)), None, "nothing waits");
    assert_eq!(end.stuck_since(true, at(3)), Some(at(3)));
    assert_eq!(end.stuck_since(true, at(9)), Some(at(3)));
    end.forget_stuck();
    assert_eq!(end.stuck_since(true, at(10)), Some(at(10)));
    assert!(peer.read().is_some());
    let _ = peer.acknowledge(Some(1));
    assert!(end.news_beside().unwrap().is_some());
    assert_eq!(end.stuck_since(true, at(11)), None);
    publish(&mut end, write(7, 0, 8, LAST));
    assert_eq!(end.stuck_since(true, at(12)), Some(at(12)));
    // The peer acknowledges one record, which is not enough for those that wait: time begins again.
    let (mut end, mut peer, _) = ends(SLOTS);
    (0..16).for_each(|_| publish(&mut end, write(7, 0, LARGEST_PAYLOAD / 2, LAST)));
    assert_eq!(end.stuck_since(true, at(1)), Some(at(1)));
    let _ = peer.acknowledge(Some(1));
    assert!(end.news_beside().unwrap().is_some());
    assert_eq!(end.stuck_since(true, at(3)), Some(at(3)));
    assert_eq!(end.stuck_since(true, at(5)), Some(at(3)));
    // The peer reads them all, and acknowledges none.
    let (mut end, mut peer, _) = ends(SLOTS);
    (0..8).for_each(|_| publish(&mut end, write(7, 0, LARGEST_PAYLOAD, LAST)));
    publish(&mut end, write(7, 0, 8, LAST));
    assert_eq!(end.stuck_since(true, at(1)), Some(at(1)));
    (0..8).for_each(|_| assert!(peer.read().is_some()));
    publish(&mut peer, Header { ack: 0, ..read(7, 0, 8) });
    assert!(end.read().is_some());
    assert_eq!(end.stuck_since(true, at(2)), Some(at(1)), "it has said nothing of them");
}

/// A sleeping side is woken once for each record or word, and only then.
#[test]
fn a_sleeper_is_woken_for_each_thing_that_is_written() {
    let header = record::to_bytes(write(7, 0, 8, LAST).words());
    type Write = fn(&mut Duplex<Plain>, &[u8; HEADER]) -> Option<u64>;
    let ways: [Write; 3] = [
        |end, _| {
            publish(end, write(7, 0, 100, LAST));
            None
        },
        |end, header| {
            let mut record = [0; SMALL];
            record[..HEADER].copy_from_slice(header);
            assert!(end.write_record(&record, 0));
            None
        },
        |_, _| Some(1 << 32),
    ];
    for (way, write) in ways.into_iter().enumerate() {
        let (mut end, peer, _) = ends(4);
        assert!(!end.acknowledge(None), "nothing was written, and nobody sleeps");
        assert!(peer.fall_asleep());
        assert!(!end.acknowledge(None), "nothing was written");
        let word = write(&mut end, &header);
        assert!(end.acknowledge(word), "way {way}");
        assert!(!end.acknowledge(None), "once");
        assert!(!peer.fall_asleep(), "there is something to read");
        peer.wake_up();
        let word = write(&mut end, &header).map(|word| word + (1 << 32));
        assert!(!end.acknowledge(word), "it looks by itself");
    }
}

/// Sides have indices 0 and 1, sizes are no larger than the memory.
#[test]
fn what_does_not_exist_is_not_used() {
    let end = Duplex::sized(Plain::new(), 7, 4 * SLOTS, 4 * DATA);
    assert_eq!((end.mine(), end.producer().slots()), (1, SLOTS));
    assert_eq!(end.producer().place(DATA), Some(0));
    assert_eq!(end.producer().place(DATA + 1), None);
}
