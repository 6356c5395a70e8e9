//! Peers that ask to connect and then say nothing (WSD L-3, L-5).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;

use common::*;
use transom_engine::{Status, dialect, raw};
use transom_winsock_direct::Error;
use transom_winsock_direct::abi::*;

transom_testing::over_both_paths!(path_holds());

/// A peer without a provider, which asks to connect and never takes the last step.
struct Silent {
    _adapter: raw::Adapter,
    connector: raw::Connector,
    _queue_pair: raw::QueuePair,
    answer: std::sync::mpsc::Receiver<Status>,
}

fn ask(at: SocketAddr, private: &[u8]) -> Silent {
    let options = raw::Options { dialect: &dialect::WSD, ..raw::Options::from_env() };
    let adapter = raw::Adapter::open(at.ip(), options).unwrap();
    let there = find(&adapter, at);
    let domain = adapter.domain().unwrap();
    let queue = adapter.completion_queue(8).unwrap();
    let options = raw::QueuePairOptions {
        context: 0,
        initiator_depth: 4,
        receive_depth: 4,
        initiator_sge: 1,
        receive_sge: 1,
        inline_size: 0,
        ..raw::QueuePairOptions::default()
    };
    let queue_pair = adapter.queue_pair(domain, &queue, &queue, None, &options).unwrap();
    let connector = adapter.connector().unwrap();
    connector.bind((at.ip(), 0).into()).unwrap();
    let (tell, answer) = channel();
    let sink = raw::Sink::call(move |status| tell.send(status).unwrap());
    let limits = raw::ReadLimits { inbound: 1, outbound: 1 };
    connector.connect(&queue_pair, there, limits, private, sink).unwrap();
    Silent { _adapter: adapter, connector, _queue_pair: queue_pair, answer }
}

/// Accepts the next request, whether its event has been seen or not.
fn accept(process: &Process, listener: usize) -> usize {
    loop {
        match process.provider.accept(listener, |_, _| CF_ACCEPT) {
            Ok((socket, _)) => return socket,
            Err(error) => assert_eq!(error, Error::WSAEWOULDBLOCK),
        }
        std::thread::yield_now();
    }
}

/// WSD L-5: each accept returns without its peer's last step, so an honest peer is served at once.
#[test]
fn l05_silent_peers_hold_up_no_accept() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(16);
    let at = b.provider.local_address(listener).unwrap();
    let silent: Vec<Silent> = (0..8).map(|_| ask(at, &hello())).collect();
    let accepted: Vec<usize> = silent.iter().map(|_| accept(&b, listener)).collect();
    // And peers that connect and do not even ask.
    let there = find(&silent[0]._adapter, at);
    let mute: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(there).unwrap()).collect();
    for peer in &silent {
        assert_eq!(peer.answer.recv().unwrap(), Status::Success, "it was answered, and is silent");
    }
    let s = a.socket();
    let t = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(&b, listener));
        a.provider.connect(s, at).unwrap();
        accepting.join().unwrap()
    });
    // The honest one was served before any of them was given up.
    for peer in &mute {
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    let (own, _) = scratch(&a, s, 3);
    let (theirs, _) = scratch(&b, t, 0);
    let received = b.receive(t, theirs.range(0, 8)).unwrap();
    a.send(s, own.range(0, 8)).unwrap();
    assert_eq!(b.ended(&received), (None, 8));
    // An accepted socket is usable; what it sends waits for the peer, as long as it takes.
    let (pages, _) = scratch(&b, accepted[0], 4);
    let sent = b.send(accepted[0], pages.range(0, 8)).unwrap();
    b.close(accepted[0]);
    assert_eq!(b.ended(&sent).0, Some(Error::WSA_OPERATION_ABORTED));
    // A peer that backs out is a connection that has ended.
    let (pages, _) = scratch(&b, accepted[1], 4);
    let waiting = b.receive(accepted[1], pages.range(0, 8)).unwrap();
    silent[1].connector.cancel().unwrap();
    let _ = silent[1].connector.reject(&[]);
    assert_eq!(b.ended(&waiting).0, Some(Error::WSAECONNRESET));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// A peer that takes the last step late has lost nothing.
#[test]
fn l05_a_late_last_step_lets_everything_through() {
    let b = Process::new();
    let listener = b.listener(4);
    let late = ask(b.provider.local_address(listener).unwrap(), &hello());
    let accepted = b.accept(listener).unwrap();
    let (pages, _) = scratch(&b, accepted, 4);
    let sent = b.send(accepted, pages.range(0, 8)).unwrap();
    assert_eq!(late.answer.recv().unwrap(), Status::Success);
    // No port of its own: the accepted socket has the listener's.
    assert_eq!(late.connector.private_data().unwrap()[6..8], [0, 0]);
    late._queue_pair.post_receive(1, &[]).unwrap();
    late.connector.complete_connect().unwrap();
    // Too long for the receive that it meets: that it arrived is what counts.
    assert!(b.ended(&sent).0.is_some());
    b.provider.cleanup();
}

/// WSD L-3: who is no provider is refused, and the switch does not hear of it.
#[test]
fn l03_a_request_without_a_greeting_is_refused() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(4);
    let at = b.provider.local_address(listener).unwrap();
    for private in [&[][..], &hello()[..43]] {
        let stranger = ask(at, private);
        assert_eq!(stranger.answer.recv().unwrap(), Status::ConnectionRefused);
    }
    let nobody = b.provider.accept(listener, |_, _| CF_ACCEPT).err();
    assert_eq!(nobody, Some(Error::WSAEWOULDBLOCK));
    let _ = connect(&a, &b, listener);
    a.provider.cleanup();
    b.provider.cleanup();
}

/// Waits until so many requests have come.
fn await_requests(process: &Process, listener: usize, count: u32) {
    process.switch.wait("requests", |record| {
        (record.set.get(&listener).copied().unwrap_or_default() >= count).then_some(())
    });
}

/// WSD L-5: a request whose peer has left is accepted in vain, and the event of the honest one behind it is set again.
#[test]
fn l05_a_peer_that_has_left_keeps_no_event_from_the_next() {
    let b = Process::new();
    let listener = b.listener(16);
    let at = b.provider.local_address(listener).unwrap();
    let left = ask(at, &hello());
    await_requests(&b, listener, 1);
    drop(left);
    let _honest = ask(at, &hello());
    await_requests(&b, listener, 2);
    // The switch looks at the event once, as it waits for the next one.
    assert_eq!(b.provider.network_events(listener, listener).unwrap().0, FD_ACCEPT);
    // A peer that leaves is noticed when it is: until then it can be accepted.
    let first = b.provider.accept(listener, |_, _| CF_ACCEPT);
    assert!(first.is_ok() || first == Err(Error::WSAECONNRESET), "{first:?}");
    await_requests(&b, listener, 3);
    assert_eq!(b.provider.network_events(listener, listener).unwrap().0, FD_ACCEPT);
    assert!(b.provider.accept(listener, |_, _| CF_ACCEPT).is_ok());
    b.provider.cleanup();
}

/// A program may ask for the largest backlog that there is (`SOMAXCONN`): peers that come and go fill a bounded one.
#[test]
fn l02_the_largest_backlog_has_an_end() {
    const MOST: u32 = 1024;
    let b = Process::new();
    let listener = b.listener(usize::MAX);
    let at = b.provider.local_address(listener).unwrap();
    for count in 1..=MOST {
        let left = ask(at, &hello());
        await_requests(&b, listener, count);
        drop(left);
    }
    let beyond = ask(at, &hello());
    assert_eq!(beyond.answer.recv().unwrap(), Status::ConnectionRefused);
    // Each that is accepted in vain makes room for one.
    assert!(b.provider.accept(listener, |_, _| CF_ACCEPT).is_err());
    await_requests(&b, listener, MOST + 1);
    let _next = ask(at, &hello());
    await_requests(&b, listener, MOST + 2);
    b.provider.cleanup();
}
