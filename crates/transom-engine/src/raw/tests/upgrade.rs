//! Attacks of other processes on the upgrade socket, and on the memory that they offer there.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use transom_process::upgrade::PendingOffers;

use super::harness::*;
use super::processes::{alone, child_of, connected_with, parent};
use crate::Status;
use crate::driver::Link;
use crate::raw::{HalfOpen, Options, Path, PathReason};
use crate::sys::{Local, LocalListener, Region, hit, now};

fn process() -> Options {
    Options { path: Path::Process, ..Options::from_env() }
}

fn name(at: SocketAddr) -> String {
    format!("transom/process/{at}")
}

pub(super) const NONCE: [u8; 16] = *b"0123456789abcdef";

pub(super) fn hello(nonce: [u8; 16], others: u8) -> Vec<u8> {
    [&b"TRANSOM6"[..], &nonce, &[others]].concat()
}

/// A connection to the upgrade socket, to which memory may come.
pub(super) fn offerer(at: SocketAddr) -> Local {
    let local = Local::connect(&name(at)).unwrap();
    local.take_descriptors();
    local
}

/// Ask for memory under a nonce: the answer's last byte.
pub(super) fn ask(at: SocketAddr, nonce: [u8; 16]) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[*b"Transom process1", nonce].concat()).unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..15], *b"Transom process");
    (stream, answer[15])
}

fn hand_over_all(local: &Local, bytes: &[u8], fds: &[&OwnedFd]) -> rustix::io::Result<()> {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(local.fd(), &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// Memory of `size` bytes with these seals.
fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let fd = fd.unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Descriptors of this process, and its mappings of shared memory.
fn belongings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:")).count();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), mapped)
}

/// Design rule 9: whatever is offered, start-up goes on over TCP, and nothing of it stays.
#[test]
fn what_is_no_proper_offer_is_declined() {
    if !alone("upgrade::what_is_no_proper_offer_is_declined") {
        return;
    }
    let passive = End::new(&process());
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    join_at(&End::new(&process()), &passive, &listener);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let before = belongings();
    let strange = [&hello(NONCE, 0)[..24], &[2]].concat();
    for (what, bytes) in [
        ("nothing", vec![]),
        ("one byte", vec![b'T']),
        ("another layout", [&b"TRANSOM5"[..], &NONCE, &[0]].concat()),
        ("half a greeting", hello(NONCE, 0)[..20].to_vec()),
        ("an option that is none", strange),
    ] {
        let local = Local::connect(&name(at)).unwrap();
        if !bytes.is_empty() {
            local.send(&bytes).unwrap();
        }
        assert_eq!(ask(at, NONCE).1, b'-', "{what}");
    }
    // Descriptors are no part of an offer. The system lets none through, or all of them are closed.
    for count in [1, 200] {
        let local = Local::connect(&name(at)).unwrap();
        let fds: Vec<&OwnedFd> = std::iter::repeat_n(&pipe, count).collect();
        let _ = hand_over_all(&local, &hello(NONCE, 0), &fds);
        assert_eq!(ask(at, NONCE).1, b'-', "{count} descriptors");
    }
    // The right offer under another nonce; and once more, under its own, twice.
    let local = offerer(at);
    local.send(&hello(NONCE, 0)).unwrap();
    assert_eq!(ask(at, *b"fedcba9876543210").1, b'-', "a nonce that nobody has brought");
    let (stream, answer) = ask(at, NONCE);
    assert_eq!(answer, b'+');
    assert_eq!(ask(at, NONCE).1, b'-', "what was claimed is gone");
    drop((local, stream));
    until("nothing of it stays", || {
        // Pending offers are looked at when a connection arrives.
        let _ = TcpStream::connect(at);
        let now = belongings();
        now.0 <= before.0 && now.1 <= before.1
    });
    let active = End::new(&process());
    let other = End::in_domain(&passive.adapter, passive.domain);
    join_at(&active, &other, &listener);
    assert_eq!(active.connector.info().unwrap().path, "process");
}

/// Design rule 9: memory that is not as it must be is not mapped, whoever says yes. The connection ends, the peer is
/// asked once more over TCP, and nothing of it stays.
#[test]
fn memory_that_is_not_as_it_must_be_is_not_mapped() {
    if !alone("upgrade::memory_that_is_not_as_it_must_be_is_not_mapped") {
        return;
    }
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let (_, good) = Region::create().unwrap();
    let size = rustix::fs::fstat(&good).unwrap().st_size as u64;
    drop(good);
    let right = memory(size, all);
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let unsealed = memory(size, SealFlags::empty());
    let shrinkable = memory(size, SealFlags::GROW | SealFlags::SEAL);
    let unsealable = memory(size, SealFlags::SHRINK);
    let small = memory(size - 4096, all);
    let large = memory(size * 2, all);
    let frozen = memory(size, all | SealFlags::WRITE);
    let many: Vec<&OwnedFd> = std::iter::repeat_n(&right, 200).collect();
    let end = End::new(&process());
    let before = belongings();
    let cases: [(&str, Vec<&OwnedFd>); 10] = [
        ("nothing", vec![]),
        ("a file", vec![&file]),
        ("a pipe", vec![&pipe]),
        ("memory without seals", vec![&unsealed]),
        ("memory that may shrink", vec![&shrinkable]),
        ("memory whose seals may change", vec![&unsealable]),
        ("too little memory", vec![&small]),
        ("too much memory", vec![&large]),
        ("memory that cannot be written", vec![&frozen]),
        ("the right memory two hundred times", many),
    ];
    for (what, fds) in cases {
        let end = End::in_domain(&end.adapter, end.domain);
        let (told, (socket, mut stream), local) = asked(&end);
        hand_over_all(&local, &[0], &fds).unwrap();
        stream.write_all(b"Transom process+").unwrap();
        let (mut again, _) = socket.accept().unwrap();
        let mut request = [0; 16];
        again.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"MPA ID Req Frame", "{what}");
        drop((again, stream, socket));
        assert_eq!(told.wait(), Status::ConnectionRefused, "{what}");
        assert_eq!(maps_of_rings(), 0, "{what}");
    }
    until("nothing of it stays", || {
        let now = belongings();
        now.0 <= before.0 && now.1 <= before.1
    });
    // The right memory is mapped, and start-up begins there.
    let (told, (socket, mut stream), local) = asked(&end);
    hand_over_all(&local, &[0], &[&right]).unwrap();
    stream.write_all(b"Transom process+").unwrap();
    until("the rings are there", || maps_of_rings() == 1);
    drop((socket, stream, local));
    assert_ne!(told.wait(), Status::Success);
}

/// A listener of the test's own, which an end has asked whether it shares memory; and what the end is told.
fn asked(end: &End) -> (Signal, (TcpListener, TcpStream), Local) {
    asked_from(end, loopback())
}

/// As [`asked`], from this address.
fn asked_from(end: &End, own: SocketAddr) -> (Signal, (TcpListener, TcpStream), Local) {
    let socket = TcpListener::bind(loopback()).unwrap();
    let at = socket.local_addr().unwrap();
    let upgrades = LocalListener::open(&name(at)).unwrap();
    let (sink, told) = signal();
    end.connector.bind(own).unwrap();
    end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
    let (mut stream, _) = socket.accept().unwrap();
    let mut question = [0; 32];
    stream.read_exact(&mut question).unwrap();
    assert_eq!(question[..16], *b"Transom process1");
    let local = upgrades.accept().unwrap();
    let mut offer = [0; 64];
    let (count, fd) = local.receive_handover(&mut offer).unwrap();
    assert!(count == 25 && fd.is_none(), "an offer brings no descriptor");
    assert_eq!(offer[8..24], question[16..]);
    (told, (socket, stream), local)
}

/// The connection that went before has the same two addresses, where the program has named its port: it lets go of them
/// before the next one is made.
#[test]
fn tcp_is_asked_from_the_port_that_was_named() {
    let end = End::new(&process());
    let own = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let (told, (socket, mut stream), local) = asked_from(&end, own);
    stream.write_all(b"Transom process+").unwrap();
    // The listener says that there is memory, and hands none over.
    let _ = hand_over_all(&local, &[0], &[]);
    let (mut again, from) = socket.accept().unwrap();
    assert_eq!(from, own);
    let mut request = [0; 16];
    again.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"MPA ID Req Frame");
    drop((again, stream, socket, local));
    assert_eq!(told.wait(), Status::ConnectionRefused);
}

/// Rings that are mapped, of the process's.
fn maps_of_rings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:test")).count()
}

/// iW 14, for the upgrade socket: processes that connect and say nothing take a limited number of
/// places, processes of other users take none, and the next honest one is accepted.
#[test]
fn a_flood_of_offers_takes_bounded_room_and_ends() {
    if !alone("upgrade::a_flood_of_offers_takes_bounded_room_and_ends") {
        return;
    }
    let passive = End::new(&process());
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let active = End::new(&process());
    let before = belongings().0;
    // More than the system keeps for us: the rest is turned away there.
    let mut offers = Vec::new();
    while let Ok(local) = Local::connect(&name(at)) {
        offers.push(local);
        assert!(offers.len() < 5000, "the system keeps a bounded number");
    }
    let connect = || {
        let ends = [&active, &passive].map(|end| End::in_domain(&end.adapter, end.domain));
        join_at(&ends[0], &ends[1], &listener);
        ends[0].connector.info().unwrap().path_reason
    };
    // The first may find too many offers waiting, or too many that wait to be released: then it takes TCP and
    // says so.
    let first = connect();
    let reasons = [PathReason::UpgradeListenerBusy, PathReason::Declined, PathReason::Proven];
    assert!(reasons.contains(&first), "{first:?}");
    until("the next is let in", || connect() == PathReason::Proven);
    let held = belongings().0.saturating_sub(before + offers.len());
    assert!(held < 300, "{held} descriptors are held for those who say nothing");
    drop(offers);
    until("they are forgotten", || {
        connect();
        belongings().0 <= before + 20
    });
}

/// Any user can make offers again and again: of those that wait, a new connection accepts a few.
#[test]
fn a_flood_of_offers_keeps_no_established_connection_waiting() {
    if !alone("upgrade::a_flood_of_offers_keeps_no_established_connection_waiting") {
        return;
    }
    let passive = End::new(&process());
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let connect = || Local::connect(&name(at)).unwrap();
    let offers: Vec<_> = (0..200).map(|_| connect()).collect();
    let before = belongings().0;
    for connections in 1..=3 {
        let stream = TcpStream::connect(at).unwrap();
        until("it is let in", || passive.adapter.counters().links == connections);
        std::mem::forget(stream);
        let accepted = belongings().0 - before - 2 * connections;
        assert_eq!(accepted, 16 * connections);
    }
    // A question for an offer that nobody has made.
    let (_stream, answer) = ask(at, NONCE);
    assert_eq!(answer, b'-');
    let accepted = belongings().0 - before - 2 * 4;
    assert!(accepted <= 16 * 4 + 2 * 64, "{accepted}");
    drop(offers);
}

/// iW 14 limits peers that are not known yet. A process that has proven to be of this user is: its place is
/// one among those that share memory, however long its program takes to go on.
#[test]
fn processes_that_have_proven_themselves_take_no_place_of_start_up() {
    let half_open = HalfOpen { total: 2, per_address: 2 };
    let passive = End::new(&Options { half_open, ..process() });
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let slow: Vec<_> = (0..5_u8)
        .map(|turn| {
            let local = offerer(at);
            local.send(&hello([turn; 16], 0)).unwrap();
            let (stream, answer) = ask(at, [turn; 16]);
            assert_eq!(answer, b'+', "the peer of turn {turn}");
            (local, stream)
        })
        .collect();
    let soon = now().after(Duration::from_secs(30));
    let links = Link::all(&passive.adapter.0.shared);
    let waits = |link: &Arc<Link>| link.overview().connection.time_outs.into_iter().flatten().min();
    assert_eq!(links.iter().filter(|link| waits(link) > Some(soon)).count(), 5);
    let active = End::new(&process());
    join_at(&active, &passive, &listener);
    assert_eq!((active.connector.info().unwrap().path, listener.turned_away()), ("process", 0));
    drop(slow);
}

/// A process of this user that finds no place among those that share memory is known as well, and has a place
/// that is limited all the same.
#[test]
fn proven_processes_without_memory_to_share_are_limited() {
    let half_open = HalfOpen { total: 4, per_address: 2 };
    let passive = End::new(&Options { half_open, shared_links: 0, ..process() });
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let mut slow = Vec::new();
    let offer = |turn: u8| {
        let local = offerer(at);
        local.send(&hello([turn; 16], 0)).unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        let _ = stream.write_all(&[&b"Transom process1"[..], &[turn; 16]].concat());
        let mut answer = [0; 16];
        let answered = stream.read_exact(&mut answer).is_ok();
        answered.then_some((local, stream))
    };
    for turn in 0..20 {
        slow.extend(offer(turn));
    }
    assert_eq!((slow.len(), listener.turned_away()), (4 + 2, 14));
    drop(slow);
    until("their places are free", || offer(77).is_some());
}

/// Where more offers wait than there are places for, those that were made first are there when they are claimed.
#[test]
fn offers_are_claimed_in_their_order_however_many_wait() {
    if !alone("upgrade::offers_are_claimed_in_their_order_however_many_wait") {
        return;
    }
    let passive = End::new(&Options { shared_links: 4, ..process() });
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let nonce = |turn: u32| [turn.to_ne_bytes(); 4].concat().try_into().unwrap();
    let offers: Vec<_> = (0..300)
        .map(|turn| {
            let local = offerer(at);
            let made = Instant::now();
            local.send(&hello(nonce(turn), 0)).unwrap();
            (local, made)
        })
        .collect();
    for (turn, (local, made)) in (0..).zip(offers) {
        let (stream, answer) = ask(at, nonce(turn));
        let taken = matches!(answer, b'+' | b'#');
        // A busy machine may come to an offer when its time is over.
        assert!(
            taken || made.elapsed() >= PendingOffers::<Local>::PATIENCE,
            "turn {turn}: {}",
            char::from(answer)
        );
        drop((stream, local));
    }
}

/// A listener that answers nonsense, or says yes without having what was handed over, gains nothing:
/// the connection takes TCP or ends.
#[test]
fn an_answer_that_proves_nothing_is_not_believed() {
    for (answer, goes_on) in [
        (&b"Transom process-"[..], true),
        (b"Transom process#", true),
        (b"Transom process\0", true),
        (b"transom process+", true),
        (b"Transom process+", false),
        (b"", false),
    ] {
        let socket = TcpListener::bind(loopback()).unwrap();
        let at = socket.local_addr().unwrap();
        let upgrades = LocalListener::open(&name(at)).unwrap();
        let end = End::new(&process());
        let (sink, told) = signal();
        end.connector.bind(loopback()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
        let (mut stream, _) = socket.accept().unwrap();
        let mut question = [0; 32];
        stream.read_exact(&mut question).unwrap();
        assert_eq!(question[..16], *b"Transom process1");
        // The offerer is sent away, with its offer.
        drop(upgrades.accept().unwrap());
        stream.write_all(answer).unwrap();
        // A retry would come in an older form, as over TCP.
        drop(socket);
        if goes_on {
            // Start-up goes on where it would have begun.
            let mut request = [0; 16];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"MPA ID Req Frame");
            drop(stream);
            assert_eq!(told.wait(), Status::ConnectionRefused);
        } else {
            // The peer's upgrade socket has ended, or this one, and so has the connection.
            drop((!answer.is_empty()).then_some(stream));
            assert_ne!(told.wait(), Status::Success);
        }
    }
}

/// Every place in the hand-over at which a process can die, and on whose side.
pub(super) const POINTS: [&str; 4] = [
    "offered, not asked",
    "asked, not answered",
    "handed over, not answered",
    "answered, start-up not begun",
];

/// A process that dies half-way leaves nothing, and the other side is not impressed.
#[test]
fn a_process_may_die_at_any_point_of_the_hand_over() {
    if let Some(at) = parent() {
        hit::arm();
        if std::env::var("TRANSOM_TEST_SIDE").as_deref() == Ok("active") {
            let _end = connected_with(at, &process());
        } else {
            // Listens, and tells the parent where by connecting to it over TCP.
            let end = End::new(&process());
            let listener = listening(&end);
            let plain = Options { path: Path::Tcp, ..Options::from_env() };
            let caller = End::new(&plain);
            let address = listener.address().unwrap().to_string();
            let (sink, _told) = signal();
            caller.connector.bind(loopback()).unwrap();
            caller.connector.connect(&caller.qp, at, LIMITS, address.as_bytes(), sink).unwrap();
            std::thread::sleep(PATIENCE);
        }
        unreachable!("it should have been killed");
    }
    if !alone("upgrade::a_process_may_die_at_any_point_of_the_hand_over") {
        return;
    }
    let test = "upgrade::a_process_may_die_at_any_point_of_the_hand_over";
    let adapter = End::new(&process());
    let listener = listening(&adapter);
    let at = listener.address().unwrap();
    let fresh = || End::in_domain(&adapter.adapter, adapter.domain);
    join_at(&fresh(), &fresh(), &listener);
    until("links end", || adapter.adapter.counters().links == 0);
    let before = belongings();
    for (point, side) in POINTS.into_iter().zip(["active", "active", "passive", "passive"]) {
        let env = [("TRANSOM_KILL_AT", point), ("TRANSOM_TEST_SIDE", side)];
        let mut peer = child_of(test, at, &env);
        if side == "passive" {
            let asked = fresh();
            let (sink, requested) = signal();
            listener.get_request(&asked.connector, sink).unwrap();
            assert_eq!(requested.wait(), Status::Success);
            let there = asked.connector.private_data().unwrap();
            let there = String::from_utf8(there).unwrap().parse().unwrap();
            let end = fresh();
            let (sink, told) = signal();
            end.connector.bind(loopback()).unwrap();
            end.connector.connect(&end.qp, there, LIMITS, b"", sink).unwrap();
            assert_ne!(told.wait(), Status::Success, "{point}");
        }
        assert_eq!(peer.wait().unwrap().signal(), Some(libc::SIGKILL), "{point} was not hit");
    }
    until("nothing is left", || {
        let _ = TcpStream::connect(at);
        let now = belongings();
        now.0 <= before.0 && now.1 <= before.1 && adapter.adapter.counters().shared_links == 0
    });
    join_at(&fresh(), &fresh(), &listener);
}

/// Two listeners, one after the other, at one port: the second has an upgrade socket at once.
#[test]
fn an_upgrade_socket_goes_with_its_listener() {
    let (active, passive) = (End::new(&process()), End::new(&process()));
    let mut at = loopback();
    let mut again = 0;
    let begin = Instant::now();
    while again < 10 {
        assert!(begin.elapsed() < PATIENCE, "the port is not given back");
        // Between two listeners another process can take the port: then any other port will do.
        let same = passive.adapter.listener(at).ok().filter(|_| at.port() != 0);
        let is_same = same.is_some();
        let listener = same.unwrap_or_else(|| passive.adapter.listener(loopback()).unwrap());
        if listener.listen(0).is_err() {
            at = loopback();
            continue;
        }
        at = listener.address().unwrap();
        let ends = [&active, &passive].map(|end| End::in_domain(&end.adapter, end.domain));
        join_at(&ends[0], &ends[1], &listener);
        assert_eq!(ends[0].connector.info().unwrap().path_reason, PathReason::Proven);
        again += usize::from(is_same);
    }
}

/// An upgrade socket is found whichever form of the address its listener was opened with.
#[test]
fn a_listener_at_all_addresses_has_an_upgrade_socket_for_each() {
    for (at, to) in [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1"), ("[::]:0", "127.0.0.1")] {
        let (active, passive) = (End::new(&process()), End::new(&process()));
        let Ok(listener) = passive.adapter.listener(at.parse().unwrap()) else {
            eprintln!("{at} is SKIPPED: this machine has no such address");
            continue;
        };
        listener.listen(0).unwrap();
        let to = SocketAddr::new(to.parse().unwrap(), listener.address().unwrap().port());
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        let (sink, connected) = signal();
        active.connector.bind((to.ip(), 0).into()).unwrap();
        active.connector.connect(&active.qp, to, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), Status::Success);
        let (sink, _accepted) = signal();
        passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
        assert_eq!(connected.wait(), Status::Success);
        active.connector.complete_connect().unwrap();
        assert_eq!(active.connector.info().unwrap().path_reason, PathReason::Proven, "{at} {to}");
    }
}

#[test]
fn a_dropped_listener_leaves_its_port_and_its_name_though_a_thread_still_serves_it() {
    let adapter = End::new(&process()).adapter;
    let listener = adapter.listener((adapter.address(), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.address().unwrap();
    // The background thread has these while it accepts.
    let served = listener.0.listener.clone();
    let upgrades = served.upgrades().unwrap();
    drop(listener);
    let next = adapter.listener(at).unwrap();
    next.listen(0).unwrap();
    assert!(next.0.listener.upgrades().is_ok());
    drop((served, upgrades));
}

#[test]
fn a_closed_listener_leaves_its_port_though_there_is_a_clone() {
    let passive = End::new(&process());
    let listener = passive.adapter.listener((passive.adapter.address(), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.address().unwrap();
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    let clone = listener.clone();
    listener.close().unwrap();
    assert_eq!(requested.wait(), Status::Canceled);
    passive.adapter.listener(at).unwrap().listen(0).unwrap();
    assert!(clone.get_request(&passive.connector, signal().0).is_err());
}
