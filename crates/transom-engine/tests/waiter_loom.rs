//! Every interleaving of a thread that waits for a link over rings while another one polls it and the peer
//! writes (`link/mod.rs`, `Link::rearm` in `link/rearm.rs`), on the shipped source files.
//!
//! Seen to fail without the note for a waiter whose link is left unread (`Watch::note_unread`).
#![allow(missing_docs, dead_code, unreachable_pub)]

#[path = "../src/driver/schedule/combining_lock.rs"]
mod combining_lock;
#[path = "../src/driver/schedule/lease.rs"]
mod lease;
#[path = "../../transom-process/src/lending.rs"]
mod lending;
mod on_loom;
#[path = "../../transom-process/src/record.rs"]
mod record;
#[path = "../../transom-process/src/ring.rs"]
mod ring;
#[path = "../src/driver/schedule/watch.rs"]
mod watch;

use combining_lock::CombiningLock;
use loom::sync::Arc;
use loom::thread;
use on_loom::{bounded, sync};
use sync::{AtomicBool, AtomicU32, Ordering};
use transom_wire::Time;
use watch::Watch;

const RECEIVE: u32 = 1;
const FLUSH: u32 = 2;

/// A link, as far as a waiter is concerned. The ring is a count of records.
struct Link {
    /// Records read.
    lock: CombiningLock<u32>,
    todo: AtomicU32,
    watch: Watch,
    unread: AtomicBool,
    written: AtomicU32,
    asleep: AtomicU32,
    /// The three ways to wake a waiter: the peer's bell, its completion queue, the background
    /// thread.
    bell: AtomicBool,
    told: AtomicBool,
    noted: AtomicBool,
}

impl Link {
    fn new() -> Arc<Link> {
        Arc::new(Link {
            lock: CombiningLock::new(0),
            todo: AtomicU32::new(0),
            watch: Watch::new(std::time::Duration::ZERO),
            unread: AtomicBool::new(false),
            written: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            bell: AtomicBool::new(false),
            told: AtomicBool::new(false),
            noted: AtomicBool::new(false),
        })
    }

    /// The peer writes a record.
    fn write(&self) {
        self.written.fetch_add(1, Ordering::Release);
        if ring::must_ring(&self.asleep) {
            self.bell.store(true, Ordering::Release);
        }
    }

    fn has_news(&self, read: u32) -> bool {
        self.written.load(Ordering::Acquire) != read
    }

    fn take(&self, read: &mut u32) {
        if self.has_news(*read) {
            *read += 1;
            // The completion goes to a queue, which wakes its sleepers.
            self.told.store(true, Ordering::Release);
        }
    }

    fn pass(&self, read: &mut u32, bits: u32) {
        if bits & RECEIVE != 0 {
            self.take(read);
        }
        if bits & FLUSH != 0 {
            ring::fall_asleep(&self.asleep);
            let more = self.has_news(*read);
            if more {
                ring::wake_up(&self.asleep);
            }
            self.unread.store(more, Ordering::Relaxed);
        }
        let alarm = |_| self.noted.store(true, Ordering::Release);
        self.watch.note_unread(Time(0), false, self.unread.load(Ordering::Relaxed), alarm);
    }

    fn left_over(&self) -> u32 {
        self.todo.swap(0, Ordering::AcqRel)
    }

    fn poll(&self) {
        self.lock.attempt(|read| self.pass(read, RECEIVE | self.left_over()), |()| {});
    }

    /// Get ready to sleep. Whether something would end the sleep is to be asked when all is over.
    fn wait(&self) -> bool {
        self.watch.join();
        let mine = std::cell::Cell::new(RECEIVE | FLUSH);
        let leave = || {
            self.todo.fetch_or(mine.take(), Ordering::AcqRel);
        };
        let work = |read: &mut u32| self.pass(read, mine.take() | self.left_over());
        self.lock.drive(leave, work, |()| {});
        self.told.load(Ordering::Acquire) || self.unread.load(Ordering::Relaxed)
    }

    fn is_woken(&self) -> bool {
        [&self.bell, &self.told, &self.noted].iter().any(|way| way.load(Ordering::Acquire))
    }
}

#[test]
fn a_waiter_over_rings_is_not_forgotten_when_another_thread_polls() {
    bounded(3, || {
        let link = Link::new();
        let (peer, poller) = (link.clone(), link.clone());
        let peer = thread::spawn(move || peer.write());
        let poller = thread::spawn(move || poller.poll());
        let awake = link.wait();
        peer.join().unwrap();
        poller.join().unwrap();
        assert!(awake || link.is_woken(), "it sleeps, and the record is there");
    });
}
