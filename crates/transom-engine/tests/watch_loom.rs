//! Every interleaving of the threads responsible for a link, on the shipped source files
//! (`driver/schedule/watch.rs`, `driver/schedule/lease.rs`, `driver/schedule/combining_lock.rs`):
//! threads that poll, threads that wait and go, the background thread when a noted time has come.
//! In the end the link is armed, or the alarm is set and the background thread arms it then.
//!
//! Seen to fail without the barriers of `Watch::due` and `Watch::leave`, with a `leave` that notes new leases
//! only, and with one that notes before it goes. (So it was: a thread that came to a halt between the two,
//! while the lease of another one ended, left no thread responsible.) None needs the barrier of
//! `Watch::join`.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/driver/schedule/combining_lock.rs"]
mod combining_lock;
#[path = "../src/driver/schedule/lease.rs"]
mod lease;
mod on_loom;
#[path = "../src/driver/schedule/watch.rs"]
mod watch;

use std::cell::Cell;
use std::time::Duration;

use combining_lock::CombiningLock;
use loom::sync::Arc;
use loom::thread;
use on_loom::{bounded, sync};
use sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use transom_wire::Time;
use watch::{Responsible, Watch};

const LEASE: u64 = 100;
const ARM: u32 = 1;

/// A link as far as it concerns who looks: `link/mod.rs`, and `Link::rearm` in `link/rearm.rs`. Nothing ever arrives.
struct Link {
    watch: Watch,
    lock: CombiningLock<()>,
    todo: AtomicU32,
    armed: AtomicBool,
    /// `Timers`: when the background thread will wake.
    alarm: Mutex<Option<Time>>,
}

impl Link {
    fn new() -> Arc<Link> {
        Arc::new(Link {
            watch: Watch::new(Duration::from_nanos(LEASE)),
            lock: CombiningLock::new(()),
            todo: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            alarm: Mutex::new(None),
        })
    }

    fn alarm(&self) -> impl FnOnce(Time) {
        |when| {
            let mut alarm = self.alarm.lock().unwrap();
            *alarm = Some(alarm.map_or(when, |noted| noted.min(when)));
        }
    }

    /// `rest`
    fn pass(&self, bits: u32, now: Time) {
        let waited = self.watch.is_waited_for();
        if !self.watch.stays_leased(now, self.alarm()) && bits & ARM != 0 && !waited {
            self.armed.store(true, Ordering::Relaxed);
        }
    }

    fn drive(&self, bits: u32, now: Time) {
        let bits = Cell::new(bits);
        self.lock.drive(
            || {
                self.todo.fetch_or(bits.take(), Ordering::AcqRel);
            },
            |()| self.pass(bits.take() | self.todo.swap(0, Ordering::AcqRel), now),
            |()| {},
        );
    }

    /// Most polls find nothing, and do not come to `rest` then.
    fn poll(&self, now: Time) {
        self.watch.take(now, self.alarm());
        self.lock.attempt(
            |()| {
                let left = self.todo.swap(0, Ordering::AcqRel);
                if left != 0 {
                    self.watch.set_at_work(true);
                    self.pass(left, now);
                    self.watch.set_at_work(false);
                }
            },
            |()| {},
        );
    }

    /// The background thread: `Shared::run`, `Link::due`.
    fn background(&self, now: Time) {
        if self.alarm.lock().unwrap().take().is_none() {
            return;
        }
        self.watch.due();
        match self.watch.responsible(now, self.alarm()) {
            Responsible::Waiter => self.drive(0, now),
            Responsible::Poller => {}
            Responsible::Background => self.drive(ARM, now),
        }
    }

    fn wait(&self, now: Time) {
        self.watch.join();
        self.drive(0, now);
    }

    fn leave(&self, now: Time) {
        self.watch.leave(now, self.alarm());
    }

    /// As time goes by: all threads have gone.
    fn assert_looked_after(&self) {
        loop {
            let Some(next) = *self.alarm.lock().unwrap() else { break };
            self.background(next);
        }
        assert!(self.armed.load(Ordering::Relaxed), "nobody looks any more");
    }
}

/// A lease is taken while the background thread looks whether the last one has lapsed.
#[test]
fn a_lease_taken_while_the_last_one_lapses_leaves_a_thread_responsible() {
    bounded(3, || {
        let link = Link::new();
        link.poll(Time(1));
        let other = link.clone();
        let background = thread::spawn(move || other.background(Time(101)));
        link.poll(Time(102));
        background.join().unwrap();
        link.assert_looked_after();
    });
}

/// A thread waits for a link that another one has polled; the lease ends; the thread goes.
#[test]
fn a_waiter_that_leaves_while_a_lease_ends_makes_a_thread_responsible() {
    // The waiter has read the clock before the background thread did, or after it.
    for goes in [150, 190, 230] {
        bounded(3, move || {
            let link = Link::new();
            link.poll(Time(1));
            link.poll(Time(90)); // until 190; what is noted is 101
            link.wait(Time(95));
            let other = link.clone();
            let background = thread::spawn(move || other.background(Time(200)));
            link.leave(Time(goes));
            background.join().unwrap();
            link.assert_looked_after();
        });
    }
}

/// A thread polls, another one waits and goes, and a time that was noted comes.
#[test]
fn a_poller_a_waiter_and_the_background_thread_leave_a_thread_responsible() {
    bounded(2, || {
        let link = Link::new();
        link.poll(Time(1));
        let (waiter, background) = (link.clone(), link.clone());
        let waiter = thread::spawn(move || {
            waiter.wait(Time(90));
            waiter.leave(Time(105));
        });
        let background = thread::spawn(move || background.background(Time(102)));
        link.poll(Time(95));
        waiter.join().unwrap();
        background.join().unwrap();
        link.assert_looked_after();
    });
}

/// Of two that wait, each goes when it likes.
#[test]
fn the_last_of_two_waiters_makes_a_thread_responsible() {
    bounded(3, || {
        let link = Link::new();
        link.poll(Time(1));
        link.wait(Time(50));
        link.wait(Time(50));
        let (one, background) = (link.clone(), link.clone());
        let one = thread::spawn(move || one.leave(Time(120)));
        let background = thread::spawn(move || background.background(Time(110)));
        link.leave(Time(120));
        one.join().unwrap();
        background.join().unwrap();
        link.assert_looked_after();
    });
}
