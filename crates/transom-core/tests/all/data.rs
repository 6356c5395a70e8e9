//! Messages move, in order, and complete in order (ND2 4.2, 4.3).

#![allow(clippy::unwrap_used)]

use crate::support::{ACTIVE, DOMAIN, Host, PASSIVE, Pair, PairConfig, Seen, Wires};
use transom_core::{
    CompletionFlags, CompletionKind, Cx, Data, Denials as _, Flags, LinkWish, Operation,
    QueuePairState, Request, Sge, Side, Status, dialect,
};
use transom_memory::{Rights, Scope, Segment, Token};
use transom_wire::{Around, Buffer, Carrier, Direct, Room};

crate::support::again_over_process![
    send_write_and_read_move_bytes,
    messages_of_no_bytes_need_no_token,
    a_window_opens_and_closes_in_queue_order,
    a_region_gets_its_memory_and_loses_it_in_queue_order,
    a_region_that_cannot_have_this_memory_fails_the_request,
    memory_and_other_operations_do_not_mix,
    silent_success_makes_no_completion_and_frees_its_place,
    a_send_completes_before_what_the_peer_did_upon_it,
    receives_are_consumed_in_posting_order,
    a_write_is_placed_in_increasing_address_order,
    a_region_is_in_use_from_the_beginning_of_the_peers_message_to_its_end,
    a_send_waits_for_its_receive_without_limit_if_its_dialect_has_none,
    frames_leave_straight_from_memory_as_they_leave_by_a_copy,
    a_frame_whose_pages_are_gone_fails_its_request,
    an_answer_whose_pages_are_gone_fails_the_peers_read,
    inline_data_of_each_request_is_its_own,
    a_tracer_that_wants_frames_sees_all_of_them,
];

const RW: Rights = Rights(Rights::REMOTE_READ.0 | Rights::REMOTE_WRITE.0);

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Both kinds of peer, and bytes in lumps and in crumbs.
fn each(test: impl Fn(Pair)) {
    for wires in [Wires::transom(), Wires::plain()] {
        for chunk in [usize::MAX, 1000, 7] {
            let config = PairConfig { wires: wires.clone(), ..PairConfig::new(&dialect::ND2) };
            let mut pair = Pair::connected_with(config);
            assert_eq!(pair.hosts[ACTIVE].queue_pair.state(), QueuePairState::Connected);
            pair.advance(std::time::Duration::from_millis(20)); // iW L1
            assert_eq!(pair.hosts[PASSIVE].queue_pair.state(), QueuePairState::Connected);
            pair.set_chunk(chunk);
            test(pair);
        }
    }
}

/// WSD A-18: from the first frame of a Write to its last, and until the whole answer to a Read has left.
#[test]
fn a_region_is_in_use_from_the_beginning_of_the_peers_message_to_its_end() {
    const LENGTH: usize = 3 << 20; // more than may be under way
    for wires in [Wires::transom(), Wires::plain()] {
        let mut pair = Pair::connected_with(PairConfig { wires, ..PairConfig::new(&dialect::WSD) });
        pair.advance(std::time::Duration::from_millis(20)); // iW L1
        let [a, p] = &mut pair.hosts;
        let source = a.register(bytes(LENGTH, 1), Rights::LOCAL_WRITE);
        let regions = [0, 1].map(|_| p.register(vec![0; LENGTH], RW | Rights::LOCAL_WRITE));
        let uses = |pair: &Pair| {
            let connection = pair.hosts[PASSIVE].connection.as_ref().unwrap();
            regions.each_ref().map(|region| connection.is_executing(region.token))
        };
        let (token, address) = (regions[0].token.0, regions[0].address);

        pair.stall(PASSIVE, true);
        pair.post(ACTIVE, 1, Operation::Write { token, address }, Flags::NONE, &[source.all()])
            .unwrap();
        pair.pump();
        assert_eq!(uses(&pair), [false, false], "nothing has arrived");
        let mut bytes = 0;
        while uses(&pair) == [false, false] {
            pair.deliver(PASSIVE, 16);
            bytes += 16;
            assert!(bytes < 100_000, "the first frame has arrived long since");
        }
        assert_eq!(uses(&pair), [true, false]);
        pair.deliver(PASSIVE, LENGTH / 4);
        assert_eq!(uses(&pair), [true, false]);
        pair.stall(PASSIVE, false);
        pair.pump();
        assert_eq!(uses(&pair), [false, false]);

        for ends in [false, true] {
            pair.stall(PASSIVE, true);
            for (context, region) in regions.iter().enumerate() {
                let (token, address) = (region.token.0, region.address);
                let read = Operation::Read { token, address };
                pair.post(ACTIVE, context as u64, read, Flags::NONE, &[source.all()]).unwrap();
            }
            pair.pump();
            assert_eq!(uses(&pair), [false, false], "nothing has arrived");
            pair.deliver(PASSIVE, usize::MAX);
            let mut left = 0;
            while uses(&pair) == [true, true] {
                let mut out = Buffer::new(1 << 17);
                pair.hosts[PASSIVE].transmit(pair.now, &mut out);
                left += out.bytes.len();
                pair.inject(ACTIVE, &out.bytes);
                assert!(left < LENGTH * 3 / 2, "the first answer has left long since");
            }
            assert!(left > LENGTH, "the whole answer has left");
            assert_eq!(uses(&pair), [false, true], "answers leave in order");
            if ends {
                pair.kill(ACTIVE);
            }
            pair.stall(PASSIVE, false);
            pair.pump();
            assert_eq!(uses(&pair), [false, false]);
        }
    }
}

/// WSD N-2, N-3: a Send waits for its receive as long as its dialect does, with every peer.
#[test]
fn a_send_waits_for_its_receive_without_limit_if_its_dialect_has_none() {
    // A Send to a plain peer is over for its sender when it has left.
    for (wires, over) in [(Wires::transom(), false), (Wires::plain(), true)] {
        let mut pair = Pair::connected_with(PairConfig { wires, ..PairConfig::new(&dialect::WSD) });
        pair.advance(std::time::Duration::from_millis(20)); // iW L1
        let [a, p] = &mut pair.hosts;
        let source = a.register(bytes(9, 1), Rights::NONE);
        let sink = p.register(vec![0; 9], Rights::LOCAL_WRITE);
        pair.post(ACTIVE, 1, Operation::Send, Flags::NONE, &[source.all()]).unwrap();
        pair.advance(std::time::Duration::from_secs(3600));
        let [a, p] = &mut pair.hosts;
        let sent = a.outcomes();
        assert_eq!(sent, if over { vec![(1, Status::Success)] } else { vec![] });
        assert_eq!(p.outcomes(), []);
        p.post_receive(2, &[sink.all()]).unwrap();
        pair.pump();
        pair.advance(std::time::Duration::from_secs(1));
        let [a, p] = &mut pair.hosts;
        assert_eq!([sent, a.outcomes()].concat(), [(1, Status::Success)]);
        assert_eq!(p.outcomes(), [(2, Status::Success)]);
    }
}

#[test]
fn send_write_and_read_move_bytes() {
    each(|mut pair| {
        let [a, p] = &mut pair.hosts;
        let source = a.register(bytes(200_000, 1), Rights::NONE);
        let sink = a.register(vec![0; 200_000], Rights::LOCAL_WRITE);
        let inbox = p.register(vec![0; 100], Rights::LOCAL_WRITE);
        let target = p.register(vec![0; 200_000], RW | Rights::LOCAL_WRITE);
        p.post_receive(77, &[inbox.sge(0, 10), inbox.sge(50, 50)]).unwrap();
        let write = Operation::Write { token: target.token.0, address: target.address + 1 };
        let read = Operation::Read { token: target.token.0, address: target.address };
        a.post(1, write, Flags::NONE, &[source.sge(5, 100_000), source.sge(0, 3)]).unwrap();
        a.post(2, Operation::Send, Flags::SOLICIT, &[source.sge(0, 60)]).unwrap();
        a.post(3, read, Flags::NONE, &[sink.sge(7, 99_990), sink.sge(0, 7)]).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        let mut expected = vec![0];
        expected.extend(&bytes(200_000, 1)[5..100_005]);
        expected.extend(&bytes(200_000, 1)[..3]);
        assert_eq!(p.arena.read(target.address, 100_004).unwrap(), expected);
        assert_eq!(a.arena.read(sink.address + 7, 99_990).unwrap(), expected[..99_990]);
        assert_eq!(a.arena.read(sink.address, 7).unwrap(), expected[99_990..99_997]);
        assert_eq!(a.arena.read(sink.address + 99_997, 1).unwrap(), [0]);
        assert_eq!(p.arena.read(inbox.address, 10).unwrap(), bytes(10, 1));
        assert_eq!(p.arena.read(inbox.address + 50, 50).unwrap(), bytes(60, 1)[10..]);
        let done = a.completions();
        assert_eq!(
            done.iter()
                .map(|c| (c.request_context, c.kind, c.status, c.length))
                .collect::<Vec<_>>(),
            [
                (1, CompletionKind::Write, Status::Success, 100_003),
                (2, CompletionKind::Send, Status::Success, 60),
                (3, CompletionKind::Read, Status::Success, 99_997),
            ]
        );
        assert_eq!(done[0].queue_pair_context, a.queue_pair.config().context);
        let received = p.completions();
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].request_context, received[0].length), (77, 60));
        assert!(received[0].flags.contains(CompletionFlags::SOLICITED));
        assert_eq!(pair.hosts.each_ref().map(|h| h.queue_pair.outstanding()), [(0, 0), (0, 0)]);
    });
}

#[test]
fn messages_of_no_bytes_need_no_token() {
    each(|mut pair| {
        pair.hosts[PASSIVE].post_receive(9, &[]).unwrap();
        let host = &mut pair.hosts[ACTIVE];
        let dead = Sge { token: 0xDEAD, address: 1, length: 0 };
        host.post(1, Operation::Write { token: 0, address: 3 }, Flags::NONE, &[]).unwrap();
        host.post(2, Operation::Read { token: 5, address: 3 }, Flags::NONE, &[dead]).unwrap();
        host.post(3, Operation::Send, Flags::NONE, &[]).unwrap();
        pair.pump();
        let ok = Status::Success;
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(1, ok), (2, ok), (3, ok)]);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(9, ok)]);
    });
}

#[test]
fn a_window_opens_and_closes_in_queue_order() {
    each(|mut pair| {
        let [a, p] = &mut pair.hosts;
        let target = p.register(bytes(100, 3), Rights::LOCAL_WRITE);
        let sink = a.register(vec![0; 100], Rights::LOCAL_WRITE);
        let request = Request { context: 5, operation: Operation::Receive, flags: Flags::NONE };
        let window = p.bind(&target, 10, 20, Rights::REMOTE_READ, request).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(p.outcomes(), [(5, Status::Success)]);
        let read = Operation::Read { token: window.token.0, address: window.address };
        a.post(1, read, Flags::NONE, &[sink.sge(0, 20)]).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(a.outcomes(), [(1, Status::Success)]);
        assert_eq!(a.arena.read(sink.address, 20).unwrap(), bytes(100, 3)[10..30]);
        let close = Operation::Invalidate { window: window.token };
        p.post(6, close, Flags::NONE, &[]).unwrap();
        pair.pump();
        let [a, p] = &mut pair.hosts;
        assert_eq!(p.outcomes(), [(6, Status::Success)]);
        a.post(2, read, Flags::NONE, &[sink.sge(0, 20)]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(2, Status::RemoteAccess)]);
    });
}

fn fast_register(
    host: &mut Host,
    context: u64,
    region: Token,
    segments: &[Segment],
) -> Result<(), Status> {
    let operation = Operation::FastRegister { region, base: 0x7000_0000, rights: RW };
    let request = Request { context, operation, flags: Flags::NONE };
    host.queue_pair.post(&request, Data::Memory(segments))
}

/// NDK FR-5, FR-9, FR-12, FR-13: one token, memory after memory, in queue order.
#[test]
fn a_region_gets_its_memory_and_loses_it_in_queue_order() {
    each(|mut pair| {
        let [a, p] = &mut pair.hosts;
        let region = p.memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
        let memory = p.register(bytes(300, 3), Rights::NONE);
        let sink = a.register(vec![0; 100], Rights::LOCAL_WRITE);
        let segment = |at: u64| Segment { host: memory.address + at, length: 50 };
        let read = Operation::Read { token: region.0, address: 0x7000_0000 + 10 };
        for (round, [first, second]) in [[0, 100], [200, 50]].into_iter().enumerate() {
            let round = 10 * round as u64;
            let [a, p] = &mut pair.hosts;
            a.post_receive(round, &[]).unwrap();
            let pieces = [segment(first), segment(second)];
            fast_register(p, round + 1, region, &pieces).unwrap();
            p.post(round + 2, Operation::Send, Flags::NONE, &[]).unwrap();
            pair.pump();
            let [a, p] = &mut pair.hosts;
            let done: Vec<_> =
                p.completions().iter().map(|c| (c.request_context, c.kind, c.status)).collect();
            let ok = Status::Success;
            assert_eq!(
                done,
                [
                    (round + 1, CompletionKind::FastRegister, ok),
                    (round + 2, CompletionKind::Send, ok)
                ]
            );
            a.post(round + 3, read, Flags::NONE, &[sink.sge(0, 80)]).unwrap();
            pair.pump();
            let [a, p] = &mut pair.hosts;
            assert_eq!(a.outcomes(), [(round, ok), (round + 3, ok)]);
            let of = |at: u64| bytes(300, 3)[at as usize..][..50].to_vec();
            let expected = [of(first), of(second)].concat();
            assert_eq!(a.arena.read(sink.address, 80).unwrap(), expected[10..90]);
            p.post(round + 4, Operation::Invalidate { window: region }, Flags::NONE, &[]).unwrap();
            pair.pump();
            assert_eq!(pair.hosts[PASSIVE].outcomes(), [(round + 4, ok)]);
        }
        pair.hosts[ACTIVE].post(9, read, Flags::NONE, &[sink.sge(0, 1)]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(9, Status::RemoteAccess)]);
    });
}

/// NDK FR-8, FR-14: the request fails, whatever it asks for, and says why.
#[test]
fn a_region_that_cannot_have_this_memory_fails_the_request() {
    let one = Segment { host: 0x1000, length: 50 };
    let far = Segment { host: u64::MAX - 10, length: 50 };
    let large = Segment { host: 0x1000, length: (1 << 40) + 1 };
    for (segments, why) in [
        (&[one][..], "invalidate it first"),
        (&[], "at least one byte"),
        (&[far], "wraps around"),
        (&[large], "the adapter's limit of 1099511627776 bytes"),
    ] {
        each(|mut pair| {
            let host = &mut pair.hosts[ACTIVE];
            let region = host.memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
            fast_register(host, 1, region, &[one]).unwrap();
            pair.pump();
            let host = &mut pair.hosts[ACTIVE];
            assert_eq!(host.outcomes(), [(1, Status::Success)]);
            if segments != [one] {
                host.memory.close(region, None, 0).unwrap();
            }
            fast_register(host, 2, region, segments).unwrap();
            pair.pump();
            let host = &mut pair.hosts[ACTIVE];
            let [failed] = host.completions()[..] else { panic!("one completion") };
            assert_eq!((failed.request_context, failed.status), (2, Status::InvalidRequest));
            let said = host.denials.explain(failed.denial).unwrap();
            assert!(said.contains(why), "{said}");
        });
    }
}

/// Memory belongs to fast registrations, and they to it.
#[test]
fn memory_and_other_operations_do_not_mix() {
    let mut pair = Pair::connected(&dialect::ND2);
    let host = &mut pair.hosts[ACTIVE];
    let region = host.memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
    let register = Operation::FastRegister { region, base: 0, rights: RW };
    assert_eq!(host.post(1, register, Flags::NONE, &[]), Err(Status::InvalidRequest));
    let send = Request { context: 1, operation: Operation::Send, flags: Flags::NONE };
    let piece = Segment { host: 0x1000, length: 50 };
    let result = host.queue_pair.post(&send, Data::Memory(&[piece]));
    assert_eq!(result, Err(Status::InvalidRequest));
    let many = vec![piece; (1 << 16) + 1];
    assert_eq!(fast_register(host, 1, region, &many), Err(Status::DataOverrun));
    assert_eq!(host.queue_pair.outstanding(), (0, 0));
}

#[test]
fn silent_success_makes_no_completion_and_frees_its_place() {
    each(|mut pair| {
        let a = &mut pair.hosts[ACTIVE];
        for context in 0..64 {
            let write = Operation::Write { token: 0, address: 0 };
            a.post(context, write, Flags::SILENT_SUCCESS, &[]).unwrap();
        }
        let full = a.post(64, Operation::Write { token: 0, address: 0 }, Flags::NONE, &[]);
        assert_eq!(full, Err(Status::NoMoreEntries));
        pair.pump();
        let a = &mut pair.hosts[ACTIVE];
        assert_eq!(a.outcomes(), []);
        assert_eq!(a.queue_pair.outstanding(), (0, 0));
    });
}

/// ND2 4.2 rules 5 and 6, in one pass that holds the acknowledgement, an answer and the end.
#[test]
fn a_send_completes_before_what_the_peer_did_upon_it() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let memory = a.register(vec![0; 64], Rights::LOCAL_WRITE);
    a.post_receive(10, &[memory.all()]).unwrap();
    a.post_receive(11, &[memory.all()]).unwrap();
    p.post_receive(20, &[]).unwrap();
    pair.pump();
    pair.stall(ACTIVE, true);
    pair.hosts[ACTIVE].post(1, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Success)]);
    pair.hosts[PASSIVE].post(2, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    pair.disconnect(PASSIVE, 99).unwrap();
    pair.hosts[ACTIVE].seen.clear();
    pair.stall(ACTIVE, false);
    pair.pump();
    let seen: Vec<_> = pair.hosts[ACTIVE]
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Completion(side, c) => Some((*side, c.request_context, c.status)),
            _ => None,
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Side::Initiator, 1, Status::Success),
            (Side::Receive, 10, Status::Success),
            (Side::Receive, 11, Status::Canceled),
        ]
    );
}

/// ND2 4.2 rule 2: receives are consumed in posting order, messages arrive once and in order.
#[test]
fn receives_are_consumed_in_posting_order() {
    each(|mut pair| {
        let [a, p] = &mut pair.hosts;
        let source = a.register((0..32).collect(), Rights::NONE);
        let inbox = p.register(vec![0; 32], Rights::LOCAL_WRITE);
        for at in 0..32 {
            p.post_receive(at, &[inbox.sge(at, 1)]).unwrap();
            let flags = if at % 2 == 1 { Flags::SOLICIT } else { Flags::NONE };
            a.post(at, Operation::Send, flags, &[source.sge(at, 1)]).unwrap();
        }
        pair.pump();
        let expected: Vec<_> = (0..32).map(|context| (context, Status::Success)).collect();
        let received = pair.hosts[PASSIVE].completions();
        for one in &received {
            assert_eq!((one.status, one.length), (Status::Success, 1));
            let solicited = one.flags.contains(CompletionFlags::SOLICITED);
            assert_eq!(solicited, one.request_context % 2 == 1);
        }
        assert!(received.iter().map(|one| one.request_context).eq(0..32));
        assert_eq!(pair.hosts[ACTIVE].outcomes(), expected);
        let bytes: Vec<u8> = (0..32).collect();
        assert_eq!(pair.hosts[PASSIVE].arena.read(inbox.address, 32).unwrap(), bytes);
    });
}

/// Entries that a burst of small Writes names are fetched before it is needed, each once: but for that of the
/// first, which is needed at once.
#[test]
fn the_entries_of_frames_that_wait_are_fetched_ahead() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 64], Rights::NONE);
    let target = p.register(vec![0; 64], Rights::REMOTE_WRITE | Rights::LOCAL_WRITE);
    let write = Operation::Write { token: target.token.0, address: target.address };
    for context in 0..5 {
        a.post(context, write, Flags::NONE, &[source.sge(0, 8)]).unwrap();
    }
    let mut out = Buffer::new(1 << 16);
    a.transmit(pair.now, &mut out);
    let [_, p] = &mut pair.hosts;
    let before = p.arena.fetched_ahead();
    p.receive(pair.now, &out.bytes);
    assert_eq!(p.arena.fetched_ahead() - before, 4);
    assert_eq!(p.arena.read(target.address, 8).unwrap(), [1; 8]);
}

/// A link that takes payload of 64 bytes and more from where it lies, or fails to.
struct Straight {
    /// Where the memory begins, and what is in it.
    memory: (u64, Vec<u8>),
    answer: Direct,
    offered: u64,
    out: Buffer,
}

impl Straight {
    fn new(memory: (u64, Vec<u8>), answer: Direct) -> Straight {
        Straight { memory, answer, offered: 0, out: Buffer::new(1 << 20) }
    }
}

impl Carrier for Straight {
    fn room(&self) -> usize {
        self.out.room()
    }
    fn takes(&self, length: usize) -> bool {
        self.out.takes(length)
    }
    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        self.out.reserve(around, length)
    }
    fn put(&mut self, payload: &[u8]) {
        self.out.put(payload);
    }
    fn frame(&mut self) -> &mut [u8] {
        self.out.frame()
    }
    fn commit(&mut self) {
        self.out.commit();
    }
    fn release(&mut self) {
        self.out.release();
    }
    fn wants_sink(&self, length: u64) -> bool {
        self.out.wants_sink(length)
    }
    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool {
        self.out.lend_sink(header, sink)
    }
    fn wants_lend(&self, length: usize) -> bool {
        length >= 64
    }
    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        self.offered += payload.iter().map(|segment| segment.length).sum::<u64>();
        if self.answer == Direct::Taken {
            let (base, memory) = &self.memory;
            self.out.bytes.extend(header);
            for Segment { host, length } in payload {
                let from = (host - base) as usize;
                self.out.bytes.extend(&memory[from..from + *length as usize]);
            }
            self.out.bytes.extend(trailer);
        }
        self.answer
    }
}

/// A pair that checks sums or does not, with memory on both sides and requests of every shape posted:
/// Writes of many frames, of 64 bytes and of 63, of none, of two entries, one whose data the queue
/// has copied, and a Read.
fn with_requests(checksum: bool) -> (Pair, [(u64, Vec<u8>); 2]) {
    let mut wires = Wires::transom();
    (wires.active.checksum, wires.passive.checksum) = (checksum, checksum);
    let mut pair = Pair::connected_with(PairConfig { wires, ..PairConfig::new(&dialect::ND2) });
    pair.pump();
    let [a, p] = &mut pair.hosts;
    let (source, target) = (bytes(200_000, 1), bytes(200_000, 9));
    let own = a.register(source.clone(), Rights::LOCAL_WRITE);
    let theirs = p.register(target.clone(), RW | Rights::LOCAL_WRITE);
    let write = Operation::Write { token: theirs.token.0, address: theirs.address };
    let read = Operation::Read { token: theirs.token.0, address: theirs.address };
    a.post(1, write, Flags::NONE, &[own.sge(3, 150_001)]).unwrap();
    a.post(2, write, Flags::NONE, &[own.sge(5, 64)]).unwrap();
    a.post(3, write, Flags::NONE, &[own.sge(0, 63)]).unwrap();
    a.post(4, write, Flags::NONE, &[]).unwrap();
    a.post(5, write, Flags::NONE, &[own.sge(0, 100), own.sge(200, 100)]).unwrap();
    let request = Request { context: 6, operation: write, flags: Flags::NONE };
    a.queue_pair.post(&request, Data::Inline(&source[7..107])).unwrap();
    a.post(7, read, Flags::NONE, &[own.sge(0, 100_000)]).unwrap();
    (pair, [(own.address, source), (theirs.address, target)])
}

/// A payload that need not be copied is not, and the bytes do not show it.
#[test]
fn frames_leave_straight_from_memory_as_they_leave_by_a_copy() {
    for checksum in [false, true] {
        for answer in [Direct::Taken, Direct::Copy] {
            let sent = |straight: bool| {
                let (mut pair, memory) = with_requests(checksum);
                let mut sent = Vec::new();
                for (host, (base, before)) in [ACTIVE, PASSIVE].into_iter().zip(memory) {
                    // The peer's memory has been written to.
                    let memory = pair.hosts[host].arena.read(base, before.len()).unwrap();
                    let mut straight_out = Straight::new((base, memory), answer);
                    let mut copied = Buffer::new(1 << 20);
                    let bytes = if straight {
                        pair.hosts[host].transmit(pair.now, &mut straight_out);
                        std::mem::take(&mut straight_out.out.bytes)
                    } else {
                        pair.hosts[host].transmit(pair.now, &mut copied);
                        copied.bytes
                    };
                    pair.hosts[1 - host].receive(pair.now, &bytes);
                    sent.push((bytes, straight_out.offered));
                }
                assert!(pair.hosts[ACTIVE].connection.as_ref().unwrap().ended().is_none());
                sent
            };
            let (straight, copied) = (sent(true), sent(false));
            assert!(straight.iter().map(|one| &one.0).eq(copied.iter().map(|one| &one.0)));
            let offered = [straight[0].1, straight[1].1];
            let process = Wires::transom().path == crate::support::Path::Process;
            let expected = if checksum && !process { [0, 0] } else { [150_001 + 64, 100_000] };
            assert_eq!(offered, expected, "{answer:?}");
        }
    }
}

/// A request whose memory goes while it is sent has failed, and nothing of its frame has left; if a
/// part has, the link is closed.
#[test]
fn a_frame_whose_pages_are_gone_fails_its_request() {
    for answer in [Direct::Fault, Direct::Torn] {
        let (mut pair, [memory, _]) = with_requests(false);
        let mut out = Straight::new(memory, answer);
        let host = &mut pair.hosts[ACTIVE];
        host.transmit(pair.now, &mut out);
        let done = host.completions();
        assert_eq!((done[0].request_context, done[0].status), (1, Status::LocalAccess));
        assert!(done[1..].iter().all(|other| other.status == Status::Canceled));
        assert_eq!(done.len(), 7);
        assert!(host.denials.explain(done[0].denial).is_some());
        assert!(out.out.bytes.len() < 1000, "an announcement and last words at the most");
        let wish = host.connection.as_ref().unwrap().link_wish();
        assert_eq!(wish == LinkWish::Close, answer == Direct::Torn, "{wish:?}");
    }
}

/// Memory that the peer reads may vanish as well.
#[test]
fn an_answer_whose_pages_are_gone_fails_the_peers_read() {
    for answer in [Direct::Fault, Direct::Torn] {
        let (mut pair, [_, memory]) = with_requests(false);
        let mut requests = Buffer::new(1 << 20);
        pair.hosts[ACTIVE].transmit(pair.now, &mut requests);
        pair.hosts[PASSIVE].receive(pair.now, &requests.bytes);
        let mut out = Straight::new(memory, answer);
        pair.hosts[PASSIVE].transmit(pair.now, &mut out);
        let connection = pair.hosts[PASSIVE].connection.as_ref().unwrap();
        assert!(connection.ended().is_some());
        assert_eq!(connection.link_wish() == LinkWish::Close, answer == Direct::Torn);
        if answer == Direct::Fault {
            pair.hosts[ACTIVE].receive(pair.now, &out.out.bytes);
            let last = pair.hosts[ACTIVE].completions().pop().unwrap();
            assert_eq!((last.request_context, last.status), (7, Status::RemoteError));
        }
    }
}

/// The copy of a request in the queue is that request's, also if the one before it has completed
/// before this one is sent: it waits for its receive.
#[test]
fn inline_data_of_each_request_is_its_own() {
    let mut pair = Pair::connected(&dialect::ND2);
    let inbox = pair.hosts[PASSIVE].register(vec![0; 200], Rights::LOCAL_WRITE);
    let data = [bytes(100, 1), bytes(90, 2), bytes(80, 3)];
    for (context, data) in (1..).zip(&data) {
        let request = Request { context, operation: Operation::Send, flags: Flags::NONE };
        pair.hosts[ACTIVE].queue_pair.post(&request, Data::Inline(data)).unwrap();
    }
    for (context, data) in (1..).zip(&data) {
        pair.hosts[PASSIVE].post_receive(context, &[inbox.all()]).unwrap();
        pair.pump();
        assert_eq!(pair.hosts[ACTIVE].outcomes(), [(context, Status::Success)]);
        assert_eq!(pair.hosts[PASSIVE].outcomes(), [(context, Status::Success)]);
        assert_eq!(pair.hosts[PASSIVE].arena.read(inbox.address, data.len()).as_ref(), Some(data));
    }
}

/// iW L1: the first message to a plain peer waits until the frame that ends start-up has had its
/// time, and then leaves by itself.
#[test]
fn the_first_message_leaves_when_its_time_has_come() {
    let config = PairConfig { wires: Wires::plain(), ..PairConfig::new(&dialect::ND2) };
    let mut pair = Pair::connected_with(config);
    pair.hosts[PASSIVE].post_receive(1, &[]).unwrap();
    pair.hosts[ACTIVE].post(2, Operation::Send, Flags::NONE, &[]).unwrap();
    pair.pump();
    assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
    pair.advance(std::time::Duration::from_millis(20));
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(1, Status::Success)]);
}

/// ND2 4.2 rule 7, as far as it is the core's: pieces are placed in increasing address order. Within
/// a piece it is the copy's (`sys`).
#[test]
fn a_write_is_placed_in_increasing_address_order() {
    use transom_core::trace::What;
    each(|mut pair| {
        let [a, p] = &mut pair.hosts;
        let source = a.register(bytes(300_000, 1), Rights::NONE);
        let target = p.register(vec![0; 300_000], RW | Rights::LOCAL_WRITE);
        p.trace = Some(Vec::new());
        let write = Operation::Write { token: target.token.0, address: target.address };
        a.post(1, write, Flags::NONE, &[source.all()]).unwrap();
        pair.pump();
        let mut next = target.address;
        for event in pair.hosts[PASSIVE].trace.take().unwrap() {
            if let What::Placed { address, length, .. } = event.what {
                assert_eq!(address, next);
                next += u64::from(length);
            }
        }
        assert_eq!(next, target.address + 300_000);
    });
}

/// A tracer that wants frames sees each of both directions with all of its bytes, so that none is lent.
#[test]
fn a_tracer_that_wants_frames_sees_all_of_them() {
    use transom_core::trace::{FrameTrace, TraceEvent, Tracer};
    #[derive(Default)]
    struct Frames([Vec<u8>; 2]);
    impl Tracer for Frames {
        fn event(&mut self, _: &TraceEvent) {}
        fn wants_frames(&self) -> bool {
            true
        }
        fn frame(&mut self, frame: &FrameTrace<'_>) {
            self.0[usize::from(frame.inbound)].extend_from_slice(frame.bytes);
        }
    }
    fn traced<'a>(cx: &'a mut Cx<'_>, frames: &'a mut Frames) -> Cx<'a> {
        let Cx { now, memory, host, denials, shared, .. } = *cx;
        let (lane, effects) = (&mut *cx.lane, &mut *cx.effects);
        Cx { now, memory, lane, host, denials, shared, effects, trace: Some(frames) }
    }
    let (mut pair, [(base, memory), _]) = with_requests(false);
    let (mut out, mut frames) = (Straight::new((base, memory), Direct::Taken), Frames::default());
    let now = pair.now;
    pair.hosts[ACTIVE].with(now, |_, connection, _, cx| {
        connection.unwrap().transmit(&mut traced(cx, &mut frames), &mut out);
    });
    let sent = out.out.bytes;
    assert!(sent.len() > 150_000 && out.offered == 0);
    assert_eq!(frames.0, [sent.clone(), Vec::new()], "as they leave");
    pair.hosts[PASSIVE].with(now, |_, connection, _, cx| {
        let received = connection.unwrap().receive(&mut traced(cx, &mut frames), &sent);
        assert_eq!(received.consumed, sent.len());
    });
    assert_eq!(frames.0, [sent.clone(), sent], "as they come");
}
