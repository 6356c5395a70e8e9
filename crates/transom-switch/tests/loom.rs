//! Every interleaving of `src/wait.rs`, the shipped file, on loom's atomics: no waiter sleeps through a
//! change, by the word or by a doorbell. And those of `src/session.rs` while a sender changes rings.
//!
//! The models were seen to fail without the barrier of `wake`, of `wake_sleepers`, of `arm` and of
//! `fall_asleep`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]
#![allow(missing_docs)]

#[path = "../src/layout.rs"]
mod layout;
#[path = "../src/session.rs"]
mod session;
#[path = "../src/wait.rs"]
mod wait;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use loom::sync::{Arc, Condvar, Mutex};
use sync::{AtomicU32, AtomicU64, Ordering};
use wait::{Rung, Wait};

/// A change, the word beside it, and what wakes: a bell in the kernel, and a queue on the word.
#[derive(Default)]
struct Way {
    wait: Wait,
    change: AtomicU32,
    bell: Mutex<u32>,
    rung: Condvar,
}

fn change(way: &Way) {
    way.change.fetch_add(1, Ordering::Release);
    let wake = way.wait.wake();
    if wake.doorbell {
        *way.bell.lock().unwrap() += 1;
        way.rung.notify_one();
    }
    if wake.sleepers {
        // A futex: a thread that sleeps on the old value is woken under the kernel's lock.
        let _queue = way.bell.lock().unwrap();
        way.rung.notify_all();
    }
}

#[test]
fn a_waiter_in_the_kernel_gets_a_doorbell() {
    loom::model(|| {
        let way = Arc::new(Way::default());
        let other = way.clone();
        let sender = loom::thread::spawn(move || change(&other));
        way.wait.arm();
        if way.change.load(Ordering::Acquire) == 0 {
            let mut bell = way.bell.lock().unwrap();
            while *bell == 0 {
                bell = way.rung.wait(bell).unwrap();
            }
        }
        assert_eq!(way.change.load(Ordering::Acquire), 1);
        sender.join().unwrap();
    });
}

/// A change that the kernel shows by itself: the end of a TCP connection.
fn close(way: &Way) {
    way.change.fetch_add(1, Ordering::Release);
    if way.wait.wake_sleepers() {
        let _queue = way.bell.lock().unwrap();
        way.rung.notify_all();
    }
}

fn a_sleeper_is_woken_by(change: fn(&Way)) {
    loom::model(move || {
        let way = Arc::new(Way::default());
        let other = way.clone();
        let sender = loom::thread::spawn(move || change(&other));
        let value = way.wait.fall_asleep();
        if way.change.load(Ordering::Acquire) == 0 {
            // The kernel compares under the lock of the queue, and sleeps.
            let queue = way.bell.lock().unwrap();
            if way.wait.word().load(Ordering::SeqCst) == value {
                let _queue = way.rung.wait(queue).unwrap();
            }
        }
        assert_eq!(way.change.load(Ordering::Acquire), 1);
        sender.join().unwrap();
    });
}

#[test]
fn a_sleeper_on_the_word_is_woken() {
    a_sleeper_is_woken_by(change);
}

#[test]
fn a_sleeper_on_the_word_is_woken_by_a_close() {
    a_sleeper_is_woken_by(close);
}

/// Another process may still hold the end that one has closed: its doorbells are due.
#[test]
fn a_close_takes_no_doorbell_away() {
    loom::model(|| {
        let way = Way::default();
        way.wait.arm();
        let value = way.wait.fall_asleep();
        assert!(way.wait.wake_sleepers() && !way.wait.wake_sleepers());
        assert_ne!(way.wait.word().load(Ordering::SeqCst), value, "a late sleep does not start");
        let wake = way.wait.wake();
        assert!(wake.doorbell && !wake.sleepers);
    });
}

/// A waiter has armed the doorbell, another one finds the change by itself: the first one still gets it.
#[test]
fn a_waiter_that_finds_the_change_does_not_take_the_doorbell_of_another() {
    loom::model(|| {
        let way = Arc::new(Way::default());
        let (sending, looking) = (way.clone(), way.clone());
        let sender = loom::thread::spawn(move || change(&sending));
        let looker = loom::thread::spawn(move || {
            looking.wait.arm();
            looking.change.load(Ordering::Acquire)
        });
        way.wait.arm();
        if way.change.load(Ordering::Acquire) == 0 {
            let mut bell = way.bell.lock().unwrap();
            while *bell == 0 {
                bell = way.rung.wait(bell).unwrap();
            }
        }
        looker.join().unwrap();
        sender.join().unwrap();
    });
}

/// Two sockets of a set that sleeps: what it has stored in them, and the set's own bell.
#[derive(Default)]
struct Set {
    ways: [(Wait, AtomicU32, AtomicU64); 2],
    bell: Mutex<u32>,
    rung: Condvar,
}

/// A thread that sleeps in a set again and again is woken for each of two changes that one process makes,
/// though one doorbell is enough for a sleep.
#[test]
fn a_set_that_sleeps_is_woken_for_each_of_its_sockets() {
    // All interleavings are too many; a lost doorbell needs few changes of the thread.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let set = Arc::new(Set::default());
        let other = set.clone();
        let sender = loom::thread::spawn(move || {
            let rung = [AtomicU64::new(0)];
            let rung = Rung(&rung);
            for (wait, change, sleep) in &other.ways {
                change.store(1, Ordering::Release);
                if wait.wake().doorbell {
                    let sleep = sleep.load(Ordering::SeqCst);
                    if !rung.has(sleep) {
                        *other.bell.lock().unwrap() += 1;
                        other.rung.notify_one();
                        rung.note(sleep);
                    }
                }
            }
        });
        let seen = || set.ways.each_ref().map(|way| way.1.load(Ordering::Acquire));
        let (mut known, mut heard) = ([0, 0], 0);
        for sleep in 1.. {
            for (wait, _, token) in &set.ways {
                token.store(sleep, Ordering::Relaxed);
                wait.arm();
            }
            if seen() == known {
                let mut bell = set.bell.lock().unwrap();
                while *bell == heard {
                    bell = set.rung.wait(bell).unwrap();
                }
                heard = *bell;
            }
            known = seen();
            if known == [1, 1] {
                break;
            }
        }
        sender.join().unwrap();
    });
}

/// A set whose socket is switched while a thread may sleep in it: the lock and the counter of sleepers of
/// `transom-sockets`, and the kernel's entry, which has the program's data throughout.
#[derive(Default)]
struct Switched {
    /// Whether the entry is one for doorbells.
    entry: Mutex<bool>,
    sleepers: AtomicU32,
    claimed: AtomicU32,
    ring: AtomicU32,
    wait: Wait,
    /// Whether the kernel has an event of the entry, and whoever sleeps for it.
    kernel: Mutex<bool>,
    event: Condvar,
}

impl Switched {
    fn report(&self) {
        *self.kernel.lock().unwrap() = true;
        self.event.notify_all();
    }

    /// The first steps of a thread that sleeps: under the lock of the set, behind its counting. Whether it found the
    /// byte.
    fn goes_cold(&self) -> bool {
        let switched = self.entry.lock().unwrap();
        if *switched {
            self.wait.arm();
        }
        *switched && self.ring.load(Ordering::Acquire) != 0
    }

    /// The thread that switches the connection changes the entry under the lock of the set.
    fn switch(&self) {
        self.claimed.store(1, Ordering::Release);
        let mut switched = self.entry.lock().unwrap();
        *switched = true;
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wait.arm();
            if self.ring.load(Ordering::Acquire) != 0 {
                self.report();
            }
        }
    }

    /// The peer sends by the ring once it may, and over TCP before: then the kernel has the event.
    fn send(&self) {
        if self.claimed.load(Ordering::Acquire) == 0 {
            return self.report();
        }
        self.ring.store(1, Ordering::Release);
        if self.wait.wake().doorbell {
            self.report();
        }
    }
}

/// Seen to fail with the counter counted up behind the lock of `goes_cold`, and where the switching thread does not
/// look at the ring.
#[test]
fn a_thread_that_sleeps_in_a_set_is_woken_though_its_socket_is_switched_meanwhile() {
    loom::model(|| {
        let set = Arc::new(Switched::default());
        let (switching, sending) = (set.clone(), set.clone());
        let switcher = loom::thread::spawn(move || switching.switch());
        let sender = loom::thread::spawn(move || sending.send());
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        if !set.goes_cold() {
            let mut event = set.kernel.lock().unwrap();
            while !*event {
                event = set.event.wait(event).unwrap();
            }
        }
        switcher.join().unwrap();
        sender.join().unwrap();
    });
}

/// The bytes of a side's first two rings: those of the small one all together, of the next one each by itself.
struct Rings([loom::cell::UnsafeCell<u8>; 4]);

// SAFETY: loom reports two threads that use a cell at once.
unsafe impl Sync for Rings {}
// SAFETY: numbers.
unsafe impl Send for Rings {}

impl Rings {
    fn cell(&self, at: &session::Stretches) -> &loom::cell::UnsafeCell<u8> {
        let place = at.first.0 - layout::ring_begin(SMALLEST, at.ring) as usize;
        // A ring is entered at the position at which the one before was left.
        if at.ring == 0 { &self.0[0] } else { &self.0[1 + place - SMALLEST as usize] }
    }
}

/// The size of the smallest ring, which one message fills.
const SMALLEST: u64 = 4096;

/// A thread with a stack for a header of atomics of loom's, in words: its own stacks have 32 KiB.
fn spawn(act: impl FnOnce() + Send + 'static) -> loom::thread::JoinHandle<()> {
    loom::thread::Builder::new().stack_size(1 << 16).spawn(act).unwrap()
}

fn sends(header: &layout::Header, rings: &Rings) {
    let session = session::Session::new(header, layout::Side::Active, SMALLEST);
    let put = |length: usize, byte: u8| {
        let room = session.room(length).unwrap();
        assert_eq!(room.length(), length);
        // SAFETY: no reader has these bytes.
        rings.cell(&room).with_mut(|cell| unsafe { *cell = byte });
        let _ = session.filled(length);
    };
    put(SMALLEST as usize, 1);
    session.change_to(session.larger().unwrap());
    put(1, 2);
    if let Some(smaller) = session.smaller() {
        session.change_to(smaller);
    }
    put(1, 3);
}

fn receives(header: &layout::Header, rings: &Rings) {
    let session = session::Session::new(header, layout::Side::Passive, SMALLEST);
    for (length, byte) in [(SMALLEST as usize, 1), (1, 2), (1, 3)] {
        let at = loop {
            let incoming = session.arrived().unwrap();
            let at = session.at(&incoming, 0, length).unwrap();
            if at.length() > 0 {
                break at;
            }
            loom::thread::yield_now();
        };
        assert_eq!(at.length(), length);
        // SAFETY: no sender has these bytes.
        assert_eq!(rings.cell(&at).with(|cell| unsafe { *cell }), byte);
        let _ = session.consumed(length);
    }
}

/// Writes two bytes into a large ring, as long as the reader lets it.
fn sends_deep(header: &layout::Header, memory: &Deep) -> usize {
    let session = session::Session::new(header, layout::Side::Active, SMALLEST);
    session.change_to(layout::LARGE);
    let mut sent = 0;
    let mut may = true;
    while sent < 2 && may {
        may = session.hold();
        if may {
            // SAFETY: no reader has this byte, and none gives it away.
            memory.0[sent].with_mut(|byte| unsafe { *byte = 1 + sent as u8 });
            let _ = session.filled(1);
            sent += 1;
        }
        if session.let_go().is_some() {
            memory.give_back();
        }
    }
    let _ = session.finish();
    sent
}

/// Reads them, and gives the memory back when it has read everything that there was.
fn receives_deep(header: &layout::Header, memory: &Deep) -> usize {
    let session = session::Session::new(header, layout::Side::Passive, SMALLEST);
    let mut got = 0;
    loop {
        let incoming = session.arrived().unwrap();
        let at = session.at(&incoming, 0, 1).unwrap();
        if at.length() == 0 {
            if incoming.finished {
                return got;
            }
            loom::thread::yield_now();
            continue;
        }
        // SAFETY: no sender has these bytes.
        assert_eq!(memory.0[got].with(|byte| unsafe { *byte }), 1 + got as u8);
        got += 1;
        assert_eq!(session.left_behind(&at), None);
        let _ = session.consumed(1);
        session.give_back(|_, _| memory.give_back());
    }
}

/// Memory of a large ring goes back while nobody writes there, and no byte with it; whatever the order, one of both
/// sides gives it back behind the last byte.
///
/// Seen to fail without each of the three barriers, and where `let_go` or `give_back` does not look at what is read.
#[test]
fn memory_of_a_large_ring_goes_back_with_no_byte() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let begin = spawn(|| {
            let header = layout::Header::default();
            header.prepare(SMALLEST, 7);
            let shared =
                Arc::new((header, Deep([0; 2].map(loom::cell::UnsafeCell::new), Mutex::default())));
            let other = shared.clone();
            let sender = spawn(move || {
                let sent = sends_deep(&other.0, &other.1);
                assert!(sent > 0, "nothing was read before");
            });
            let got = receives_deep(&shared.0, &shared.1);
            sender.join().unwrap();
            for byte in &shared.1.0 {
                // SAFETY: the other thread has ended.
                assert_eq!(byte.with(|byte| unsafe { *byte }), 0, "behind {got} bytes");
            }
        });
        begin.join().unwrap();
    });
}

/// The bytes of a large ring.
struct Deep([loom::cell::UnsafeCell<u8>; 2], Mutex<()>);

impl Deep {
    /// The kernel takes the memory: it is zeros from now on. Both sides may ask it at once.
    fn give_back(&self) {
        let _lock = self.1.lock().unwrap();
        for byte in &self.0 {
            // SAFETY: everything is read, and nobody writes.
            byte.with_mut(|byte| unsafe { *byte = 0 });
        }
    }
}

// SAFETY: loom reports two threads that use a cell at once.
unsafe impl Sync for Deep {}
// SAFETY: numbers.
unsafe impl Send for Deep {}

/// A sender goes from a ring to the next one and back, while its reader follows: no byte is written before the one
/// in its place is read, nor read before it is written, and all come in order.
///
/// Seen to fail where a ring is free before its reader has left it, and where what was written is published without
/// order.
#[test]
fn a_reader_follows_from_ring_to_ring() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let begin = spawn(|| {
            let header = layout::Header::default();
            header.prepare(SMALLEST, 7);
            let shared = Arc::new((header, Rings([0; 4].map(loom::cell::UnsafeCell::new))));
            let other = shared.clone();
            let sender = spawn(move || sends(&other.0, &other.1));
            receives(&shared.0, &shared.1);
            sender.join().unwrap();
        });
        begin.join().unwrap();
    });
}
