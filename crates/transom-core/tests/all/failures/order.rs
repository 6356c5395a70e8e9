//! Outcomes keep the order of the requests: what is in front of a request that the peer refuses has
//! succeeded, and the refused one is the first that fails (Verbs V67).

use transom_wire::Atomic;

use super::*;

crate::support::again_over_process![
    v67_what_is_in_front_of_a_refused_request_has_succeeded,
    v67_answers_in_front_of_a_refusal_are_judged_as_ever,
    v67_a_program_that_ends_the_connection_owes_no_answers
];

/// The requests in front: eight of them, which the peer answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Front {
    Reads,
    Atomics,
    Both,
}

/// The request that is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refused {
    Write,
    LongWrite,
    Read,
    Atomic,
    LongSend,
    NoWindow,
}

const FRONT: u64 = 8;
const PIECE: u32 = 70_000;

/// A pair whose link takes little at a time; its hosts' memory, and the peer's word.
fn little(dialect: &'static Dialect, wires: Wires) -> (Pair, [Buffer; 4]) {
    let mut pair =
        Pair::connected_with(PairConfig { wires, window: 4096, ..PairConfig::new(dialect) });
    pair.advance(Duration::from_millis(20));
    let [a, p] = &mut pair.hosts;
    let sink = Rights(Rights::LOCAL_WRITE.0 | Rights::READ_SINK.0);
    let sink = a.register(vec![0; PIECE as usize * 8], sink);
    let source = p.register(vec![7; PIECE as usize], Rights::REMOTE_READ);
    let target = p.register(vec![0; 64], WRITABLE);
    let word = p.register(vec![0; 8], Rights(Rights::REMOTE_ATOMIC.0 | Rights::LOCAL_WRITE.0));
    (pair, [sink, source, target, word])
}

fn add(word: &Buffer, behind: u64) -> Operation {
    let (token, address) = (word.token.0, word.address + behind);
    Operation::Atomic { token, address, change: Atomic::FetchAdd { add: 1 } }
}

/// The requests in front and the refused one; its status.
fn post(pair: &mut Pair, front: Front, refused: Refused, buffers: &[Buffer; 4]) -> Status {
    let [sink, source, target, word] = buffers;
    let [a, p] = &mut pair.hosts;
    let inbox = p.register(vec![0; 8], Rights::LOCAL_WRITE);
    p.post_receive(20, &[inbox.all()]).unwrap();
    for context in 1..=FRONT {
        let at = (context - 1) * u64::from(PIECE);
        let atomic = front == Front::Atomics || front == Front::Both && context % 2 == 0;
        let (operation, length) = if atomic { (add(word, 0), 8) } else { (read(source, 0), PIECE) };
        a.post(context, operation, Flags::NONE, &[sink.sge(at, length)]).unwrap();
    }
    let (operation, length, status) = match refused {
        Refused::Write => (write(target, 64), 8, Status::RemoteAccess),
        Refused::LongWrite => (write(target, 0), PIECE, Status::RemoteAccess),
        Refused::Read => (read(source, 1), PIECE, Status::RemoteAccess),
        Refused::Atomic => (add(word, 8), 8, Status::RemoteAccess),
        Refused::LongSend => (Operation::Send, 9, Status::PeerReceiveTooSmall),
        Refused::NoWindow => {
            (Operation::SendWithInvalidate { token: source.token.0 ^ 1 }, 8, Status::RemoteAccess)
        }
    };
    a.post(FRONT + 1, operation, Flags::NONE, &[sink.sge(0, length)]).unwrap();
    a.post(FRONT + 2, read(source, 0), Flags::NONE, &[sink.sge(0, 8)]).unwrap();
    a.post(FRONT + 3, Operation::Send, Flags::NONE, &[]).unwrap();
    status
}

#[test]
fn v67_what_is_in_front_of_a_refused_request_has_succeeded() {
    let fronts = [Front::Reads, Front::Atomics, Front::Both];
    let refusals = [
        Refused::Write,
        Refused::LongWrite,
        Refused::Read,
        Refused::Atomic,
        Refused::LongSend,
        Refused::NoWindow,
    ];
    for (dialect, plain) in dialect::ALL.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        for (front, refused) in fronts.into_iter().flat_map(|f| refusals.map(|r| (f, r))) {
            if plain && (front != Front::Reads || refused == Refused::Atomic) {
                continue; // such a peer has no atomics
            }
            let name = format!("{}, plain {plain}, {front:?}, {refused:?}", dialect.name);
            let wires = if plain { Wires::plain() } else { Wires::transom() };
            let (mut pair, buffers) = little(dialect, wires);
            let mut expected: Vec<_> = (1..=FRONT).map(|it| (it, Status::Success)).collect();
            let status = post(&mut pair, front, refused, &buffers);
            expected.push((FRONT + 1, status));
            expected.extend([FRONT + 2, FRONT + 3].map(|context| (context, Status::Canceled)));
            pair.pump();
            let [a, p] = &mut pair.hosts;
            let mut outcomes = a.outcomes();
            if plain {
                // A Send to a plain peer is over when it has left, whatever becomes of it.
                let sends = matches!(refused, Refused::LongSend | Refused::NoWindow);
                let known = FRONT as usize + usize::from(!sends);
                outcomes.truncate(known);
                expected.truncate(known);
            }
            assert_eq!(outcomes, expected, "{name}");
            assert_eq!(p.queue_pair.state(), QueuePairState::Error, "{name}");
            let [sink, _, _, word] = &buffers;
            let bytes = a.arena.read(sink.address, PIECE as usize * 8).unwrap();
            let held = p.arena.read(word.address, 8).unwrap();
            let done = u64::from_ne_bytes(held.try_into().unwrap());
            match front {
                Front::Reads => assert!(bytes.iter().all(|byte| *byte == 7), "{name}"),
                Front::Atomics => assert_eq!(done, FRONT, "{name}"),
                Front::Both => assert_eq!(done, FRONT / 2, "{name}"),
            }
            assert_eq!(ended(&pair, PASSIVE), Some(EndReason::Refused), "{name}");
            assert_eq!(ended(&pair, ACTIVE), Some(EndReason::PeerFailed), "{name}");
        }
    }
}

/// An answer whose memory is closed meanwhile is the first that fails, and those behind it do not leave.
#[test]
fn v67_answers_in_front_of_a_refusal_are_judged_as_ever() {
    let (mut pair, buffers) = little(&dialect::VERBS, Wires::transom());
    post(&mut pair, Front::Reads, Refused::LongSend, &buffers);
    while pair.hosts[ACTIVE].outcomes().is_empty() {
        pair.step();
    }
    let source = buffers[1].token;
    pair.hosts[PASSIVE].memory.deregister(source, Unless::default(), 0).unwrap();
    pair.pump();
    let outcomes = pair.hosts[ACTIVE].outcomes();
    let first = outcomes.iter().position(|(_, status)| !status.is_success()).unwrap();
    assert!(first < FRONT as usize - 1, "{outcomes:?}");
    assert_eq!(outcomes[first].1, Status::RemoteAccess);
    assert!(outcomes[first + 1..].iter().all(|(_, status)| *status == Status::Canceled));
    // The receive was not the cause any more.
    assert_eq!(pair.hosts[PASSIVE].outcomes(), [(20, Status::Canceled)]);
}

/// The peer learns of the refusal even so.
#[test]
fn v67_a_program_that_ends_the_connection_owes_no_answers() {
    for reset in [false, true] {
        let (mut pair, buffers) = little(&dialect::VERBS, Wires::transom());
        let status = post(&mut pair, Front::Reads, Refused::LongSend, &buffers);
        while pair.hosts[ACTIVE].outcomes().is_empty() {
            pair.step();
        }
        assert_eq!(ended(&pair, PASSIVE), None, "answers are owed");
        assert_eq!(pair.hosts[PASSIVE].outcomes(), []);
        if reset {
            pair.reset(PASSIVE).unwrap();
        } else {
            pair.disconnect(PASSIVE, 50).unwrap();
        }
        pair.pump();
        let outcomes = pair.hosts[ACTIVE].outcomes();
        let refused = outcomes.iter().find(|(context, _)| *context == FRONT + 1);
        assert_eq!(refused, Some(&(FRONT + 1, status)), "{outcomes:?}");
        let receive = [(20, Status::ReceiveTooSmall)];
        let left = pair.hosts[PASSIVE].outcomes();
        assert_eq!(left, if reset { &[][..] } else { &receive[..] });
    }
}
