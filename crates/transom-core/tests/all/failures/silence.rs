//! Peers that say nothing, and receives that come too late.

use super::*;

crate::support::again_over_process![
    nd2_4_5_a_silent_peer_is_noticed,
    nd2_4_5_a_look_that_finds_nothing_is_no_sign_of_life,
    nd2_4_5_what_is_posted_meanwhile_gives_a_silent_peer_no_more_time,
    a_peer_that_trickles_is_not_silent,
    a_clock_that_jumps_by_hours_ends_no_connection,
    a_peer_that_is_gone_is_noticed_behind_a_jump_of_the_clock,
    a_refusal_is_sent_though_its_side_stood_still,
    nd2_c42_a_send_waits_for_its_receive,
    nd2_c42_a_receive_that_came_in_time_counts_though_it_is_noticed_late,
    nd2_2_7_an_empty_shared_queue_never_fails_a_send
];

/// ND2 4.5, "Peer process/host lost": the oldest times out, the rest are canceled, the notice fires.
#[test]
fn nd2_4_5_a_silent_peer_is_noticed() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![0; 64], WRITABLE | Rights::REMOTE_READ);
        let a = &mut pair.hosts[ACTIVE];
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        a.post_receive(30, &[]).unwrap();
        pair.notify_disconnect(ACTIVE, 50).unwrap();
        pair.advance(3 * dialect.silence);
        assert_eq!(ended(&pair, ACTIVE), None, "nothing is owed: silence is no sign");
        pair.stall(ACTIVE, true);
        pair.stall(PASSIVE, true);
        let a = &mut pair.hosts[ACTIVE];
        a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        a.post(2, write(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        a.seen.clear();
        pair.advance(dialect.silence - Duration::from_millis(1));
        assert_eq!(ended(&pair, ACTIVE), None);
        pair.advance(Duration::from_millis(1));
        assert_eq!(ended(&pair, ACTIVE), Some(EndReason::TimedOut), "{}", dialect.name);
        let a = &mut pair.hosts[ACTIVE];
        let canceled = Status::Canceled;
        let lost = table::peer_lost(dialect);
        assert_eq!(a.outcomes(), [(1, lost), (2, canceled), (30, canceled)]);
        assert_eq!(a.finished(50), Some(Status::Success));
    });
}

/// A connection whose active side has posted a Read, and receives what the test lets through.
fn that_reads() -> Pair {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
    let a = &mut pair.hosts[ACTIVE];
    let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    pair.stall(ACTIVE, true);
    pair
}

/// A driver looks for frames where there may be none, as it does at a ring.
#[test]
fn nd2_4_5_a_look_that_finds_nothing_is_no_sign_of_life() {
    let mut pair = that_reads();
    pair.advance(dialect::ND2.silence / 2);
    pair.deliver(ACTIVE, 0);
    pair.advance(dialect::ND2.silence / 2 - Duration::from_millis(1));
    assert_eq!(ended(&pair, ACTIVE), None);
    pair.advance(Duration::from_millis(1));
    assert_eq!(ended(&pair, ACTIVE), Some(EndReason::TimedOut));
}

/// The time runs from the first request that the peer owes an answer for, whatever follows it.
#[test]
fn nd2_4_5_what_is_posted_meanwhile_gives_a_silent_peer_no_more_time() {
    for wires in [Wires::transom(), Wires::plain()] {
        let mut pair = connected(&dialect::ND2, wires);
        let target = pair.hosts[PASSIVE].register(vec![0; 64], WRITABLE | Rights::REMOTE_READ);
        let memory = pair.hosts[ACTIVE].register(vec![0; 64], Rights::LOCAL_WRITE);
        let list = [memory.all()];
        pair.stall(ACTIVE, true);
        pair.stall(PASSIVE, true);
        pair.post(ACTIVE, 1, read(&target, 0), Flags::NONE, &list).unwrap();
        pair.pump();
        for context in 2..6 {
            pair.advance(dialect::ND2.silence / 5);
            pair.post(ACTIVE, context, write(&target, 0), Flags::NONE, &list).unwrap();
            pair.pump();
        }
        pair.advance(dialect::ND2.silence / 5 - Duration::from_millis(1));
        assert_eq!(ended(&pair, ACTIVE), None);
        pair.advance(Duration::from_millis(1));
        assert_eq!(ended(&pair, ACTIVE), Some(EndReason::TimedOut));
    }
}

/// Life of any kind counts: an answer that trickles is no silence.
#[test]
fn a_peer_that_trickles_is_not_silent() {
    let mut pair = that_reads();
    pair.pump();
    while pair.in_flight(ACTIVE) > 0 {
        pair.advance(dialect::ND2.silence / 2);
        pair.deliver(ACTIVE, 8);
    }
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)]);
}

/// The view of a process that was stopped, or whose machine was: the clock is hours ahead at once.
fn jump(pair: &mut Pair, by: Duration) {
    pair.now = pair.now.after(by);
    let now = pair.now;
    for host in &mut pair.hosts {
        host.with(now, |_, connection, _, cx| {
            if let Some(connection) = connection {
                connection.on_deadline(cx);
            }
        });
    }
}

/// ND2 4.5 is about peers that are silent, not about a side that did not listen: a side that stood
/// still gives its peer the whole time again. An idle connection notices nothing at all.
#[test]
fn a_clock_that_jumps_by_hours_ends_no_connection() {
    each(|mut pair, dialect| {
        let hours = Duration::from_secs(7 * 3600);
        jump(&mut pair, hours);
        pair.advance(hours);
        let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
        let a = &mut pair.hosts[ACTIVE];
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        a.post(2, write(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        pair.stall(ACTIVE, true);
        pair.pump();
        jump(&mut pair, hours);
        assert_eq!(ended(&pair, ACTIVE), None, "{}", dialect.name);
        pair.stall(ACTIVE, false);
        pair.pump();
        let ok = Status::Success;
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, ok), (2, ok)], "{}", dialect.name);
    });
}

/// And no longer than that: the time-out of a lost peer comes, counted from the jump.
#[test]
fn a_peer_that_is_gone_is_noticed_behind_a_jump_of_the_clock() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
        let a = &mut pair.hosts[ACTIVE];
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
        pair.stall(ACTIVE, true);
        pair.pump();
        jump(&mut pair, Duration::from_secs(7 * 3600));
        pair.advance(dialect.silence);
        assert_eq!(ended(&pair, ACTIVE), Some(EndReason::TimedOut), "{}", dialect.name);
        let lost = table::peer_lost(dialect);
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, lost)]);
    });
}

/// Design rule 4: a side that refuses, and then stands still, still sends the refusal. It gets the
/// time again that it takes a peer to read that, and no longer.
#[test]
fn a_refusal_is_sent_though_its_side_stood_still() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![0; 64], WRITABLE);
        let a = &mut pair.hosts[ACTIVE];
        let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
        a.post(1, write(&target, 8), Flags::NONE, &[memory.all()]).unwrap();
        pair.stall(PASSIVE, true);
        pair.pump();
        pair.stall(PASSIVE, false);
        pair.deliver(PASSIVE, usize::MAX);
        assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Refused), "{}", dialect.name);
        jump(&mut pair, Duration::from_secs(7 * 3600));
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::RemoteAccess)], "{}", dialect.name);
    });
}

/// ND2 C42: what waits for a receive goes on when there is one.
#[test]
fn nd2_c42_a_send_waits_for_its_receive() {
    each(|mut pair, dialect| {
        pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.advance(Duration::from_millis(900));
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Success)], "{}", dialect.name);
        pair.advance(Duration::from_secs(5));
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)]);
    });
}

/// ND2 C42: a side that stood still reads first what arrived in time; its own lateness costs no Send.
#[test]
fn nd2_c42_a_receive_that_came_in_time_counts_though_it_is_noticed_late() {
    each(|mut pair, dialect| {
        pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        pair.stall(ACTIVE, true);
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        pair.pump();
        pair.now = pair.now.after(Duration::from_secs(3));
        // The driver's acts at a deadline that is past: receive, keep time, send.
        pair.stall(ACTIVE, false);
        while pair.in_flight(ACTIVE) > 0 {
            pair.deliver(ACTIVE, usize::MAX);
        }
        jump(&mut pair, Duration::ZERO);
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Success)], "{}", dialect.name);
        pair.advance(Duration::from_secs(5));
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)], "{}", dialect.name);
    });
}

/// ND2 2.7: an empty shared queue never fails a Send, and serves it when a receive is posted.
#[test]
fn nd2_2_7_an_empty_shared_queue_never_fails_a_send() {
    for wires in [Wires::transom(), Wires::plain()] {
        let name = format!("extension {}", wires.active.extension);
        let mut config = PairConfig { wires, ..PairConfig::new(&dialect::ND2) };
        config.hosts[PASSIVE].shared = true;
        let mut pair = Pair::connected_with(config);
        for context in 1..4 {
            pair.hosts[ACTIVE].post(context, Operation::Send, Flags::NONE, &[]).unwrap();
        }
        pair.advance(Duration::from_secs(100));
        assert_eq!(ended(&pair, ACTIVE), None);
        for context in 20..23 {
            pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
            pair.advance(Duration::from_millis(1));
            let outcomes = pair.hosts[PASSIVE].outcomes();
            assert_eq!(outcomes, [(context, Status::Success)], "{name}");
        }
        let ok = Status::Success;
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, ok), (2, ok), (3, ok)]);
        // Unused receives stay with the queue.
        pair.hosts[PASSIVE].post_receive(30, &[]).unwrap();
        pair.pump();
        pair.disconnect(ACTIVE, 50).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        assert_eq!(pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding(), 1);
    }
}

/// ND2 2.7, 4.5: a side that does not read on, because a plain peer's Send waits for a receive of a
/// shared queue, gets no answer either. That is not the peer's silence, however long it takes.
#[test]
fn nd2_2_7_a_side_that_waits_for_a_receive_blames_no_peer_for_silence() {
    let mut config = PairConfig { wires: Wires::plain(), ..PairConfig::new(&dialect::ND2) };
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    let target = pair.hosts[ACTIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
    pair.hosts[PASSIVE].post_receive(19, &[]).unwrap();
    for context in [0, 1] {
        pair.hosts[ACTIVE].post(context, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.advance(Duration::from_millis(50));
    }
    let b = &mut pair.hosts[PASSIVE];
    assert_eq!(b.outcomes(), [(19, Status::Success)]);
    let memory = b.register(vec![0; 64], Rights::LOCAL_WRITE);
    b.post(2, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    for _ in 0..100 {
        pair.advance(Duration::from_millis(500));
    }
    assert_eq!((ended(&pair, PASSIVE), ended(&pair, ACTIVE)), (None, None));
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.advance(Duration::from_millis(1));
    let ok = Status::Success;
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, ok), (2, ok)]);
}
