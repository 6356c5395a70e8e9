//! Queue pairs that outlive their connections (verbs 6), over real links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use transom_memory::{QueuePairId, Rights};

use super::harness::*;
use super::namespace::{OURS, PEERS, with_addresses};
use super::rings::until;
use crate::dialect::VERBS;
use crate::raw::{Adapter, Connector, EventSink, Listener, Options, QueuePairOptions};
use crate::tables::ConnectorState;
use crate::{
    Completion, CompletionKind, Data, EndReason, Flags, Limits, Operation, QueuePairEvent,
    QueuePairState, Request, Status,
};

fn verbs() -> Options {
    Options { dialect: &VERBS, ..Options::from_env() }
}

/// Two ends without a connection.
fn ends() -> (End, End) {
    (End::new(&verbs()), End::new(&verbs()))
}

/// Connect two queue pairs, again.
fn connect(active: &mut End, passive: &mut End) {
    active.connector = active.adapter.connector().unwrap();
    passive.connector = passive.adapter.connector().unwrap();
    join(active, passive);
}

fn listener(end: &End) -> Listener {
    let listener = end.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    listener
}

fn send(end: &End, context: u64) {
    let request = Request { context, operation: Operation::Send, flags: Flags::NONE };
    end.qp.post(&request, Data::Sges(&[])).unwrap();
}

fn outcomes(end: &End, count: usize) -> Vec<(u64, Status)> {
    (0..count).map(|_| end.next()).map(|c| (c.request_context, c.status)).collect()
}

fn nothing(end: &End) -> bool {
    end.cq.poll(&mut [Completion::default()]) == 0
}

/// Wait until a connector's peer has gone.
fn parted(connector: &Connector) {
    let (sink, gone) = signal();
    connector.notify_disconnect(sink).unwrap();
    assert_eq!(gone.wait(), Status::Success);
    assert_eq!(connector.state(), ConnectorState::PeerGone);
}

const OK: Status = Status::Success;
const CANCELED: Status = Status::Canceled;
const SOON: Option<Duration> = Some(Duration::from_millis(20));

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

/// Verbs V79: the peer begins anew, and so does the connection; no posted request is lost.
#[test]
fn v68_v79_a_reset_queue_pair_is_connected_again_with_the_same_number() {
    let (mut active, mut passive) = ends();
    for round in 0..5 {
        connect(&mut active, &mut passive);
        let number = passive.qp.config().number;
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

/// Verbs V94: the sender's own limit, whatever its wire's.
#[test]
fn v94_a_send_without_a_receive_fails_after_the_queue_pairs_limit() {
    let (mut active, mut passive) = ends();
    connect(&mut active, &mut passive);
    send(&active, 1);
    assert!(nothing(&active), "for ever");
    active.qp.set_limits(Limits { receive: SOON, ..Limits::default() }).unwrap();
    assert_eq!(outcomes(&active, 1), [(1, Status::ReceiverNotReady)]);
    assert_eq!(active.qp.state(), QueuePairState::Error);
    parted(&passive.connector);
    assert_eq!(passive.qp.state(), QueuePairState::Idle, "nothing has happened to it");
}

/// Verbs V54: a queue that runs over loses what comes then, not what is in it, and its queue pairs end.
#[test]
fn v54_a_completion_queue_that_runs_over_keeps_what_is_in_it() {
    let (active, passive) = ends();
    let cq = active.adapter.completion_queue(2).unwrap();
    let options = QueuePairOptions::default();
    let make = || active.adapter.queue_pair(active.domain, &cq, &cq, None, &options).unwrap();
    let mut end = End { cq: cq.clone(), qp: make(), ..active };
    let mut passive = passive;
    connect(&mut end, &mut passive);
    let (sink, failed) = signal();
    cq.notify(crate::NotifyKind::Errors, sink).unwrap();
    for context in 20..23 {
        passive.qp.post_receive(context, &[]).unwrap();
    }
    for context in 1..4 {
        send(&end, context);
    }
    assert_eq!(failed.wait(), Status::QueueOverrun);
    let mut kept = [Completion::default(); 3];
    assert_eq!(cq.take(&mut kept), 2);
    assert_eq!(kept.map(|c| c.request_context)[..2], [1, 2]);
    until("the queue pair did not end", || end.qp.state() == QueuePairState::Error);
    passive.expect(CompletionKind::Receive);
}

/// Verbs V37: a queue pair that is destroyed takes its completions with it, and those of others stay.
#[test]
fn v37_completions_of_a_queue_pair_leave_with_it() {
    let (mut active, mut passive) = ends();
    connect(&mut active, &mut passive);
    let options = QueuePairOptions::default();
    let other =
        active.adapter.queue_pair(active.domain, &active.cq, &active.cq, None, &options).unwrap();
    other.post_receive(40, &[]).unwrap();
    active.qp.post_receive(30, &[]).unwrap();
    other.flush().unwrap();
    active.qp.flush().unwrap();
    active.qp.reset().unwrap();
    drop(active.qp);
    let mut left = [Completion::default(); 3];
    assert_eq!(active.cq.take(&mut left), 1);
    assert_eq!(left[0].request_context, 40);
}

/// V73: a number of the program's, of 24 bits, that no other queue pair has.
#[test]
fn v73_a_queue_pair_has_the_number_that_was_asked_for() {
    let (end, _) = ends();
    let make = |number| {
        let options =
            QueuePairOptions { number: Some(QueuePairId(number)), ..QueuePairOptions::default() };
        end.adapter.queue_pair(end.domain, &end.cq, &end.cq, None, &options)
    };
    let first = make(0x12_3456).unwrap();
    assert_eq!(first.config().number, QueuePairId(0x12_3456));
    assert_eq!(make(0x12_3456).unwrap_err().status, Status::SharingViolation);
    for bad in [0, 1, 1 << 24, u32::MAX] {
        assert_eq!(make(bad).unwrap_err().status, Status::InvalidParameter(0), "{bad:#x}");
    }
    for good in [2, (1 << 24) - 1] {
        assert_eq!(make(good).unwrap().config().number, QueuePairId(good));
    }
    drop(first);
    make(0x12_3456).unwrap();
}

/// V129: made without queue pairs, which join when they like; what the peer sends earlier waits.
#[test]
fn v129_queue_pairs_join_a_connection_that_was_made_without_them() {
    const LONG: usize = 500_000; // more than is kept
    for early in [true, false] {
        let (active, passive) = ends();
        let listener = listener(&passive);
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        active.connector.bind(loopback()).unwrap();
        let (sink, connected) = signal();
        let at = listener.address().unwrap();
        active.connector.connect(None, at, LIMITS, b"to whom", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        assert_eq!(passive.connector.private_data().unwrap(), b"to whom");
        let invalid = Status::ConnectionInvalid;
        assert_eq!(passive.connector.join(&passive.qp).unwrap_err().status, invalid);
        let (sink, accepted) = signal();
        passive.connector.accept(None, LIMITS, b"me", sink).unwrap();
        assert_eq!(connected.wait(), OK);
        let target = passive.buffer(64);
        let remote = Buffer::new(&passive, LONG, Rights(ALL.0 | Rights::REMOTE_WRITE.0));
        let source = active.buffer(LONG);
        source.fill(|_| 7);
        active.connector.join(&active.qp).unwrap();
        if early {
            passive.connector.join(&passive.qp).unwrap();
        }
        active.connector.complete_connect().unwrap();
        assert_eq!(accepted.wait(), OK);
        passive.qp.post_receive(20, &[target.all()]).unwrap();
        let to = Operation::Write { token: remote.token.0, address: remote.address() };
        for length in [8, LONG] {
            active.post(to, &[source.sge(0, length)]);
        }
        send(&active, 3);
        if !early {
            assert!(nothing(&active), "nobody has executed it");
            assert!(passive.adapter.held() < LONG / 2, "bounded, whatever it sends");
            assert_eq!(passive.connector.state(), ConnectorState::Connected);
            passive.connector.join(&passive.qp).unwrap();
        }
        for kind in [CompletionKind::Write, CompletionKind::Write, CompletionKind::Send] {
            active.expect(kind);
        }
        passive.expect(CompletionKind::Receive);
        assert_eq!(remote.bytes(), [7; LONG]);
        let again = passive.connector.join(&passive.qp).unwrap_err().status;
        assert_eq!(again, Status::ConnectionActive);
    }
}

/// V129: or never: the connection carries private data, and its end is noticed, by either side, also
/// if the peer had sent something.
#[test]
fn v129_the_end_of_a_connection_without_a_queue_pair_is_noticed() {
    for leaver in 0..2 {
        let (active, passive) = ends();
        let listener = listener(&passive);
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        active.connector.bind(loopback()).unwrap();
        let (sink, connected) = signal();
        let at = listener.address().unwrap();
        active.connector.connect(None, at, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        let (sink, accepted) = signal();
        passive.connector.accept(None, LIMITS, b"", sink).unwrap();
        assert_eq!(connected.wait(), OK);
        active.connector.complete_connect().unwrap();
        assert_eq!(accepted.wait(), OK);
        let ends = [&active, &passive];
        ends[leaver].connector.disconnect(crate::raw::Sink::call(|_| ())).unwrap();
        parted(&ends[1 - leaver].connector);
        assert!(nothing(&active) && nothing(&passive));
    }
}

/// Connect to a listener at `to`, from `from`; the addresses that the passive side sees.
fn reach(from: IpAddr, listener: &Listener, to: IpAddr) -> (SocketAddr, SocketAddr) {
    let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
    let active = End::on(&any);
    let passive = End::on(&any);
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind((from, 0).into()).unwrap();
    let at = (to, listener.address().unwrap().port()).into();
    let (sink, connected) = signal();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(requested.wait(), OK);
    let (sink, accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(connected.wait(), OK);
    active.connector.complete_connect().unwrap();
    assert_eq!(accepted.wait(), OK);
    passive.qp.post_receive(20, &[]).unwrap();
    send(&active, 1);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    let info = passive.connector.info().unwrap();
    assert_eq!(info.path, transom_rules::paths::of_this_run(), "{from} to {to}");
    assert_eq!(active.connector.info().unwrap().local, info.peer);
    (info.local, info.peer)
}

/// V113: one adapter and one listener serve every address of the host, of both families, and
/// connections within the host share memory whatever addresses they have.
#[test]
fn v113_one_listener_serves_all_addresses_of_the_host() {
    let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
    let v4 = [Ipv4Addr::LOCALHOST.into(), IpAddr::from([127, 0, 0, 2])];
    let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
    let all = (Ipv6Addr::UNSPECIFIED, 0).into();
    let Ok(listener) = any.listener(all) else { return }; // a machine without IPv6
    listener.listen(0).unwrap();
    for (from, to) in [(v4[0], v4[0]), (v4[0], v4[1]), (v4[1], v4[0]), (v6, v6)] {
        let (local, peer) = reach(from, &listener, to);
        assert_eq!((local.ip(), peer.ip()), (to, from), "as their own family writes them");
    }
    let mine = crate::raw::interfaces().unwrap().into_iter().map(|interface| interface.address);
    for to in mine.filter(|to| to.is_ipv4() && !to.is_loopback()) {
        assert_eq!(reach(v4[0], &listener, to).0.ip(), to);
    }
    // A listener of one address family.
    let listener = any.listener_of_one_family(all).unwrap();
    listener.listen(0).unwrap();
    assert_eq!(reach(v6, &listener, v6).1.ip(), v6);
    let end = End::on(&any);
    end.connector.bind((v4[0], 0).into()).unwrap();
    let at = (v4[0], listener.address().unwrap().port()).into();
    let (sink, refused) = signal();
    end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(refused.wait(), Status::ConnectionRefused);
}

/// The same between addresses of two interfaces.
#[test]
fn v113_two_interfaces_of_one_host_share_memory() {
    with_addresses(|| {
        let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
        let listener = any.listener((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        listener.listen(0).unwrap();
        let (local, peer) = reach(OURS, &listener, PEERS);
        assert_eq!((local.ip(), peer.ip()), (PEERS, OURS));
    });
}

/// The next event of a queue pair from the channel `told`, without first messages.
fn event(told: &mpsc::Receiver<(QueuePairId, QueuePairEvent)>) -> (QueuePairId, QueuePairEvent) {
    loop {
        let event = told.recv_timeout(PATIENCE).expect("no event");
        if event.1 != QueuePairEvent::FirstMessage {
            return event;
        }
    }
}

/// V104: over rings, the first message of a few bytes goes no short way past this.
#[test]
fn v104_the_first_message_is_reported_when_it_comes() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let sink = move |number, event| tell.lock().unwrap().send((number, event)).unwrap();
    let mut active = End::new(&verbs());
    let mut passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
    for _ in 0..2 {
        connect(&mut active, &mut passive);
        let target = Buffer::new(&passive, 64, Rights(ALL.0 | Rights::REMOTE.0));
        let source = active.buffer(8);
        let write = Operation::Write { token: target.token.0, address: target.address() };
        for _ in 0..3 {
            active.post(write, &[source.sge(0, 8)]);
            active.expect(CompletionKind::Write);
        }
        let number = passive.qp.config().number;
        let first = told.recv_timeout(PATIENCE).expect("no event");
        assert_eq!(first, (number, QueuePairEvent::FirstMessage));
        assert!(told.try_recv().is_err(), "once for each connection");
        active.qp.reset().unwrap();
        passive.qp.reset().unwrap();
    }
}

/// Connect a queue pair to itself.
fn connect_to_itself(end: &mut End) {
    end.connector = end.adapter.connector().unwrap();
    let (sink, agreed) = signal();
    end.connector.bind(loopback()).unwrap();
    let limits = crate::raw::ReadLimits { inbound: 4, outbound: 4 };
    end.connector.connect_to_itself(limits, sink).unwrap();
    assert_eq!(agreed.wait(), OK);
    end.connector.join(&end.qp).unwrap();
    end.connector.complete_connect().unwrap();
}

/// Verbs V78: requests are carried out on the queue pair's own receives and regions, in their order, small
/// and large, also more than a socket holds.
#[test]
fn v78_a_queue_pair_is_its_own_peer() {
    let mut end = End::new(&verbs());
    connect_to_itself(&mut end);
    let size = 3 << 20;
    let memory = Buffer::new(&end, 2 * size, Rights(ALL.0 | Rights::REMOTE.0));
    let (token, at) = (memory.token.0, memory.address());
    for length in [8, 5000, size] {
        memory.fill(|index| if index < size { (index % 251) as u8 } else { 0 });
        let middle = (at + size as u64, length);
        end.qp.post_receive(20, &[memory.sge(size, length)]).unwrap();
        end.post(Operation::Send, &[memory.sge(0, length)]);
        let mut both = [end.next(), end.next()];
        both.sort_by_key(|completion| completion.kind == CompletionKind::Receive);
        assert!(both.iter().all(|completion| completion.status == OK), "{both:?}");
        assert_eq!(both[1].length as usize, length);
        assert_eq!(memory.bytes()[size..size + length], memory.bytes()[..length]);
        memory.fill(|index| if index < size { (index % 241) as u8 } else { 0 });
        end.post(Operation::Write { token, address: middle.0 }, &[memory.sge(0, length)]);
        end.expect(CompletionKind::Write);
        assert_eq!(memory.bytes()[size..size + length], memory.bytes()[..length]);
        memory.fill(|index| if index < size { (index % 239) as u8 } else { 0 });
        end.post(Operation::Read { token, address: at }, &[memory.sge(size, length)]);
        end.expect(CompletionKind::Read);
        assert_eq!(memory.bytes()[size..size + length], memory.bytes()[..length]);
    }
    // Many at a time, of each kind.
    for round in 0..8 {
        end.qp.post_receive(40 + round, &[memory.sge(0, 8)]).unwrap();
    }
    for _ in 0..8 {
        end.post(Operation::Write { token, address: at }, &[memory.sge(64, 8)]);
        end.post(Operation::Read { token, address: at }, &[memory.sge(64, 8)]);
        end.post(Operation::Send, &[memory.sge(64, 8)]);
        for _ in 0..4 {
            assert_eq!(end.next().status, OK);
        }
    }
}

/// Verbs V78, V92: the request that is refused fails with its responder's verdict, what is behind it is
/// flushed, and the queue pair is in error.
#[test]
fn v78_a_queue_pair_refuses_its_own_requests() {
    for case in 0..4 {
        let mut end = End::new(&verbs());
        connect_to_itself(&mut end);
        let memory = Buffer::new(&end, 4096, Rights(ALL.0 | Rights::REMOTE.0));
        let (token, at) = (memory.token.0, memory.address());
        let entry = [memory.sge(0, 64)];
        let good = |end: &End, context| {
            let operation = Operation::Write { token, address: at + 1024 };
            let request = Request { context, operation, flags: Flags::NONE };
            end.qp.post(&request, Data::Sges(&entry)).unwrap();
        };
        if case == 3 {
            end.qp.post_receive(20, &[memory.sge(2048, 8)]).unwrap();
        }
        for context in [1, 2, 3] {
            good(&end, context);
        }
        let (operation, status) = match case {
            0 => (Operation::Write { token: token ^ 1, address: at }, Status::RemoteAccess),
            1 => (Operation::Read { token: token ^ 1, address: at }, Status::RemoteAccess),
            2 => (Operation::Write { token, address: at + 4090 }, Status::RemoteAccess),
            _ => (Operation::Send, Status::PeerReceiveTooSmall),
        };
        let request = Request { context: 4, operation, flags: Flags::NONE };
        end.qp.post(&request, Data::Sges(&entry)).unwrap();
        good(&end, 5);
        let mut seen = outcomes(&end, if case == 3 { 6 } else { 5 });
        seen.sort_by_key(|outcome| outcome.0);
        let mut expected = vec![(1, OK), (2, OK), (3, OK), (4, status), (5, CANCELED)];
        if case == 3 {
            expected.push((20, Status::ReceiveTooSmall));
        }
        assert_eq!(seen, expected, "case {case}");
        assert_eq!(end.qp.state(), QueuePairState::Error);
        end.qp.reset().unwrap();
        connect_to_itself(&mut end);
        good(&end, 6);
        assert_eq!(outcomes(&end, 1), [(6, OK)]);
    }
}

/// Verbs V124: a program can distinguish a rejection, with private data or without, from a port
/// without a listener, whenever it learns of it.
#[test]
fn v124_a_rejection_ends_no_connection_and_a_closed_port_says_why() {
    let (active, passive) = ends();
    let listener = listener(&passive);
    let address = listener.address().unwrap();
    let limits = crate::raw::ReadLimits { inbound: 1, outbound: 1 };
    let refused = |connector: &Connector| {
        let (sink, answered) = signal();
        connector.bind(loopback()).unwrap();
        connector.connect(None, address, limits, &[], sink).unwrap();
        move || answered.wait()
    };
    let asking = active.adapter.connector().unwrap();
    let answer = refused(&asking);
    let request = passive.adapter.connector().unwrap();
    let (sink, requested) = signal();
    listener.get_request(&request, sink).unwrap();
    assert_eq!(requested.wait(), OK);
    request.reject(&[]).unwrap();
    assert_eq!(answer(), Status::ConnectionRefused);
    assert_eq!(asking.ended(), None);
    drop(listener);
    let asking = active.adapter.connector().unwrap();
    assert_eq!(refused(&asking)(), Status::ConnectionRefused);
    assert_eq!(asking.ended(), Some(EndReason::Link(Status::ConnectionRefused)));
    // No link can be made at all.
    let asking = active.adapter.connector().unwrap();
    let (sink, answered) = signal();
    asking.bind(loopback()).unwrap();
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
    asking.connect(None, elsewhere, limits, &[], sink).unwrap();
    let status = answered.wait();
    assert_eq!(asking.ended(), Some(EndReason::Link(status)));
}

/// V93, V104: a queue pair that lets its peer do nothing refuses what the token grants, small or
/// not, and its program is notified with no lock held.
#[test]
fn v93_v104_an_access_beyond_the_queue_pairs_rights_is_refused_and_reported() {
    for (length, late) in [(8, false), (8, true), (5000, false), (5000, true)] {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let sink = move |number, event| tell.lock().unwrap().send((number, event)).unwrap();
        let mut active = End::new(&verbs());
        let mut passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
        if !late {
            passive.qp.set_access(Rights::REMOTE_READ).unwrap();
        }
        connect(&mut active, &mut passive);
        let target = Buffer::new(&passive, 5000, Rights(ALL.0 | Rights::REMOTE.0));
        let source = active.buffer(5000);
        source.fill(|_| 7);
        let from = target.address();
        active.post(Operation::Read { token: target.token.0, address: from }, &[source.sge(0, 8)]);
        active.expect(CompletionKind::Read);
        if late {
            passive.qp.set_access(Rights::NONE).unwrap();
        }
        let write = Operation::Write { token: target.token.0, address: target.address() };
        active.post(write, &[source.sge(8, length.min(4992))]);
        let failed = active.next();
        assert_eq!(failed.status, Status::RemoteAccess);
        assert_eq!(target.bytes(), [0; 5000]);
        let number = passive.qp.config().number;
        assert_eq!(event(&told), (number, QueuePairEvent::AccessError));
        assert_eq!(passive.qp.state(), QueuePairState::Error);
        passive.qp.reset().unwrap();
    }
}

/// V60: a queue pair with a shared receive queue says when it takes no more receives, with a connection
/// or without; what waits in the queue stays.
#[test]
fn v60_a_queue_pair_in_error_has_taken_its_last_shared_receive() {
    for connected in [true, false] {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let sink = move |number, event| tell.lock().unwrap().send((number, event)).unwrap();
        let mut active = End::new(&verbs());
        let passive = End::new(&Options { events: Some(EventSink(Arc::new(sink))), ..verbs() });
        let srq = passive.adapter.shared_receive_queue(8, 1).unwrap();
        let make = || {
            let options = QueuePairOptions::default();
            let (cq, domain) = (&passive.cq, passive.domain);
            passive.adapter.queue_pair(domain, cq, cq, Some(&srq), &options).unwrap()
        };
        let (first, second) = (make(), make());
        for context in [20, 21] {
            srq.post_receive(context, &[]).unwrap();
        }
        let mut passive = End { qp: first, ..passive };
        if connected {
            connect(&mut active, &mut passive);
            send(&active, 1);
            assert_eq!(outcomes(&active, 1), [(1, OK)]);
            assert_eq!(outcomes(&passive, 1), [(20, OK)]);
        }
        let number = passive.qp.config().number;
        passive.qp.flush().unwrap();
        assert_eq!(event(&told), (number, QueuePairEvent::LastReceive));
        assert!(nothing(&passive), "what waits in the queue is not flushed");
        passive.qp.flush().unwrap();
        assert!(told.try_recv().is_err(), "once");
        let left = if connected { 21 } else { 20 };
        let mut other = End { qp: second, ..passive };
        let mut active = End::on(&active.adapter);
        connect(&mut active, &mut other);
        send(&active, 2);
        assert_eq!(outcomes(&other, 1), [(left, OK)]);
    }
}

/// V58: receives of a shared queue are judged in the queue's domain, not the queue pair's.
#[test]
fn v58_shared_receives_are_judged_in_the_domain_of_their_queue() {
    for own in [true, false] {
        let (active, passive) = ends();
        let srqs = passive.adapter.domain().unwrap();
        let domain = if own { passive.domain } else { srqs };
        let srq = passive.adapter.shared_receive_queue_in(srqs, 8, 1).unwrap();
        let options = QueuePairOptions::default();
        let (cq, pair) = (&passive.cq, passive.domain);
        let qp = passive.adapter.queue_pair(pair, cq, cq, Some(&srq), &options).unwrap();
        let (mut active, mut passive) = (active, End { qp, ..passive });
        connect(&mut active, &mut passive);
        let buffer = End::in_domain(&passive.adapter, domain).buffer(8);
        srq.post_receive(20, &[buffer.all()]).unwrap();
        let source = active.buffer(8);
        source.fill(|_| 7);
        active.post(Operation::Send, &[source.all()]);
        let expected = if own { (Status::RemoteError, Status::LocalAccess) } else { (OK, OK) };
        assert_eq!((active.next().status, passive.next().status), expected);
        assert_eq!(buffer.bytes(), [if own { 0 } else { 7 }; 8]);
    }
}

/// V59: the limit of a shared queue is reported once, and again when it is set anew.
#[test]
fn v59_a_shared_queue_reports_its_limit_once() {
    let (mut active, passive) = ends();
    let srq = passive.adapter.shared_receive_queue_in(passive.domain, 8, 1).unwrap();
    let options = QueuePairOptions::default();
    let (cq, domain) = (&passive.cq, passive.domain);
    let qp = passive.adapter.queue_pair(domain, cq, cq, Some(&srq), &options).unwrap();
    let mut passive = End { qp, ..passive };
    connect(&mut active, &mut passive);
    for context in 20..24 {
        srq.post_receive(context, &[]).unwrap();
    }
    let (sink, low) = signal();
    srq.modify(0, 3).unwrap();
    srq.notify(sink).unwrap();
    send(&active, 1);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    assert_eq!(low.told(), None, "three are left");
    send(&active, 2);
    assert_eq!(low.wait(), OK);
    let (sink, lower) = signal();
    srq.modify(0, 1).unwrap();
    srq.notify(sink).unwrap();
    send(&active, 3);
    assert_eq!(outcomes(&active, 3).len(), 3);
    assert_eq!(lower.told(), None);
    send(&active, 4);
    assert_eq!(lower.wait(), OK);
}

/// V81: what comes before the first bad request is posted, and nothing behind it; the longest lists and
/// the longest inline data that the front offers.
#[test]
fn v81_a_list_is_posted_up_to_the_first_bad_request() {
    let (active, mut passive) = ends();
    let options = QueuePairOptions {
        initiator_depth: 4,
        initiator_sge: 32,
        receive_sge: 32,
        inline_size: 4096,
        ..QueuePairOptions::default()
    };
    let (cq, domain) = (&active.cq, active.domain);
    let qp = active.adapter.queue_pair(domain, cq, cq, None, &options).unwrap();
    let mut active = End { qp, ..active };
    let source = active.buffer(64);
    let many: Vec<_> = (0..33).map(|at| source.sge(at, 1)).collect();
    let long = [5; 4097];
    let request = |context| Request { context, operation: Operation::Send, flags: Flags::NONE };
    let refused = |list: &[(u64, Data<'_>)]| {
        let (posted, result) =
            active.qp.post_some(list.iter().map(|(context, data)| (request(*context), *data)));
        (posted, result.map_err(|error| error.status))
    };
    let good = Data::Sges(&many[..32]);
    assert_eq!(
        refused(&[(1, good), (9, Data::Sges(&many)), (9, good)]),
        (1, Err(Status::DataOverrun))
    );
    let inline = Data::Inline(&long);
    assert_eq!(refused(&[(9, inline)]), (0, Err(Status::BufferOverflow)));
    assert_eq!(refused(&[(2, Data::Inline(&long[..4096]))]), (1, Ok(())));
    assert_eq!(refused(&[(9, Data::Memory(&[]))]), (0, Err(Status::InvalidRequest)));
    let full = (2, Err(Status::NoMoreEntries));
    assert_eq!(refused(&[(3, good), (4, good), (9, good), (9, good)]), full);
    let inbox = passive.buffer(4096);
    let parts: Vec<_> = (0..32).map(|at| inbox.sge(at * 128, 128)).collect();
    for context in 20..24 {
        let list = if context == 21 { &[] } else { &parts[..1] };
        passive.qp.post_receive(context, list).unwrap();
    }
    connect(&mut active, &mut passive);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    // The second one, of 4,096 bytes, meets a receive of none.
    assert_eq!(outcomes(&active, 3)[0], (2, Status::PeerReceiveTooSmall));
    assert!(nothing(&active), "and none that was refused");
}

/// V81: an operation that this side does not support is accepted, and fails in its turn.
#[test]
fn v81_an_operation_that_there_is_not_fails_in_its_turn() {
    let (mut active, mut passive) = ends();
    let status = Status::NotSupported;
    send(&active, 1);
    active.post(Operation::Unsupported { status }, &[]);
    send(&active, 3);
    let success = Operation::Unsupported { status: OK };
    let request = Request { context: 9, operation: success, flags: Flags::NONE };
    assert!(active.qp.post(&request, Data::Sges(&[])).is_err());
    passive.qp.post_receive(20, &[]).unwrap();
    passive.qp.post_receive(21, &[]).unwrap();
    connect(&mut active, &mut passive);
    let expected = [(1, OK), (1, status), (3, CANCELED)];
    assert_eq!(outcomes(&active, 3), expected);
    assert_eq!(active.qp.state(), QueuePairState::Error);
    assert_eq!(outcomes(&passive, 1), [(20, OK)]);
    parted(&passive.connector);
    assert!(nothing(&passive), "it has done nothing");
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
