//! Messages that name the shared receive queue they are for (Verbs V155).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::support::{ACTIVE, Buffer, PASSIVE, Pair, PairConfig, Seen, TARGET};
use transom_core::{
    Data, Flags, Limits, Operation, QueuePairKind, QueuePairState, Request, Sge, Side, Status,
    dialect,
};
use transom_memory::Rights;
use transom_wire::Atomic;

crate::support::again_over_process![
    v155_a_message_is_received_by_the_queue_that_it_names,
    v155_a_number_that_is_none_is_refused_and_moves_nothing,
    v155_a_message_that_names_no_queue_is_refused,
    v155_a_side_without_such_queues_refuses_the_number,
    v155_a_send_side_alone_serves_nothing,
    v155_a_send_waits_for_a_receive_where_it_has_come_to,
];

const OK: Status = Status::Success;
const REFUSED: Status = Status::PeerInvalidRequest;
const OPEN: Rights = Rights(Rights::REMOTE.0 | Rights::LOCAL_WRITE.0);
const LIMIT: Duration = Duration::from_secs(5);

fn config(active: QueuePairKind, passive: QueuePairKind) -> PairConfig {
    let mut config = PairConfig::new(&dialect::VERBS);
    for (host, kind) in config.hosts.iter_mut().zip([active, passive]) {
        host.kind = kind;
        host.shared = kind == QueuePairKind::XrcReceive;
    }
    config
}

fn connected(active: QueuePairKind, passive: QueuePairKind) -> Pair {
    let mut pair = Pair::new(config(active, passive));
    for host in &mut pair.hosts {
        host.queue_pair.set_limits(Limits { receive: Some(LIMIT), ..Limits::default() });
    }
    pair.establish();
    pair
}

fn xrc() -> Pair {
    connected(QueuePairKind::XrcSend, QueuePairKind::XrcReceive)
}

fn post_to(pair: &mut Pair, target: u32, context: u64, operation: Operation, list: &[Sge]) {
    let request = Request { context, operation, flags: Flags::NONE };
    let mut chain = pair.hosts[ACTIVE].queue_pair.chain(1);
    chain.post_to(target, &request, Data::Sges(list)).unwrap();
    drop(chain);
    pair.pump();
}

/// Each operation, with eight bytes.
fn operations(at: &Buffer) -> [Operation; 5] {
    let (token, address) = (at.token.0, at.address);
    [
        Operation::Send,
        Operation::Write { token, address },
        Operation::WriteWithImmediate { token, address, immediate: 5 },
        Operation::Read { token, address },
        Operation::Atomic { token, address, change: Atomic::FetchAdd { add: 1 } },
    ]
}

fn bytes(pair: &Pair, host: usize, buffer: &Buffer) -> Vec<u8> {
    pair.hosts[host].arena.read(buffer.address, buffer.length as usize).unwrap()
}

/// Receives that wait in the shared queue.
fn waiting(pair: &Pair) -> usize {
    pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding()
}

#[test]
fn v155_a_message_is_received_by_the_queue_that_it_names() {
    let mut pair = xrc();
    let source = pair.hosts[ACTIVE].register(vec![3; 8], OPEN);
    let target = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
    let buffer = pair.hosts[PASSIVE].register(vec![0; 8], OPEN);
    for context in [20, 21] {
        pair.hosts[PASSIVE].post_receive(context, &[buffer.all()]).unwrap();
    }
    for (context, operation) in (1..).zip(operations(&target)) {
        post_to(&mut pair, TARGET, context, operation, &[source.all()]);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(context, OK)], "{operation:?}");
    }
    assert_eq!(bytes(&pair, PASSIVE, &buffer), [3; 8]);
    assert_eq!(bytes(&pair, ACTIVE, &source), [3; 8], "what the Read fetched, and the atomic");
    assert_eq!(bytes(&pair, PASSIVE, &target)[0], 4);
    let sides = pair.hosts[PASSIVE].seen.iter().filter_map(|seen| match seen {
        Seen::Completion(side, completion) => Some((*side, completion.request_context)),
        _ => None,
    });
    let sides: Vec<_> = sides.collect();
    assert_eq!(sides, [(Side::Target(TARGET), 20), (Side::Target(TARGET), 21)]);
}

#[test]
fn v155_a_number_that_is_none_is_refused_and_moves_nothing() {
    for number in [0, TARGET - 1, TARGET + 1, u32::MAX] {
        for at in 0..5 {
            let mut pair = xrc();
            let source = pair.hosts[ACTIVE].register(vec![3; 8], OPEN);
            let target = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
            pair.hosts[PASSIVE].post_receive(20, &[target.all()]).unwrap();
            // A message before, for a queue that there is, makes no difference.
            post_to(&mut pair, TARGET, 1, Operation::Send, &[source.sge(0, 0)]);
            pair.hosts[PASSIVE].post_receive(21, &[target.all()]).unwrap();
            post_to(&mut pair, number, 2, operations(&target)[at], &[source.all()]);
            assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, REFUSED)], "{number}, {at}");
            assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
            assert_eq!((waiting(&pair), bytes(&pair, PASSIVE, &target)), (1, vec![7; 8]));
            assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Error);
        }
    }
}

/// The sender is no queue pair that names queues, and lies about its type.
#[test]
fn v155_a_message_that_names_no_queue_is_refused() {
    for at in 0..5 {
        let mut pair = connected(QueuePairKind::Rc, QueuePairKind::XrcReceive);
        let source = pair.hosts[ACTIVE].register(vec![3; 8], OPEN);
        let target = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
        pair.hosts[PASSIVE].post_receive(20, &[target.all()]).unwrap();
        let operation = operations(&target)[at];
        pair.post(ACTIVE, 1, operation, Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, REFUSED)], "{operation:?}");
        assert_eq!((waiting(&pair), bytes(&pair, PASSIVE, &target)), (1, vec![7; 8]));
    }
}

#[test]
fn v155_a_side_without_such_queues_refuses_the_number() {
    let mut pair = connected(QueuePairKind::XrcSend, QueuePairKind::Rc);
    let buffer = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
    pair.hosts[PASSIVE].post_receive(20, &[buffer.all()]).unwrap();
    post_to(&mut pair, TARGET, 1, Operation::Send, &[]);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, REFUSED)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)]);
}

#[test]
fn v155_a_send_side_alone_serves_nothing() {
    for at in 0..5 {
        let mut pair = connected(QueuePairKind::Rc, QueuePairKind::XrcSend);
        let source = pair.hosts[ACTIVE].register(vec![3; 8], OPEN);
        let target = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
        // A receive that is posted all the same is not filled.
        let _ = pair.hosts[PASSIVE].queue_pair.post_receive(20, &[target.all()]);
        let operation = operations(&target)[at];
        pair.post(ACTIVE, 1, operation, Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        let limit = LIMIT + Duration::from_secs(1);
        pair.advance(limit);
        let [(1, status)] = pair.hosts[ACTIVE].outcomes()[..] else { panic!("one outcome") };
        assert!(!status.is_success(), "{operation:?}");
        assert_eq!(bytes(&pair, PASSIVE, &target), vec![7; 8]);
    }
}

#[test]
fn v155_a_send_waits_for_a_receive_where_it_has_come_to() {
    let mut pair = xrc();
    let buffer = pair.hosts[PASSIVE].register(vec![7; 8], OPEN);
    post_to(&mut pair, TARGET, 1, Operation::Send, &[]);
    pair.advance(LIMIT - Duration::from_nanos(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    pair.hosts[PASSIVE].post_receive(20, &[buffer.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
    post_to(&mut pair, TARGET, 2, Operation::Send, &[]);
    pair.advance(LIMIT);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, Status::ReceiverNotReady)]);
}
