//! Tests that need a second process: peers that die or leave at once, forks, and CPU time.
//!
//! Each test runs itself again in a process of its own, which finds its part in the environment.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::harness::*;
use crate::raw::{Error, Listener, Options, Silence, Sink};
use crate::{Completion, CompletionKind, Operation, Status};

const PEER: &str = "TRANSOM_TEST_PEER";

/// In the child: where the parent listens.
pub(super) fn parent() -> Option<SocketAddr> {
    let at = std::env::var(PEER).ok()?;
    end_with_parent();
    Some(at.parse().unwrap())
}

/// A test that fails leaves no process behind, for which others would wait.
pub(super) fn end_with_parent() {
    // SAFETY: a plain call; the signal comes when the thread ends that has started this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn child(test: &str, at: SocketAddr) -> Child {
    child_of(&format!("processes::{test}"), at, &[])
}

pub(super) fn child_of(test: &str, at: SocketAddr, more: &[(&str, &str)]) -> Child {
    let name = format!("raw::tests::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]).env(PEER, at.to_string());
    command.envs(more.iter().copied());
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// The named test in another process, which listens to this one and tells it lines.
pub(super) fn talking_child_of(test: &str, at: SocketAddr, more: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("raw::tests::{test}"), "--nocapture"])
        .env(PEER, at.to_string())
        .envs(more.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether this process has the named test for itself: it counts what the process has. If not, one is
/// started that has, and must succeed.
pub(super) fn alone(test: &str) -> bool {
    const ALONE: &str = "TRANSOM_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("raw::tests::{test}"), "--nocapture"]).env(ALONE, "1");
    let out = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}\n{}", text(&out.stdout), text(&out.stderr));
    false
}

/// The child's connection to its parent.
fn connected(at: SocketAddr) -> End {
    connected_with(at, &Options::from_env())
}

pub(super) fn connected_with(at: SocketAddr, options: &Options) -> End {
    let end = End::new(options);
    let (sink, told) = signal();
    end.connector.bind(loopback()).unwrap();
    end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(told.wait(), Status::Success);
    end.connector.complete_connect().unwrap();
    end
}

/// The parent's connection to its child, with a receive posted for each of `receives`.
pub(super) fn accepted(end: &End, listener: &Listener, receives: u64) -> (Buffer, Signal) {
    let buffer = end.buffer(64);
    for context in 0..receives {
        end.qp.post_receive(context, &[buffer.all()]).unwrap();
    }
    let (sink, requested) = signal();
    listener.get_request(&end.connector, sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    let (sink, told) = signal();
    end.connector.accept(&end.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(told.wait(), Status::Success);
    let (sink, gone) = signal();
    end.connector.notify_disconnect(sink).unwrap();
    (buffer, gone)
}

/// ND2 4.5, 4.9: a process that is killed is a peer that disconnects.
#[test]
fn a_killed_peer_is_noticed() {
    if let Some(at) = parent() {
        let _end = connected(at);
        loop {
            std::thread::park();
        }
    }
    let end = End::new(&Options::from_env());
    let listener = listening(&end);
    let mut peer = child("a_killed_peer_is_noticed", listener.address().unwrap());
    let (_buffer, gone) = accepted(&end, &listener, 2);
    peer.kill().unwrap();
    assert_eq!(gone.wait(), Status::Success);
    for context in 0..2 {
        let c = end.next();
        assert_eq!((c.request_context, c.status), (context, Status::Canceled));
    }
    peer.wait().unwrap();
}

/// ND2 4.5: a peer that stands still, and for which more waits than fits on the way, is given up after
/// the time that the adapter has for silence; whichever the path.
#[test]
fn a_peer_that_stops_reading_is_given_up() {
    // Four of them are several times what sockets, or rings, take in.
    const LENGTH: usize = 16 << 20;
    if let Some(at) = parent() {
        let end = connected(at);
        let (note, sink) = (end.buffer(16), end.buffer(LENGTH));
        end.qp.post_receive(9, &[note.all()]).unwrap();
        let ready = end.buffer(1);
        end.post(Operation::Send, &[ready.all()]);
        while end.expect_any(&[CompletionKind::Send, CompletionKind::Receive]).kind
            != CompletionKind::Receive
        {}
        let bytes = note.bytes();
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let (token, address) = (word(0) as u32, word(8));
        // Without end and several at a time: wherever this is stopped, more is asked for than fits.
        let (operation, list) = (Operation::Read { token, address }, [sink.all()]);
        for _ in 0..8 {
            end.post(operation, &list);
        }
        end.post(Operation::Send, &[ready.all()]);
        loop {
            let completion = end.next();
            if completion.status != Status::Success {
                break;
            }
            if completion.kind == CompletionKind::Read {
                end.post(operation, &list);
            }
        }
        return;
    }
    let silence = Duration::from_secs(4);
    let end = End::new(&Options { silence, ..Options::from_env() });
    let listener = listening(&end);
    let peer = child("a_peer_that_stops_reading_is_given_up", listener.address().unwrap());
    let peer = Reaped(peer);
    let (_note, gone) = accepted(&end, &listener, 2);
    end.expect(CompletionKind::Receive);
    let lent = end.buffer(LENGTH);
    let window = end.window(&lent, transom_memory::Rights::REMOTE_READ);
    let words = [u64::from(window.0), lent.address()].map(u64::to_ne_bytes).concat();
    let answer = end.buffer(16);
    answer.fill(|at| words[at]);
    end.post(Operation::Send, &[answer.all()]);
    end.expect(CompletionKind::Send);
    end.expect(CompletionKind::Receive); // it has asked
    peer.signal(libc::SIGSTOP);
    assert_eq!(gone.wait(), Status::Success);
    assert_eq!(end.connector.ended(), Some(crate::EndReason::TimedOut));
    assert_eq!(end.connector.silence(), Some(Silence::Untaken), "its host still answers");
}

/// A child that does not outlive its test, stopped or not.
struct Reaped(Child);

impl Reaped {
    fn signal(&self, signal: i32) {
        // SAFETY: to our own child, which has not been waited for yet.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// ND2 4.9, exit safety: the process is gone as soon as Disconnect has returned; the other side
/// still sees the whole connection, and its end.
#[test]
fn a_peer_may_exit_right_after_disconnect() {
    if let Some(at) = parent() {
        let end = connected(at);
        end.connector.disconnect(Sink::call(|_| ())).unwrap();
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(0) };
    }
    let end = End::new(&Options::from_env());
    let listener = listening(&end);
    for _ in 0..5 {
        let end = End::in_domain(&end.adapter, end.domain);
        let mut peer = child("a_peer_may_exit_right_after_disconnect", listener.address().unwrap());
        let (_buffer, gone) = accepted(&end, &listener, 1);
        assert_eq!(gone.wait(), Status::Success);
        assert_eq!(end.next().status, Status::Canceled);
        peer.wait().unwrap();
    }
}

/// Bytes sent before a process exits arrive, even if it leaves bytes unread, so that its exit
/// resets the connection (TEST:NdReceiveConnClosed). Without the extension, whose credits would
/// keep the parent's Send at home.
#[test]
fn what_was_sent_before_a_reset_still_counts() {
    let options = Options { extension: false, ..Options::from_env() };
    if let Some(at) = parent() {
        let end = connected_with(at, &options);
        let buffer = end.buffer(64);
        for _ in 0..3 {
            end.post(Operation::Send, &[buffer.all()]);
        }
        for _ in 0..3 {
            end.expect(CompletionKind::Send);
        }
        // The parent's megabytes meet no receive: they lie in the socket from now on, unread.
        let link = end.qp.0.qp.link().unwrap();
        let bell = crate::sys::Doorbell::new().unwrap();
        crate::sys::poll_any(&[(link.fd(), false)], &bell, None).unwrap();
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(0) };
    }
    let end = End::new(&options);
    let listener = listening(&end);
    let mut peer = child("what_was_sent_before_a_reset_still_counts", listener.address().unwrap());
    let (_buffer, gone) = accepted(&end, &listener, 3);
    let large = end.buffer(8 << 20);
    end.post(Operation::Send, &[large.all()]);
    peer.wait().unwrap();
    for context in 0..3 {
        let c = end.expect(CompletionKind::Receive);
        assert_eq!(c.request_context, context);
    }
    assert_eq!(gone.wait(), Status::Success);
    let last = end.next();
    assert_eq!((last.kind, last.status), (CompletionKind::Send, Status::Canceled));
}

/// ND2 4.9: Reject, and out.
#[test]
fn a_peer_may_exit_right_after_reject() {
    if let Some(at) = parent() {
        let end = End::new(&Options::from_env());
        let listener = listening(&end);
        // The parent gets the address as private data of a connection to it.
        let (sink, told) = signal();
        let address = listener.address().unwrap().to_string();
        end.connector.bind(loopback()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, address.as_bytes(), sink).unwrap();
        assert_eq!(told.wait(), Status::Success);
        let other = End::in_domain(&end.adapter, end.domain);
        let (sink, told) = signal();
        listener.get_request(&other.connector, sink).unwrap();
        assert_eq!(told.wait(), Status::Success);
        other.connector.reject(b"no").unwrap();
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(0) };
    }
    let end = End::new(&Options::from_env());
    let listener = listening(&end);
    let mut peer = child("a_peer_may_exit_right_after_reject", listener.address().unwrap());
    let (sink, told) = signal();
    listener.get_request(&end.connector, sink).unwrap();
    assert_eq!(told.wait(), Status::Success);
    let address = String::from_utf8(end.connector.private_data().unwrap()).unwrap();
    let (sink, _accepted) = signal();
    end.connector.accept(&end.qp, LIMITS, b"", sink).unwrap();
    let other = End::in_domain(&end.adapter, end.domain);
    let (sink, told) = signal();
    other.connector.bind(loopback()).unwrap();
    let to = address.parse().unwrap();
    other.connector.connect(&other.qp, to, LIMITS, b"", sink).unwrap();
    assert_eq!(told.wait(), Status::ConnectionRefused);
    assert_eq!(other.connector.private_data().unwrap(), b"no");
    peer.wait().unwrap();
}

/// Every handle errors in a forked child, whose end leaves the parent's connections alone.
#[test]
fn a_forked_child_has_handles_and_no_adapter() {
    if parent().is_none() {
        let mut peer = child("a_forked_child_has_handles_and_no_adapter", loopback());
        assert!(peer.wait().unwrap().success());
        return;
    }
    let (active, passive) = pair();
    let (from, to) = (active.buffer(64), passive.buffer(64));
    // SAFETY: the child calls handles, which touch nothing of the adapter's, and leaves.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let removed = |r: Result<(), Error>| r.is_err_and(|e| e.status == Status::Forked);
        let ok = removed(active.qp.post_receive(1, &[]))
            && removed(active.connector.disconnect(Sink::call(|_| ())))
            && removed(active.adapter.deregister(from.token))
            && removed(active.adapter.domain().map(drop))
            && removed(active.cq.wait(None).map(drop))
            && removed(active.adapter.listener(loopback()).map(drop))
            && active.cq.poll(&mut [Completion::default()]) == 0;
        drop((active, passive));
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "a handle did something in the child");
    passive.qp.post_receive(1, &[to.all()]).unwrap();
    active.post(Operation::Send, &[from.all()]);
    active.expect(CompletionKind::Send);
    passive.expect(CompletionKind::Receive);
}

/// An idle adapter burns no CPU: at most 1 ms in 2 s with 100 idle connections after a burst. Both
/// ends of each are in this one process.
#[test]
fn idle_connections_cost_nothing() {
    if parent().is_none() {
        let mut peer = child("idle_connections_cost_nothing", loopback());
        assert!(peer.wait().unwrap().success());
        return;
    }
    let (one, two) = (End::new(&Options::from_env()), End::new(&Options::from_env()));
    let ends: Vec<_> = (0..100)
        .map(|_| {
            let active = End::in_domain(&one.adapter, one.domain);
            let passive = End::in_domain(&two.adapter, two.domain);
            join(&active, &passive);
            (active, passive)
        })
        .collect();
    let (from, to) = (one.buffer(10_000), two.buffer(10_000));
    for (active, passive) in &ends {
        for _ in 0..10 {
            passive.qp.post_receive(1, &[to.all()]).unwrap();
            active.post(Operation::Send, &[from.all()]);
        }
        for _ in 0..10 {
            active.expect(CompletionKind::Send);
            passive.expect(CompletionKind::Receive);
        }
    }
    // A machine under load can disturb one measurement (interrupts are charged to the running
    // thread), and a steady cost disturbs all of them. Usually the first is the last.
    let best = (0..12)
        .map(|_| {
            let before = crate::sys::cpu_time();
            std::thread::sleep(Duration::from_secs(2));
            crate::sys::cpu_time() - before
        })
        .inspect(|spent| eprintln!("{spent:?} of CPU in 2 s"))
        .find(|spent| *spent <= Duration::from_millis(1));
    assert!(best.is_some());
}
