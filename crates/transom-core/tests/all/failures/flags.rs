//! Fences, limits, inline bytes, Send with Invalidate (ND2 4.3, 4.8).

use transom_memory::{DomainId, Registration, Scope, Segment, WindowSpec};

use super::*;

crate::support::again_over_process![
    nd2_4_3_a_fence_waits_for_earlier_reads,
    nd2_4_8_reads_above_the_limit_wait,
    nd2_4_8_a_read_against_a_limit_of_none_is_an_invalid_request,
    nd2_2_9_inline_bytes_are_captured_by_the_call,
    send_with_invalidate_closes_a_window_of_this_peer_only,
    ndk_inv9_a_peer_takes_no_memory_that_windows_are_bound_to
];

/// ND2 4.3, 4.8: fences wait for Reads; Reads wait for their limit.
#[test]
fn nd2_4_3_a_fence_waits_for_earlier_reads() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
        let [a, p] = &mut pair.hosts;
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        p.post_receive(20, &[]).unwrap();
        p.post_receive(21, &[]).unwrap();
        pair.pump();
        pair.stall(ACTIVE, true); // answers do not arrive
        let a = &mut pair.hosts[ACTIVE];
        a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        a.post(2, Operation::Send, Flags::NONE, &[]).unwrap();
        a.post(3, Operation::Send, Flags::READ_FENCE, &[]).unwrap();
        pair.pump();
        let arrived = pair.hosts[PASSIVE].outcomes();
        assert_eq!(arrived, [(20, Status::Success)], "{}: unfenced passes", dialect.name);
        pair.stall(ACTIVE, false);
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(21, Status::Success)]);
        let ok = Status::Success;
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, ok), (2, ok), (3, ok)]);
    });
}

#[test]
fn nd2_4_8_reads_above_the_limit_wait() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[ACTIVE].caps.reads.outbound = 2;
    let mut pair = Pair::connected_with(config);
    let target = pair.hosts[PASSIVE].register(vec![7; 64], Rights::REMOTE_READ);
    let a = &mut pair.hosts[ACTIVE];
    let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    for context in 0..20 {
        a.post(context, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    }
    pair.pump();
    let expected: Vec<_> = (0..20).map(|context| (context, Status::Success)).collect();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
}

#[test]
fn nd2_4_8_a_read_against_a_limit_of_none_is_an_invalid_request() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[ACTIVE].caps.reads.outbound = 0;
    let mut pair = Pair::connected_with(config);
    pair.hosts[ACTIVE].post(1, Operation::Read { token: 0, address: 0 }, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::InvalidRequest)]);
}

/// ND2 2.9: inline bytes are captured by the call.
#[test]
fn nd2_2_9_inline_bytes_are_captured_by_the_call() {
    each(|mut pair, _| {
        let [a, p] = &mut pair.hosts;
        let inbox = p.register(vec![0; 256], Rights::LOCAL_WRITE);
        p.post_receive(20, &[inbox.all()]).unwrap();
        let mut bytes = vec![5; 200];
        let request = Request { context: 1, operation: Operation::Send, flags: Flags::NONE };
        a.queue_pair.post(&request, Data::Inline(&bytes)).unwrap();
        bytes.fill(6);
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.completions()[0].length, 200);
        assert_eq!(p.arena.read(inbox.address, 200).unwrap(), vec![5; 200]);
    });
}

/// iW 8.4, ND1 5.7: a Send closes a window; what is no window of that peer's ends the connection.
#[test]
fn send_with_invalidate_closes_a_window_of_this_peer_only() {
    each(|mut pair, dialect| {
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        p.post_receive(20, &[]).unwrap();
        p.post_receive(21, &[]).unwrap();
        p.post_receive(22, &[]).unwrap();
        pair.pump();
        pair.hosts[PASSIVE].completions();
        let close = Operation::SendWithInvalidate { token: window.token.0 };
        pair.hosts[ACTIVE].post(1, close, Flags::NONE, &[]).unwrap();
        pair.pump();
        let received = pair.hosts[PASSIVE].completions();
        assert_eq!((received[0].status, received[0].value), (Status::Success, window.token.0));
        assert!(received[0].flags.contains(CompletionFlags::INVALIDATED));
        // The region is no window.
        let close = Operation::SendWithInvalidate { token: buffer.token.0 };
        pair.hosts[ACTIVE].post(2, close, Flags::NONE, &[]).unwrap();
        pair.pump();
        let received = pair.hosts[PASSIVE].outcomes();
        assert_eq!(received[0], (21, Status::InvalidRequest), "{}", dialect.name);
        assert!(pair.hosts[PASSIVE].memory.counts(buffer.token).is_some(), "still registered");
    });
}

/// ND2 4.5, iW 8.4: a plain peer's Send that finds no receive waits as a whole: its bytes, what it asks to
/// be closed, and that it is solicited. Until it meets its receive, nothing of it has happened.
#[test]
fn nd2_4_5_a_send_that_waits_for_a_receive_keeps_what_it_asks_for() {
    for shared in [false, true] {
        let mut config = PairConfig { wires: Wires::plain(), ..PairConfig::new(&dialect::ND2) };
        config.hosts[PASSIVE].shared = shared;
        let mut pair = Pair::connected_with(config);
        // The first message of the active side establishes the connection.
        pair.hosts[PASSIVE].post_receive(19, &[]).unwrap();
        pair.hosts[ACTIVE].post(0, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.advance(Duration::from_millis(50));
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let inbox = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        pair.hosts[PASSIVE].completions();
        let close = Operation::SendWithInvalidate { token: window.token.0 };
        let source = pair.hosts[ACTIVE].register(vec![7; 40], Rights::LOCAL_READ);
        pair.hosts[ACTIVE].post(1, close, Flags::SOLICIT, &[source.all()]).unwrap();
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.completions(), []);
        assert!(p.memory.is_open(window.token), "no receive has completed");
        p.post_receive(20, &[inbox.all()]).unwrap();
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        let received = p.completions();
        assert_eq!(received.len(), 1, "shared: {shared}");
        assert_eq!((received[0].request_context, received[0].status), (20, Status::Success));
        assert_eq!((received[0].length, received[0].value), (40, window.token.0));
        for flag in [CompletionFlags::INVALIDATED, CompletionFlags::SOLICITED] {
            assert!(received[0].flags.contains(flag));
        }
        assert!(!p.memory.is_open(window.token), "shared: {shared}");
        assert_eq!(p.arena.read(inbox.address, 40).unwrap(), vec![7; 40]);
        assert_eq!(ended(&pair, PASSIVE), None);
    }
}

/// NDK INV-7, INV-9: memory of fast registration does not go while windows are bound to it, on
/// either side's request.
#[test]
fn ndk_inv9_a_peer_takes_no_memory_that_windows_are_bound_to() {
    each(|mut pair, dialect| {
        let p = &mut pair.hosts[PASSIVE];
        let domain = DomainId(1);
        let scope = Scope::Domain(domain);
        let region = p.memory.reserve_region(scope).unwrap();
        let (base, length) = (0x7000_0000, 64);
        let rights = Rights(WRITABLE.0 | Rights::BIND.0);
        let segments = [Segment { host: base, length }];
        let memory = Registration { scope, rights, base, segments: &segments };
        p.memory.fast_register(region, &memory).unwrap();
        let rights = Rights::REMOTE_WRITE;
        let window = WindowSpec { region, domain, scope, base, length, rights };
        p.memory.reserve(&window, 0).unwrap();
        p.post_receive(20, &[]).unwrap();
        pair.pump();
        let close = Operation::SendWithInvalidate { token: region.0 };
        pair.hosts[ACTIVE].post(1, close, Flags::NONE, &[]).unwrap();
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.outcomes(), [(20, Status::InvalidRequest)], "{}", dialect.name);
        assert!(p.memory.is_open(region), "{}", dialect.name);
        let log = p.denials.0.lock().unwrap();
        let said = log.iter().next().unwrap().1.cause.to_string();
        assert!(said.contains("windows"), "{said}");
    });
}

/// ND1 INV-2, T16; iW 8.4: the peer closes what this side, or the peer itself, has closed already.
#[test]
fn nd1_inv2_a_window_is_closed_once_where_the_dialect_says_so() {
    each(|mut pair, dialect| {
        let fatal = dialect.dead_window != DeadWindow::Ignored;
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        for context in [20, 21] {
            p.post_receive(context, &[]).unwrap();
        }
        pair.pump();
        pair.hosts[PASSIVE].completions();
        let close = Operation::SendWithInvalidate { token: window.token.0 };
        for context in [1, 2] {
            pair.hosts[ACTIVE].post(context, close, Flags::NONE, &[]).unwrap();
        }
        pair.pump();
        let second = if fatal { Status::InvalidRequest } else { Status::Success };
        assert_eq!(
            pair.hosts[PASSIVE].outcomes(),
            [(20, Status::Success), (21, second)],
            "{}",
            dialect.name
        );
        assert_eq!(pair.hosts[ACTIVE].outcomes()[0], (1, Status::Success), "{}", dialect.name);
    });
}

/// Verbs V82, ND1 EP-8: a place is free when its completion was retrieved, so that a completion queue as deep
/// as the queues that complete in it never runs over. That of a silent success is free at once, or with
/// the next completion that is retrieved, as the dialect says.
#[test]
fn v82_places_are_free_when_their_completions_are_retrieved() {
    let depth = 8;
    for (dialect, shared) in dialect::ALL.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut config = PairConfig::new(dialect);
        for host in &mut config.hosts {
            (host.depth, host.cq_depth, host.shared) = (depth, 2 * depth as usize, shared);
        }
        let mut pair = Pair::connected_with(config);
        let depth = u64::from(depth);
        let name = format!("{}, shared {shared}", dialect.name);
        let full = Err(Status::NoMoreEntries);
        let send = |pair: &mut Pair, context, flags| {
            let posted = pair.hosts[ACTIVE].post(context, Operation::Send, flags, &[]);
            pair.pump();
            posted
        };
        for context in 0..depth {
            pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
        }
        for context in 0..depth {
            assert_eq!(send(&mut pair, context, Flags::NONE), Ok(()), "{name}");
        }
        // All have completed, and none is retrieved.
        assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding().0, 0, "{name}");
        assert_eq!(send(&mut pair, depth, Flags::NONE), full, "{name}");
        assert_eq!(pair.hosts[ACTIVE].post(depth, write_nothing(), Flags::NONE, &[]), full);
        assert_eq!(pair.hosts[PASSIVE].post_receive(depth, &[]), full, "{name}");
        for host in [ACTIVE, PASSIVE] {
            assert!(pair.hosts[host].cq.pop().is_some());
        }
        assert_eq!(pair.hosts[PASSIVE].post_receive(depth, &[]), Ok(()), "{name}");
        assert_eq!(pair.hosts[PASSIVE].post_receive(depth, &[]), full, "{name}");
        assert_eq!(send(&mut pair, depth, Flags::NONE), Ok(()), "{name}");
        assert_eq!(send(&mut pair, depth, Flags::NONE), full, "{name}");
        assert_eq!(pair.hosts[ACTIVE].outcomes().len() as u64, depth, "{name}");
        assert_eq!(pair.hosts[PASSIVE].outcomes().len() as u64, depth, "{name}");
        // Silent ones.
        let posts = |pair: &mut Pair, flags| {
            let posted = pair.hosts[ACTIVE].post(1, write_nothing(), flags, &[]);
            pair.pump();
            posted
        };
        for _ in 0..depth - 1 {
            assert_eq!(posts(&mut pair, Flags::SILENT_SUCCESS), Ok(()), "{name}");
        }
        assert_eq!(posts(&mut pair, Flags::NONE), Ok(()), "{name}");
        let kept = dialect.silent_keeps_its_place;
        let next = posts(&mut pair, Flags::SILENT_SUCCESS);
        assert_eq!(next, if kept { full } else { Ok(()) }, "{name}");
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)], "{name}");
        assert_eq!(pair.hosts[ACTIVE].queue_pair.occupied().0, 0, "{name}: with the one behind");
        // A flush takes up the places as well, and runs over nothing.
        for _ in 0..depth {
            pair.hosts[ACTIVE].post(1, Operation::Send, Flags::SILENT_SUCCESS, &[]).unwrap();
        }
        pair.flush(ACTIVE);
        pair.pump();
        assert!(pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).is_err(), "{name}");
        assert_eq!(pair.hosts[ACTIVE].cq.failure(), None, "{name}");
        let flushed = pair.hosts[ACTIVE].outcomes();
        assert_eq!(flushed.len() as u64, depth, "{name}: {flushed:?}");
    }
}

fn write_nothing() -> Operation {
    Operation::Write { token: 0, address: 0 }
}
