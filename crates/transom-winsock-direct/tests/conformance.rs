//! Section 18 of WSD as far as it concerns what is built: W1, W7, W9 to W13, W16 to W19, and the
//! rules of the switch on the example's small switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
#[path = "../examples/move_file.rs"]
mod move_file;
use common::*;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::extension::{EXTENSIONS, Extension, Offers, find};
use transom_winsock_direct::{Direction, Error, Operation, Options, Provider};

#[test]
fn w01_extensions_by_guid() {
    for (guid, extension) in EXTENSIONS {
        assert_eq!(find(&guid, Offers::default()), Ok(extension));
        let optional =
            matches!(extension, Extension::RdmaRead | Extension::MemoryRegistrationCacheCallback);
        let found = find(&guid, Offers { rdma_read: false, cache: false });
        assert_eq!(found.err(), optional.then_some(Error::WSAEOPNOTSUPP));
    }
    let unknown = Guid { data1: 1, ..EXTENSIONS[0].0 };
    assert_eq!(find(&unknown, Offers::default()), Err(Error::WSAEINVAL));
}

/// W7: from the middle of a region; never over the seam of two.
#[test]
fn w07_a_buffer_lies_in_one_registration() {
    let two = Two::new();
    let pages = Pages::new(2);
    let half = |at: u64| unsafe {
        two.a.provider.register_memory(two.s, pages.address() + at, 4096, mem::READWRITE)
    };
    half(0).unwrap();
    half(4096).unwrap();
    assert!(two.a.send(two.s, pages.range(100, 50)).is_ok());
    assert!(two.a.send(two.s, pages.range(4096, 50)).is_ok());
    assert_eq!(two.a.send(two.s, pages.range(4090, 12)).err(), Some(Error::WSAEFAULT));
    two.end();
}

/// W9, O-3 to O-6: polled and told operations on one socket; no upcall for the polled ones.
#[test]
fn w09_polled_and_told_operations_mix() {
    let two = Two::new();
    let (pages, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let receives: Vec<Op> = (0..6)
        .map(|i| {
            let range = pages.range(i * 16, 16);
            let begin = |op| two.a.provider.receive(two.s, &[range], 0, op);
            Op::begin(i % 2 == 0, begin).unwrap()
        })
        .collect();
    let first = two.a.provider.overlapped_result(two.s, receives[0].operation(), false);
    assert_eq!(first.err(), Some(Error::WSA_IO_INCOMPLETE));
    for i in 0..6 {
        two.b.send(two.t, theirs.range(0, i + 1)).unwrap();
    }
    for (i, receive) in receives.iter().enumerate() {
        let outcome = two.a.provider.overlapped_result(two.s, receive.operation(), true).unwrap();
        assert_eq!((outcome.error, outcome.bytes, outcome.flags), (None, i as u32 + 1, 0));
        if i % 2 == 1 {
            assert_eq!(two.a.ended(receive), (None, i as u32 + 1));
        }
    }
    let record = two.a.switch.record.lock().unwrap();
    assert!(receives.iter().step_by(2).all(|op| !record.completed.contains_key(&op.address())));
    drop(record);
    two.end();
}

/// W10: a message behind an RDMA operation arrives behind its effect.
#[test]
fn w10_a_message_does_not_overtake_rdma() {
    let two = Two::new();
    let own = Pages::new(257);
    own.fill(|i| (i / 4096) as u8 | 1);
    let handle = two.a.register(two.s, &own, mem::READWRITE);
    let exposed = Pages::new(256);
    let target = two.b.expose(two.t, &exposed, mem::READWRITE);
    let (theirs, _) = scratch(&two.b, two.t, 0);
    for direction in [Direction::Write, Direction::Read] {
        exposed.fill(|i| if direction == Direction::Read { (i % 251) as u8 } else { 0 });
        let received = two.b.receive(two.t, theirs.range(0, 16)).unwrap();
        let part = (own.range(0, 1 << 20), handle);
        two.a.rdma(two.s, direction, part, (&target, 0)).unwrap();
        two.a.send(two.s, own.range(1 << 20, 8)).unwrap();
        assert_eq!(two.b.ended(&received), (None, 8));
        // At this moment the operation before the message has taken effect.
        if direction == Direction::Read {
            exposed.fill(|_| 0xee);
            assert!(own.bytes()[..1 << 20].iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
        } else {
            assert!(exposed.bytes() == own.bytes()[..1 << 20]);
        }
    }
    two.end();
}

/// W11, N-1 to N-3: messages that come before any receive wait, and the connection with them.
#[test]
fn w11_early_messages_wait_for_their_receives() {
    for first in [1, 255, 256] {
        let two = Two::new();
        let (own, _) = scratch(&two.a, two.s, 7);
        let (theirs, _) = scratch(&two.b, two.t, 0);
        let lengths = [first, 20, 30];
        let sends = lengths.map(|n| two.a.send(two.s, own.range(0, n)).unwrap());
        // The other direction does not notice: the connection is not held up.
        let back = two.a.receive(two.s, own.range(2048, 64)).unwrap();
        two.b.send(two.t, theirs.range(3072, 9)).unwrap();
        assert_eq!(two.a.ended(&back), (None, 9));
        for (index, length) in lengths.into_iter().enumerate() {
            let at = 1024 * index as u64;
            let received = two.b.receive(two.t, theirs.range(at, 512)).unwrap();
            assert_eq!(two.b.ended(&received), (None, length), "one to one, in order");
            let bytes = theirs.bytes();
            let end = at as usize + length as usize;
            assert!(bytes[at as usize..end].iter().all(|&b| b == 7) && bytes[end] == 0);
        }
        for (send, length) in sends.iter().zip(lengths) {
            assert_eq!(two.a.ended(send), (None, length));
        }
        two.end();
    }
}

/// W12, L-2 to L-7: the backlog, the condition function, and the event.
#[test]
fn w12_the_condition_is_asked_inside_accept() {
    let (a, b) = (Process::new(), Process::new());
    let listener = b.listener(1);
    assert_eq!(b.provider.accept(listener, |_| CF_ACCEPT).err(), Some(Error::WSAEWOULDBLOCK));
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
    assert_eq!(outcome(start()), (CONNECT, Some(Error::WSAECONNREFUSED)));
    let this = std::thread::current().id();
    let asked = std::cell::Cell::new(0);
    let answer = |with| {
        move |thread| {
            assert_eq!(thread, this);
            with
        }
    };
    assert_eq!(b.accept_if(listener, answer(CF_DEFER)), Err(Error::WSATRY_AGAIN));
    asked.set(asked.get() + 1);
    let accepted = b.provider.accept(listener, |_| CF_REJECT).map(|(socket, _)| socket);
    assert_eq!(accepted, Err(Error::WSAECONNREFUSED));
    assert_eq!(outcome(first), (CONNECT, Some(Error::WSAECONNREFUSED)));
    let third = start();
    let resets = |p: &Process| p.switch.record.lock().unwrap().reset.get(&listener).copied();
    let before = resets(&b);
    b.accept(listener).unwrap();
    assert!(resets(&b) > before, "L-5: reset before success is returned");
    assert_eq!(outcome(third), (CONNECT, None));
    a.provider.cleanup();
    b.provider.cleanup();
}

/// W13, C-5: nobody listens, and an own address that nobody has.
#[test]
fn w13_definitive_errors_of_connect() {
    let a = Process::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(a.provider.connect(a.socket(), free), Err(Error::WSAECONNRESET));
    a.provider.cleanup();
}

/// W15 to W17: a file by read rendezvous and by write rendezvous; at least 90 % of its bytes by RDMA
/// (asserted in `serve`).
#[test]
fn w17_files_move_by_read_and_by_write() {
    for reads in [true, false] {
        let file: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
        session(reads, &file, |receiver, session| {
            let bytes = session.receive_all(reads).unwrap();
            assert!(bytes == file);
            let registered = receiver.registered(session.socket);
            assert_eq!(registered, Ok((2, 0)), "gone with the transfer");
            let (_, rdma) = receiver.moved(session.socket).unwrap();
            assert_eq!(rdma, if reads { file.len() - 1024 } else { 0 });
            session.report(&bytes).unwrap();
        });
    }
}

/// The example's small switch: `act` receives what another thread serves.
fn session(reads: bool, file: &[u8], act: impl FnOnce(&Provider, &mut move_file::Session)) {
    let (sender, receiver) =
        (move_file::provider(reads).unwrap(), move_file::provider(reads).unwrap());
    let (listener, at) = move_file::listen(&sender).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| move_file::serve(&sender, listener, file, reads).unwrap());
        let socket = receiver.open_socket((2, 1, 6), false, 1).unwrap();
        receiver.connect(socket, at).unwrap();
        let mut session = move_file::Session::start(&receiver, socket, reads).unwrap();
        act(&receiver, &mut session);
        serving.join().unwrap();
    });
    sender.cleanup();
    receiver.cleanup();
}

/// two regions per socket, and for small messages nothing else: no RDMA registration.
#[test]
fn a24_small_messages_need_two_regions_and_no_rdma() {
    session(true, &[5; 1000], |receiver, session| {
        assert_eq!(receiver.registered(session.socket), Ok((2, 0)));
        let bytes = session.receive_all(true).unwrap();
        assert_eq!(bytes, [5; 1000]);
        assert_eq!(receiver.registered(session.socket), Ok((2, 0)));
        assert_eq!(receiver.moved(session.socket).unwrap().1, 0);
        session.report(&bytes).unwrap();
    });
}

/// the sending region is for sending only, the receiving region for receiving only.
#[test]
fn a25_each_region_serves_one_direction() {
    session(true, &[5; 1000], |receiver, session| {
        let (sending, receiving) = session.regions();
        let no = Some(Error::WSAEFAULT);
        let try_it = |f: &dyn Fn(Operation) -> Result<(), Error>| Op::begin(true, f).err();
        assert_eq!(try_it(&|op| receiver.receive(session.socket, &[sending], 0, op)), no);
        assert_eq!(try_it(&|op| receiver.send(session.socket, &[receiving], 0, op)), no);
        let bytes = session.receive_all(true).unwrap();
        session.report(&bytes).unwrap();
    });
}

/// what no transfer uses can be deregistered before the socket is closed.
#[test]
fn a21_unused_memory_is_deregistered_before_the_close() {
    let two = Two::new();
    let (sending, receiving) = (Pages::new(1), Pages::new(1));
    let one = two.a.register(two.s, &sending, mem::READ);
    let other = two.a.register(two.s, &receiving, mem::WRITE);
    let receive = two.a.receive(two.s, receiving.range(0, 64)).unwrap();
    assert_eq!(two.a.provider.deregister_memory(two.s, one), Ok(()));
    assert_eq!(two.a.provider.deregister_memory(two.s, other), Err(Error::WSAEINVAL));
    two.a.close(two.s);
    assert_eq!(two.a.ended(&receive).0, Some(Error::WSA_OPERATION_ABORTED));
    two.end();
}

/// W18, X-1 to X-4: close with operations under way on both sides; the handle goes last, once.
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

/// W8 with RDMA Read withheld: the function says so.
#[test]
fn w01_without_rdma_read_the_function_is_absent() {
    let offers = Offers { rdma_read: false, cache: true };
    let two = Two::with(Options { offers });
    let (own, handle) = scratch(&two.a, two.s, 1);
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let read = two.a.rdma(two.s, Direction::Read, (own.range(0, 8), handle), (&target, 0));
    assert_eq!(read.err(), Some(Error::WSAEOPNOTSUPP));
    two.end();
}

/// M-5: messages have a limit (W16: the switch splits what is longer).
#[test]
fn m5_a_message_over_the_limit_is_refused() {
    let two = Two::new();
    let pages = Pages::new(1024);
    two.a.register(two.s, &pages, mem::READ);
    let limit = two.a.provider.option(two.s, SOL_SOCKET, SO_MAX_MSG_SIZE).unwrap();
    assert_eq!(two.a.provider.option(two.s, SOL_SOCKET, SO_MAX_RDMA_SIZE), Ok(limit));
    let whole = Pages::new(limit as usize / PAGE);
    two.a.register(two.s, &whole, mem::READ);
    let over = [whole.range(0, limit), pages.range(0, 1)];
    let send = Op::begin(true, |op| two.a.provider.send(two.s, &over, 0, op));
    assert_eq!(send.err(), Some(Error::WSAEMSGSIZE));
    assert!(two.a.send(two.s, pages.range(0, 1 << 20)).is_ok());
    two.end();
}

/// M-5: a message longer than the receive that it meets resets the connection.
#[test]
fn m5_a_message_longer_than_its_receive_ends_the_connection() {
    let two = Two::new();
    let (own, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 2);
    let received = two.b.receive(two.t, theirs.range(0, 63)).unwrap();
    let sent = two.a.send(two.s, own.range(0, 64)).unwrap();
    assert_eq!(two.b.ended(&received), (Some(Error::WSAEMSGSIZE), 0));
    assert!(two.a.ended(&sent).0.is_some());
    assert!(theirs.is_all(2), "no byte of it was placed");
    let later = two.b.receive(two.t, theirs.range(0, 8)).err();
    assert_eq!(later, Some(Error::WSAECONNABORTED));
    two.end();
}

const PEER: &str = "TRANSOM_W19_PEER";

/// W19: the peer's process is killed. Its half is `w19_the_peer`, in a process of its own.
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
    // What it was shown is shown to nobody now, though nobody has deregistered it.
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

/// The other process of W19: connects, says hello, and waits to be killed. Without the address it
/// is nobody's peer, and does nothing.
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
