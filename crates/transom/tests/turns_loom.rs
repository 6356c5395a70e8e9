//! Every interleaving of threads that hand out completions (`src/turns.rs`) and threads that sleep
//! until there are some (`transom-engine/src/driver/schedule/sleepers.rs`): the shipped files on
//! loom's types.
//!
//! The models were seen to fail without the barrier of `Turns::take` (the first), without the one
//! of `Sleepers::wake` (the first and the third), without the one of `Sleepers::join` (the third),
//! and with `any` asked before the lock is taken (the second). That `take` looks again behind its
//! barrier they do not see: loom lets no thread run between a look and the barrier behind it.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../../transom-engine/tests/on_loom/mod.rs"]
mod on_loom;
#[path = "../../transom-engine/src/driver/schedule/sleepers.rs"]
mod sleepers;
#[path = "../src/turns.rs"]
mod turns;

use std::sync::Arc as StdArc;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use on_loom::{bounded, sync};
use sleepers::{Bell, Sleepers};
use turns::Turns;

/// An eventfd: rung until it is reset.
#[derive(Default)]
struct Doorbell(Mutex<bool>, Condvar);

impl Bell for Doorbell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

impl Doorbell {
    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap(); // loom finds a sleep without an end
        }
        *rung = false;
    }
}

/// A completion queue as `driver/objects/cq.rs` has it, and what was handed out of it.
struct Queue {
    entries: Mutex<u32>,
    filled: AtomicBool,
    sleepers: Sleepers<Doorbell>,
    turns: Turns,
    handed_out: AtomicU32,
}

impl Queue {
    fn new() -> Arc<Queue> {
        Arc::new(Queue {
            entries: Mutex::new(0),
            filled: AtomicBool::new(false),
            sleepers: Sleepers::new(),
            turns: Turns::new(),
            handed_out: AtomicU32::new(0),
        })
    }

    /// `Cq::add`, `Cq::fire`
    fn add(&self) {
        let mut entries = self.entries.lock().unwrap();
        *entries += 1;
        self.filled.store(true, Ordering::Release);
        let asleep = self.sleepers.has_any();
        drop(entries);
        if asleep {
            self.sleepers.ring();
        }
    }

    /// `Cq::take` of one
    fn take(&self) -> u32 {
        let mut entries = self.entries.lock().unwrap();
        let found = (*entries).min(1);
        *entries -= found;
        self.filled.store(*entries > 0, Ordering::Release);
        found
    }

    /// `Endpoint::hand_out`
    fn hand_out(&self) {
        while self.filled.load(Ordering::Acquire) {
            let Some(one) = self.turns.take() else { break };
            let found = self.take();
            self.handed_out.fetch_add(found, Ordering::Relaxed);
            self.turns.finish(one);
            self.sleepers.wake();
        }
    }

    /// `Endpoint::block` over `Cq::wait`
    fn block(&self, wanted: u32) {
        let bell = StdArc::new(Doorbell::default());
        loop {
            let seen = self.turns.count();
            self.hand_out();
            if self.handed_out.load(Ordering::Relaxed) >= wanted {
                return;
            }
            self.sleepers.join(&bell);
            let news = |queue: &Queue| *queue.entries.lock().unwrap() > 0;
            while !news(self) && self.turns.count() == seen {
                bell.wait();
            }
            self.sleepers.leave(&bell);
            thread::yield_now(); // who has the turn goes on
        }
    }
}

/// A thread that finds the turn taken goes: the thread that had it hands out what both saw.
#[test]
fn nothing_is_left_by_two_threads_that_hand_out() {
    bounded(3, || {
        let queue = Queue::new();
        let other = queue.clone();
        let t = thread::spawn(move || {
            other.add();
            other.hand_out();
        });
        queue.add();
        queue.hand_out();
        t.join().unwrap();
        assert_eq!(queue.handed_out.load(Ordering::Relaxed), 2);
    });
}

/// A thread that blocks finds what another one adds and leaves to it.
#[test]
fn no_thread_sleeps_through_a_completion() {
    bounded(3, || {
        let queue = Queue::new();
        let other = queue.clone();
        let t = thread::spawn(move || other.add());
        queue.block(1);
        t.join().unwrap();
    });
}

/// Nor through what another one hands out: then there is nothing in the queue to be woken by.
#[test]
fn no_thread_sleeps_through_what_another_hands_out() {
    bounded(3, || {
        let queue = Queue::new();
        let other = queue.clone();
        let t = thread::spawn(move || {
            other.add();
            other.hand_out();
        });
        queue.block(1);
        t.join().unwrap();
    });
}
