//! Completion queues: ND2 4.4, rule by rule.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use transom_core::dialect::Overrun;
use transom_core::{
    Capacity, Completion, CompletionFlags, CompletionKind, CompletionQueue, Finished, Moderation,
    NotifyKind, Places, SharedReceiveQueue, Status,
};
use transom_memory::QueuePairId;

fn entry(context: u64, status: Status, flags: CompletionFlags) -> Completion {
    Completion {
        request_context: context,
        queue_pair: QueuePairId(1),
        kind: CompletionKind::Receive,
        status,
        flags,
        ..Completion::BLANK
    }
}

fn ok(context: u64) -> Completion {
    entry(context, Status::Success, CompletionFlags::default())
}

/// A queue with everything that fired so far.
struct Cq {
    queue: CompletionQueue,
    fired: Vec<Finished>,
}

impl Cq {
    fn new() -> Cq {
        Cq { queue: CompletionQueue::new(8, Capacity::Elastic), fired: Vec::new() }
    }

    fn add(&mut self, batch: &[Completion]) {
        for completion in batch {
            self.queue.push(*completion).unwrap();
        }
        self.queue.fire(&mut self.fired);
    }

    fn notify(&mut self, kind: NotifyKind, waiter: u64) {
        self.queue.notify(kind, waiter, &mut self.fired);
    }

    /// Waiters that fired since the last call.
    fn fired(&mut self) -> Vec<(u64, Status)> {
        self.fired.drain(..).map(|fired| (fired.waiter, fired.status)).collect()
    }
}

const S: Status = Status::Success;

#[test]
fn n1_any_fires_at_once_for_entries_that_came_before_it() {
    let mut cq = Cq::new();
    cq.add(&[ok(1)]);
    cq.notify(NotifyKind::Any, 10);
    assert_eq!(cq.fired(), [(10, S)]);
    let mut cq = Cq::new();
    cq.add(&[ok(1)]);
    cq.queue.pop().unwrap();
    cq.notify(NotifyKind::Any, 10);
    assert_eq!(cq.fired(), [], "what was retrieved is no news");
    cq.add(&[ok(2)]);
    assert_eq!(cq.fired(), [(10, S)]);
}

#[test]
fn n2_an_entry_fires_once_even_if_it_stays() {
    let mut cq = Cq::new();
    cq.notify(NotifyKind::Any, 10);
    cq.add(&[ok(1), ok(2)]);
    assert_eq!(cq.fired(), [(10, S)]);
    cq.notify(NotifyKind::Any, 11);
    assert_eq!(cq.fired(), []);
    cq.queue.pop().unwrap();
    cq.notify(NotifyKind::Any, 12);
    assert_eq!(cq.fired(), []);
    cq.add(&[ok(3)]);
    assert_eq!(cq.fired(), [(11, S), (12, S)]);
}

#[test]
fn n3_one_firing_ends_all_that_wait_and_disarms() {
    let mut cq = Cq::new();
    for waiter in 10..13 {
        cq.notify(NotifyKind::Any, waiter);
    }
    cq.add(&[ok(1)]);
    assert_eq!(cq.fired(), [(10, S), (11, S), (12, S)]);
    cq.add(&[ok(2)]);
    assert_eq!(cq.fired(), []);
}

#[test]
fn n4_any_beats_solicited_in_either_order() {
    for kinds in
        [[NotifyKind::Solicited, NotifyKind::Any], [NotifyKind::Any, NotifyKind::Solicited]]
    {
        let mut cq = Cq::new();
        cq.notify(kinds[0], 10);
        cq.notify(kinds[1], 11);
        cq.add(&[ok(1)]);
        assert_eq!(cq.fired(), [(10, S), (11, S)]);
    }
}

#[test]
fn n5_solicited_fires_for_solicited_receives_and_for_errors() {
    for (completion, fires) in [
        (ok(1), false),
        (entry(1, S, CompletionFlags::SOLICITED), true),
        (entry(1, Status::RemoteAccess, CompletionFlags::default()), true),
        (entry(1, Status::Canceled, CompletionFlags::default()), true),
    ] {
        let mut cq = Cq::new();
        cq.notify(NotifyKind::Solicited, 10);
        cq.add(&[completion]);
        assert_eq!(!cq.fired().is_empty(), fires, "{completion:?}");
        // And when it was there before.
        let mut cq = Cq::new();
        cq.add(&[completion, ok(2)]);
        cq.notify(NotifyKind::Solicited, 10);
        assert_eq!(!cq.fired().is_empty(), fires, "{completion:?}");
    }
}

#[test]
fn n6_any_fires_for_canceled_entries() {
    let mut cq = Cq::new();
    cq.notify(NotifyKind::Any, 10);
    cq.add(&[entry(1, Status::Canceled, CompletionFlags::default())]);
    assert_eq!(cq.fired(), [(10, S)]);
}

#[test]
fn n7_errors_fires_for_the_failure_of_the_queue_alone() {
    let mut cq = Cq::new();
    cq.notify(NotifyKind::Errors, 10);
    cq.add(&[ok(1), entry(2, Status::InternalError, CompletionFlags::default())]);
    assert_eq!(cq.fired(), []);
    for context in 3.. {
        if cq.queue.push(ok(context)).is_err() {
            break;
        }
    }
    cq.queue.fire(&mut cq.fired);
    assert_eq!(cq.fired(), [(10, Status::QueueOverrun)]);
}

/// ND2 N8, N11: one thread retrieves until it finds nothing, arms, and waits; another adds. Every
/// entry is retrieved, so no wake-up was lost. The queue is behind a lock, as the driver keeps it.
#[test]
fn n8_n11_no_entry_between_the_last_retrieval_and_the_notify_is_missed() {
    const ENTRIES: u64 = 20_000;
    let cq = Arc::new((Mutex::new(Cq::new()), std::sync::Condvar::new(), Barrier::new(2)));
    cq.0.lock().unwrap().queue.resize(ENTRIES as usize).unwrap();
    let adder = std::thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            cq.2.wait();
            for context in 0..ENTRIES {
                cq.0.lock().unwrap().add(&[ok(context)]);
                cq.1.notify_all();
            }
        }
    });
    cq.2.wait();
    let mut got = 0;
    while got < ENTRIES {
        let mut lock = cq.0.lock().unwrap();
        while let Some(completion) = lock.queue.pop() {
            assert_eq!(completion.request_context, got);
            got += 1;
        }
        drop(lock); // the entry that comes here must fire
        if got < ENTRIES {
            cq.0.lock().unwrap().notify(NotifyKind::Any, 1);
            let mut lock = cq.0.lock().unwrap();
            while lock.fired().is_empty() {
                lock = cq.1.wait(lock).unwrap();
            }
        }
    }
    adder.join().unwrap();
}

#[test]
fn n9_after_a_failure_every_notify_ends_with_it() {
    let mut cq = Cq::new();
    cq.notify(NotifyKind::Solicited, 10);
    for context in 0..8 {
        cq.queue.push(ok(context)).unwrap();
    }
    assert_eq!(cq.queue.push(ok(8)), Err(Status::QueueOverrun));
    cq.queue.fire(&mut cq.fired);
    assert_eq!(cq.fired(), [(10, Status::QueueOverrun)]);
    for (waiter, kind) in [(11, NotifyKind::Any), (12, NotifyKind::Errors)] {
        cq.notify(kind, waiter);
        assert_eq!(cq.fired(), [(waiter, Status::QueueOverrun)]);
    }
    assert_eq!(cq.queue.pop(), None, "nothing more is reported");
    assert_eq!(cq.queue.push(ok(9)), Err(Status::QueueOverrun));
}

#[test]
fn n10_a_batch_is_there_when_the_notification_fires() {
    let mut cq = Cq::new();
    cq.notify(NotifyKind::Any, 10);
    cq.queue.push(ok(1)).unwrap();
    cq.queue.push(ok(2)).unwrap();
    assert_eq!(cq.fired(), [], "not before the whole batch is in");
    cq.queue.fire(&mut cq.fired);
    assert_eq!(cq.fired(), [(10, S)]);
    assert_eq!(cq.queue.len(), 2);
}

/// Places that nothing is known of.
fn places() -> Places {
    SharedReceiveQueue::new(1, 1, 1).places()
}

/// ND2 4.4, C38; and exact queues for the dialects that have them.
#[test]
fn capacity_is_what_was_asked_for_or_what_is_bound() {
    for (kind, bound, expected) in
        [(Capacity::Elastic, 10, 10), (Capacity::Elastic, 1, 2), (Capacity::Exact, 10, 2)]
    {
        let mut queue = CompletionQueue::new(2, kind);
        queue.bind(places(), bound);
        assert_eq!(queue.capacity(), expected);
        let fits = (0..20).take_while(|context| queue.push(ok(*context)).is_ok()).count();
        assert_eq!(fits, expected);
    }
}

/// ND2 1.3 rule 6: what a queue pair leaves behind takes no place from those that stay.
#[test]
fn entries_outlive_their_queue_and_do_not_make_the_others_run_over() {
    let mut queue = CompletionQueue::new(2, Capacity::Elastic);
    let of = |member, context| Completion { member, ..ok(context) };
    let first = queue.bind(places(), 10);
    for context in 0..10 {
        queue.push(of(first, context)).unwrap();
    }
    queue.unbind(first);
    let second = queue.bind(places(), 2);
    assert_ne!(second, first, "entries of the first are left");
    assert_eq!(queue.push(of(second, 10)), Ok(()));
    assert_eq!(queue.push(of(second, 11)), Ok(()));
    assert_eq!((queue.len(), queue.capacity()), (12, 12));
    while queue.pop().is_some() {}
    assert_eq!(queue.capacity(), 2, "they are gone");
    assert_eq!(queue.bind(places(), 1), first, "its number is used again");
}

/// ND2 C29.
#[test]
fn resizing_below_the_content_changes_nothing() {
    let mut queue = CompletionQueue::new(4, Capacity::Exact);
    for context in 0..3 {
        queue.push(ok(context)).unwrap();
    }
    assert_eq!(queue.resize(2), Err(Status::BufferOverflow));
    assert_eq!(queue.capacity(), 4);
    assert_eq!(queue.resize(3), Ok(()));
    assert_eq!(queue.len(), 3);
}

/// ND2 2.3 rules 9, 10.
#[test]
fn cancel_ends_every_notification_in_order_and_keeps_the_entries() {
    let mut cq = Cq::new();
    let kinds = [NotifyKind::Any, NotifyKind::Errors, NotifyKind::Solicited];
    for (waiter, kind) in (10..).zip(kinds) {
        cq.notify(kind, waiter);
    }
    cq.queue.cancel(&mut cq.fired);
    assert_eq!(cq.fired(), [10, 11, 12].map(|waiter| (waiter, Status::Canceled)));
    cq.add(&[ok(1)]);
    assert_eq!(cq.fired(), []);
    assert_eq!(cq.queue.len(), 1);
}

/// Verbs V54: what was queued before a queue ran over can be retrieved, what comes later is lost, and the
/// notification tells of it.
#[test]
fn v54_a_queue_that_runs_over_may_keep_what_is_in_it() {
    let mut cq = Cq { queue: CompletionQueue::new(2, Capacity::Exact), fired: Vec::new() };
    cq.queue.set_overrun(Overrun::Keep);
    cq.add(&[ok(1), ok(2)]);
    assert_eq!(cq.queue.push(ok(3)), Err(Status::QueueOverrun));
    cq.notify(NotifyKind::Errors, 10);
    assert_eq!(cq.fired(), [(10, Status::QueueOverrun)]);
    let contexts = |cq: &mut Cq| {
        std::iter::from_fn(|| cq.queue.pop()).map(|entry| entry.request_context).collect::<Vec<_>>()
    };
    assert_eq!(contexts(&mut cq), [1, 2]);
    assert_eq!(cq.queue.push(ok(4)), Err(Status::QueueOverrun), "for good");
    assert_eq!(contexts(&mut cq), []);
}

/// Verbs V37: a queue pair that is reset or destroyed takes only its own completions with it, and
/// the others' are reported.
#[test]
fn v37_a_purge_takes_the_entries_of_one_queue_pair() {
    let of = |number, context, flags| Completion {
        queue_pair: QueuePairId(number),
        ..entry(context, Status::Success, flags)
    };
    let (plain, solicited) = (CompletionFlags::default(), CompletionFlags::SOLICITED);
    for kind in [NotifyKind::Any, NotifyKind::Solicited] {
        let mut cq = Cq::new();
        cq.add(&[of(1, 10, plain), of(2, 20, solicited), of(1, 11, solicited), of(1, 12, plain)]);
        cq.queue.purge(QueuePairId(1));
        assert_eq!(cq.queue.len(), 1);
        cq.notify(kind, 9);
        assert_eq!(cq.fired(), [(9, S)], "{kind:?}");
        assert_eq!(cq.queue.pop().unwrap().request_context, 20);
        cq.notify(kind, 9);
        assert_eq!(cq.fired(), [], "nothing is left to report");
    }
    let mut cq = Cq::new();
    cq.add(&[of(1, 10, solicited), of(2, 20, plain)]);
    cq.queue.purge(QueuePairId(1));
    cq.notify(NotifyKind::Solicited, 9);
    assert_eq!(cq.fired(), [], "what was solicited is gone");
    cq.queue.purge(QueuePairId(3));
    assert_eq!(cq.queue.len(), 1);
    cq.add(&[of(2, 21, solicited)]);
    assert_eq!(cq.fired(), [(9, S)]);
}

const WAIT: Duration = Duration::from_micros(20);

fn within(count: usize, interval: Option<Duration>) -> Option<Moderation> {
    Some(Moderation { count, interval })
}

impl Cq {
    fn moderated(count: usize, interval: Option<Duration>) -> Cq {
        let mut cq = Cq::new();
        cq.queue.moderate(within(count, interval), &mut cq.fired);
        assert!(cq.fired.is_empty());
        cq
    }

    fn end_wait(&mut self) {
        self.queue.end_wait(&mut self.fired);
    }
}

/// NDK 8: the notification waits for the count or for the end of the interval, whichever is first;
/// entries that are retrieved meanwhile count, and what was due stays due.
#[test]
fn moderation_holds_a_notification_back_until_the_count_or_the_interval() {
    let mut cq = Cq::moderated(3, Some(WAIT));
    cq.add(&[ok(1)]);
    assert_eq!(cq.queue.begun_wait(), None, "nothing is armed");
    cq.notify(NotifyKind::Any, 7);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], Some(WAIT)));
    assert_eq!(cq.queue.begun_wait(), None, "once for each wait");
    cq.queue.poll(&mut [Completion::BLANK; 8]);
    cq.add(&[ok(2)]);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], None));
    cq.add(&[ok(3)]);
    assert_eq!(cq.fired(), [(7, S)], "the third");
    cq.end_wait();
    assert_eq!(cq.fired(), [], "its wait is over");

    cq.notify(NotifyKind::Any, 8);
    cq.end_wait();
    assert_eq!(cq.fired(), [], "nothing new to report");
    cq.add(&[ok(4)]);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], Some(WAIT)));
    cq.queue.poll(&mut [Completion::BLANK; 8]);
    cq.end_wait();
    assert_eq!(cq.fired(), [(8, S)], "due, although the entry is gone");
}

/// A plain completion satisfies no solicited notification; once that is due, each one counts.
#[test]
fn moderation_begins_when_the_arm_is_satisfied() {
    let mut cq = Cq::moderated(4, Some(WAIT));
    cq.notify(NotifyKind::Solicited, 1);
    cq.add(&[ok(1), ok(2)]);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], None));
    cq.add(&[entry(3, S, CompletionFlags::SOLICITED)]);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], Some(WAIT)));
    cq.queue.poll(&mut [Completion::BLANK; 8]);
    cq.add(&[ok(4)]);
    assert_eq!(cq.fired(), [(1, S)]);
}

#[test]
fn without_an_interval_the_count_alone_ends_the_wait() {
    let mut cq = Cq::moderated(2, None);
    cq.notify(NotifyKind::Any, 1);
    cq.add(&[ok(1)]);
    assert_eq!(cq.queue.begun_wait(), None);
    cq.end_wait();
    assert_eq!(cq.fired(), [], "an earlier wait ends late");
    cq.add(&[ok(2)]);
    assert_eq!(cq.fired(), [(1, S)]);
}

/// The queue holds eight.
#[test]
fn a_count_beyond_the_queue_leaves_the_interval_or_the_full_queue() {
    for (count, fires) in [(8, true), (9, false), (usize::MAX, false)] {
        let mut cq = Cq::moderated(count, Some(WAIT));
        cq.notify(NotifyKind::Any, 1);
        cq.add(&[1, 2, 3, 4, 5, 6, 7, 8].map(ok));
        assert_eq!(cq.fired().len() == 1, fires, "{count}");
        cq.end_wait();
        assert_eq!(cq.fired().len() == 1, !fires, "{count}");
    }
    let mut cq = Cq::moderated(9, None);
    cq.notify(NotifyKind::Any, 1);
    cq.add(&[1, 2, 3, 4, 5, 6, 7].map(ok));
    assert_eq!(cq.fired(), []);
    cq.add(&[ok(8)]);
    assert_eq!(cq.fired(), [(1, S)]);
}

#[test]
fn the_newest_limits_count_for_a_notification_that_waits() {
    let mut cq = Cq::moderated(5, None);
    cq.notify(NotifyKind::Any, 1);
    cq.add(&[ok(1), ok(2)]);
    cq.queue.moderate(within(3, Some(WAIT)), &mut cq.fired);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![], Some(WAIT)));
    cq.queue.moderate(within(2, None), &mut cq.fired);
    assert_eq!((cq.fired(), cq.queue.begun_wait()), (vec![(1, S)], None));
    cq.queue.moderate(within(5, None), &mut cq.fired);
    cq.notify(NotifyKind::Any, 2);
    cq.add(&[ok(3)]);
    assert_eq!(cq.fired(), []);
    cq.queue.moderate(None, &mut cq.fired);
    assert_eq!(cq.fired(), [(2, S)]);
}

/// A failure is reported at once, and a cancel leaves nothing due.
#[test]
fn what_ends_notifications_ends_a_wait() {
    let mut cq = Cq::moderated(100, Some(WAIT));
    cq.notify(NotifyKind::Any, 1);
    cq.add(&[1, 2, 3, 4, 5, 6, 7, 8].map(ok));
    cq.queue.cancel(&mut cq.fired);
    assert_eq!(cq.fired(), [(1, Status::Canceled)]);
    assert_eq!(cq.queue.begun_wait(), None);
    cq.end_wait();
    assert_eq!(cq.fired(), []);
    cq.notify(NotifyKind::Any, 2);
    assert_eq!(cq.queue.begun_wait(), Some(WAIT), "what nothing has reported yet is new");
    cq.queue.push(ok(9)).unwrap_err();
    cq.queue.fire(&mut cq.fired);
    assert_eq!(cq.fired(), [(2, Status::QueueOverrun)]);
}
