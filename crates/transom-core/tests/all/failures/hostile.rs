//! Hostile peers (iW 14), where the engine decides.

use super::*;

crate::support::again_over_process![
    iw_14_4_tokens_that_grant_nothing,
    iw_14_4_g6_a_range_that_wraps_has_the_same_record_on_every_path,
    iw_14_5_answers_are_made_as_the_link_takes_them,
    iw_14_5_a_terminate_that_is_not_read_is_given_up,
    a_bad_list_does_not_take_earlier_requests_with_it,
    nd2_4_9_no_answer_goes_on_behind_a_disconnect,
    a_granted_receive_goes_back_to_the_shared_queue,
    a_wish_takes_one_receive_of_the_shared_queue,
    a_receive_of_the_shared_queue_that_is_half_filled_is_canceled_once
];

/// iW F1, F4, H3 and the like end one connection with a record; nothing completes but the flush.
#[test]
fn iw_14_bytes_that_break_a_rule_end_the_connection_with_a_record() {
    each(|mut pair, dialect| {
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        pair.pump();
        pair.inject(PASSIVE, &[0xFF; 70_000]);
        pair.pump();
        assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Violation), "{}", dialect.name);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)]);
        assert_eq!(pair.hosts[PASSIVE].denials.0.lock().unwrap().total(), 1);
    });
}

/// iW G1, G3 to G7, G13, G10 as a peer meets them: a refusal, and the connection is gone.
#[test]
fn iw_14_4_tokens_that_grant_nothing() {
    each(|mut pair, dialect| {
        let p = &mut pair.hosts[PASSIVE];
        let own = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let readable = p.register(vec![0; 64], Rights::REMOTE_READ);
        drop(pair);
        let dead = Buffer { token: transom_memory::Token(own.token.0 ^ 1), ..own };
        let zero = Buffer { token: transom_memory::Token(0), ..own };
        for (name, target, offset) in [
            ("another key", dead, 0),
            ("token 0", zero, 0),
            ("no remote right", own, 0),
            ("read-only", readable, 0),
            ("one before", readable, u64::MAX),
            ("wraps", readable, u64::MAX - readable.address - 7),
        ] {
            let mut pair = connected(dialect, Wires::transom());
            let [a, p] = &mut pair.hosts;
            let source = a.register(vec![1; 16], Rights::NONE);
            p.register(vec![0; 64], Rights::LOCAL_WRITE);
            p.register(vec![0; 64], Rights::REMOTE_READ);
            a.post(1, write(&target, offset), Flags::NONE, &[source.all()]).unwrap();
            pair.pump();
            let outcomes = pair.hosts[ACTIVE].outcomes();
            assert_eq!(outcomes, [(1, Status::RemoteAccess)], "{}: {name}", dialect.name);
            assert_ne!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Connected);
        }
    });
}

/// iW G6: the owner's record of a range that wraps around is made where all ranges are judged, so
/// it names rule and mistake on every path, and a refused Transom gets the reason.
#[test]
fn iw_14_4_g6_a_range_that_wraps_has_the_same_record_on_every_path() {
    // A frame, one byte past the end of the address space; several frames; a Read.
    type Asks = fn(Token) -> (Operation, u32);
    let cases: [Asks; 3] = [
        |token| (Operation::Write { token: token.0, address: u64::MAX - 14 }, 16),
        |token| (Operation::Write { token: token.0, address: u64::MAX - 14 }, 200_000),
        |token| (Operation::Read { token: token.0, address: u64::MAX - 14 }, 16),
    ];
    for asks in cases {
        each(|mut pair, dialect| {
            let [a, p] = &mut pair.hosts;
            let target = p.register(vec![0; 64], WRITABLE | Rights::REMOTE_READ);
            let memory = a.register(vec![1; 200_000], Rights::LOCAL_WRITE);
            let (operation, length) = asks(target.token);
            a.post(1, operation, Flags::NONE, &[memory.sge(0, length)]).unwrap();
            pair.pump();
            let name = format!("{}: {operation:?}", dialect.name);
            assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteAccess)], "{name}");
            assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Refused), "{name}");
            let log = pair.hosts[PASSIVE].denials.0.lock().unwrap();
            assert_eq!(log.total(), 1, "{name}");
            let Some(DenialCause::Peer(denial)) = log.get(1).map(|record| &record.cause) else {
                panic!("{name}: {:?}", log.get(1));
            };
            assert_eq!((denial.rule, denial.likely), (Rule::Wrap, Mistake::WrapsAround), "{name}");
            let told = pair.hosts[ACTIVE].denials.0.lock().unwrap();
            let Some(DenialCause::ByPeer(error)) = told.get(1).map(|record| &record.cause) else {
                panic!("{name}: {:?}", told.get(1));
            };
            assert_eq!(error.class, Some(RefusalClass::Wrap), "{name}");
        });
    }
}

/// iW Q2: a peer that reads everything and never drains its link makes us hold one buffer, no more.
#[test]
fn iw_14_5_answers_are_made_as_the_link_takes_them() {
    let mut config = PairConfig { window: 200_000, ..PairConfig::new(&dialect::ND2) };
    config.hosts[ACTIVE].depth = 16;
    let mut pair = Pair::connected_with(config);
    let target = pair.hosts[PASSIVE].register(vec![7; 4_000_000], Rights::REMOTE_READ);
    let a = &mut pair.hosts[ACTIVE];
    let memory = a.register(vec![0; 4_000_000], Rights::LOCAL_WRITE);
    for context in 0..16 {
        a.post(context, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    }
    let now = pair.now;
    let mut requests = transom_wire::Buffer::new(1 << 20);
    pair.hosts[ACTIVE].transmit(now, &mut requests);
    pair.hosts[PASSIVE].receive(now, &requests.bytes);
    let mut out = transom_wire::Buffer::new(200_000);
    for _ in 0..10 {
        pair.hosts[PASSIVE].transmit(now, &mut out);
    }
    assert!(out.bytes.len() < 200_000 + 65_536 + 100, "{}", out.bytes.len());
}

/// iW Q3: a peer that never reads what we have to say last does not keep the connection.
#[test]
fn iw_14_5_a_terminate_that_is_not_read_is_given_up() {
    let mut config = PairConfig { window: 1, ..PairConfig::new(&dialect::ND2) };
    config.chunk = usize::MAX;
    let mut pair = Pair::connected_with(config);
    let now = pair.now;
    pair.hosts[PASSIVE].with(now, |_, link, _, cx| link.unwrap().fail(cx, EndReason::Overrun));
    let link = pair.hosts[PASSIVE].connection.as_mut().unwrap();
    let deadline = link.deadline().unwrap();
    assert!(deadline <= now.after(Duration::from_secs(2)));
    pair.hosts[PASSIVE].with(deadline, |_, link, _, cx| {
        let link = link.unwrap();
        link.on_deadline(cx);
        assert_eq!(link.link_wish(), transom_core::LinkWish::Close);
    });
}

/// ND2 4.5, 4.2 rule 1: a request that fails by itself waits for those before it.
#[test]
fn a_bad_list_does_not_take_earlier_requests_with_it() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![0; 64], WRITABLE);
        let a = &mut pair.hosts[ACTIVE];
        let source = a.register(vec![1; 64], Rights::NONE);
        a.post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        a.post(2, write(&target, 0), Flags::NONE, &[source.sge(1, 64)]).unwrap();
        a.post(3, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        assert_eq!(
            pair.hosts[ACTIVE].outcomes(),
            [(1, Status::Success), (2, Status::LocalAccess), (3, Status::Canceled)],
            "{}",
            dialect.name
        );
    });
}

/// ND2 4.9: once this side has disconnected, nothing more of its memory leaves, not even the rest of
/// an answer.
#[test]
fn nd2_4_9_no_answer_goes_on_behind_a_disconnect() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![7; 400_000], Rights::REMOTE_READ);
        let a = &mut pair.hosts[ACTIVE];
        let sink = a.register(vec![0; 400_000], Rights::LOCAL_WRITE);
        a.post(1, read(&target, 0), Flags::NONE, &[sink.all()]).unwrap();
        let now = pair.now;
        let mut request = transom_wire::Buffer::new(1 << 20);
        pair.hosts[ACTIVE].transmit(now, &mut request);
        pair.hosts[PASSIVE].receive(now, &request.bytes);
        let mut out = transom_wire::Buffer::new(100_000);
        pair.hosts[PASSIVE].transmit(now, &mut out);
        assert!(out.bytes.len() > 60_000);
        pair.hosts[PASSIVE].with(now, |c, link, _, cx| c.disconnect(cx, link, 50)).unwrap();
        let mut rest = transom_wire::Buffer::new(1 << 20);
        pair.hosts[PASSIVE].transmit(now, &mut rest);
        assert!(rest.bytes.len() < 1000, "{}: {}", dialect.name, rest.bytes.len());
    });
}

/// ND2 2.7: a receive that was granted to a peer and not used goes back to the shared queue.
#[test]
fn a_granted_receive_goes_back_to_the_shared_queue() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    pair.stall(ACTIVE, true);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    let outstanding = |pair: &Pair| pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding();
    assert_eq!(outstanding(&pair), 0, "promised to the peer");
    pair.disconnect(ACTIVE, 50).unwrap();
    pair.pump();
    assert_eq!(outstanding(&pair), 1);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
}

/// ND2 2.7: a queue pair takes a receive of the shared queue for a Send that waits for one; the others
/// stay for the other queue pairs, however often it runs.
#[test]
fn a_wish_takes_one_receive_of_the_shared_queue() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    for context in 20..24 {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
    }
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Success)]);
    assert_eq!(pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding(), 3);
}

/// ND2 2.7, 4.9: bytes of the peer stand in it, so it belongs to the queue pair that ends.
#[test]
fn a_receive_of_the_shared_queue_that_is_half_filled_is_canceled_once() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 150_000], Rights::NONE);
    let inbox = p.register(vec![0; 150_000], Rights::LOCAL_WRITE);
    a.post(1, Operation::Send, Flags::NONE, &[source.all()]).unwrap();
    pair.pump(); // the peer wants a receive, and there is none
    for context in [20, 21] {
        pair.hosts[PASSIVE].post_receive(context, &[inbox.all()]).unwrap();
    }
    pair.stall(PASSIVE, true);
    pair.pump();
    pair.deliver(PASSIVE, pair.in_flight(PASSIVE) - 1);
    assert_eq!(pair.hosts[PASSIVE].arena.read(inbox.address, 1), Some(vec![1]));
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    pair.flush(PASSIVE);
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)]);
    assert_eq!(pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding(), 1);
}
