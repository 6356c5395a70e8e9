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
        let word = Header { ack: 1, ..Header::new(Kind::Ack) };
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
        assert_eq!(end.news_beside(), Ok(Some(Header { ack: word, ..Header::new(Kind::Ack) })));
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
    for kind in [Kind::Write, Kind::Send, Kind::Answer, Kind::Refuse, Kind::Request, Kind::Read] {
        let honest = Header { flags: LAST, length: 8, ..Header::new(kind) };
        let length = honest.payload();
        let liar = Header { flags: LAST | record::ELSEWHERE, ..honest };
        let used = end.copy(&liar, Found::Inline([5; 4]), &mut room);
        let inline = &record::to_bytes([5; 4])[..length];
        assert_eq!(room[..used], [&record::to_bytes(honest.words())[..], inline].concat());
        for header in [Header { length: 100, ..honest }, Header { length: 100, ..liar }] {
            let used = end.copy(&header, Found::At(128), &mut room);
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

/// A payload that is copied from where it lies: as long as its header says, or nothing happens.
#[test]
fn a_direct_write_is_whole_or_has_not_happened() {
    let copied = |into: &mut [u8], length: usize| into[..length].copy_from_slice(&pattern(length));
    for length in [0, 8, INLINE, INLINE + 1, LARGEST_PAYLOAD] {
        let header = record::to_bytes(write(7, 0x1000, length, LAST).words());
        // As long as the header says.
        let (mut end, mut peer, memory) = ends(4);
        let mut write = |header: &[u8], total: usize, fails: bool| {
            end.write_direct(
                header,
                total as u64,
                |into| {
                    copied(into, length);
                    if fails { Err(()) } else { Ok(()) }
                },
                |area, side, offset| {
                    area.fill_bytes(side, offset, &pattern(length));
                    if fails { Err(()) } else { Ok(()) }
                },
            )
        };
        assert_eq!(write(&header, length + 1, false), Ok(false));
        assert_eq!(write(&header[..HEADER - 1], length, false), Ok(false));
        assert_eq!(write(&header, length, true), Err(()));
        assert!(!peer.has_news(), "{length}");
        assert_eq!(write(&header, length, false), Ok(true));
        let record = peer.read().unwrap().unwrap();
        assert_eq!(record.header, super::write(7, 0x1000, length, LAST));
        let mut room = [0; INLINE];
        match record.body {
            Found::At(offset) => {
                assert_eq!(offset, 0, "what failed has taken no place");
                assert_eq!(memory.at(0, common::BASE, length), pattern(length));
            }
            Found::Inline(words) => {
                copied(&mut room, length);
                assert_eq!(record::to_bytes(words), room);
            }
            Found::Lent(_) | Found::Sink(_) | Found::Placed => panic!("no region was lent"),
        }
        assert_eq!(end.producer().free_slots(), 3);
    }
    // No slot is free.
    let (mut end, peer, _) = ends(1);
    end.write_small(&record::to_bytes(write(7, 0, 8, LAST).words()), &pattern(8));
    assert!(!end.takes(0, 0));
    let header = record::to_bytes(write(7, 0, 8, LAST).words());
    let nothing = |_: &Plain, _, _| -> Result<(), ()> { panic!("there is no room") };
    assert_eq!(end.write_direct(&header, 8, |_| panic!("there is no room"), nothing), Ok(false));
    assert!(peer.has_news());
}

/// A small frame goes when nothing waits before it and a slot is free.
#[test]
fn small_frames_do_not_overtake_what_waits() {
    let (mut end, mut peer, _) = ends(2);
    assert!(end.takes(INLINE, 0) && !end.takes(INLINE, 1));
    for (number, length) in [(0, 0), (1, INLINE)] {
        assert!(end.takes(length, 0));
        let header = write(7, number, length, LAST);
        end.write_small(&record::to_bytes(header.words()), &pattern(length));
        let mut read = [9; SMALL];
        let mut elsewhere = 0;
        assert_eq!((peer.read_small(&mut read, &mut elsewhere), elsewhere), (Ok(Next::Record), 0));
        assert_eq!(record::to_words(&read).and_then(Header::from_words), Some(header));
        assert_eq!(read[HEADER..HEADER + length], pattern(length));
    }
    assert!(!end.takes(0, 0));
}

/// A frame that does not fit a slot goes when nothing waits before it and its payload has room; it comes
/// out as the wire wants it. One whose payload is gone, or that has no header, changes nothing.
#[test]
fn a_large_frame_is_read_with_the_place_of_its_payload() {
    for length in [INLINE + 1, LARGEST_PAYLOAD] {
        let (mut end, mut peer, memory) = ends(2);
        assert!(end.takes(length, 0) && !end.takes(length, 1));
        let header = write(7, 5, length, LAST);
        let made = || Some(record::to_bytes(header.words()));
        let fill = |area: &Plain, side, offset| -> Result<(), ()> {
            area.fill_bytes(side, offset, &pattern(length));
            Ok(())
        };
        let gone = |_: &Plain, _, _| Err(());
        assert_eq!(end.write_large(length, gone, || panic!("no header before its bytes")), Err(()));
        assert_eq!(end.write_large(length, fill, || None), Ok(false));
        assert!(!peer.has_news());
        assert_eq!(end.write_large(length, fill, made), Ok(true));
        let (mut read, mut elsewhere) = ([9; SMALL], 3);
        assert_eq!(peer.read_small(&mut read, &mut elsewhere), Ok(Next::Record));
        assert_eq!(elsewhere, 3 + length);
        let flagged = Header { flags: LAST | record::ELSEWHERE, ..header };
        assert_eq!(record::to_words(&read).and_then(Header::from_words), Some(flagged));
        let address = u64::from_ne_bytes(*read[HEADER..].first_chunk().unwrap());
        assert_eq!(memory.at(end.mine(), address, length), pattern(length));
    }
    // Neither a slot nor a place, nor more than a record holds.
    let nothing = |_: &Plain, _, _| -> Result<(), ()> { panic!("there is no room") };
    let (mut end, _, _) = ends(SLOTS);
    for length in [INLINE, LARGEST_PAYLOAD + 1] {
        assert_eq!(end.write_large(length, nothing, || None), Ok(false));
    }
    assert!(end.takes(INLINE, 0) && !end.takes(LARGEST_PAYLOAD + 1, 0));
    (0..8).for_each(|_| publish(&mut end, write(7, 0, LARGEST_PAYLOAD, LAST)));
    assert_eq!((end.takes(INLINE, 0), end.takes(INLINE + 1, 0)), (true, false));
    assert_eq!(end.write_large(INLINE + 1, nothing, || None), Ok(false));
    let (mut end, _, _) = ends(1);
    publish(&mut end, write(7, 0, 8, LAST));
    assert_eq!(end.write_large(INLINE + 1, nothing, || None), Ok(false));
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
    let text = Header { length: 100, ..Header::new(Kind::Refuse) };
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
    let ways: [Write; 4] = [
        |end, header| {
            end.write_small(header, &pattern(8));
            None
        },
        |end, _| {
            publish(end, write(7, 0, 100, LAST));
            None
        },
        |end, header| {
            let fill = |_: &Plain, _, _| Ok::<_, ()>(());
            assert_eq!(end.write_direct(header, 8, |_| Ok(()), fill), Ok(true));
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
