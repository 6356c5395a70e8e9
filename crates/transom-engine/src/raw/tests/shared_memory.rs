//! Shared regions: memory that the peer's process maps, so that it copies once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use transom_memory::{Rights, Token};

use super::harness::*;
use super::processes::{accepted, alone, child_of, connected_with, parent, talking_child_of};
use super::rings::{process, read_note};
use super::users::{become_another_user, is_root};
use crate::raw::{Options, SharedMemory};
use crate::sys::host::hook;
use crate::sys::{IoError, Lent, hit};
use crate::{CompletionKind, Data, DenialCause, Flags, Operation, Request, Status};

const LENGTH: usize = 300_000;

/// A shared region of an end's adapter, registered.
pub(super) fn shared(end: &End) -> (SharedMemory, Buffer) {
    shared_of(end, LENGTH)
}

fn shared_of(end: &End, length: usize) -> (SharedMemory, Buffer) {
    let memory = end.adapter.shared_memory(length).unwrap();
    let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND;
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(memory.address()).unwrap());
    let buffer = Buffer::at(end, at, length, rights);
    (memory, buffer)
}

/// The bytes of one Write from `from` to `to`, of whatever round.
fn write(active: &End, (from, to): (&Buffer, &Buffer), window: Token, round: usize) -> Status {
    from.fill(|at| (at * 7 + round) as u8);
    let operation = Operation::Write { token: window.0, address: to.address() };
    active.post(operation, &[from.all()]);
    written(active)
}

/// How the Write that was posted last ends.
fn written(active: &End) -> Status {
    let completion = active.next();
    assert_eq!(completion.kind, CompletionKind::Write);
    completion.status
}

fn placed(end: &End) -> u64 {
    end.qp.0.qp.link().unwrap().placed()
}

fn maps() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:shared-by-transom")).count()
}

/// The first large Write hands the region over, later ones leave their bytes where they are.
#[test]
fn bytes_of_a_shared_region_cross_without_the_ring() {
    let (active, passive) = pair_with(&process());
    let (memory, from) = shared(&active);
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    assert_eq!((memory.peers(), memory.length()), (0, LENGTH));
    let mut before = 0;
    for round in 0..4 {
        assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
        assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 7 + round) as u8));
        let through = placed(&active) - before;
        before += through;
        // The pieces of the first Write that left before the answer took the ring.
        assert!(round == 0 || through == 0, "{through} bytes of round {round}");
    }
    let counters = active.adapter.counters();
    assert_eq!((counters.shared_regions, counters.lent_regions, memory.peers()), (1, 1, 1));
    let [lends, borrows] = [&active, &passive].map(|end| end.qp.0.qp.link().unwrap().overview());
    assert_eq!((lends.lent, lends.borrowed), ((1, LENGTH as u64), (0, 0)));
    assert_eq!((borrows.lent, borrows.borrowed), ((0, 0), (1, LENGTH as u64)));
    // A Send, in its receive.
    passive.qp.post_receive(1, &[to.all()]).unwrap();
    from.fill(|at| (at * 3) as u8);
    active.post(Operation::Send, &[from.all()]);
    assert_eq!(active.expect(CompletionKind::Send).status, Status::Success);
    assert_eq!(passive.expect(CompletionKind::Receive).length, LENGTH as u32);
    assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 3) as u8));
    assert_eq!(placed(&active), before);
    // Few bytes take the ring.
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.sge(0, 4095)]);
    active.expect(CompletionKind::Write);
    assert!(placed(&active) > before);
}

/// Take every descriptor that this process may have; drop them to have some again.
fn no_descriptors() -> Vec<std::fs::File> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limits }).unwrap();
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// The status of each adapter's thread of this process, which can be read when there is no other descriptor.
fn statuses() -> Vec<std::fs::File> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_adapters = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "transom\n")
    };
    tasks
        .filter(is_adapters)
        .map(|task| std::fs::File::open(task.join("status")).unwrap())
        .collect()
}

/// How often these threads have gone to sleep.
fn sleeps(statuses: &[std::fs::File]) -> u64 {
    use std::os::unix::fs::FileExt;
    let of = |status: &std::fs::File| -> u64 {
        let mut text = [0; 4096];
        let length = status.read_at(&mut text, 0).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    statuses.iter().map(of).sum()
}

/// A region is handed over to a process that has no descriptor for it: everything arrives meanwhile, no
/// thread looks for it again and again, the end of the peer is seen, and the region is taken later.
#[test]
fn a_process_without_descriptors_neither_spins_nor_misses_anything() {
    if !alone("shared_memory::a_process_without_descriptors_neither_spins_nor_misses_anything") {
        return;
    }
    let (active, passive) = pair_with(&process());
    let statuses = statuses();
    assert_eq!(statuses.len(), 2, "two adapters");
    let regions = [shared(&active), shared(&active)];
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    let link = passive.qp.0.qp.link().unwrap();
    let send = || {
        passive.qp.post_receive(1, &[to.all()]).unwrap();
        active.post(Operation::Send, &[regions[0].1.sge(0, 8)]);
        passive.expect(CompletionKind::Receive);
        active.expect(CompletionKind::Send);
    };
    send();
    // A thread that waits for the first time takes a descriptor.
    assert_eq!(active.cq.wait(Some(Duration::ZERO)), Ok(false));
    let (sink, gone) = signal();
    passive.connector.notify_disconnect(sink).unwrap();
    for (round, (_, from)) in regions.iter().enumerate() {
        let all = no_descriptors();
        assert_eq!(write(&active, (from, &to), window, round), Status::Success);
        assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 7 + round) as u8));
        until("a thread that waits hears nothing", || link.wait_here().interest().is_none());
        // A thread that spins never sleeps.
        let before = sleeps(&statuses);
        until("the thread sleeps between its looks", || sleeps(&statuses) >= before + 20);
        send();
        assert_eq!(link.overview().borrowed.0, round, "there is no descriptor for it");
        if round == 0 {
            drop(all);
            until("the region is taken", || link.overview().borrowed.0 == 1);
            until("a thread that waits hears", || link.wait_here().interest().is_some());
            assert_eq!(write(&active, (from, &to), window, 9), Status::Success);
        } else {
            active.qp.0.qp.link().unwrap().fail(crate::EndReason::Link(Status::Canceled));
            assert_eq!(gone.wait(), Status::Success);
        }
    }
}

/// The bytes of one Read from `from`, of whatever round, to `to`.
fn read(active: &End, (from, to): (&Buffer, &Buffer), window: Token, round: usize) -> Status {
    from.fill(|at| (at * 5 + round) as u8);
    active.post(Operation::Read { token: window.0, address: from.address() }, &[to.all()]);
    let completion = active.next();
    assert_eq!(completion.kind, CompletionKind::Read);
    completion.status
}

/// The owner of what is read copies it to a sink in a shared region itself.
#[test]
fn bytes_that_are_read_into_a_shared_region_cross_without_the_ring() {
    let (active, passive) = pair_with(&process());
    let (memory, to) = shared(&active);
    let from = passive.buffer(LENGTH);
    let window = passive.window(&from, Rights::REMOTE_READ);
    let mut before = 0;
    for round in 0..4 {
        assert_eq!(read(&active, (&from, &to), window, round), Status::Success);
        assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 5 + round) as u8));
        let through = placed(&passive) - before;
        before += through;
        assert!(round == 0 || through == 0, "{through} bytes of round {round}");
    }
    assert_eq!((memory.peers(), passive.qp.0.qp.link().unwrap().overview().borrowed.0), (1, 1));
    // Reads of few bytes among them keep their order, and a list of two entries takes the ring.
    let small = active.buffer(8);
    for (list, byte) in [(vec![small.all()], 1), (vec![to.all()], 2), (vec![small.all()], 3)] {
        from.fill(|_| byte);
        active.post(Operation::Read { token: window.0, address: from.address() }, &list);
        assert_eq!(active.expect(CompletionKind::Read).status, Status::Success);
        assert_eq!(small.bytes(), [if byte == 2 { 1 } else { byte }; 8]);
    }
    assert_eq!((to.bytes(), placed(&passive)), (vec![2; LENGTH], before));
}

/// Design rule 5: each piece is copied under a check of its own at the owner of what is read.
#[test]
fn a_window_that_is_closed_on_the_way_lets_no_further_piece_out() {
    let (active, passive) = pair_with(&process());
    let (_memory, to) = shared(&active);
    let from = passive.buffer(LENGTH);
    let window = passive.window(&from, Rights::REMOTE_READ);
    for round in 0..2 {
        assert_eq!(read(&active, (&from, &to), window, round), Status::Success);
    }
    let last = to.bytes()[LENGTH - 1];
    let adapter = passive.adapter.clone();
    let closing = Arc::new(Mutex::new(None));
    let (second, told) = (from.address() + 65_536, closing.clone());
    hook::before_copy(second..second + 1, move || {
        let (adapter, begun) = (adapter.clone(), Arc::new(std::sync::Barrier::new(2)));
        let here = begun.clone();
        let closing = std::thread::spawn(move || {
            here.wait();
            adapter.revoke(window)
        });
        begun.wait();
        // The close waits for this very copy, and marks the token dead first.
        while passive.adapter.is_open(window) {
            std::thread::yield_now();
        }
        *told.lock().unwrap() = Some((closing, passive));
    });
    assert_eq!(read(&active, (&from, &to), window, 9), Status::RemoteAccess);
    let (closing, _passive) = closing.lock().unwrap().take().unwrap();
    closing.join().unwrap().unwrap();
    assert_eq!(to.bytes()[LENGTH - 1], last);
}

/// The sink is checked when its bytes are said to be there, as if they came then.
#[test]
fn a_sink_that_is_no_longer_registered_fails_its_read() {
    let (active, passive) = pair_with(&process());
    let (memory, to) = shared(&active);
    let from = passive.buffer(LENGTH);
    let window = passive.window(&from, Rights::REMOTE_READ);
    for round in 0..2 {
        assert_eq!(read(&active, (&from, &to), window, round), Status::Success);
    }
    let (adapter, token) = (active.adapter.clone(), to.token);
    hook::before_copy(from.address()..from.address() + 1, move || adapter.close_region(token));
    assert_eq!(read(&active, (&from, &to), window, 9), Status::LocalAccess);
    drop(memory);
}

/// A region that is dropped while it is a sink: nothing lands in what its addresses become.
#[test]
fn a_sink_that_is_dropped_on_the_way_fails_its_read() {
    for piece in [0, 4] {
        let (active, passive) = pair_with(&process());
        let (memory, to) = shared(&active);
        let from = passive.buffer(LENGTH);
        let window = passive.window(&from, Rights::REMOTE_READ);
        for round in 0..2 {
            assert_eq!(read(&active, (&from, &to), window, round), Status::Success);
        }
        let (adapter, token) = (active.adapter.clone(), to.token);
        let memory = Mutex::new(Some(memory));
        let at = from.address() + piece * 65_536;
        hook::before_copy(at..at + 1, move || {
            adapter.close_region(token);
            drop(memory.lock().unwrap().take());
        });
        assert_eq!(read(&active, (&from, &to), window, 9), Status::LocalAccess);
        assert_eq!(active.adapter.counters().shared_regions, 0);
    }
}

/// Rule 1: the bytes of a Write land by the check of the target's owner, wherever they come from.
#[test]
fn the_owner_of_the_target_checks_each_piece_as_ever() {
    let (active, passive) = pair_with(&process());
    let (_memory, from) = shared(&active);
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    for round in 0..2 {
        assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
    }
    let before = to.bytes();
    passive.adapter.revoke(window).unwrap();
    assert_eq!(write(&active, (&from, &to), window, 5), Status::RemoteAccess);
    assert_eq!(to.bytes(), before);
}

/// A window that is closed between two pieces of a Write lets no further one in.
#[test]
fn a_window_closed_on_the_way_lets_no_further_piece_in() {
    let (active, passive) = pair_with(&process());
    let (_memory, from) = shared(&active);
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    for round in 0..2 {
        assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
    }
    let adapter = passive.adapter.clone();
    let closed = Arc::new(Mutex::new(None));
    let (second, told) = (to.address() + 65_536, closed.clone());
    // Between the check of the second piece and its copy: the close waits for that one.
    hook::before_copy(second..second + 1, move || {
        let closing = std::thread::spawn(move || adapter.revoke(window));
        *told.lock().unwrap() = Some(closing);
    });
    let status = write(&active, (&from, &to), window, 5);
    let closing = closed.lock().unwrap().take().unwrap();
    closing.join().unwrap().unwrap();
    assert!(matches!(status, Status::RemoteAccess | Status::Success), "{status:?}");
    let before = to.bytes();
    from.fill(|_| 0xEE);
    assert!(to.bytes() == before, "nothing is written behind a close");
}

#[test]
fn only_memory_that_was_made_to_be_shared_is_mapped() {
    let (active, passive) = pair_with(&process());
    let from = active.buffer(LENGTH);
    let (memory, _other) = shared(&active);
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    for round in 0..3 {
        assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
    }
    assert_eq!(memory.peers(), 0);
    assert!(placed(&active) >= 3 * LENGTH as u64);
}

/// Either side's option keeps the memory between its own four walls; the bytes arrive all the same.
#[test]
fn an_option_of_either_side_turns_it_off() {
    for (mine, theirs) in [(false, true), (true, false)] {
        let [active, passive] =
            [mine, theirs].map(|on| End::new(&Options { shared_regions: on, ..process() }));
        join(&active, &passive);
        let (memory, from) = shared(&active);
        let to = passive.buffer(LENGTH);
        let window = passive.window(&to, Rights::REMOTE_WRITE);
        for round in 0..3 {
            assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
            assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 7 + round) as u8));
        }
        assert_eq!(memory.peers(), 0);
        assert!(placed(&active) >= 3 * LENGTH as u64);
        let overview = passive.qp.0.qp.link().unwrap().overview();
        assert_eq!(overview.borrowed, (0, 0));
    }
}

/// A region that is dropped while its bytes are on their way: the owner of the target places no last
/// byte, and a record says whose doing that was. The drop may also meet a piece that its owner has not
/// handed over yet: the request then fails at its owner, as one whose pages are gone.
#[test]
fn a_region_dropped_on_the_way_never_gives_a_last_byte() {
    for piece in [0, 4] {
        let (active, passive) = pair_with(&process());
        let (memory, from) = shared(&active);
        let to = passive.buffer(LENGTH);
        let window = passive.window(&to, Rights::REMOTE_WRITE);
        for round in 0..2 {
            assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
        }
        let at = to.address() + piece * 65_536;
        let (dropped, drop_done) = std::sync::mpsc::channel();
        hook::before_copy(at..at + 1, move || {
            drop(memory);
            dropped.send(()).unwrap();
        });
        let last = to.bytes()[LENGTH - 1];
        let status = write(&active, (&from, &to), window, 5);
        drop_done.recv().unwrap();
        let cause = |end: &End| end.adapter.denials(|_| true).pop().map(|(_, record)| record.cause);
        match (status, cause(&active), cause(&passive)) {
            (Status::LocalAccess, Some(DenialCause::Vanished { token, .. }), _) => {
                assert_eq!(token, from.token.0);
            }
            (Status::RemoteError, _, Some(DenialCause::Other(why))) => {
                assert!(why.contains("shared region"), "{why}");
            }
            other => panic!("piece {piece}: {other:?}"),
        }
        assert_eq!(to.bytes()[LENGTH - 1], last, "piece {piece}: never the last byte");
    }
}

/// Nobody is to blame for a record that is read after its region was dropped and unmapped: the record
/// was written before the drop. The message is refused as if the region had been dropped under its copy.
#[test]
fn a_record_that_is_read_after_its_region_was_unmapped_is_no_violation() {
    let (active, passive) = pair_with(&process());
    let (memory, from) = shared(&active);
    let (_second, other) = shared(&active);
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    for round in 0..2 {
        assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
    }
    let active = Arc::new(active);
    let ordinary = Arc::new(active.buffer(8192));
    let at = to.address();
    let post = move |active: &End, sge| {
        active.post(Operation::Write { token: window.0, address: at }, &[sge]);
    };
    let through_ring = move |active: &End, sge| {
        let before = placed(active);
        post(active, sge);
        until("it lies in the ring", || placed(active) > before);
    };
    // While the first Write is copied, the others are written, in this order: one out of the region, one
    // that shows that its record stands in the ring, and one for which the next region is handed over.
    let (sender, filler) = (active.clone(), ordinary.clone());
    hook::before_copy(at..at + 1, move || {
        post(&sender, from.sge(0, 65_536));
        through_ring(&sender, filler.all());
        sender.adapter.close_region(from.token);
        drop(memory);
        through_ring(&sender, other.sge(0, 8192));
    });
    post(&active, ordinary.all());
    assert_eq!(written(&active), Status::Success);
    assert_eq!(written(&active), Status::RemoteError);
    assert_eq!(to.bytes()[65_535], ((65_535 * 7 + 1) % 256) as u8, "never the last byte");
    let records = passive.adapter.denials(|_| true);
    let (_, record) = records.last().unwrap();
    let DenialCause::Other(why) = record.cause else { panic!("{record:?}") };
    assert!(why.contains("shared region"), "{why}");
}

/// When a drop returns, the peer has nothing left to look at, whether it unmaps or not; and it unmaps.
#[test]
fn dropping_a_region_takes_its_pages_from_everybody() {
    if !alone("shared_memory::dropping_a_region_takes_its_pages_from_everybody") {
        return;
    }
    let (active, passive) = pair_with(&process());
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    // More than may be mapped at a time, one after the other.
    for round in 0..40 {
        let (memory, from) = shared(&active);
        for more in 0..2 {
            assert_eq!(write(&active, (&from, &to), window, round + more), Status::Success);
        }
        assert_eq!(memory.peers(), 1, "round {round}");
        until("the last one is unmapped", || maps() == 2); // by the thread for releases
        active.adapter.deregister(from.token).unwrap();
        drop(memory);
        assert_eq!(active.adapter.counters().shared_regions, 0);
    }
    drop((active, passive));
    until("the last one is unmapped", || maps() == 0);
}

/// Where the rings are shared with another user's process, because both sides ask for that, regions are not: none
/// is handed over, and one that the other process hands over nevertheless is not mapped.
#[test]
fn no_region_is_lent_to_another_user_that_shares_the_rings() {
    let name = "shared_memory::no_region_is_lent_to_another_user_that_shares_the_rings";
    let options = Options { other_users: true, ..process() };
    if let Some(at) = parent() {
        become_another_user();
        let end = connected_with(at, &options);
        assert_eq!(end.connector.info().unwrap().path, "process");
        let (to, note, grant) = (end.buffer(LENGTH), end.buffer(16), end.buffer(16));
        let (window, (memory, from)) = (end.window(&to, Rights::REMOTE_WRITE), shared(&end));
        note_of(&note, window, &to);
        for receive in [&grant, &end.buffer(1)] {
            end.qp.post_receive(9, &[receive.all()]).unwrap();
        }
        end.post(Operation::Send, &[note.all()]);
        end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
        end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
        let (token, address) = read_note(&grant);
        for _ in 0..3 {
            end.post(Operation::Write { token: token.0, address }, &[from.all()]);
            end.expect(CompletionKind::Write);
        }
        assert_eq!(memory.peers(), 0);
        let forced = Lent::create(LENGTH).unwrap();
        let link = end.qp.0.qp.link().unwrap();
        // The system lets it through, or not (Linux 6.16).
        let forced = link.bell.get().unwrap().hand_over(&[1], forced.fd().unwrap());
        assert!(matches!(forced, Ok(()) | Err(IoError::Forbidden)), "{forced:?}");
        end.post(Operation::Send, &[note.sge(0, 1)]);
        end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
        end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
        assert_eq!(maps(), 2, "only its own");
        return;
    }
    if !is_root(name) || !alone(name) {
        return;
    }
    let end = End::new(&options);
    let listener = listening(&end);
    let mut peer = child_of(name, listener.address().unwrap(), &[]);
    let (note, _gone) = accepted(&end, &listener, 2);
    end.expect(CompletionKind::Receive);
    let (token, address) = read_note(&note);
    let (memory, from) = shared(&end);
    let (to, answer) = (end.buffer(LENGTH), end.buffer(16));
    note_of(&answer, end.window(&to, Rights::REMOTE_WRITE), &to);
    for _ in 0..3 {
        end.post(Operation::Write { token: token.0, address }, &[from.all()]);
        end.expect(CompletionKind::Write);
    }
    end.post(Operation::Send, &[answer.all()]);
    end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
    end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]);
    let link = end.qp.0.qp.link().unwrap();
    let bell = link.bell.get().unwrap().fd();
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    until("what was handed over is taken", || rustix::net::recv(bell, &mut [0], look).is_err());
    let overview = link.overview();
    assert_eq!((overview.lent, overview.borrowed), ((0, 0), (0, 0)));
    assert_eq!((memory.peers(), maps()), (0, 1));
    end.post(Operation::Send, &[answer.sge(0, 1)]);
    end.expect(CompletionKind::Send);
    assert!(peer.wait().unwrap().success());
}

/// Regions of a peer take a part of the address space that this process may have, and leave the rest to its program.
#[test]
fn regions_of_a_peer_leave_address_space_to_the_program() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::io::{BufRead, BufReader};
    const REGIONS: usize = 16;
    const EACH: usize = 32 << 20;
    const SENT: u64 = 2;
    let test = "shared_memory::regions_of_a_peer_leave_address_space_to_the_program";
    let limit = getrlimit(Resource::As);
    if let Some(at) = parent() {
        setrlimit(Resource::As, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let end = connected_with(at, &process());
        let all: Vec<_> = (0..REGIONS).map(|_| shared_of(&end, EACH)).collect();
        for (_, from) in &all {
            for _ in 0..SENT {
                end.post(Operation::Send, &[from.sge(0, 4096)]);
                assert_eq!(end.expect(CompletionKind::Send).status, Status::Success);
            }
        }
        println!("\nthey are lent");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    if !alone(test) {
        return;
    }
    let end = End::new(&process());
    let listener = listening(&end);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let may_have = (size << 10) + (400 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(may_have), ..limit }).unwrap();
    let mut peer = talking_child_of(test, listener.address().unwrap(), &[]);
    let receives = REGIONS as u64 * SENT;
    let (_small, _gone) = accepted(&end, &listener, 0);
    let room = end.buffer(4096);
    for context in 0..receives {
        end.qp.post_receive(context, &[room.all()]).unwrap();
    }
    for _ in 0..receives {
        assert_eq!(end.expect(CompletionKind::Receive).status, Status::Success);
    }
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "they are lent"));
    let (regions, bytes) = end.qp.0.qp.link().unwrap().overview().borrowed;
    assert!((1..REGIONS).contains(&regions), "{regions}");
    assert!(bytes <= may_have / 4, "{bytes} of {may_have}");
    let mut more = Vec::<u8>::new();
    assert_eq!(more.try_reserve_exact(100 << 20), Ok(()));
    drop(peer.stdin.take());
    assert!(peer.wait().unwrap().success());
}

/// Write token and address of a buffer's window to a note.
fn note_of(note: &Buffer, window: Token, of: &Buffer) {
    let words = [u64::from(window.0), of.address()].map(u64::to_ne_bytes).concat();
    note.fill(|at| words[at]);
}

/// The most that are mapped over one connection; the others take the ring.
#[test]
fn only_so_many_are_mapped_over_one_connection() {
    let (active, passive) = pair_with(&process());
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    let all: Vec<_> = (0..20).map(|_| shared(&active)).collect();
    for round in 0..2 {
        for (_, from) in &all {
            assert_eq!(write(&active, (from, &to), window, round), Status::Success);
        }
    }
    let peers: usize = all.iter().map(|(memory, _)| memory.peers()).sum();
    assert_eq!(peers, transom_process::lending::MAPS);
}

/// Memory that is shared counts as a file: beyond the limit of these the system would end the process, so
/// that memory is nobody else's.
#[test]
fn beyond_the_limit_of_files_memory_stays_with_its_process() {
    if !alone("shared_memory::beyond_the_limit_of_files_memory_stays_with_its_process") {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (active, passive) = pair_with(&process());
    let to = passive.buffer(LENGTH);
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    let maximum = getrlimit(Resource::Fsize).maximum;
    for (most, peers) in [(LENGTH as u64 + 4096, 1), (LENGTH as u64 + 4095, 0)] {
        setrlimit(Resource::Fsize, Rlimit { current: Some(most), maximum }).unwrap();
        let (memory, from) = shared(&active);
        for round in 0..2 {
            assert_eq!(write(&active, (&from, &to), window, round), Status::Success);
            assert!(to.bytes().iter().enumerate().all(|(at, b)| *b == (at * 7 + round) as u8));
        }
        assert_eq!(memory.peers(), peers, "{most}");
        active.adapter.deregister(from.token).unwrap();
    }
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let end = End::new(&process());
    for length in [0, usize::MAX, (1 << 36) + 1] {
        let error = end.adapter.shared_memory(length).unwrap_err();
        assert_eq!(error.status, Status::InvalidParameter(0), "{error}");
    }
    assert_eq!(end.adapter.counters().shared_regions, 0);
}

/// Every place in the code of shared regions at which a process can die.
pub(super) const POINTS: [&str; 3] = [
    "a region handed over, not said",
    "a region mapped, not answered",
    "a region marked, its pages still there",
];

/// As for the rings: a process that is killed is a peer that disconnects, and nothing of it stays.
#[test]
fn a_peer_may_die_at_any_point_of_sharing_a_region() {
    let name = "shared_memory::a_peer_may_die_at_any_point_of_sharing_a_region";
    if let Some(at) = parent() {
        let end = connected_with(at, &process());
        let lent = end.buffer(LENGTH);
        let window = end.window(&lent, Rights::REMOTE_WRITE);
        let (note, grant) = (end.buffer(16), end.buffer(16));
        note_of(&note, window, &lent);
        end.qp.post_receive(9, &[grant.all()]).unwrap();
        end.post(Operation::Send, &[note.all()]);
        let mut seen = 0;
        while seen < 2 {
            seen += usize::from(end.next().status == Status::Success);
        }
        hit::arm();
        let (token, address) = read_note(&grant);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let (memory, from) = shared(&end);
            for _ in 0..2 {
                end.post(Operation::Write { token: token.0, address }, &[from.all()]);
                end.expect(CompletionKind::Write);
            }
            end.adapter.deregister(from.token).unwrap();
            drop(memory);
        }
        unreachable!("it should have been killed");
    }
    if !alone(name) {
        return;
    }
    let adapter = End::new(&process());
    let listener = listening(&adapter);
    for point in POINTS {
        let end = End::in_domain(&adapter.adapter, adapter.domain);
        let mut peer = child_of(name, listener.address().unwrap(), &[("TRANSOM_KILL_AT", point)]);
        let (note, gone) = accepted(&end, &listener, 1);
        end.expect(CompletionKind::Receive);
        let theirs = read_note(&note);
        let lent = end.buffer(LENGTH);
        let window = end.window(&lent, Rights::REMOTE_WRITE);
        let answer = end.buffer(16);
        note_of(&answer, window, &lent);
        end.post(Operation::Send, &[answer.all()]);
        end.expect(CompletionKind::Send);
        let mut first = Status::Success;
        while first == Status::Success {
            // A fresh one each time: the peer may not have been ready to die when it mapped the last.
            let (_memory, from) = shared(&end);
            for _ in 0..2 {
                let operation = Operation::Write { token: theirs.0.0, address: theirs.1 };
                let request = Request { context: 0, operation, flags: Flags::NONE };
                let posted = end.qp.post(&request, Data::Sges(&[from.all()]));
                first = posted.map_or_else(|error| error.status, |()| written(&end));
            }
            end.adapter.deregister(from.token).unwrap();
        }
        assert_ne!(first, Status::RemoteAccess, "{point}");
        assert_eq!(gone.wait(), Status::Success, "{point}");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(peer.wait().unwrap().signal(), Some(libc::SIGKILL), "{point} was not hit");
    }
    drop((adapter, listener));
    until("all of it is unmapped", || maps() <= POINTS.len());
}
