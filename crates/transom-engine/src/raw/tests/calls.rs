//! Calls at unusual moments: from sinks, after the end, without a thread that polls.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use transom_memory::{Rights, Segment};

use super::harness::*;
use super::waiters::occupied;
use crate::driver::Notifications;
use crate::raw::{FastRegistration, Options, Path, QueuePairOptions, Sink, Time, now};
use crate::tables::ConnectorState;
use crate::{
    Completion, CompletionKind, Data, Flags, NotifyKind, Operation, QueuePairState, Request, Status,
};

/// Whatever this suite shows, it shows of this path.
#[test]
fn the_path_is_the_one_that_this_run_is_about() {
    let (active, passive) = pair();
    for end in [&active, &passive] {
        assert_eq!(end.connector.info().unwrap().path, transom_testing::paths::of_this_run());
    }
}

/// Verbs V174.
#[test]
fn a_queue_that_keeps_times_says_when_each_completion_came() {
    let (active, passive) = pair();
    passive.cq.keep_times();
    let buffer = passive.buffer(8);
    passive.qp.post_receive(2, &[buffer.all()]).unwrap();
    let before = now();
    active.post(Operation::Send, &[active.buffer(8).all()]);
    let came = passive.expect(CompletionKind::Receive).at;
    assert!(before <= came && came <= now(), "{before:?} {came:?}");
    assert_eq!(active.expect(CompletionKind::Send).at, Time::default(), "a queue that keeps none");
}

/// Design rule 12: sinks are called with no lock held, so they may call anything.
#[test]
fn sinks_may_call_back() {
    let (active, passive) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    // The passive side accepts from the sink of its request.
    let (conn, qp) = (passive.connector.clone(), passive.qp.clone());
    let (accepted, is_accepted) = signal();
    let sink = Sink::call(move |status| {
        assert_eq!(status, Status::Success);
        conn.accept(&qp, LIMITS, b"", accepted).unwrap();
    });
    listener.get_request(&passive.connector, sink).unwrap();
    // The active side completes, and asks for the disconnect, from the sink of its Connect.
    active.connector.bind(loopback()).unwrap();
    let conn = active.connector.clone();
    let (gone, is_gone) = mpsc::channel();
    let sink = Sink::call(move |status| {
        assert_eq!(status, Status::Success);
        conn.complete_connect().unwrap();
        let inner = conn.clone();
        let sink = Sink::call(move |status| {
            let again = inner.disconnect(Sink::call(|_| ()));
            gone.send((status, again)).unwrap();
        });
        conn.notify_disconnect(sink).unwrap();
    });
    active.connector.connect(&active.qp, listener.address().unwrap(), LIMITS, b"", sink).unwrap();
    assert_eq!(is_accepted.wait(), Status::Success);
    // A completion's notification polls the queue and posts the next request.
    let buffer = passive.buffer(64);
    let (cq, end, more) = (active.cq.clone(), active.qp.clone(), active.buffer(64));
    let (seen, saw) = mpsc::channel();
    let list = [more.all()];
    let sink = Sink::call(move |_| {
        let mut one = [Completion::default()];
        assert_eq!(cq.poll(&mut one), 1);
        end.post_receive(2, &list).unwrap();
        seen.send(one[0]).unwrap();
    });
    active.qp.post_receive(1, &[more.all()]).unwrap();
    active.cq.notify(NotifyKind::Any, sink).unwrap();
    passive.post(Operation::Send, &[buffer.all()]);
    let got = saw.recv_timeout(PATIENCE).unwrap();
    assert_eq!((got.kind, got.request_context), (CompletionKind::Receive, 1));
    passive.expect(CompletionKind::Send);
    passive.connector.disconnect(Sink::call(|_| ())).unwrap();
    assert_eq!(is_gone.recv_timeout(PATIENCE).unwrap(), (Status::Success, Ok(())));
}

/// A passive target progresses while its program computes: also right after it has polled, when
/// its lease keeps the background thread away.
#[test]
fn a_lease_lapses() {
    let (active, passive) = pair();
    let (from, to) = (active.buffer(64), passive.buffer(64));
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    for _ in 0..20 {
        assert_eq!(passive.cq.poll(&mut [Completion::default()]), 0);
        active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
        active.expect(CompletionKind::Write);
    }
}

/// A notification arrives while no thread polls or waits.
#[test]
fn a_notification_needs_no_polling() {
    let (active, passive) = pair();
    let (from, to) = (active.buffer(64), passive.buffer(64));
    passive.qp.post_receive(1, &[to.all()]).unwrap();
    let (sink, arrived) = signal();
    passive.cq.notify(NotifyKind::Any, sink).unwrap();
    active.post(Operation::Send, &[from.all()]);
    assert_eq!(arrived.wait(), Status::Success);
    passive.expect(CompletionKind::Receive);
}

#[test]
fn a_wait_ends_in_time() {
    let (active, _passive) = pair();
    assert_eq!(active.cq.wait(Some(Duration::from_millis(5))), Ok(false));
    assert_eq!(active.cq.wait(Some(Duration::ZERO)), Ok(false));
}

/// Several threads sleep on one queue; all of them wake.
#[test]
fn every_thread_that_waits_is_woken() {
    let (active, passive) = pair();
    let (from, to) = (active.buffer(64), passive.buffer(64));
    passive.qp.post_receive(1, &[to.all()]).unwrap();
    std::thread::scope(|scope| {
        let wait = || passive.cq.wait(Some(PATIENCE));
        let (a, b) = (scope.spawn(wait), scope.spawn(wait));
        active.post(Operation::Send, &[from.all()]);
        assert_eq!((a.join().unwrap(), b.join().unwrap()), (Ok(true), Ok(true)));
    });
}

/// ND2 4.9: when Disconnect returns, everything is flushed, and the peer will get the disconnect.
#[test]
fn disconnect_is_finished_when_it_returns() {
    let (active, passive) = pair();
    let buffer = active.buffer(64);
    for context in 0..3 {
        active.qp.post_receive(context, &[buffer.all()]).unwrap();
    }
    let (sink, gone) = signal();
    passive.connector.notify_disconnect(sink).unwrap();
    active.connector.disconnect(Sink::call(|status| assert_eq!(status, Status::Success))).unwrap();
    let mut all = [Completion::default(); 8];
    assert_eq!(active.cq.poll(&mut all), 3);
    for (context, c) in all[..3].iter().enumerate() {
        assert_eq!((c.request_context, c.status), (context as u64, Status::Canceled));
    }
    assert_eq!(gone.wait(), Status::Success);
    assert_eq!(passive.connector.state(), ConnectorState::PeerGone);
    passive.connector.disconnect(Sink::call(|_| ())).unwrap();
    // ND2 4.1, C44: what is posted behind the end is accepted and canceled.
    active.post(Operation::Send, &[buffer.all()]);
    assert_eq!(active.next().status, Status::Canceled);
    assert_eq!(active.qp.state(), QueuePairState::Disconnected);
}

/// ND2 C41: the call says so, and the connector and the queue pair are as before.
#[test]
fn nd2_c41_a_destination_of_another_family_is_refused_by_the_call() {
    let (active, passive) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let listener = listening(&passive);
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind(loopback()).unwrap();
    let at = listener.address().unwrap();
    let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port());
    let never = Sink::call(|status| assert_eq!(status, Status::Canceled, "it was refused"));
    let refused = active.connector.connect(&active.qp, other, LIMITS, b"", never).unwrap_err();
    assert_eq!(refused.status, Status::InvalidAddress);
    assert!(refused.detail.contains("another address family"), "{refused:?}");
    assert_eq!(active.qp.state(), QueuePairState::Idle);
    let (sink, connected) = signal();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    let (sink, _accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
}

#[test]
fn a_port_without_a_listener_refuses_and_connecting_can_be_tried_again() {
    let (active, passive) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let free = passive.adapter.listener(loopback()).unwrap();
    let at = free.address().unwrap();
    active.connector.bind(loopback()).unwrap();
    let (sink, told) = signal();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(told.wait(), Status::ConnectionRefused);
    assert!(active.connector.ended().is_some());
    assert_eq!(active.qp.state(), QueuePairState::Idle);
    free.listen(0).unwrap();
    let (sink, requested) = signal();
    free.get_request(&passive.connector, sink).unwrap();
    let (sink, told) = signal();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    assert_eq!(active.connector.ended(), None, "this one has not ended");
    passive.connector.reject(b"not today").unwrap();
    assert_eq!(told.wait(), Status::ConnectionRefused);
    assert_eq!(active.connector.private_data().unwrap(), b"not today");
    assert_eq!(active.qp.state(), QueuePairState::Idle);
}

#[test]
fn a_dropped_handle_disconnects() {
    for drop_the_queue_pair in [true, false] {
        let (active, passive) = pair();
        let (sink, gone) = signal();
        passive.connector.notify_disconnect(sink).unwrap();
        if drop_the_queue_pair {
            drop(active.qp);
        } else {
            drop(active.connector);
        }
        assert_eq!(gone.wait(), Status::Success);
    }
}

/// NDK FR-12, FR-13: memory in queue order, under a token that stays; and never through `post`.
#[test]
fn a_reserved_region_gets_its_memory_in_queue_order() {
    let (active, passive) = pair();
    let region = passive.adapter.reserve_region(passive.domain).unwrap();
    let (buffer, inbox) = (passive.buffer(64), active.buffer(64));
    let (base, rights) = (0x1_0000, Rights(Rights::REMOTE_READ.0));
    let read = Operation::Read { token: region.0, address: base };
    for byte in [7, 9] {
        buffer.fill(|_| byte);
        let segments = [Segment { host: buffer.address(), length: 64 }];
        let registration = FastRegistration { base, rights, segments: &segments };
        // SAFETY: a leaked buffer of the test's.
        unsafe { passive.qp.fast_register(3, Flags::NONE, region, &registration) }.unwrap();
        passive.expect(CompletionKind::FastRegister);
        active.post(read, &[inbox.all()]);
        active.expect(CompletionKind::Read);
        assert_eq!(inbox.bytes(), [byte; 64]);
        passive.post(Operation::Invalidate { window: region }, &[]);
        passive.expect(CompletionKind::Invalidate);
        let operation = Operation::FastRegister { region, base, rights };
        let request = Request { context: 3, operation, flags: Flags::NONE };
        let refused = passive.qp.post(&request, Data::Memory(&segments)).unwrap_err();
        assert_eq!(refused.status, Status::InvalidRequest);
    }
    passive.adapter.deregister(region).unwrap();
    active.post(read, &[inbox.all()]);
    assert_eq!(active.next().status, Status::RemoteAccess);
}

/// Receives of a shared queue serve whichever connection needs one.
#[test]
fn a_shared_receive_queue_serves_two_connections() {
    let passive = End::new(&Options::from_env());
    let srq = passive.adapter.shared_receive_queue(16, 4).unwrap();
    let buffer = passive.buffer(64);
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let mut end = End::in_domain(&passive.adapter, passive.domain);
            let options = QueuePairOptions::default();
            end.qp = passive
                .adapter
                .queue_pair(passive.domain, &end.cq, &end.cq, Some(&srq), &options)
                .unwrap();
            let active = End::new(&Options::from_env());
            join(&active, &end);
            (active, end)
        })
        .collect();
    // The Sends wait for receives, without limit (ND2 C42), and each finds one.
    for (active, _) in &ends {
        let from = active.buffer(64);
        active.post(Operation::Send, &[from.all()]);
    }
    for context in 0..2 {
        srq.post_receive(context, &[buffer.all()]).unwrap();
    }
    for (active, end) in &ends {
        end.expect(CompletionKind::Receive);
        active.expect(CompletionKind::Send);
    }
}

/// ND2 4.7.3: a peer that is gone is that, however fast the system says so: its word may come before
/// Connect has returned, while other threads look at the adapter's links. The queue pair is as before.
#[test]
fn a_connect_that_is_refused_at_once_is_refused_every_time() {
    let end = End::new(&Options::from_env());
    // Bound and not listening: no other socket gets the port meanwhile.
    let port = end.adapter.listener(loopback()).unwrap();
    let nobody = port.address().unwrap();
    let (cq, over) = (end.cq.clone(), std::sync::Arc::new(AtomicBool::new(false)));
    let is_over = over.clone();
    let poller = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(cq.poll(&mut [Completion::default()]), 0);
        }
    });
    for round in 0..2000 {
        let connector = end.adapter.connector().unwrap();
        let (sink, told) = signal();
        connector.bind(loopback()).unwrap();
        connector.connect(&end.qp, nobody, LIMITS, b"", sink).unwrap();
        assert_eq!(told.wait(), Status::ConnectionRefused, "round {round}");
    }
    over.store(true, Ordering::Relaxed);
    poller.join().unwrap();
}

/// A call on a connector may find its end before the adapter's thread does: the notification of the
/// disconnect fires all the same.
#[test]
fn a_refused_call_delivers_the_events_that_it_has_found() {
    let (active, passive) = pair_with(&Options { path: Path::Tcp, ..Options::from_env() });
    let (_free, _kept) = occupied(&passive.adapter);
    let (sink, gone) = signal();
    passive.connector.notify_disconnect(sink).unwrap();
    active.connector.disconnect(Sink::call(|_| ())).unwrap();
    // The thread that makes this pass has not come to the events yet.
    let link = passive.qp.0.qp.link().unwrap();
    let mut notifications = Notifications::default();
    until("the disconnect is noticed", || {
        let _ = link.control(&mut notifications, |_, _| ());
        link.events.has_deferred()
    });
    let at = (std::net::Ipv4Addr::LOCALHOST, 9).into();
    let refused =
        passive.connector.connect(&passive.qp, at, LIMITS, &[0; 4096], Sink::call(|_| ()));
    assert!(refused.is_err());
    assert_eq!(gone.told(), Some(Status::Success));
    notifications.fire();
    link.catch_up();
}

/// No number of a protection domain comes back, because memory of the first would open to the second.
#[test]
fn domains_are_never_numbered_alike() {
    let end = End::new(&Options::from_env());
    let adapter = &end.adapter;
    adapter.0.domains.store(u32::MAX - 1, Ordering::Relaxed);
    adapter.domain().unwrap();
    for _ in 0..2 {
        assert_eq!(adapter.domain().unwrap_err().status, Status::InsufficientResources);
    }
}

/// The background thread may be accepting while a listener closes: a connection that comes in then
/// is refused, and not kept.
#[test]
fn a_connection_accepted_while_the_listener_closes_is_refused() {
    let passive = End::new(&Options::from_env());
    let listener = listening(&passive);
    let (_free, _kept) = occupied(&passive.adapter);
    let mut stranger = std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
    let served = listener.0.listener.clone();
    let (stream, peer) = served.next().unwrap().unwrap();
    drop(listener);
    served.let_in(stream, peer, None);
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(std::io::Read::read(&mut stranger, &mut [0]).unwrap(), 0, "its start-up ends");
}
