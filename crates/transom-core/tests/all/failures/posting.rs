//! Posts in each state (ND2 4.1).

use super::*;

crate::support::again_over_process![
    nd2_4_1_what_may_be_posted_when,
    nd2_4_1_flush_of_an_idle_queue_pair,
    nd2_2_9_inline_failures_leave_the_queue_pair_usable
];

/// A queue pair of the active side in a state.
fn queue_pair_in(dialect: &'static Dialect, state: QueuePairState) -> Pair {
    let mut pair = Pair::new(PairConfig::new(dialect));
    let reads = pair.hosts[0].config.caps.reads;
    match state {
        QueuePairState::Idle => {}
        QueuePairState::Connecting | QueuePairState::Accepting => {
            pair.listen();
            pair.take_request(1).unwrap();
            pair.connect(2, reads, b"").unwrap();
            pair.accept(3, reads, b"").unwrap();
        }
        QueuePairState::Connected => pair.establish(),
        QueuePairState::Error => {
            pair.establish();
            pair.flush(ACTIVE);
            pair.pump();
        }
        QueuePairState::Disconnected => {
            pair.establish();
            pair.disconnect(ACTIVE, 9).unwrap();
            pair.pump();
        }
    }
    pair
}

#[test]
fn nd2_4_1_what_may_be_posted_when() {
    for dialect in dialect::ALL {
        for (column, state) in QueuePairState::ALL.into_iter().enumerate() {
            let host = if state == QueuePairState::Accepting { PASSIVE } else { ACTIVE };
            let kinds = [
                Operation::Send,
                Operation::Write { token: 0, address: 0 },
                Operation::Read { token: 0, address: 0 },
                Operation::Bind { window: transom_memory::Token(1) },
                Operation::Invalidate { window: transom_memory::Token(1) },
            ];
            for (row, kind) in [Operation::Receive].into_iter().chain(kinds).enumerate() {
                let mut pair = queue_pair_in(dialect, state);
                assert_eq!(pair.hosts[host].queue_pair.state(), state);
                let host = &mut pair.hosts[host];
                let (cell, result) = if row == 0 {
                    (dialect.posting.receive[column], host.post_receive(5, &[]))
                } else {
                    (dialect.posting.initiator[column], host.post(5, kind, Flags::NONE, &[]))
                };
                let name = format!("{}: {kind:?} in {state:?}", dialect.name);
                match cell {
                    Posting::Refuse(status) => assert_eq!(result, Err(status), "{name}"),
                    Posting::Accept => assert_eq!(result, Ok(()), "{name}"),
                    Posting::Cancel => {
                        assert_eq!(result, Ok(()), "{name}");
                        pair.pump();
                        let outcomes = pair.hosts[ACTIVE].outcomes();
                        assert_eq!(outcomes, [(5, Status::Canceled)], "{name}");
                    }
                }
            }
        }
    }
}

/// TEST:NdReceiveFlushQP: an idle queue pair, and posts behind the flush.
#[test]
fn nd2_4_1_flush_of_an_idle_queue_pair() {
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    for context in 1..3 {
        pair.hosts[ACTIVE].post_receive(context, &[]).unwrap();
    }
    pair.flush(ACTIVE);
    let canceled = Status::Canceled;
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, canceled), (2, canceled)]);
    pair.hosts[ACTIVE].post_receive(3, &[]).unwrap();
    pair.hosts[ACTIVE].post(4, Operation::Send, Flags::NONE, &[]).unwrap();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(3, canceled), (4, canceled)]);
}

/// ND2 2.9: inline failures, none of which changes anything.
#[test]
fn nd2_2_9_inline_failures_leave_the_queue_pair_usable() {
    let mut pair = Pair::connected(&dialect::ND2);
    let host = &mut pair.hosts[ACTIVE];
    let sge = Sge { token: 1, address: 0, length: 1 };
    let many = vec![sge; host.config.sge as usize + 1];
    let huge = [Sge { length: u32::MAX, ..sge }];
    assert_eq!(host.post(1, Operation::Send, Flags::NONE, &many), Err(Status::DataOverrun));
    assert_eq!(host.post(1, Operation::Send, Flags::NONE, &huge), Err(Status::BufferOverflow));
    assert_eq!(host.post_receive(1, &many), Err(Status::DataOverrun));
    assert_eq!(host.post_receive(1, &huge), Err(Status::BufferOverflow));
    let request = Request { context: 1, operation: Operation::Send, flags: Flags::NONE };
    let inline = host.queue_pair.post(&request, Data::Inline(&[0; 257]));
    assert_eq!(inline, Err(Status::BufferOverflow));
    let receive = host.post(1, Operation::Receive, Flags::NONE, &[]);
    assert_eq!(receive, Err(Status::NotSupported));
    for context in 0..u64::from(host.config.depth) {
        host.post_receive(context, &[]).unwrap();
    }
    assert_eq!(host.post_receive(99, &[]), Err(Status::NoMoreEntries));
    assert_eq!(host.queue_pair.outstanding(), (0, host.config.depth));
}
