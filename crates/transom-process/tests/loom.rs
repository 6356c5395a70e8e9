//! Every interleaving of the rings (`src/ring.rs` and `src/duplex.rs`, the shipped files) on loom's
//! atomics: no record is lost, torn or seen twice, the word beside the records overtakes none, and
//! no side sleeps through either.
//!
//! Each model was seen to fail without
//!
//! - `a_record_is_read_once_and_whole`: the release in `publish`;
//! - `no_side_sleeps_through_a_record`: the barrier of `fall_asleep`, and the one of `must_ring`;
//! - `the_word_beside_the_records_comes_after_them_and_wakes`: `has_next` in `news_beside`, with the
//!   word read after it, the release or the acquire of the word;
//! - `a_record_or_a_word_alone_wakes`: the note that something was written, for either, and either half
//!   of `has_news`;
//! - `a_place_is_used_again_when_it_was_read`: a payload copied before its record is published, and the
//!   limit of the data area.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]
#![allow(missing_docs)]

#[path = "../src/duplex.rs"]
mod duplex;
#[path = "../src/lending.rs"]
mod lending;
#[path = "../src/record.rs"]
mod record;
#[path = "../src/ring.rs"]
mod ring;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) const SLOTS: usize = 2;
}

use duplex::{Area, Duplex};
use loom::sync::{Arc, Condvar, Mutex};
use record::{Header, RecordKind};
use ring::{Body, Consumer, Found, Producer, SLOTS, Shared, Slot};

/// Two slots, an acknowledgement, and a bell: what is between a writer and a reader.
#[derive(Default)]
struct Way {
    slots: [Slot; 2],
    ack: sync::AtomicU64,
    asleep: sync::AtomicU32,
}

/// `whole`: the one whose payload lies in the data area is a Write of one record, as the others are.
fn header(number: u64, whole: bool) -> Header {
    let length = if number == 1 { 100 } else { 8 };
    let flags = if number == 1 && !whole { 0 } else { record::LAST };
    Header { address: number, length, flags, ack: !number, ..Header::new(RecordKind::Write) }
}

/// Data areas are written by ordinary stores; here by one that loom knows of.
type Data = [sync::AtomicU64; 2];

#[test]
fn a_record_is_read_once_and_whole() {
    for whole in [false, true] {
        loom::model(move || read_once_and_whole(whole));
    }
}

fn read_once_and_whole(whole: bool) {
    let way = Arc::new(Way::default());
    let data: Arc<Data> = Arc::default();
    let (w, d) = (way.clone(), data.clone());
    let writer = loom::thread::spawn(move || {
        let mut producer = Producer::new(2, 128);
        for number in 0..3_u64 {
            loop {
                let through = w.ack.load(sync::Ordering::Acquire);
                producer.consumed(through as u32).unwrap();
                if producer.has_room(header(number, whole).length as usize) {
                    break;
                }
                loom::thread::yield_now();
            }
            let body = if number == 1 {
                assert_eq!(producer.place(100), Some(0));
                d[0].store(77, sync::Ordering::Relaxed);
                Body::Placed(100, 0)
            } else {
                Body::Inline([number; 4])
            };
            assert!(producer.publish(&w.slots, header(number, whole).words(), body));
        }
    });
    let mut consumer = Consumer::new(2, 128);
    for number in 0..3_u64 {
        // The last one is a Write in a slot that is used again.
        if number == 2 || whole && number == 1 {
            let mut small = [0; ring::SMALL];
            let taken = loop {
                match consumer.take_small(&way.slots, &mut small) {
                    ring::Taken::Nothing => loom::thread::yield_now(),
                    taken => break taken,
                }
            };
            let words = record::to_words(&small);
            assert_eq!(words.and_then(Header::from_words), Some(header(number, whole)));
            if number == 1 {
                assert_eq!(taken, ring::Taken::At(0, 100));
                assert_eq!(data[0].load(sync::Ordering::Relaxed), 77);
            } else {
                assert_eq!(small[record::HEADER..], record::to_bytes([number; 4]));
            }
            way.ack.store(number + 1, sync::Ordering::Release);
            continue;
        }
        let record = loop {
            match consumer.take(&way.slots) {
                Some(record) => break record.unwrap(),
                None => loom::thread::yield_now(),
            }
        };
        assert_eq!(record.header, header(number, whole));
        match record.body {
            Found::Inline(words) => assert_eq!(words, [number; 4]),
            Found::At(offset, _) => {
                assert_eq!((number, offset), (1, 0));
                assert_eq!(data[0].load(sync::Ordering::Relaxed), 77);
            }
            Found::Lent(_) | Found::Sink(_) | Found::Placed => panic!("no region was lent"),
        }
        way.ack.store(number + 1, sync::Ordering::Release);
    }
    assert!(!consumer.has_next(&way.slots));
    writer.join().unwrap();
}

/// The bell of a sleeper: a socket, in the engine.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

#[test]
fn no_side_sleeps_through_a_record() {
    loom::model(|| {
        // A side as it is, but for the number of its slots: the calls are those of `ring::Side`.
        let way = Arc::new(Way::default());
        let bell = Arc::new(Bell::default());
        let (w, b) = (way.clone(), bell.clone());
        let writer = loom::thread::spawn(move || {
            let mut producer = Producer::new(2, 128);
            for number in 0..2_u64 {
                assert!(producer.publish(
                    &w.slots,
                    header(0, false).words(),
                    Body::Inline([number; 4])
                ));
                if ring::must_ring(&w.asleep) {
                    *b.rung.lock().unwrap() = true;
                    b.heard.notify_one();
                }
            }
        });
        let mut consumer = Consumer::new(2, 128);
        let mut seen = 0;
        while seen < 2 {
            if consumer.take(&way.slots).is_some() {
                seen += 1;
                continue;
            }
            ring::fall_asleep(&way.asleep);
            if consumer.has_next(&way.slots) {
                ring::wake_up(&way.asleep);
                continue;
            }
            let mut rung = bell.rung.lock().unwrap();
            while !*rung {
                rung = bell.heard.wait(rung).unwrap(); // loom finds a sleep without an end
            }
            *rung = false;
        }
        writer.join().unwrap();
    });
}

/// Shared memory of two slots for each side, a data area of one cache line as a word that loom knows of,
/// and a bell for each side.
#[derive(Clone, Default)]
struct Memory(Arc<(Shared, sync::AtomicU64, [Bell; 2])>);

impl Area for Memory {
    fn shared(&self) -> &Shared {
        &self.0.0
    }

    fn address(&self, _side: usize, offset: usize) -> u64 {
        offset as u64
    }

    fn fill_bytes(&self, _side: usize, _offset: usize, bytes: &[u8]) {
        self.0.1.store(bytes[0].into(), sync::Ordering::Relaxed);
    }

    fn read_bytes(&self, _side: usize, _offset: usize, into: &mut [u8]) {
        into.fill(self.0.1.load(sync::Ordering::Relaxed) as u8);
    }
}

/// A side of the link, as the driver uses it.
struct End {
    duplex: Duplex<Memory>,
    memory: Memory,
}

/// The result of one look: a record's number, or a word.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Record(u64),
    Word(u64),
}

impl End {
    /// `data`: bytes of the data area.
    fn new(memory: &Memory, mine: usize, data: usize) -> End {
        let duplex = Duplex::sized(memory.clone(), mine, SLOTS, data);
        End { duplex, memory: memory.clone() }
    }

    /// Acknowledge, if there is a word for it, and wake the other side if it sleeps.
    fn acknowledge(&mut self, word: Option<u64>) {
        if self.duplex.acknowledge(word) {
            let bell = &self.memory.0.2[1 - self.duplex.mine()];
            *bell.rung.lock().unwrap() = true;
            bell.heard.notify_one();
        }
    }

    /// Take the next record, or the word beside them. Payloads are their record's number.
    fn look(&mut self) -> Option<News> {
        let mut small = [0; ring::SMALL];
        let mut elsewhere = 0;
        if self.duplex.read_small(&mut small, &mut elsewhere) == Ok(duplex::Next::Record) {
            let header = record::to_words(&small).and_then(Header::from_words).unwrap();
            let mut byte = [small[record::HEADER]];
            if elsewhere > 0 {
                self.memory.read_bytes(1 - self.duplex.mine(), 0, &mut byte);
            }
            assert_eq!(u64::from(byte[0]), header.address);
            return Some(News::Record(header.address));
        }
        if let Some(record) = self.duplex.read() {
            let record = record.unwrap();
            let mut room = [0; 256];
            let used = self.duplex.copy(&record.header, record.body, &mut room);
            assert!(
                room[record::HEADER..used]
                    .iter()
                    .all(|byte| u64::from(*byte) == record.header.address)
            );
            return Some(News::Record(record.header.address));
        }
        self.duplex.news_beside().unwrap().map(|header| News::Word(header.ack))
    }

    /// Look until there is something.
    fn spin(&mut self) -> News {
        loop {
            match self.look() {
                Some(news) => return news,
                None => loom::thread::yield_now(),
            }
        }
    }

    /// Look, and sleep as long as there is nothing.
    fn wait(&mut self) -> News {
        loop {
            if let Some(news) = self.look() {
                return news;
            }
            if self.duplex.fall_asleep() {
                let bell = &self.memory.0.2[self.duplex.mine()];
                let mut rung = bell.rung.lock().unwrap();
                while !*rung {
                    rung = bell.heard.wait(rung).unwrap(); // loom finds a sleep without an end
                }
                *rung = false;
            }
            self.duplex.wake_up();
        }
    }
}

/// A frame with the number `number`, whose payload lies in the data area if it is `large`.
fn frame(number: u8, large: bool) -> Vec<u8> {
    let length = if large { 64 } else { 8 };
    // Text is copied out of the data area; a Write would be named by its address.
    let (kind, flags) =
        if large { (RecordKind::Refuse, 0) } else { (RecordKind::Write, record::LAST) };
    let header = Header { flags, address: number.into(), length, ..Header::new(kind) };
    [&record::to_bytes(header.words())[..], &vec![number; length as usize]].concat()
}

/// The word beside the records is read after the records that were written before it; neither is slept
/// through.
#[test]
fn the_word_beside_the_records_comes_after_them_and_wakes() {
    loom::model(|| {
        let memory = Memory::default();
        let mut end = End::new(&memory, 1, 64);
        let writer = loom::thread::spawn(move || {
            let mut end = End::new(&memory, 0, 64);
            assert!(end.duplex.write(&mut frame(1, false), &mut 0));
            end.acknowledge(Some(7 << 32));
        });
        assert_eq!(end.wait(), News::Record(1));
        assert_eq!(end.wait(), News::Word(7 << 32));
        assert_eq!(end.look(), None);
        writer.join().unwrap();
    });
}

/// A record wakes when no word was written, and a word when no record was.
#[test]
fn a_record_or_a_word_alone_wakes() {
    for word in [None, Some(7 << 32)] {
        loom::model(move || {
            let memory = Memory::default();
            let mut end = End::new(&memory, 1, 64);
            let writer = loom::thread::spawn(move || {
                let mut end = End::new(&memory, 0, 64);
                if word.is_none() {
                    assert!(end.duplex.write(&mut frame(1, false), &mut 0));
                }
                end.acknowledge(word);
            });
            assert_eq!(end.wait(), word.map_or(News::Record(1), News::Word));
            writer.join().unwrap();
        });
    }
}

/// A place is written again only when its payload was read: the word that says so is written after that,
/// and read before the place is written.
#[test]
fn a_place_is_used_again_when_it_was_read() {
    loom::model(|| {
        let memory = Memory::default();
        let mut end = End::new(&memory, 1, 64);
        let writer = loom::thread::spawn(move || {
            let mut end = End::new(&memory, 0, 64);
            for number in 1..3 {
                let (mut bytes, mut written) = (frame(number, true), 0);
                while !end.duplex.write(&mut bytes, &mut written) {
                    assert!(matches!(end.spin(), News::Word(_)));
                }
            }
        });
        for number in 1..3 {
            assert_eq!(end.spin(), News::Record(number));
            end.acknowledge(Some(number));
        }
        writer.join().unwrap();
    });
}
