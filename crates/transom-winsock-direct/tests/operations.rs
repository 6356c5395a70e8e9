//! Messages and the completion of operations (WSD 6, 7, 18).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::{Direction, Error};

transom_testing::over_both_paths!(path_holds());

/// WSD W7: from the middle of a region; never over the seam of two.
#[test]
fn w07_a_buffer_lies_in_one_registration() {
    let two = Two::new();
    let pages = Pages::new(2);
    let half = |at: u64| unsafe {
        two.a.provider.register_memory(two.s, pages.address() + at, 4096, mem::READWRITE)
    };
    half(0).unwrap();
    half(4096).unwrap();
    for (at, length, right) in
        [(100, 50, true), (4090, 6, true), (4096, 50, true), (4090, 12, false), (4095, 2, false)]
    {
        let part = pages.range(at, length);
        let expected = (!right).then_some(Error::WSAEFAULT);
        assert_eq!(two.a.send(two.s, part).err(), expected, "{at} {length}");
        assert_eq!(two.a.receive(two.s, part).err(), expected, "{at} {length}");
    }
    two.end();
}

/// WSD W9, O-3 to O-6: polled operations and operations with an upcall on one socket; no upcall for
/// the polled ones.
#[test]
fn w09_polled_and_notified_operations_mix() {
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

/// WSD W10: a message behind an RDMA operation arrives behind its effect.
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

/// WSD W11, N-1 to N-3: messages that come before any receive wait, and the connection with them.
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

/// WSD M-5, W16: messages and RDMA transfers have a limit; the switch splits what is longer.
#[test]
fn m5_a_message_over_the_limit_is_refused() {
    let two = Two::new();
    let limit = two.a.provider.option(two.s, SOL_SOCKET, SO_MAX_MSG_SIZE).unwrap();
    assert_eq!(two.a.provider.option(two.s, SOL_SOCKET, SO_MAX_RDMA_SIZE), Ok(limit));
    // The limit is reached by naming one part of it as often as an operation has buffers.
    let part = limit / 8;
    let pages = Pages::new(part as usize / PAGE + 1);
    let handle = two.a.register(two.s, &pages, mem::READ);
    let buffers = |more: u32| {
        let mut buffers = [pages.range(0, part); 8];
        buffers[7].length += more;
        buffers
    };
    let mut begun = None;
    let mut send = |more| {
        let start = |op| {
            begun = Some(op);
            two.a.provider.send(two.s, &buffers(more), 0, op)
        };
        Op::begin(true, start).err()
    };
    assert_eq!(send(1), Some(Error::WSAEMSGSIZE));
    // WSD O-8: what never began is not under way, and holds no registration.
    let outcome = two.a.provider.overlapped_result(two.s, begun.unwrap(), false).unwrap();
    assert_eq!((outcome.error, outcome.bytes), (None, 0));
    let target = two.b.expose(two.t, &Pages::of(0), mem::WRITE);
    let write = |handle, more| {
        let parts = buffers(more).map(|buffer| (buffer, handle));
        let (direction, target) = (Direction::Write, (&target[..], 0));
        let start = |op| two.a.provider.rdma(two.s, direction, &parts, target, 0, op);
        Op::begin(true, start).err()
    };
    assert_eq!(write(handle, 1), Some(Error::WSAEMSGSIZE));
    assert_eq!(two.a.provider.deregister_memory(two.s, handle), Ok(()));
    // An operation as long as the limit begins; with no receive posted at the peer, no byte of it moves.
    let handle = two.a.register(two.s, &pages, mem::READ);
    let send = |more| Op::begin(true, |op| two.a.provider.send(two.s, &buffers(more), 0, op)).err();
    assert_eq!((send(0), write(handle, 0)), (None, None));
    two.end();
}

/// WSD M-5: a message longer than the receive that it meets resets the connection.
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

/// WSD M-3: a Send has no flags; nor has a Recv here.
#[test]
fn m3_messages_have_no_flags() {
    let two = Two::new();
    let (own, _) = scratch(&two.a, two.s, 1);
    let part = [own.range(0, 8)];
    for flags in [1, 0x8000] {
        let sent = Op::begin(true, |op| two.a.provider.send(two.s, &part, flags, op));
        assert_eq!(sent.err(), Some(Error::WSAEINVAL));
        let received = Op::begin(true, |op| two.a.provider.receive(two.s, &part, flags, op));
        assert_eq!(received.err(), Some(Error::WSAEINVAL));
    }
    two.end();
}

/// WSD M-1, M-7: one message, gathered from several registrations and scattered into several; not
/// from none, nor from too many.
#[test]
fn m7_a_message_has_several_buffers() {
    let two = Two::new();
    let sources = [1, 2, 3].map(|byte| scratch(&two.a, two.s, byte).0);
    let sinks = [0, 0].map(|byte| scratch(&two.b, two.t, byte).0);
    let into = [sinks[0].range(0, 10), sinks[1].range(0, 100)];
    let received = Op::begin(false, |op| two.b.provider.receive(two.t, &into, 0, op)).unwrap();
    let from = [0, 1, 2].map(|i| sources[i].range(0, 8));
    let sent = Op::begin(false, |op| two.a.provider.send(two.s, &from, 0, op)).unwrap();
    assert_eq!(two.a.ended(&sent), (None, 24));
    assert_eq!(two.b.ended(&received), (None, 24));
    let bytes = [&sinks[0].bytes()[..10], &sinks[1].bytes()[..14]].concat();
    assert_eq!(bytes, [[1; 8], [2; 8], [3; 8]].concat());
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let (own, handle) = scratch(&two.a, two.s, 4);
    for (count, right) in [(0, false), (1, true), (8, true), (9, false)] {
        let parts = vec![own.range(0, 8); count];
        let named: Vec<_> = parts.iter().map(|part| (*part, handle)).collect();
        let rdma = |with, op| two.a.provider.rdma(two.s, with, &named, (&target, 0), 0, op);
        let begun = [
            Op::begin(true, |op| two.a.provider.send(two.s, &parts, 0, op)),
            Op::begin(true, |op| two.a.provider.receive(two.s, &parts, 0, op)),
            Op::begin(true, |op| rdma(Direction::Read, op)),
            Op::begin(true, |op| rdma(Direction::Write, op)),
        ];
        let expected = (!right).then_some(Error::WSAEINVAL);
        assert_eq!(begun.map(Result::err), [expected; 4], "{count}");
    }
    two.end();
}

/// WSD M-6, M-8: sixteen sends and sixteen receives under way, in order.
#[test]
fn m8_sixteen_of_each_are_under_way() {
    let two = Two::new();
    let (own, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 0);
    let sends: Vec<Op> = (1..=16).map(|n| two.a.send(two.s, own.range(0, n)).unwrap()).collect();
    let receives: Vec<Op> =
        (0..16).map(|i| two.b.receive(two.t, theirs.range(i * 64, 64)).unwrap()).collect();
    for (n, (send, receive)) in (1..=16).zip(sends.iter().zip(&receives)) {
        assert_eq!(two.a.ended(send), (None, n));
        assert_eq!(two.b.ended(receive), (None, n));
    }
    two.end();
}

/// WSD 5.6: what finds no place in its queue is refused as that, and changes nothing.
#[test]
fn m8_a_full_queue_says_so() {
    let two = Two::new();
    let (own, handle) = scratch(&two.a, two.s, 1);
    let target = two.b.expose(two.t, &Pages::of(0), mem::READWRITE);
    let part = own.range(0, 8);
    // No receive is posted at the peer, so no send ends.
    for _ in 0..transom_winsock_direct::QUEUE_DEPTH {
        two.a.receive(two.s, part).unwrap();
        two.a.send(two.s, part).unwrap();
    }
    let full = Some(Error::WSAENOBUFS);
    assert_eq!(two.a.receive(two.s, part).err(), full);
    assert_eq!(two.a.send(two.s, part).err(), full);
    let write = two.a.rdma(two.s, Direction::Write, (part, handle), (&target, 0));
    assert_eq!(write.err(), full);
    two.end();
}

/// WSD O-8, O-10: the fields of the switch's structure: under way before the call returns, then 0,
/// with the bytes and the error beside it; afterwards it is not written to.
#[test]
fn o8_the_overlapped_shows_the_state() {
    let two = Two::new();
    let (own, _) = scratch(&two.a, two.s, 1);
    let (theirs, _) = scratch(&two.b, two.t, 0);
    let receive = two.b.receive(two.t, theirs.range(0, 64)).unwrap();
    let fields = |op: &Op| unsafe { std::ptr::read_volatile(op.overlapped) };
    assert_eq!(fields(&receive).internal, 0x103);
    two.a.send(two.s, own.range(0, 9)).unwrap();
    assert_eq!(two.b.ended(&receive), (None, 9));
    let now = fields(&receive);
    assert_eq!((now.internal, now.internal_high, now.offset, now.offset_high), (0, 9, 0, 0));
    unsafe { (*receive.overlapped).internal_high = 77 };
    let late = two.b.receive(two.t, theirs.range(0, 64)).unwrap();
    two.b.close(two.t);
    assert_eq!(two.b.ended(&late).0, Some(Error::WSA_OPERATION_ABORTED));
    let aborted = Error(fields(&late).offset_high as i32);
    assert_eq!(aborted, Error::WSA_OPERATION_ABORTED);
    assert_eq!(fields(&receive).internal_high, 77);
    two.end();
}

/// WSD O-11: a polled operation is found failed by polling, and makes no upcall.
#[test]
fn o11_an_aborted_polled_operation_is_found_by_polling() {
    let two = Two::new();
    let (theirs, _) = scratch(&two.b, two.t, 0);
    let part = [theirs.range(0, 64)];
    let receive = Op::begin(true, |op| two.b.provider.receive(two.t, &part, 0, op)).unwrap();
    two.a.close(two.s);
    let outcome = two.b.provider.overlapped_result(two.t, receive.operation(), true).unwrap();
    assert_eq!(outcome.error, Some(Error::WSAECONNRESET));
    two.b.close(two.t);
    two.b.switch.wait("the handle", |r| (!r.closed.is_empty()).then_some(()));
    assert!(two.b.switch.record.lock().unwrap().completed.is_empty());
    two.end();
}
