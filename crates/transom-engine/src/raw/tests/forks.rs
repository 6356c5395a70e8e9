//! A child that is forked from a process with an adapter: it shares sockets and memory with its
//! parent, and must neither use them nor keep them open.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::harness::*;
use super::processes::{accepted, connected_with, end_with_parent, parent};
use crate::raw::{CaptureOptions, Options, Path, Sink};
use crate::tables::{ConnectorState, QueuePairState};
use crate::{Operation, Status};

fn descriptors() -> BTreeSet<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Run a test again in a process that does nothing else. Its input ends when the result is dropped.
fn alone(test: &str, at: &str, path: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("raw::tests::forks::{test}"), "--nocapture"]);
    command.env("TRANSOM_TEST_PEER", at).env("TRANSOM_PATH", path);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Whether the test that asks has this process for itself. If not, one is started that has, and must
/// succeed.
fn has_a_process_for_itself(test: &str, path: &str) -> bool {
    if parent().is_some() {
        return true;
    }
    let peer = alone(test, "127.0.0.1:0", path);
    assert!(peer.wait_with_output().unwrap().status.success());
    false
}

/// Run `work` in a forked child, in a process without other threads of tests: `work` says whether
/// the result is right. It may only do what is allowed in a forked child, and allocate.
fn in_forked_child(work: impl FnOnce() -> bool) {
    // SAFETY: the child does its work and leaves at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let ok = work();
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "not all was well in the child");
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: a question about a number.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// The child has none of our descriptors; those that get their numbers are not closed with our handles;
/// and it cannot touch the rings.
#[test]
fn a_forked_child_keeps_nothing_of_ours() {
    if !has_a_process_for_itself("a_forked_child_keeps_nothing_of_ours", "process") {
        return;
    }
    let before = descriptors();
    let (active, passive) = pair();
    let listener = listening(&passive);
    // The adapters' bells stay with threads that a child does not have; this bell goes.
    let bell = crate::sys::Doorbell::new().unwrap();
    let rings = active.qp.0.qp.link().unwrap().shared_memory().expect("rings");
    let ours: BTreeSet<RawFd> =
        descriptors().difference(&before).copied().filter(|fd| is_open(*fd)).collect();
    assert!(ours.len() >= 10, "{ours:?}");
    for fd in &ours {
        // SAFETY: a question about a descriptor.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        assert!(flags & libc::FD_CLOEXEC != 0, "{fd} would survive an exec");
    }
    in_forked_child(|| {
        let closed = ours.iter().all(|fd| !is_open(*fd));
        // SAFETY: fails for an address where nothing is mapped, and does nothing where something is.
        let gone = unsafe { libc::msync(rings.0 as *mut _, rings.1, libc::MS_ASYNC) } == -1;
        // Whatever the child opens next gets those numbers.
        for fd in &ours {
            // SAFETY: 0 is open; the number is free.
            unsafe { libc::dup2(0, *fd) };
        }
        drop((active, passive, listener, bell));
        closed && gone && ours.iter().all(|fd| is_open(*fd))
    });
}

/// Nor has a child that is forked at the moment at which a thread of ours takes a connection.
#[test]
fn a_child_that_is_forked_as_peers_come_keeps_none_of_them() {
    const FORKS: usize = 1000;
    let test = "a_child_that_is_forked_as_peers_come_keeps_none_of_them";
    if !has_a_process_for_itself(test, "process") {
        return;
    }
    let before = descriptors();
    let end = End::new(&Options::from_env());
    let listener = listening(&end);
    let at = listener.address().unwrap();
    // SAFETY: the child connects, and is ended below or with this process.
    let flood = unsafe { libc::fork() };
    if flood == 0 {
        end_with_parent();
        loop {
            let Ok(stream) = std::net::TcpStream::connect(at) else { continue };
            // A reset takes no port for a minute.
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }
    let mut kept = 0;
    for _ in 0..FORKS {
        // SAFETY: the child asks about numbers and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ours = (0..1024).any(|number| is_open(number) && !before.contains(&number));
            // SAFETY: ends the process without running anything else.
            unsafe { libc::_exit(i32::from(ours)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        kept += usize::from(status != 0);
    }
    // SAFETY: our own child.
    unsafe { libc::kill(flood, libc::SIGKILL) };
    assert_eq!(kept, 0, "of {FORKS} children");
}

/// A child whose parent has waited for completions, on the thread that forked it, waits with a bell of
/// its own: its parent's is closed, and the number may be anything's.
#[test]
fn a_forked_child_is_woken() {
    if !has_a_process_for_itself("a_forked_child_is_woken", "process") {
        return;
    }
    let (silent, _writer) = std::io::pipe().unwrap();
    let before = descriptors();
    let end = End::new(&Options::from_env());
    assert!(!end.cq.wait(Some(Duration::from_millis(1))).unwrap());
    let ours: BTreeSet<RawFd> = descriptors().difference(&before).copied().collect();
    in_forked_child(|| {
        for fd in ours.iter().filter(|fd| !is_open(**fd)) {
            // SAFETY: the pipe is open; the number is free.
            unsafe { libc::dup2(silent.as_raw_fd(), *fd) };
        }
        let end = End::new(&Options::from_env());
        let before = descriptors().len();
        let in_vain = end.cq.wait(Some(Duration::from_millis(1))) == Ok(false);
        let has_its_own = descriptors().len() > before;
        // A thread that is about to sleep may still see the change by itself: not every time.
        let is_woken = || {
            let changed = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !end.cq.cq.is_slept_on() {
                        std::thread::yield_now();
                    }
                    changed.store(true, Ordering::SeqCst);
                    end.cq.wake();
                });
                end.cq.wait_until(Some(PATIENCE), &|| changed.load(Ordering::SeqCst)) == Ok(true)
            })
        };
        in_vain && has_its_own && (0..50).all(|_| is_woken())
    });
}

/// A thread of the parent's may hold any lock at the moment of the fork, and is not there to let go: the
/// child takes none, whatever it asks of its handles, and when it drops them.
#[test]
fn a_forked_child_waits_for_no_lock_of_its_parent() {
    if !has_a_process_for_itself("a_forked_child_waits_for_no_lock_of_its_parent", "tcp") {
        return;
    }
    let (active, passive) = pair();
    let listener = listening(&passive);
    let (qp, cq) = (active.qp.0.qp.clone(), active.cq.cq.clone());
    // The queue pair has no other owner, and goes with its handle.
    let idle = End::on(&active.adapter);
    let places = idle.cq.cq.clone();
    // Declared before the locks, so that they are let go first if this fails.
    let mut handles = Some((active, passive, idle, listener));
    let held = (qp.front(), cq.queue(), places.queue());
    let ours = (crate::sys::hold_handlers(), crate::sys::hold_maps());
    in_forked_child(|| {
        // SAFETY: a plain call. It ends a child that waits for ever.
        unsafe { libc::alarm(120) };
        let (active, passive, idle, listener) = handles.take().unwrap();
        let End { qp, cq, connector, .. } = active;
        let of_no_use = qp.state() == QueuePairState::Error
            && qp.outstanding() == (0, 0)
            && cq.failure() == Some(Status::Forked)
            && connector.state() == ConnectorState::Disconnected
            && connector.connection().is_none();
        let _ = (cq.capacity(), qp.config(), listener.turned_away());
        drop((qp, cq, connector, listener, passive, idle));
        // And in an adapter of its own it registers memory.
        End::new(&Options::from_env()).buffer(64);
        of_no_use
    });
    drop((held, ours));
}

/// A process dies while a child that it forked lives on: its peers notice, and its port is free.
#[test]
fn the_death_of_a_process_is_noticed_though_its_child_lives() {
    let test = "the_death_of_a_process_is_noticed_though_its_child_lives";
    if let Some(at) = parent() {
        let end = connected_with(at, &Options::from_env());
        let listener = listening(&end);
        let port = listener.address().unwrap();
        end.connector.disconnect(Sink::call(|_| ())).unwrap();
        // The address travels as private data of a second connection.
        let end = End::in_domain(&end.adapter, end.domain);
        let (sink, told) = signal();
        end.connector.bind(loopback()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, port.to_string().as_bytes(), sink).unwrap();
        assert_eq!(told.wait(), Status::Success);
        end.connector.complete_connect().unwrap();
        // SAFETY: both processes only make system calls from here on.
        unsafe {
            if libc::fork() == 0 {
                // Until the test ends the input, of which it takes nothing.
                let mut input = libc::pollfd { fd: 0, events: 0, revents: 0 };
                libc::poll(&raw mut input, 1, -1);
                libc::_exit(0);
            }
            // Until the test has seen the connection.
            let mut word = [0u8; 1];
            libc::read(0, word.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    for (path, name) in [(Path::Tcp, "tcp"), (Path::Process, "process")] {
        let end = End::new(&Options { path, ..Options::from_env() });
        let listener = listening(&end);
        let at = listener.address().unwrap();
        let mut peer = alone(test, &at.to_string(), name);
        let first = End::in_domain(&end.adapter, end.domain);
        let (_buffer, gone) = accepted(&first, &listener, 1);
        assert_eq!(gone.wait(), Status::Success);
        let second = End::in_domain(&end.adapter, end.domain);
        let (_buffer, gone) = accepted(&second, &listener, 1);
        assert_eq!(second.connector.info().unwrap().path, name);
        let port = String::from_utf8(second.connector.private_data().unwrap()).unwrap();
        let port: std::net::SocketAddr = port.parse().unwrap();
        assert!(std::net::TcpStream::connect(port).is_ok(), "it listens");
        let mut input = peer.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"!").unwrap();
        peer.wait().unwrap();
        assert_eq!(gone.wait(), Status::Success, "{name}");
        assert_eq!(second.next().status, Status::Canceled);
        // The child may only just have come to life.
        let begin = Instant::now();
        while std::net::TcpStream::connect(port).is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the child keeps the port");
            std::thread::yield_now();
        }
        drop(input);
    }
}

/// A child that forks before its parent is done may go on to open an adapter of its own, with tokens of
/// its own.
#[test]
fn a_forked_child_may_open_an_adapter_of_its_own() {
    if !has_a_process_for_itself("a_forked_child_may_open_an_adapter_of_its_own", "tcp") {
        return;
    }
    let (active, passive) = pair();
    let theirs: Vec<_> = (0..64).map(|_| active.buffer(64).token).collect();
    in_forked_child(|| {
        let (one, two) = pair();
        let ours: Vec<_> = (0..64).map(|_| one.buffer(64).token).collect();
        let (from, to) = (one.buffer(64), two.buffer(64));
        two.qp.post_receive(1, &[to.all()]).unwrap();
        one.post(Operation::Send, &[from.all()]);
        let sent = one.next().status == Status::Success;
        sent && two.next().status == Status::Success && ours.iter().all(|t| !theirs.contains(t))
    });
    drop((active, passive));
}

/// A child writes nothing to its parent's capture; it has a file of its own, with its number in the name.
#[test]
fn a_forked_child_has_a_capture_of_its_own() {
    if !has_a_process_for_itself("a_forked_child_has_a_capture_of_its_own", "tcp") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("transom-forks-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("x.pcapng");
    let options = Options { capture: Some(CaptureOptions::to(&file)), ..Options::from_env() };
    let exchange = || {
        let (one, two) = pair_with(&options);
        let (from, to) = (one.buffer(64), two.buffer(64));
        two.qp.post_receive(1, &[to.all()]).unwrap();
        one.post(Operation::Send, &[from.all()]);
        one.next().status == Status::Success && two.next().status == Status::Success
    };
    assert!(exchange());
    let before = std::fs::read(&file).unwrap();
    let parent = std::process::id();
    in_forked_child(|| {
        let done = exchange();
        let own = folder.join(format!("x-{}.pcapng", std::process::id()));
        done && std::process::id() != parent && own.metadata().is_ok_and(|own| own.len() > 500)
    });
    assert!(before.len() > 500);
    assert_eq!(std::fs::read(&file).unwrap(), before, "the parent's is as it was");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A program may run without standard descriptors: what it prints, and what we explain, reaches no peer.
#[test]
fn no_descriptor_of_ours_is_a_standard_one() {
    if !has_a_process_for_itself("no_descriptor_of_ours_is_a_standard_one", "process") {
        return;
    }
    // SAFETY: nothing of this process reads its standard input.
    unsafe { libc::close(0) };
    let (active, passive) = pair();
    assert!(!is_open(0), "it is a descriptor of ours");
    drop((active, passive));
}

/// A child does not answer inspections of its parent, nor does it take the parent's socket away; it
/// answers for an adapter of its own.
#[test]
fn a_forked_child_does_not_answer_for_its_parent() {
    if !has_a_process_for_itself("a_forked_child_does_not_answer_for_its_parent", "tcp") {
        return;
    }
    let adapters =
        || transom_inspect::ask(std::process::id()).map(|answer| answer.process.adapters);
    let options = Options { inspect: true, ..Options::from_env() };
    let before = descriptors();
    let end = End::new(&options);
    let ours: BTreeSet<RawFd> =
        descriptors().difference(&before).copied().filter(|fd| is_open(*fd)).collect();
    in_forked_child(|| {
        let closed = ours.iter().all(|fd| !is_open(*fd));
        let quiet = matches!(adapters(), Err(transom_inspect::AskError::NotThere));
        let own = End::new(&options);
        let answers = adapters().is_ok_and(|adapters| adapters == 1);
        drop(own);
        let gone = matches!(adapters(), Err(transom_inspect::AskError::NotThere));
        closed && quiet && answers && gone
    });
    assert_eq!(adapters().unwrap(), 1);
    drop(end);
    assert!(matches!(adapters(), Err(transom_inspect::AskError::NotThere)));
}
