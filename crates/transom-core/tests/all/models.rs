//! Random steps against models that are too simple to be wrong: completion queues and shared receive
//! queues. (Queue pairs and connections have theirs in transom-sim, which watches whole adapters.)

#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use transom_core::{
    Capacity, Completion, CompletionFlags, CompletionQueue, Finished, NotifyKind, RequestQueue,
    Sge, SharedReceiveQueue, Status,
};
use transom_memory::QueuePairId;

// ---- completion queues (ND2 4.4, N1 to N11) -------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    /// A batch: which entries are solicited, which have failed.
    Add(Vec<(bool, bool)>),
    Notify(NotifyKind),
    Cancel,
    Poll(usize),
    Pop,
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kind =
        prop_oneof![Just(NotifyKind::Any), Just(NotifyKind::Solicited), Just(NotifyKind::Errors)];
    prop_oneof![
        4 => prop::collection::vec((any::<bool>(), prop::bool::weighted(0.1)), 0..4).prop_map(Step::Add),
        4 => kind.prop_map(Step::Notify),
        1 => Just(Step::Cancel),
        3 => (0..5usize).prop_map(Step::Poll),
        1 => Just(Step::Pop),
        1 => (0..12usize).prop_map(Step::Resize),
    ]
}

/// The notes of a reader that watches a queue.
#[derive(Default)]
struct Watched {
    /// Entries that were not retrieved: context, whether it counts as solicited, whether a firing has
    /// reported it.
    entries: Vec<(u64, bool, bool)>,
    /// Notifications that have not fired, and whether they are for the queue's failure only.
    waiting: Vec<(u64, bool)>,
    kind: Option<NotifyKind>,
    depth: usize,
    dead: bool,
}

impl Watched {
    /// The notifications that fire now.
    fn told(&mut self) -> Vec<(u64, Status)> {
        if self.dead {
            self.kind = None;
            return self.waiting.drain(..).map(|w| (w.0, Status::QueueOverrun)).collect();
        }
        let news = match self.kind {
            Some(NotifyKind::Any) => self.entries.iter().any(|entry| !entry.2),
            Some(NotifyKind::Solicited) => self.entries.iter().any(|entry| entry.1 && !entry.2),
            _ => false,
        };
        if !news {
            return Vec::new();
        }
        self.kind = None;
        self.entries.iter_mut().for_each(|entry| entry.2 = true);
        let (errors, told) = self.waiting.drain(..).partition(|waiting| waiting.1);
        self.waiting = errors;
        let told: Vec<(u64, bool)> = told;
        told.into_iter().map(|waiting| (waiting.0, Status::Success)).collect()
    }
}

fn contexts(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.request_context).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Entries come out once, in order; a notification fires once, for something new (ND2 N1 to
    /// N5), of the failure (ND2 N7), or canceled; a full queue dies and takes everything with it.
    #[test]
    fn nd2_4_4_a_completion_queue_does_what_its_watcher_expects(
        depth in 0..10usize,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut queue = CompletionQueue::new(depth, Capacity::Exact);
        let mut watched = Watched { depth, ..Watched::default() };
        let (mut next, mut number) = (0, 0);
        for step in steps {
            let mut fired: Vec<Finished> = Vec::new();
            let mut expected = Vec::new();
            match step {
                Step::Add(batch) => {
                    for (solicited, failed) in batch {
                        let flags = if solicited { CompletionFlags::SOLICITED } else { CompletionFlags(0) };
                        let status = if failed { Status::IoTimeout } else { Status::Success };
                        let entry = Completion { request_context: next, status, flags, ..Completion::BLANK };
                        let room = !watched.dead && watched.entries.len() < watched.depth;
                        prop_assert_eq!(queue.push(entry).is_ok(), room);
                        if room {
                            watched.entries.push((next, solicited || failed, false));
                        } else {
                            watched.dead = true;
                            watched.entries.clear();
                        }
                        next += 1;
                    }
                    queue.fire(&mut fired);
                    expected = watched.told();
                }
                Step::Notify(kind) => {
                    number += 1;
                    queue.notify(kind, number, &mut fired);
                    watched.waiting.push((number, kind == NotifyKind::Errors));
                    match (kind, watched.kind) {
                        (NotifyKind::Errors, _) | (_, Some(NotifyKind::Any)) => {}
                        (kind, _) => watched.kind = Some(kind),
                    }
                    expected = watched.told();
                }
                Step::Cancel => {
                    queue.cancel(&mut fired);
                    watched.kind = None;
                    expected = watched.waiting.drain(..).map(|w| (w.0, Status::Canceled)).collect();
                }
                Step::Poll(most) => {
                    let mut some = vec![Completion::BLANK; most];
                    let count = queue.poll(&mut some);
                    let taken: Vec<u64> =
                        watched.entries.drain(..most.min(watched.entries.len())).map(|e| e.0).collect();
                    prop_assert_eq!(contexts(&some[..count]), taken);
                }
                Step::Pop => {
                    let taken = (!watched.entries.is_empty()).then(|| watched.entries.remove(0).0);
                    prop_assert_eq!(queue.pop().map(|entry| entry.request_context), taken);
                }
                Step::Resize(depth) => {
                    let fits = depth >= watched.entries.len();
                    let expected = if fits { Ok(()) } else { Err(Status::BufferOverflow) };
                    prop_assert_eq!(queue.resize(depth), expected);
                    if fits {
                        watched.depth = depth;
                    }
                }
            }
            let fired: Vec<(u64, Status)> = fired.iter().map(|f| (f.waiter, f.status)).collect();
            prop_assert_eq!(fired, expected);
            prop_assert_eq!(queue.len(), watched.entries.len());
            prop_assert_eq!(queue.failure().is_some(), watched.dead);
        }
    }

    /// ND2 C38: an elastic queue never overruns while no queue pair has more under way than its own
    /// depth; entries of a queue that is gone take no place from others (1.3 rule 6).
    #[test]
    fn nd2_c38_an_elastic_queue_has_room_for_all_that_are_bound(
        requested in 0..4usize,
        steps in prop::collection::vec((0..12u8, 0..3usize, 1..6usize), 0..120),
    ) {
        let mut queue = CompletionQueue::new(requested, Capacity::Elastic);
        // Depth, entries and number of each queue there is; and whose the entries are, in order.
        let mut bound: [Option<(usize, usize, u32, u32)>; 3] = [None; 3];
        let mut whose = std::collections::VecDeque::new();
        let mut made = 0;
        for (what, which, depth) in steps {
            let place = &mut bound[which];
            match (what, &mut *place) {
                (0, Some((.., member))) => {
                    queue.unbind(*member);
                    *place = None;
                }
                (0..8, Some((depth, entries, number, member))) if *entries < *depth => {
                    *entries += 1;
                    whose.push_back(*number);
                    let entry = Completion { member: *member, ..Completion::BLANK };
                    prop_assert_eq!(queue.push(entry), Ok(()));
                }
                (0..8, None) => {
                    let member = queue.bind(SharedReceiveQueue::new(1, 1, 1).places(), depth);
                    made += 1;
                    *place = Some((depth, 0, made, member));
                }
                _ => {
                    prop_assert_eq!(queue.pop().is_some(), !whose.is_empty());
                    let of = whose.pop_front();
                    let of = bound.iter_mut().flatten().find(|one| Some(one.2) == of);
                    if let Some((_, entries, ..)) = of {
                        *entries -= 1;
                    }
                }
            }
        }
    }
}

// ---- shared receive queues (ND2 2.7) --------------------------------------------------------------

#[derive(Clone, Debug)]
enum Shared {
    Post(u32),
    /// And whether it completes at once.
    Take(u32, bool),
    Retrieve,
    GiveBack,
    Modify(usize, usize),
    Notify,
    NotifyWhenUsed,
    Cancel,
}

fn shared() -> impl Strategy<Value = Shared> {
    prop_oneof![
        5 => (0..4u32).prop_map(Shared::Post),
        4 => (1..4u32, prop::bool::ANY).prop_map(|(who, completes)| Shared::Take(who, completes)),
        2 => Just(Shared::Retrieve),
        1 => Just(Shared::GiveBack),
        2 => (0..8usize, 0..6usize).prop_map(|(depth, threshold)| Shared::Modify(depth, threshold)),
        2 => Just(Shared::Notify),
        1 => Just(Shared::NotifyWhenUsed),
        1 => Just(Shared::Cancel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Receives go to the queue pair that asks, or come back. A queue pair that found none is woken
    /// once when there are some; a waiter for few of them fires once, or is canceled. The place of one is
    /// free when its completion was retrieved (Verbs V82).
    #[test]
    fn nd2_2_7_a_shared_receive_queue_does_what_its_watcher_expects(
        depth in 1..8usize,
        steps in prop::collection::vec(shared(), 0..120),
    ) {
        const SGES: usize = 2;
        let mut queue = SharedReceiveQueue::new(depth, SGES, 1 << 20);
        let (mut depth, mut threshold, mut waiting) = (depth, 0, 0);
        let (mut hungry, mut waiters, mut number): (Vec<u32>, Vec<u64>, u64) = Default::default();
        let mut early: Vec<u64> = Vec::new();
        let mut taken = RequestQueue::default();
        let mut entries = CompletionQueue::new(128, Capacity::Exact);
        let member = entries.bind(queue.places(), 0);
        for step in steps {
            let (mut fired, mut expected) = (Vec::new(), Vec::new());
            let occupied = waiting + taken.len() + entries.len();
            prop_assert_eq!(queue.occupied(), occupied);
            match step {
                Shared::Post(sges) => {
                    let list = vec![Sge { token: 1, address: 0, length: 8 }; sges as usize];
                    let mut wake = Vec::new();
                    let posted = queue.post(7, &list, &mut wake);
                    if list.len() <= SGES && occupied < depth {
                        prop_assert_eq!(posted, Ok(()));
                        waiting += 1;
                        if waiting >= threshold {
                            waiters.append(&mut early);
                        }
                        let woken: Vec<u32> = wake.iter().map(|one| one.0).collect();
                        prop_assert_eq!(woken, std::mem::take(&mut hungry));
                    } else {
                        prop_assert!(posted.is_err() && wake.is_empty());
                    }
                }
                Shared::Take(who, completes) => {
                    let mut one = RequestQueue::default();
                    let into = if completes { &mut one } else { &mut taken };
                    let found = queue.take(QueuePairId(who), into, &mut fired);
                    if found && completes {
                        entries.push(Completion { member, ..Completion::BLANK }).unwrap();
                    }
                    prop_assert_eq!(found, waiting > 0);
                    if found {
                        waiting -= 1;
                        if waiting < threshold {
                            expected = waiters.drain(..).map(|w| (w, Status::Success)).collect();
                        }
                    } else if !hungry.contains(&who) {
                        hungry.push(who);
                    }
                }
                Shared::Retrieve => {
                    let _ = entries.pop();
                }
                Shared::GiveBack => {
                    waiting += taken.len();
                    queue.give_back(&mut taken);
                    prop_assert!(taken.is_empty());
                }
                Shared::Modify(to, limit) => {
                    let fits = to == 0 || to >= occupied;
                    let expect = if fits { Ok(()) } else { Err(Status::BufferOverflow) };
                    prop_assert_eq!(queue.modify(to, limit, &mut fired), expect);
                    if fits {
                        depth = if to == 0 { depth } else { to };
                        threshold = if limit == 0 { threshold } else { limit };
                        if waiting < threshold {
                            expected = waiters.drain(..).map(|w| (w, Status::Success)).collect();
                        }
                    }
                }
                Shared::Notify => {
                    number += 1;
                    waiters.push(number);
                    queue.notify(number, &mut fired);
                    if waiting < threshold {
                        expected = waiters.drain(..).map(|w| (w, Status::Success)).collect();
                    }
                }
                Shared::NotifyWhenUsed => {
                    number += 1;
                    early.push(number);
                    queue.notify_when_used(number);
                }
                Shared::Cancel => {
                    queue.cancel(&mut fired);
                    expected = waiters.drain(..).chain(early.drain(..)).map(|w| (w, Status::Canceled)).collect();
                }
            }
            let fired: Vec<(u64, Status)> = fired.iter().map(|f| (f.waiter, f.status)).collect();
            prop_assert_eq!(fired, expected);
            prop_assert_eq!(queue.outstanding(), waiting);
        }
    }
}
