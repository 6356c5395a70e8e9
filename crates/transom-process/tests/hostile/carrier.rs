//! The writing end of the rings, as a connection uses it.

use transom_memory::Segment;
use transom_process::lending::Lent;
use transom_process::{Lender, NoRegions, RingCarrier};
use transom_wire::{Around, Carrier, Direct, Room};

use super::*;

/// Two ends of one memory: the one under test is side 0.
fn ends(slots: usize) -> (Duplex<Plain>, Duplex<Plain>, Plain) {
    let memory = Plain::new();
    let end = |mine| Duplex::sized(memory.clone(), mine, slots, DATA);
    (end(0), end(1), memory)
}

const HEAD: Around = Around { front: HEADER, back: 0 };

/// A buffer beside the rings, and how much of it was written.
type Waiting = (Vec<u8>, usize);

fn carrier<'a>(
    end: &'a mut Duplex<Plain>,
    (waiting, written): &'a mut Waiting,
) -> RingCarrier<'a, Plain, NoRegions> {
    RingCarrier::new(end, NoRegions, (waiting, written), 1 << 20)
}

/// Compose a frame, all but the end of it.
fn compose(out: &mut impl Carrier, header: &Header, payload: &[u8]) {
    let _ = out.reserve(HEAD, payload.len());
    out.put(payload);
    out.frame()[..HEADER].copy_from_slice(&record::to_bytes(header.words()));
}

/// A frame comes out as it was composed: its header as the wire has made it, its payload behind it or where
/// the ring says. One that is released has not been there.
#[test]
fn a_frame_is_published_when_it_is_complete_or_not_at_all() {
    for length in [0, 8, INLINE, INLINE + 1, LARGEST_PAYLOAD] {
        let (mut end, mut peer, memory) = ends(2);
        let mut waiting = Waiting::default();
        let mut out = carrier(&mut end, &mut waiting);
        let header = write(7, 5, length, LAST);
        assert!(out.takes(length));
        compose(&mut out, &header, &pattern(length));
        out.release();
        assert!(!peer.has_news(), "{length}");
        match out.reserve(HEAD, length) {
            Room::Here(room) if length <= INLINE => assert_eq!(room.len(), length),
            Room::Shared(at) if length > INLINE => assert_eq!(at, common::BASE, "the first place"),
            room => panic!("{length}: {room:?}"),
        }
        let (first, second) = (length / 3, length);
        out.put(&pattern(length)[..first]);
        out.put(&pattern(length)[first..second]);
        assert_eq!(out.frame().len(), HEADER + if length > INLINE { 0 } else { length });
        out.frame()[..HEADER].copy_from_slice(&record::to_bytes(header.words()));
        assert!(!peer.has_news());
        out.commit();
        assert_eq!(out.sent(), HEADER + length);
        let (mut read, mut elsewhere) = ([9; SMALL], 3);
        assert_eq!(peer.read_small(&mut read, &mut elsewhere), Ok(Next::Record));
        let there = length > INLINE;
        assert_eq!(elsewhere, 3 + if there { length } else { 0 });
        let flags = LAST | if there { record::ELSEWHERE } else { 0 };
        assert_eq!(
            record::to_words(&read).and_then(Header::from_words),
            Some(Header { flags, ..header })
        );
        if there {
            let address = u64::from_ne_bytes(*read[HEADER..].first_chunk().unwrap());
            assert_eq!(memory.at(0, address, length), pattern(length));
        } else {
            assert_eq!(read[HEADER..HEADER + length], pattern(length));
        }
        assert_eq!((peer.has_news(), waiting), (false, Waiting::default()));
    }
}

/// The word behind a header stays with it, wherever the payload lies.
#[test]
fn a_word_behind_the_header_is_in_the_slot() {
    let front = HEADER + record::WORD;
    for length in [0, INLINE - 8, INLINE - 7, INLINE + 1, LARGEST_PAYLOAD] {
        let there = front + length > SMALL;
        let header = write(7, 5, length, LAST | record::IMMEDIATE);
        let bytes = [&record::to_bytes(header.words())[..], &9_u64.to_ne_bytes()].concat();
        // Composed in its place, and out of the buffer.
        for pieces in [1, 2] {
            let (mut end, mut peer, memory) = ends(2);
            let mut waiting = Waiting::default();
            let mut out = carrier(&mut end, &mut waiting);
            let (first, rest) = bytes.split_at(if pieces == 1 { front } else { 8 });
            if pieces == 2 {
                let _ = out.reserve(Around { front: 8, back: 0 }, 0);
                out.frame().copy_from_slice(first);
                out.commit();
            }
            let own = if pieces == 1 { first } else { rest };
            let _ = out.reserve(Around { front: own.len(), back: 0 }, length);
            out.put(&pattern(length));
            out.frame()[..own.len()].copy_from_slice(own);
            out.commit();
            assert_eq!(out.sent(), front + length);
            let (mut read, mut elsewhere) = ([9; SMALL], 0);
            assert_eq!(peer.read_small(&mut read, &mut elsewhere), Ok(Next::Record));
            assert_eq!(elsewhere, if there { length } else { 0 });
            assert_eq!(read[HEADER..front], 9_u64.to_ne_bytes());
            if there {
                let address = u64::from_ne_bytes(*read[front..].first_chunk().unwrap());
                assert_eq!(memory.at(0, address, length), pattern(length));
            } else {
                assert_eq!(read[front..front + length], pattern(length));
            }
            assert_eq!((peer.has_news(), waiting), (false, Waiting::default()));
        }
    }
}

/// A record that is longer than a frame has room for comes in pieces, and is published with the last of them;
/// what follows stays behind it.
#[test]
fn pieces_of_a_record_wait_for_the_last_one() {
    let text = |length: usize| Header { length: length as u32, ..Header::new(RecordKind::Refuse) };
    let (mut end, mut peer, _) = ends(16);
    let mut waiting = Waiting::default();
    // A text that fits a slot, one that does not, and two records in one piece.
    for (pieces, lengths) in [
        (vec![HEADER + 20], vec![20]),
        (vec![80, HEADER + 100 - 80], vec![100]),
        (vec![2 * HEADER], vec![0, 0]),
        (vec![80, 2 * HEADER + 60 - 80], vec![30, 30]),
    ] {
        let whole: Vec<u8> = lengths
            .iter()
            .flat_map(|length| {
                [&record::to_bytes(text(*length).words())[..], &pattern(*length)].concat()
            })
            .collect();
        let mut at = 0;
        for piece in &pieces {
            let mut out = carrier(&mut end, &mut waiting);
            assert!(out.room() > 0);
            let _ = out.reserve(Around { front: *piece, back: 0 }, 0);
            out.frame().copy_from_slice(&whole[at..at + piece]);
            out.commit();
            at += piece;
        }
        assert_eq!(waiting, Waiting::default(), "{pieces:?}");
        let mut staging = [0; HEADER + LARGEST_TEXT];
        for length in lengths {
            let record = peer.read().unwrap().unwrap();
            assert_eq!(record.header, text(length));
            let used = peer.copy(&record.header, record.body, &mut staging);
            assert_eq!(staging[HEADER..used], pattern(length));
        }
        assert!(peer.read().is_none());
    }
}

/// There is a place when a slot and room for the payload are free, and nothing waits.
#[test]
fn a_place_is_taken_only_where_there_is_one() {
    let (mut end, _, _) = ends(SLOTS);
    let mut waiting = Waiting::default();
    let mut out = carrier(&mut end, &mut waiting);
    assert!(out.takes(INLINE) && out.takes(LARGEST_PAYLOAD) && !out.takes(LARGEST_PAYLOAD + 1));
    for _ in 0..8 {
        compose(&mut out, &write(7, 0, LARGEST_PAYLOAD, LAST), &pattern(LARGEST_PAYLOAD));
        out.commit();
    }
    assert!(out.takes(INLINE) && !out.takes(INLINE + 1), "there is no room for a payload");
    assert_eq!(out.room(), 0);
    let mut waiting = (vec![0; 8], 0);
    assert!(!carrier(&mut end, &mut waiting).takes(0), "the beginning of a record waits");
    let (mut end, mut peer, _) = ends(1);
    let mut waiting = Waiting::default();
    let mut out = carrier(&mut end, &mut waiting);
    compose(&mut out, &write(7, 0, 8, LAST), &pattern(8));
    out.commit();
    assert!(!out.takes(0));
    // Whatever is committed all the same waits, and is not lost.
    for (at, length) in [(1, 8), (2, 100)] {
        compose(&mut out, &write(7, at, length, LAST), &pattern(length));
        out.commit();
    }
    for (at, length) in [(0, 8), (1, 8), (2, 100)] {
        let record = peer.read().unwrap().unwrap();
        assert_eq!(record.header, write(7, at, length, LAST));
        let _ = peer.acknowledge(Some(at + 1));
        assert!(end.news_beside().unwrap().is_some());
        end.write(&mut waiting.0, &mut waiting.1);
    }
    assert_eq!(waiting, Waiting::default());
}

/// A budget that is used up ends the pass.
#[test]
fn no_more_leaves_than_the_budget_allows() {
    let (mut end, _, _) = ends(SLOTS);
    let mut waiting = Waiting::default();
    let mut out = RingCarrier::new(&mut end, NoRegions, (&mut waiting.0, &mut waiting.1), 100);
    for left in [100, 60, 20] {
        assert_eq!((out.room(), out.takes(8)), (left, true));
        compose(&mut out, &write(7, 0, 8, LAST), &pattern(8));
        out.commit();
    }
    assert_eq!((out.room(), out.takes(8), out.sent()), (0, false, 120));
}

/// A link without regions lends none.
#[test]
fn without_regions_every_payload_is_copied() {
    let (mut end, peer, _) = ends(4);
    let mut waiting = Waiting::default();
    let mut out = carrier(&mut end, &mut waiting);
    let bytes = Segment { host: 1, length: 1 << 16 };
    assert!(!out.wants_lend(1 << 16) && !out.wants_sink(1 << 16));
    let header = record::to_bytes(write(7, 0, LARGEST_PAYLOAD, LAST).words());
    assert_eq!(out.lend(&header, &[bytes], &[]), Direct::Copy);
    assert!(!out.lend_sink(&record::to_bytes(read(7, 0, 1 << 16).words()), bytes));
    assert!(!peer.has_news());
}

/// Everything lies in a region that the peer has mapped.
struct InRegion;

impl Lender<Plain> for InRegion {
    fn has_regions(&self) -> bool {
        true
    }
    fn find(&mut self, _duplex: &Duplex<Plain>, _bytes: Segment) -> Option<Lent> {
        Some(Lent { number: 1, offset: 0 })
    }
    fn fill(&mut self, _duplex: &Duplex<Plain>, _sink: Lent, _payload: &[Segment]) -> bool {
        false
    }
}

/// Frames that wait for a slot leave before any that comes behind them, also before one that needs no copy. A
/// frame that is released leaves them as they were.
#[test]
fn nothing_overtakes_what_waits() {
    let bytes = Segment { host: 1, length: 1 << 16 };
    let large = record::to_bytes(write(7, 9, LARGEST_PAYLOAD, LAST).words());
    let asks = record::to_bytes(read(7, 9, 1 << 16).words());
    for later in 0..3 {
        let (mut end, mut peer, _) = ends(2);
        let mut waiting = Waiting::default();
        let mut out = carrier(&mut end, &mut waiting);
        for at in 0..3 {
            compose(&mut out, &write(7, at, 8, LAST), &pattern(8));
            out.commit();
        }
        compose(&mut out, &write(7, 9, 100, LAST), &pattern(100));
        out.release();
        assert_eq!(waiting.0.len(), HEADER + 8, "the third");
        let mut next = |end: &mut Duplex<Plain>, at: u64| {
            assert_eq!(peer.read().unwrap().unwrap().header, write(7, at, 8, LAST), "{later}");
            let _ = peer.acknowledge(Some(at + 1));
            assert!(end.news_beside().unwrap().is_some());
        };
        next(&mut end, 0);
        let buffer = (&mut waiting.0, &mut waiting.1);
        let mut out = RingCarrier::new(&mut end, InRegion, buffer, 1 << 20);
        match later {
            0 => {
                compose(&mut out, &write(7, 3, 8, LAST), &pattern(8));
                out.commit();
            }
            1 => assert_eq!(out.lend(&large, &[bytes], &[]), Direct::Copy),
            _ => assert!(!out.lend_sink(&asks, bytes)),
        }
        next(&mut end, 1);
        next(&mut end, 2);
        if later == 0 {
            end.write(&mut waiting.0, &mut waiting.1);
            next(&mut end, 3);
        }
        assert_eq!(waiting, Waiting::default());
    }
}
