//! Tests of the copy, the page check and the sockets, on the real system.

pub(super) mod datagram;

use super::vanishing::{PAGE, Pages, WAYS};
use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use transom_wire::Atomic;

pub(super) fn put(host: u64, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: every test passes its own pages, mapped or vanished.
    unsafe { copy_in(host, bytes) }
}

fn get(host: u64, length: usize) -> Result<Vec<u8>, Fault> {
    let mut into = vec![0; length];
    // SAFETY: as above.
    unsafe { copy_out(host, &mut into) }.map(|()| into)
}

#[test]
fn copies_every_length_at_every_alignment_and_nothing_beside() {
    let pages = Pages::new();
    let source: Vec<u8> = (0..300u32).map(|i| (i % 251) as u8 + 1).collect();
    for offset in 0..16 {
        for length in (0..200).chain([255, 256, 257, 300]) {
            put(pages.at(0), &[0; 400]).unwrap();
            put(pages.at(offset + 8), &source[..length]).unwrap();
            let seen = get(pages.at(0), 400).unwrap();
            assert!(seen[..offset + 8].iter().all(|b| *b == 0), "{offset} {length}");
            assert_eq!(&seen[offset + 8..offset + 8 + length], &source[..length]);
            assert!(seen[offset + 8 + length..].iter().all(|b| *b == 0), "{offset} {length}");
        }
    }
}

/// Rule 8: whatever took the page away, the process lives and the report is exact to the byte.
#[test]
fn a_fault_reports_the_exact_bytes_placed() {
    for (name, vanish) in WAYS {
        let pages = vanish();
        for before in (0..130).chain([1000, PAGE]) {
            for after in [1, 2, 3, 7, 8, 9, 63, 64, 65, 1000] {
                let at = pages.at(PAGE - before);
                let source = vec![0xa5; before + after];
                put(at, &vec![0; before]).unwrap();
                assert_eq!(put(at, &source), Err(Fault { placed: before }), "{name} {after}");
                assert_eq!(get(at, before).unwrap(), vec![0xa5; before], "{name} {after}");
                let mut into = vec![0; before + after];
                // SAFETY: our own pages.
                let read = unsafe { copy_out(at, &mut into) };
                assert_eq!(read, Err(Fault { placed: before }), "{name} {after}");
                assert!(into[..before].iter().all(|b| *b == 0xa5));
            }
        }
    }
}

/// Copy `length` bytes at `host` to a place that another process reads.
fn share(host: u64, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the tests' own pages, mapped or vanished, and a live exclusive slice.
    unsafe { copy::copy_to_share(host, to.as_mut_ptr(), to.len()) }
}

/// Below and above the length from which on bytes are stored past the cache.
#[test]
fn what_is_shared_is_copied_at_every_alignment_and_nothing_beside() {
    let source: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8 + 1).collect();
    let mut room = vec![0; 5200];
    for offset in (0..64).chain([100]) {
        for length in [0, 1, 8, 63, 64, 65, 4095, 4096, 4097, 4159, 4160, 4161, 5000] {
            let from = source.len() - length;
            room.fill(0);
            share(source[from..].as_ptr() as u64, &mut room[offset..offset + length]).unwrap();
            assert_eq!(room[offset..offset + length], source[from..], "{offset} {length}");
            let beside = room[..offset].iter().chain(&room[offset + length..]);
            assert!(beside.copied().all(|byte| byte == 0), "{offset} {length}");
        }
    }
}

/// Rule 8, for a source that is gone: exactly the bytes in front of the page are there.
#[test]
fn what_is_shared_ends_at_a_page_that_is_gone() {
    for (name, vanish) in WAYS {
        let pages = vanish();
        put(pages.at(0), &[0xa5; PAGE]).unwrap();
        let mut room = vec![0; PAGE + 5000];
        for before in (0..130).chain([1000, PAGE - 1, PAGE]) {
            for offset in [0, 1, 16, 63] {
                room.fill(0);
                let to = &mut room[offset..offset + before + 4200];
                let shared = share(pages.at(PAGE - before), to);
                assert_eq!(shared, Err(Fault { placed: before }), "{name} {offset}");
                let (there, beyond) = to.split_at(before);
                assert!(there.iter().all(|byte| *byte == 0xa5), "{name} {before} {offset}");
                assert!(beyond.iter().all(|byte| *byte == 0), "{name} {before} {offset}");
            }
        }
    }
}

/// A record is published by a store behind its payload's. Seen to fail without the fence behind the copy.
#[test]
fn what_is_shared_is_there_before_any_later_store() {
    use std::sync::atomic::{AtomicU64, Ordering};
    #[repr(align(128))]
    struct Alone<T>(T);
    const WORDS: usize = 1024;
    const LAPS: u64 = 20_000;
    let memory = Alone([const { AtomicU64::new(0) }; WORDS]);
    let (published, read) = (Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0)));
    // At once where the other thread runs, too: the words are the longest on their way then.
    let wait = |word: &AtomicU64, lap| {
        for look in 1_u64.. {
            match (word.load(Ordering::Acquire) == lap, look % 4096) {
                (true, _) => return,
                (false, 0) => std::thread::yield_now(),
                (false, _) => std::hint::spin_loop(),
            }
        }
    };
    let (to, mut late) = (memory.0.as_ptr().addr(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut words = [0_u64; WORDS];
            for lap in 1..=LAPS {
                words.fill(lap);
                let into = std::ptr::with_exposed_provenance_mut(to);
                // SAFETY: `memory` outlives the scope and consists of atomics.
                unsafe { copy::copy_to_share(words.as_ptr() as u64, into, 8 * WORDS) }.unwrap();
                published.0.store(lap, Ordering::Release);
                wait(&read.0, lap);
            }
        });
        for lap in 1..=LAPS {
            wait(&published.0, lap);
            late +=
                usize::from(memory.0.iter().rev().any(|word| word.load(Ordering::Relaxed) != lap));
            read.0.store(lap, Ordering::Release);
        }
    });
    assert_eq!(late, 0, "laps whose words came behind the store that published them");
}

#[test]
fn a_read_only_page_can_be_read_and_not_written() {
    let pages = Pages::new();
    pages.protect_second(true);
    assert_eq!(put(pages.at(PAGE - 3), &[1; 10]), Err(Fault { placed: 3 }));
    assert_eq!(get(pages.at(PAGE - 3), 4).unwrap(), [1, 1, 1, 0]);
}

/// Addresses that no process can have: the processor raises another exception for those.
#[test]
fn an_impossible_address_is_a_fault_too() {
    assert_eq!(put(0x8000_0000_0000_0000, &[1; 100]), Err(Fault { placed: 0 }));
    assert_eq!(put(0, &[1; 8]), Err(Fault { placed: 0 }));
    assert_eq!(put(u64::MAX - 3, &[1; 8]), Err(Fault { placed: 0 }));
}

/// Rule 11: a reader that sees the last word sees all words before it.
#[test]
fn the_last_word_becomes_visible_after_all_others() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const WORDS: usize = 512;
    let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let host = memory.as_ptr() as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for lap in 1..=2000u64 {
                let bytes: Vec<u8> =
                    std::iter::repeat_n(lap.to_ne_bytes(), WORDS).flatten().collect();
                put(host, &bytes).unwrap();
            }
        });
        loop {
            let last = memory[WORDS - 1].load(Ordering::Acquire);
            for word in &memory {
                assert!(word.load(Ordering::Relaxed) >= last);
            }
            if last == 2000 {
                break;
            }
        }
    });
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn options() -> Options {
    Options { silence: Duration::from_secs(10), congestion: Some("cubic".into()) }
}

pub(super) fn pair() -> (Stream, Stream, SocketAddr, SocketAddr) {
    let listener = Listener::bind(loopback(), false).unwrap();
    listener.listen(16).unwrap();
    let at = listener.address().unwrap();
    let active = Stream::connect(Some(loopback()), at, &options()).unwrap();
    let quiet = Doorbell::new().unwrap();
    poll_any(&[(listener.fd(), false)], &quiet, None).unwrap();
    let (passive, from) = listener.accept(&options()).unwrap();
    assert_eq!(active.connected(), Ok(()));
    (active, passive, at, from)
}

#[test]
fn a_stream_carries_bytes_and_an_end() {
    let (active, passive, _, from) = pair();
    assert_eq!(active.local().unwrap(), from);
    assert_eq!(passive.receive(&mut [0; 8]), Err(IoError::NotNow));
    let (head, body) = (*b"head", *b"body");
    // SAFETY: both are alive.
    let sent = unsafe { active.send_many(&[Bytes::of(&head), Bytes::of(&body)]) };
    assert_eq!(sent, Ok(8));
    active.push();
    active.finish();
    let quiet = Doorbell::new().unwrap();
    poll_any(&[(passive.fd(), false)], &quiet, None).unwrap();
    let mut into = [0; 16];
    assert_eq!(passive.receive(&mut into), Ok(8));
    assert_eq!(&into[..8], b"headbody");
    poll_any(&[(passive.fd(), false)], &quiet, None).unwrap();
    assert_eq!(passive.receive(&mut into), Ok(0));
}

/// Rule 8: memory that is gone is a fault, not a signal; a prefix counts as sent.
#[test]
fn sending_memory_that_is_gone_faults() {
    let (active, _passive, ..) = pair();
    let pages = Pages::new();
    pages.unmap_second();
    // SAFETY: our own pages, of which one has vanished.
    let sent = unsafe { active.send_many(&[Bytes::host(pages.at(PAGE), 8)]) };
    assert_eq!(sent, Err(IoError::Fault));
}

/// Lists of addresses leave out the interface of one that is local to a link, and the system wants it.
#[cfg(not(windows))] // whose lists have the interface
#[test]
fn an_address_that_is_local_to_a_link_finds_its_interface() {
    let local = |one: &Interface| match one.address {
        std::net::IpAddr::V6(v6) => one.up && v6.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    };
    let Some(one) = interfaces().unwrap().into_iter().find(local) else {
        return eprintln!("SKIPPED: no interface has an address that is local to a link");
    };
    check_local(one.address).unwrap();
    let listener = Listener::bind(SocketAddr::new(one.address, 0), false).unwrap();
    let at = SocketAddr::new(one.address, listener.address().unwrap().port());
    let from = Some(SocketAddr::new(one.address, 0));
    listener.listen(1).unwrap();
    let stream = Stream::connect(from, at, &options()).unwrap();
    poll_any(&[(listener.fd(), false)], &Doorbell::new().unwrap(), None).unwrap();
    let (_, peer) = listener.accept(&options()).unwrap();
    assert_eq!(peer, stream.local().unwrap());
    assert!(matches!(peer, SocketAddr::V6(v6) if v6.scope_id() != 0), "{peer}");
}

#[test]
fn a_port_without_a_listener_refuses() {
    // Bound and not listening: no other socket gets the port meanwhile.
    let bound = Listener::bind(loopback(), false).unwrap();
    let at = bound.address().unwrap();
    let stream = match Stream::connect(None, at, &options()) {
        Err(e) => return assert_eq!(e, IoError::Refused),
        Ok(stream) => stream,
    };
    let quiet = Doorbell::new().unwrap();
    poll_any(&[(stream.fd(), true)], &quiet, None).unwrap();
    assert_eq!(stream.connected(), Err(IoError::Refused));
}

/// Whichever way the system is asked.
#[test]
fn a_loopback_peer_of_our_user_is_recognised() {
    for is_ours in own_tests::ways_to_know_a_peer() {
        let listener = Listener::bind(loopback(), false).unwrap();
        listener.listen(16).unwrap();
        let at = listener.address().unwrap();
        let active = Stream::connect(Some(loopback()), at, &options()).unwrap();
        let from = active.local().unwrap();
        poll_any(&[(listener.fd(), false)], &Doorbell::new().unwrap(), None).unwrap();
        assert!(!is_ours(from, at), "a socket that nobody has accepted is nobody's, not root's");
        let (passive, _) = listener.accept(&options()).unwrap();
        assert!(is_ours(at, from), "seen from the passive side");
        assert!(is_ours(from, at), "seen from the active side");
        drop(active);
        assert!(!is_ours(at, from), "a socket that nobody holds is nobody's");
        drop(passive);
    }
    let (_active, _passive, at, _) = pair();
    assert!(!peer_is_same_user(at, ([192, 0, 2, 1], 7).into()));
}

#[test]
fn the_machine_has_a_loopback_address() {
    let all = interfaces().unwrap();
    assert!(all.iter().any(|i| i.loopback && i.up && i.address.is_loopback()), "{all:?}");
}

#[test]
fn a_doorbell_wakes_and_a_oneshot_event_fires_once() {
    let epoll = Epoll::new().unwrap();
    let bell = Doorbell::new().unwrap();
    epoll.add(&bell, 7).unwrap();
    let mut keys = Vec::new();
    bell.ring();
    epoll.wait(&mut keys, Some(Duration::ZERO)).unwrap();
    assert!(keys.is_empty(), "not armed");
    epoll.arm(&bell, 7, true, false).unwrap();
    epoll.wait(&mut keys, None).unwrap();
    assert_eq!(keys, [7]);
    epoll.wait(&mut keys, Some(Duration::ZERO)).unwrap();
    assert_eq!(keys, [7], "one shot");
    assert!(bell.silence());
    assert!(!bell.silence());
}

#[test]
fn seeds_differ_and_time_goes_on() {
    assert_ne!(random_seed().unwrap(), random_seed().unwrap());
    let before = now();
    assert!(now() >= before);
}

fn change(host: u64, operation: Atomic) -> Result<u64, atomic::Vanished> {
    // SAFETY: every test passes its own pages, mapped or vanished, and a multiple of 8.
    unsafe { atomic::atomic(host, operation) }
}

#[test]
fn v95_an_atomic_changes_its_word_and_nothing_beside() {
    let pages = Pages::new();
    put(pages.at(0), &[0xEE; 24]).unwrap();
    put(pages.at(8), &41_u64.to_ne_bytes()).unwrap();
    let (compare, swap) = (42, 0x0102_0304_0506_0708);
    for (operation, old) in [
        (Atomic::CompareSwap { compare, swap }, 41),
        (Atomic::FetchAdd { add: 1 }, 41),
        (Atomic::CompareSwap { compare, swap }, 42),
        (Atomic::FetchAdd { add: u64::MAX }, swap),
    ] {
        assert_eq!(change(pages.at(8), operation), Ok(old), "{operation:?}");
    }
    let seen = get(pages.at(0), 24).unwrap();
    assert_eq!((&seen[..8], &seen[16..]), (&[0xEE; 8][..], &[0xEE; 8][..]));
    assert_eq!(seen[8..16], (swap - 1).to_ne_bytes());
}

/// Rule 8: the process lives, whatever took the page away; a page that may only be read is not changed,
/// not even by a comparison that fails.
#[test]
fn v95_an_atomic_on_pages_that_are_gone_changes_nothing() {
    let read_only = || {
        let pages = Pages::new();
        pages.protect_second(true);
        pages
    };
    let ways = WAYS.iter().copied().chain([("read-only", read_only as fn() -> Pages)]);
    for (name, vanish) in ways {
        let pages = vanish();
        for operation in [Atomic::FetchAdd { add: 1 }, Atomic::CompareSwap { compare: 7, swap: 8 }]
        {
            assert_eq!(change(pages.at(PAGE), operation), Err(atomic::Vanished), "{name}");
            assert_eq!(change(pages.at(PAGE - 8), operation), Ok(0), "{name}");
            put(pages.at(PAGE - 8), &[0; 8]).unwrap();
        }
        if name == "read-only" {
            assert_eq!(get(pages.at(PAGE), 8).unwrap(), [0; 8]);
        }
    }
    for host in [0, 0x8000_0000_0000_0000, u64::MAX - 7] {
        assert_eq!(change(host, Atomic::FetchAdd { add: 1 }), Err(atomic::Vanished));
    }
}

#[test]
fn v95_atomics_and_those_of_the_program_see_one_order() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const TURNS: u64 = 20_000;
    let word = AtomicU64::new(0);
    let host = (&raw const word) as u64;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    change(host, Atomic::FetchAdd { add: 1 }).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..TURNS {
                let mut compare = 0;
                loop {
                    let swap = compare + 1;
                    match change(host, Atomic::CompareSwap { compare, swap }).unwrap() {
                        old if old == compare => break,
                        old => compare = old,
                    }
                }
            }
        });
        (0..TURNS).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
    });
    assert_eq!(word.into_inner(), 4 * TURNS);
}

fn socket_options() -> Options {
    Options { silence: Duration::from_secs(60), congestion: None }
}

/// Whether a socket that shares may have it.
fn free(at: SocketAddr) -> bool {
    match Listener::bind(at, true) {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e, IoError::InUse);
            false
        }
    }
}

/// A port is reserved before a listener has it and after, beside connections from it, and until it
/// is given back; a connection to it is refused.
#[test]
fn a_reserved_port_is_its_holders() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let [first, second] = [(); 2].map(|()| std::net::TcpListener::bind(any).unwrap());
    let [to_first, to_second] = [&first, &second].map(|l| l.local_addr().unwrap());
    // The system gives this port to no socket that asks for any.
    let mut kept = Some(Listener::bind(any, true).unwrap());
    for named in [false, true] {
        let from = if named { kept.as_ref().unwrap().address().unwrap() } else { any };
        if named && cfg!(windows) {
            kept = None; // there, a socket that shares with none is in the way
        }
        let port = ReservedPort::take(from).unwrap();
        let at = port.address().unwrap();
        assert!(!free(at), "reserved");
        assert_eq!(ReservedPort::take(at).unwrap_err(), IoError::InUse);
        let refused = std::net::TcpStream::connect(at).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

        let connect = |to| port.lend(|| Stream::connect(Some(at), to, &socket_options()));
        let streams = [connect(to_first).unwrap(), connect(to_second).unwrap()];
        assert_eq!(streams.each_ref().map(|s| s.local().unwrap()), [at; 2]);
        assert_eq!(connect(to_first).unwrap_err(), IoError::NoPort, "there is such a connection");
        assert!(!free(at), "beside connections");

        let listener = port.lend(|| {
            let listener = Listener::bind(at, true).unwrap();
            listener.listen(1).unwrap();
            listener
        });
        assert!(!free(at), "beside a listener");
        std::net::TcpStream::connect(at).unwrap();
        drop(listener);
        assert!(!free(at), "when that has gone");
        drop(port);
        // A listener of Windows that shares with none waits for the connections, too.
        assert!(!named || cfg!(windows) || free(at), "beside connections alone");
        drop(streams);
        assert!(!named || free(at));
    }
}
