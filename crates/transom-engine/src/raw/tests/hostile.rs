//! Peers that stall, flood, or write as fast as they can while their window closes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use transom_memory::Rights;

use super::harness::*;
use crate::raw::{HalfOpen, Options};
use crate::sys::host::hook::before_copy;
use crate::{Completion, CompletionKind, Data, Flags, Operation, Request, Status};

/// A wire between two ends that can be cut off in the middle of a frame.
struct Dam {
    at: SocketAddr,
    /// Bytes towards the listener that may still pass.
    allowance: Arc<(Mutex<usize>, Condvar)>,
    passed: Arc<AtomicUsize>,
}

impl Dam {
    /// `pieces`: the most bytes that pass at a time, in turn.
    fn before(target: SocketAddr, pieces: &'static [usize]) -> Dam {
        let listener = TcpListener::bind(loopback()).unwrap();
        let at = listener.local_addr().unwrap();
        let allowance = Arc::new((Mutex::new(usize::MAX), Condvar::new()));
        let passed = Arc::new(AtomicUsize::new(0));
        let (gate, count) = (allowance.clone(), passed.clone());
        std::thread::spawn(move || {
            let (mut from, _) = listener.accept().unwrap();
            let mut to = TcpStream::connect(target).unwrap();
            to.set_nodelay(true).unwrap();
            let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                let mut rest = &buffer[..n];
                for piece in pieces.iter().cycle() {
                    let (byte, behind) = rest.split_at(rest.len().min(*piece));
                    if byte.is_empty() {
                        break;
                    }
                    rest = behind;
                    let (left, changed) = &*gate;
                    let mut left = left.lock().unwrap();
                    while *left < byte.len() {
                        left = changed.wait(left).unwrap();
                    }
                    *left -= byte.len();
                    drop(left);
                    if to.write_all(byte).is_err() {
                        return;
                    }
                    count.fetch_add(byte.len(), Ordering::SeqCst);
                }
            }
        });
        Dam { at, allowance, passed }
    }

    fn allow(&self, bytes: usize) {
        *self.allowance.0.lock().unwrap() = bytes;
        self.allowance.1.notify_all();
    }
}

/// Connect through a dam.
fn dammed(passive: &End) -> (End, Dam) {
    dammed_by(passive, &[1000])
}

/// A connection behind a dam; `pieces`: as of [`Dam::before`].
fn dammed_by(passive: &End, pieces: &'static [usize]) -> (End, Dam) {
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    let dam = Dam::before(listener.address().unwrap(), pieces);
    let active = End::new(&Options::from_env());
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind(loopback()).unwrap();
    let (sink, connected) = signal();
    active.connector.connect(&active.qp, dam.at, LIMITS, b"", sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    let (sink, accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
    active.connector.complete_connect().unwrap();
    assert_eq!(accepted.wait(), Status::Success);
    (active, dam)
}

/// iW 2.4: a request that finds the backlog full is refused with an answer; without one, its peer
/// would ask again in an older form.
#[test]
fn a_full_backlog_answers() {
    let passive = End::new(&Options::from_env());
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(1).unwrap();
    let ask = || {
        let mut stream = TcpStream::connect(listener.address().unwrap()).unwrap();
        stream.write_all(b"MPA ID Req Frame\x00\x01\x00\x00").unwrap();
        stream
    };
    // Whichever comes first waits in the backlog; the other reads its rejection.
    let (answer, answers) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let (mut stream, answer) = (ask(), answer.clone());
        std::thread::spawn(move || {
            let mut reply = [0; 20];
            let _ = answer.send(stream.read_exact(&mut reply).map(|()| reply));
        });
    }
    let reply = answers.recv_timeout(PATIENCE).unwrap().expect("a reply, not a closed link");
    assert_eq!((&reply[..16], reply[16] & 0x20), (&b"MPA ID Rep Frame"[..], 0x20));
}

/// RFC 5044 4: a frame may arrive in any pieces. A thread that polls takes each frame once and in order,
/// whether small Writes or requests for an answer are cut.
#[test]
fn frames_that_come_in_pieces_are_taken_once_and_in_order() {
    // A Write of 8 bytes is a frame of 28: behind a whole one, others are cut.
    let cuts: [&[usize]; 5] = [&[28, 10, 18], &[28, 1, 27], &[28, 56, 33], &[1], &[17]];
    for pieces in cuts {
        let owner = End::new(&Options::from_env());
        let (writer, _dam) = dammed_by(&owner, pieces);
        let (to, from, sink) = (owner.buffer(64), writer.buffer(8), writer.buffer(64));
        let window = owner.window(&to, Rights::REMOTE_WRITE | Rights::REMOTE_READ);
        let (token, base) = (window.0, to.address());
        for round in 1..=100_u8 {
            from.fill(|_| round);
            let entries = [from.all()];
            let list = (0..8).map(|place| {
                let operation = Operation::Write { token, address: base + 8 * place };
                (Request { context: 0, operation, flags: Flags::NONE }, Data::Sges(&entries))
            });
            writer.qp.post_chain(8, |chain| chain.post_all(list.clone())).unwrap().unwrap();
            until("a Write did not arrive", || {
                (0..100).for_each(|_| owner.cq.progress());
                to.bytes()[56..] == [round; 8]
            });
            assert_eq!(to.bytes(), [round; 64], "the others came before it");
            for _ in 0..8 {
                writer.expect(CompletionKind::Write);
            }
            if round % 4 == 0 {
                writer.post(Operation::Read { token, address: base }, &[sink.all()]);
                writer.expect(CompletionKind::Read);
                assert_eq!(sink.bytes(), to.bytes());
            }
        }
    }
}

/// Design rules 5 and 12: a peer that stops in the middle of a frame delays no other peer, and no
/// call of the owner waits for it.
#[test]
fn a_stalled_connection_blocks_neither_others_nor_its_owner() {
    const LENGTH: usize = 400_000;
    let passive = End::new(&Options::from_env());
    let (active, dam) = dammed(&passive);
    let (from, to) = (active.buffer(LENGTH), passive.buffer(LENGTH));
    let (window, other) =
        (passive.window(&to, Rights::REMOTE_WRITE), passive.window(&to, Rights::REMOTE_READ));
    dam.allow(100_000);
    let before = dam.passed.load(Ordering::SeqCst);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    while dam.passed.load(Ordering::SeqCst) < before + 99_000 {
        std::thread::yield_now();
    }

    // Another connection of the same adapter goes on.
    let neighbour = End::on(&passive.adapter);
    let friend = End::new(&Options::from_env());
    join(&friend, &neighbour);
    let (mine, theirs) = (friend.buffer(4096), neighbour.buffer(4096));
    let open = neighbour.window(&theirs, Rights::REMOTE_WRITE);
    for _ in 0..200 {
        friend.post(Operation::Write { token: open.0, address: theirs.address() }, &[mine.all()]);
        friend.expect(CompletionKind::Write);
    }

    // The owner closes what the stalled peer is writing to, three ways.
    passive.adapter.revoke(window).unwrap();
    passive.post(Operation::Invalidate { window: other }, &[]);
    passive.expect(CompletionKind::Invalidate);
    passive.adapter.deregister(to.token).unwrap();
    to.fill(|_| 0xc5);

    // The peer goes on, and is refused.
    dam.allow(usize::MAX);
    let verdict = active.next();
    assert_eq!((verdict.kind, verdict.status), (CompletionKind::Write, Status::RemoteAccess));
    assert!(to.bytes().iter().all(|b| *b == 0xc5), "nothing moved after the close");
}

/// Design rule 5, under load: from the moment at which `revoke` returns no byte of a peer lands,
/// however fast it writes.
#[test]
fn nothing_lands_after_a_revoke() {
    const LENGTH: usize = 8 * 1024;
    let owner = End::new(&Options::from_env());
    let writer = End::new(&Options::from_env());
    let (canaries, source) = (owner.buffer(LENGTH), writer.buffer(LENGTH));
    source.fill(|_| 0x77);
    for round in 0..60 {
        let (active, passive) = (
            End::in_domain(&writer.adapter, writer.domain),
            End::in_domain(&owner.adapter, owner.domain),
        );
        join(&active, &passive);
        canaries.fill(|_| 0);
        let window = passive.window(&canaries, Rights::REMOTE_WRITE);
        std::thread::scope(|scope| {
            let (source, canaries) = (&source, &canaries);
            let peer = scope.spawn(move || {
                let operation = Operation::Write { token: window.0, address: canaries.address() };
                let request = Request { context: 0, operation, flags: Flags::NONE };
                let mut refused = false;
                while !refused {
                    for _ in 0..32 {
                        let _ = active.qp.post(&request, Data::Sges(&[source.all()]));
                    }
                    let mut some = [Completion::default(); 32];
                    assert!(active.cq.wait(Some(PATIENCE)).unwrap());
                    let count = active.cq.poll(&mut some);
                    let bad = some[..count].iter().find(|c| c.status != Status::Success);
                    if let Some(c) = bad {
                        assert_eq!(c.status, Status::RemoteAccess, "the first that fails");
                        refused = true;
                    }
                }
            });
            while canaries.bytes()[LENGTH - 1] == 0 {
                std::hint::spin_loop();
            }
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            passive.adapter.revoke(window).unwrap();
            canaries.fill(|_| 0x5a);
            peer.join().unwrap();
            assert!(canaries.bytes().iter().all(|b| *b == 0x5a), "round {round}");
        });
    }
}

/// Design rule 5, at the worst moment: a copy was permitted and has not begun. The revoke returns when it
/// is over, so that what the owner does next is not overwritten, nor seen by the peer.
#[test]
fn a_revoke_waits_for_the_copy_under_way() {
    const LENGTH: usize = 8 * 1024;
    for (reads, checksum) in [(false, true), (true, true), (true, false)] {
        let (active, passive) = pair_with(&Options { checksum, ..Options::from_env() });
        let (own, lent) = (active.buffer(LENGTH), Arc::new(passive.buffer(LENGTH)));
        own.fill(|_| 0x77);
        lent.fill(|_| 0x77);
        let right = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        let window = passive.window(&lent, right);
        let (returned, has_returned) = std::sync::mpsc::channel();
        let (adapter, memory, at) = (passive.adapter.clone(), lent.clone(), lent.address());
        before_copy(at..at + LENGTH as u64, move || {
            let (early, is_early) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                adapter.revoke(window).unwrap();
                memory.fill(|_| 0x5a);
                let _ = early.send(()); // fails, if it comes late
                returned.send(()).unwrap();
            });
            // The signal cannot come: the copy waits for this thread. If it does, what follows
            // shows the harm.
            let _ = is_early.recv_timeout(Duration::from_millis(50));
        });
        let (token, address) = (window.0, at);
        if reads {
            active.post(Operation::Read { token, address }, &[own.all()]);
            active.expect(CompletionKind::Read);
        } else {
            active.post(Operation::Write { token, address }, &[own.all()]);
            active.expect(CompletionKind::Write);
        }
        has_returned.recv_timeout(PATIENCE).unwrap();
        let is_all = |buffer: &Buffer, byte| buffer.bytes().iter().all(|b| *b == byte);
        assert!(is_all(&lent, 0x5a), "written to after the revoke");
        assert!(is_all(&own, 0x77), "read after the revoke");
    }
}

/// iW 14 limits peers before their request only: later the program decides, as for many requests as
/// there are (ND2 2.11).
#[test]
fn requests_that_have_arrived_take_no_place_of_start_up() {
    let half_open = HalfOpen { total: 2, per_address: 2 };
    let passive = End::new(&Options { half_open, ..Options::from_env() });
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    let active = End::new(&Options::from_env());
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let (caller, callee) = (End::on(&active.adapter), End::on(&passive.adapter));
        let (answered, answer) = signal();
        let (asked, request) = signal();
        let at = listener.address().unwrap();
        caller.connector.bind(loopback()).unwrap();
        caller.connector.connect(&caller.qp, at, LIMITS, b"", answered).unwrap();
        listener.get_request(&callee.connector, asked).unwrap();
        assert_eq!(request.wait(), Status::Success);
        waiting.push((caller, answer, callee));
    }
    for (_caller, answer, callee) in &waiting {
        callee.connector.accept(&callee.qp, LIMITS, b"", signal().0).unwrap();
        assert_eq!(answer.wait(), Status::Success);
    }
    assert_eq!(listener.turned_away(), 0);
}

/// iW 14: peers that connect and say nothing take a limited number of places, and give them back.
#[test]
fn a_flood_of_silent_connections_is_turned_away() {
    let half_open = HalfOpen { total: 8, per_address: 8 };
    let passive = End::new(&Options { half_open, ..Options::from_env() });
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.address().unwrap();
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(at).unwrap()).collect();
    // Two before anybody asks whose they are, and as many of one user as of one address.
    while listener.turned_away() < 40 {
        std::thread::yield_now();
    }
    assert_eq!(listener.turned_away(), 40);
    assert_eq!(refused(&passive, "half_open"), 40);
    drop(silent);
    while passive.adapter.counters().links > 0 {
        std::thread::yield_now();
    }
    join_at(&End::new(&Options::from_env()), &passive, &listener);
}

/// iW 14: peers with many addresses, who connect and say nothing, again and again, keep nobody out.
#[test]
fn a_flood_from_many_addresses_keeps_no_other_out() {
    let half_open = HalfOpen { total: 8, per_address: 4 };
    let passive = End::new(&Options { half_open, ..Options::from_env() });
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.address().unwrap();
    let connect = |last: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
        socket.connect(&at.into()).unwrap();
        socket
    };
    let flood: Vec<_> = (0..100).map(|i| connect(2 + i % 5)).collect();
    // The first one has a place before anybody asks whose it is.
    while listener.turned_away() < 100 - 1 - 8 {
        std::thread::yield_now();
    }
    join_at(&End::new(&Options::from_env()), &passive, &listener);
    assert_eq!(listener.turned_away(), 100 - 8, "one of them has lost its place");
    drop(flood);
}

/// Connects of peers that this end has refused for a reason, as its program reads them.
fn refused(end: &End, why: &str) -> u64 {
    let begin = format!("transom_refused_{why}_total{{");
    let metrics = end.adapter.open_metrics();
    let sample = metrics.lines().find(|line| line.starts_with(&begin)).unwrap();
    sample.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Each refused connect is counted once, with its reason, and a connect that its peer gives up is none.
#[test]
fn refused_connects_are_counted_by_their_reasons() {
    const REASONS: [&str; 6] =
        ["half_open", "backlog", "closed", "resources", "unfinished", "by_program"];
    let (passive, active) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let counts = || REASONS.map(|why| refused(&passive, why));
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(1).unwrap();
    let at = listener.address().unwrap();
    let ask = || {
        let end = End::on(&active.adapter);
        let (sink, told) = signal();
        end.connector.bind(loopback()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
        (end, told)
    };
    let request = || {
        let end = End::on(&passive.adapter);
        let (sink, told) = signal();
        listener.get_request(&end.connector, sink).unwrap();
        assert_eq!(told.wait(), Status::Success);
        end
    };
    let (_first, first) = ask();
    request().connector.reject(b"no").unwrap();
    assert_eq!((first.wait(), counts()), (Status::ConnectionRefused, [0, 0, 0, 0, 0, 1]));
    let (_second, second) = ask();
    drop(request());
    assert_eq!((second.wait(), counts()), (Status::ConnectionRefused, [0, 0, 0, 0, 0, 2]));
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nHost: here\r\n\r\n").unwrap();
    until("bytes that are no start-up are refused", || counts() == [0, 0, 0, 0, 1, 2]);
    // A peer that has left is not refused. The backlog has room for one: that one waits.
    let mut both = vec![ask(), ask()];
    until("one is refused", || counts() == [0, 1, 0, 0, 1, 2]);
    until("its program hears of it", || {
        both.retain(|(_, told)| told.told().is_none());
        both.len() == 1
    });
    drop(both);
    until("the other has left", || passive.adapter.counters().links == 0);
    let mut both = vec![ask(), ask()];
    until("one is refused", || counts() == [0, 2, 0, 0, 1, 2]);
    until("its program hears of it", || {
        both.retain(|(_, told)| told.told().is_none());
        both.len() == 1
    });
    listener.close().unwrap();
    let (_waits, told) = both.remove(0);
    assert_eq!((told.wait(), counts()), (Status::ConnectionRefused, [0, 2, 1, 0, 1, 2]));
}

/// iW 14: bytes that are no start-up end that connection and nothing else.
#[test]
fn garbage_ends_only_its_own_connection() {
    let passive = End::new(&Options::from_env());
    let listener = passive.adapter.listener(loopback()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.address().unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100], &[0; 4096]] {
        let mut stranger = TcpStream::connect(at).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(garbage).unwrap();
        let told = stranger.read(&mut [0; 64]).map_err(|e| e.kind());
        assert!(matches!(told, Ok(0) | Err(ErrorKind::ConnectionReset)), "{told:?}");
    }
    join_at(&End::new(&Options::from_env()), &passive, &listener);
}

/// A peer that does not know the extension closes in order behind a Write, without an answer to the
/// Read of no bytes that follows it, as siw does at the end of a session. Its TCP has taken the
/// Write, which has succeeded.
#[test]
#[cfg_attr(windows, ignore = "this system does not say what the peer's TCP has taken")]
fn a_write_that_a_plain_peer_has_taken_succeeds_when_the_peer_leaves() {
    fn take(stream: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }
    let listener = TcpListener::bind(loopback()).unwrap();
    let at = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = take(&mut stream, 20);
        take(&mut stream, usize::from(u16::from_be_bytes([request[18], request[19]])));
        stream.write_all(b"MPA ID Rep Frame\x50\x02\0\x04\0\x04\0\x04").unwrap();
        loop {
            let length = take(&mut stream, 2);
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let frame = take(&mut stream, (2 + length).next_multiple_of(4) - 2 + 4);
            if frame[1] == 0x41 {
                return; // the Read Request; everything has been read
            }
        }
    });
    let end = End::new(&Options { extension: false, ..Options::from_env() });
    end.connector.bind(loopback()).unwrap();
    let (sink, connected) = signal();
    end.connector.connect(&end.qp, at, LIMITS, b"hello", sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
    end.connector.complete_connect().unwrap();
    let from = end.buffer(8);
    end.post(Operation::Write { token: 7, address: 0 }, &[from.all()]);
    end.expect(CompletionKind::Write);
    peer.join().unwrap();
}
