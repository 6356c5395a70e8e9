//! Queue pairs that outlive their connections (verbs 6 and 7.2): what waits, for how long, and what a
//! reset leaves.

use transom_core::tables::ConnectorState;
use transom_core::{Connector, Limits, QueuePairEvent};
use transom_memory::Purpose;
use transom_wire::Buffer as OutBuffer;
use transom_wire::ReadLimits;

use super::*;

crate::support::again_over_process![
    v77_posts_wait_for_the_first_connection_and_run_in_order,
    v77_what_waits_for_a_connection_fails_after_the_limit_and_not_before,
    v79_a_peer_that_leaves_flushes_nothing_and_the_next_connection_goes_on,
    v79_what_had_begun_fails_after_the_limit_and_lets_no_other_connection_begin,
    v67_a_flush_is_one_batch_and_ends_the_queue_pair,
    v68_a_reset_drops_everything_and_begins_anew,
    v68_a_reset_needs_the_other_half,
    v94_a_send_without_a_receive_fails_after_the_queue_pairs_own_limit,
    v94_the_limit_of_a_send_runs_on_while_other_messages_flow,
    v94_a_queue_pair_that_tries_once_hears_that_there_is_no_receive,
    v67_what_is_wrong_by_itself_behind_a_refusal_is_flushed,
    v77_a_request_that_needs_no_peer_is_executed_without_one,
    v92_a_failure_of_ones_own_costs_the_peer_its_connection_only,
    v79_a_peer_that_leaves_keeps_no_shared_receive,
    v93_the_queue_pair_is_judged_before_the_token,
    v93_a_right_that_is_taken_away_ends_an_answer_under_way,
    v67_what_was_acknowledged_behind_the_request_that_fails_is_flushed,
    v67_what_was_executed_behind_a_request_that_is_flushed_is_flushed,
    v104_the_peers_faults_are_reported,
    v104_the_first_message_is_reported_once,
    v92_a_queue_pair_that_serves_no_reads_refuses_them,
];

pub(super) const READS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

pub(super) fn verbs() -> Pair {
    Pair::new(PairConfig::new(&dialect::VERBS))
}

/// Connect anew, with connectors that have not been used.
fn establish(pair: &mut Pair) {
    for host in &mut pair.hosts {
        host.connector = Connector::new(&dialect::VERBS, host.config.caps);
    }
    pair.establish();
}

pub(super) fn send(pair: &mut Pair, host: usize, context: u64) {
    pair.post(host, context, Operation::Send, Flags::NONE, &[]).unwrap();
}

/// The driver's acts when the queue pair's limit has passed.
fn let_due(pair: &mut Pair, host: usize) {
    let now = pair.now;
    pair.hosts[host].with(now, |_, _, queue_pair, cx| {
        queue_pair.on_deadline(cx.memory, cx.now, cx.effects);
    });
}

fn due(pair: &mut Pair, host: usize) -> Option<Duration> {
    let now = pair.now;
    pair.hosts[host].queue_pair.connection_due(now).map(|due| due.since(now))
}

pub(super) const OK: Status = Status::Success;
const CANCELED: Status = Status::Canceled;
const T: Duration = Duration::from_secs(3);

fn limits(connection: u64, reconnection: u64) -> Limits {
    let of = |seconds| Some(Duration::from_secs(seconds));
    Limits { connection: of(connection), reconnection: of(reconnection), ..Limits::default() }
}

#[test]
fn v77_posts_wait_for_the_first_connection_and_run_in_order() {
    let mut pair = verbs();
    for context in [20, 21] {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
    }
    send(&mut pair, ACTIVE, 1);
    pair.advance(Duration::from_secs(3600));
    establish(&mut pair);
    send(&mut pair, ACTIVE, 2);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (2, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK), (21, OK)]);
}

#[test]
fn v77_what_waits_for_a_connection_fails_after_the_limit_and_not_before() {
    let mut pair = verbs();
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(3, 1));
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    assert_eq!(due(&mut pair, ACTIVE), None, "receives may wait for ever");
    send(&mut pair, ACTIVE, 1);
    assert_eq!(due(&mut pair, ACTIVE), Some(T));
    pair.advance(T - Duration::from_nanos(1));
    send(&mut pair, ACTIVE, 2);
    let_due(&mut pair, ACTIVE);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    // Changed while it waits.
    pair.hosts[ACTIVE].queue_pair.set_limits(Limits::default());
    assert_eq!(due(&mut pair, ACTIVE), None, "for ever");
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(3, 1));
    pair.advance(Duration::from_nanos(1));
    let_due(&mut pair, ACTIVE);
    let expected = [(1, Status::RetryExceeded), (2, CANCELED), (30, CANCELED)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Error);
    assert_eq!(pair.connect(2, READS, b""), Err(Status::InvalidState));
}

/// A request that is wrong by itself says so at once, as the oldest without a connection; behind one that
/// waits it waits for its turn.
#[test]
fn v77_a_request_that_is_wrong_by_itself_waits_for_no_connection() {
    let unsupported = Operation::Unsupported { status: Status::BufferOverflow };
    let wrong = [
        (Operation::Send, 1, Status::LocalAccess),
        (Operation::Read { token: 5, address: 0 }, 1, Status::LocalAccess),
        (unsupported, 0, Status::BufferOverflow),
    ];
    for (operation, entries, status) in wrong {
        let mut pair = verbs();
        pair.hosts[ACTIVE].queue_pair.set_limits(limits(3, 1));
        let memory = pair.hosts[ACTIVE].register(vec![0; 8], Rights::LOCAL_WRITE);
        let list = [Sge { length: 9, ..memory.all() }];
        let post = |pair: &mut Pair, context| {
            let list = &list[..entries];
            pair.hosts[ACTIVE].post(context, operation, Flags::NONE, list).unwrap();
        };
        send(&mut pair, ACTIVE, 1);
        post(&mut pair, 2);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
        assert!(due(&mut pair, ACTIVE).is_some());
        pair.advance(T);
        let_due(&mut pair, ACTIVE);
        let expected = [(1, Status::RetryExceeded), (2, CANCELED)];
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        pair.reset(ACTIVE).unwrap();
        post(&mut pair, 3);
        send(&mut pair, ACTIVE, 4);
        let outcomes = pair.hosts[ACTIVE].completions();
        let seen: Vec<_> = outcomes.iter().map(|c| (c.request_context, c.status)).collect();
        assert_eq!(seen, [(3, status), (4, CANCELED)]);
        assert_ne!(outcomes[0].denial, 0, "it is explained");
        assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Error);
    }
}

/// A plain peer uses the connection as soon as it has accepted, and may fail before this side completes it.
#[test]
fn v77_a_peer_that_fails_in_start_up_fails_nothing_that_waits() {
    let mut config = PairConfig::new(&dialect::VERBS);
    config.wires = Wires::plain();
    (config.wires.active.peer_to_peer, config.wires.passive.peer_to_peer) = (false, false);
    let mut pair = Pair::new(config);
    send(&mut pair, ACTIVE, 1);
    pair.listen();
    pair.connect(2, READS, b"").unwrap();
    pair.take_request(3).unwrap();
    pair.accept(4, READS, b"").unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Replied);
    let now = pair.now;
    pair.hosts[PASSIVE].with(now, |_, connection, _, cx| {
        connection.unwrap().fail(cx, EndReason::Overrun);
    });
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    pair.reset(PASSIVE).unwrap();
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    establish(&mut pair);
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
}

#[test]
fn v79_a_peer_that_leaves_flushes_nothing_and_the_next_connection_goes_on() {
    let mut pair = verbs();
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(3, 1));
    establish(&mut pair);
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    pair.disconnect(PASSIVE, 50).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Idle);
    send(&mut pair, ACTIVE, 1);
    assert_eq!(due(&mut pair, ACTIVE), Some(Duration::from_secs(1)), "the other limit");
    // The peer begins anew.
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Disconnected);
    pair.reset(PASSIVE).unwrap();
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    establish(&mut pair);
    assert_eq!(due(&mut pair, ACTIVE), None);
    send(&mut pair, PASSIVE, 2);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK), (30, OK)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK), (2, OK)]);
}

#[test]
fn v79_what_had_begun_fails_after_the_limit_and_lets_no_other_connection_begin() {
    let mut pair = verbs();
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(1, 3));
    establish(&mut pair);
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE | Rights::REMOTE_READ);
    pair.stall(PASSIVE, true);
    pair.hosts[ACTIVE].post(1, read(&target, 0), Flags::NONE, &[]).unwrap();
    send(&mut pair, ACTIVE, 2);
    pair.pump();
    pair.kill(PASSIVE);
    pair.stall(PASSIVE, false);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    assert_eq!(due(&mut pair, ACTIVE), Some(T));
    // The peer may have executed it.
    pair.hosts[ACTIVE].connector = Connector::new(&dialect::VERBS, pair.hosts[ACTIVE].config.caps);
    assert_eq!(pair.connect(2, READS, b""), Err(Status::ConnectionActive));
    assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Bound);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding(), (2, 1));
    pair.advance(T);
    let_due(&mut pair, ACTIVE);
    let expected = [(1, Status::RetryExceeded), (2, CANCELED), (30, CANCELED)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
    send(&mut pair, ACTIVE, 3);
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(3, CANCELED)], "in error");
}

#[test]
fn v67_what_is_wrong_by_itself_waits_for_what_the_peer_that_leaves_still_owes() {
    let mut pair = verbs();
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(1, 3));
    establish(&mut pair);
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    let source = pair.hosts[ACTIVE].register(vec![1; 8], Rights::NONE);
    let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    pair.stall(PASSIVE, true);
    pair.post(ACTIVE, 1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
    pair.post(ACTIVE, 2, Operation::Send, Flags::NONE, &[source.sge(0, 9)]).unwrap();
    send(&mut pair, ACTIVE, 3);
    pair.pump();
    pair.kill(PASSIVE);
    pair.stall(PASSIVE, false);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    assert_eq!(due(&mut pair, ACTIVE), Some(T));
    pair.advance(T);
    let_due(&mut pair, ACTIVE);
    let expected = [(1, Status::RetryExceeded), (2, CANCELED), (3, CANCELED), (30, CANCELED)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
    // With nothing in front of it, the failure is the first whatever the peer does.
    let mut pair = verbs();
    establish(&mut pair);
    let source = pair.hosts[ACTIVE].register(vec![1; 8], Rights::NONE);
    pair.stall(PASSIVE, true);
    pair.post(ACTIVE, 2, Operation::Send, Flags::NONE, &[source.sge(0, 9)]).unwrap();
    pair.kill(PASSIVE);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, Status::LocalAccess)]);
}

#[test]
fn v67_a_flush_is_one_batch_and_ends_the_queue_pair() {
    for connected in [false, true] {
        let mut pair = verbs();
        if connected {
            establish(&mut pair);
        }
        send(&mut pair, ACTIVE, 1); // the peer has no receive
        pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
        send(&mut pair, ACTIVE, 2);
        pair.hosts[ACTIVE].post_receive(31, &[]).unwrap();
        pair.pump();
        pair.hosts[ACTIVE].seen.clear();
        let (kind, mut fired) = (transom_core::NotifyKind::Any, Vec::new());
        pair.hosts[ACTIVE].cq.notify(kind, 9, &mut fired);
        pair.flush(ACTIVE);
        let told = pair.hosts[ACTIVE].seen.iter().filter(|seen| matches!(seen, Seen::Fired(_)));
        assert_eq!(told.count(), 1, "one batch");
        let canceled = [1, 2, 30, 31].map(|context| (context, CANCELED));
        assert_eq!(pair.hosts[ACTIVE].outcomes(), canceled);
        assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Error);
        send(&mut pair, ACTIVE, 3);
        pair.hosts[ACTIVE].post_receive(32, &[]).unwrap();
        pair.pump();
        let mut late = pair.hosts[ACTIVE].outcomes();
        late.sort_by_key(|outcome| outcome.0);
        assert_eq!(late, [(3, CANCELED), (32, CANCELED)]);
    }
}

#[test]
fn v68_a_reset_drops_everything_and_begins_anew() {
    for flushed in [false, true] {
        let mut pair = verbs();
        establish(&mut pair);
        let number = pair.hosts[ACTIVE].queue_pair.config().number;
        let a = &mut pair.hosts[ACTIVE];
        let buffer = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        a.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        send(&mut pair, ACTIVE, 1);
        let a = &mut pair.hosts[ACTIVE];
        a.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        a.post_receive(30, &[]).unwrap();
        pair.pump();
        if flushed {
            pair.flush(ACTIVE);
        }
        pair.reset(ACTIVE).unwrap();
        pair.pump();
        let a = &mut pair.hosts[ACTIVE];
        assert_eq!(a.outcomes(), [], "not even that the first Bind has succeeded");
        assert_eq!((a.queue_pair.state(), a.queue_pair.outstanding()), Default::default());
        assert_eq!(a.queue_pair.config().number, number);
        let unless = Unless { windows: true, posted: true };
        assert_eq!(a.memory.deregister(buffer.token, unless, 0), Ok(()), "its windows have ended");
        // The peer has seen an end in order, and goes on, too.
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        establish(&mut pair);
        send(&mut pair, ACTIVE, 2);
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, OK)]);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
    }
}

#[test]
fn v68_a_reset_needs_the_other_half() {
    let mut pair = verbs();
    establish(&mut pair);
    pair.hosts[ACTIVE].post_receive(30, &[]).unwrap();
    let now = pair.now;
    let reset = |pair: &mut Pair| {
        pair.hosts[ACTIVE].with(now, |_, _, queue_pair, cx| queue_pair.reset(cx.memory, cx.now))
    };
    assert_eq!(reset(&mut pair), Err(Status::ConnectionActive));
    pair.pump();
    send(&mut pair, PASSIVE, 1);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(30, OK)], "nothing has changed");
}

#[test]
fn v94_a_send_without_a_receive_fails_after_the_queue_pairs_own_limit() {
    for changed in [false, true] {
        let mut pair = verbs();
        let of = |receive| Limits { receive, ..Limits::default() };
        let first = if changed { None } else { Some(T) };
        pair.hosts[ACTIVE].queue_pair.set_limits(of(first));
        establish(&mut pair);
        send(&mut pair, ACTIVE, 1);
        pair.advance(T - Duration::from_secs(1));
        if changed {
            pair.hosts[ACTIVE].queue_pair.set_limits(of(Some(T)));
        }
        pair.advance(Duration::from_millis(999));
        send(&mut pair, ACTIVE, 2);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
        // No byte comes and no other pass follows.
        let due = pair.now.after(Duration::from_millis(1));
        pair.hosts[ACTIVE].with(due, |_, link, _, cx| link.unwrap().on_deadline(cx));
        let expected = [(1, Status::ReceiverNotReady), (2, CANCELED)];
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Error);
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle, "it did nothing");
    }
    // For ever.
    let mut pair = verbs();
    establish(&mut pair);
    send(&mut pair, ACTIVE, 1);
    pair.advance(Duration::from_secs(3600));
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
}

/// Neither messages of the peer's nor its answers to other requests give it more time for a receive.
#[test]
fn v94_the_limit_of_a_send_runs_on_while_other_messages_flow() {
    const STEPS: u32 = 4;
    let mut pair = verbs();
    let limits = Limits { receive: Some(T), ..Limits::default() };
    pair.hosts[ACTIVE].queue_pair.set_limits(limits);
    establish(&mut pair);
    let target = pair.hosts[ACTIVE].register(vec![0; 8], WRITABLE);
    let source = pair.hosts[PASSIVE].register(vec![7; 8], Rights::NONE);
    // A message that the peer takes without a receive is in front of the Send, and completes in between.
    let inbox = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
    let outbox = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
    pair.post(ACTIVE, 9, write(&inbox, 0), Flags::NONE, &[outbox.all()]).unwrap();
    send(&mut pair, ACTIVE, 1);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(9, OK)]);
    for step in 1..STEPS {
        pair.advance(T / STEPS);
        let (turn, silent) = (u64::from(step), Flags::SILENT_SUCCESS);
        pair.hosts[ACTIVE].post_receive(30 + turn, &[]).unwrap();
        pair.post(PASSIVE, turn, write(&target, 0), silent, &[source.all()]).unwrap();
        pair.post(PASSIVE, turn, Operation::Send, silent, &[]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(30 + turn, OK)], "step {step}");
    }
    pair.advance(T / STEPS - Duration::from_millis(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    pair.advance(Duration::from_millis(1));
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::ReceiverNotReady)]);
}

#[test]
fn v94_a_queue_pair_that_tries_once_hears_that_there_is_no_receive() {
    let once = || {
        let mut pair = verbs();
        let limits = Limits { receive: Some(T), one_try: true, ..Limits::default() };
        pair.hosts[ACTIVE].queue_pair.set_limits(limits);
        establish(&mut pair);
        pair
    };
    let mut pair = once();
    send(&mut pair, ACTIVE, 1);
    send(&mut pair, ACTIVE, 2);
    pair.pump();
    let expected = [(1, Status::ReceiverNotReady), (2, CANCELED)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected, "no time has passed");
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle, "it did nothing");
    // A receive that was posted before the Send is found, though its sender has not heard of it.
    let mut pair = once();
    pair.pump();
    for context in 1..4 {
        pair.hosts[PASSIVE].post_receive(20 + context, &[]).unwrap();
        send(&mut pair, ACTIVE, context);
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(context, OK)]);
    }
    // Behind those that have taken them all, the next Send is one too many.
    send(&mut pair, ACTIVE, 9);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(9, Status::ReceiverNotReady)]);
}

/// The request that its peer refuses comes first: what fails by itself behind it has no cause of its own.
#[test]
fn v67_what_is_wrong_by_itself_behind_a_refusal_is_flushed() {
    let mut pair = verbs();
    establish(&mut pair);
    let source = pair.hosts[ACTIVE].register(vec![1; 8], Rights::NONE);
    let write = Operation::Write { token: 0xDEAD_BEEF, address: 0 };
    pair.post(ACTIVE, 1, write, Flags::NONE, &[source.sge(0, 8)]).unwrap();
    pair.post(ACTIVE, 2, Operation::Send, Flags::NONE, &[source.sge(0, 9)]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteAccess), (2, CANCELED)]);
}

#[test]
fn v77_a_request_that_needs_no_peer_is_executed_without_one() {
    let mut pair = verbs();
    pair.hosts[ACTIVE].queue_pair.set_limits(limits(1, 1));
    let region = pair.hosts[ACTIVE].register(vec![0; 8], Rights::BIND | Rights::LOCAL_WRITE);
    let host = &mut pair.hosts[ACTIVE];
    let bind = host.memory.reserve(
        &WindowSpec {
            region: region.token,
            domain: host.queue_pair.config().domain,
            scope: Scope::QueuePair(
                host.queue_pair.config().domain,
                host.queue_pair.config().number,
            ),
            base: region.address,
            length: region.length,
            rights: Rights::REMOTE_WRITE,
        },
        0,
    );
    let bind = bind.unwrap();
    host.post(1, Operation::Bind { window: bind }, Flags::NONE, &[]).unwrap();
    assert_eq!(host.outcomes(), [(1, OK)], "nothing was waited for");
    host.post(2, Operation::Invalidate { window: bind }, Flags::NONE, &[]).unwrap();
    assert_eq!(host.outcomes(), [(2, OK)]);
    // Behind a message it waits for its turn, and one that is wrong by itself fails in it.
    send(&mut pair, ACTIVE, 3);
    let host = &mut pair.hosts[ACTIVE];
    host.post(4, Operation::Invalidate { window: Token(7) }, Flags::NONE, &[]).unwrap();
    assert_eq!(host.outcomes(), []);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    establish(&mut pair);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(3, OK), (4, Status::InvalidRequest)]);
}

#[test]
fn v92_a_failure_of_ones_own_costs_the_peer_its_connection_only() {
    let mut pair = verbs();
    establish(&mut pair);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    let source = pair.hosts[ACTIVE].register(vec![1; 8], Rights::NONE);
    let list = [source.sge(0, 9)];
    pair.post(ACTIVE, 1, Operation::Send, Flags::NONE, &list).unwrap();
    send(&mut pair, ACTIVE, 2);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::LocalAccess), (2, CANCELED)]);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Error);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
    pair.reset(ACTIVE).unwrap();
    establish(&mut pair);
    send(&mut pair, ACTIVE, 3);
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, OK)]);
}

/// A window that is open to its whole domain is bound elsewhere at once, or stays where it was (Verbs V50).
#[test]
fn a_bind_that_is_refused_leaves_the_window_where_it_was() {
    let mut pair = verbs();
    establish(&mut pair);
    let host = &mut pair.hosts[ACTIVE];
    let region = host.register(vec![0; 64], Rights(Rights::BIND.0 | WRITABLE.0));
    let index = host.memory.reserve_standing(crate::support::DOMAIN).unwrap();
    let [first, second] = [1, 2].map(|key| transom_memory::Memory::with_key(index, key));
    let mut bind = |context, key, length| {
        let operation = Operation::BindStanding {
            key,
            region: region.token,
            base: region.address,
            length,
            rights: Rights::REMOTE_WRITE,
            zero_based: false,
            wide: true,
        };
        pair.post(ACTIVE, context, operation, Flags::NONE, &[]).unwrap();
        pair.pump();
        let host = &mut pair.hosts[ACTIVE];
        let named = [first, second].map(|key| host.memory.is_open(key));
        (host.outcomes(), named, host.memory.counts(region.token).unwrap().windows)
    };
    assert_eq!(bind(1, first, 64), (vec![(1, OK)], [true, false], 1));
    assert_eq!(bind(2, second, 32), (vec![(2, OK)], [false, true], 1), "elsewhere");
    assert_eq!(bind(3, second, 0), (vec![(3, OK)], [false, true], 0), "nowhere");
    assert_eq!(bind(4, first, 64), (vec![(4, OK)], [true, false], 1));
    let (outcomes, named, windows) = bind(5, second, 65);
    assert!(matches!(outcomes[..], [(5, status)] if !status.is_success()), "{outcomes:?}");
    assert_eq!((named, windows), ([true, false], 1), "where it was");
}

fn set_access(pair: &mut Pair, host: usize, access: Rights) {
    pair.hosts[host].queue_pair.set_access(access);
}

#[test]
fn v93_the_queue_pair_is_judged_before_the_token() {
    let all = WRITABLE | Rights::REMOTE_READ;
    for late in [false, true] {
        for (granted, reads, permitted) in [
            (Rights::NONE, true, false),
            (Rights::NONE, false, false),
            (Rights::REMOTE_READ, true, true),
            (Rights::REMOTE_READ, false, false),
            (Rights::REMOTE_WRITE, true, false),
            (Rights::REMOTE_WRITE, false, true),
            (Rights::REMOTE, true, true),
        ] {
            let mut pair = verbs();
            if !late {
                set_access(&mut pair, PASSIVE, granted);
            }
            establish(&mut pair);
            if late {
                set_access(&mut pair, PASSIVE, granted);
            }
            let target = pair.hosts[PASSIVE].register(vec![1; 8], all);
            let local = pair.hosts[ACTIVE].register(vec![2; 8], Rights::LOCAL_WRITE);
            // No bytes need no leave (Verbs V89), a Send needs a receive only.
            pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
            pair.post(ACTIVE, 1, read(&target, 0), Flags::NONE, &[]).unwrap();
            pair.post(ACTIVE, 2, write(&target, 0), Flags::NONE, &[]).unwrap();
            send(&mut pair, ACTIVE, 3);
            pair.pump();
            assert_eq!(pair.hosts[ACTIVE].outcomes(), [1, 2, 3].map(|context| (context, OK)));
            let operation = if reads { read(&target, 0) } else { write(&target, 0) };
            pair.post(ACTIVE, 4, operation, Flags::NONE, &[local.all()]).unwrap();
            pair.pump();
            let status = if permitted { OK } else { Status::PeerInvalidRequest };
            let name = format!("{granted:?}, reads {reads}, late {late}");
            assert_eq!(pair.hosts[ACTIVE].outcomes(), [(4, status)], "{name}");
            let moved = |pair: &Pair, host: usize, buffer: &Buffer, byte| {
                pair.hosts[host].arena.read(buffer.address, 8).unwrap() == [byte; 8]
            };
            if !permitted {
                let untouched =
                    moved(&pair, PASSIVE, &target, 1) && moved(&pair, ACTIVE, &local, 2);
                assert!(untouched, "{name}");
                let log = pair.hosts[PASSIVE].denials.0.lock().unwrap();
                let cause = &log.iter().next().unwrap().1.cause;
                assert!(matches!(cause, DenialCause::QueuePair(_)), "{name}: {cause:?}");
                assert!(cause.to_string().contains(if reads { "read" } else { "write" }));
            }
        }
    }
}

/// Each piece is judged when it is fetched (design rule 1), by the queue pair's rights as they are then.
#[test]
fn v93_a_right_that_is_taken_away_ends_an_answer_under_way() {
    const LENGTH: usize = 200_000;
    let mut pair = verbs();
    establish(&mut pair);
    let target = pair.hosts[PASSIVE].register(vec![1; LENGTH], Rights::REMOTE_READ);
    let sink = pair.hosts[ACTIVE].register(vec![2; LENGTH], Rights::LOCAL_WRITE);
    let now = pair.now;
    let mut out = OutBuffer::new(1);
    let a = &mut pair.hosts[ACTIVE];
    a.post(1, read(&target, 0), Flags::NONE, &[sink.all()]).unwrap();
    while out.bytes.is_empty() || a.connection.as_ref().unwrap().wants_write() {
        out.limit = out.bytes.len() + 1;
        a.transmit(now, &mut out);
    }
    pair.inject(PASSIVE, &out.bytes);
    pair.deliver(PASSIVE, usize::MAX);
    (out.bytes, out.limit) = (Vec::new(), 1);
    pair.hosts[PASSIVE].transmit(now, &mut out);
    assert!((1000..LENGTH).contains(&out.bytes.len()), "a part of the answer");
    pair.inject(ACTIVE, &out.bytes);
    set_access(&mut pair, PASSIVE, Rights::REMOTE_WRITE);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::PeerInvalidRequest)]);
    let bytes = pair.hosts[ACTIVE].arena.read(sink.address, LENGTH).unwrap();
    assert_eq!((bytes.first(), bytes.last()), (Some(&1), Some(&2)));
    let log = pair.hosts[PASSIVE].denials.0.lock().unwrap();
    let cause = &log.iter().next().unwrap().1.cause;
    assert!(matches!(cause, DenialCause::QueuePair(Purpose::RemoteRead)), "{cause:?}");
}

#[test]
fn v104_the_peers_faults_are_reported() {
    let events = |pair: &mut Pair, host: usize| -> Vec<QueuePairEvent> {
        pair.hosts[host].connection.as_mut().unwrap().take_events().collect()
    };
    for shared in [false, true] {
        let mut config = PairConfig::new(&dialect::VERBS);
        config.hosts[PASSIVE].shared = shared;
        let last = shared.then_some(QueuePairEvent::LastReceive);
        // A token of no queue pair.
        let mut pair = Pair::connected_with(config.clone());
        let local = pair.hosts[ACTIVE].register(vec![2; 8], Rights::NONE);
        let nobodys = Operation::Write { token: 0x1234, address: 0 };
        pair.post(ACTIVE, 1, nobodys, Flags::NONE, &[local.all()]).unwrap();
        pair.pump();
        let first = [QueuePairEvent::FirstMessage];
        let expected: Vec<_> =
            first.into_iter().chain([QueuePairEvent::AccessError]).chain(last).collect();
        assert_eq!(events(&mut pair, PASSIVE), expected);
        assert_eq!(events(&mut pair, PASSIVE), [], "once");
        assert_eq!(events(&mut pair, ACTIVE), [], "its own fault");
        // Memory that is gone under a grant (Verbs V92).
        for reads in [true, false] {
            let mut pair = Pair::connected_with(config.clone());
            let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE | Rights::REMOTE_READ);
            let local = pair.hosts[ACTIVE].register(vec![2; 8], Rights::LOCAL_WRITE);
            pair.hosts[PASSIVE].arena.vanish(target.address);
            let operation = if reads { read(&target, 0) } else { write(&target, 0) };
            pair.post(ACTIVE, 1, operation, Flags::NONE, &[local.all()]).unwrap();
            pair.pump();
            assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteError)]);
            let expected: Vec<_> =
                first.into_iter().chain([QueuePairEvent::Fatal]).chain(last).collect();
            assert_eq!(events(&mut pair, PASSIVE), expected, "reads {reads}");
        }
        // A completion queue that ran over.
        let mut pair = Pair::connected_with(config.clone());
        let now = pair.now;
        pair.hosts[PASSIVE].with(now, |_, link, _, cx| link.unwrap().fail(cx, EndReason::Overrun));
        let expected: Vec<_> = [QueuePairEvent::Fatal].into_iter().chain(last).collect();
        assert_eq!(events(&mut pair, PASSIVE), expected);
        // The program itself ends it; the peer merely leaves.
        let mut pair = Pair::connected_with(config.clone());
        pair.flush(PASSIVE);
        assert_eq!(events(&mut pair, PASSIVE), last.into_iter().collect::<Vec<_>>());
        let mut pair = Pair::connected_with(config.clone());
        pair.disconnect(ACTIVE, 50).unwrap();
        pair.pump();
        assert_eq!(events(&mut pair, PASSIVE), []);
    }
}

/// V104: every kind of message counts, whatever becomes of it; the answer to one's own does not.
#[test]
fn v104_the_first_message_is_reported_once() {
    let events = |pair: &mut Pair, host: usize| -> Vec<QueuePairEvent> {
        pair.hosts[host].connection.as_mut().unwrap().take_events().collect()
    };
    for kind in 0..4 {
        let mut pair = Pair::connected_with(PairConfig::new(&dialect::VERBS));
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE | Rights::REMOTE_READ);
        let local = pair.hosts[ACTIVE].register(vec![2; 8], Rights::LOCAL_WRITE);
        assert_eq!(events(&mut pair, PASSIVE), [], "no message yet");
        for context in [20, 21] {
            let list = [target.all()];
            let list = if kind == 3 { &list[..] } else { &[] };
            pair.hosts[PASSIVE].post_receive(context, list).unwrap();
        }
        pair.pump();
        for _ in 0..2 {
            let (operation, list) = match kind {
                0 => (write(&target, 0), vec![local.all()]),
                1 => (read(&target, 0), vec![local.all()]),
                _ => (Operation::Send, vec![]),
            };
            pair.post(ACTIVE, 1, operation, Flags::NONE, &list).unwrap();
            pair.pump();
        }
        assert_eq!(events(&mut pair, PASSIVE), [QueuePairEvent::FirstMessage], "kind {kind}");
        assert_eq!(events(&mut pair, ACTIVE), []);
    }
}

/// V92: more Reads than the responder serves, where it serves none; everything else goes on until then.
#[test]
fn v92_a_queue_pair_that_serves_no_reads_refuses_them() {
    let mut pair = verbs();
    let refusing = Limits { refuses_reads: true, ..Limits::default() };
    pair.hosts[PASSIVE].queue_pair.set_limits(refusing);
    establish(&mut pair);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    let target = pair.hosts[PASSIVE].register(vec![7; 8], WRITABLE | Rights::REMOTE_READ);
    let local = pair.hosts[ACTIVE].register(vec![2; 8], Rights::LOCAL_WRITE);
    pair.post(ACTIVE, 1, write(&target, 0), Flags::NONE, &[local.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    let written = pair.hosts[PASSIVE].arena.read(target.address, 8);
    assert_eq!(written, Some(vec![2; 8]));
    let other = pair.hosts[PASSIVE].register(vec![9; 8], WRITABLE | Rights::REMOTE_READ);
    pair.hosts[ACTIVE].post(2, read(&other, 0), Flags::NONE, &[local.all()]).unwrap();
    pair.hosts[ACTIVE].post(3, write(&target, 0), Flags::NONE, &[local.all()]).unwrap();
    pair.pump();
    let expected = [(2, Status::PeerInvalidRequest), (3, CANCELED)];
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, CANCELED)]);
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Error);
    assert_eq!(pair.hosts[ACTIVE].arena.read(local.address, 8), Some(vec![2; 8]), "nothing came");
    let events: Vec<_> = pair.hosts[PASSIVE].connection.as_mut().unwrap().take_events().collect();
    assert_eq!(events, [QueuePairEvent::FirstMessage, QueuePairEvent::RequestError]);
}

/// V67: a Write that the peer has executed behind a Read whose answer fails.
#[test]
fn v67_what_was_acknowledged_behind_the_request_that_fails_is_flushed() {
    for (dialect, behind) in [(&dialect::VERBS, CANCELED), (&dialect::ND2, OK)] {
        let mut pair = Pair::connected_with(PairConfig::new(dialect));
        let gone = pair.hosts[PASSIVE].register(vec![1; 8], WRITABLE | Rights::REMOTE_READ);
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
        let sink = pair.hosts[ACTIVE].register(vec![2; 8], Rights::LOCAL_WRITE);
        let source = pair.hosts[ACTIVE].register(vec![3; 8], Rights::NONE);
        pair.hosts[PASSIVE].arena.vanish(gone.address);
        pair.hosts[ACTIVE].post(1, read(&gone, 0), Flags::NONE, &[sink.all()]).unwrap();
        pair.hosts[ACTIVE].post(2, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes, [(1, Status::RemoteError), (2, behind)], "{}", dialect.name);
    }
}

/// V67: the first one did not fail by itself, and what became of it is not known.
#[test]
fn v67_what_was_executed_behind_a_request_that_is_flushed_is_flushed() {
    let cases = [
        (&dialect::VERBS, false, CANCELED),
        (&dialect::VERBS, true, CANCELED),
        (&dialect::ND2, false, OK),
    ];
    for (dialect, parted, behind) in cases {
        let mut pair = Pair::connected_with(PairConfig::new(dialect));
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
        let source = pair.hosts[ACTIVE].register(vec![3; 8], Rights::LOCAL_WRITE);
        pair.stall(PASSIVE, true);
        pair.hosts[ACTIVE].post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        let request = Request { context: 2, operation: Operation::Receive, flags: Flags::NONE };
        pair.hosts[ACTIVE].bind(&source, 0, 8, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        if parted {
            pair.kill(PASSIVE);
            pair.stall(PASSIVE, false);
            pair.pump();
        }
        assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
        pair.flush(ACTIVE);
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes, [(1, CANCELED), (2, behind)], "{}, parted: {parted}", dialect.name);
    }
}

/// V79: what was taken of a shared queue, and not filled, goes back to it.
#[test]
fn v79_a_peer_that_leaves_keeps_no_shared_receive() {
    let mut config = PairConfig::new(&dialect::VERBS);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    let left = |pair: &Pair| pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding();
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.stall(ACTIVE, true); // the answer does not arrive
    send(&mut pair, ACTIVE, 1);
    pair.pump();
    assert_eq!(left(&pair), 0, "taken for the Send that was asked for");
    pair.kill(ACTIVE);
    pair.pump();
    assert_eq!(left(&pair), 1);
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
}
