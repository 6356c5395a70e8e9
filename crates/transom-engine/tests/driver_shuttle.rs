//! More of the driver at a time than loom can exhaust: a link over a ring, two threads that block in a
//! completion queue, one that polls, the background thread and a control call, all on the shipped source
//! files, in thousands of random schedules. No thread may sleep while a record or a completion
//! waits (shuttle reports threads that all sleep), and each record is taken once, in order.
//!
//! Seen to fail without the second look of `CombiningLock::drive`, without the look after the unlock, and without
//! the look again after a link has said that it sleeps. Shuttle runs one thread at a time: what barriers
//! are for is the loom models' part, and so is the note for a waiter whose link is left unread, which no
//! random schedule came to.
//!
//! Waiters are counted here as in `driver/schedule/watch.rs`, which `watch_loom.rs` has: with its
//! leases in between, a lost second look took more than ten times as many schedules to come up.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    /// Of a ring.
    pub(crate) const SLOTS: usize = 2;

    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0.get())
        }
    }
}
#[path = "../src/driver/schedule/combining_lock.rs"]
mod combining_lock;
#[path = "../../transom-process/src/lending.rs"]
mod lending;
#[path = "../../transom-process/src/record.rs"]
mod record;
#[path = "../../transom-process/src/ring.rs"]
mod ring;
#[path = "../src/driver/schedule/sleepers.rs"]
mod sleepers;

use std::cell::Cell;
use std::sync::Arc;

use combining_lock::CombiningLock;
use record::{Header, RecordKind};
use ring::{Body, Consumer, Found, Producer, SLOTS, Slot};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use sleepers::{Bell, Sleepers};
use sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Records that are sent.
const RECORDS: u64 = 3;
const SCHEDULES: usize = 1_500;

const RECEIVE: u32 = 1;
const FLUSH: u32 = 2;

/// The kernel's part: the peer's bell, the alarm of the background thread, threads' own bells.
#[derive(Default)]
struct Kernel {
    rung: Mutex<[bool; 5]>,
    changed: Condvar,
}

const SOCKET: usize = 0;
const ALARM: usize = 1;

impl Kernel {
    fn ring(&self, what: usize) {
        self.rung.lock().unwrap()[what] = true;
        self.changed.notify_all();
    }

    /// `poll_any`: until one of them rings; they fall silent.
    fn sleep(&self, on: &[usize]) {
        let mut rung = self.rung.lock().unwrap();
        while !on.iter().any(|what| rung[*what]) {
            rung = self.changed.wait(rung).unwrap();
        }
        for what in on {
            rung[*what] = false;
        }
    }
}

struct Doorbell(Arc<Kernel>, usize);

impl Bell for Doorbell {
    fn ring(&self) {
        self.0.ring(self.1);
    }
}

/// The state under the lock: the reading end, and what it has read.
struct Reader {
    consumer: Consumer,
    read: u64,
}

/// A side of a connection: a link with one completion queue.
struct End {
    kernel: Arc<Kernel>,
    slots: Vec<Slot>,
    acknowledged: AtomicU64,
    asleep: AtomicU32,
    lock: CombiningLock<Reader>,
    todo: AtomicU32,
    waiters: AtomicU32,
    unread: AtomicBool,
    entries: Mutex<Vec<u64>>,
    sleepers: Sleepers<Doorbell>,
    /// Completions that the program has retrieved.
    taken: Mutex<Vec<u64>>,
}

impl End {
    fn new() -> Arc<End> {
        Arc::new(End {
            kernel: Arc::default(),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            acknowledged: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            lock: CombiningLock::new(Reader { consumer: Consumer::new(SLOTS, 0), read: 0 }),
            todo: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            unread: AtomicBool::new(false),
            entries: Mutex::new(Vec::new()),
            sleepers: Sleepers::new(),
            taken: Mutex::new(Vec::new()),
        })
    }

    /// The peer.
    fn write_all(&self) {
        let mut producer = Producer::new(SLOTS, 0);
        for number in 0..RECORDS {
            let header = Header { address: number, ..Header::new(RecordKind::Write) };
            while !producer.publish(&self.slots, header.words(), Body::Inline([0; 4])) {
                let through = self.acknowledged.load(Ordering::Acquire);
                producer.consumed((through & 0xFFFF_FFFF) as u32).unwrap();
                thread::yield_now();
            }
            if ring::must_ring(&self.asleep) {
                self.kernel.ring(SOCKET);
            }
        }
    }

    fn step(&self, reader: &mut Reader) {
        while let Some(record) = reader.consumer.take(&self.slots) {
            let record = record.unwrap();
            assert_eq!((record.header.address, record.body), (reader.read, Found::Inline([0; 4])));
            reader.read += 1;
            self.acknowledged.store(reader.read, Ordering::Release);
            // `Cq::add` and `Cq::finish_batch`
            let mut entries = self.entries.lock().unwrap();
            entries.push(record.header.address);
            let asleep = self.sleepers.has_any();
            drop(entries);
            if asleep {
                self.sleepers.ring();
            }
        }
    }

    /// `Link::pass`, `LinkState::falls_asleep` and the end of `rearm`
    fn pass(&self, reader: &mut Reader, bits: u32) {
        if bits & RECEIVE != 0 {
            self.step(reader);
        }
        if bits & FLUSH != 0 {
            ring::fall_asleep(&self.asleep);
            let more = reader.consumer.has_next(&self.slots);
            if more {
                ring::wake_up(&self.asleep);
            }
            self.unread.store(more, Ordering::Relaxed);
        }
        if self.waiters.load(Ordering::Relaxed) != 0 && self.unread.load(Ordering::Relaxed) {
            self.kernel.ring(ALARM);
        }
    }

    fn left_over(&self) -> u32 {
        self.todo.swap(0, Ordering::AcqRel)
    }

    fn drive(&self, bits: u32) {
        let bits = Cell::new(bits);
        self.lock.drive(
            || {
                self.todo.fetch_or(bits.take(), Ordering::AcqRel);
            },
            |reader| self.pass(reader, bits.take() | self.left_over()),
            |()| {},
        );
    }

    fn poll(&self) {
        self.lock.attempt(|reader| self.pass(reader, RECEIVE | self.left_over()), |()| {});
    }

    /// Retrieve what is there; whether it was all that will ever come.
    fn retrieve(&self) -> bool {
        let mut entries = self.entries.lock().unwrap();
        let mut taken = self.taken.lock().unwrap();
        taken.append(&mut entries);
        let all = taken.len() as u64 == RECORDS;
        drop((entries, taken));
        if all {
            self.sleepers.wake();
            self.kernel.ring(ALARM);
        }
        all
    }

    /// A program that waits and retrieves until it has all: `Cq::wait`.
    fn block(&self, number: usize) {
        let bell = Arc::new(Doorbell(self.kernel.clone(), number));
        while !self.retrieve() {
            self.sleepers.join(&bell);
            let over = |end: &End| {
                !end.entries.lock().unwrap().is_empty()
                    || end.taken.lock().unwrap().len() as u64 == RECORDS
            };
            while !over(self) {
                // `Link::wait_here`
                self.waiters.fetch_add(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                self.drive(RECEIVE | FLUSH);
                if !over(self) && !self.unread.load(Ordering::Relaxed) {
                    self.kernel.sleep(&[SOCKET, number]);
                }
                self.waiters.fetch_sub(1, Ordering::Relaxed);
                self.poll();
                thread::yield_now();
            }
            self.sleepers.leave(&bell);
        }
    }

    /// The background thread: a time that was noted has come.
    fn serve(&self) {
        while (self.taken.lock().unwrap().len() as u64) < RECORDS {
            self.kernel.sleep(&[ALARM]);
            self.drive(RECEIVE | FLUSH);
        }
    }
}

/// A world of `waiters` threads that wait, and a thread that polls `polls` times.
fn world(waiters: usize, polls: usize) {
    let end = End::new();
    let start = |work: Box<dyn FnOnce(&End) + Send>| {
        let end = end.clone();
        thread::spawn(move || work(&end))
    };
    let mut threads = vec![start(Box::new(End::write_all)), start(Box::new(End::serve))];
    threads.extend((0..waiters).map(|n| start(Box::new(move |end| end.block(2 + n)))));
    threads.push(start(Box::new(move |end| {
        for _ in 0..polls {
            end.poll();
            end.retrieve();
        }
    })));
    if polls > 2 {
        threads.push(start(Box::new(|end| {
            // A control call, and what follows it.
            if end.lock.control(|reader| reader.read).1 {
                end.drive(0);
            }
        })));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*end.taken.lock().unwrap(), (0..RECORDS).collect::<Vec<_>>());
}

#[test]
fn no_thread_sleeps_while_something_waits() {
    for (waiters, polls) in [(1, 0), (1, 2), (2, 4)] {
        shuttle::check_random(move || world(waiters, polls), SCHEDULES);
        // Few changes of thread, at the worst places.
        shuttle::check_pct(move || world(waiters, polls), SCHEDULES, 3);
    }
}
