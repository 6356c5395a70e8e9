//! ND2 4.7, 4.8: every call in every state, the transitions, private data and read limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::support::{ACTIVE, Host, PASSIVE, Pair, PairConfig, Seen, Wires};
use transom_core::dialect::{self, Dialect, PeerGone};
use transom_core::tables::{Cell, ConnectorCall, ConnectorState, ListenerCall, ListenerState};
use transom_core::{Connector, Flags, LinkEnd, Listener, Operation, QueuePairState, Status};
use transom_memory::Rights;
use transom_wire::ReadLimits;

crate::support::again_over_process![
    nd2_4_7_3_every_call_in_every_state,
    nd2_4_7_3_cells_with_conditions,
    nd2_4_7_3_every_listener_call_in_every_state,
    nd2_4_7_2_a_connection_is_made_in_three_steps,
    nd2_4_7_2_a_refused_connect_may_be_tried_again_with_the_same_queue_pair,
    nd2_4_7_2_a_connect_without_a_route_ends_with_the_reason,
    nd2_c18_an_accept_whose_peer_backs_out_is_refused,
    nd2_4_7_2_an_active_side_that_is_gone_makes_accept_abort,
    nd2_4_7_2_accept_succeeds_when_the_active_side_completes_and_leaves_at_once,
    nd2_4_7_2_an_accept_that_is_not_completed_times_out,
    nd2_4_7_2_first_data_establishes_too,
    nd2_4_9_the_notice_comes_before_the_flush,
    nd2_4_7_4_cancel,
    nd2_4_7_2_a_canceled_listener_gives_its_connectors_back,
    nd2_2_11_the_backlog_waits_and_is_refused_at_the_end,
    nd2_4_8_private_data_limits_are_exact_and_exceeding_them_is_harmless,
    nd2_4_8_an_accept_that_the_wire_refuses_gives_the_queue_pair_back,
    nd2_4_8_read_limits_row_by_row,
];

const READS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
const CALL: u64 = 1000;

/// A host in a state. `None`: the dialect passes through it.
fn in_state(dialect: &'static Dialect, state: ConnectorState) -> Option<(Pair, usize)> {
    let mut pair = Pair::new(PairConfig::new(dialect));
    let host = match state {
        ConnectorState::Idle => ACTIVE,
        ConnectorState::Bound => {
            pair.hosts[ACTIVE].connector.bind().unwrap();
            ACTIVE
        }
        ConnectorState::Queued => {
            pair.listen();
            pair.take_request(1).unwrap();
            PASSIVE
        }
        ConnectorState::Requested | ConnectorState::Connecting => {
            pair.listen();
            pair.take_request(1).unwrap();
            pair.connect(2, READS, b"hello").unwrap();
            if state == ConnectorState::Connecting { ACTIVE } else { PASSIVE }
        }
        ConnectorState::Accepting | ConnectorState::Replied => {
            pair.listen();
            pair.take_request(1).unwrap();
            pair.connect(2, READS, b"hello").unwrap();
            pair.accept(3, READS, b"welcome").unwrap();
            if state == ConnectorState::Replied { ACTIVE } else { PASSIVE }
        }
        ConnectorState::Connected
        | ConnectorState::Disconnecting
        | ConnectorState::PeerGone
        | ConnectorState::Disconnected => {
            pair.establish();
            match state {
                ConnectorState::Connected => {}
                ConnectorState::PeerGone => {
                    pair.disconnect(ACTIVE, 5).unwrap();
                    pair.pump();
                }
                ConnectorState::Disconnecting if dialect.disconnect_at_once => return None,
                ConnectorState::Disconnecting => pair.disconnect(PASSIVE, 5).unwrap(),
                _ => {
                    pair.disconnect(PASSIVE, 5).unwrap();
                    pair.pump();
                }
            }
            PASSIVE
        }
    };
    assert_eq!(pair.hosts[host].connector.state(), state, "{}", dialect.name);
    Some((pair, host))
}

fn call(pair: &mut Pair, host: usize, call: ConnectorCall) -> Result<(), Status> {
    let now = pair.now;
    match call {
        ConnectorCall::Bind => pair.hosts[host].connector.bind(),
        ConnectorCall::Connect => {
            let host = &mut pair.hosts[host];
            host.connector.connect(&mut host.queue_pair, CALL, READS, 0).map(|_| ())
        }
        ConnectorCall::CompleteConnect => pair.hosts[host]
            .with(now, |connector, link, _, cx| connector.complete_connect(cx, link)),
        ConnectorCall::Accept => pair.hosts[host]
            .with(now, |connector, link, qp, cx| connector.accept(cx, link, qp, CALL, READS, &[])),
        ConnectorCall::Reject => {
            pair.hosts[host].with(now, |connector, link, _, cx| connector.reject(cx, link, b"no"))
        }
        ConnectorCall::GetReadLimits => pair.hosts[host].connector.read_limits().map(|_| ()),
        ConnectorCall::GetPrivateData => pair.hosts[host].connector.private_data().map(|_| ()),
        ConnectorCall::GetLocalAddress | ConnectorCall::GetPeerAddress => {
            pair.hosts[host].connector.gate(call)
        }
        ConnectorCall::NotifyDisconnect => pair.notify_disconnect(host, CALL),
        ConnectorCall::Disconnect => pair.disconnect(host, CALL),
        ConnectorCall::TakeRequest => {
            let mut listener = Listener::new(pair.hosts[host].config.dialect);
            listener.bind().unwrap();
            listener.listen(0).unwrap();
            let connector = &mut pair.hosts[host].connector;
            listener.take_request(connector, 0, CALL).map(|_| ())
        }
        ConnectorCall::Join => {
            pair.hosts[host].with(now, |connector, link, qp, cx| connector.join(cx, link, qp))
        }
    }
}

/// A dialect whose Disconnect waits for the peer, so that its state can be looked at.
static WAITING: Dialect =
    Dialect { name: "ND2, waiting", disconnect_at_once: false, ..dialect::ND2 };

/// Where a call that proceeds leads (ND2 4.7.2); `None` = the state stays.
fn leads_to(call: ConnectorCall, from: ConnectorState, at_once: bool) -> Option<ConnectorState> {
    Some(match (call, from) {
        (ConnectorCall::Bind, _) => ConnectorState::Bound,
        (ConnectorCall::Connect, _) => ConnectorState::Connecting,
        (ConnectorCall::CompleteConnect, _) => ConnectorState::Connected,
        (ConnectorCall::Accept, _) => ConnectorState::Accepting,
        (ConnectorCall::Reject, _) => ConnectorState::Disconnected,
        (ConnectorCall::Disconnect, ConnectorState::Connected) if !at_once => {
            ConnectorState::Disconnecting
        }
        (ConnectorCall::Disconnect, _) => ConnectorState::Disconnected,
        (ConnectorCall::TakeRequest, _) => ConnectorState::Queued,
        _ => return None,
    })
}

#[test]
fn nd2_4_7_3_every_call_in_every_state() {
    let mut cells = 0;
    for dialect in dialect::ALL.into_iter().chain([&WAITING]) {
        for state in ConnectorState::ALL {
            for (row, kind) in ConnectorCall::ALL.into_iter().enumerate() {
                let Some((mut pair, host)) = in_state(dialect, state) else { continue };
                let cell = dialect.connector[row][state as usize];
                let expected = match cell {
                    Cell::Ok => Ok(()),
                    // The conditions as the road to the state in `in_state` makes them.
                    Cell::Fail(status)
                    | Cell::IfRejected(status)
                    | Cell::IfRefused(status)
                    | Cell::IfAlone(status)
                    | Cell::IfTried(_, status)
                    | Cell::IfPeerLeft(_, status) => Err(status),
                };
                let name = format!("{}: {kind:?} in {state:?}", dialect.name);
                assert_eq!(call(&mut pair, host, kind), expected, "{name}");
                let now = pair.hosts[host].connector.state();
                match leads_to(kind, state, dialect.disconnect_at_once) {
                    Some(next) if expected.is_ok() => assert_eq!(now, next, "{name}"),
                    _ => assert_eq!(now, state, "{name}: a refused call changes nothing"),
                }
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 13 * (5 * 11 - 3 + 11), "all cells but three dialects' Disconnecting");
}

/// The cells with conditions, on the other side of their condition.
#[test]
fn nd2_4_7_3_cells_with_conditions() {
    let refused = |private: &'static [u8]| {
        let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Requested).unwrap();
        pair.reject(PASSIVE, private).unwrap();
        pair
    };
    let pair = refused(b"no room");
    assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Bound);
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Ok(&b"no room"[..]));
    let pair = refused(b"");
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Err(Status::ConnectionInvalid));
    // Version 1 asks whether there was a Reject at all (ND1 10).
    let (mut pair, _) = in_state(&dialect::ND1, ConnectorState::Requested).unwrap();
    pair.reject(PASSIVE, b"").unwrap();
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Ok(&b""[..]));
    // "ABT (INV if never connecting)", "INV; ABT if the peer left first".
    let (mut pair, host) = in_state(&dialect::ND2, ConnectorState::Replied).unwrap();
    pair.kill(PASSIVE);
    pair.pump();
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Disconnected);
    let aborted = Err(Status::ConnectionAborted);
    assert_eq!(call(&mut pair, host, ConnectorCall::CompleteConnect), aborted);
    assert_eq!(call(&mut pair, host, ConnectorCall::Reject), aborted);
}

#[test]
fn nd2_4_7_3_every_listener_call_in_every_state() {
    for dialect in dialect::ALL {
        for (column, state) in ListenerState::ALL.into_iter().enumerate() {
            for (row, kind) in ListenerCall::ALL.into_iter().enumerate() {
                let mut listener = Listener::new(dialect);
                if column > 0 {
                    listener.bind().unwrap();
                }
                if column > 1 {
                    listener.listen(0).unwrap();
                }
                assert_eq!(listener.state(), state);
                let caps = Pair::new(PairConfig::new(dialect)).hosts[0].config.caps;
                let mut connector = Connector::new(dialect, caps);
                let result = match kind {
                    ListenerCall::Bind => listener.bind(),
                    ListenerCall::Listen => listener.listen(1),
                    ListenerCall::GetLocalAddress => listener.gate(kind),
                    ListenerCall::GetConnectionRequest => {
                        listener.take_request(&mut connector, 0, 0).map(|_| ())
                    }
                };
                let expected = match dialect.listener[row][column] {
                    Cell::Ok => Ok(()),
                    Cell::Fail(status) => Err(status),
                    other => panic!("{other:?}"),
                };
                assert_eq!(result, expected, "{}: {kind:?} in {state:?}", dialect.name);
            }
        }
    }
}

fn finished(host: &Host, waiter: u64) -> Option<Status> {
    host.finished(waiter)
}

/// ND2 4.7.2, row by row where calls alone do not show it.
#[test]
fn nd2_4_7_2_a_connection_is_made_in_three_steps() {
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    pair.listen();
    pair.take_request(1).unwrap();
    assert_eq!(finished(&pair.hosts[PASSIVE], 1), None);
    pair.connect(2, READS, b"hello").unwrap();
    assert_eq!(finished(&pair.hosts[PASSIVE], 1), Some(Status::Success));
    assert_eq!(pair.hosts[PASSIVE].connector.private_data(), Ok(&b"hello"[..]));
    assert_eq!(finished(&pair.hosts[ACTIVE], 2), None);
    pair.accept(3, READS, b"welcome").unwrap();
    assert_eq!(finished(&pair.hosts[ACTIVE], 2), Some(Status::Success));
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Ok(&b"welcome"[..]));
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), None);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Connecting);
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Accepting);
    pair.complete().unwrap();
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), Some(Status::Success));
    assert_eq!(pair.hosts[PASSIVE].connector.state(), ConnectorState::Connected);
}

#[test]
fn nd2_4_7_2_a_refused_connect_may_be_tried_again_with_the_same_queue_pair() {
    for how in 0..3 {
        let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Requested).unwrap();
        let buffer = pair.hosts[ACTIVE].register(vec![0; 8], Rights::LOCAL_WRITE);
        pair.hosts[ACTIVE].post_receive(7, &[buffer.all()]).unwrap();
        match how {
            0 => pair.reject(PASSIVE, b"").unwrap(),
            1 => {
                pair.release(PASSIVE);
                pair.pump();
            }
            _ => {
                pair.kill(PASSIVE);
                pair.pump();
            }
        }
        assert_eq!(finished(&pair.hosts[ACTIVE], 2), Some(Status::ConnectionRefused), "{how}");
        assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Bound);
        assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Idle);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [], "receives stay posted");
        let dialect = &dialect::ND2;
        pair.hosts[PASSIVE] = Host::new(pair.hosts[PASSIVE].config, 0xB);
        pair.hosts[PASSIVE].connector = Connector::new(dialect, pair.hosts[0].config.caps);
        pair.establish();
        pair.hosts[PASSIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(7, Status::Success)]);
    }
}

#[test]
fn nd2_4_7_2_a_connect_without_a_route_ends_with_the_reason() {
    let status = Status::HostUnreachable;
    for (end, status) in [(LinkEnd::Failed(status), status), (LinkEnd::TimedOut, Status::IoTimeout)]
    {
        let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Connecting).unwrap();
        let now = pair.now;
        pair.hosts[ACTIVE].with(now, |_, link, _, cx| link.unwrap().link_closed(cx, end));
        assert_eq!(finished(&pair.hosts[ACTIVE], 2), Some(status));
        assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Bound);
        assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Idle);
    }
    // No answer at all: the wire's own limit, which leaves a program time to think (ND2 C32).
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    pair.connect(2, READS, b"").unwrap();
    pair.stall(PASSIVE, true);
    pair.advance(Duration::from_secs(30));
    assert_eq!(finished(&pair.hosts[ACTIVE], 2), None);
    pair.advance(Duration::from_secs(31));
    assert_eq!(finished(&pair.hosts[ACTIVE], 2), Some(Status::IoTimeout));
}

/// Active side backs out behind the reply: REFUSED (ND2 C18), by Reject, release or death.
#[test]
fn nd2_c18_an_accept_whose_peer_backs_out_is_refused() {
    for dialect in dialect::ALL {
        for how in 0..3 {
            let (mut pair, _) = in_state(dialect, ConnectorState::Replied).unwrap();
            pair.hosts[PASSIVE].post_receive(7, &[]).unwrap();
            match how {
                0 => pair.reject(ACTIVE, b"").unwrap(),
                1 => pair.release(ACTIVE),
                _ => pair.kill(ACTIVE),
            }
            pair.pump();
            assert_eq!(finished(&pair.hosts[PASSIVE], 3), Some(dialect.backed_out));
            let kept = dialect.peer_gone == PeerGone::Await;
            let flushed = if kept { vec![] } else { vec![(7, Status::Canceled)] };
            assert_eq!(pair.hosts[PASSIVE].outcomes(), flushed, "{}", dialect.name);
            assert_eq!(pair.hosts[PASSIVE].connector.state(), ConnectorState::Disconnected);
        }
    }
}

#[test]
fn nd2_4_7_2_an_active_side_that_is_gone_makes_accept_abort() {
    let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Requested).unwrap();
    pair.kill(ACTIVE);
    pair.pump();
    let aborted = Err(Status::ConnectionAborted);
    assert_eq!(pair.accept(3, READS, b""), aborted);
    assert_eq!(pair.reject(PASSIVE, b""), aborted);
}

/// TEST:NdReceiveConnClosed: what was queued before the end counts.
#[test]
fn nd2_4_7_2_accept_succeeds_when_the_active_side_completes_and_leaves_at_once() {
    let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Replied).unwrap();
    pair.hosts[PASSIVE].post_receive(7, &[]).unwrap();
    pair.stall(PASSIVE, true);
    pair.complete().unwrap();
    pair.disconnect(ACTIVE, 9).unwrap();
    pair.kill(ACTIVE);
    pair.stall(PASSIVE, false);
    pair.pump();
    let host = &mut pair.hosts[PASSIVE];
    assert_eq!(finished(host, 3), Some(Status::Success));
    assert_eq!(host.connector.state(), ConnectorState::PeerGone);
    assert_eq!(host.outcomes(), [(7, Status::Canceled)]);
    assert_eq!(pair.disconnect(PASSIVE, 10), Ok(()));
    assert_eq!(finished(&pair.hosts[PASSIVE], 10), Some(Status::Success));
}

#[test]
fn nd2_4_7_2_an_accept_that_is_not_completed_times_out() {
    let (mut pair, _) = in_state(&dialect::ND2, ConnectorState::Accepting).unwrap();
    pair.hosts[PASSIVE].post_receive(7, &[]).unwrap();
    pair.advance(Duration::from_secs(59));
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), None, "clients may be slow");
    pair.advance(Duration::from_secs(2));
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), Some(Status::IoTimeout));
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(7, Status::Canceled)]);
}

/// ND2 4.1, 4.2 rule 8: the active side's first message is as good as its CompleteConnect.
#[test]
fn nd2_4_7_2_first_data_establishes_too() {
    let mut wires = Wires::plain();
    wires.active.peer_to_peer = false;
    wires.active.hold = Duration::ZERO;
    let mut pair = Pair::new(PairConfig { wires, ..PairConfig::new(&dialect::ND2) });
    pair.establish();
    pair.hosts[PASSIVE].post_receive(7, &[]).unwrap();
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), Some(Status::Success));
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(7, Status::Success)]);
}

/// ND2 4.9, C19, C33: a notification comes before the flush; the local one says so.
#[test]
fn nd2_4_9_the_notice_comes_before_the_flush() {
    for dialect in dialect::ALL {
        let mut pair = Pair::connected(dialect);
        for host in [ACTIVE, PASSIVE] {
            pair.hosts[host].post_receive(7, &[]).unwrap();
            pair.notify_disconnect(host, 50).unwrap();
            pair.hosts[host].seen.clear();
        }
        pair.pump();
        pair.disconnect(ACTIVE, 60).unwrap();
        pair.pump();
        let order = |host: &Host| {
            let seen = host.seen.iter().filter_map(|seen| match seen {
                Seen::Finished(finished) => Some((finished.waiter, finished.status)),
                Seen::Completion(_, c) => Some((c.request_context, c.status)),
                _ => None,
            });
            seen.collect::<Vec<_>>()
        };
        assert_eq!(
            order(&pair.hosts[ACTIVE]),
            [(50, dialect.notify_on_disconnect), (7, Status::Canceled), (60, Status::Success)],
            "{}",
            dialect.name
        );
        let mut expected = vec![(50, Status::Success)];
        if dialect.peer_gone == PeerGone::Flush {
            expected.push((7, Status::Canceled));
        }
        assert_eq!(order(&pair.hosts[PASSIVE]), expected, "{}", dialect.name);
        // Kept requests go when the program disconnects (ND1 T28), or, where the queue pair outlives the
        // connection, when the queue pair is flushed.
        pair.disconnect(PASSIVE, 61).unwrap();
        if dialect.peer_gone == PeerGone::Await {
            assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
            pair.flush(PASSIVE);
        }
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(7, Status::Canceled)], "{}", dialect.name);
    }
}

/// ND2 4.9, C33: what the last release ends, nobody has canceled.
#[test]
fn nd2_4_9_a_notice_ends_at_the_last_release_as_at_a_disconnect() {
    for dialect in dialect::ALL {
        let mut pair = Pair::connected(dialect);
        pair.notify_disconnect(ACTIVE, 50).unwrap();
        pair.release(ACTIVE);
        pair.pump();
        let status = Some(dialect.notify_on_disconnect);
        assert_eq!(finished(&pair.hosts[ACTIVE], 50), status, "{}", dialect.name);
    }
}

/// NDK DC-1: Disconnect ends when the peer has answered, and fails if it does not.
#[test]
fn ndk_dc1_disconnect_waits_for_the_peer() {
    let mut pair = Pair::connected(&dialect::NDK);
    pair.disconnect(ACTIVE, 60).unwrap();
    assert_eq!(finished(&pair.hosts[ACTIVE], 60), None);
    pair.pump();
    assert_eq!(finished(&pair.hosts[ACTIVE], 60), Some(Status::Success));
    assert_eq!(pair.hosts[ACTIVE].connector.state(), ConnectorState::Disconnected);

    let mut pair = Pair::connected(&dialect::NDK);
    pair.stall(ACTIVE, true);
    pair.disconnect(ACTIVE, 60).unwrap();
    pair.advance(Duration::from_secs(1));
    assert_eq!(finished(&pair.hosts[ACTIVE], 60), None);
    pair.advance(Duration::from_secs(2));
    assert_eq!(finished(&pair.hosts[ACTIVE], 60), Some(Status::IoTimeout));
}

/// NDK DC-1: a Disconnect does not outlive its link, though its result is unknown.
#[test]
fn ndk_dc1_a_disconnect_whose_link_is_gone_fails() {
    let gone = |state| {
        let (mut pair, host) = in_state(&WAITING, state).unwrap();
        let now = pair.now;
        pair.hosts[host].with(now, |connector, _, _, cx| connector.link_gone(cx.effects));
        (finished(&pair.hosts[host], 5), pair.hosts[host].connector.state())
    };
    let aborted = (Some(Status::ConnectionAborted), ConnectorState::Disconnected);
    assert_eq!(gone(ConnectorState::Disconnecting), aborted);
    assert_eq!(gone(ConnectorState::Connected), (None, ConnectorState::Connected));
}

/// ND2 4.7.4, row by row.
#[test]
fn nd2_4_7_4_cancel() {
    let (mut pair, host) = in_state(&dialect::ND2, ConnectorState::Connecting).unwrap();
    pair.cancel(host);
    assert_eq!(finished(&pair.hosts[host], 2), Some(Status::Canceled));
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Disconnected);
    assert_eq!(pair.hosts[host].queue_pair.state(), QueuePairState::Idle);

    let (mut pair, host) = in_state(&dialect::ND2, ConnectorState::Accepting).unwrap();
    pair.cancel(host);
    assert_eq!(finished(&pair.hosts[host], 3), Some(Status::Canceled));
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Disconnected);

    let (mut pair, host) = in_state(&dialect::ND2, ConnectorState::Connected).unwrap();
    pair.notify_disconnect(host, 50).unwrap();
    pair.cancel(host);
    assert_eq!(finished(&pair.hosts[host], 50), Some(Status::Canceled));
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Connected);
    pair.hosts[ACTIVE]
        .post(1, Operation::Write { token: 0, address: 0 }, Flags::NONE, &[])
        .unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)], "unaffected");

    let (mut pair, host) = in_state(&WAITING, ConnectorState::Disconnecting).unwrap();
    pair.cancel(host);
    assert_eq!(finished(&pair.hosts[host], 5), Some(Status::Canceled));
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Disconnected);

    for state in [ConnectorState::Idle, ConnectorState::Bound, ConnectorState::Requested] {
        let (mut pair, host) = in_state(&dialect::ND2, state).unwrap();
        pair.cancel(host);
        assert_eq!(pair.hosts[host].connector.state(), state);
    }
}

/// ND2 4.7.2, 2.3 rule 10: a canceled listener gives its connectors back.
#[test]
fn nd2_4_7_2_a_canceled_listener_gives_its_connectors_back() {
    let (mut pair, host) = in_state(&dialect::ND2, ConnectorState::Queued).unwrap();
    assert_eq!(pair.hosts[host].listener.cancel(), [0]);
    let now = pair.now;
    pair.hosts[host]
        .with(now, |connector, _, _, cx| connector.unqueue(Status::Canceled, cx.effects));
    assert_eq!(finished(&pair.hosts[host], 1), Some(Status::Canceled));
    assert_eq!(pair.hosts[host].connector.state(), ConnectorState::Idle);
}

/// ND2 2.11: requests without a taker wait, up to the backlog.
#[test]
fn nd2_2_11_the_backlog_waits_and_is_refused_at_the_end() {
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    pair.listen();
    pair.connect(2, READS, b"early").unwrap();
    pair.take_request(1).unwrap();
    assert_eq!(finished(&pair.hosts[PASSIVE], 1), Some(Status::Success));
    assert_eq!(pair.hosts[PASSIVE].connector.private_data(), Ok(&b"early"[..]));

    // A limit of 0 is none.
    for (limit, most) in [(1, 1), (2, 2), (0, 300)] {
        let mut listener = Listener::new(&dialect::ND2);
        listener.bind().unwrap();
        listener.listen(limit).unwrap();
        for link in 0..most {
            assert!(listener.has_room(), "{limit}: {link}");
            let offer = transom_core::Offer { limits: READS, private: Box::default() };
            assert_eq!(listener.arrived(transom_core::Incoming { link, offer }), None);
        }
        assert_eq!(listener.has_room(), limit == 0, "{limit}");
        assert_eq!(listener.close(), (vec![], (0..most).collect()));
    }
}

/// ND2 4.8 sizes; ND2 C17: an error about arguments changes nothing.
#[test]
fn nd2_4_8_private_data_limits_are_exact_and_exceeding_them_is_harmless() {
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    let most = vec![7; pair.hosts[0].config.caps.caller_data];
    let over = vec![7; most.len() + 1];
    pair.listen();
    pair.take_request(1).unwrap();
    let too_long = Err(Status::InvalidBufferSize);
    assert_eq!(pair.connect(2, READS, &over), too_long);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Idle);
    assert_eq!(pair.connect(2, READS, &most), Ok(()));
    assert_eq!(pair.accept(3, READS, &over), too_long);
    assert_eq!(pair.hosts[PASSIVE].connector.state(), ConnectorState::Requested);
    assert_eq!(pair.accept(3, READS, &most), Ok(()));
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Ok(&most[..]));
    assert_eq!(pair.hosts[PASSIVE].connector.private_data(), Ok(&most[..]));
    pair.complete().unwrap();
    // None at all: success, no bytes.
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    pair.establish();
    assert_eq!(pair.hosts[ACTIVE].connector.private_data(), Ok(&[][..]));
}

/// ND2 C17: an Accept that the wire has no room for leaves the queue pair as it was, with its receives.
#[test]
fn nd2_4_8_an_accept_that_the_wire_refuses_gives_the_queue_pair_back() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].caps.callee_data = 1 << 20;
    let mut pair = Pair::new(config);
    pair.listen();
    pair.take_request(1).unwrap();
    pair.connect(2, READS, b"").unwrap();
    pair.hosts[PASSIVE].post_receive(7, &[]).unwrap();
    assert_eq!(pair.accept(3, READS, &[7; 1 << 20]), Err(Status::InvalidBufferSize));
    assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
    assert_eq!(pair.hosts[PASSIVE].connector.state(), ConnectorState::Requested);
    pair.accept(3, READS, b"").unwrap();
    pair.complete().unwrap();
    assert_eq!(finished(&pair.hosts[PASSIVE], 3), Some(Status::Success));
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(7, Status::Success)]);
}

/// A row of ND2 4.8: the limits that both sides ask for, those of their adapters, and the
/// agreement.
#[derive(Clone, Copy, Debug)]
struct LimitsRow {
    /// (inbound, outbound) asked for on Connect, and the active adapter's limits.
    connect: ((u32, u32), (u32, u32)),
    /// (inbound, outbound) asked for on Accept, and the passive adapter's limits.
    accept: ((u32, u32), (u32, u32)),
    /// The answer of the passive side's GetReadLimits before Accept.
    offered: (u32, u32),
    /// The limits of the active side.
    active: (u32, u32),
    /// The limits of the passive side.
    passive: (u32, u32),
}

/// Rows that cover each sentence of ND2 4.8.
#[rustfmt::skip]
static LIMITS: [LimitsRow; 6] = [
    // All is granted.
    LimitsRow { connect: ((4, 2), (16, 16)), accept: ((2, 4), (16, 16)), offered: (2, 4), active: (4, 2), passive: (2, 4) },
    // Above the active adapter: clamped silently.
    LimitsRow { connect: ((99, 99), (8, 6)), accept: ((99, 99), (32, 32)), offered: (6, 8), active: (8, 6), passive: (6, 8) },
    // Above the passive adapter: clamped silently.
    LimitsRow { connect: ((16, 16), (16, 16)), accept: ((16, 16), (3, 5)), offered: (3, 5), active: (5, 3), passive: (3, 5) },
    // The accepting side asks for less: the active side sees it mirrored.
    LimitsRow { connect: ((16, 16), (16, 16)), accept: ((1, 2), (16, 16)), offered: (16, 16), active: (2, 1), passive: (1, 2) },
    // The peer offered 0: outbound is clamped to 0 (ND2 C35).
    LimitsRow { connect: ((0, 4), (16, 16)), accept: ((4, 4), (16, 16)), offered: (4, 0), active: (0, 4), passive: (4, 0) },
    // 0 on both sides is legal.
    LimitsRow { connect: ((0, 0), (16, 16)), accept: ((0, 0), (16, 16)), offered: (0, 0), active: (0, 0), passive: (0, 0) },
];

#[test]
fn nd2_4_8_read_limits_row_by_row() {
    let limits = |(inbound, outbound)| ReadLimits { inbound, outbound };
    for dialect in dialect::ALL {
        for row in &LIMITS {
            for mut wires in [Wires::transom(), Wires::plain()] {
                for side in [&mut wires.active, &mut wires.passive] {
                    // The wire's own additions: a slot for verdicts, one for a Read that says
                    // ready, and one because siw cannot live with 0 (iW L2).
                    side.verdict_reads = false;
                    side.peer_to_peer = false;
                    side.least_reads = 0;
                }
                let mut config = PairConfig { wires, ..PairConfig::new(dialect) };
                config.hosts[ACTIVE].caps.reads = limits(row.connect.1);
                config.hosts[PASSIVE].caps.reads = limits(row.accept.1);
                let mut pair = Pair::new(config);
                pair.listen();
                pair.take_request(1).unwrap();
                pair.connect(2, limits(row.connect.0), b"").unwrap();
                let read = |pair: &Pair, host: usize| pair.hosts[host].connector.read_limits();
                assert_eq!(read(&pair, PASSIVE), Ok(limits(row.offered)), "{row:?}");
                pair.accept(3, limits(row.accept.0), b"").unwrap();
                assert_eq!(read(&pair, PASSIVE), Ok(limits(row.passive)), "{row:?}");
                assert_eq!(read(&pair, ACTIVE), Ok(limits(row.active)), "{row:?}");
                pair.complete().unwrap();
                assert_eq!(read(&pair, ACTIVE), Ok(limits(row.active)), "{row:?}");
            }
        }
    }
}
