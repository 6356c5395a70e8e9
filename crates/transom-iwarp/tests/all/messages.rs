//! Messages between two streams.

use crate::common::{Got, Pair, memory};
use transom_iwarp::Config;
use transom_wire::{Role, StartUp, Verdicts};

fn exchange(mut pair: Pair) {
    pair.active.got.clear();
    pair.passive.got.clear();
    let long: Vec<u8> = (0..200_001u32).map(|i| (i * 7) as u8).collect();
    pair.active.send(b"one");
    pair.active.write(7, 0x1000, &long, true);
    pair.active.read(9, 0x2000, 150_000);
    pair.active.send(&long);
    pair.passive.send(b"two");
    pair.passive.read(11, 0, 5);
    pair.settle();
    assert_eq!(pair.active.violation, None);
    assert_eq!(pair.passive.violation, None);
    let passive: Vec<_> = pair
        .passive
        .taken()
        .into_iter()
        .filter(|got| !matches!(got, Got::Announced { .. } | Got::Done(_)))
        .collect();
    assert_eq!(
        passive,
        [
            Got::Send { data: b"one".to_vec(), solicited: false, invalidate: None },
            Got::Write { token: 7, address: 0x1000, data: long.clone() },
            Got::Asked { slot: passive_slot(&passive), token: 9, address: 0x2000, length: 150_000 },
            Got::Send { data: long.clone(), solicited: false, invalidate: None },
            Got::Read { id: 1, data: memory(11, 0, 5) },
        ]
    );
    let active = pair.active.taken();
    assert!(active.contains(&Got::Read { id: 2, data: memory(9, 0x2000, 150_000) }));
    assert!(active.contains(&Got::Done(3)), "{active:?}");
}

fn passive_slot(got: &[Got]) -> u32 {
    got.iter()
        .find_map(|got| if let Got::Asked { slot, .. } = got { Some(*slot) } else { None })
        .unwrap()
}

#[test]
fn between_transoms() {
    let pair = Pair::transoms();
    assert!(pair.active.wire.facts().unwrap().extension);
    assert_eq!(pair.passive.wire.facts().unwrap().verdicts, Verdicts::Acknowledged);
    exchange(pair);
}

#[test]
fn between_plain_peers() {
    let pair = Pair::plain();
    assert!(!pair.active.wire.facts().unwrap().extension);
    assert_eq!(pair.active.wire.facts().unwrap().verdicts, Verdicts::ProbedByRead);
    exchange(pair);
}

#[test]
fn without_checksum_and_gathered() {
    let config = |role| Config { checksum: false, ..Config::new(role) };
    let mut pair = Pair::connected(config(Role::Active), config(Role::Passive));
    assert!(!pair.active.wire.facts().unwrap().checksum);
    pair.active.gather = true;
    pair.passive.gather = true;
    exchange(pair);
}
