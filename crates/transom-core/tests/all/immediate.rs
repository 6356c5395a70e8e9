//! Messages that bring four bytes to the completion of the receive that they consume (verbs 7.1).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::support::{ACTIVE, PASSIVE, Pair, PairConfig, Wires};
use transom_core::{
    Completion, CompletionFlags, CompletionKind, Flags, Limits, Operation, QueuePairEvent,
    QueuePairState, Status, dialect,
};
use transom_memory::Rights;

crate::support::again_over_process![
    v87_immediate_data_arrives_with_its_message,
    v87_a_write_completes_its_receive_when_all_of_it_is_placed,
    v87_inline_data_may_have_it,
    v87_a_write_with_it_waits_for_a_receive,
    v94_a_write_with_it_fails_after_the_queue_pairs_own_limit,
    v87_receives_of_a_shared_queue_are_consumed,
    v87_a_write_whose_key_is_bad_consumes_nothing,
    v87_a_side_that_knows_no_immediate_data_refuses_it,
];

const OK: Status = Status::Success;
const RW: Rights = Rights(Rights::REMOTE_WRITE.0 | Rights::LOCAL_WRITE.0);

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(1)).collect()
}

fn verbs() -> Pair {
    Pair::connected(&dialect::VERBS)
}

fn received(pair: &mut Pair) -> Vec<Completion> {
    pair.hosts[PASSIVE].completions()
}

#[track_caller]
fn brought(completion: &Completion, kind: CompletionKind, length: u32, value: u32) {
    assert_eq!((completion.kind, completion.status), (kind, OK));
    assert_eq!((completion.length, completion.value), (length, value));
    assert!(completion.flags.contains(CompletionFlags::IMMEDIATE));
    assert!(!completion.flags.contains(CompletionFlags::INVALIDATED));
}

#[test]
fn v87_immediate_data_arrives_with_its_message() {
    for (length, chunk) in [(0, usize::MAX), (8, usize::MAX), (100, 7), (200_000, 1000)] {
        let mut pair = verbs();
        pair.set_chunk(chunk);
        let [a, p] = &mut pair.hosts;
        let source = a.register(bytes(length), Rights::LOCAL_WRITE);
        let target = p.register(vec![0; length + 1], RW);
        let buffer = p.register(vec![0; length + 1], RW);
        for context in 20..23 {
            p.post_receive(context, &[buffer.all()]).unwrap();
        }
        let (token, address) = (target.token.0, target.address);
        let write = Operation::WriteWithImmediate { token, address, immediate: 0x0102_0304 };
        let send = Operation::SendWithImmediate { immediate: u32::MAX };
        for (context, operation) in [(1, write), (2, send), (3, Operation::Send)] {
            let flags = if context == 2 { Flags::SOLICIT } else { Flags::NONE };
            pair.post(ACTIVE, context, operation, flags, &[source.all()]).unwrap();
        }
        pair.pump();
        let done = pair.hosts[ACTIVE].completions();
        let kinds: Vec<_> = done.iter().map(|c| (c.request_context, c.kind, c.status)).collect();
        let (send, write) = (CompletionKind::Send, CompletionKind::Write);
        assert_eq!(kinds, [(1, write, OK), (2, send, OK), (3, send, OK)]);
        let [first, second, third] = received(&mut pair)[..] else { panic!("three receives") };
        let length = length as u32;
        brought(&first, CompletionKind::ReceiveWrite, length, 0x0102_0304);
        brought(&second, CompletionKind::Receive, length, u32::MAX);
        let solicited = |c: &Completion| c.flags.contains(CompletionFlags::SOLICITED);
        assert_eq!([&first, &second, &third].map(solicited), [false, true, false]);
        let contexts = [&first, &second, &third].map(|c| c.request_context);
        assert_eq!(contexts, [20, 21, 22], "in posting order");
        assert!(!third.flags.contains(CompletionFlags::IMMEDIATE));
        let p = &pair.hosts[PASSIVE];
        for region in [&target, &buffer] {
            let placed = p.arena.read(region.address, length as usize);
            assert_eq!(placed, Some(bytes(length as usize)));
        }
    }
}

/// No receive completes before the last byte is there, and the receive's own memory is untouched.
#[test]
fn v87_a_write_completes_its_receive_when_all_of_it_is_placed() {
    const LENGTH: usize = 1 << 20;
    let mut pair = verbs();
    let [a, p] = &mut pair.hosts;
    let source = a.register(bytes(LENGTH), Rights::LOCAL_WRITE);
    let target = p.register(vec![0; LENGTH], RW);
    let buffer = p.register(vec![7; 8], RW);
    p.post_receive(20, &[buffer.all()]).unwrap();
    let (token, address) = (target.token.0, target.address);
    let write = Operation::WriteWithImmediate { token, address, immediate: 5 };
    pair.stall(PASSIVE, true);
    pair.post(ACTIVE, 1, write, Flags::SOLICIT, &[source.all()]).unwrap();
    pair.pump();
    let mut all = Vec::new();
    while all.is_empty() {
        let placed = pair.hosts[PASSIVE].arena.read(target.address, LENGTH) == Some(bytes(LENGTH));
        all = received(&mut pair);
        assert!(all.is_empty() || placed, "a receive completes behind the bytes");
        if pair.in_flight(PASSIVE) == 0 && all.is_empty() {
            pair.pump();
        }
        pair.deliver(PASSIVE, 4096);
    }
    brought(&all[0], CompletionKind::ReceiveWrite, LENGTH as u32, 5);
    assert!(all[0].flags.contains(CompletionFlags::SOLICITED));
    assert_eq!(pair.hosts[PASSIVE].arena.read(buffer.address, 8).unwrap(), [7; 8]);
    // The next one counts its own bytes.
    pair.stall(PASSIVE, false);
    pair.hosts[PASSIVE].post_receive(21, &[buffer.all()]).unwrap();
    pair.pump();
    pair.post(ACTIVE, 2, write, Flags::NONE, &[source.sge(0, 8)]).unwrap();
    pair.pump();
    brought(&received(&mut pair)[0], CompletionKind::ReceiveWrite, 8, 5);
}

#[test]
fn v87_inline_data_may_have_it() {
    let mut pair = verbs();
    let target = pair.hosts[PASSIVE].register(vec![0; 8], RW);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    let (token, address) = (target.token.0, target.address);
    let operation = Operation::WriteWithImmediate { token, address, immediate: 5 };
    let request = transom_core::Request { context: 1, operation, flags: Flags::NONE };
    let data = transom_core::Data::Inline(b"captured");
    pair.hosts[ACTIVE].queue_pair.post(&request, data).unwrap();
    pair.pump();
    brought(&received(&mut pair)[0], CompletionKind::ReceiveWrite, 8, 5);
    assert_eq!(pair.hosts[PASSIVE].arena.read(target.address, 8).unwrap(), b"captured");
}

fn write_of_nothing(immediate: u32) -> Operation {
    Operation::WriteWithImmediate { token: 0, address: 0, immediate }
}

/// V89 holds for it, too: of no bytes, no key is looked at.
#[test]
fn v87_a_write_with_it_waits_for_a_receive() {
    let mut pair = verbs();
    for context in 1..4 {
        let operation = write_of_nothing(context as u32);
        pair.post(ACTIVE, context, operation, Flags::NONE, &[]).unwrap();
    }
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [], "no receive, no completion");
    for context in 20..23 {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
        pair.pump();
        let [done] = received(&mut pair)[..] else { panic!("one for each receive") };
        brought(&done, CompletionKind::ReceiveWrite, 0, context as u32 - 19);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(context - 19, OK)]);
    }
}

#[test]
fn v94_a_write_with_it_fails_after_the_queue_pairs_own_limit() {
    let mut pair = verbs();
    let limit = Duration::from_millis(300);
    let limits = Limits { receive: Some(limit), ..Limits::default() };
    pair.hosts[ACTIVE].queue_pair.set_limits(limits);
    pair.post(ACTIVE, 1, write_of_nothing(1), Flags::NONE, &[]).unwrap();
    pair.pump();
    pair.advance(limit - Duration::from_nanos(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    pair.advance(Duration::from_nanos(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::ReceiverNotReady)]);
    assert_eq!(pair.hosts[PASSIVE].completions(), []);
}

#[test]
fn v87_receives_of_a_shared_queue_are_consumed() {
    let mut config = PairConfig::new(&dialect::VERBS);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    let send = Operation::SendWithImmediate { immediate: 2 };
    for (context, operation) in [(1, write_of_nothing(1)), (2, send), (3, write_of_nothing(3))] {
        pair.post(ACTIVE, context, operation, Flags::NONE, &[]).unwrap();
    }
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    for context in 20..23 {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
    }
    pair.pump();
    let values: Vec<_> =
        received(&mut pair).iter().map(|c| (c.request_context, c.kind, c.value)).collect();
    let (send, write) = (CompletionKind::Receive, CompletionKind::ReceiveWrite);
    assert_eq!(values, [(20, write, 1), (21, send, 2), (22, write, 3)]);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, OK), (3, OK)]);
}

#[test]
fn v87_a_write_whose_key_is_bad_consumes_nothing() {
    let mut pair = verbs();
    let [a, p] = &mut pair.hosts;
    let source = a.register(bytes(8), Rights::LOCAL_WRITE);
    let target = p.register(vec![0; 8], Rights::LOCAL_WRITE);
    p.post_receive(20, &[]).unwrap();
    let (token, address) = (target.token.0, target.address);
    let write = Operation::WriteWithImmediate { token, address, immediate: 5 };
    pair.post(ACTIVE, 1, write, Flags::NONE, &[source.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteAccess)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)], "flushed, not filled");
    assert_eq!(pair.hosts[PASSIVE].arena.read(target.address, 8).unwrap(), [0; 8]);
}

/// V134: such a request fails in its turn, and costs the peer nothing but the connection.
#[test]
fn v134_a_plain_peer_has_no_immediate_data() {
    let send = Operation::SendWithImmediate { immediate: 2 };
    for operation in [send, write_of_nothing(1)] {
        let config = PairConfig { wires: Wires::plain(), ..PairConfig::new(&dialect::VERBS) };
        let mut pair = Pair::connected_with(config);
        pair.advance(Duration::from_millis(20)); // iW L1
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        pair.post(ACTIVE, 1, operation, Flags::NONE, &[]).unwrap();
        pair.post(ACTIVE, 2, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        let expected = [(1, Status::NotSupported), (2, Status::Canceled)];
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
    }
}

/// A program of an interface without immediate data would take it for something else.
#[test]
fn v87_a_side_that_knows_no_immediate_data_refuses_it() {
    let send = Operation::SendWithImmediate { immediate: 2 };
    for (operation, one) in [(send, false), (send, true), (write_of_nothing(1), false)] {
        let mut config = PairConfig::new(&dialect::VERBS);
        config.hosts[PASSIVE] = PairConfig::new(&dialect::ND2).hosts[PASSIVE];
        let mut pair = Pair::connected_with(config);
        let buffer = pair.hosts[PASSIVE].register(vec![7; 8], RW);
        let list = [buffer.all()];
        pair.hosts[PASSIVE].post_receive(20, if one { &list } else { &[] }).unwrap();
        pair.post(ACTIVE, 1, operation, Flags::NONE, &[]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::PeerInvalidRequest)]);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)], "flushed");
        let mut events = pair.hosts[PASSIVE].connection.as_mut().unwrap().take_events();
        assert!(events.any(|event| event == QueuePairEvent::RequestError));
    }
}
