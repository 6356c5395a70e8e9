//! Queue pairs that begin anew, end, or wait for a connection.

use std::sync::Barrier;
use std::thread;

use super::*;
use crate::driver::Link;
use crate::raw::Sink;

/// Verbs V77: what is posted before there is a connection waits for it, on both sides.
#[test]
fn v77_posts_wait_for_the_first_connection() {
    let (mut active, mut passive) = ends();
    passive.qp.post_receive(20, &[]).unwrap();
    send(&active, 1);
    send(&passive, 2);
    active.qp.post_receive(30, &[]).unwrap();
    assert!(nothing(&active) && nothing(&passive));
    connect(&mut active, &mut passive);
    let mut both = [outcomes(&active, 2), outcomes(&passive, 2)].concat();
    both.sort_by_key(|outcome| outcome.0);
    assert_eq!(both, [(1, OK), (2, OK), (20, OK), (30, OK)]);
}

/// Verbs V77, V79: the limits count also while no call is made, and may change while a request waits.
#[test]
fn v77_v79_what_waits_for_a_connection_fails_after_the_limit() {
    let (mut active, mut passive) = ends();
    let limits = Limits { connection: SOON, ..Limits::default() };
    active.qp.set_limits(limits).unwrap();
    active.qp.post_receive(30, &[]).unwrap();
    send(&active, 1);
    send(&active, 2);
    let retry = Status::RetryExceeded;
    assert_eq!(outcomes(&active, 3), [(1, retry), (2, CANCELED), (30, CANCELED)]);
    assert_eq!(active.qp.state(), QueuePairState::Error);

    active.qp.reset().unwrap();
    active.qp.set_limits(Limits::default()).unwrap();
    connect(&mut active, &mut passive);
    active.qp.post_receive(31, &[]).unwrap();
    passive.connector.disconnect(crate::raw::Sink::call(|_| ())).unwrap();
    parted(&active.connector);
    assert_eq!(active.qp.state(), QueuePairState::Idle);
    send(&active, 3);
    assert!(nothing(&active), "for ever");
    active.qp.set_limits(Limits { reconnection: SOON, ..Limits::default() }).unwrap();
    assert_eq!(outcomes(&active, 2), [(3, retry), (31, CANCELED)]);
}

/// Verbs V77: an answer that is here before the adapter's thread has its turn meets the limit, however late that is.
#[test]
fn v77_what_has_arrived_counts_before_the_limit_is_judged() {
    let options = Options { path: Path::Tcp, ..verbs() };
    let (active, passive) = (End::new(&options), End::new(&options));
    let active = Arc::new(active);
    let listener = listener(&passive);
    let at = listener.address().unwrap();
    let asks = |connector: &Connector, to: &Connector, sink| {
        let (requests, requested) = signal();
        listener.get_request(to, requests).unwrap();
        connector.bind(loopback()).unwrap();
        connector.connect(None, at, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), OK);
    };
    let joins = active.clone();
    let joined = Sink::call(move |status| {
        assert_eq!(status, OK);
        joins.connector.join(&joins.qp).unwrap();
        joins.connector.complete_connect().unwrap();
    });
    asks(&active.connector, &passive.connector, joined);
    // The adapter's thread has no turn from here on.
    let (held, is_held) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let holds = Sink::call(move |_| {
        held.send(()).unwrap();
        let _ = goes_on.recv();
    });
    let [one, other] = [&active, &passive].map(|end| end.adapter.connector().unwrap());
    asks(&one, &other, holds);
    other.reject(b"").unwrap();
    is_held.recv_timeout(PATIENCE).unwrap();
    active.qp.set_limits(Limits { connection: SOON, ..Limits::default() }).unwrap();
    passive.qp.post_receive(20, &[]).unwrap();
    send(&active, 1);
    let (sink, _accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    thread::sleep(SOON.unwrap()); // the limit passes
    go_on.send(()).unwrap();
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
}

/// Verbs V79: the peer begins anew, and so does the connection; no posted request is lost.
#[test]
fn v68_v79_a_reset_queue_pair_is_connected_again_with_the_same_number() {
    let (mut active, mut passive) = ends();
    for round in 0..5_u8 {
        connect(&mut active, &mut passive);
        let number = passive.qp.config().number;
        // Small Writes go to the peer of now, and not over the link of a connection before.
        let (from, to) = (active.buffer(8), passive.buffer(8));
        from.fill(|_| round);
        let window = passive.window(&to, Rights::REMOTE_WRITE);
        let operation = Operation::Write { token: window.0, address: to.address() };
        for _ in 0..3 {
            active.post(operation, &[from.all()]);
            assert_eq!(outcomes(&active, 1), [(1, OK)]);
        }
        assert_eq!(to.bytes(), [round; 8]);
        passive.qp.post_receive(20, &[]).unwrap();
        send(&active, 1);
        assert_eq!(outcomes(&active, 1), [(1, OK)]);
        // A completion that is not retrieved, and a request that never ends.
        send(&passive, 2);
        active.qp.post_receive(30, &[]).unwrap();
        let (sink, _told) = signal();
        passive.cq.notify(crate::NotifyKind::Any, sink).unwrap();
        send(&passive, 3);
        passive.qp.reset().unwrap();
        assert!(nothing(&passive), "round {round}");
        assert_eq!((passive.qp.state(), passive.qp.outstanding()), Default::default());
        assert_eq!(passive.qp.config().number, number);
        parted(&active.connector);
        while !nothing(&active) {}
        assert_eq!(active.qp.state(), QueuePairState::Idle);
        active.qp.reset().unwrap();
    }
}

/// Verbs V67: everything at once, first what was posted first; the next connection is refused, and changes
/// nothing.
#[test]
fn v67_a_flush_ends_a_queue_pair_in_every_state() {
    for connected in [false, true] {
        let (mut active, mut passive) = ends();
        if connected {
            connect(&mut active, &mut passive);
        }
        send(&active, 1);
        active.qp.post_receive(30, &[]).unwrap();
        send(&active, 2);
        active.qp.flush().unwrap();
        let mut flushed = [Completion::default(); 4];
        assert_eq!(active.cq.take(&mut flushed), 3, "in one batch");
        let flushed = flushed.map(|c| (c.request_context, c.status));
        assert_eq!(flushed[..3], [(1, CANCELED), (2, CANCELED), (30, CANCELED)]);
        assert_eq!(active.qp.state(), QueuePairState::Error);
        send(&active, 3);
        assert_eq!(outcomes(&active, 1), [(3, CANCELED)]);
        let other = active.adapter.connector().unwrap();
        other.bind(loopback()).unwrap();
        let at = listener(&passive).address().unwrap();
        let (sink, told) = signal();
        let refused = other.connect(&active.qp, at, LIMITS, b"", sink);
        assert!(refused.is_err() && told.told().is_none());
        assert_eq!(other.state(), ConnectorState::Bound);
    }
}

/// Verbs V67, V68: also while a connection is being made, which then comes to nothing.
#[test]
fn v67_v68_a_queue_pair_ends_or_begins_anew_while_it_is_being_connected() {
    for flush in [true, false] {
        let (active, passive) = ends();
        let listener = listener(&passive);
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        active.connector.bind(loopback()).unwrap();
        let (sink, connected) = signal();
        let at = listener.address().unwrap();
        active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        send(&active, 1);
        active.qp.post_receive(30, &[]).unwrap();
        if flush {
            active.qp.flush().unwrap();
            assert_eq!(outcomes(&active, 2), [(1, CANCELED), (30, CANCELED)]);
            assert_eq!(active.qp.state(), QueuePairState::Error);
        } else {
            active.qp.reset().unwrap();
            assert_eq!((active.qp.state(), active.qp.outstanding()), Default::default());
        }
        assert_eq!(connected.wait(), Status::ConnectionRefused);
        assert!(nothing(&active));
    }
}

/// V37: of both its queues.
#[test]
fn v37_a_reset_purges_both_queues() {
    let (end, _) = ends();
    let receives = end.adapter.completion_queue(8).unwrap();
    let options = QueuePairOptions::default();
    let qp = end.adapter.queue_pair(end.domain, &end.cq, &receives, None, &options).unwrap();
    let end = End { qp, ..end };
    send(&end, 1);
    end.qp.post_receive(30, &[]).unwrap();
    end.qp.flush().unwrap();
    assert!(!end.cq.is_empty() && !receives.is_empty());
    end.qp.reset().unwrap();
    assert!(end.cq.is_empty() && receives.is_empty());
}

/// V79: what was outstanding when the peer left fails without a further call.
#[test]
fn v79_what_was_outstanding_when_the_peer_left_fails_after_the_limit() {
    let (mut active, mut passive) = ends();
    active.qp.set_limits(Limits { reconnection: SOON, ..Limits::default() }).unwrap();
    connect(&mut active, &mut passive);
    send(&active, 1); // no receive, for ever
    active.qp.post_receive(30, &[]).unwrap();
    passive.connector.disconnect(crate::raw::Sink::call(|_| ())).unwrap();
    assert_eq!(outcomes(&active, 2), [(1, Status::RetryExceeded), (30, CANCELED)]);
}

/// V80: a program that is about to exit loses no acknowledgement, completes nothing, and leaves nothing
/// half-way; its peers see an end in order.
#[test]
fn v80_a_program_that_finishes_leaves_its_peers_in_order() {
    let options = verbs();
    let passive = Adapter::open(Ipv4Addr::LOCALHOST.into(), options.clone()).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..8 {
        let (mut one, mut other) = (End::new(&options), End::on(&passive));
        connect(&mut one, &mut other);
        for context in 0..16 {
            other.qp.post_receive(context, &[]).unwrap();
        }
        for context in 0..15 {
            send(&one, context);
        }
        pairs.push((one, other));
    }
    for (_, other) in &pairs {
        assert_eq!(outcomes(other, 15).len(), 15);
    }
    assert_eq!(passive.finish(PATIENCE), Ok(true));
    assert_eq!(passive.counters().links, 0);
    for (one, other) in &pairs {
        assert!(outcomes(one, 15).iter().all(|outcome| outcome.1 == OK));
        parted(&one.connector);
        assert_eq!(one.connector.ended(), Some(EndReason::PeerDisconnected));
        assert!(nothing(other), "the last receive is not flushed");
    }
}

/// V80: a post that found the link's lock held has not left when it returns. The end comes behind it.
#[test]
fn v80_what_was_posted_while_another_thread_held_the_link_leaves_before_the_end() {
    let (mut one, mut other) = ends();
    connect(&mut one, &mut other);
    for context in 0..2 {
        other.qp.post_receive(context, &[]).unwrap();
    }
    let links = Link::all(&one.adapter.0.shared);
    let [link] = &links[..] else { panic!("{links:?}") };
    until("both receives are announced", || {
        link.process_arrived();
        link.overview().connection.credit == Some(2)
    });
    link.while_held(|| send(&one, 1));
    drop(links);
    assert_eq!(one.adapter.finish(PATIENCE), Ok(true));
    assert_eq!(outcomes(&other, 1), [(0, OK)]);
    parted(&other.connector);
    assert_eq!(other.connector.ended(), Some(EndReason::PeerDisconnected));
}

/// V80: a peer that does not close in time is not waited for.
#[test]
fn v80_a_program_does_not_wait_for_ever_to_finish() {
    let end = End::new(&verbs());
    let deaf = std::net::TcpListener::bind(loopback()).unwrap();
    end.connector.bind(loopback()).unwrap();
    let (sink, _told) = signal();
    end.connector.connect(None, deaf.local_addr().unwrap(), LIMITS, b"", sink).unwrap();
    let (_stream, _) = deaf.accept().unwrap();
    assert_eq!(end.adapter.finish(Duration::from_millis(20)), Ok(false));
}

/// Verbs V68: also if the next connection takes the queue pair meanwhile. It ends with what was before, or
/// comes behind.
#[test]
fn v68_a_queue_pair_begins_anew_while_a_connection_joins() {
    let (active, passive) = ends();
    let listener = listener(&passive);
    let at = listener.address().unwrap();
    for round in 0..200 {
        let [active, passive] = [&active, &passive].map(|end| End::on(&end.adapter));
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        let (sink, connected) = signal();
        active.connector.bind(loopback()).unwrap();
        active.connector.connect(None, at, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        let (sink, _accepted) = signal();
        passive.connector.accept(None, LIMITS, b"", sink).unwrap();
        assert_eq!(connected.wait(), OK);
        let begin = Barrier::new(2);
        let joined = thread::scope(|scope| {
            let joining = scope.spawn(|| {
                begin.wait();
                active.connector.join(&active.qp)
            });
            begin.wait();
            active.qp.reset().unwrap_or_else(|e| panic!("round {round}: {e}"));
            joining.join().unwrap()
        });
        let state = active.qp.state();
        let ended = [QueuePairState::Error, QueuePairState::Disconnected];
        assert!(!ended.contains(&state), "round {round}: {state:?}, {joined:?}");
        // Nothing of what was is left, and the queue pair is whole.
        active.qp.reset().unwrap();
        assert_eq!(active.qp.state(), QueuePairState::Idle);
    }
}

/// Verbs V79: a connection that this side ends, as if the peer had left: what is posted stays, and goes on over
/// the next one.
#[test]
fn v79_a_queue_pair_parts_from_its_connection_and_keeps_what_is_posted() {
    let (mut active, mut passive) = ends();
    active.qp.part().unwrap(); // nothing to part from
    connect(&mut active, &mut passive);
    let target = passive.buffer(64);
    passive.qp.post_receive(20, &[target.all()]).unwrap();
    passive.qp.part().unwrap();
    assert_eq!(passive.qp.state(), QueuePairState::Idle);
    assert!(nothing(&passive), "the receive stays");
    parted(&active.connector);
    assert_eq!(active.qp.state(), QueuePairState::Idle);
    connect(&mut active, &mut passive);
    send(&active, 1);
    active.expect(CompletionKind::Send);
    assert_eq!(passive.expect(CompletionKind::Receive).request_context, 20);
}
