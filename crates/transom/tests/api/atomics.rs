//! Atomics on a word of the owner.

use std::sync::atomic::Ordering;

use transom::{Adapter, ErrorKind, Grant, Rights, Rule};

use crate::{Pair, here};

/// ND2 5.5 (c).
/// Two peers and the owner's own program add to one word; a lock is taken once.
#[test]
fn v95_atomics_of_peers_and_of_the_owner_see_one_order() {
    const TURNS: u64 = 500;
    let owner = Adapter::open(here().ip()).unwrap();
    let memory = owner.register(vec![0; 64]).unwrap();
    let at = (0..8).find(|at| memory.atomic_u64(*at).is_ok()).unwrap();
    let pair = || Pair::of(owner.clone(), Adapter::open(here().ip()).unwrap(), (4, 64));
    let pairs = [pair(), pair()];
    let lend = |pair: &Pair| {
        let window = pair.owner.bind(&memory, at..at + 16, Rights::ATOMIC).unwrap();
        pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        (window, Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap())
    };
    let lent = pairs.each_ref().map(lend);
    let mut seen: Vec<u64> = std::thread::scope(|all| {
        let peers = pairs.iter().zip(&lent).map(|(pair, (_, grant))| {
            all.spawn(move || {
                let old = pair.peer_adapter.register(vec![0; 16]).unwrap();
                let mine = (0..8).find(|at| old.atomic_u64(*at).is_ok()).unwrap();
                let add = || {
                    let sink = old.slice(mine..mine + 8);
                    pair.peer.fetch_add(grant.range(..8), 1, sink).unwrap().wait().unwrap();
                    old.atomic_u64(mine).unwrap().load(Ordering::Acquire)
                };
                (0..TURNS).map(|_| add()).collect::<Vec<u64>>()
            })
        });
        let peers: Vec<_> = peers.collect();
        let word = memory.atomic_u64(at).unwrap();
        let own: Vec<u64> = (0..TURNS).map(|_| word.fetch_add(1, Ordering::AcqRel)).collect();
        let theirs = peers.into_iter().flat_map(|peer| peer.join().unwrap());
        own.into_iter().chain(theirs).collect()
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..3 * TURNS), "each value was seen once");
    assert_eq!(memory.atomic_u64(at).unwrap().load(Ordering::Acquire), 3 * TURNS);
    let taken: Vec<u64> = (1..)
        .zip(pairs.iter().zip(&lent))
        .map(|(name, (pair, (_, grant)))| {
            let old = pair.peer_adapter.register(vec![7; 8]).unwrap();
            let lock = grant.range(8..16);
            pair.peer.compare_swap(lock, 0, name, old.slice(..)).unwrap().wait().unwrap();
            let mut bytes = [0; 8];
            old.copy_out(0, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        })
        .collect();
    assert_eq!(taken, [0, 1], "the first finds it free, the second finds the first");
}

/// An atomic that the peer may not do, or on no word, changes nothing and is explained.
#[test]
fn v95_an_atomic_that_is_refused_changes_nothing() {
    for (rights, range, rule) in [
        (Rights::READ | Rights::WRITE, 0..8, Rule::Right),
        (Rights::ATOMIC, 4..12, Rule::Aligned),
        (Rights::ATOMIC, 60..68, Rule::Bounds),
    ] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![5; 80]).unwrap();
        let at = (0..8).find(|at| memory.atomic_u64(*at).is_ok()).unwrap();
        let window = pair.owner.bind(&memory, at..at + 64, rights).unwrap();
        pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap();
        let old = pair.peer_adapter.register(vec![7; 8]).unwrap();
        for wrong in [grant.range(..7), grant.range(..9)] {
            let kind = pair.peer.fetch_add(wrong, 1, old.slice(..)).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::Invalid, "not posted");
        }
        let short = pair.peer.fetch_add(grant.range(..8), 1, old.slice(..7));
        assert_eq!(short.unwrap_err().kind(), ErrorKind::Invalid);
        let refused = pair.peer.fetch_add(grant.range(range), 1, old.slice(..)).unwrap();
        let error = refused.wait().unwrap_err();
        assert!(error.to_string().contains("atomic operation"), "{error}");
        let kind = if rule == Rule::Aligned { ErrorKind::Invalid } else { ErrorKind::Refused };
        assert_eq!(error.kind(), kind, "{error}");
        let ended = pair.owner.recv().wait().unwrap_err();
        assert_eq!(ended.denial().map(|denial| denial.rule), Some(rule));
        let mut bytes = [0; 80];
        memory.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 80]);
    }
}
