//! Peers on the same host that write what they like into the shared memory, or die while they write.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use transom_memory::{Rights, Token};

use super::harness::*;
use super::processes::{accepted, alone, child_of, connected_with, parent};
use crate::dialect::Dialect;
use crate::raw::{Options, Path, PathReason};
use crate::sys::hit;
use crate::{Completion, CompletionKind, Data, Flags, Operation, Request, Status};

pub(super) fn process() -> Options {
    Options { path: Path::Process, ..Options::from_env() }
}

fn path_of(end: &End) -> &'static str {
    end.connector.info().unwrap().path
}

fn reasons(active: &End, passive: &End) -> [PathReason; 2] {
    [active, passive].map(|end| end.connector.info().unwrap().path_reason)
}

/// The suite of this layer: as it runs, over shared memory, and once more over TCP.
#[test]
fn the_same_tests_pass_over_tcp() {
    transom_testing::paths::again_over_tcp(
        &["raw::tests"],
        &["tests::rings", "tests::shared_memory", "tests::short", "tests::upgrade", "tests::users"],
    );
}

#[test]
fn two_adapters_of_one_user_share_memory_if_both_would() {
    let (active, passive) = pair_with(&process());
    assert_eq!([path_of(&active), path_of(&passive)], ["process", "process"]);
    assert_eq!(reasons(&active, &passive), [PathReason::Proven, PathReason::Proven]);
    let plain = Options { extension: false, ..process() };
    let end = |path| Options { path, ..Options::from_env() };
    for (one, other, why) in [
        (end(Path::Tcp), end(Path::Auto), [PathReason::TcpOnly, PathReason::NotAsked]),
        (end(Path::Auto), end(Path::Tcp), [PathReason::NoUpgradeListener, PathReason::TcpOnly]),
        (plain.clone(), process(), [PathReason::NoExtension, PathReason::NotAsked]),
        (process(), plain, [PathReason::NoUpgradeListener, PathReason::NoExtension]),
    ] {
        let (active, passive) = (End::new(&one), End::new(&other));
        join(&active, &passive);
        assert_eq!([path_of(&active), path_of(&passive)], ["tcp", "tcp"]);
        assert_eq!(reasons(&active, &passive), why);
    }
}

/// Shared memory is the default; an option or `TRANSOM_PATH=tcp` turns it off.
#[test]
fn shared_memory_is_what_two_adapters_of_one_user_choose_by_themselves() {
    if std::env::var_os("TRANSOM_PATH").is_none() {
        let (active, passive) = pair();
        assert_eq!([path_of(&active), path_of(&passive)], ["process", "process"]);
    }
}

/// Descriptors and memory last: the connections beyond a limit take TCP, whichever side's limit
/// it is, and places come back.
#[test]
fn only_so_many_connections_of_an_adapter_share_memory() {
    for (mine, theirs, why) in [
        (2, 9, [PathReason::Full, PathReason::NotAsked]),
        (9, 2, [PathReason::PeerFull, PathReason::Full]),
    ] {
        let [one, other] =
            [mine, theirs].map(|n| End::new(&Options { shared_links: n, ..process() }));
        let pairs: Vec<_> = (0..3)
            .map(|_| {
                let ends = [&one, &other].map(|end| End::in_domain(&end.adapter, end.domain));
                join(&ends[0], &ends[1]);
                ends
            })
            .collect();
        let paths: Vec<_> = pairs.iter().map(|[a, p]| (path_of(a), path_of(p))).collect();
        assert_eq!(paths, [("process", "process"), ("process", "process"), ("tcp", "tcp")]);
        assert_eq!(reasons(&pairs[2][0], &pairs[2][1]), why);
        let counts = [&one, &other].map(|end| end.adapter.counters().shared_links);
        assert_eq!(counts, [2, 2]);
        drop(pairs);
        until("places come back", || {
            [&one, &other].iter().all(|end| end.adapter.counters().shared_links == 0)
        });
        join(&one, &other);
        assert_eq!(path_of(&one), "process");
    }
}

/// Pages of this process's mappings of shared memory that hold something.
fn pages_in_use() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut total = 0;
    for line in text.lines() {
        if line.contains("memfd:transom") {
            ours = true;
        } else if ours && let Some(rest) = line.strip_prefix("Rss:") {
            total += rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            ours = false;
        }
    }
    total
}

/// A connection that has moved bulk data and is idle costs no more than one that has not.
#[test]
fn an_idle_connection_gives_back_what_its_bulk_data_took() {
    if let Some(at) = parent() {
        let end = connected_with(at, &process());
        let lent = end.buffer(400_000);
        let window = end.window(&lent, Rights::REMOTE_WRITE);
        let note = end.buffer(16);
        let words = [u64::from(window.0), lent.address()].map(u64::to_ne_bytes).concat();
        note.fill(|at| words[at]);
        end.post(Operation::Send, &[note.all()]);
        loop {
            std::thread::park();
        }
    }
    let name = "rings::an_idle_connection_gives_back_what_its_bulk_data_took";
    if !alone(name) {
        return;
    }
    let end = End::new(&process());
    let listener = listening(&end);
    let mut peer = child_of(name, listener.address().unwrap(), &[]);
    let (note, _gone) = accepted(&end, &listener, 1);
    end.expect(CompletionKind::Receive);
    let (token, address) = read_note(&note);
    let source = end.buffer(400_000);
    for _ in 0..4 {
        end.post(Operation::Write { token: token.0, address }, &[source.all()]);
        end.expect(CompletionKind::Write);
    }
    assert!(pages_in_use() > 300, "bulk data lies in the ring: {} KiB", pages_in_use());
    until("pages are given back", || pages_in_use() <= 64);
    // And it goes on.
    end.post(Operation::Write { token: token.0, address }, &[source.all()]);
    end.expect(CompletionKind::Write);
    peer.kill().unwrap();
    peer.wait().unwrap();
}

/// Small and large Writes and Sends both ways until something fails or the time is up; every request
/// completes. Returns how the first that failed ended.
fn traffic(end: &End, theirs: (Token, u64), until: Instant) -> Option<Status> {
    let source = end.buffer(200_000);
    let sizes = [8, 40, 5000, 200_000];
    let mut under_way = 0;
    let mut first = None;
    for round in 0.. {
        let over = first.is_some() || Instant::now() >= until;
        if over && under_way == 0 {
            break;
        }
        if !over {
            let operation = Operation::Write { token: theirs.0.0, address: theirs.1 };
            let request = Request { context: 0, operation, flags: Flags::NONE };
            let list = [source.sge(0, sizes[round % sizes.len()])];
            under_way += usize::from(end.qp.post(&request, Data::Sges(&list)).is_ok());
        }
        let mut some = [Completion::default(); 16];
        if under_way >= 4 || over {
            assert!(end.cq.wait(Some(PATIENCE)).unwrap(), "{under_way} requests never completed");
        }
        let count = end.cq.poll(&mut some);
        for c in some[..count].iter().filter(|c| c.kind == CompletionKind::Write) {
            under_way -= 1;
            if c.status != Status::Success {
                first = first.or(Some(c.status));
            }
        }
    }
    first
}

/// The descriptors and mappings of this process that the path uses.
fn belongings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("memfd:transom")).count();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| {
        let to = std::fs::read_link(fd.unwrap().path()).ok()?;
        to.to_string_lossy().contains("memfd:transom").then_some(())
    });
    (rings, files.count())
}

/// iW 14 for shared memory: the other side may change anything at any time. A connection ends, or not;
/// requests complete; no byte lands outside of what was granted; nothing is left behind. One process
/// plays both sides, so both suffer. The rest of the process is not impressed.
#[test]
fn noise_in_the_shared_memory_ends_a_connection_and_nothing_else() {
    if !alone("rings::noise_in_the_shared_memory_ends_a_connection_and_nothing_else") {
        return;
    }
    let (active, passive) = (End::new(&process()), End::new(&process()));
    join(&active, &passive);
    let canary = passive.buffer(4096);
    canary.fill(|_| 0x5a);
    for seed in 1..30_u64 {
        let [a, p] = [&active, &passive].map(|end| End::in_domain(&end.adapter, end.domain));
        join(&a, &p);
        let (mine, theirs) = (a.buffer(200_000), p.buffer(200_000));
        let lent = p.window(&theirs, Rights::REMOTE_WRITE);
        let back = a.window(&mine, Rights::REMOTE_WRITE);
        let (base, length) = a.qp.0.qp.link().unwrap().shared_memory().unwrap();
        // A mapping of the noise's own: the links unmap theirs when they end.
        // SAFETY: of length 0, it makes a second mapping of the same shared pages.
        let base = unsafe { libc::mremap(base as *mut _, 0, length, libc::MREMAP_MAYMOVE) };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base as usize;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut next = || {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    x
                };
                while !done.load(Ordering::Relaxed) {
                    // Mostly the slots, and mostly words that look like something.
                    let reach = if next() % 8 == 0 { length } else { 40_000 };
                    let at = (next() as usize % (reach / 8)) * 8;
                    // SAFETY: inside of the mapping, which is there until this scope is over.
                    let word = unsafe { &*((base + at) as *const AtomicU64) };
                    let value = match next() % 4 {
                        0 => next(),
                        1 => next() & 0xF_0000_000F,
                        2 => word.load(Ordering::Relaxed) ^ (1 << (next() % 64)),
                        _ => word.load(Ordering::Relaxed).wrapping_add(1),
                    };
                    word.store(value, Ordering::Relaxed);
                    if seed % 3 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let (there, here, address) = (&p, &a, mine.address());
            let end = Instant::now() + std::time::Duration::from_millis(30);
            scope.spawn(move || {
                // A side may wait for a record that the noise has overwritten: then the program
                // gives up.
                std::thread::sleep(std::time::Duration::from_millis(60));
                for end in [there, here] {
                    let _ = end.connector.disconnect(crate::raw::Sink::call(|_| ()));
                }
            });
            let other = scope.spawn(move || traffic(there, (back, address), end));
            let _ = traffic(&a, (lent, theirs.address()), end);
            let _ = other.join().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        // SAFETY: the mapping from above; the scope is over.
        unsafe { libc::munmap(base as *mut _, length) };
    }
    assert!(canary.bytes().iter().all(|b| *b == 0x5a), "nothing lands where nothing was lent");
    // The connection made first, of the same adapters, has not noticed.
    let window = passive.window(&canary, Rights::REMOTE_WRITE);
    let from = active.buffer(4096);
    active.post(Operation::Write { token: window.0, address: canary.address() }, &[from.all()]);
    active.expect(CompletionKind::Write);
    until("the rings of the others are unmapped", || belongings().0 <= 2);
    assert_eq!(belongings().1, 0, "no descriptor of shared memory outlives its hand-over");
}

/// Every place in the ring code at which a peer's process can die.
const POINTS: [&str; 6] = [
    "asleep, before looking again",
    "a record was read",
    "payload written, its record not",
    "a record written, nobody woken",
    "acknowledged, nobody woken",
    "about to wake",
];

/// ND2 4.5: a process that is killed is a peer that disconnects, wherever it is killed. What was
/// written before counts or does not; all requests complete; nothing is left behind.
#[test]
fn a_peer_may_die_at_any_point_of_the_ring_code() {
    if let Some(at) = parent() {
        let end = connected_with(at, &process());
        assert_eq!(path_of(&end), "process");
        let lent = end.buffer(200_000);
        let window = end.window(&lent, Rights::REMOTE_WRITE);
        let note = end.buffer(16);
        let words = [u64::from(window.0), lent.address()].map(u64::to_ne_bytes).concat();
        note.fill(|at| words[at]);
        let grant = end.buffer(16);
        end.qp.post_receive(9, &[grant.all()]).unwrap();
        end.post(Operation::Send, &[note.all()]);
        let mut seen = 0;
        while seen < 2 {
            seen += usize::from(end.next().status == Status::Success);
        }
        hit::arm();
        let theirs = read_note(&grant);
        let _ = traffic(&end, theirs, Instant::now() + PATIENCE);
        unreachable!("it should have been killed");
    }
    let name = "rings::a_peer_may_die_at_any_point_of_the_ring_code";
    if !alone(name) {
        return;
    }
    // Silence this long ends no connection: these end because the peer has gone.
    let silence = std::time::Duration::from_secs(3600);
    let dialect = Box::leak(Box::new(Dialect { silence, ..*process().dialect }));
    let options = Options { silence, dialect, ..process() };
    let adapter = End::new(&options);
    let listener = listening(&adapter);
    for point in POINTS {
        let end = End::in_domain(&adapter.adapter, adapter.domain);
        let mut peer = child_of(name, listener.address().unwrap(), &[("TRANSOM_KILL_AT", point)]);
        let (note, gone) = accepted(&end, &listener, 1);
        let c = end.expect(CompletionKind::Receive);
        assert_eq!(c.length, 16);
        let theirs = read_note(&note);
        let lent = end.buffer(200_000);
        let window = end.window(&lent, Rights::REMOTE_WRITE);
        let words = [u64::from(window.0), lent.address()].map(u64::to_ne_bytes).concat();
        let answer = end.buffer(16);
        answer.fill(|at| words[at]);
        end.post(Operation::Send, &[answer.all()]);
        end.expect(CompletionKind::Send);
        let first = traffic(&end, theirs, Instant::now() + PATIENCE);
        assert_eq!(gone.wait(), Status::Success, "{point}");
        assert!(first.is_some_and(|s| s != Status::RemoteAccess), "{point}: {first:?}");
        assert_eq!(peer.wait().unwrap().signal(), Some(libc::SIGKILL), "{point} was not hit");
    }
    until("all rings are unmapped", || belongings() == (0, 0));
    // This process went through the same code: no point is missing from the lists, or never passed.
    let seen = hit::seen();
    let listed: BTreeSet<_> = POINTS
        .into_iter()
        .chain(super::upgrade::POINTS)
        .chain(super::shared_memory::POINTS)
        .collect();
    assert!(seen.is_subset(&listed), "{seen:?}");
    assert!(seen.is_superset(&BTreeSet::from(POINTS)), "{seen:?}");
}

pub(super) fn read_note(note: &Buffer) -> (Token, u64) {
    let bytes = note.bytes();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    (Token(word(0) as u32), word(8))
}
