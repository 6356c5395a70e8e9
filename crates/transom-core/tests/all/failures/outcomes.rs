//! Failures, as each side sees them (ND2 4.5).

use std::collections::VecDeque;

use crate::support::Path;
use transom_memory::Segment;
use transom_wire::{Around, Buffer, Carrier, Direct, Frames, Room};

use super::table::Situation;
use super::*;

crate::support::again_over_process![
    nothing_behind_a_refused_message_is_executed_although_it_has_come,
    nd2_4_5_every_row,
    nd2_4_5_after_the_first_error_the_rest_is_canceled_in_order,
    a_refusal_leaves_a_record_on_both_sides,
    no_byte_of_a_refused_write_moves_between_transoms,
    no_byte_of_a_refused_read_moves,
    a_small_write_without_its_own_memory_fails_at_once
];

/// Bring a situation about. Returns the statuses of the initiator and of the receive concerned.
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
            pair.advance(QUIET);
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
        for outcome in table::rows(dialect) {
            for plain in [false, true] {
                if dialect.receive_wait.is_none() && outcome.situation == Situation::NoReceive {
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
                    // The peer is lost, or sees its own Disconnect.
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

/// A message that is refused ends the connection for those behind it that have come in the same bytes.
#[test]
fn nothing_behind_a_refused_message_is_executed_although_it_has_come() {
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
        let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
        pair.stall(PASSIVE, true);
        for (context, offset) in [(1, 1), (2, 0)] {
            let list = [source.all()];
            pair.post(ACTIVE, context, write(&target, offset), Flags::NONE, &list).unwrap();
        }
        pair.pump();
        pair.stall(PASSIVE, false);
        pair.pump();
        let placed = pair.hosts[PASSIVE].arena.read(target.address, 8).unwrap();
        assert_eq!(placed, [0; 8], "{}", dialect.name);
    });
    each(|mut pair, dialect| {
        let target = pair.hosts[PASSIVE].register(vec![0; 8], WRITABLE);
        let inbox = pair.hosts[PASSIVE].register(vec![0; 8], Rights::LOCAL_WRITE);
        let gone = pair.hosts[PASSIVE].register(vec![0; 8], Rights::LOCAL_WRITE);
        let source = pair.hosts[ACTIVE].register(vec![7; 8], Rights::NONE);
        for (context, buffer) in [(20, &gone), (21, &inbox)] {
            pair.hosts[PASSIVE].post_receive(context, &[buffer.all()]).unwrap();
        }
        pair.pump();
        let unless = Unless { windows: true, posted: false };
        pair.hosts[PASSIVE].memory.deregister(gone.token, unless, 0).unwrap();
        pair.stall(PASSIVE, true);
        for (context, operation) in
            [(1, Operation::Send), (2, write(&target, 0)), (3, Operation::Send)]
        {
            pair.post(ACTIVE, context, operation, Flags::NONE, &[source.all()]).unwrap();
        }
        pair.pump();
        pair.stall(PASSIVE, false);
        pair.pump();
        let host = &mut pair.hosts[PASSIVE];
        for buffer in [&inbox, &target] {
            assert_eq!(host.arena.read(buffer.address, 8).unwrap(), [0; 8], "{}", dialect.name);
        }
        let outcomes = host.outcomes();
        assert!(outcomes.iter().all(|(_, status)| !status.is_success()), "{outcomes:?}");
        assert_eq!(outcomes.first(), Some(&(20, Status::LocalAccess)), "{}", dialect.name);
    });
}

/// Two entries of a table for one thing are alike: a row's place is its situation's.
#[test]
fn nd2_4_5_rows_are_in_order() {
    for dialect in dialect::ALL {
        for (place, outcome) in table::rows(dialect).iter().enumerate() {
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

/// Design rule 3, ND2 5.3: between two Transoms a Write of many frames is judged as a whole, before its
/// first byte; a byte too many at its end, or a window that has closed, and none moves.
#[test]
fn no_byte_of_a_refused_write_moves_between_transoms() {
    for (dialect, closed) in dialect::ALL.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut pair = connected(dialect, Wires::transom());
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 200_000], Rights::NONE);
        let buffer = p.register(vec![0; 200_000], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let length = if closed { 200_000 } else { 199_999 };
        let window = p.bind(&buffer, 0, length, Rights::REMOTE_WRITE, request).unwrap();
        pair.pump();
        if closed {
            pair.hosts[PASSIVE].memory.close(window.token, None, 0).unwrap();
        }
        pair.hosts[ACTIVE].post(1, write(&window, 0), Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)], "{}", dialect.name);
        let bytes = p.arena.read(buffer.address, 200_000).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{}: {closed}", dialect.name);
    }
}

/// Of a plain peer: a legal prefix may stand, never the last byte.
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

/// Design rule 3, ND2 5.3: a Read is judged as a whole, before the first byte of its answer.
#[test]
fn no_byte_of_a_refused_read_moves() {
    each(|mut pair, dialect| {
        let [a, p] = &mut pair.hosts;
        let sink = a.register(vec![0; 150_000], Rights::LOCAL_WRITE);
        let buffer = p.register(vec![1; 150_000], Rights::LOCAL_WRITE);
        let request = Request { context: 9, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&buffer, 0, 149_999, Rights::REMOTE_READ, request).unwrap();
        pair.pump();
        pair.hosts[ACTIVE].post(1, read(&window, 0), Flags::NONE, &[sink.all()]).unwrap();
        pair.pump();
        let a = &mut pair.hosts[ACTIVE];
        assert_eq!(a.outcomes(), [(1, Status::RemoteAccess)], "{}", dialect.name);
        let bytes = a.arena.read(sink.address, 150_000).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{}", dialect.name);
        assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Refused), "{}", dialect.name);
    });
}

/// A link that carries frames one by one.
#[derive(Default)]
struct Small {
    buffer: Buffer,
    frames: VecDeque<Vec<u8>>,
}

impl Frames for Small {
    fn next(&mut self) -> Option<&[u8]> {
        self.frames.front().map(Vec::as_slice)
    }

    fn taken(&mut self, bytes: usize) {
        assert_eq!(self.frames.pop_front().map(|frame| frame.len()), Some(bytes));
    }
}

impl Carrier for Small {
    fn room(&self) -> usize {
        1 << 16
    }

    fn takes(&self, length: usize) -> bool {
        length <= 32
    }

    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        self.buffer.reserve(around, length)
    }

    fn put(&mut self, payload: &[u8]) {
        self.buffer.put(payload);
    }

    fn frame(&mut self) -> &mut [u8] {
        self.buffer.frame()
    }

    fn commit(&mut self) {
        self.buffer.commit();
        self.frames.push_back(std::mem::take(&mut self.buffer.bytes));
    }

    fn release(&mut self) {
        self.buffer.release();
    }

    fn wants_lend(&self, length: usize) -> bool {
        self.buffer.wants_lend(length)
    }

    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        self.buffer.lend(header, payload, trailer)
    }

    fn wants_sink(&self, length: u64) -> bool {
        self.buffer.wants_sink(length)
    }

    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool {
        self.buffer.lend_sink(header, sink)
    }
}

/// Design rule 3, ND2 4.5: a small Write that is taken from its place is judged as any other: bytes
/// outside the window are not placed, and both sides get the refusal.
#[test]
fn a_small_write_that_is_refused_ends_the_connection() {
    Path::Process.over(|| {
        let mut pair = connected(&dialect::ND2, Wires::transom());
        let [a, p] = &mut pair.hosts;
        let source = a.register(vec![1; 8], Rights::NONE);
        let target = p.register(vec![0; 12], WRITABLE);
        for (context, at) in [(1, 0), (2, 5), (3, 0)] {
            a.post(context, write(&target, at), Flags::NONE, &[source.all()]).unwrap();
        }
        let mut out = Small::default();
        a.transmit(pair.now, &mut out);
        assert_eq!(out.frames.len(), 3);
        p.with(pair.now, |_, link, _, cx| {
            link.unwrap().receive_frames(cx, &mut out);
        });
        assert_eq!(out.frames.len(), 0, "what is behind it is thrown away");
        let placed = [[1; 8].as_slice(), &[0; 4]].concat();
        assert_eq!(p.arena.read(target.address, 12), Some(placed));
        assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Refused));
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        let refused = (2, Status::RemoteAccess);
        assert_eq!(outcomes, [(1, Status::Success), refused, (3, Status::Canceled)]);
    });
}

/// ND2 4.5: what this side refuses fails in the pass that finds it, though the peer says nothing.
#[test]
fn a_small_write_without_its_own_memory_fails_at_once() {
    let mut pair = connected(&dialect::ND2, Wires::transom());
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 8], Rights::NONE);
    let target = p.register(vec![0; 64], WRITABLE);
    a.post(1, write(&target, 0), Flags::NONE, &[source.sge(1, 8)]).unwrap();
    a.transmit(pair.now, &mut Small::default());
    assert_eq!(a.outcomes(), [(1, Status::LocalAccess)]);
    assert_eq!(ended(&pair, ACTIVE), Some(EndReason::RequestFailed));
}
