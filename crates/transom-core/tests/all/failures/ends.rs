//! Disconnect and flush (ND2 4.9).

use super::*;
use transom_core::LinkWish;

crate::support::again_over_process![
    nd2_4_9_local_disconnect_cancels_what_is_not_acknowledged,
    n10_a_flush_is_one_batch
];

/// ND2 4.9: acknowledged requests have succeeded, the rest are canceled, in one batch; nothing is
/// touched afterwards.
#[test]
fn nd2_4_9_local_disconnect_cancels_what_is_not_acknowledged() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
        let a = &mut pair.hosts[ACTIVE];
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        a.post_receive(30, &[]).unwrap();
        a.post(1, write(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        pair.pump();
        pair.stall(ACTIVE, true);
        pair.hosts[ACTIVE].post(2, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        pair.pump();
        pair.disconnect(ACTIVE, 50).unwrap();
        let canceled = Status::Canceled;
        let a = &mut pair.hosts[ACTIVE];
        assert_eq!(a.outcomes(), [(1, Status::Success), (2, canceled), (30, canceled)]);
        pair.stall(ACTIVE, false);
        pair.pump();
        let a = &mut pair.hosts[ACTIVE];
        assert_eq!(a.arena.read(memory.address, 64).unwrap(), vec![0; 64], "{}", dialect.name);
        assert_eq!(a.outcomes(), []);
    });
}

/// iW 9.9: siw aborts what it has posted when the connection is closed, so a close behind the last Send
/// waits until the peer is quiet, or has closed itself; and no peer makes it wait for long. A Transom
/// needs none of that.
#[test]
fn a_plain_peer_may_finish_before_an_orderly_close() {
    const STEP: Duration = Duration::from_millis(40);
    for dialect in dialect::ALL {
        let last_words = |wires| {
            let mut pair = connected(dialect, wires);
            pair.hosts[ACTIVE].post_receive(20, &[]).unwrap();
            pair.hosts[PASSIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
            pair.pump();
            pair.disconnect(PASSIVE, 50).unwrap();
            pair.pump();
            pair
        };
        assert!(ended(&last_words(Wires::transom()), ACTIVE).is_some(), "{}", dialect.name);

        // Each message of the peer's buys it more time, up to 250 ms.
        let mut pair = last_words(Wires::plain());
        for context in 0..6 {
            pair.advance(STEP);
            assert_eq!(ended(&pair, ACTIVE), None, "{}, {context}", dialect.name);
            let a = &mut pair.hosts[ACTIVE];
            a.post(context, Operation::Send, Flags::NONE, &[]).unwrap();
            pair.pump();
            let succeeded = (context, Status::Success);
            assert!(pair.hosts[ACTIVE].outcomes().contains(&succeeded), "{}", dialect.name);
        }
        pair.advance(Duration::from_millis(9));
        assert_eq!(ended(&pair, ACTIVE), None, "{}", dialect.name);
        pair.advance(Duration::from_millis(1));
        assert_eq!(ended(&pair, ACTIVE), Some(EndReason::PeerDisconnected), "{}", dialect.name);

        // A quiet one has 50 ms, and one that closes itself is answered at once.
        let mut pair = last_words(Wires::plain());
        pair.advance(QUIET - Duration::from_nanos(1));
        assert_eq!(ended(&pair, ACTIVE), None, "{}", dialect.name);
        pair.advance(Duration::from_nanos(1));
        assert_eq!(ended(&pair, ACTIVE), Some(EndReason::PeerDisconnected), "{}", dialect.name);
        let mut pair = last_words(Wires::plain());
        pair.kill(ACTIVE);
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].connection.as_ref().unwrap().link_wish(), LinkWish::Close);
    }
}

/// A plain peer does not answer the Read behind a Write. If it closes in order, and has taken
/// everything, the Write succeeds; after any other end, it does not. A Transom acknowledges instead.
#[test]
fn an_orderly_close_of_a_plain_peer_settles_its_writes() {
    use transom_core::LinkEnd;
    for (plain, how, status) in [
        (true, LinkEnd::Finished, Status::Success),
        (true, LinkEnd::Closed, Status::Canceled),
        (true, LinkEnd::TimedOut, Status::IoTimeout),
        (false, LinkEnd::Finished, Status::Canceled),
    ] {
        for dialect in dialect::ALL {
            let wires = if plain { Wires::plain() } else { Wires::transom() };
            let mut pair = connected(dialect, wires);
            let target = pair.hosts[PASSIVE].register(vec![0; 64], WRITABLE);
            pair.stall(PASSIVE, true);
            let a = &mut pair.hosts[ACTIVE];
            let memory = a.register(vec![1; 64], Rights::NONE);
            a.post(1, write(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
            pair.pump();
            let now = pair.now;
            let a = &mut pair.hosts[ACTIVE];
            assert_eq!(a.outcomes(), [], "nothing is known yet");
            a.with(now, |_, link, _, cx| link.unwrap().link_closed(cx, how));
            // Some dialects leave what is canceled to the program.
            let kept = status == Status::Canceled && dialect.peer_gone != PeerGone::Flush;
            let expected = match status {
                _ if kept => vec![],
                Status::IoTimeout => vec![(1, table::peer_lost(dialect))],
                status => vec![(1, status)],
            };
            assert_eq!(a.outcomes(), expected, "{}, plain: {plain}, {how:?}", dialect.name);
        }
    }
}

/// ND2 N10 on the way through the engine: a flush is one batch, each queue's entries in posting
/// order, and the notification fires once, behind all of them. The peer's disconnect and the
/// program's own flush are alike in this.
#[test]
fn n10_a_flush_is_one_batch() {
    for by_peer in [true, false] {
        let mut pair = Pair::connected(&dialect::ND2);
        pair.stall(ACTIVE, true); // no Read is answered
        let target = pair.hosts[ACTIVE].register(vec![7; 64], Rights::REMOTE_READ);
        let p = &mut pair.hosts[PASSIVE];
        let memory = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        for context in 0..3 {
            p.post_receive(context, &[]).unwrap();
            p.post(10 + context, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        }
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        p.cq.notify(transom_core::NotifyKind::Any, 70, &mut Vec::new());
        p.seen.clear();
        if by_peer {
            pair.disconnect(ACTIVE, 50).unwrap();
            pair.pump();
        } else {
            pair.flush(PASSIVE);
        }
        let seen = pair.hosts[PASSIVE].seen.iter().filter_map(|seen| match seen {
            Seen::Completion(_, c) => Some((c.request_context, c.status)),
            Seen::Fired(one) => Some((one.waiter, one.status)),
            _ => None,
        });
        let mut seen: Vec<_> = seen.collect();
        assert_eq!(seen.pop(), Some((70, Status::Success)), "by the peer: {by_peer}");
        let (requests, receives): (Vec<_>, Vec<_>) = seen.into_iter().partition(|one| one.0 >= 10);
        let canceled = |first: u64| [0, 1, 2].map(|nth| (first + nth, Status::Canceled));
        assert_eq!(requests, canceled(10), "by the peer: {by_peer}");
        assert_eq!(receives, canceled(0), "by the peer: {by_peer}");
    }
}

/// ND1 11.3: what is posted behind the peer's disconnect is kept until the program disconnects too, and is
/// not executed meanwhile: a window that is bound there would let others of its domain in.
#[test]
fn nd1_what_is_posted_behind_the_end_is_kept_and_not_executed() {
    for wires in [Wires::transom(), Wires::plain()] {
        let mut pair = connected(&dialect::ND1, wires);
        pair.disconnect(ACTIVE, 50).unwrap();
        pair.advance(QUIET);
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let window = domain_window(p, &buffer);
        p.post(1, Operation::Bind { window }, Flags::NONE, &[]).unwrap();
        p.post(2, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        pair.disconnect(PASSIVE, 51).unwrap();
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.outcomes(), [(1, Status::Canceled), (2, Status::Canceled)]);
        assert_eq!(p.memory.counts(buffer.token).unwrap().windows, 0);
    }
}
