//! Queue pairs of type UC: a request has succeeded when it has been sent, and what the receiver cannot
//! take is dropped (Verbs V70, V96).

use transom_core::{Connector, Limits, QueuePairEvent, QueuePairKind};
use transom_wire::Buffer as OutBuffer;

use super::*;

crate::support::again_over_process![
    v96_a_request_has_succeeded_when_it_has_been_sent,
    v96_what_was_begun_or_waits_is_lost_with_the_peer,
    v96_without_a_connection_only_messages_are_lost,
    v96_what_the_receiver_cannot_take_is_dropped_and_the_next_message_arrives,
    v96_a_send_waits_for_a_receive_for_a_while_and_is_lost_then,
    v96_a_receive_that_is_posted_while_a_pass_is_under_way_counts,
    v96_no_send_waits_for_credit,
    v96_a_guess_costs_the_connection_and_no_queue_pair,
    v96_immediate_data_without_a_receive_is_lost,
    v96_a_write_whose_memory_is_closed_on_the_way_is_dropped_from_there_on,
    v96_a_request_that_has_not_begun_is_not_blamed_for_a_guess,
    v70_a_failure_of_ones_own_cancels_the_sends_until_they_are_resumed,
    v81_reads_and_atomics_fail_in_their_turn,
    v96_reads_of_a_peer_that_lies_cost_its_connection
];

const OK: Status = Status::Success;
const CANCELED: Status = Status::Canceled;
const LIMIT: Duration = Duration::from_millis(100);

fn config() -> PairConfig {
    let mut config = PairConfig::new(&dialect::VERBS);
    for host in &mut config.hosts {
        host.kind = QueuePairKind::Uc;
    }
    config
}

fn connected(config: PairConfig) -> Pair {
    let mut pair = Pair::new(config);
    let limits = Limits {
        connection: Some(LIMIT),
        reconnection: Some(LIMIT),
        receive: Some(LIMIT),
        one_try: false,
        refuses_reads: true,
    };
    for host in &mut pair.hosts {
        host.queue_pair.set_limits(limits);
    }
    pair.establish();
    pair
}

fn post(pair: &mut Pair, context: u64, operation: Operation, list: &[Sge]) {
    pair.post(ACTIVE, context, operation, Flags::NONE, list).unwrap();
}

fn let_due(pair: &mut Pair) {
    let now = pair.now;
    pair.hosts[ACTIVE].with(now, |_, _, queue_pair, cx| {
        queue_pair.on_deadline(cx.memory, cx.now, cx.effects);
    });
}

fn state(pair: &Pair, host: usize) -> QueuePairState {
    pair.hosts[host].queue_pair.state()
}

/// How many asynchronous events there were, but for that of the first message.
fn events(pair: &mut Pair, host: usize) -> usize {
    let Some(connection) = &mut pair.hosts[host].connection else { return 0 };
    connection.take_events().filter(|event| *event != QueuePairEvent::FirstMessage).count()
}

fn bytes(pair: &Pair, host: usize, buffer: &Buffer) -> Vec<u8> {
    pair.hosts[host].arena.read(buffer.address, buffer.length as usize).unwrap()
}

#[test]
fn v96_a_request_has_succeeded_when_it_has_been_sent() {
    let mut pair = connected(config());
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    pair.stall(PASSIVE, true);
    post(&mut pair, 1, write(&target, 0), &[source.all()]);
    post(&mut pair, 2, Operation::Send, &[]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, OK)], "nothing has arrived");
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    pair.stall(PASSIVE, false);
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
    assert_eq!(bytes(&pair, PASSIVE, &target), [7; 8]);
}

#[test]
fn v96_what_was_begun_or_waits_is_lost_with_the_peer() {
    let mut pair = connected(config());
    let target = pair.hosts[PASSIVE].register(vec![0; 1 << 20], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; 1 << 20], Rights::NONE);
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    post(&mut pair, 1, write(&target, 0), &[source.all()]);
    post(&mut pair, 2, write(&target, 0), &[source.sge(0, 8)]);
    let (now, mut full) = (pair.now, OutBuffer::new(4096));
    pair.hosts[ACTIVE].transmit(now, &mut full);
    assert!(!full.bytes.is_empty());
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [], "the link has no room for the rest");
    pair.time_out(ACTIVE);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    assert_eq!(state(&pair, ACTIVE), QueuePairState::Idle);
    let_due(&mut pair);
    pair.advance(LIMIT - Duration::from_nanos(1));
    let_due(&mut pair);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [], "a connection may follow");
    pair.advance(Duration::from_nanos(1));
    let_due(&mut pair);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, OK)]);
    post(&mut pair, 3, write(&target, 0), &[source.sge(0, 8)]);
    let_due(&mut pair);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [], "its own time");
    pair.advance(LIMIT);
    let_due(&mut pair);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(3, OK)]);
    assert_eq!(state(&pair, ACTIVE), QueuePairState::Idle);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding(), (0, 1), "its receive stays");
}

/// A window is not closed by a request that was never executed, and the program must know.
#[test]
fn v96_without_a_connection_only_messages_are_lost() {
    let unsupported = Operation::Unsupported { status: Status::BufferOverflow };
    let invalidate = Operation::Invalidate { window: Token(0x123) };
    let read = Operation::Read { token: 1, address: 0 };
    for (operation, expected) in [
        (invalidate, Status::RetryExceeded),
        (read, Status::NotSupported),
        (unsupported, Status::BufferOverflow),
    ] {
        let mut pair = Pair::new(config());
        let limits = Limits { connection: Some(LIMIT), ..Limits::default() };
        pair.hosts[ACTIVE].queue_pair.set_limits(limits);
        for (context, operation) in [(1, Operation::Send), (2, operation), (3, Operation::Send)] {
            pair.hosts[ACTIVE].post(context, operation, Flags::NONE, &[]).unwrap();
        }
        let_due(&mut pair);
        pair.advance(LIMIT);
        let_due(&mut pair);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, expected), (3, CANCELED)]);
        assert!(pair.hosts[ACTIVE].queue_pair.sends_failed());
        assert_eq!(state(&pair, ACTIVE), QueuePairState::Idle);
    }
}

#[test]
fn v96_what_the_receiver_cannot_take_is_dropped_and_the_next_message_arrives() {
    const LONG: usize = 200_000; // several frames on each wire
    let mut pair = connected(config());
    let target = pair.hosts[PASSIVE].register(vec![0; LONG], WRITABLE);
    let closed = pair.hosts[PASSIVE].register(vec![0; LONG], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; LONG], Rights::NONE);
    for context in [20, 21] {
        pair.hosts[PASSIVE].post_receive(context, &[target.sge(8, 8)]).unwrap();
    }
    pair.pump();
    let unless = Unless { windows: true, posted: false };
    pair.hosts[PASSIVE].memory.deregister(closed.token, unless, 0).unwrap();
    let before = pair.hosts[PASSIVE].denials.0.lock().unwrap().total();
    let mut refused = 0;
    for (operation, length) in [
        (write(&target, 1), LONG as u32), // past the end
        (write(&closed, 0), 8),           // closed before
        (write(&closed, 0), LONG as u32), // the same, in pieces
        (Operation::Send, 9),             // longer than its receive
        (Operation::Send, LONG as u32),   // the same, in pieces
        (Operation::SendWithInvalidate { token: target.token.0 }, 8), // no window
    ] {
        post(&mut pair, 1, operation, &[source.sge(0, length)]);
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)], "{operation:?}");
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [], "{operation:?}");
        refused += 1;
        let denials = pair.hosts[PASSIVE].denials.0.lock().unwrap().total() - before;
        assert_eq!(denials, refused, "{operation:?} is on record, once");
    }
    for host in [ACTIVE, PASSIVE] {
        assert_eq!((state(&pair, host), events(&mut pair, host)), (QueuePairState::Connected, 0));
    }
    post(&mut pair, 2, write(&target, 0), &[source.sge(0, 4)]);
    post(&mut pair, 3, Operation::Send, &[source.sge(0, 3)]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, OK), (3, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)], "of three bytes");
    assert_eq!(bytes(&pair, PASSIVE, &target)[..4], [7; 4]);
}

#[test]
fn v96_a_send_waits_for_a_receive_for_a_while_and_is_lost_then() {
    let mut pair = connected(config());
    for context in [1, 2] {
        post(&mut pair, context, Operation::Send, &[]);
    }
    pair.advance(LIMIT - Duration::from_nanos(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, OK)], "sent");
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)], "the first; the second waits");
    pair.advance(LIMIT);
    post(&mut pair, 3, Operation::Send, &[]);
    pair.pump();
    pair.hosts[PASSIVE].post_receive(21, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [], "lost, the third without a time of its own");
    for context in [4, 5] {
        post(&mut pair, context, Operation::Send, &[]);
    }
    pair.advance(LIMIT - Duration::from_nanos(1));
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(21, OK)]);
    pair.hosts[PASSIVE].post_receive(22, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(22, OK)], "the time begins anew");
}

/// A thread posts while another one makes a pass: the receive lies in front of the connection until the next pass.
#[test]
fn v96_a_receive_that_is_posted_while_a_pass_is_under_way_counts() {
    let mut pair = connected(config());
    post(&mut pair, 1, Operation::Send, &[]);
    pair.advance(LIMIT);
    pair.stall(PASSIVE, true);
    for context in [2, 3] {
        post(&mut pair, context, Operation::Send, &[]);
    }
    pair.pump();
    let bytes = pair.take_flight(PASSIVE);
    let now = pair.now;
    let host = &mut pair.hosts[PASSIVE];
    let taken = host.with(now, |_, connection, queue_pair, cx| {
        queue_pair.post_receive(20, &[]).unwrap();
        connection.unwrap().receive(cx, &bytes)
    });
    assert!(taken.read_paused, "it waits for the next pass");
    host.with(now, |_, connection, _, cx| {
        connection.unwrap().receive(cx, &bytes[taken.consumed..])
    });
    assert_eq!(host.outcomes(), [(20, OK)], "the second waits, as long as if none had been lost");
    let due = now.after(LIMIT);
    host.with(due, |_, connection, queue_pair, cx| {
        queue_pair.post_receive(21, &[]).unwrap();
        connection.unwrap().on_deadline(cx);
    });
    host.with(due, |_, connection, _, cx| connection.unwrap().on_deadline(cx));
    assert_eq!(host.outcomes(), [(21, OK)], "posted in front of a deadline");
}

#[test]
fn v96_no_send_waits_for_credit() {
    // More than the credit that is granted at once.
    let mut pair = connected(config());
    pair.hosts[PASSIVE].quiet = true;
    let many = (1 << 16) + 10;
    pair.advance(LIMIT);
    post(&mut pair, 0, Operation::Send, &[]);
    pair.advance(LIMIT);
    for context in 1..many {
        post(&mut pair, context, Operation::Send, &[]);
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes().len(), 1 + usize::from(context == 1));
        pair.hosts[ACTIVE].seen.clear();
    }
    pair.hosts[PASSIVE].quiet = false;
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    post(&mut pair, many, Operation::Send, &[]);
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
}

#[test]
fn v96_a_guess_costs_the_connection_and_no_queue_pair() {
    let mut pair = connected(config());
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    let guess = Operation::Write { token: 0xdead_beef, address: 0 };
    post(&mut pair, 1, guess, &[source.all()]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    for host in [ACTIVE, PASSIVE] {
        assert_eq!((state(&pair, host), events(&mut pair, host)), (QueuePairState::Idle, 0));
    }
    assert_eq!(pair.hosts[PASSIVE].queue_pair.outstanding(), (0, 1), "its receive stays");
}

#[test]
fn v96_a_request_that_has_not_begun_is_not_blamed_for_a_guess() {
    let mut pair = connected(config());
    let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    pair.stall(ACTIVE, true);
    let guess = Operation::Write { token: 0xdead_beef, address: 0 };
    post(&mut pair, 1, guess, &[source.all()]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    pair.hosts[ACTIVE].post(2, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
    pair.deliver(ACTIVE, usize::MAX);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    assert_eq!(state(&pair, ACTIVE), QueuePairState::Idle);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding(), (1, 0), "a connection may follow");
}

#[test]
fn v96_immediate_data_without_a_receive_is_lost() {
    let mut pair = connected(config());
    let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    let Operation::Write { token, address } = write(&target, 0) else { unreachable!() };
    let operation = Operation::WriteWithImmediate { token, address, immediate: 5 };
    post(&mut pair, 1, operation, &[source.all()]);
    pair.advance(LIMIT);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    post(&mut pair, 2, operation, &[source.all()]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
    post(&mut pair, 3, operation, &[source.all()]);
    pair.advance(LIMIT - Duration::from_nanos(1));
    pair.hosts[PASSIVE].post_receive(21, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(21, OK)], "the time begins anew");
}

/// Data placed before memory is closed does not count towards the next message.
#[test]
fn v96_a_write_whose_memory_is_closed_on_the_way_is_dropped_from_there_on() {
    const LONG: usize = 400_000;
    let mut pair = connected(config());
    let target = pair.hosts[PASSIVE].register(vec![0; LONG], WRITABLE);
    let small = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; LONG], Rights::NONE);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    pair.stall(PASSIVE, true);
    post(&mut pair, 1, write(&target, 0), &[source.all()]);
    pair.pump();
    pair.deliver(PASSIVE, LONG / 2);
    let unless = Unless { windows: true, posted: false };
    pair.hosts[PASSIVE].memory.deregister(target.token, unless, 0).unwrap();
    let Operation::Write { token, address } = write(&small, 0) else { unreachable!() };
    let operation = Operation::WriteWithImmediate { token, address, immediate: 5 };
    pair.stall(PASSIVE, false);
    post(&mut pair, 2, operation, &[source.sge(0, 8)]);
    pair.pump();
    assert_eq!(bytes(&pair, PASSIVE, &target)[0], 7);
    assert_eq!(bytes(&pair, PASSIVE, &target)[LONG - 1], 0);
    let arrived = pair.hosts[PASSIVE].completions();
    assert_eq!(
        arrived.iter().map(|one| (one.request_context, one.length)).collect::<Vec<_>>(),
        [(20, 8)]
    );
}

#[test]
fn v70_a_failure_of_ones_own_cancels_the_sends_until_they_are_resumed() {
    let mut pair = connected(config());
    for context in [20, 21] {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
        pair.hosts[ACTIVE].post_receive(context + 10, &[]).unwrap();
    }
    pair.pump();
    let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    pair.stall(PASSIVE, true);
    post(&mut pair, 1, Operation::Send, &[source.sge(0, 9)]);
    post(&mut pair, 2, Operation::Send, &[]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::LocalAccess), (2, CANCELED)]);
    assert!(pair.hosts[ACTIVE].queue_pair.sends_failed());
    pair.stall(PASSIVE, false);
    post(&mut pair, 3, Operation::Send, &[]);
    pair.post(PASSIVE, 4, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(3, CANCELED), (30, OK)], "receives go on");
    assert_eq!(state(&pair, ACTIVE), QueuePairState::Connected);
    // Requests that were posted before are cancelled, wherever they are.
    post(&mut pair, 9, Operation::Send, &[]);
    let now = pair.now;
    assert!(pair.hosts[ACTIVE].with(now, |_, link, _, cx| link.unwrap().resume_sends(cx)));
    assert!(!pair.hosts[ACTIVE].queue_pair.sends_failed());
    post(&mut pair, 5, Operation::Send, &[]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(9, CANCELED), (5, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(4, OK), (20, OK)]);
    // A failed queue pair stays so over the end of a connection.
    post(&mut pair, 6, Operation::Send, &[source.sge(0, 9)]);
    pair.pump();
    pair.disconnect(PASSIVE, 50).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(6, Status::LocalAccess)]);
    assert!(pair.hosts[ACTIVE].queue_pair.sends_failed());
    pair.reset(PASSIVE).unwrap();
    for host in &mut pair.hosts {
        host.connector = Connector::new(&dialect::VERBS, host.config.caps);
    }
    pair.establish();
    post(&mut pair, 7, Operation::Send, &[]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(7, CANCELED)]);
    pair.kill(PASSIVE);
    pair.pump();
    pair.reset(ACTIVE).unwrap();
    assert!(!pair.hosts[ACTIVE].queue_pair.sends_failed());
}

#[test]
fn v81_reads_and_atomics_fail_in_their_turn() {
    let change = transom_wire::Atomic::FetchAdd { add: 1 };
    for atomic in [false, true] {
        let mut pair = connected(config());
        let rights = Rights(WRITABLE.0 | Rights::REMOTE_READ.0 | Rights::REMOTE_ATOMIC.0);
        let target = pair.hosts[PASSIVE].register(vec![0; 8], rights);
        let sink = pair.hosts[ACTIVE].register(vec![7; 8], Rights::LOCAL_WRITE);
        let (token, address) = (target.token.0, target.address);
        let operation = match atomic {
            false => Operation::Read { token, address },
            true => Operation::Atomic { token, address, change },
        };
        post(&mut pair, 1, write(&target, 0), &[sink.all()]);
        post(&mut pair, 2, operation, &[sink.all()]);
        pair.pump();
        let expected = [(1, OK), (2, Status::NotSupported)];
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        assert!(pair.hosts[ACTIVE].queue_pair.sends_failed());
        assert_eq!(bytes(&pair, PASSIVE, &target), [7; 8], "untouched but for the Write");
    }
}

#[test]
fn v96_reads_of_a_peer_that_lies_cost_its_connection() {
    let mut config = config();
    config.hosts[ACTIVE].kind = QueuePairKind::Rc;
    let mut pair = connected(config);
    let target = pair.hosts[PASSIVE].register(vec![1; 8], WRITABLE | Rights::REMOTE_READ);
    let sink = pair.hosts[ACTIVE].register(vec![7; 8], Rights::LOCAL_WRITE);
    let (token, address) = (target.token.0, target.address);
    post(&mut pair, 1, Operation::Read { token, address }, &[sink.all()]);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::PeerInvalidRequest)]);
    assert_eq!(bytes(&pair, ACTIVE, &sink), [7; 8]);
    assert_eq!((state(&pair, PASSIVE), events(&mut pair, PASSIVE)), (QueuePairState::Idle, 0));
}
