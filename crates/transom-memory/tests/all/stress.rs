//! Threads for real: an owner that revokes in a loop under peers that copy as fast as they can.
//! After each close the owner writes canaries; a copy that finds one was let in too late.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::common::*;
use transom_memory::*;

const READ: Rights = Rights::REMOTE_READ;
const OURS: u64 = 0x0a0a_0a0a_0a0a_0a0a;
const CANARY: u64 = 0xdead_dead_dead_dead;
const WORDS: usize = 64;

/// Bytes of an owner: at `base`, as the checks name them.
struct Bytes {
    words: Vec<AtomicU64>,
}

impl Bytes {
    fn new() -> Bytes {
        Bytes { words: (0..WORDS).map(|_| AtomicU64::new(OURS)).collect() }
    }

    fn fill(&self, value: u64) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// A copy that is slow enough to be caught in the middle.
    fn copy(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == OURS)
    }
}

fn register(memory: &Memory, segments: &[Segment]) -> Token {
    let scope = Scope::Domain(DOMAIN);
    let registration = Registration { scope, rights: ALL, base: BASE, segments };
    memory.register(&registration).unwrap()
}

/// `close` ends the window that `open` made; meanwhile two peers copy through the latest token
/// published.
fn revoke_in_a_loop(
    turns: u32,
    passes: bool,
    open: impl Fn(&Memory, Token) -> Token,
    close: impl Fn(&Memory, Token, Token),
) {
    let memory = memory();
    let bytes = Bytes::new();
    let length = (WORDS * 8) as u64;
    // Several segments for one in three, so that lists come and go too.
    let one = [Segment { host: HOST, length }];
    let two = [Segment { host: HOST, length: 64 }, Segment { host: 0, length: length - 64 }];
    let heard = AtomicU32::new(0);
    let done = AtomicBool::new(false);
    let copies = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let mut peers = Vec::new();
        for peer in 0..2 {
            let (memory, bytes, heard, done) = (&memory, &bytes, &heard, &done);
            let copies = &copies;
            peers.push(threads.spawn(move || {
                let mut lane = memory.lane();
                while !done.load(Ordering::Relaxed) {
                    let token = Token(heard.load(Ordering::Relaxed));
                    let ask = access(Purpose::RemoteRead, token, BASE, length);
                    let copy = |answer: Result<Grant<'_>, Box<Denial>>| {
                        if let Ok(grant) = answer {
                            let sum: u64 = grant.segments().map(|segment| segment.length).sum();
                            assert_eq!(sum, length);
                            assert!(bytes.copy(), "copied after the close had returned");
                            copies.fetch_add(1, Ordering::Relaxed);
                        }
                    };
                    if passes && peer == 0 {
                        let mut pass = memory.pass(&mut lane);
                        (0..5).for_each(|_| copy(pass.check(&ask, NOW)));
                    } else {
                        copy(memory.check(&mut lane, &ask, NOW));
                    }
                }
            }));
        }
        let standing = memory.reserve_region(Scope::Domain(DOMAIN)).unwrap();
        let mut turn = 0;
        // Enough turns, and enough of them with company.
        while turn < turns || copies.load(Ordering::Relaxed) < u64::from(turns) / 4 {
            if peers.iter().any(|peer| peer.is_finished()) {
                // The thread has failed, and says so when it is joined.
                break;
            }
            turn += 1;
            let segments = if turn % 3 == 0 { &two[..] } else { &one[..] };
            let region = if turn % 5 == 0 {
                let scope = Scope::Domain(DOMAIN);
                let registration = Registration { scope, rights: ALL, base: BASE, segments };
                memory.fast_register(standing, &registration).unwrap();
                standing
            } else {
                register(&memory, segments)
            };
            let token = open(&memory, region);
            heard.store(token.0, Ordering::Relaxed);
            let before = copies.load(Ordering::Relaxed);
            for _ in 0..turn % 50 * 20 {
                if copies.load(Ordering::Relaxed) > before + u64::from(turn % 4) {
                    break;
                }
                std::hint::spin_loop();
            }
            close(&memory, region, token);
            // The memory is its owner's again.
            bytes.fill(CANARY);
            std::hint::spin_loop();
            bytes.fill(OURS);
            if region == standing {
                match memory.close(standing, None, NOW) {
                    Ok(()) | Err(DeregisterError::NotLive(_)) => {}
                    other => panic!("{other:?}"),
                }
            } else if memory.counts(region).is_some() {
                memory.deregister(region, Unless::default(), NOW).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn bind(memory: &Memory, region: Token) -> Token {
    let length = (WORDS * 8) as u64;
    let token = memory
        .reserve(&WindowSpec { base: BASE, length, ..window_spec(region, READ) }, NOW)
        .unwrap();
    assert!(memory.activate(token));
    token
}

/// ND2 W14, R18, design rule 5.
#[test]
fn w14_stress_close() {
    revoke_in_a_loop(4_000, false, bind, |memory, _, token| {
        memory.close(token, Some(QP), NOW).unwrap();
    });
}

/// ND2 W20.
#[test]
fn w20_stress_close_queue_pair() {
    revoke_in_a_loop(4_000, true, bind, |memory, _, _| memory.close_queue_pair(QP, NOW));
}

/// ND2 R18, through the window and through the region's own token.
#[test]
fn r18_stress_deregister() {
    let direct = |_: &Memory, region| region;
    let end = |memory: &Memory, region, _| {
        // A standing token is suspended, others go.
        if memory.close(region, None, NOW).is_err() {
            memory.deregister(region, Unless::default(), NOW).unwrap();
        }
    };
    revoke_in_a_loop(4_000, true, direct, end);
    let from_below = |memory: &Memory, region, token| {
        if memory.counts(region).unwrap().windows == 1 && region != token {
            memory.close(token, None, NOW).unwrap();
            end(memory, region, token);
        }
    };
    revoke_in_a_loop(2_000, false, bind, from_below);
}

/// Everything at once: closers of all kinds race for the same windows, and the books stay right.
#[test]
fn closers_of_all_kinds_race() {
    let memory = memory();
    let region = region(&memory, ALL);
    std::thread::scope(|threads| {
        for closer in 0..3_u32 {
            let memory = &memory;
            threads.spawn(move || {
                let mut lane = memory.lane();
                for turn in 0..3_000 {
                    let token = memory.reserve(&window_spec(region, READ), NOW).unwrap();
                    let active = memory.activate(token);
                    let ask = access(Purpose::RemoteRead, token, BASE + 0x1000, 64);
                    let granted = memory.check(&mut lane, &ask, NOW).is_ok();
                    assert!(active || !granted);
                    match (turn + closer) % 4 {
                        0 => memory.close_queue_pair(QP, NOW),
                        1 => drop(memory.close(token, Some(QP), NOW)),
                        2 => drop(memory.close_for_peer(token, &actor(QP), NOW)),
                        _ => {
                            memory.abandon(token, NOW);
                            drop(memory.close(token, None, NOW));
                        }
                    }
                    assert!(memory.check(&mut lane, &ask, NOW).is_err());
                }
            });
        }
    });
    assert_eq!(memory.counts(region), Some(Counts::default()));
    let busy = Unless { windows: true, ..Unless::default() };
    memory.deregister(region, busy, NOW).unwrap();
}
