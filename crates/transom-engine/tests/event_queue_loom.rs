//! Every interleaving of a link's events and their delivery, on the shipped source file
//! (`driver/link/event_queue.rs`): completions that go straight to their queue, deferred events
//! that wait until the link's lock is dropped, owners that change and go. Each is reported once and
//! in order (ND2 4.9).
//!
//! Seen to fail without the look at `has_deferred` or the one at `delivering` in `EventQueue::post` (the
//! first), without the lock of the reader (the second and the third: so it was), without the question whose
//! events they are (the third), with a mark that is taken back outside of the lock (all but the first), and
//! with a queue pair that does not wait for what is deferred (the last).
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/driver/link/event_queue.rs"]
mod event_queue;
mod on_loom;
#[path = "../src/driver/link/queues.rs"]
mod queues;

use loom::thread;
use on_loom::{bounded, sync};
use std::sync::{Arc, Weak};
use sync::Mutex;
pub use transom_core::{
    Completion, ConnectionEvent, Effect, Effects, EndReason, Finished, SharedReceives, Side, Status,
};

/// The result of a link that is gone.
#[derive(Debug)]
pub struct Execution;

/// The events delivered, by number, in order.
type Heard = Arc<Mutex<Vec<u64>>>;

mod notifications {
    /// Notifications do nothing in this model.
    #[derive(Debug, Default)]
    pub struct Notifications(());

    impl Notifications {
        pub fn later(&mut self, _: &mut Vec<transom_core::Later>) {}

        pub fn fire(self) {}
    }
}

/// Where peers offer shared memory: not in this model.
mod upgrade {
    pub struct UpgradeListener;
}

mod qp {
    use super::notifications::Notifications;
    use super::queues::{Queues, QueuesOverview};
    use super::{Completion, Effect, Execution, GIVEN_BACK, SharedReceives, Side, link::Link};

    #[derive(Debug)]
    pub struct Qp(pub super::Heard);

    impl Queues for Qp {
        fn number(&self) -> transom_memory::QueuePairId {
            transom_memory::QueuePairId(2)
        }

        fn resets(&self) -> u64 {
            0
        }

        fn is_waiting(&self) -> bool {
            false
        }

        fn carry(&self, _: &mut Execution) {}

        fn overview(&self) -> QueuesOverview {
            QueuesOverview { requests: (0, 0), receives: (0, 0) }
        }

        fn shared_receives(&self) -> Option<&dyn SharedReceives> {
            None
        }

        fn settled(&self) {}

        fn complete_batch(&self, batch: &mut Vec<Effect>, _: &mut Notifications) {
            for effect in batch.drain(..) {
                let Effect::Complete(side, completion) = effect else { unreachable!() };
                self.complete(side, completion);
            }
        }

        fn complete(&self, _: Side, completion: Completion) {
            self.0.lock().unwrap().push(completion.request_context);
        }

        fn look_again(&self) {}

        fn leave(&self, _: &Link) {}

        fn finish_batch(&self, _: &mut Notifications) {}

        fn reclaim(&self, _: Execution, _: &mut Notifications) {
            self.0.lock().unwrap().push(GIVEN_BACK);
        }
    }
}

/// A connector or a listener, with its lock: both do the same as far as events are concerned.
#[derive(Debug)]
struct Reader {
    lock: Mutex<()>,
    heard: Heard,
    /// Added to the numbers delivered to it.
    voice: u64,
}

impl Reader {
    fn connector(heard: &Heard) -> Arc<Reader> {
        Arc::new(Reader { lock: Mutex::new(()), heard: heard.clone(), voice: 0 })
    }

    fn listener(heard: &Heard) -> Arc<Reader> {
        Arc::new(Reader { lock: Mutex::new(()), heard: heard.clone(), voice: HEARD_BY_LISTENER })
    }
}

impl Owner for Reader {
    fn deliver(self: Arc<Self>, link: &Link) {
        let mut notifications = notifications::Notifications::default();
        let mine = || std::ptr::addr_eq(link.owner().as_ptr(), Arc::as_ptr(&self));
        let lock = self.lock.lock().unwrap();
        link.events.read(
            &mut notifications,
            |delivery, _| {
                self.heard.lock().unwrap().push(match delivery {
                    Delivery::Finished(finished) => finished.waiter + self.voice,
                    Delivery::Gone => GONE,
                    Delivery::Event(_) => unreachable!(),
                });
            },
            mine,
        );
        drop(lock);
    }

    fn release(self: Arc<Self>) {}

    fn upgrades(&self) -> Option<Arc<upgrade::UpgradeListener>> {
        None
    }
}

mod link {
    use super::event_queue::{EventQueue, Owner};
    use super::queues::Queues;
    use super::{Execution, Mutex, Step, effects, notifications};
    use std::sync::{Arc, Weak};

    #[derive(Debug)]
    pub struct Link {
        /// The state under the lock of a link: the number of the next effect.
        pub state: Mutex<u64>,
        pub events: EventQueue,
        pub owner: Mutex<Weak<dyn Owner>>,
        pub qp: Arc<dyn Queues>,
    }

    impl Link {
        pub fn owner(&self) -> Weak<dyn Owner> {
            self.owner.lock().unwrap().clone()
        }

        /// A pass that decides so much: the number of the last of it. What it has for owners waits.
        pub fn decide(&self, steps: &[Step]) -> u64 {
            let mut notifications = notifications::Notifications::default();
            let mut next = self.state.lock().unwrap();
            self.events.post(&mut effects(steps, &mut next), Some(&self.qp), &mut notifications);
            *next
        }

        /// A pass that decides so much, and delivers.
        pub fn pass(&self, steps: &[Step]) {
            self.decide(steps);
            self.deliver();
        }

        /// The last one: `tear_down`.
        pub fn end(&self) {
            let mut notifications = notifications::Notifications::default();
            {
                let _state = self.state.lock().unwrap();
                self.events.detach(self.qp.clone(), Execution, &mut notifications);
                self.events.close();
            }
            notifications.fire();
            self.deliver();
        }
    }
}

use event_queue::{Delivery, EventQueue, Owner};
use link::Link;
use qp::Qp;

const GIVEN_BACK: u64 = 1000;
const GONE: u64 = 1001;
const HEARD_BY_LISTENER: u64 = 100;

#[derive(Clone, Copy)]
pub enum Step {
    Complete,
    Tell,
}
use Step::{Complete, Tell};

fn effects(steps: &[Step], next: &mut u64) -> Effects {
    let mut effects = Effects::default();
    for step in steps {
        *next += 1;
        match step {
            Complete => {
                let completion = Completion { request_context: *next, ..Completion::default() };
                effects.complete(Side::Initiator, completion);
            }
            Tell => {
                let finished = Finished { waiter: *next, status: Status::Success };
                effects.list.push(Effect::Finished(finished));
            }
        }
    }
    effects
}

fn link(owner: Weak<dyn Owner>, heard: &Heard) -> Arc<Link> {
    Arc::new(Link {
        state: Mutex::new(0),
        events: EventQueue::default(),
        owner: Mutex::new(owner),
        qp: Arc::new(Qp(heard.clone())),
    })
}

fn downgrade(reader: &Arc<Reader>) -> Weak<dyn Owner> {
    let weak: Weak<Reader> = Arc::downgrade(reader);
    weak
}

fn assert_all_in_order(heard: &Heard, last: u64) {
    assert_eq!(*heard.lock().unwrap(), (1..=last).collect::<Vec<_>>());
}

/// No completion overtakes a deferred event, or one that waited behind it.
#[test]
fn the_events_of_two_passes_are_delivered_in_order() {
    bounded(3, || {
        let heard = Heard::default();
        let connector = Reader::connector(&heard);
        let link = link(downgrade(&connector), &heard);
        let other = link.clone();
        link.decide(&[Tell, Complete]);
        let thread = thread::spawn(move || other.deliver());
        link.pass(&[Complete]);
        thread.join().unwrap();
        assert_all_in_order(&heard, 3);
    });
}

/// Requests without an owner, whose lock would let one thread at a time read.
#[test]
fn requests_without_an_owner_complete_in_order() {
    bounded(3, || {
        let heard = Heard::default();
        let link = link(Weak::<Reader>::new(), &heard);
        let other = link.clone();
        let thread = thread::spawn(move || other.pass(&[Tell, Complete, Complete]));
        link.pass(&[Tell, Complete]);
        thread.join().unwrap();
        // Events for the connector are dropped.
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 3);
        assert!(heard.is_sorted(), "{heard:?}");
    });
}

/// A listener hands a link over to a connector while events are read.
#[test]
fn a_change_of_owner_loses_and_reorders_nothing() {
    bounded(3, || {
        let heard = Heard::default();
        let (listener, connector) = (Reader::listener(&heard), Reader::connector(&heard));
        let link = link(downgrade(&listener), &heard);
        let other = link.clone();
        let thread = thread::spawn(move || other.pass(&[Tell, Complete]));
        *link.owner.lock().unwrap() = downgrade(&connector);
        let mine = link.decide(&[Tell]);
        link.deliver();
        thread.join().unwrap();
        // The listener may get the events before; the events after are for the connector.
        let heard = heard.lock().unwrap();
        assert!(heard.contains(&mine), "{mine}: {heard:?}");
        assert!(heard.iter().map(|one| one % HEARD_BY_LISTENER).eq(1..=3), "{heard:?}");
    });
}

/// The queue pair is given back behind all that waited, and then the link is gone.
#[test]
fn the_end_of_a_link_comes_last() {
    bounded(3, || {
        let heard = Heard::default();
        let connector = Reader::connector(&heard);
        let link = link(downgrade(&connector), &heard);
        let other = link.clone();
        link.decide(&[Tell, Complete]);
        let thread = thread::spawn(move || other.deliver());
        link.end();
        thread.join().unwrap();
        assert_eq!(*heard.lock().unwrap(), [1, 2, GIVEN_BACK, GONE]);
    });
}
