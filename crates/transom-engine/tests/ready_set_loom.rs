//! Every interleaving of the threads that serve many links, on the shipped source files
//! (`ready_set.rs`, `serve.rs`, `watch.rs` and `lease.rs` of `driver/schedule`): a thread
//! that serves those that are ready, one that waits and goes, the background thread. In the
//! end every link is armed and the background thread waits for them, or the alarm is set and this
//! is so after it.
//!
//! Seen to fail without the second lease of `Shared::serve`, with a link that is listed before it is served,
//! with a background thread or a waiter that does not arm what is listed, and without the barriers of
//! `Watch::due` and `Lease::take`.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/driver/schedule/lease.rs"]
mod lease;
mod on_loom;
#[path = "../src/driver/schedule/ready_set.rs"]
mod ready_set;
#[path = "../src/driver/schedule/serve.rs"]
mod serve;
#[path = "../src/driver/schedule/watch.rs"]
mod watch;

use std::sync::Arc;
use std::time::Duration;

use link::Link;
use loom::thread;
use on_loom::{bounded, sync};
use ready_set::ReadySet;
use shared::{Epoll, Shared};
use sync::{AtomicBool, Mutex, Ordering};
use transom_wire::Time;

/// The clock, as each thread reads it.
mod sys {
    use std::cell::Cell;
    use transom_wire::Time;

    pub struct Fd;

    loom::thread_local! {
        static NOW: Cell<u64> = Cell::new(0);
    }

    pub fn now() -> Time {
        NOW.with(|now| Time(now.get()))
    }

    pub fn set(now: u64) {
        NOW.with(|place| place.set(now));
    }
}

mod link {
    use super::source::Source;
    use super::{AtomicBool, Ordering, sys};
    use transom_wire::Time;

    /// Armed or not: `Link::serve` leaves it for later, `Link::finish_served` does it.
    #[derive(Debug)]
    pub struct Link {
        pub armed: AtomicBool,
        /// How long it takes to serve it.
        pub takes: u64,
    }

    impl Source for Link {
        fn serve(&self, _: Time) -> bool {
            self.armed.store(false, Ordering::Relaxed);
            sys::set(sys::now().0 + self.takes);
            true
        }

        fn finish_served(&self) {
            self.armed.store(true, Ordering::Relaxed);
        }
    }
}

mod source {
    use super::Time;

    /// The calls of the set on a link.
    pub trait Source: std::fmt::Debug + Send + Sync {
        fn serve(&self, now: Time) -> bool;
        fn finish_served(&self);
    }
}

mod shared {
    use super::source::Source;
    use super::{Arc, Link, Mutex, ReadySet, Time, sys};

    /// Readiness of the only link, reported once.
    pub struct Epoll(pub Mutex<bool>);

    impl Epoll {
        pub fn look(&self, ready: &mut [u64]) -> usize {
            let any = std::mem::take(&mut *self.0.lock().unwrap());
            if any {
                ready[0] = 3;
            }
            usize::from(any)
        }

        pub fn fd(&self) -> &sys::Fd {
            &sys::Fd
        }
    }

    pub struct Shared {
        pub ready_set: ReadySet,
        pub epoll: Epoll,
        pub one: Arc<Link>,
        pub alarm: Mutex<Option<Time>>,
    }

    impl Shared {
        pub fn source(&self, _: u64) -> Option<Arc<dyn Source>> {
            Some(self.one.clone())
        }

        /// The budget of a pass is not modelled.
        pub(crate) fn are_ready(&self, _: impl Iterator<Item = u64>) {}

        pub fn ready(&self, _: u64, _: Time) {}

        pub fn ready_set_alarm(&self) -> impl FnOnce(Time) {
            |when| {
                let mut alarm = self.alarm.lock().unwrap();
                *alarm = Some(alarm.map_or(when, |noted| noted.min(when)));
            }
        }
    }
}

/// A world whose link is `ready` or not; serving it takes `takes`.
fn world(ready: bool, takes: u64) -> Arc<Shared> {
    Arc::new(Shared {
        ready_set: ReadySet::new(Duration::from_nanos(100)),
        epoll: Epoll(Mutex::new(ready)),
        one: Arc::new(Link { armed: AtomicBool::new(true), takes }),
        alarm: Mutex::new(None),
    })
}

impl Shared {
    /// `Shared::run`, once: whether it waits for the links now.
    fn run(&self, now: u64) -> bool {
        sys::set(now);
        if self.alarm.lock().unwrap().take().is_some() {
            self.ready_set.is_due();
        }
        !self.ready_set.has_poller(self.ready_set_alarm())
    }

    /// As time goes by: all threads have gone but the background thread, which waits for the links
    /// or not.
    fn assert_looked_after(&self, mut waits: bool) {
        loop {
            let Some(next) = *self.alarm.lock().unwrap() else { break };
            waits = self.run(next.0);
        }
        assert!(waits, "nobody waits for the links");
        assert!(self.is_armed(), "nobody arms what was served");
    }

    fn is_armed(&self) -> bool {
        self.one.armed.load(Ordering::Relaxed)
    }
}

#[test]
fn a_link_served_while_a_lease_lapses_is_armed() {
    // The lease of the first call lasts until 101. A round may take longer than the lease.
    for (now, takes) in [((101, 102), 0), ((140, 102), 0), ((101, 60), 100), ((230, 60), 200)] {
        bounded(3, move || {
            let shared = world(false, takes);
            sys::set(1);
            shared.serve();
            *shared.epoll.0.lock().unwrap() = true;
            let other = shared.clone();
            let background = thread::spawn(move || other.run(now.0));
            sys::set(now.1);
            shared.serve();
            shared.assert_looked_after(background.join().unwrap());
        });
    }
}

#[test]
fn a_waiter_that_leaves_makes_a_thread_responsible() {
    for (background, goes) in [(102, 105), (200, 105), (200, 230)] {
        bounded(3, move || {
            let shared = world(true, 0);
            sys::set(1);
            shared.serve();
            *shared.epoll.0.lock().unwrap() = true;
            let waiting = shared.wait_for_ready_set();
            assert!(shared.is_armed(), "what this thread sleeps on");
            let other = shared.clone();
            let background = thread::spawn(move || other.run(background));
            sys::set(goes);
            drop(waiting);
            shared.assert_looked_after(background.join().unwrap());
        });
    }
}

#[test]
fn a_poller_a_waiter_and_the_background_thread_leave_a_thread_responsible() {
    bounded(2, || {
        let shared = world(true, 0);
        sys::set(1);
        shared.serve();
        *shared.epoll.0.lock().unwrap() = true;
        let (waiter, background) = (shared.clone(), shared.clone());
        let waiter = thread::spawn(move || {
            sys::set(95);
            let waiting = waiter.wait_for_ready_set();
            sys::set(105);
            drop(waiting);
        });
        let background = thread::spawn(move || background.run(102));
        sys::set(98);
        shared.serve();
        waiter.join().unwrap();
        shared.assert_looked_after(background.join().unwrap());
    });
}
