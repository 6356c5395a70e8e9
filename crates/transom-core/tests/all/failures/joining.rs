//! Connections that are made without queue pairs, which join them later (Verbs V129).

use super::verbs::{OK, READS, send, verbs};
use super::*;

crate::support::again_over_process![
    v129_a_queue_pair_joins_a_connection_that_was_made_without_one,
    v129_bytes_in_front_of_the_queue_pair_are_kept_up_to_a_limit,
    v129_a_connection_without_a_queue_pair_carries_nothing_but_its_end,
    v129_a_connection_is_joined_once_and_in_some_states_only
];

/// Two hosts whose connection was made without queue pairs, as far as the table lets it be made.
fn alone(private: &[u8]) -> Pair {
    let mut pair = verbs();
    pair.alone = [true; 2];
    pair.listen();
    pair.take_request(1).unwrap();
    pair.connect(2, READS, private).unwrap();
    pair
}

#[test]
fn v129_a_queue_pair_joins_a_connection_that_was_made_without_one() {
    // Before the active side completes, behind it, and when the peer has sent something already.
    for (early, late) in [(true, false), (false, false), (false, true)] {
        let mut pair = alone(b"");
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
        let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
        // In front of the Sends, which wait for the peer's leave.
        let list = [source.all()];
        pair.post(ACTIVE, 5, write(&target, 0), Flags::NONE, &list).unwrap();
        for host in 0..2 {
            pair.hosts[host].post_receive(20, &[]).unwrap();
            send(&mut pair, host, 1);
        }
        pair.accept(3, READS, b"").unwrap();
        if early {
            pair.join(ACTIVE).unwrap();
            pair.join(PASSIVE).unwrap();
        }
        pair.complete().unwrap();
        if !early {
            pair.join(ACTIVE).unwrap();
            if late {
                pair.advance(Duration::from_secs(1));
            }
            assert_eq!(pair.hosts[PASSIVE].arena.read(target.address, 8).unwrap(), [0; 8]);
            pair.join(PASSIVE).unwrap();
            assert_eq!(pair.hosts[PASSIVE].arena.read(target.address, 8).unwrap(), [7; 8]);
        }
        pair.pump();
        for host in 0..2 {
            assert_eq!(pair.hosts[host].queue_pair.state(), QueuePairState::Connected);
            let mut outcomes = pair.hosts[host].outcomes();
            outcomes.retain(|outcome| outcome.0 != 5);
            outcomes.sort_by_key(|outcome| outcome.0);
            assert_eq!(outcomes, [(1, OK), (20, OK)], "early {early}, late {late}, host {host}");
        }
    }
}

/// 64 KiB wait; no more are read then, until there is a queue pair.
#[test]
fn v129_bytes_in_front_of_the_queue_pair_are_kept_up_to_a_limit() {
    const MOST: usize = 64 * 1024;
    let mut pair = alone(b"");
    let target = pair.hosts[PASSIVE].register(vec![0; 2 * MOST], WRITABLE);
    let source = pair.hosts[ACTIVE].register(vec![7; 2 * MOST], Rights::NONE);
    pair.accept(3, READS, b"").unwrap();
    pair.complete().unwrap();
    pair.join(ACTIVE).unwrap();
    pair.stall(PASSIVE, true);
    let list = [source.all()];
    pair.post(ACTIVE, 1, write(&target, 0), Flags::NONE, &list).unwrap();
    pair.pump();
    let reads = |pair: &Pair| pair.hosts[PASSIVE].connection.as_ref().unwrap().wants_read();
    pair.deliver(PASSIVE, MOST - 1 - pair.unread(PASSIVE));
    assert!(reads(&pair));
    pair.deliver(PASSIVE, 1);
    assert!(!reads(&pair), "as many as may wait");
    pair.stall(PASSIVE, false);
    pair.join(PASSIVE).unwrap();
    assert!(reads(&pair));
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, OK)]);
    let arrived = pair.hosts[PASSIVE].arena.read(target.address, 2 * MOST).unwrap();
    assert_eq!(arrived, vec![7; 2 * MOST]);
}

#[test]
fn v129_a_connection_without_a_queue_pair_carries_nothing_but_its_end() {
    for leaver in [ACTIVE, PASSIVE] {
        let mut pair = alone(b"hello");
        assert_eq!(pair.hosts[PASSIVE].connector.private_data(), Ok(&b"hello"[..]));
        pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        pair.accept(3, READS, b"welcome").unwrap();
        pair.complete().unwrap();
        assert_eq!(pair.hosts[PASSIVE].finished(3), Some(OK));
        assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Idle);
        pair.notify_disconnect(1 - leaver, 50).unwrap();
        pair.advance(Duration::from_secs(3600));
        assert_eq!(pair.hosts[1 - leaver].finished(50), None);
        pair.disconnect(leaver, 51).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[1 - leaver].finished(50), Some(OK));
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    }
}

#[test]
fn v129_a_connection_is_joined_once_and_in_some_states_only() {
    let mut pair = alone(b"");
    let invalid = Err(Status::ConnectionInvalid);
    assert_eq!([pair.join(ACTIVE), pair.join(PASSIVE)], [invalid, invalid]);
    pair.accept(3, READS, b"").unwrap();
    pair.join(PASSIVE).unwrap();
    let active = Err(Status::ConnectionActive);
    assert_eq!(pair.join(PASSIVE), active);
    // A queue pair in error.
    pair.flush(ACTIVE);
    assert_eq!(pair.join(ACTIVE), Err(Status::InvalidState));
    pair.reset(ACTIVE).unwrap();
    pair.kill(PASSIVE);
    pair.pump();
    assert_eq!(pair.join(ACTIVE), invalid);
    assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Idle);
}
