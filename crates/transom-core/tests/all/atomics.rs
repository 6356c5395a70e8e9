//! Atomics: compare-and-swap and fetch-and-add of a word at the peer (verbs 7.1, V95).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::support::{ACTIVE, Buffer, PASSIVE, Pair, PairConfig, Wires};
use transom_core::{
    CompletionKind, Connector, Data, DenialCause, Flags, Limits, Operation, QueuePairEvent,
    QueuePairState, Request, Sge, Status, dialect,
};
use transom_memory::{Mistake, Rights, Rule};
use transom_wire::{Atomic, ReadLimits};

crate::support::again_over_process![
    v95_an_atomic_changes_the_word_and_fetches_what_it_held,
    v95_what_comes_may_be_split,
    v95_a_refused_atomic_changes_nothing,
    v95_an_atomic_whose_sink_is_bad_is_not_sent,
    v95_pages_that_vanished_are_no_word,
    v93_the_queue_pair_is_judged_before_the_token,
    v92_a_queue_pair_that_serves_no_reads_refuses_atomics,
    v92_atomics_and_reads_share_their_limit_and_are_answered_in_order,
    v85_a_fence_waits_for_atomics,
    v95_an_atomic_whose_answer_was_lost_is_not_repeated,
    v95_a_limit_of_no_reads_permits_no_atomic,
];

const OK: Status = Status::Success;
const WORD: Rights = Rights(Rights::REMOTE_ATOMIC.0 | Rights::LOCAL_WRITE.0);
const SINK: Rights = Rights::LOCAL_WRITE;

fn verbs() -> Pair {
    Pair::connected(&dialect::VERBS)
}

fn word(pair: &mut Pair, value: u64) -> Buffer {
    pair.hosts[PASSIVE].register(value.to_ne_bytes().to_vec(), WORD)
}

fn held(pair: &Pair, host: usize, buffer: &Buffer) -> u64 {
    let bytes = pair.hosts[host].arena.read(buffer.address, 8).unwrap();
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

fn add(target: &Buffer, add: u64) -> Operation {
    let (token, address) = (target.token.0, target.address);
    Operation::Atomic { token, address, change: Atomic::FetchAdd { add } }
}

fn swap(target: &Buffer, compare: u64, swap: u64) -> Operation {
    let (token, address) = (target.token.0, target.address);
    Operation::Atomic { token, address, change: Atomic::CompareSwap { compare, swap } }
}

#[test]
fn v95_an_atomic_changes_the_word_and_fetches_what_it_held() {
    for chunk in [1, 7, usize::MAX] {
        let mut pair = verbs();
        pair.set_chunk(chunk);
        let target = word(&mut pair, u64::MAX - 1);
        let sinks: Vec<Buffer> =
            (0..4).map(|_| pair.hosts[ACTIVE].register(vec![0xEE; 8], SINK)).collect();
        let (first, later) = (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210);
        let steps = [
            (add(&target, 3), u64::MAX - 1, 1), // it wraps around
            (swap(&target, 2, first), 1, 1),    // it holds something else
            (swap(&target, 1, first), 1, first),
            (swap(&target, first, later), first, later),
        ];
        for ((context, (operation, ..)), sink) in (1..).zip(steps).zip(&sinks) {
            pair.post(ACTIVE, context, operation, Flags::NONE, &[sink.all()]).unwrap();
        }
        pair.pump();
        for ((_, old, _), sink) in steps.iter().zip(&sinks) {
            assert_eq!(held(&pair, ACTIVE, sink), *old);
        }
        assert_eq!(held(&pair, PASSIVE, &target), steps[3].2);
        let done = pair.hosts[ACTIVE].completions();
        let done: Vec<_> = done.iter().map(|c| (c.kind, c.status, c.length)).collect();
        let (added, swapped) = (CompletionKind::FetchAdd, CompletionKind::CompareSwap);
        assert_eq!(done, [added, swapped, swapped, swapped].map(|kind| (kind, OK, 8)));
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [], "no receive is consumed");
    }
}

#[test]
fn v95_what_comes_may_be_split() {
    let mut pair = verbs();
    let target = word(&mut pair, 0x0807_0605_0403_0201);
    let sink = pair.hosts[ACTIVE].register(vec![0; 32], SINK);
    let list = [sink.sge(20, 5), Sge { token: 1, address: 0, length: 0 }, sink.sge(3, 3)];
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &list).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    let seen = pair.hosts[ACTIVE].arena.read(sink.address, 32).unwrap();
    let bytes = 0x0807_0605_0403_0201_u64.to_ne_bytes();
    assert_eq!((&seen[20..25], &seen[3..6]), (&bytes[..5], &bytes[5..]));
    assert!(seen.iter().enumerate().all(|(at, b)| *b == 0 || matches!(at, 3..6 | 20..25)));
}

/// The peer's refusal, for the requester, the responder and the record.
#[test]
fn v95_a_refused_atomic_changes_nothing() {
    type Spoil = fn(&mut Pair, &mut Buffer);
    let (access, invalid) = (Status::RemoteAccess, Status::PeerInvalidRequest);
    let cases: [(&str, Spoil, Rule, Status); 6] = [
        ("token", |_, word| word.token.0 ^= 1, Rule::LiveToken, access),
        (
            "right",
            |pair, word| {
                let rights = Rights(WORD.0 & !Rights::REMOTE_ATOMIC.0 | Rights::REMOTE_WRITE.0);
                *word = pair.hosts[PASSIVE].register(vec![5; 8], rights);
            },
            Rule::Right,
            access,
        ),
        ("behind", |_, word| word.address += 1, Rule::Bounds, access),
        ("before", |_, word| word.address -= 8, Rule::Bounds, access),
        ("wraps", |_, word| word.address = u64::MAX - 3, Rule::Wrap, access),
        (
            "alignment",
            |pair, word| {
                *word = pair.hosts[PASSIVE].register(vec![5; 16], WORD);
                word.address += 4;
            },
            Rule::Aligned,
            invalid,
        ),
    ];
    for (name, spoil, rule, status) in cases {
        let mut pair = verbs();
        let target = word(&mut pair, 5);
        let mut named = target;
        spoil(&mut pair, &mut named);
        let sink = pair.hosts[ACTIVE].register(vec![0xEE; 8], SINK);
        pair.hosts[ACTIVE].post(1, add(&named, 1), Flags::NONE, &[sink.all()]).unwrap();
        pair.hosts[ACTIVE].post(2, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
        pair.pump();
        let expected = [(1, status), (2, Status::Canceled)];
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected, "{name}");
        assert_eq!(held(&pair, PASSIVE, &target), 5, "{name}");
        assert_eq!(pair.hosts[ACTIVE].arena.read(sink.address, 8).unwrap(), [0xEE; 8], "{name}");
        assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Error, "{name}");
        let log = pair.hosts[PASSIVE].denials.0.lock().unwrap();
        let DenialCause::Peer(denial) = &log.iter().next().unwrap().1.cause else {
            panic!("{name}")
        };
        assert_eq!(denial.rule, rule, "{name}");
        if rule == Rule::Aligned {
            assert_eq!(denial.likely, Mistake::Misaligned { bytes: 4 });
        }
        drop(log);
        let events = pair.hosts[PASSIVE].connection.as_mut().unwrap().take_events();
        let last = if status == invalid {
            QueuePairEvent::RequestError
        } else {
            QueuePairEvent::AccessError
        };
        assert_eq!(events.last(), Some(last), "{name}");
    }
}

#[test]
fn v95_an_atomic_whose_sink_is_bad_is_not_sent() {
    for rights in [Rights::LOCAL_READ, Rights::REMOTE_WRITE] {
        let mut pair = verbs();
        let target = word(&mut pair, 5);
        let sink = pair.hosts[ACTIVE].register(vec![0xEE; 8], rights);
        pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::LocalAccess)]);
        assert_eq!(held(&pair, PASSIVE, &target), 5);
    }
}

#[test]
fn v95_pages_that_vanished_are_no_word() {
    let mut pair = verbs();
    let target = word(&mut pair, 5);
    pair.hosts[PASSIVE].arena.vanish(target.address);
    let sink = pair.hosts[ACTIVE].register(vec![0xEE; 8], SINK);
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteError)]);
    assert_eq!(pair.hosts[ACTIVE].arena.read(sink.address, 8).unwrap(), [0xEE; 8]);
    let events = pair.hosts[PASSIVE].connection.as_mut().unwrap().take_events();
    assert_eq!(events.last(), Some(QueuePairEvent::Fatal));
}

#[test]
fn v93_the_queue_pair_is_judged_before_the_token() {
    for (granted, status) in [
        (Rights::REMOTE_ATOMIC, OK),
        (Rights::REMOTE_READ | Rights::REMOTE_WRITE, Status::PeerInvalidRequest),
    ] {
        let mut pair = Pair::new(PairConfig::new(&dialect::VERBS));
        pair.hosts[PASSIVE].queue_pair.set_access(granted);
        pair.establish();
        let target = word(&mut pair, 5);
        let sink = pair.hosts[ACTIVE].register(vec![0; 8], SINK);
        pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, status)]);
        assert_eq!(held(&pair, PASSIVE, &target), 5 + u64::from(status == OK));
        let log = pair.hosts[PASSIVE].denials.0.lock().unwrap();
        let said = log.iter().next().map(|(_, record)| record.cause.to_string());
        assert_eq!(said.is_some_and(|said| said.contains("do atomics on nothing")), status != OK);
    }
}

#[test]
fn v92_a_queue_pair_that_serves_no_reads_refuses_atomics() {
    let mut pair = Pair::new(PairConfig::new(&dialect::VERBS));
    let refusing = Limits { refuses_reads: true, ..Limits::default() };
    pair.hosts[PASSIVE].queue_pair.set_limits(refusing);
    pair.establish();
    let target = word(&mut pair, 5);
    let sink = pair.hosts[ACTIVE].register(vec![0; 8], SINK);
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::PeerInvalidRequest)]);
    assert_eq!(held(&pair, PASSIVE, &target), 5);
}

/// A limit of 1, then of 2: what is beyond waits, and answers come in the order of the requests.
#[test]
fn v92_atomics_and_reads_share_their_limit_and_are_answered_in_order() {
    for limit in [1, 2] {
        let mut config = PairConfig::new(&dialect::VERBS);
        config.hosts[ACTIVE].caps.reads.outbound = limit;
        let mut pair = Pair::connected_with(config);
        let target = word(&mut pair, 5);
        let all = Rights::REMOTE_READ | Rights::LOCAL_WRITE;
        let bytes = pair.hosts[PASSIVE].register(vec![9; 100_000], all);
        let sink = pair.hosts[ACTIVE].register(vec![0; 100_000], SINK);
        let olds: Vec<Buffer> =
            (0..3).map(|_| pair.hosts[ACTIVE].register(vec![0; 8], SINK)).collect();
        let read = Operation::Read { token: bytes.token.0, address: bytes.address };
        pair.stall(ACTIVE, true);
        for (context, operation, sink) in [
            (1, read, sink),
            (2, add(&target, 1), olds[0]),
            (3, add(&target, 1), olds[1]),
            (4, read, sink),
            (5, add(&target, 1), olds[2]),
        ] {
            pair.post(ACTIVE, context, operation, Flags::NONE, &[sink.all()]).unwrap();
        }
        pair.pump();
        let started = u64::from(limit) - 1; // the first is a Read
        assert_eq!(held(&pair, PASSIVE, &target), 5 + started, "limit {limit}");
        pair.stall(ACTIVE, false);
        pair.pump();
        let expected = [1, 2, 3, 4, 5].map(|context| (context, OK));
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        assert_eq!(olds.iter().map(|old| held(&pair, ACTIVE, old)).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(pair.hosts[ACTIVE].arena.read(sink.address, 100_000).unwrap(), [9; 100_000]);
    }
}

#[test]
fn v85_a_fence_waits_for_atomics() {
    for fence in [false, true] {
        let mut pair = verbs();
        let target = word(&mut pair, 5);
        let sink = pair.hosts[ACTIVE].register(vec![0; 8], SINK);
        let flags = if fence { Flags::READ_FENCE } else { Flags::NONE };
        pair.stall(ACTIVE, true);
        for (context, flags) in [(1, Flags::NONE), (2, flags)] {
            pair.post(ACTIVE, context, add(&target, 1), flags, &[sink.all()]).unwrap();
        }
        pair.pump();
        assert_eq!(held(&pair, PASSIVE, &target), if fence { 6 } else { 7 });
        pair.stall(ACTIVE, false);
        pair.pump();
        assert_eq!(held(&pair, PASSIVE, &target), 7);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, OK)]);
    }
}

/// The word was changed, the answer never came: over no other connection is it changed again.
#[test]
fn v95_an_atomic_whose_answer_was_lost_is_not_repeated() {
    let second = Duration::from_secs(1);
    let mut pair = Pair::new(PairConfig::new(&dialect::VERBS));
    let limits =
        Limits { connection: Some(second), reconnection: Some(second), ..Limits::default() };
    pair.hosts[ACTIVE].queue_pair.set_limits(limits);
    pair.establish();
    let target = word(&mut pair, 5);
    let sink = pair.hosts[ACTIVE].register(vec![0xEE; 8], SINK);
    pair.stall(ACTIVE, true);
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
    pair.pump();
    assert_eq!(held(&pair, PASSIVE, &target), 6);
    pair.time_out(ACTIVE);
    let reads = ReadLimits { inbound: 4, outbound: 4 };
    pair.hosts[ACTIVE].connector = Connector::new(&dialect::VERBS, pair.hosts[ACTIVE].config.caps);
    assert_eq!(pair.connect(2, reads, b""), Err(Status::ConnectionActive));
    pair.advance(second);
    let now = pair.now;
    pair.hosts[ACTIVE].with(now, |_, _, queue_pair, cx| {
        queue_pair.on_deadline(cx.memory, cx.now, cx.effects);
    });
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RetryExceeded)]);
    assert_eq!(held(&pair, PASSIVE, &target), 6);
    assert_eq!(pair.hosts[ACTIVE].arena.read(sink.address, 8).unwrap(), [0xEE; 8]);
}

#[test]
fn v95_a_limit_of_no_reads_permits_no_atomic() {
    let mut config = PairConfig::new(&dialect::VERBS);
    config.hosts[ACTIVE].caps.reads.outbound = 0;
    let mut pair = Pair::connected_with(config);
    let target = word(&mut pair, 5);
    let sink = pair.hosts[ACTIVE].register(vec![0; 8], SINK);
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::InvalidRequest)]);
    assert_eq!(held(&pair, PASSIVE, &target), 5);
}

/// Eight bytes are fetched, and they come into memory.
#[test]
fn v95_a_list_of_another_length_is_not_posted() {
    let mut pair = verbs();
    let target = word(&mut pair, 5);
    let sink = pair.hosts[ACTIVE].register(vec![0; 16], SINK);
    for list in [&[][..], &[sink.sge(0, 7)], &[sink.sge(0, 9)], &[sink.sge(0, 8), sink.sge(8, 1)]] {
        let posted = pair.hosts[ACTIVE].post(1, add(&target, 1), Flags::NONE, list);
        assert_eq!(posted, Err(Status::InvalidRequest));
    }
    let request = Request { context: 1, operation: add(&target, 1), flags: Flags::NONE };
    let inline = pair.hosts[ACTIVE].queue_pair.post(&request, Data::Inline(&[0; 8]));
    assert_eq!(inline, Err(Status::InvalidRequest));
    assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding(), (0, 0));
    pair.pump();
    assert_eq!(held(&pair, PASSIVE, &target), 5);
}

/// V134: such a request fails in its turn, and costs the peer nothing but the connection.
#[test]
fn v134_a_plain_peer_has_no_atomics() {
    let config = PairConfig { wires: Wires::plain(), ..PairConfig::new(&dialect::VERBS) };
    let mut pair = Pair::connected_with(config);
    pair.advance(Duration::from_millis(20)); // iW L1
    let target = word(&mut pair, 5);
    let sink = pair.hosts[ACTIVE].register(vec![0; 8], SINK);
    pair.post(ACTIVE, 1, add(&target, 1), Flags::NONE, &[sink.all()]).unwrap();
    pair.post(ACTIVE, 2, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    let expected = [(1, Status::NotSupported), (2, Status::Canceled)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
    assert_eq!(held(&pair, PASSIVE, &target), 5);
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
}
