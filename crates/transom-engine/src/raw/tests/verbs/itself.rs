//! A queue pair that is its own peer.

use transom_wire::Atomic;

use super::*;

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

/// Verbs V67, V78: what is in front of a request that the queue pair refuses itself has succeeded, also Reads
/// and atomics whose answers are still on their way back.
#[test]
fn v78_what_is_in_front_of_its_own_refusal_has_succeeded() {
    let size = 1 << 20;
    for case in 0..3 {
        let mut end = End::new(&verbs());
        connect_to_itself(&mut end);
        let rights = Rights(ALL.0 | Rights::REMOTE.0);
        let memory = Buffer::new(&end, 2 * size, rights);
        let (token, at) = (memory.token.0, memory.address());
        memory.fill(|index| u8::from(index < size));
        let change = Atomic::FetchAdd { add: 1 };
        let read = |address| Operation::Read { token, address };
        let atomic = |address| Operation::Atomic { token, address, change };
        let write = |address| Operation::Write { token, address };
        let (whole, word) = ([memory.sge(size, size)], [memory.sge(size, 8)]);
        let outside = at + 2 * size as u64;
        let refused = [write(outside), read(outside), atomic(outside)][case];
        let requests = [
            (read(at), &whole),
            (atomic(at), &word),
            (read(at), &whole),
            (write(at + 64), &word),
            (refused, &word),
            (read(at), &whole),
            (atomic(at), &word),
            (write(at), &word),
        ];
        for ((operation, list), context) in requests.into_iter().zip(1..) {
            let request = Request { context, operation, flags: Flags::NONE };
            end.qp.post(&request, Data::Sges(list)).unwrap();
        }
        let expected = (1..=8).map(|context| match context {
            1..=4 => (context, OK),
            5 => (context, Status::RemoteAccess),
            _ => (context, CANCELED),
        });
        assert_eq!(outcomes(&end, 8), expected.collect::<Vec<_>>(), "case {case}");
        let held = u64::from_ne_bytes(memory.bytes()[..8].try_into().unwrap());
        assert_eq!(held, 0x0101_0101_0101_0102, "the atomic behind the refusal is not carried out");
        assert_eq!(end.qp.state(), QueuePairState::Error);
    }
}
