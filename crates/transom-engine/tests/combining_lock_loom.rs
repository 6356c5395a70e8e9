//! Every interleaving of the post protocol, on the shipped source file.
#![allow(missing_docs, dead_code)]

#[path = "../src/driver/schedule/combining_lock.rs"]
mod combining_lock;
mod on_loom;

use combining_lock::CombiningLock;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use on_loom::{bounded, sync};

/// A queue that every thread may fill, and a count of what was taken from it under the lock.
struct Shared {
    queued: AtomicU32,
    sent: AtomicU32,
    lock: CombiningLock<u32>,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            queued: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            lock: CombiningLock::new(0),
        })
    }
    /// As a link does it: the work goes straight into the pass, or is left for the thread that
    /// makes it.
    fn drive(&self, count: u32) {
        let mine = std::cell::Cell::new(count);
        let leave = || {
            self.queued.fetch_add(mine.take(), Ordering::AcqRel);
        };
        let work = |done: &mut u32| {
            *done += mine.take() + self.queued.swap(0, Ordering::AcqRel);
            // The pass goes on for a while after it has looked: others find the lock taken.
            self.sent.fetch_add(1, Ordering::AcqRel);
        };
        self.lock.drive(leave, work, |()| {});
    }
    fn post(&self) {
        self.drive(1);
    }
    fn control(&self) {
        let ((), left) = self.lock.control(|_| ());
        if left {
            self.drive(0);
        }
    }
    /// A post of a few bytes: with the lock at once, or as any other.
    fn post_short(&self) {
        let work = |done: &mut u32| {
            *done += 1;
            self.sent.fetch_add(1, Ordering::AcqRel); // others find the lock taken
        };
        match self.lock.try_with(work) {
            Some(((), false)) => {}
            Some(((), true)) => self.drive(0),
            None => self.post(),
        }
    }
    fn done(&self) -> u32 {
        self.lock.control(|done| *done).0
    }
}

/// Decision 4: a post that loses the `try_lock` is done by the holder.
#[test]
fn no_post_is_lost_between_two_posters() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let t = thread::spawn(move || other.post());
        shared.post();
        t.join().unwrap();
        assert_eq!(shared.done(), 2);
    });
}

/// A control call makes progress stay away; what was posted meanwhile is done after it.
#[test]
fn no_post_is_lost_against_a_control_call() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let t = thread::spawn(move || other.post());
        shared.control();
        t.join().unwrap();
        assert_eq!(shared.done(), 1);
    });
}

/// Work left while a small post holds the lock is done after it.
#[test]
fn no_post_is_lost_against_a_short_one() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let t = thread::spawn(move || other.post());
        shared.post_short();
        t.join().unwrap();
        assert_eq!(shared.done(), 2);
    });
}

#[test]
fn no_post_is_lost_among_three() {
    bounded(2, || {
        let shared = Shared::new();
        let (a, b) = (shared.clone(), shared.clone());
        let t = thread::spawn(move || a.post());
        let u = thread::spawn(move || b.control());
        shared.post();
        t.join().unwrap();
        u.join().unwrap();
        assert_eq!(shared.done(), 2);
    });
}
