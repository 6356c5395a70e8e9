//! Every interleaving of threads that sleep in a completion queue and those that add to it, on the
//! shipped source files (`driver/objects/cq.rs`, `driver/schedule/sleepers.rs`, `driver/link/notifications.rs`). A thread that
//! slept through a completion, a failure or a `wake` would sleep for ever, which loom reports.
//!
//! Seen to fail with `Sleepers::any` asked before `add_all` takes the lock, with a `wait` that does
//! not look at the queue after it has joined the sleepers, with a look that ignores the failure of
//! the queue, and with an `add_all`, a `finish_batch` or a `cancel` that wakes no sleeper; and with a
//! `CompletionQueue::may_fire` that ignores the failure of its queue.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/driver/objects/cq.rs"]
mod cq;
#[path = "../src/driver/link/notifications.rs"]
mod notifications;
mod on_loom;
#[path = "../src/driver/schedule/sleepers.rs"]
mod sleepers;

use std::sync::Arc;

use cq::Cq;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use notifications::{Notifications, Sink};
use on_loom::{bounded, sync};
pub use transom_core::{
    Capacity, Completion, CompletionQueue, EndReason, Finished, Later, Moderation, NotifyKind,
    Status,
};

/// The operating system: an eventfd, and a sleep that ends when it is rung.
mod sys {
    use std::io;
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};
    use transom_wire::Time;

    #[derive(Debug)]
    pub struct Fd;

    #[derive(Debug)]
    pub struct Doorbell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Doorbell {
        pub fn new() -> io::Result<Doorbell> {
            Ok(Doorbell { rung: Mutex::new(false), changed: Condvar::new() })
        }

        /// A thread's bell outlives the model's run, loom's types do not: every wait makes its own.
        pub fn is_ours(&self) -> bool {
            false
        }

        pub fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_all();
        }

        pub fn silence(&self) -> bool {
            std::mem::take(&mut *self.rung.lock().unwrap())
        }
    }

    /// No queue that is slept in has a link, and no wait a limit: only the bell ends it.
    pub fn poll_any(_: &[(&Fd, bool)], bell: &Doorbell, limit: Option<Duration>) -> io::Result<()> {
        assert_eq!(limit, None);
        let mut rung = bell.rung.lock().unwrap();
        while !*rung {
            rung = bell.changed.wait(rung).unwrap();
        }
        Ok(())
    }

    pub fn now() -> Time {
        Time(1)
    }

    pub fn recently() -> Time {
        Time(1)
    }
}

/// Links, which are idle until they are ended.
mod link {
    use std::sync::Arc;

    use loom::sync::Mutex;
    use transom_wire::Time;

    use super::shared::Shared;
    use super::{EndReason, sys};

    #[derive(Debug)]
    pub struct Link {
        pub shared: Arc<Shared>,
        pub ended: Mutex<Option<EndReason>>,
    }

    pub struct Waiting;

    impl Link {
        pub fn new() -> Link {
            Link { shared: Arc::new(Shared), ended: Mutex::new(None) }
        }

        pub fn poll(&self, _: Time, _: u32) {}

        pub fn fail(&self, reason: EndReason) {
            self.ended.lock().unwrap().get_or_insert(reason);
        }

        pub fn is_over_rings(&self) -> bool {
            false
        }

        pub fn wait_here(self: &Arc<Link>) -> Waiting {
            Waiting
        }
    }

    impl Waiting {
        pub fn is_unread(&self) -> bool {
            false
        }

        pub fn interest(&self) -> Option<(&sys::Fd, bool)> {
            None
        }
    }
}

/// An adapter whose address goes: `Cq::removed` is called without it.
mod removal {
    pub trait Notifies {
        fn removed(&self);
    }
}

mod shared {
    use super::sys;

    #[derive(Debug)]
    pub struct Shared;

    pub struct ReadySetWaiter(Box<sys::Fd>);

    impl Shared {
        pub fn serve(&self) {}

        pub fn wait_for_ready_set(&self) -> ReadySetWaiter {
            ReadySetWaiter(Box::new(sys::Fd))
        }
    }

    impl ReadySetWaiter {
        pub fn fd(&self) -> &sys::Fd {
            &self.0
        }
    }
}

fn queue(depth: usize) -> Arc<Cq> {
    Arc::new(Cq::new(depth, Capacity::Exact))
}

fn completions(numbers: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = Completion> {
    numbers.map(|request_context| Completion { request_context, ..Completion::default() })
}

/// A link's pass adds a batch, and fires after its lock is dropped.
fn add_all(queue: &Arc<Cq>, numbers: std::ops::RangeInclusive<u64>) {
    let mut notifications = Notifications::default();
    queue.add_all(completions(numbers), &mut notifications);
    notifications.fire();
}

/// Retrieve what is there.
fn take(queue: &Cq) -> Vec<u64> {
    let mut results = [Completion::default(); 4];
    let found = queue.take(&mut results);
    results[..found].iter().map(|one| one.request_context).collect()
}

/// A program that waits for so many completions.
fn retrieve(queue: &Cq, wanted: usize) -> Vec<u64> {
    let mut found = Vec::new();
    while found.len() < wanted {
        assert!(queue.wait(None, &|| false).unwrap());
        found.extend(take(queue));
    }
    found
}

#[test]
fn a_sleeper_is_woken_by_every_batch() {
    bounded(3, || {
        let queue = queue(4);
        let other = queue.clone();
        let adder = thread::spawn(move || {
            add_all(&other, 1..=2);
            add_all(&other, 3..=3);
        });
        assert_eq!(retrieve(&queue, 3), [1, 2, 3]);
        adder.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken_when_a_batch_that_was_added_one_by_one_is_finished() {
    bounded(3, || {
        let queue = queue(4);
        let other = queue.clone();
        let adder = thread::spawn(move || {
            let mut notifications = Notifications::default();
            completions(1..=2).for_each(|one| other.add(one));
            other.finish_batch(&mut notifications);
            notifications.fire();
        });
        assert_eq!(retrieve(&queue, 2), [1, 2]);
        adder.join().unwrap();
    });
}

/// Every batch wakes both threads. A thread that finds the queue empty again sleeps on until the
/// other one has retrieved the rest.
#[test]
fn two_sleepers_are_woken() {
    bounded(2, || {
        let queue = queue(4);
        let taken = Arc::new(AtomicU32::new(0));
        let waiter = |queue: &Arc<Cq>| {
            let (queue, taken) = (queue.clone(), taken.clone());
            move || {
                let over = || taken.load(Ordering::Acquire) == 2;
                while !over() {
                    assert!(queue.wait(None, &over).unwrap());
                    let found = take(&queue).len();
                    taken.fetch_add(u32::try_from(found).unwrap(), Ordering::AcqRel);
                    // The other thread may wait for what was retrieved here.
                    queue.wake();
                }
            }
        };
        let (one, two) = (thread::spawn(waiter(&queue)), thread::spawn(waiter(&queue)));
        add_all(&queue, 1..=1);
        add_all(&queue, 2..=2);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(taken.load(Ordering::Acquire), 2);
    });
}

#[test]
fn a_sleeper_is_woken_by_the_failure_of_its_queue() {
    bounded(3, || {
        let queue = queue(0);
        let other = queue.clone();
        let adder = thread::spawn(move || add_all(&other, 1..=1));
        assert!(queue.wait(None, &|| false).unwrap());
        assert_eq!(queue.queue().failure(), Some(Status::QueueOverrun));
        adder.join().unwrap();
    });
}

/// A queue on which nothing waits still has links, whose queue pairs are to be ended.
#[test]
fn a_queue_that_runs_over_ends_its_links_though_no_notification_waits() {
    type Add = fn(&Arc<Cq>, &mut Notifications);
    let ways: [Add; 3] = [
        |queue, to| queue.add_one(Completion::default(), to),
        |queue, to| queue.add_all(completions(2..=2), to),
        |queue, to| {
            queue.add(Completion::default());
            queue.finish_batch(to);
        },
    ];
    for add in ways {
        bounded(3, move || {
            let queue = queue(1);
            let link = Arc::new(link::Link::new());
            queue.attach(&link);
            let other = queue.clone();
            let adder = thread::spawn(move || add_all(&other, 1..=1));
            let mut notifications = Notifications::default();
            add(&queue, &mut notifications);
            notifications.fire();
            adder.join().unwrap();
            assert_eq!(queue.queue().failure(), Some(Status::QueueOverrun));
            assert_eq!(*link.ended.lock().unwrap(), Some(EndReason::Overrun));
        });
    }
}

#[test]
fn a_sleeper_is_woken_by_cancel_and_looks_at_its_own_condition() {
    bounded(3, || {
        let queue = queue(4);
        let canceled = Arc::new(AtomicU32::new(0));
        let (other, cancel) = (queue.clone(), canceled.clone());
        let thread = thread::spawn(move || {
            cancel.store(1, Ordering::Relaxed);
            other.cancel();
        });
        assert!(queue.wait(None, &|| canceled.load(Ordering::Relaxed) == 1).unwrap());
        thread.join().unwrap();
    });
}

/// A notification is asked for while completions come: it ends once, in either order.
#[test]
fn a_notification_that_is_asked_for_while_completions_come_ends_once() {
    bounded(3, || {
        let queue = queue(4);
        let ended = Arc::new(AtomicU32::new(0));
        let other = queue.clone();
        let adder = thread::spawn(move || add_all(&other, 1..=1));
        let count = ended.clone();
        let sink = Sink::call(move |status| {
            assert_eq!(status, Status::Success);
            count.fetch_add(1, Ordering::Relaxed);
        });
        queue.notify(NotifyKind::Any, sink);
        adder.join().unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    });
}
