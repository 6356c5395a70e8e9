//! Records that name regions which their sender has lent, or has not.

use transom_process::lending::{LARGEST, Lent};
use transom_process::record::{self, ELSEWHERE, LENT, SOLICITED};
use transom_process::ring::{Body, Shared, Traffic};
use transom_process::upgrade::{MemoryFacts, PeerUser};

use super::*;

/// Region 3 of the peer's, of 8192 bytes, is mapped here.
const REGION: Lent = Lent { number: 3, offset: 0 };
const AT: u64 = 0x5000_0000;
/// Region 1 of the peer's was dropped and unmapped.
const DROPPED: u32 = 1;

#[derive(Clone)]
struct Lends(Plain);

impl Area for Lends {
    fn shared(&self) -> &Shared {
        self.0.shared()
    }
    fn address(&self, side: usize, offset: usize) -> u64 {
        self.0.address(side, offset)
    }
    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        self.0.fill_bytes(side, offset, bytes);
    }
    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        self.0.read_bytes(side, offset, into);
    }
    fn lent(&self, lent: Lent, length: usize) -> Result<Option<u64>, RingViolation> {
        let inside = lent.offset.checked_add(length as u64).is_some_and(|end| end <= 8192);
        match lent.number {
            DROPPED => Ok(None),
            3 if inside => Ok(Some(AT + lent.offset)),
            _ => Err(RingViolation::Region),
        }
    }
}

fn ends() -> (Duplex<Lends>, Duplex<Lends>) {
    let memory = Lends(Plain::new());
    let end = |mine| Duplex::sized(memory.clone(), mine, 4, DATA);
    (end(0), end(1))
}

/// Whatever stands in a slot of the peer's.
fn publish(peer: &mut Duplex<Lends>, header: Header, words: [u64; 4]) {
    let mut producer = Producer::new(4, DATA);
    let slots = peer.area().shared().sides[1].slots();
    assert!(producer.publish(slots, header.words(), Body::Inline(words)));
}

#[test]
fn a_payload_in_a_region_arrives_as_an_address_and_takes_no_place() {
    let (mut end, mut peer) = ends();
    let lent = Lent { offset: 4096, ..REGION };
    for kind in [RecordKind::Write, RecordKind::Send] {
        let header = Header { flags: LAST | SOLICITED, length: 4096, ..Header::new(kind) };
        assert!(peer.write_lent(&record::to_bytes(header.words()), lent));
        assert!(peer.producer().is_all_read(), "no place in the data area");
        let found = end.read().unwrap().unwrap();
        assert_eq!(found.body, Found::Lent(lent));
        let mut room = [0; 64];
        let used = end.copy(&found.header, found.body, &mut room);
        let flags = LAST | SOLICITED | ELSEWHERE;
        let head = record::to_bytes(Header { flags, ..header }.words());
        assert_eq!(room[..used], [&head[..], &(AT + 4096).to_ne_bytes()].concat());
    }
    // Behind them, payload in the data area lies where it lay.
    assert!(end.read().is_none());
    let both = Traffic { records: 2, bytes: 2 * (64 + 4096) };
    assert_eq!(
        (peer.traffic()[0], end.traffic()[1]),
        (both, both),
        "what lies in the region is counted"
    );
}

/// A window that was closed could still be read through, if the answer to a Read were left to its reader:
/// so an answer names no region of its sender's.
#[test]
fn nothing_but_a_write_or_a_send_leaves_its_payload_in_a_region() {
    for kind in [
        RecordKind::Answer,
        RecordKind::Read,
        RecordKind::Atomic,
        RecordKind::Announce,
        RecordKind::Refuse,
    ] {
        let (mut end, mut peer) = ends();
        let header = Header { flags: LAST, length: 8, ..Header::new(kind) };
        assert!(!peer.write_lent(&record::to_bytes(header.words()), REGION));
        assert!(!end.has_news());
        let words = Lent { number: 2, ..REGION }.words();
        publish(&mut peer, Header { flags: LAST | LENT, ..header }, words);
        assert_eq!(end.read(), Some(Err(RingViolation::Region)), "{kind:?}");
    }
}

fn bytes(header: Header) -> [u8; HEADER] {
    record::to_bytes(header.words())
}

/// The owner of what is read copies it to the sink that the Read has named, and says so.
#[test]
fn an_answer_goes_where_its_read_has_said() {
    let (mut end, mut peer) = ends();
    let read = Header { flags: LAST, length: 8192, ..Header::new(RecordKind::Read) };
    assert!(end.write_read(&bytes(read), REGION));
    assert!(end.write(&mut frame(Header { length: 4, ..read }), &mut 0));
    let found = peer.read().unwrap().unwrap();
    assert_eq!(found.body, Found::Sink(REGION));
    let mut room = [0; 64];
    let used = peer.copy(&found.header, found.body, &mut room);
    assert_eq!(room[..used], bytes(read), "the wire sees a Read like any other");
    assert!(peer.read().unwrap().is_ok());
    let part = Header { length: 4096, ..Header::new(RecordKind::Answer) };
    let last = Header { flags: LAST, ..part };
    assert_eq!(peer.sink(&bytes(read)), None, "that is no answer");
    assert!(!peer.write_placed(&bytes(read)));
    assert_eq!(peer.sink(&bytes(part)), Some(REGION));
    assert!(peer.write_placed(&bytes(part)));
    assert_eq!(peer.sink(&bytes(last)), Some(Lent { offset: 4096, ..REGION }));
    assert!(peer.write_placed(&bytes(last)));
    assert_eq!(peer.sink(&bytes(last)), None, "the second Read has named none");
    assert!(!peer.write_placed(&bytes(last)));
    for header in [part, last] {
        let found = end.read().unwrap().unwrap();
        assert_eq!(found.body, Found::Placed);
        let used = end.copy(&found.header, found.body, &mut room);
        assert_eq!(room[..used], bytes(Header { flags: header.flags | LENT, ..header }));
    }
    let asked = Traffic { records: 2, bytes: 2 * 64 };
    let answered = Traffic { records: 2, bytes: 2 * (64 + 4096) };
    assert_eq!((end.traffic(), peer.traffic()), ([asked, answered], [answered, asked]));
}

fn frame(header: Header) -> Vec<u8> {
    bytes(header).to_vec()
}

/// Bytes that a peer says it has placed where no sink was lent would leave what was there before.
#[test]
fn an_answer_without_its_bytes_needs_a_sink_that_was_lent() {
    let answer = Header { flags: LAST | LENT, length: 8, ..Header::new(RecordKind::Answer) };
    let read = Header { flags: LAST, length: 8, ..Header::new(RecordKind::Read) };
    for asked in [None, Some(false), Some(true)] {
        let (mut end, mut peer) = ends();
        match asked {
            Some(true) => assert!(end.write_read(&bytes(read), REGION)),
            Some(false) => assert!(end.write(&mut frame(read), &mut 0)),
            None => {}
        }
        publish(&mut peer, answer, [0; 4]);
        assert_eq!(end.read().unwrap().is_ok(), asked == Some(true), "{asked:?}");
    }
}

#[test]
fn bytes_that_were_not_lent_are_a_violation() {
    for (words, length, fine) in [
        (REGION.words(), 8192, true),
        (REGION.words(), 8193, false),
        (Lent { offset: 8191, ..REGION }.words(), 1, true),
        (Lent { offset: 8192, ..REGION }.words(), 1, false),
        (Lent { offset: u64::MAX, ..REGION }.words(), 2, false),
        (Lent { number: 2, ..REGION }.words(), 1, false),
        ([1 << 32 | 3, 0, 0, 0], 1, false),
    ] {
        let (mut end, mut peer) = ends();
        let header = Header { flags: LAST | LENT, length, ..Header::new(RecordKind::Write) };
        publish(&mut peer, header, words);
        assert_eq!(end.read().unwrap().is_ok(), fine, "{words:x?}, {length}");
    }
    // Neither is a sink that sticks out.
    for (length, fine) in [(8192, true), (8193, false)] {
        let (mut end, mut peer) = ends();
        let header = Header { flags: LAST | LENT, length, ..Header::new(RecordKind::Read) };
        publish(&mut peer, header, REGION.words());
        assert_eq!(end.read().unwrap().is_ok(), fine, "{length}");
    }
    // A side that maps no regions takes none of them.
    let memory = Plain::new();
    let mut end = Duplex::sized(memory.clone(), 0, 4, DATA);
    let mut peer = Duplex::sized(memory, 1, 4, DATA);
    let header = Header { flags: LAST, length: 64, ..Header::new(RecordKind::Write) };
    assert!(peer.write_lent(&record::to_bytes(header.words()), REGION));
    assert_eq!(end.read(), Some(Err(RingViolation::Region)));
}

#[test]
fn no_more_leave_for_regions_than_there_are_slots() {
    let (_, mut peer) = ends();
    let header = record::to_bytes(Header { length: 64, ..Header::new(RecordKind::Write) }.words());
    for _ in 0..4 {
        assert!(peer.write_lent(&header, REGION));
    }
    assert!(!peer.write_lent(&header, REGION));
    assert!(!peer.write_lent(&header[..HEADER - 1], REGION));
}

/// A record may be read after its region has gone: the message is refused when its bytes are asked for.
#[test]
fn a_record_that_names_a_dropped_region_is_read_and_has_no_address() {
    let (mut end, mut peer) = ends();
    let lent = Lent { number: DROPPED, offset: u64::MAX };
    for kind in [RecordKind::Write, RecordKind::Send] {
        let header = Header { flags: LAST, length: 4096, ..Header::new(kind) };
        assert!(peer.write_lent(&record::to_bytes(header.words()), lent));
        let found = end.read().unwrap().unwrap();
        let mut room = [0; 64];
        let used = end.copy(&found.header, found.body, &mut room);
        assert_eq!(room[HEADER..used], 0_u64.to_ne_bytes());
    }
    let read = Header { flags: LAST, length: 8192, ..Header::new(RecordKind::Read) };
    assert!(peer.write_read(&bytes(read), lent));
    assert_eq!(end.read().unwrap().unwrap().body, Found::Sink(lent));
}

/// A mapping of memory that shrinks, or of pages that run out, is a signal for who touches it.
#[test]
fn a_region_that_could_fault_is_not_mapped() {
    const FRONT: u64 = 4096;
    let (keeps_its_size, is_ordinary) = (true, true);
    let right = MemoryFacts { keeps_its_size, is_ordinary, size: FRONT + 1, held: 2 * FRONT };
    assert_eq!(right.check_region(FRONT), Ok(1));
    let largest = MemoryFacts { size: FRONT + LARGEST, held: FRONT + LARGEST, ..right };
    assert_eq!(largest.check_region(FRONT), Ok(LARGEST));
    for wrong in [
        MemoryFacts { keeps_its_size: false, ..right },
        MemoryFacts { is_ordinary: false, ..right },
        MemoryFacts { size: FRONT, ..right },
        MemoryFacts { size: FRONT - 1, ..right },
        MemoryFacts { size: FRONT + LARGEST + 1, held: u64::MAX, ..right },
        MemoryFacts { held: FRONT, ..right },
    ] {
        assert!(wrong.check_region(FRONT).is_err(), "{wrong:?}");
    }
}

#[test]
fn regions_are_lent_within_one_user_only() {
    assert!(PeerUser::SameUser.may_lend());
    assert!(!PeerUser::OtherUser.may_lend() && !PeerUser::Unknown.may_lend());
}

#[test]
fn what_the_sides_say_about_regions_reaches_the_other_side() {
    let (end, peer) = ends();
    assert_eq!((end.handed_over(), end.verdict()), (0, 0));
    peer.hand_over(7);
    peer.judge(15);
    assert_eq!((end.handed_over(), end.verdict()), (7, 15));
    assert_eq!((peer.handed_over(), peer.verdict()), (0, 0));
}
