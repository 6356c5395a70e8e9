//! What goes wrong, and what each side sees: ND2 4.1, 4.5, 4.9; iW 14 where the engine decides.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use transom_core::dialect::{self, DeadWindow, Dialect, Places};
use transom_core::tables::{Posting, Situation};
use transom_core::testing::{ACTIVE, Buffer, PASSIVE, Pair, PairConfig, Seen, Wires};
use transom_core::{
    CompletionFlags, ConnectionEvent, Data, DenialCause, EndReason, Flags, Operation,
    QueuePairState, Request, Sge, Status,
};
use transom_memory::{Rights, Rule, Unless};

transom_core::again_over_process![
    nd2_4_1_what_may_be_posted_when,
    nd2_4_1_flush_of_an_idle_queue_pair,
    nd2_2_9_inline_failures_leave_the_queue_pair_usable,
    nd2_4_5_every_row,
    nd2_4_5_after_the_first_error_the_rest_is_canceled_in_order,
    a_refusal_leaves_a_record_on_both_sides,
    no_byte_of_a_refused_write_moves_between_transoms,
    a_window_closes_under_a_write_that_is_stalled_in_the_middle_of_a_frame,
    vanished_pages_fail_the_request_that_needs_them,
    nd2_w20_windows_close_with_the_connection,
    the_token_of_a_flushed_bind_never_lives,
    nd2_4_5_a_silent_peer_is_noticed,
    a_peer_that_trickles_is_not_silent,
    nd2_c42_a_send_waits_for_its_receive,
    nd2_2_7_an_empty_shared_queue_never_fails_a_send,
    nd2_4_3_a_fence_waits_for_earlier_reads,
    nd2_4_8_reads_above_the_limit_wait,
    nd2_4_8_a_read_against_a_limit_of_none_is_an_invalid_request,
    nd2_2_9_inline_bytes_are_captured_by_the_call,
    send_with_invalidate_closes_a_window_of_this_peer_only,
    nd2_4_9_local_disconnect_cancels_what_is_not_acknowledged,
    n10_a_flush_is_one_batch,
    iw_14_4_tokens_that_grant_nothing,
    iw_14_5_answers_are_made_as_the_link_takes_them,
    iw_14_5_last_words_nobody_reads_are_given_up,
    a_bad_list_does_not_take_earlier_requests_with_it,
    nd2_4_9_no_answer_goes_on_behind_a_disconnect,
    a_granted_receive_goes_back_to_the_shared_queue,
];

const WRITABLE: Rights = Rights(Rights::REMOTE_WRITE.0 | Rights::LOCAL_WRITE.0);

fn connected(dialect: &'static Dialect, wires: Wires) -> Pair {
    let mut pair = Pair::connected_with(PairConfig { wires, ..PairConfig::new(dialect) });
    pair.advance(Duration::from_millis(20)); // iW 18 L1
    pair
}

/// Every dialect, and both kinds of peer.
fn each(test: impl Fn(Pair, &'static Dialect)) {
    for dialect in dialect::ALL {
        for wires in [Wires::transom(), Wires::plain()] {
            test(connected(dialect, wires), dialect);
        }
    }
}

fn write(target: &Buffer, offset: u64) -> Operation {
    Operation::Write { token: target.token.0, address: target.address.wrapping_add(offset) }
}

fn read(target: &Buffer, offset: u64) -> Operation {
    Operation::Read { token: target.token.0, address: target.address.wrapping_add(offset) }
}

fn ended(pair: &Pair, host: usize) -> Option<EndReason> {
    pair.hosts[host].seen.iter().find_map(|seen| match seen {
        Seen::Event(ConnectionEvent::Ended(end)) => Some(end.reason),
        _ => None,
    })
}

// ---- 4.1 --------------------------------------------------------------------------------------

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
    let reserved = Operation::Atomic { token: 0, address: 0 };
    assert_eq!(host.post(1, reserved, Flags::NONE, &[]), Err(Status::NotSupported));
    for context in 0..u64::from(host.config.depth) {
        host.post_receive(context, &[]).unwrap();
    }
    assert_eq!(host.post_receive(99, &[]), Err(Status::NoMoreEntries));
    assert_eq!(host.queue_pair.outstanding(), (0, host.config.depth));
}

// ---- 4.5 --------------------------------------------------------------------------------------

/// Bring a situation about. What the initiator is told, and what the receive concerned is told.
fn situation(pair: &mut Pair, situation: Situation) -> (Vec<Status>, Option<Status>) {
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 64], Rights::NONE);
    let target = p.register(vec![0; 64], Rights::LOCAL_WRITE); // no remote right
    let inbox = p.register(vec![0; 8], Rights::LOCAL_WRITE);
    let mut at_peer = Some(20);
    match situation {
        Situation::LocalList => {
            p.post_receive(20, &[]).unwrap();
            a.post(1, write(&target, 0), Flags::NONE, &[source.sge(24, 41)]).unwrap();
        }
        Situation::RemoteGrant => {
            p.post_receive(20, &[]).unwrap();
            a.post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        }
        Situation::ReceiveTooSmall => {
            p.post_receive(20, &[inbox.all()]).unwrap();
            a.post(1, Operation::Send, Flags::NONE, &[source.sge(0, 9)]).unwrap();
        }
        Situation::NoReceive | Situation::EmptySharedQueue => {
            at_peer = None;
            a.post(1, Operation::Send, Flags::NONE, &[source.all()]).unwrap();
            pair.advance(Duration::from_secs(4)); // "clearly under 5 s"
        }
        Situation::PeerLost => {
            at_peer = None;
            a.post(1, read(&target, 0), Flags::NONE, &[]).unwrap();
            pair.stall(PASSIVE, true);
            pair.stall(ACTIVE, true);
            let silence = pair.hosts[ACTIVE].config.dialect.silence;
            pair.advance(silence - Duration::from_millis(1));
            assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
            pair.advance(Duration::from_millis(2));
        }
        Situation::PeerDisconnects => {
            p.post_receive(20, &[]).unwrap();
            a.post(1, read(&target, 0), Flags::NONE, &[]).unwrap();
            pair.stall(PASSIVE, true);
            pair.disconnect(PASSIVE, 50).unwrap();
        }
        Situation::PeerFails => {
            p.post_receive(20, &[]).unwrap();
            a.post(1, read(&target, 0), Flags::NONE, &[]).unwrap();
            pair.stall(PASSIVE, true);
            pair.pump();
            let now = pair.now;
            pair.hosts[PASSIVE]
                .with(now, |_, link, _, cx| link.unwrap().fail(cx, EndReason::Overrun));
        }
        Situation::MalformedRequest => {
            p.post_receive(20, &[]).unwrap();
            let unbound = Operation::Invalidate { window: transom_memory::Token(0x123) };
            a.post(1, unbound, Flags::NONE, &[]).unwrap();
        }
        Situation::BadReceive => {
            let short = Sge { length: 64, ..inbox.all() };
            p.post_receive(20, &[short]).unwrap();
            a.post(1, Operation::Send, Flags::NONE, &[source.all()]).unwrap();
        }
        Situation::OwnOverrun => {
            p.post_receive(20, &[]).unwrap();
            let now = pair.now;
            pair.hosts[ACTIVE]
                .with(now, |_, link, _, cx| link.unwrap().fail(cx, EndReason::Overrun));
        }
    }
    pair.pump();
    let initiator = pair.hosts[ACTIVE].completions().iter().map(|c| c.status).collect();
    let receive = pair.hosts[PASSIVE].completions();
    let receive = at_peer.and_then(|at| receive.iter().find(|c| c.request_context == at));
    (initiator, receive.map(|c| c.status))
}

#[test]
fn nd2_4_5_every_row() {
    for dialect in dialect::ALL {
        for outcome in dialect.outcomes {
            for plain in [false, true] {
                if plain
                    && dialect.receive_wait.is_none()
                    && outcome.situation == Situation::NoReceive
                {
                    continue; // it waits for ever (WSD N-2)
                }
                let wires = if plain { Wires::plain() } else { Wires::transom() };
                let mut config = PairConfig { wires, ..PairConfig::new(dialect) };
                config.hosts[PASSIVE].shared = outcome.situation == Situation::EmptySharedQueue;
                let mut pair = Pair::connected_with(config);
                pair.advance(Duration::from_millis(20));
                for host in [ACTIVE, PASSIVE] {
                    pair.notify_disconnect(host, 70).unwrap();
                }
                let name = format!("{}, plain {plain}: {outcome:?}", dialect.name);
                let (initiator, receive) = situation(&mut pair, outcome.situation);
                let expected = if plain { outcome.plain } else { outcome.initiator };
                assert_eq!(initiator, expected.into_iter().collect::<Vec<_>>(), "{name}");
                assert_eq!(receive, outcome.receive, "{name}");
                let left = match outcome.situation {
                    // It is lost, or hears of its own Disconnect.
                    Situation::PeerLost | Situation::PeerDisconnects => vec![ACTIVE],
                    _ => vec![ACTIVE, PASSIVE],
                };
                for host in left {
                    let host = &pair.hosts[host];
                    let connected = host.queue_pair.state() == QueuePairState::Connected;
                    assert_eq!(connected, !outcome.fatal, "{name}");
                    let told = outcome.fatal.then_some(Status::Success);
                    assert_eq!(host.finished(70), told, "{name}: NotifyDisconnect");
                }
            }
        }
    }
}

/// What a table says twice it says alike: a row's place is its situation's.
#[test]
fn nd2_4_5_rows_are_in_order() {
    for dialect in dialect::ALL {
        for (place, outcome) in dialect.outcomes.iter().enumerate() {
            assert_eq!(outcome.situation as usize, place, "{}", dialect.name);
        }
    }
}

/// ND2 4.5, last sentence; 4.2 rule 1: the first error, then everything canceled, in order.
#[test]
fn nd2_4_5_after_the_first_error_the_rest_is_canceled_in_order() {
    each(|mut pair, dialect| {
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 64], Rights::NONE);
        let target = p.register(vec![0; 64], WRITABLE);
        a.post_receive(30, &[]).unwrap();
        a.post_receive(31, &[]).unwrap();
        a.post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        a.post(2, write(&target, 1000), Flags::NONE, &[source.all()]).unwrap(); // past the end
        a.post(3, write(&target, 0), Flags::SILENT_SUCCESS, &[source.all()]).unwrap();
        a.post(4, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        let (ok, canceled) = (Status::Success, Status::Canceled);
        assert_eq!(
            pair.hosts[ACTIVE].outcomes(),
            [
                (1, ok),
                (2, Status::RemoteAccess),
                (3, canceled),
                (4, canceled),
                (30, canceled),
                (31, canceled)
            ],
            "{}",
            dialect.name
        );
        assert_eq!(pair.hosts[ACTIVE].queue_pair.outstanding(), (0, 0));
    });
}

/// Design rule 4: the owner keeps all, the peer learns the class, more only if the owner says so.
#[test]
fn a_refusal_leaves_a_record_on_both_sides() {
    for explain in [false, true] {
        let mut config = PairConfig::new(&dialect::ND2);
        config.hosts[PASSIVE].explain = explain;
        let mut pair = Pair::connected_with(config);
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 64], Rights::NONE);
        let target = p.register(vec![0; 63], WRITABLE);
        a.post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        let completion = a.completions()[0];
        let log = a.denials.0.lock().unwrap();
        let DenialCause::ByPeer(error) = &log.get(completion.denial).unwrap().cause else {
            panic!("{log:?}");
        };
        assert_eq!(error.explanation.is_some(), explain);
        let log = p.denials.0.lock().unwrap();
        assert_eq!((log.total(), log.dropped()), (1, 0));
        let record = log.iter().next().unwrap().1;
        assert!(matches!(&record.cause, DenialCause::Peer(denial) if denial.rule == Rule::Bounds));
    }
}

/// Design rule 3: nothing of an announced Write moves when its last byte may not.
#[test]
fn no_byte_of_a_refused_write_moves_between_transoms() {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 300_001], Rights::NONE);
    let target = p.register(vec![0; 300_000], WRITABLE);
    a.post(1, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
    pair.pump();
    let [a, p] = &mut pair.hosts;
    assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)]);
    assert_eq!(p.arena.read(target.address, 300_000).unwrap(), vec![0; 300_000]);
}

/// The same from a plain peer: a legal prefix may stand, never the last byte.
#[test]
fn of_a_refused_write_of_a_plain_peer_no_byte_past_the_grant_moves() {
    let mut pair = connected(&dialect::ND2, Wires::plain());
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 300_000], Rights::NONE);
    let buffer = p.register(vec![0; 300_000], Rights::LOCAL_WRITE);
    let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
    let window = p.bind(&buffer, 0, 299_999, Rights::REMOTE_WRITE, request).unwrap();
    pair.pump();
    pair.hosts[ACTIVE].post(1, write(&window, 0), Flags::NONE, &[source.all()]).unwrap();
    pair.pump();
    let [a, p] = &mut pair.hosts;
    assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)]);
    assert_eq!(p.arena.read(buffer.address + 299_999, 1).unwrap(), [0]);
}

// ---- revocation and vanished pages --------------------------------------------------------------

/// ND2 W13, R18; iW G12, F10: a peer stalls in the middle of a frame; closing does not wait for it.
#[test]
fn a_window_closes_under_a_write_that_is_stalled_in_the_middle_of_a_frame() {
    each(|mut pair, dialect| {
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 200_000], Rights::NONE);
        let buffer = p.register(vec![0; 200_000], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 200_000, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        pair.stall(PASSIVE, true);
        pair.hosts[ACTIVE].post(1, write(&window, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        pair.deliver(PASSIVE, 100_000);
        let p = &mut pair.hosts[PASSIVE];
        p.memory.close(window.token, None, 0).unwrap();
        let unless = Unless { windows: true, posted: true, guards: false };
        p.memory.deregister(buffer.token, unless, 0).unwrap();
        let before = p.arena.read(buffer.address, 200_000).unwrap();
        assert!(before.contains(&0), "{}", dialect.name);
        pair.stall(PASSIVE, false);
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)], "{}", dialect.name);
        assert_eq!(p.arena.read(buffer.address, 200_000).unwrap(), before);
    });
}

/// Design rule 8: the check passes, the pages are gone; both processes live.
#[test]
fn vanished_pages_fail_the_request_that_needs_them() {
    type Case = fn(&mut Pair, [&Buffer; 2]);
    let cases: [(&str, Case, Option<Status>, Option<Status>); 5] = [
        (
            "Send source",
            |pair, [own, _]| {
                pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "Write source",
            |pair, [own, theirs]| {
                pair.hosts[ACTIVE].post(1, write(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "Read sink",
            |pair, [own, theirs]| {
                pair.hosts[ACTIVE].post(1, read(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::LocalAccess),
            Some(Status::Canceled),
        ),
        (
            "window of the peer, read",
            |pair, [own, theirs]| {
                let bytes = vec![0; own.length as usize];
                pair.hosts[ACTIVE].arena.insert(own.address, bytes);
                pair.hosts[PASSIVE].arena.vanish(theirs.address);
                pair.hosts[ACTIVE].post(1, read(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::RemoteError),
            Some(Status::Canceled),
        ),
        (
            "window of the peer, written",
            |pair, [own, theirs]| {
                let bytes = vec![0; own.length as usize];
                pair.hosts[ACTIVE].arena.insert(own.address, bytes);
                pair.hosts[PASSIVE].arena.vanish(theirs.address);
                pair.hosts[ACTIVE].post(1, write(theirs, 0), Flags::NONE, &[own.all()]).unwrap();
            },
            Some(Status::RemoteError),
            Some(Status::Canceled),
        ),
    ];
    for (name, case, initiator, receive) in cases {
        let mut pair = connected(&dialect::ND2, Wires::transom());
        let [a, p] = &mut pair.hosts;
        let own = a.register(vec![0; 5000], Rights::LOCAL_WRITE);
        let theirs = p.register(vec![0; 5000], WRITABLE | Rights::REMOTE_READ);
        p.post_receive(20, &[theirs.all()]).unwrap();
        a.arena.vanish(own.address);
        pair.pump();
        case(&mut pair, [&own, &theirs]);
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes.first().map(|o| o.1), initiator, "{name}");
        assert_eq!(pair.hosts[PASSIVE].outcomes().first().map(|o| o.1), receive, "{name}");
        let vanished = pair.hosts.iter().any(|host| {
            let log = host.denials.0.lock().unwrap();
            log.iter().any(|(_, r)| matches!(r.cause, DenialCause::Vanished { .. }))
        });
        assert!(vanished, "{name}");
    }
}

/// ND2 W20, C15: windows die with their queue pair, before anything completes.
#[test]
fn nd2_w20_windows_close_with_the_connection() {
    each(|mut pair, dialect| {
        let p = &mut pair.hosts[PASSIVE];
        let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        let unless = Unless { windows: true, posted: true, guards: false };
        let p = &mut pair.hosts[PASSIVE];
        assert!(p.memory.deregister(buffer.token, unless, 0).is_err(), "busy (ND2 R16)");
        pair.disconnect(ACTIVE, 50).unwrap();
        pair.pump();
        let p = &mut pair.hosts[PASSIVE];
        assert_eq!(p.memory.deregister(buffer.token, unless, 0), Ok(()), "{}", dialect.name);
    });
}

/// Design rule 6: a Bind that was flushed leaves nothing that lives.
#[test]
fn the_token_of_a_flushed_bind_never_lives() {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    pair.hosts[PASSIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap(); // waits for credit
    pair.pump();
    let p = &mut pair.hosts[PASSIVE];
    let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
    let request = Request { context: 2, operation: Operation::Receive, flags: Flags::NONE };
    let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
    pair.pump();
    pair.flush(PASSIVE);
    let p = &mut pair.hosts[PASSIVE];
    assert_eq!(p.outcomes(), [(1, Status::Canceled), (2, Status::Canceled)]);
    assert!(!p.memory.activate(window.token));
    assert_eq!(
        p.memory.deregister(buffer.token, Unless { windows: true, posted: true, guards: false }, 0),
        Ok(())
    );
}

// ---- timers -------------------------------------------------------------------------------------

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
        assert_eq!(a.outcomes(), [(1, Status::IoTimeout), (2, canceled), (30, canceled)]);
        assert_eq!(a.finished(50), Some(Status::Success));
    });
}

/// Life of any kind counts: an answer that trickles is no silence.
#[test]
fn a_peer_that_trickles_is_not_silent() {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    let target = pair.hosts[PASSIVE].register(vec![7; 64], WRITABLE | Rights::REMOTE_READ);
    let a = &mut pair.hosts[ACTIVE];
    let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    a.post(1, read(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    pair.stall(ACTIVE, true);
    pair.pump();
    while pair.in_flight(ACTIVE) > 0 {
        pair.advance(dialect::ND2.silence / 2);
        pair.deliver(ACTIVE, 8);
    }
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)]);
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

// ---- flags, fences, limits ------------------------------------------------------------------------

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

/// ND1 INV-2, T16; iW 8.4: the peer closes what this side, or the peer itself, has closed already.
#[test]
fn nd1_inv2_a_window_is_closed_once_where_the_dialect_says_so() {
    each(|mut pair, dialect| {
        let fatal = dialect.dead_window == DeadWindow::Fatal;
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

/// ND1 EP-8: where the dialect says so, a place is free only when its completion was retrieved; a
/// silent success frees it by itself.
#[test]
fn nd1_ep8_places_are_free_when_the_dialect_says_so() {
    each(|mut pair, dialect| {
        let kept = dialect.places == Places::UntilRetrieved;
        let depth = u64::from(pair.hosts[ACTIVE].config.depth);
        for context in 0..depth {
            pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
        }
        pair.pump();
        for context in 0..depth {
            pair.hosts[ACTIVE].post(context, Operation::Send, Flags::NONE, &[]).unwrap();
        }
        pair.pump();
        let full = if kept { Err(Status::NoMoreEntries) } else { Ok(()) };
        let again = pair.hosts[ACTIVE].post(depth, write_nothing(), Flags::NONE, &[]);
        assert_eq!(again, full, "{}", dialect.name);
        assert_eq!(pair.hosts[PASSIVE].post_receive(depth, &[]), full, "{}", dialect.name);
        pair.hosts[ACTIVE].completions();
        pair.hosts[PASSIVE].completions();
        pair.pump();
        pair.hosts[ACTIVE].completions();
        for context in 0..2 * depth {
            let silent = Flags::SILENT_SUCCESS;
            pair.hosts[ACTIVE].post(context, write_nothing(), silent, &[]).unwrap();
            pair.pump();
        }
        assert_eq!(pair.hosts[ACTIVE].outcomes(), []);
    });
}

fn write_nothing() -> Operation {
    Operation::Write { token: 0, address: 0 }
}

// ---- ends -----------------------------------------------------------------------------------------

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

/// N10 on the way through the engine: a flush is one batch, behind one firing.
#[test]
fn n10_a_flush_is_one_batch() {
    let mut pair = Pair::connected(&dialect::ND2);
    for context in 0..2 {
        pair.hosts[PASSIVE].post_receive(context, &[]).unwrap();
    }
    pair.pump();
    let p = &mut pair.hosts[PASSIVE];
    let mut fired = Vec::new();
    p.cq.notify(transom_core::NotifyKind::Any, 70, &mut fired);
    p.seen.clear();
    pair.disconnect(ACTIVE, 50).unwrap();
    pair.pump();
    let kinds: Vec<_> = pair.hosts[PASSIVE]
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Completion(..) => Some("entry"),
            Seen::Fired(_) => Some("fired"),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["entry", "entry", "fired"]);
}

// ---- hostile peers (iW 14), where the engine decides ----------------------------------------------

/// F1, F4, H3 and the like end one connection with a record; nothing completes but the flush.
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

/// G1, G3-G7, G13, G10 as a peer meets them: a refusal, and the connection is gone.
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

/// Q2: a peer that reads everything and never drains its link makes us hold one buffer, no more.
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
    let mut requests = transom_core::Buffer { bytes: Vec::new(), limit: 1 << 20 };
    pair.hosts[ACTIVE].transmit(now, &mut requests);
    pair.hosts[PASSIVE].receive(now, &requests.bytes);
    let mut out = transom_core::Buffer { bytes: Vec::new(), limit: 200_000 };
    for _ in 0..10 {
        pair.hosts[PASSIVE].transmit(now, &mut out);
    }
    assert!(out.bytes.len() < 200_000 + 65_536 + 100, "{}", out.bytes.len());
}

/// Q3: a peer that never reads what we have to say last does not keep the connection.
#[test]
fn iw_14_5_last_words_nobody_reads_are_given_up() {
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
        let mut request = transom_core::Buffer { bytes: Vec::new(), limit: 1 << 20 };
        pair.hosts[ACTIVE].transmit(now, &mut request);
        pair.hosts[PASSIVE].receive(now, &request.bytes);
        let mut out = transom_core::Buffer { bytes: Vec::new(), limit: 100_000 };
        pair.hosts[PASSIVE].transmit(now, &mut out);
        assert!(out.bytes.len() > 60_000);
        pair.hosts[PASSIVE].with(now, |c, link, _, cx| c.disconnect(cx, link, 50)).unwrap();
        let mut rest = transom_core::Buffer { bytes: Vec::new(), limit: 1 << 20 };
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
