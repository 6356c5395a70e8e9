//! Every interleaving of the rings (`src/ring.rs`, the shipped file) on loom's atomics: no record is
//! lost, torn or seen twice, and nobody sleeps through one.
//!
//! The first model was seen to fail without the release in `publish`; the second without the barrier of
//! `fall_asleep`, and without the one of `must_ring`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]
#![allow(missing_docs)]

#[path = "../src/record.rs"]
mod record;
#[path = "../src/ring.rs"]
mod ring;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use loom::sync::{Arc, Condvar, Mutex};
use record::{Header, Kind};
use ring::{Body, Consumer, Found, Producer, Slot};

/// Two slots, an acknowledgement, and a bell: what is between a writer and a reader.
#[derive(Default)]
struct Way {
    slots: [Slot; 2],
    ack: sync::AtomicU64,
    asleep: sync::AtomicU32,
}

fn header(number: u64) -> Header {
    let (length, flags) = if number == 1 { (100, 0) } else { (8, record::LAST) };
    Header { address: number, length, flags, ack: !number, ..Header::new(Kind::Write) }
}

/// Data areas are written by ordinary stores; here by one that loom knows of.
type Data = [sync::AtomicU64; 2];

#[test]
fn a_record_is_read_once_and_whole() {
    loom::model(|| {
        let way = Arc::new(Way::default());
        let data: Arc<Data> = Arc::default();
        let (w, d) = (way.clone(), data.clone());
        let writer = loom::thread::spawn(move || {
            let mut producer = Producer::new(2, 128);
            for number in 0..3_u64 {
                loop {
                    let through = w.ack.load(sync::Ordering::Acquire);
                    producer.consumed(through as u32).unwrap();
                    if producer.has_room(header(number).length as usize) {
                        break;
                    }
                    loom::thread::yield_now();
                }
                let body = if number == 1 {
                    assert_eq!(producer.place(100), Some(0));
                    d[0].store(77, sync::Ordering::Relaxed);
                    Body::Placed(100)
                } else {
                    Body::Inline([number; 4])
                };
                assert!(producer.publish(&w.slots, header(number).words(), body));
            }
        });
        let mut consumer = Consumer::new(2, 128);
        for number in 0..3_u64 {
            if number == 2 {
                // The last one is a small Write in a slot that is used again.
                let (mut first, mut rest) = ([0; record::HEADER], [0; ring::INLINE]);
                while !consumer.take_small(&way.slots, &mut first, &mut rest) {
                    loom::thread::yield_now();
                }
                assert_eq!(Header::from_words(record::words_of(&first)), Some(header(number)));
                assert_eq!(rest, record::to_bytes([number; 4]));
                continue;
            }
            let record = loop {
                match consumer.take(&way.slots) {
                    Some(record) => break record.unwrap(),
                    None => loom::thread::yield_now(),
                }
            };
            assert_eq!(record.header, header(number));
            match record.body {
                Found::Inline(words) => assert_eq!(words, [number; 4]),
                Found::At(offset) => {
                    assert_eq!((number, offset), (1, 0));
                    assert_eq!(data[0].load(sync::Ordering::Relaxed), 77);
                }
            }
            way.ack.store(number + 1, sync::Ordering::Release);
        }
        assert!(!consumer.has_next(&way.slots));
        writer.join().unwrap();
    });
}

/// The bell of a sleeper: a socket, in the engine.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

#[test]
fn nobody_sleeps_through_a_record() {
    loom::model(|| {
        // A side as it is, but for the number of its slots: the calls are those of `ring::Side`.
        let way = Arc::new(Way::default());
        let bell = Arc::new(Bell::default());
        let (w, b) = (way.clone(), bell.clone());
        let writer = loom::thread::spawn(move || {
            let mut producer = Producer::new(2, 128);
            for number in 0..2_u64 {
                assert!(producer.publish(&w.slots, header(0).words(), Body::Inline([number; 4])));
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
