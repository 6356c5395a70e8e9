//! Sockets, from the first call to the last (WSD 4, 11, 12, 18).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::*;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::{Direction, Error, Handle};

transom_testing::over_both_paths!(path_holds());

/// WSD W12, L-2 to L-7: the backlog, the condition function, and the event.
#[test]
fn w12_the_condition_is_asked_inside_accept() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(1);
    assert_eq!(b.provider.accept(listener, |_, _| CF_ACCEPT).err(), Some(Error::WSAEWOULDBLOCK));
    let peer = b.provider.local_address(listener).unwrap();
    let start = || {
        let socket = a.socket();
        a.provider.event_select(socket, socket, CONNECT).unwrap();
        assert_eq!(a.provider.connect(socket, peer), Err(Error::WSAEWOULDBLOCK));
        socket
    };
    let outcome = |socket| {
        a.await_request(socket); // its event
        a.provider.network_events(socket, socket).unwrap()
    };
    let first = start();
    b.await_request(listener);
    assert_eq!(b.provider.network_events(listener, 0).unwrap().0, FD_ACCEPT);
    // The backlog is full now: refused at once, without an event.
    let sets = |p: &Process| p.switch.record.lock().unwrap().set.get(&listener).copied();
    assert_eq!(sets(&b), Some(1));
    assert_eq!(outcome(start()), (CONNECT, Some(Error::WSAECONNREFUSED)));
    assert_eq!(sets(&b), Some(1), "L-2");
    assert_eq!(b.provider.network_events(listener, 0).unwrap().0, 0, "L-2");
    let this = std::thread::current().id();
    let asked = &std::cell::Cell::new(0);
    let connecting = &a;
    let answer = |with| {
        move |thread| {
            assert_eq!(thread, this);
            asked.set(asked.get() + 1);
            let answer = connecting.provider.network_events(first, 0);
            assert_eq!(answer, Ok((0, None)), "L-4: no answer yet");
            with
        }
    };
    assert_eq!(b.accept_if(listener, answer(CF_DEFER)), Err(Error::WSATRY_AGAIN));
    assert_eq!(asked.get(), 1);
    let answers = |answer| {
        let asked_for = |_, local| {
            assert_eq!(local, peer, "L-4: the address that was asked for");
            answer
        };
        b.provider.accept(listener, asked_for).map(|(socket, _)| socket)
    };
    assert_eq!(answers(CF_REJECT), Err(Error::WSAECONNREFUSED));
    assert_eq!(outcome(first), (CONNECT, Some(Error::WSAECONNREFUSED)));
    let second = start();
    let answered = b.accept_if(listener, |_| 77);
    assert_eq!(answered, Err(Error::WSAEINVAL), "L-6: no answer at all");
    assert_eq!(outcome(second), (CONNECT, Some(Error::WSAECONNREFUSED)));
    let third = start();
    let resets = |p: &Process| p.switch.record.lock().unwrap().reset.get(&listener).copied();
    let before = resets(&b);
    b.accept(listener).unwrap();
    assert!(resets(&b) > before, "L-5: reset before success is returned");
    assert_eq!(outcome(third), (CONNECT, None));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD S-7: what the peer has accepted and closed at once was a connection. A connect that failed would
/// have the switch try TCP, and the peer's program would see the application twice.
#[test]
fn s07_a_connection_that_the_peer_closes_at_once_was_one() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(32);
    let peer = b.provider.local_address(listener).unwrap();
    let start = |_| {
        let socket = a.socket();
        a.provider.event_select(socket, socket, CONNECT).unwrap();
        assert_eq!(a.provider.connect(socket, peer), Err(Error::WSAEWOULDBLOCK));
        socket
    };
    // Enough of them that some have ended before this side has looked at their answer.
    let sockets: Vec<_> = (0..32).map(start).collect();
    for _ in &sockets {
        let accepted = b.accept(listener).unwrap();
        b.provider.close_socket(accepted).unwrap();
    }
    for socket in sockets {
        a.await_request(socket); // its event
        assert_eq!(a.provider.network_events(socket, socket), Ok((CONNECT, None)));
        // The end may be on its way still.
        let pages = Pages::of(0);
        while a.try_register(socket, &pages, mem::READ).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(a.try_register(socket, &pages, mem::READ), Err(Error::WSAECONNRESET));
        a.provider.close_socket(socket).unwrap();
    }
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD L-9: a backlog that is lowered holds for the next request, and not for those that wait.
#[test]
fn l09_another_backlog_holds_for_the_next_request() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(2);
    let peer = b.provider.local_address(listener).unwrap();
    let start = || {
        let socket = a.socket();
        a.provider.event_select(socket, socket, CONNECT).unwrap();
        assert_eq!(a.provider.connect(socket, peer), Err(Error::WSAEWOULDBLOCK));
        socket
    };
    let outcome = |socket| {
        a.await_request(socket);
        a.provider.network_events(socket, socket).unwrap()
    };
    let first = start();
    b.await_request(listener);
    assert_eq!(b.provider.listen(listener, 1), Ok(()));
    assert_eq!(outcome(start()), (CONNECT, Some(Error::WSAECONNREFUSED)));
    b.accept(listener).unwrap();
    assert_eq!(outcome(first), (CONNECT, None));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD W13, C-5: where no provider's socket listens a TCP server may, so that is not definitive.
#[test]
fn w13_errors_of_connect() {
    let a = Process::new();
    let held = transom_testing::ports::Held::new().unwrap();
    let socket = a.socket();
    let elsewhere = Error::WSAETIMEDOUT;
    assert_eq!(a.provider.connect(socket, held.address()), Err(elsewhere));
    // WSD X-10: the socket has failed.
    assert_eq!(a.try_register(socket, &Pages::of(0), mem::READ), Err(elsewhere));
    assert_eq!(a.provider.connect(socket, held.address()), Err(Error::WSAEINVAL), "C-6");
    // The refusal as an event.
    let socket = a.socket();
    a.provider.event_select(socket, socket, CONNECT).unwrap();
    assert_eq!(a.provider.connect(socket, held.address()), Err(Error::WSAEWOULDBLOCK));
    a.await_request(socket); // its event
    assert_eq!(a.provider.network_events(socket, 0), Ok((CONNECT, Some(elsewhere))));
    a.provider.cleanup();
}

/// WSD S-2, S-4, C-6, C-8, L-9: what sockets are asked for in the wrong state.
fn anywhere(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[test]
fn s02_sockets_are_of_one_kind_and_one_state() {
    let two = Two::new();
    let open = |kind| two.a.provider.open_socket(kind, 0, 1).err();
    assert_eq!(open((99, 1, 6)), Some(Error::WSAEAFNOSUPPORT));
    assert_eq!(open((2, 2, 6)), Some(Error::WSAEPROTOTYPE));
    assert_eq!(open((2, 1, 17)), Some(Error::WSAEPROTONOSUPPORT));
    let provider = &two.a.provider;
    let nowhere = "127.0.0.1:0".parse().unwrap();
    assert_eq!(provider.connect(two.s, nowhere), Err(Error::WSAEINVAL), "C-6");
    assert_eq!(provider.bind(two.s, nowhere), Err(Error::WSAEINVAL));
    assert_eq!(provider.listen(two.s, 1), Err(Error::WSAEINVAL), "L-9: connected");
    assert_eq!(
        provider.listen(provider.open_socket((2, 1, 6), 0, 1).unwrap(), 1),
        Err(Error::WSAEINVAL)
    );
    assert_eq!(two.b.provider.listen(two.listener, 9), Ok(()), "L-9: another backlog");
    let elsewhere = provider.bind(two.a.socket(), "192.0.2.1:0".parse().unwrap());
    assert_eq!(elsewhere, Err(Error::WSAEADDRNOTAVAIL), "not an address of this machine");
    let (v4, v6) = ("127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap());
    for (family, other, own) in [(2, v6, v4), (10, v4, v6), (23, v4, v6)] {
        let socket = provider.open_socket((family, 1, 6), 0, 1).unwrap();
        assert_eq!(provider.bind(socket, other), Err(Error::WSAEFAULT), "{family}");
        assert_eq!(provider.connect(socket, other), Err(Error::WSAEAFNOSUPPORT), "{family}");
        for none in [SocketAddr::new(own.ip(), 0), SocketAddr::new(anywhere(own), 9)] {
            assert_eq!(provider.connect(socket, none), Err(Error::WSAEADDRNOTAVAIL), "{none}");
        }
        if family == 2 {
            assert_eq!(provider.bind(socket, nowhere), Ok(()), "the refusals changed nothing");
        }
    }
    let taken = two.b.provider.local_address(two.listener).unwrap();
    let second = two.b.socket();
    assert_eq!(two.b.provider.bind(second, taken), Ok(()));
    assert_eq!(two.b.provider.listen(second, 1), Err(Error::WSAEADDRINUSE));
    assert_eq!(provider.event_select(two.s, 1, 0x20), Err(Error::WSAEINVAL), "8.7");
    assert_eq!(provider.option(two.s, 0, 0), Err(Error::WSAENOPROTOOPT));
    assert_eq!(provider.set_option(two.s, SOL_SOCKET, SO_DEBUG), Ok(()));
    assert_eq!(provider.option(two.s, SOL_SOCKET, SO_DEBUG), Ok(0), "off");
    for (level, name) in [(SOL_SOCKET, SO_MAX_MSG_SIZE), (0, SO_DEBUG)] {
        assert_eq!(provider.set_option(two.s, level, name), Err(Error::WSAENOPROTOOPT));
    }
    let flags = [0, 1, 2, 0x81].map(|flags| provider.open_socket((2, 1, 6), 0, flags).err());
    assert_eq!(flags, [None, None, Some(Error::WSAEINVAL), Some(Error::WSAEINVAL)]);
    two.end();
}

/// WSD: a socket whose peer is gone stays until it is closed, and then is none.
#[test]
fn x05_a_socket_is_there_until_it_is_closed() {
    let two = Two::new();
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let receive = two.b.receive(two.t, theirs.range(0, 8)).unwrap();
    two.a.close(two.s);
    assert_eq!(two.b.ended(&receive).0, Some(Error::WSAECONNRESET));
    for _ in 0..2 {
        let later = two.b.receive(two.t, theirs.range(0, 8)).err();
        assert_eq!(later, Some(Error::WSAECONNRESET));
    }
    assert_eq!(two.b.provider.registered(two.t), Ok((1, 0)), "its registrations with it");
    two.b.close(two.t);
    assert_eq!(two.b.provider.close_socket(two.t), Err(Error::WSAENOTSOCK));
    two.end();
}

/// WSD X-10, 5.6: what is asked for when the peer has just left fails as the connection has; its
/// memory was registered, so it is never blamed.
#[test]
fn x10_a_lost_connection_is_not_taken_for_bad_memory() {
    for _ in 0..20 {
        let two = Two::new();
        let (pages, handle) = scratch(&two.a, two.s, 1);
        let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
        two.b.close(two.t);
        let reset = Error::WSAECONNRESET;
        let judge = |result: Result<Op, Error>| match result {
            Ok(op) => two.a.ended(&op).0 == Some(reset),
            Err(error) => {
                assert_eq!(error, reset);
                true
            }
        };
        let part = (pages.range(0, 8), handle);
        assert!(judge(two.a.receive(two.s, part.0)));
        assert!(judge(two.a.send(two.s, part.0)));
        assert!(judge(two.a.rdma(two.s, Direction::Write, part, (&target, 0))));
        // Whichever call found it out: the socket knows.
        assert_eq!(two.a.try_register(two.s, &pages, mem::READ), Err(reset));
        two.end();
    }
}

/// WSD X-7: a connect that waits for its peer's program is given up by a close, at once.
#[test]
fn x07_a_close_ends_a_connect_under_way() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(4);
    let peer = b.provider.local_address(listener).unwrap();
    let socket = a.socket();
    a.provider.event_select(socket, socket, CONNECT).unwrap();
    assert_eq!(a.provider.connect(socket, peer), Err(Error::WSAEWOULDBLOCK));
    b.await_request(listener);
    a.close(socket);
    a.switch.wait("the handle", |r| (!r.closed.is_empty()).then_some(()));
    assert_eq!(a.provider.network_events(socket, 0).err(), Some(Error::WSAENOTSOCK));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD W18, X-1 to X-4: close with operations under way on both sides; the handle goes last, once.
#[test]
fn w18_close_ends_everything_on_both_sides() {
    let two = Two::new();
    let (pages, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let ours: Vec<Op> =
        (0..3).map(|i| two.a.receive(two.s, pages.range(i * 64, 64)).unwrap()).collect();
    let peers: Vec<Op> =
        (0..3).map(|i| two.b.receive(two.t, theirs.range(i * 64, 64)).unwrap()).collect();
    two.a.close(two.s);
    for op in &ours {
        assert_eq!(two.a.ended(op).0, Some(Error::WSA_OPERATION_ABORTED), "X-3");
    }
    for op in &peers {
        assert_eq!(two.b.ended(op).0, Some(Error::WSAECONNRESET), "X-2");
    }
    let again = two.b.receive(two.t, theirs.range(0, 8)).err();
    assert_eq!(again, Some(Error::WSAECONNRESET), "X-10: at once from now on");
    let closed = two.a.switch.wait("the handle", |r| (!r.closed.is_empty()).then(|| r.log.clone()));
    assert!(closed.last().unwrap().starts_with("close"));
    two.b.close(two.t);
    two.b.switch.wait("the handle", |r| (!r.closed.is_empty()).then_some(()));
    two.end();
}

const PEER: &str = "TRANSOM_W19_PEER";

/// WSD W18: the same with operations of every kind under way. No side has posted a receive, so the
/// message waits, and the RDMA behind it.
#[test]
fn w18_close_ends_operations_of_every_kind() {
    let two = Two::new();
    let begin = |process: &Process, socket, peer: &Process, other| {
        let (pages, handle) = scratch(process, socket, 1);
        let target = peer.expose(other, &Pages::of(2), mem::READWRITE);
        let part = (pages.range(0, 8), handle);
        let ops = [
            process.send(socket, part.0).unwrap(),
            process.rdma(socket, Direction::Read, part, (&target, 0)).unwrap(),
            process.rdma(socket, Direction::Write, part, (&target, 0)).unwrap(),
            process.send(socket, part.0).unwrap(),
        ];
        (ops, pages)
    };
    let (ours, pages) = begin(&two.a, two.s, &two.b, two.t);
    let (peers, theirs) = begin(&two.b, two.t, &two.a, two.s);
    two.a.close(two.s);
    for op in &ours {
        assert_eq!(two.a.ended(op), (Some(Error::WSA_OPERATION_ABORTED), 0), "X-3");
    }
    for op in &peers {
        assert_eq!(two.b.ended(op), (Some(Error::WSAECONNRESET), 0), "X-2");
    }
    two.b.close(two.t);
    for (process, pages) in [(&two.a, &pages), (&two.b, &theirs)] {
        let gone = process.provider.memory_goes_away(pages.address(), 4096);
        assert_eq!(gone, Err(Error::WSAEINVAL), "A-22: released");
        process.provider.cleanup();
        let record = process.switch.record.lock().unwrap();
        let closes = record.log.iter().filter(|line| line.starts_with("close")).count();
        let each: std::collections::HashSet<_> = record.closed.iter().collect();
        assert_eq!((each.len(), closes), (closes, record.closed.len()), "X-4: once");
        assert!(record.completed.values().all(|(times, ..)| *times == 1), "O-4");
    }
}

/// WSD W19: the peer's process is killed. The peer's half is `w19_the_peer`, in a process of its
/// own.
#[test]
fn w19_the_peer_process_is_killed() {
    let b = Process::new();
    let listener = b.listener(4);
    let at = b.provider.local_address(listener).unwrap();
    let mut peer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["w19_the_peer", "--exact", "--nocapture"])
        .env(PEER, at.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let socket = b.accept(listener).unwrap();
    let (own, _) = scratch(&b, socket, 5);
    let exposed = Pages::of(6);
    let descriptor = b.expose(socket, &exposed, mem::READWRITE);
    let hello = b.receive(socket, own.range(0, 64)).unwrap();
    assert_eq!(b.ended(&hello), (None, 5), "it is there, and has receives of its own");
    let pending = [0, 64].map(|at| b.receive(socket, own.range(at, 64)).unwrap());
    peer.kill().unwrap();
    peer.wait().unwrap();
    for receive in &pending {
        assert_eq!(b.ended(receive).0, Some(Error::WSAECONNRESET));
    }
    assert_eq!(b.send(socket, own.range(0, 8)).err(), Some(Error::WSAECONNRESET));
    // The memory that it was shown is open to no peer now, though it was not deregistered.
    let a = Process::new();
    let (s, _) = connect(&a, &b, listener);
    let (sink, handle) = scratch(&a, s, 1);
    for direction in [Direction::Read, Direction::Write] {
        let op = a.rdma(s, direction, (sink.range(0, 8), handle), (&descriptor, 0));
        assert!(op.map_or(true, |op| a.ended(&op).0.is_some()));
    }
    assert!(exposed.is_all(6) && sink.is_all(1));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// The other process of WSD W19: connects, says hello, and waits to be killed. Without the address
/// it does nothing.
#[test]
fn w19_the_peer() {
    let Ok(at) = std::env::var(PEER) else { return };
    let a = Process::new();
    let socket = a.socket();
    a.provider.connect(socket, at.parse().unwrap()).unwrap();
    let (pages, _) = scratch(&a, socket, 1);
    let receive = a.receive(socket, pages.range(0, 64)).unwrap();
    a.send(socket, pages.range(0, 5)).unwrap();
    a.ended(&receive);
}

/// WSD 12.1, WSD D-3, WSD D-7: the half of the process that gives a socket away, which closes
/// it before another process has taken it: the peer sees the end (WSD D-8), and the token names
/// nothing.
#[test]
fn d03_a_socket_is_given_up_and_closed() {
    let two = Two::new();
    let (pages, _) = scratch(&two.b, two.t, 5);
    let (own, handle) = scratch(&two.a, two.s, 1);
    let waiting = two.a.receive(two.s, own.range(0, 16)).unwrap();
    let parked = two.b.receive(two.t, pages.range(0, 16)).unwrap();
    // WSD D-7: before a connect or a listen there is nothing to give away.
    let fresh = two.a.socket();
    assert_eq!(two.a.provider.duplicate(fresh, 0), Err(Error::WSAEINVAL));
    two.a.provider.bind(fresh, "127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(two.a.provider.duplicate(fresh, 0), Err(Error::WSAEINVAL));
    assert_eq!(two.a.provider.duplicate(1, 0), Err(Error::WSAENOTSOCK));
    let token = two.b.provider.duplicate(two.t, std::process::id()).unwrap();
    assert_ne!(token, 0, "D-1: it names something");
    assert_eq!(two.b.ended(&parked), (None, 0), "step 6");
    assert_eq!(two.b.provider.registered(two.t), Ok((0, 0)), "A-29");
    // WSD D-3: the descriptor stays, and is good for being closed.
    let no = Some(Error::WSAEINVAL);
    assert_eq!(two.b.try_register(two.t, &pages, mem::READ).err(), no);
    assert_eq!(two.b.send(two.t, pages.range(0, 8)).err(), no);
    assert_eq!(two.b.provider.duplicate(two.t, 0).err(), no);
    assert!(two.b.socket() != two.t);
    assert_eq!(two.b.provider.close_socket(two.t), Ok(()));
    assert_eq!(two.b.provider.close_socket(two.t), Err(Error::WSAENOTSOCK));
    assert_eq!(two.a.ended(&waiting).0, Some(Error::WSAECONNRESET), "D-8");
    let part = (own.range(0, 8), handle);
    assert_eq!(two.a.send(two.s, part.0).err(), Some(Error::WSAECONNRESET));
    let late = Process::new();
    assert_eq!(late.provider.open_socket((2, 1, 6), token, 1), Err(Error::WSAEINVAL));
    late.provider.cleanup();
    two.end();
}

/// WSD D-9: a listening socket is given up like a connected one: what waits is refused, nothing new
/// is taken, and the descriptor waits for its close.
#[test]
fn d09_a_listening_socket_is_given_up() {
    let two = Two::new();
    let peer = two.b.provider.local_address(two.listener).unwrap();
    let waiting = two.a.socket();
    two.a.provider.event_select(waiting, waiting, CONNECT).unwrap();
    assert_eq!(two.a.provider.connect(waiting, peer), Err(Error::WSAEWOULDBLOCK));
    two.b.await_request(two.listener);
    let token = two.b.provider.duplicate(two.listener, 1).unwrap();
    assert_ne!(token, 0, "D-1: it names something");
    two.a.await_request(waiting); // its event
    let refused = (CONNECT, Some(Error::WSAECONNREFUSED));
    assert_eq!(two.a.provider.network_events(waiting, 0), Ok(refused));
    let no = Some(Error::WSAEINVAL);
    assert_eq!(two.b.provider.accept(two.listener, |_, _| CF_ACCEPT).err(), no);
    assert_eq!(two.b.provider.listen(two.listener, 1).err(), no);
    assert_eq!(two.b.provider.duplicate(two.listener, 1).err(), no);
    // The connections that were accepted on it are none of its business.
    let (own, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let received = two.b.receive(two.t, theirs.range(0, 8)).unwrap();
    two.a.send(two.s, own.range(0, 8)).unwrap();
    assert_eq!(two.b.ended(&received), (None, 8));
    assert_eq!(two.b.provider.close_socket(two.listener), Ok(()));
    assert_eq!(two.b.provider.close_socket(two.listener), Err(Error::WSAENOTSOCK));
    two.end();
}

/// WSD D-3, A-30: what a socket or a registration was called stays dead, also for the next provider
/// of this process.
#[test]
fn a30_no_descriptor_and_no_handle_comes_back() {
    let mut seen = std::collections::HashSet::new();
    let mut before: Option<(usize, Handle)> = None;
    for _ in 0..3 {
        let two = Two::new();
        let (pages, handle) = scratch(&two.b, two.t, 1);
        let another = two.b.register(two.t, &pages, mem::READ);
        for number in [two.s, two.t, two.listener, two.a.socket(), handle.0, another.0] {
            assert!(seen.insert(number), "{number:#x} was something else");
        }
        if let Some((socket, handle)) = before.replace((two.t, handle)) {
            let provider = &two.b.provider;
            assert_eq!(provider.close_socket(socket), Err(Error::WSAENOTSOCK));
            assert_eq!(provider.deregister_memory(socket, handle), Err(Error::WSAENOTSOCK));
            assert_eq!(provider.deregister_memory(two.t, handle), Err(Error::WSAEINVAL));
        }
        two.end();
    }
}

/// 12.1 step 6: what has come before is there, with its bytes; what has not completes without. A
/// send that is under way all the same is aborted.
#[test]
fn d04_what_has_arrived_is_not_lost_to_a_duplication() {
    let two = Two::new();
    let (own, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    // The thread of the upcalls, which takes completions off the queue, is held in the first of
    // them.
    let (go, held) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let held = std::sync::Mutex::new(held);
    *two.b.switch.on_complete.lock().unwrap() = Some(Box::new(move |_| {
        let _ = tell.send(());
        let _ = held.lock().unwrap().recv_timeout(std::time::Duration::from_secs(60));
    }));
    let receives = [0, 16, 32].map(|at| two.b.receive(two.t, theirs.range(at, 16)).unwrap());
    let unsent = two.b.send(two.t, theirs.range(64, 8)).unwrap();
    for length in [9, 10] {
        let sent = two.a.send(two.s, own.range(0, length)).unwrap();
        assert_eq!(two.a.ended(&sent), (None, length));
        if length == 9 {
            told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        }
    }
    two.b.provider.duplicate(two.t, 1).unwrap();
    drop(go);
    let ended = receives.each_ref().map(|receive| two.b.ended(receive));
    assert_eq!(ended, [(None, 9), (None, 10), (None, 0)]);
    assert_eq!(two.b.ended(&unsent), (Some(Error::WSA_OPERATION_ABORTED), 0));
    assert!(theirs.bytes()[16..26].iter().all(|byte| *byte == 1));
    two.end();
}

/// WSD S-4: a connection leaves from the address and the port that its socket was bound to.
#[test]
fn s04_a_connection_leaves_from_where_its_socket_was_bound() {
    let two = Two::new();
    let to = two.b.provider.local_address(two.listener).unwrap();
    let held = transom_testing::ports::Held::new().unwrap();
    let client = two.a.socket();
    two.a.provider.bind(client, held.address()).unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            two.b.await_request(two.listener);
            two.b.provider.accept(two.listener, |_, _| CF_ACCEPT).unwrap()
        });
        two.a.provider.connect(client, to).unwrap();
        assert_eq!(two.a.provider.local_address(client), Ok(held.address()));
        assert_eq!(accepting.join().unwrap().1, held.address());
    });
    two.end();
}

/// WSD L-5, 8.7: an event that was fetched is over; with more requests waiting it is set once more.
#[test]
fn l05_an_event_is_set_again_while_requests_wait() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(8);
    let peer = b.provider.local_address(listener).unwrap();
    let count = |what: fn(&Record) -> &std::collections::HashMap<usize, u32>| {
        let record = b.switch.record.lock().unwrap();
        what(&record).get(&listener).copied().unwrap_or(0)
    };
    let sets = || count(|record| &record.set);
    let resets = || count(|record| &record.reset);
    for number in 1..=2 {
        let socket = a.socket();
        a.provider.event_select(socket, socket, CONNECT).unwrap();
        assert_eq!(a.provider.connect(socket, peer), Err(Error::WSAEWOULDBLOCK));
        b.switch.wait("a request", |r| r.set.get(&listener).filter(|n| **n == number).copied());
    }
    assert_eq!(b.provider.network_events(listener, listener), Ok((FD_ACCEPT, None)));
    assert_eq!(b.provider.network_events(listener, 0), Ok((0, None)), "fetched");
    assert_eq!((sets(), resets()), (2, 1));
    b.provider.accept(listener, |_, _| CF_ACCEPT).unwrap();
    b.switch.wait("the other request", |r| r.set.get(&listener).filter(|n| **n == 3).copied());
    // Accepted without a look at the events: they are over all the same.
    b.provider.accept(listener, |_, _| CF_ACCEPT).unwrap();
    assert_eq!(b.provider.network_events(listener, 0), Ok((0, None)), "nobody waits");
    let nobody = b.provider.accept(listener, |_, _| CF_ACCEPT).err();
    assert_eq!(nobody, Some(Error::WSAEWOULDBLOCK));
    assert_eq!((sets(), resets()), (3, 3));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// WSD X-10: a socket notices its peer's end although nothing is under way on it.
#[test]
fn x10_an_idle_socket_notices_its_peers_end() {
    let two = Two::new();
    let pages = Pages::of(1);
    two.a.close(two.s);
    let begin = std::time::Instant::now();
    // No operation is begun here: nothing but the connection's end can tell.
    while let Ok(handle) = two.b.try_register(two.t, &pages, mem::READ) {
        two.b.provider.deregister_memory(two.t, handle).unwrap();
        assert!(begin.elapsed().as_secs() < 60, "it never heard");
        std::thread::yield_now();
    }
    assert_eq!(two.b.try_register(two.t, &pages, mem::READ), Err(Error::WSAECONNRESET));
    two.end();
}

/// WSD X-11: after the last WSPCleanup there is no provider.
#[test]
fn x11_after_a_cleanup_everything_is_down() {
    let two = Two::new();
    let pages = Pages::of(1);
    let provider = &two.b.provider;
    let handles = two.b.switch.clone();
    provider.cleanup();
    let down = Some(Error::WSAENETDOWN);
    assert_eq!(provider.open_socket((2, 1, 6), 0, 1).err(), down);
    assert_eq!(two.b.try_register(two.t, &pages, mem::READ).err(), down);
    assert_eq!(provider.option(two.listener, SOL_SOCKET, SO_DEBUG).err(), down);
    // Each handle has been given back, once, and no upcall comes behind the cleanup.
    let closed = handles.wait("the handles", |r| Some(r.closed.clone()));
    assert_eq!(closed.len(), 2);
    assert_ne!(closed[0], closed[1]);
    two.a.provider.cleanup();
}
