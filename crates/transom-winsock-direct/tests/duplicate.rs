//! Sockets that go from one process to another (WSD 12, W21, W22).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use common::*;
use transom_winsock_direct::abi::*;
use transom_winsock_direct::{Direction, Error, Handle};

transom_testing::over_both_paths!(path_holds());

const RESET: Option<Error> = Some(Error::WSAECONNRESET);

/// A socket of a process with memory registered on it, as a switch has it.
struct End<'a> {
    process: &'a Process,
    socket: usize,
    pages: Pages,
    handle: Handle,
}

fn end(process: &Process, socket: usize) -> End<'_> {
    let (pages, handle) = scratch(process, socket, 0);
    End { process, socket, pages, handle }
}

impl End<'_> {
    fn receive(&self, at: u64) -> Op {
        self.process.receive(self.socket, self.pages.range(at, 64)).unwrap()
    }
    /// Sends so many bytes, and hears that they were received.
    fn send(&self, length: u32) {
        let sent = self.process.send(self.socket, self.pages.range(0, length)).unwrap();
        assert_eq!(self.process.ended(&sent), (None, length));
    }
}

fn take(process: &Process, token: u32) -> Result<usize, Error> {
    process.provider.open_socket((2, 1, 6), token, 1)
}

/// WSD W21: P1 to P2 to P1, whichever end of the connection moves. The peer's switch notices
/// nothing: its receives wait, in order, and its registrations hold (WSD D-4, D-5).
#[test]
fn w21_a_connection_goes_to_another_process_and_back() {
    for active in [true, false] {
        let (one, two) = (Process::new(), Process::new());
        let other = Process::new();
        let listener = two.listener(4);
        let (s, t) = connect(&one, &two, listener);
        // The peer, and the process that gives.
        let ((peer, p), (giver, g)) =
            if active { ((&two, t), (&one, s)) } else { ((&one, s), (&two, t)) };
        let local = giver.provider.local_address(g).unwrap();
        let theirs = end(peer, p);
        let waiting: Vec<Op> = (0..3).map(|i| theirs.receive(64 * i)).collect();
        let first = end(giver, g);
        let shown = giver.expose(g, &Pages::of(9), mem::READWRITE);
        let parked = first.receive(0);
        let token = giver.provider.duplicate(g, std::process::id()).unwrap();
        assert_eq!(giver.ended(&parked), (None, 0), "step 6");

        let u = take(&other, token).unwrap();
        assert_eq!(other.provider.local_address(u), Ok(local), "the same state as before");
        assert_eq!(take(&other, token), Err(Error::WSAEINVAL), "a token is good once");
        let second = end(&other, u);
        second.send(5);
        assert_eq!(peer.ended(&waiting[0]), (None, 5), "D-5: in order, and none was completed");
        let received = second.receive(0);
        theirs.send(7);
        assert_eq!(other.ended(&received), (None, 7));
        // WSD: what the giver had registered is nobody's.
        assert_eq!(other.provider.deregister_memory(u, first.handle), Err(Error::WSAEINVAL));
        let part = (theirs.pages.range(0, 8), theirs.handle);
        let read = peer.rdma(p, Direction::Read, part, (&shown, 0));
        assert!(read.map_or(true, |read| peer.ended(&read).0.is_some()));
        giver.close(g);
        one.provider.cleanup();
        two.provider.cleanup();
        other.provider.cleanup();
    }
}

/// WSD W21, D-2: back to the process that had it, under another descriptor, and data goes on.
#[test]
fn w21_back_at_its_first_process_it_has_another_descriptor() {
    let two = Two::new();
    let other = Process::new();
    let theirs = end(&two.a, two.s);
    let waiting: Vec<Op> = (0..4).map(|i| theirs.receive(64 * i)).collect();
    let token = two.b.provider.duplicate(two.t, std::process::id()).unwrap();
    let u = take(&other, token).unwrap();
    end(&other, u).send(1);
    let token = other.provider.duplicate(u, std::process::id()).unwrap();
    let back = take(&two.b, token).unwrap();
    assert_ne!(back, two.t);
    end(&two.b, back).send(2);
    // The descriptors of before are closed behind that, and end nothing.
    two.b.close(two.t);
    other.close(u);
    end(&two.b, back).send(3);
    for (at, length) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(two.a.ended(&waiting[at]), (None, length));
    }
    // WSD D-8: with its last holder it ends.
    two.b.close(back);
    assert_eq!(two.a.ended(&waiting[3]).0, RESET);
    other.provider.cleanup();
    two.end();
}

/// WSD D-1: a token is good in the process for which it was made, and nowhere else.
#[test]
fn d01_a_token_is_for_one_process() {
    let two = Two::new();
    let theirs = end(&two.a, two.s);
    let waiting = theirs.receive(0);
    let token = two.b.provider.duplicate(two.t, u32::MAX).unwrap();
    let other = Process::new();
    assert_eq!(take(&other, token), Err(Error::WSAEINVAL));
    assert_eq!(take(&other, token.wrapping_add(1).max(1)), Err(Error::WSAEINVAL));
    // The connection is there still: its end is what its receive hears of.
    two.b.close(two.t);
    assert_eq!(two.a.ended(&waiting).0, RESET);
    other.provider.cleanup();
    two.end();
}

/// Another user, or a hostile process of this one, comes first and leaves a descriptor whose last close takes hours
/// in the giver's socket: the process for which the token is gets its socket nevertheless.
#[test]
fn d01_what_another_process_leaves_keeps_no_socket_from_its_taker() {
    let two = Two::new();
    let theirs = end(&two.a, two.s);
    let waiting = theirs.receive(0);
    let token = two.b.provider.duplicate(two.t, std::process::id()).unwrap();
    // The peer of the stranger's connection takes nothing.
    let peer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 4096).unwrap();
    let mut stranger = another_process("stranger");
    let at = peer.local_addr().unwrap();
    writeln!(stranger.stdin.as_mut().unwrap(), "{token:08x} {at}").unwrap();
    let unread =
        std::thread::spawn(move || (0..24).map(|_| peer.accept().unwrap().0).collect::<Vec<_>>());
    assert!(stranger.wait().unwrap().success());
    let unread = unread.join().unwrap();
    let other = Process::new();
    let u = take(&other, token).unwrap();
    end(&other, u).send(5);
    assert_eq!(two.a.ended(&waiting), (None, 5));
    two.b.close(two.t);
    other.provider.cleanup();
    two.end();
    drop(unread);
}

/// In the stranger: hand over a connection with bytes that its peer does not take, and a long SO_LINGER time.
fn give_what_is_slow_to_close() {
    use std::io::{ErrorKind, IoSlice};
    use std::mem::MaybeUninit;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
    use rustix::process::Uid;

    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (token, at) = line.trim().split_once(' ').unwrap();
    if rustix::process::geteuid().is_root() {
        let user = Uid::from_raw(54_321);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    }
    let name = SocketAddr::from_abstract_name(format!("transom/duplicate/{token}")).unwrap();
    // Of each try, the last close is the giver's if that is the later one.
    for _ in 0..24 {
        let mut slow = TcpStream::connect(at).unwrap();
        sockopt::set_socket_send_buffer_size(&slow, 4096).unwrap();
        sockopt::set_socket_linger(&slow, Some(std::time::Duration::from_secs(20_000))).unwrap();
        slow.set_nonblocking(true).unwrap();
        loop {
            match slow.write(&[0; 65_536]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        slow.set_nonblocking(false).unwrap();
        let to = UnixStream::connect_addr(&name).unwrap();
        let fds = [slow.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let _ = sendmsg(&to, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL);
        std::thread::spawn(move || drop((slow, to)));
    }
    // Closes that wait here end with the process.
    std::process::exit(0);
}

/// WSD D-9: a listening socket goes on listening in the other process, at its address.
#[test]
fn d09_a_listener_goes_to_another_process() {
    let two = Two::new();
    let other = Process::new();
    let at = two.b.provider.local_address(two.listener).unwrap();
    let token = two.b.provider.duplicate(two.listener, std::process::id()).unwrap();
    assert_eq!(two.a.provider.connect(two.a.socket(), at), Err(Error::WSAETIMEDOUT), "nobody's");
    let listener = take(&other, token).unwrap();
    assert_eq!(other.provider.local_address(listener), Ok(at));
    other.provider.event_select(listener, listener, FD_ACCEPT).unwrap();
    let (s, t) = connect(&two.a, &other, listener);
    let received = end(&other, t);
    let waiting = received.receive(0);
    end(&two.a, s).send(6);
    assert_eq!(other.ended(&waiting), (None, 6));
    // Connections accepted before stay where they are.
    let before = end(&two.b, two.t);
    let waiting = before.receive(0);
    end(&two.a, two.s).send(4);
    assert_eq!(two.b.ended(&waiting), (None, 4));
    two.b.close(two.listener);
    other.provider.cleanup();
    two.end();
}

/// A duplication that is refused, here by a process that may open no descriptor, changes nothing: the
/// listener still accepts, and can be given away later.
#[test]
fn d09_a_refused_duplication_leaves_the_listener() {
    let refused = another_process("refused").wait().unwrap();
    assert!(refused.success(), "{refused}");
}

const ROLE: &str = "TRANSOM_W22_ROLE";

/// This test binary again, as another process.
fn another_process(role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["w22_the_other_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The rest of its line that begins with `word`.
fn said(process: &mut Child, word: &str) -> String {
    let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
    lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(word).map(|rest| rest.trim().to_owned()))
        .unwrap_or_else(|| panic!("it never said {word}"))
}

/// WSD W22, D-8: P2 is killed: when it has the connection, and before it takes it.
#[test]
fn w22_the_process_that_takes_is_killed() {
    let two = Two::new();
    let theirs = end(&two.a, two.s);
    let waiting = [theirs.receive(0), theirs.receive(64)];
    let mut taker = another_process("take");
    let token = two.b.provider.duplicate(two.t, taker.id()).unwrap();
    writeln!(taker.stdin.as_mut().unwrap(), "{token}").unwrap();
    assert_eq!(two.a.ended(&waiting[0]), (None, 5), "it has taken it, and uses it");
    taker.kill().unwrap();
    taker.wait().unwrap();
    assert_eq!(two.a.ended(&waiting[1]).0, RESET);
    two.b.close(two.t);

    let (s, t) = two.another();
    let theirs = end(&two.a, s);
    let waiting = theirs.receive(0);
    let mut never = another_process("take");
    two.b.provider.duplicate(t, never.id()).unwrap();
    never.kill().unwrap();
    never.wait().unwrap();
    // The switch closes every descriptor.
    two.b.close(t);
    assert_eq!(two.a.ended(&waiting).0, RESET);
    two.end();
}

/// WSD W22, D-8: P1 is killed while the connection is on its way, and when another process has it.
#[test]
fn w22_the_process_that_gives_is_killed() {
    let b = Process::new();
    let listener = b.listener(4);
    let at = b.provider.local_address(listener).unwrap();
    for taken in [false, true] {
        let mut giver = another_process(&format!("give {at} {}", std::process::id()));
        let socket = b.accept(listener).unwrap();
        let own = end(&b, socket);
        let waiting = own.receive(0);
        let token: u32 = said(&mut giver, "token").parse().unwrap();
        let other = Process::new();
        let u = taken.then(|| take(&other, token).unwrap());
        giver.kill().unwrap();
        giver.wait().unwrap();
        match u {
            None => {
                assert_eq!(b.ended(&waiting).0, RESET);
                assert_eq!(take(&other, token), Err(Error::WSAEINVAL));
            }
            Some(u) => {
                end(&other, u).send(3);
                assert_eq!(b.ended(&waiting), (None, 3), "nothing of it was the giver's");
            }
        }
        other.provider.cleanup();
        b.close(socket);
    }
    b.provider.cleanup();
}

/// The other process of WSD W22. Without a role it is nobody's peer, and does nothing.
#[test]
fn w22_the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let process = Process::new();
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["take"] => {
            let mut token = String::new();
            std::io::stdin().read_line(&mut token).unwrap();
            let socket = take(&process, token.trim().parse().unwrap()).unwrap();
            let own = end(&process, socket);
            let waiting = own.receive(0);
            own.send(5);
            process.ended(&waiting);
        }
        ["give", at, to] => {
            let socket = process.socket();
            process.provider.connect(socket, at.parse().unwrap()).unwrap();
            let token = process.provider.duplicate(socket, to.parse().unwrap()).unwrap();
            println!("\ntoken {token}");
            // Until it is killed.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        ["stranger"] => give_what_is_slow_to_close(),
        ["refused"] => {
            use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
            let (other, listener) = (Process::new(), process.listener(4));
            let before = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
            let refused = process.provider.duplicate(listener, std::process::id());
            setrlimit(Resource::Nofile, before).unwrap();
            assert_eq!(refused, Err(Error::WSAENOBUFS));
            connect(&other, &process, listener);
            let token = process.provider.duplicate(listener, std::process::id()).unwrap();
            let taken = take(&other, token).unwrap();
            other.provider.event_select(taken, taken, FD_ACCEPT).unwrap();
            connect(&process, &other, taken);
        }
        _ => panic!("no such role"),
    }
}

/// A message that comes after the duplication, from a switch that keeps to no sequence, is not lost
/// in silence: its sender gets an error.
#[test]
fn d04_a_message_behind_a_duplication_fails_at_its_sender() {
    let two = Two::new();
    let (mine, theirs) = (end(&two.a, two.s), end(&two.b, two.t));
    let parked = theirs.receive(0);
    two.b.provider.duplicate(two.t, std::process::id()).unwrap();
    assert_eq!(two.b.ended(&parked), (None, 0));
    let late = two.a.send(two.s, mine.pages.range(0, 8)).unwrap();
    assert!(two.a.ended(&late).0.is_some());
    two.end();
}
