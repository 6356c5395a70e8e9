//! Queue pairs of datagrams: what leaves, what is delivered, what is dropped (Verbs V69, Verbs V70,
//! Verbs V139).
#![allow(clippy::unwrap_used, clippy::panic)] // tests

use crate::support::{Buffer, DOMAIN, Host, HostConfig, Seen};
use transom_core::dialect::VERBS;
use transom_core::*;
use transom_memory::{DomainId, QueuePairId, Rights};
use transom_wire::Time;

const NUMBER: QueuePairId = QueuePairId(7);
const PEER: QueuePairId = QueuePairId(0x12_3456);
const KEY: u32 = 0x1111;
const NOW: Time = Time(1000);
const ROUTE: [u8; ROUTE_HEADER] = [0xab; ROUTE_HEADER];

/// A datagram that has left: address, key, immediate data, solicited, bytes.
type Left = (u32, u32, Option<u32>, bool, Vec<u8>);

struct Machine {
    host: Host,
    buffer: Buffer,
    left: Vec<Left>,
}

fn machine(kind: QueuePairKind, shared: bool) -> Machine {
    let mut host = Host::new(HostConfig { shared, ..HostConfig::new(&VERBS) }, NUMBER.0);
    let config = QueuePairConfig { kind, initiator_depth: 2, ..*host.queue_pair.config() };
    host.set_queue_pair(QueuePair::new(config));
    host.queue_pair.set_queue_key(KEY);
    let bytes = (0..=255).collect();
    let buffer = host.register(bytes, Rights::LOCAL_READ | Rights::LOCAL_WRITE);
    Machine { host, buffer, left: Vec::new() }
}

fn request(context: u64, operation: Operation) -> Request {
    Request { context, operation, flags: Flags::NONE }
}

impl Machine {
    fn post_all(&mut self, list: &[(Request, Data<'_>, Destination<u32>)]) -> Result<(), Status> {
        let left = &mut self.left;
        self.host.with(NOW, |_, _, pair, cx| {
            let mut staging = Vec::new();
            let posted = pair.post_datagrams(cx, list.iter().copied(), &mut staging, |d| {
                left.push((d.at, d.key, d.immediate, d.solicited, d.payload.to_vec()));
            });
            pair.complete_ended(cx.memory, cx.now, cx.effects);
            posted
        })
    }

    fn post(&mut self, request: Request, data: Data<'_>) -> Result<(), Status> {
        self.post_all(&[(request, data, Destination { domain: DOMAIN, key: 5, at: 99 })])
    }

    /// A Send of ten bytes.
    fn send(&mut self, context: u64) -> Result<(), Status> {
        let list = [self.buffer.sge(1, 10)];
        self.post(request(context, Operation::Send), Data::Sges(&list))
    }

    fn deliver(&mut self, datagram: Datagram<'_>) -> bool {
        self.host.with(NOW, |_, _, pair, cx| pair.deliver(cx, &datagram))
    }

    fn receive(&mut self, context: u64, length: u32) {
        let list = [self.buffer.sge(0, length)];
        self.host.queue_pair.post_receive(context, &list).unwrap();
    }

    /// The completions so far, each once, retrieved.
    fn completions(&mut self) -> Vec<(Side, u64, Status)> {
        while self.host.cq.pop().is_some() {}
        let of = |seen: Seen| match seen {
            Seen::Completion(side, c) => Some((side, c.request_context, c.status)),
            _ => None,
        };
        std::mem::take(&mut self.host.seen).into_iter().filter_map(of).collect()
    }

    fn last(&self) -> Completion {
        match self.host.seen.last().unwrap() {
            Seen::Completion(_, completion) => *completion,
            other => panic!("{other:?} is no completion"),
        }
    }

    fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        self.host.arena.read(self.buffer.address + offset, length).unwrap()
    }
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    let (immediate, solicited, over_ipv6) = (None, false, false);
    Datagram { source: PEER, key: KEY, route: &ROUTE, over_ipv6, immediate, solicited, payload }
}

#[test]
fn a_send_leaves_when_it_is_posted_and_frees_its_place() {
    let mut machine = machine(QueuePairKind::Ud, false);
    for context in 0..5 {
        machine.send(context).unwrap();
        assert_eq!(machine.completions(), [(Side::Initiator, context, Status::Success)]);
        assert_eq!(machine.left.pop(), Some((99, 5, None, false, (1..11).collect())));
        assert_eq!(machine.host.queue_pair.occupied(), (0, 0));
    }
}

#[test]
fn a_list_leaves_in_order_or_not_at_all() {
    let mut machine = machine(QueuePairKind::Ud, false);
    let to = |at, key| Destination { domain: DOMAIN, key, at };
    let silent =
        Request { flags: Flags::SILENT_SUCCESS | Flags::SOLICIT, ..request(1, Operation::Send) };
    let loud = request(2, Operation::SendWithImmediate { immediate: 77 });
    let (a, b) = (Data::Inline(b"one"), Data::Inline(b"two"));
    machine.post_all(&[(silent, a, to(1, 5)), (loud, b, to(2, 1 << 31 | 9))]).unwrap();
    assert_eq!(machine.completions(), [(Side::Initiator, 2, Status::Success)]);
    let expected =
        [(1, 5, None, true, b"one".to_vec()), (2, KEY, Some(77), false, b"two".to_vec())];
    assert_eq!(machine.left, expected);

    // Room for two.
    let three = [(loud, a, to(1, 5)); 3];
    assert_eq!(machine.post_all(&three), Err(Status::NoMoreEntries));
    assert_eq!(machine.left.len(), 2);
    assert_eq!(machine.completions(), []);
    machine.post_all(&three[..2]).unwrap();
}

#[test]
fn a_failed_send_stops_those_behind_it_until_they_are_resumed() {
    let writes = Operation::Write { token: 1, address: 0 };
    let too_long = Operation::Unsupported { status: Status::BufferOverflow };
    for (operation, token, domain, expected) in [
        (Operation::Send, 1, DOMAIN, Status::LocalAccess),
        (Operation::Send, 0, DomainId(2), Status::InvalidRequest),
        (writes, 0, DOMAIN, Status::NotSupported),
        (too_long, 0, DOMAIN, Status::BufferOverflow),
    ] {
        let mut machine = machine(QueuePairKind::Ud, false);
        let mut list = [machine.buffer.sge(0, 8)];
        list[0].token ^= token << 20;
        let data = if operation.has_data() { Data::Sges(&list) } else { Data::Sges(&[]) };
        let to = Destination { domain, key: 0, at: 1 };
        let good = [machine.buffer.sge(0, 8)];
        let behind = (request(2, Operation::Send), Data::Sges(&good), to);
        machine.post_all(&[(request(1, operation), data, to), behind]).unwrap();
        assert_eq!(
            machine.completions(),
            [(Side::Initiator, 1, expected), (Side::Initiator, 2, Status::Canceled)]
        );
        assert!(machine.left.is_empty());
        assert!(machine.host.queue_pair.sends_failed());
        // Receives go on.
        machine.receive(3, 256);
        assert!(machine.deliver(datagram(b"x")));
        assert_eq!(machine.completions(), [(Side::Receive, 3, Status::Success)]);
        machine.host.queue_pair.resume_sends();
        assert!(!machine.host.queue_pair.sends_failed());
        machine.send(4).unwrap();
        assert_eq!(machine.completions(), [(Side::Initiator, 4, Status::Success)]);
        assert_eq!(machine.left.len(), 1);
    }
}

#[test]
fn a_datagram_fills_the_oldest_receive_behind_its_route() {
    let mut machine = machine(QueuePairKind::Ud, false);
    machine.receive(1, 256);
    machine.receive(2, 256);
    assert!(machine.deliver(datagram(b"hello")));
    let expected = Completion {
        request_context: 1,
        queue_pair_context: 0xC0 + u64::from(NUMBER.0),
        queue_pair: NUMBER,
        kind: CompletionKind::Receive,
        length: 45,
        flags: CompletionFlags::DATAGRAM,
        source: PEER,
        place: 1,
        ..Completion::BLANK
    };
    assert_eq!(machine.last(), expected);
    assert_eq!(machine.bytes(0, 40), ROUTE);
    assert_eq!(machine.bytes(40, 6), *b"hello\x2d");

    let all = Datagram { over_ipv6: true, immediate: Some(3), solicited: true, ..datagram(b"") };
    assert!(machine.deliver(all));
    let Completion { flags, value, length, request_context, .. } = machine.last();
    assert_eq!((value, length, request_context), (3, 40, 2));
    let expected = CompletionFlags::DATAGRAM.0
        | CompletionFlags::OVER_IPV6.0
        | CompletionFlags::IMMEDIATE.0
        | CompletionFlags::SOLICITED.0;
    assert_eq!(flags.0, expected);
    assert_eq!(machine.host.queue_pair.outstanding(), (0, 0));
}

#[test]
fn what_is_dropped_changes_nothing() {
    let mut machine = machine(QueuePairKind::Ud, false);
    assert!(!machine.deliver(datagram(b"no receive")));
    machine.receive(1, 256);
    assert!(!machine.deliver(Datagram { key: KEY + 1, ..datagram(b"another key") }));
    assert_eq!(machine.completions(), []);
    assert_eq!(machine.bytes(0, 4), [0, 1, 2, 3]);
    assert_eq!(machine.host.queue_pair.outstanding(), (0, 1));
    machine.host.queue_pair.set_queue_key(KEY + 1);
    assert!(machine.deliver(Datagram { key: KEY + 1, ..datagram(b"the key now") }));
}

#[test]
fn a_receive_that_does_not_fit_fails_and_the_next_one_is_filled() {
    let mut machine = machine(QueuePairKind::Ud, false);
    machine.receive(1, 44);
    machine.receive(2, 45);
    let foreign = Sge { token: machine.buffer.token.0 ^ 1 << 20, ..machine.buffer.sge(0, 256) };
    machine.host.queue_pair.post_receive(3, &[foreign]).unwrap();
    machine.receive(4, 45);
    for _ in 0..4 {
        assert!(machine.deliver(datagram(b"hello")));
    }
    assert_eq!(
        machine.completions(),
        [
            (Side::Receive, 1, Status::ReceiveTooSmall),
            (Side::Receive, 2, Status::Success),
            (Side::Receive, 3, Status::LocalAccess),
            (Side::Receive, 4, Status::Success),
        ]
    );
    assert_eq!(machine.host.queue_pair.outstanding(), (0, 0));
}

#[test]
fn nothing_is_written_to_a_receive_that_is_too_short() {
    let mut machine = machine(QueuePairKind::Ud, false);
    machine.receive(1, 44);
    assert!(machine.deliver(datagram(b"hello")));
    let Completion { length, flags, .. } = machine.last();
    assert_eq!((length, flags, machine.bytes(0, 4)), (0, CompletionFlags(0), vec![0, 1, 2, 3]));
}

#[test]
fn receives_come_from_a_shared_queue() {
    let mut machine = machine(QueuePairKind::Ud, true);
    assert!(!machine.deliver(datagram(b"none yet")));
    let list = [machine.buffer.sge(0, 64)];
    let mut wake = Vec::new();
    machine.host.shared.0.lock().unwrap().0.post(5, &list, &mut wake).unwrap();
    assert!(machine.deliver(datagram(b"one")));
    assert_eq!(machine.completions(), [(Side::Receive, 5, Status::Success)]);
}

#[test]
fn behind_a_flush_everything_is_cancelled_and_a_reset_begins_anew() {
    let mut machine = machine(QueuePairKind::Ud, false);
    machine.receive(1, 256);
    machine.host.with(NOW, |_, _, pair, cx| pair.flush(cx.memory, cx.now, cx.effects));
    assert_eq!(machine.completions(), [(Side::Receive, 1, Status::Canceled)]);
    machine.send(2).unwrap();
    assert_eq!(machine.completions(), [(Side::Initiator, 2, Status::Canceled)]);
    assert!(machine.left.is_empty());
    assert!(!machine.deliver(datagram(b"late")));
    machine.host.with(NOW, |_, _, pair, cx| pair.reset(cx.memory, cx.now)).unwrap();
    machine.receive(3, 256);
    assert!(!machine.deliver(datagram(b"the key is 0 again")));
    assert!(machine.deliver(Datagram { key: 0, ..datagram(b"this one") }));
    machine.send(4).unwrap();
    assert_eq!(machine.left.len(), 1);
}

#[test]
fn the_kinds_do_not_mix() {
    let mut reliable = machine(QueuePairKind::Rc, false);
    assert_eq!(reliable.send(1), Err(Status::InvalidRequest));
    reliable.receive(2, 256);
    assert!(!reliable.deliver(datagram(b"x")));
    assert_eq!(reliable.host.queue_pair.outstanding(), (0, 1));
    let mut datagrams = machine(QueuePairKind::Ud, false);
    let attached = datagrams.host.queue_pair.attach(QueuePairState::Connecting);
    assert_eq!(attached.err(), Some(Status::InvalidState));
    let posted = datagrams.host.queue_pair.post(&request(1, Operation::Send), Data::Sges(&[]));
    assert_eq!(posted, Err(Status::InvalidRequest));
    assert_eq!(datagrams.host.queue_pair.outstanding(), (0, 0));
}
