//! Defects that the simulator has found (`transom-sim`, docs/reliability.md).

use transom_core::{Limits, LinkEnd};
use transom_memory::Token;
use transom_wire::Buffer as OutBuffer;

use super::*;

crate::support::again_over_process![
    a_bind_behind_the_end_leaves_its_region_free,
    a_connection_that_is_over_takes_no_shared_receive,
    a_peer_that_fails_by_itself_vouches_for_nothing,
    what_an_acknowledgement_ends_takes_nothing_from_the_frame_it_rode_on,
    a_limit_that_is_over_behind_the_end_fails_nothing_that_was_posted_since,
];

/// Design rule 6: a Bind that is canceled because nothing is connected leaves nothing that lives, and
/// its region is not busy with it (ND2 5.6).
#[test]
fn a_bind_behind_the_end_leaves_its_region_free() {
    let mut pair = Pair::new(PairConfig::new(&dialect::ND2));
    pair.flush(PASSIVE);
    let p = &mut pair.hosts[PASSIVE];
    let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
    let request = Request { context: 1, operation: Operation::Receive, flags: Flags::NONE };
    let window = p.bind(&buffer, 0, 64, Rights::REMOTE_WRITE, request).unwrap();
    p.post(2, Operation::Send, Flags::NONE, &[]).unwrap();
    assert_eq!(p.outcomes(), [(1, Status::Canceled), (2, Status::Canceled)]);
    assert!(!p.memory.activate(window.token));
    assert_eq!(p.memory.counts(buffer.token).unwrap().windows, 0);
}

/// A Bind that a peer's failure is blamed on, because it is the oldest: a window of the whole
/// domain does not end with its queue pair.
#[test]
fn a_bind_that_fails_instead_of_being_canceled_leaves_its_region_free() {
    let mut pair = Pair::connected(&dialect::ND2);
    let p = &mut pair.hosts[PASSIVE];
    let buffer = p.register(vec![0; 64], Rights::LOCAL_WRITE);
    let window = domain_window(p, &buffer);
    p.post(1, Operation::Bind { window }, Flags::NONE, &[]).unwrap(); // nothing has run yet
    pair.time_out(PASSIVE);
    let p = &mut pair.hosts[PASSIVE];
    assert_eq!(p.outcomes(), [(1, Status::IoTimeout)]);
    assert_eq!(p.memory.counts(buffer.token).unwrap().windows, 0);
}

/// ND2 2.7: receives belong to the shared queue; a connection that has ended takes none any more.
#[test]
fn a_connection_that_is_over_takes_no_shared_receive() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump(); // the peer wants a receive, and there is none
    pair.flush(PASSIVE);
    pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].shared.0.lock().unwrap().0.outstanding(), 1);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
}

/// A peer whose Send waits for a receive of a shared queue asks for it. The question is something to be
/// answered now, not when something else is to be sent; and once, that there is none, if the queue is empty: then
/// the connection is run when a receive is posted.
#[test]
fn a_peer_that_asks_for_credit_is_answered_at_once() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.hosts[PASSIVE].shared = true;
    let mut pair = Pair::connected_with(config);
    pair.pump();
    for (round, receives) in [(1, 1_usize), (2, 0)] {
        let now = pair.now;
        for _ in 0..receives {
            pair.hosts[PASSIVE].post_receive(20, &[]).unwrap();
        }
        pair.hosts[ACTIVE].post(round, Operation::Send, Flags::NONE, &[]).unwrap();
        let wants = |pair: &Pair| pair.hosts[PASSIVE].connection.as_ref().unwrap().wants_write();
        assert!(!wants(&pair), "not asked yet");
        let mut question = OutBuffer::new(1 << 16);
        pair.hosts[ACTIVE].transmit(now, &mut question);
        pair.hosts[PASSIVE].receive(now, &question.bytes);
        assert!(wants(&pair), "asked, with {receives} receives");
        let mut answer = OutBuffer::new(1 << 16);
        pair.hosts[PASSIVE].transmit(now, &mut answer);
        assert!(!answer.bytes.is_empty());
        assert!(!wants(&pair), "answered, with {receives} receives");
        pair.hosts[ACTIVE].receive(now, &answer.bytes);
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes().len(), receives);
    }
    pair.hosts[PASSIVE].post_receive(21, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, Status::Success)]);
}

/// RFC 5042 6.4.3.3: the read that says "ready" counts among those that are under way.
#[test]
fn a_read_behind_the_ready_frame_keeps_to_a_limit_of_one() {
    let mut config = PairConfig::new(&dialect::ND2);
    for host in &mut config.hosts {
        (host.caps.reads.inbound, host.caps.reads.outbound) = (1, 1);
    }
    let reads = config.hosts[ACTIVE].caps.reads;
    let mut pair = Pair::new(config);
    pair.listen();
    pair.take_request(1).unwrap();
    pair.connect(2, reads, &[]).unwrap();
    pair.accept(3, reads, &[]).unwrap();
    let now = pair.now;
    pair.hosts[ACTIVE].with(now, |c, link, _, cx| c.complete_connect(cx, link)).unwrap();
    let a = &mut pair.hosts[ACTIVE];
    a.post(1, Operation::Read { token: 0, address: 0 }, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success)]);
}

/// Between a Write's announcement and its first frame comes no answer to a read: the peer would have
/// to take it for a broken stream.
#[test]
fn no_answer_comes_between_an_announcement_and_its_write() {
    let mut config = PairConfig::new(&dialect::ND2);
    (config.wires.passive.largest_frame, config.window) = (256, 1); // a frame at a time
    let mut pair = Pair::connected_with(config);
    let [a, p] = &mut pair.hosts;
    let target = a.register(vec![0; 2000], WRITABLE);
    let source = p.register(vec![5; 2000], Rights::REMOTE_READ);
    let sink = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    for round in 0..8 {
        let [a, p] = &mut pair.hosts;
        for _ in 0..round {
            a.post(100, read(&source, 0), Flags::NONE, &[sink.all()]).unwrap();
        }
        p.post(round, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(round, Status::Success)]);
    }
}

/// ND2 4.5: a side whose own sink has gone fails its own Read; the peer's requests have touched
/// nothing.
#[test]
fn a_reader_without_sink_does_not_blame_the_peers_requests() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let source = p.register(vec![7; 64], Rights::REMOTE_READ);
    let sink = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    p.post(9, Operation::Send, Flags::NONE, &[]).unwrap(); // waits for a receive
    pair.pump();
    pair.stall(ACTIVE, true);
    pair.hosts[ACTIVE].post(1, read(&source, 0), Flags::NONE, &[sink.all()]).unwrap();
    pair.pump();
    pair.hosts[ACTIVE].memory.deregister(sink.token, Unless::default(), 0).unwrap();
    pair.stall(ACTIVE, false);
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::LocalAccess)]);
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(9, Status::RemoteError)]);
}

/// ND2 4.5: the Write that wraps around is the one that fails, not an earlier one that has succeeded.
#[test]
fn a_write_that_wraps_is_the_one_that_fails() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.wires.active.largest_frame = 256;
    let mut pair = Pair::connected_with(config);
    let [a, p] = &mut pair.hosts;
    let target = p.register(vec![0; 64], WRITABLE | Rights::REMOTE_READ);
    let memory = a.register(vec![0; 2000], Rights::LOCAL_WRITE);
    let wraps = Operation::Write { token: target.token.0, address: u64::MAX - 99 };
    a.post(1, read(&target, 0), Flags::NONE, &[memory.sge(0, 64)]).unwrap();
    a.post(2, write(&target, 0), Flags::NONE, &[memory.sge(0, 64)]).unwrap();
    a.post(3, wraps, Flags::NONE, &[memory.all()]).unwrap();
    pair.pump();
    let outcomes = pair.hosts[ACTIVE].outcomes();
    assert_eq!(outcomes.get(1..), Some(&[(2, Status::Success), (3, Status::RemoteAccess)][..]));
}

/// ND2 4.5: a peer whose completion queue ran over has not executed what it has not seen. How many reads
/// it has served says nothing about Sends.
#[test]
fn a_peer_that_fails_by_itself_vouches_for_nothing() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let source = p.register(vec![7; 64], Rights::REMOTE_READ);
    let sink = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    for context in 0..6 {
        a.post(context, read(&source, 0), Flags::NONE, &[sink.all()]).unwrap();
    }
    (0..10).for_each(|_| p.post_receive(20, &[]).unwrap());
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes().len(), 6);
    pair.stall(PASSIVE, true);
    for context in 10..20 {
        pair.hosts[ACTIVE].post(context, Operation::Send, Flags::NONE, &[]).unwrap();
    }
    pair.pump();
    let now = pair.now;
    pair.hosts[PASSIVE].with(now, |_, link, _, cx| link.unwrap().fail(cx, EndReason::Overrun));
    pair.pump();
    let outcomes = pair.hosts[ACTIVE].outcomes();
    assert_eq!(outcomes.first(), Some(&(10, Status::RemoteError)));
    assert!(outcomes[1..].iter().all(|(_, status)| *status == Status::Canceled), "{outcomes:?}");
}

/// ND2 4.5: a plain peer names a place, and two Writes went there, of which the first completed when it
/// was sent. What lies between them may not have been executed.
#[test]
fn a_refusal_that_may_mean_an_older_write_vouches_for_nothing_behind_it() {
    let mut config = PairConfig::new(&dialect::ND2);
    config.wires = Wires::plain();
    let mut pair = Pair::connected_with(config);
    let [a, p] = &mut pair.hosts;
    let [target, other] = [0, 0].map(|byte| p.register(vec![byte; 64], WRITABLE));
    let memory = a.register(vec![1; 64], Rights::LOCAL_WRITE);
    a.post(0, write(&other, 0), Flags::NONE, &[memory.all()]).unwrap();
    pair.advance(std::time::Duration::from_millis(20)); // iW L1
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(0, Status::Success)]);
    pair.hosts[PASSIVE].memory.deregister(target.token, Unless::default(), 0).unwrap();
    let a = &mut pair.hosts[ACTIVE];
    a.post(1, write(&target, 0), Flags::SILENT_SUCCESS, &[memory.all()]).unwrap();
    a.post(2, write(&other, 0), Flags::NONE, &[memory.all()]).unwrap();
    a.post(3, write(&target, 0), Flags::NONE, &[memory.all()]).unwrap();
    pair.pump();
    let outcomes = pair.hosts[ACTIVE].outcomes();
    assert_eq!(outcomes, [(2, Status::RemoteAccess), (3, Status::Canceled)]);
}

/// Design rules 2 and 5: an acknowledgement may end a connection, because a request that has failed is the
/// oldest now. The Write that it rode on is too late.
#[test]
fn what_an_acknowledgement_ends_takes_nothing_from_the_frame_it_rode_on() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let target = a.register(vec![0; 8], WRITABLE); // of the whole domain
    let source = p.register(vec![5; 8], Rights::LOCAL_WRITE);
    p.post_receive(20, &[]).unwrap();
    pair.pump();
    let (a, now) = (&mut pair.hosts[ACTIVE], pair.now);
    a.post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    a.post(2, Operation::Invalidate { window: Token(1) }, Flags::NONE, &[]).unwrap();
    let mut out = OutBuffer::new(1000);
    a.transmit(now, &mut out);
    pair.inject(PASSIVE, &out.bytes);
    pair.deliver(PASSIVE, usize::MAX);
    pair.hosts[PASSIVE].post(3, write(&target, 0), Flags::NONE, &[source.all()]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, Status::Success), (2, Status::InvalidRequest)]);
    assert_eq!(pair.hosts[ACTIVE].arena.read(target.address, 8), Some(vec![0; 8]));
    assert_ne!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Success), (3, Status::Success)]);
}

/// ND2 4.1, last rows: what was posted behind the end is canceled. A refusal that the end of the link brings
/// is about what came before.
#[test]
fn a_refusal_behind_the_end_blames_nothing_that_was_posted_since() {
    for dialect in [&dialect::ND2, &dialect::VERBS] {
        let mut pair = Pair::connected(dialect);
        let source = pair.hosts[ACTIVE].register(vec![5; 8], Rights::LOCAL_WRITE);
        let nowhere = Operation::Write { token: 1, address: 0 };
        let (a, now) = (&mut pair.hosts[ACTIVE], pair.now);
        a.post(1, nowhere, Flags::NONE, &[source.all()]).unwrap();
        let mut out = OutBuffer::new(1000);
        a.transmit(now, &mut out);
        pair.inject(PASSIVE, &out.bytes);
        pair.deliver(PASSIVE, usize::MAX);
        // The peer's word that it has refused arrives, and its Terminate behind that is spoilt.
        out.bytes.clear();
        pair.hosts[PASSIVE].transmit(now, &mut out);
        *out.bytes.last_mut().unwrap() ^= 1;
        pair.inject(ACTIVE, &out.bytes);
        pair.deliver(ACTIVE, usize::MAX);
        let a = &mut pair.hosts[ACTIVE];
        a.post(2, Operation::Send, Flags::NONE, &[]).unwrap();
        a.with(now, |_, connection, _, cx| connection.unwrap().link_closed(cx, LinkEnd::Closed));
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes, [(1, Status::Canceled), (2, Status::Canceled)], "{}", dialect.name);
    }
}

/// The first request's time is over behind the end: it waited for a receive of the peer's.
#[test]
fn a_limit_that_is_over_behind_the_end_fails_nothing_that_was_posted_since() {
    const LIMIT: Duration = Duration::from_secs(1);
    for dialect in [&dialect::ND2, &dialect::VERBS] {
        let mut pair = Pair::connected(dialect);
        let limits = Limits { receive: Some(LIMIT), ..Limits::default() };
        let a = &mut pair.hosts[ACTIVE];
        a.queue_pair.set_limits(limits);
        a.post(1, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        pair.stall(PASSIVE, true);
        pair.flush(ACTIVE);
        pair.now = pair.now.after(LIMIT);
        let (a, now) = (&mut pair.hosts[ACTIVE], pair.now);
        a.post(2, Operation::Send, Flags::NONE, &[]).unwrap();
        a.with(now, |_, connection, _, cx| connection.unwrap().on_deadline(cx));
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        assert_eq!(outcomes, [(1, Status::Canceled), (2, Status::Canceled)], "{}", dialect.name);
    }
}
