//! Random messages in random pieces arrive as they were. What hostile bytes do is in transom-fuzz.

use crate::common::{Got, LIMITS, Pair, Side, memory};
use proptest::prelude::*;
use transom_iwarp::{Config, Ready, Revision};
use transom_wire::{Message, Release, Role, Sending, StartUp};

#[derive(Clone, Debug)]
enum Op {
    Send { length: u32, solicited: bool, invalidate: Option<u32> },
    Write { token: u32, address: u64, length: u32, verdict: bool },
    Read { token: u32, address: u64, length: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![Just(0u32), 1..64u32, 1..5000u32, 65_400..65_600u32, 1..200_000u32];
    let address = prop_oneof![any::<u32>().prop_map(u64::from), Just(0u64), Just(!0u64 - 300_000)];
    prop_oneof![
        (length.clone(), any::<bool>(), any::<Option<u32>>())
            .prop_map(|(length, solicited, invalidate)| Op::Send { length, solicited, invalidate }),
        (any::<u32>(), address.clone(), length.clone(), any::<bool>()).prop_map(
            |(token, address, length, verdict)| Op::Write { token, address, length, verdict }
        ),
        (any::<u32>(), address, length).prop_map(|(token, address, length)| Op::Read {
            token,
            address,
            length
        }),
    ]
}

#[derive(Clone, Debug)]
struct Options {
    checksum: bool,
    extension: bool,
    peer_to_peer: bool,
    verdict_reads: bool,
    one: bool,
    ready: Ready,
    segment: u32,
    gather: bool,
}

fn options() -> impl Strategy<Value = Options> {
    let ready = prop_oneof![Just(Ready::Write), Just(Ready::Read)];
    let segment = prop_oneof![Just(0u32), Just(536), Just(1448), Just(65_483), 300..9000u32];
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.2),
        ready,
        segment,
        any::<bool>(),
    )
        .prop_map(
            |(checksum, extension, peer_to_peer, verdict_reads, one, ready, segment, gather)| {
                Options {
                    checksum,
                    extension,
                    peer_to_peer,
                    verdict_reads,
                    one,
                    ready,
                    segment,
                    gather,
                }
            },
        )
}

fn config(role: Role, options: &Options) -> Config {
    Config {
        checksum: options.checksum,
        extension: options.extension,
        peer_to_peer: options.peer_to_peer,
        verdict_reads: options.verdict_reads,
        revision: if options.one { Revision::One } else { Revision::Two },
        preferred_ready: options.ready,
        // Each would be one Write more than was posted.
        nudge: std::time::Duration::ZERO,
        ..Config::new(role)
    }
}

fn data(op: &Op) -> Vec<u8> {
    match op {
        Op::Send { length, .. } => memory(0x5EED, 0, *length as usize),
        Op::Write { address, length, .. } => memory(0xDA7A, *address, *length as usize),
        Op::Read { .. } => vec![],
    }
}

fn post(side: &mut Side, op: &Op) {
    let message = match *op {
        Op::Send { length, solicited, invalidate } => {
            Message::Send { length, solicited, invalidate, immediate: None }
        }
        Op::Write { token, address, length, verdict } => {
            Message::Write { token, address, length, verdict, immediate: None }
        }
        Op::Read { token, address, length } => {
            Message::Read { token, address, length, sink_token: 3, sink_address: address }
        }
    };
    side.post(message, &data(op));
}

/// The events that the other side must have seen, in order; and the reads that must have come back.
fn expected(ops: &[Op]) -> (Vec<Got>, Vec<Got>) {
    let (mut there, mut here) = (vec![], vec![]);
    for (id, op) in (0..).zip(ops) {
        match *op {
            Op::Send { solicited, invalidate, .. } => {
                there.push(Got::Send { data: data(op), solicited, invalidate });
            }
            Op::Write { token, address, .. } => {
                there.push(Got::Write { token, address, data: data(op) });
            }
            Op::Read { token, address, length } => {
                if length > 0 {
                    there.push(Got::Asked { slot: 0, token, address, length });
                }
                here.push(Got::Read { id, data: memory(token, address, length as usize) });
            }
        }
    }
    (there, here)
}

/// Carries bytes in pieces until neither side has anything to send.
fn carry(pair: &mut Pair, sizes: &[usize]) {
    let mut sizes = sizes.iter().cycle();
    let mut quiet = 0;
    while quiet < 3 {
        let mut said = false;
        for to_passive in [true, false] {
            let (from, to) = if to_passive {
                (&mut pair.active, &mut pair.passive)
            } else {
                (&mut pair.passive, &mut pair.active)
            };
            let bytes = from.talk();
            said |= !bytes.is_empty();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                to.feed(piece);
                rest = behind;
            }
        }
        if said {
            quiet = 0;
        } else {
            quiet += 1;
            pair.wait(std::time::Duration::from_millis(100));
            pair.active.wire.release(Release::Now);
            pair.passive.wire.release(Release::Now);
        }
    }
}

fn seen(side: &mut Side) -> (Vec<Got>, Vec<Got>, Option<u64>) {
    let (mut messages, mut reads, mut done) = (vec![], vec![], None);
    for got in side.taken() {
        match got {
            Got::Asked { token, address, length, .. } => {
                messages.push(Got::Asked { slot: 0, token, address, length });
            }
            Got::Send { .. } | Got::Write { .. } => messages.push(got),
            Got::Read { .. } => reads.push(got),
            Got::Done(id) => {
                assert!(done < Some(id), "verdicts go forward");
                done = Some(id);
            }
            _ => {}
        }
    }
    (messages, reads, done)
}

fn exchange(options: &Options, there: &[Op], back: &[Op], sizes: &[usize]) {
    let mut pair = Pair::new(config(Role::Active, options), config(Role::Passive, options));
    for side in [&mut pair.active, &mut pair.passive] {
        side.wire.set_segment_size(options.segment);
        side.gather = options.gather;
    }
    pair.connect(LIMITS, LIMITS);
    pair.active.taken();
    pair.passive.taken();
    for op in there {
        post(&mut pair.active, op);
    }
    for op in back {
        post(&mut pair.passive, op);
    }
    carry(&mut pair, sizes);
    assert_eq!((&pair.active.violation, &pair.passive.violation), (&None, &None));
    let (active, passive) = (seen(&mut pair.active), seen(&mut pair.passive));
    let (expected_there, expected_here) = (expected(there), expected(back));
    assert!(passive.0 == expected_there.0, "messages to the passive side");
    assert!(active.1 == expected_there.1, "reads of the active side");
    assert!(active.0 == expected_here.0, "messages to the active side");
    assert!(passive.1 == expected_here.1, "reads of the passive side");
    for (ops, done) in [(there, active.2), (back, passive.2)] {
        let last = ops.iter().rposition(|op| !matches!(op, Op::Read { .. }));
        assert_eq!(done, last.map(|id| id as u64), "every message is done");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_as_they_were(
        options in options(),
        there in prop::collection::vec(op(), 0..12),
        back in prop::collection::vec(op(), 0..12),
        sizes in prop::collection::vec(prop_oneof![1..4usize, 1..3000usize, Just(1 << 20)], 1..8),
    ) {
        // Pieces of a byte or two are slow work for megabytes.
        let few = sizes.iter().all(|size| *size < 4);
        let sizes = if few { vec![3, 70_000] } else { sizes };
        exchange(&options, &there, &back, &sizes);
    }
}
