//! Two users of one host: which processes share memory, and which peers learn why something was
//! refused. A child of this process takes another user's number for it, which only root can.

use std::io::{BufRead, BufReader};

use transom_memory::Rights;

use super::harness::*;
use super::processes::{
    accepted, alone, child_of, connected_with, end_with_parent, parent, talking_child_of,
};
use super::upgrade::{NONCE, ask, hello, offerer};
use crate::raw::{Explain, HalfOpen, Options, Path, PathReason};
use crate::sys::LocalListener;
use crate::{CompletionKind, DenialCause, Operation, Status};

/// A number that no user has.
const STRANGER: u32 = 54_321;

/// Whether this test can be made; says so if not.
pub(super) fn is_root(test: &str) -> bool {
    let root = crate::sys::user() == 0;
    if !root {
        eprintln!("{test} is SKIPPED: only root can play two users");
    }
    root
}

/// Make this process another user's from here on.
pub(super) fn become_another_user() {
    become_user(STRANGER);
}

fn become_user(user: u32) {
    // SAFETY: plain calls; libc changes every thread of the process.
    unsafe {
        assert_eq!(libc::setresgid(user, user, user), 0);
        assert_eq!(libc::setresuid(user, user, user), 0);
        // A process that has changed its user may not look into /proc as others may.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
    }
    assert_eq!(crate::sys::user(), user);
    end_with_parent(); // which changing the user has undone
}

/// The options of the two sides of one connection.
#[derive(Clone, Copy, Debug)]
struct Case {
    stranger: bool,
    path: Path,
    /// Whether the owner, and its peer, welcome other users.
    others: [bool; 2],
    explain: Explain,
}

const ASKS: &str = "TRANSOM_TEST_ASKS";

/// The facts that the peer has found, as an exit status.
fn found(path: &str, reason: PathReason, explained: bool) -> i32 {
    let reason = match reason {
        PathReason::Proven => 1,
        PathReason::OtherUser => 2,
        PathReason::Declined => 3,
        PathReason::TcpOnly => 4,
        _ => 0,
    };
    100 + i32::from(path == "process") + 2 * i32::from(explained) + 4 * reason
}

/// In the child: connect, ask for what was never granted, tell what came of it.
fn peer_of(case: Case, at: std::net::SocketAddr) -> ! {
    if case.stranger {
        become_another_user();
    }
    let options = Options { path: case.path, other_users: case.others[1], ..Options::from_env() };
    let end = connected_with(at, &options);
    let info = end.connector.info().unwrap();
    let from = end.buffer(64);
    end.post(Operation::Write { token: 0x1234_5678, address: 64 }, &[from.all()]);
    let c = end.next();
    assert_eq!((c.kind, c.status), (CompletionKind::Write, Status::RemoteAccess));
    let explained = match end.adapter.denial(c.denial).map(|denial| denial.cause) {
        Some(DenialCause::ByPeer(error)) => error.explanation.is_some(),
        other => panic!("{other:?}"),
    };
    // SAFETY: ends the process without running anything else.
    unsafe { libc::_exit(found(info.path, info.path_reason, explained)) }
}

/// Design rule 4 and the rule of the path: memory is shared between users only if both ask for it.
/// Even then only a peer of the same user learns why something was refused, unless the owner allows
/// more. Neither depends on the path.
#[test]
fn users_share_memory_only_if_both_ask_and_get_reasons_only_if_allowed() {
    use {Explain::*, PathReason::*};
    let all = [
        // A peer of this user, for comparison.
        (false, Path::Auto, [false, false], SameUser, "process", Proven, true),
        (false, Path::Tcp, [false, false], SameUser, "tcp", TcpOnly, true),
        (false, Path::Auto, [false, false], Nobody, "process", Proven, false),
        (false, Path::Tcp, [false, false], Nobody, "tcp", TcpOnly, false),
        // A peer of another user.
        (true, Path::Auto, [false, false], SameUser, "tcp", OtherUser, false),
        (true, Path::Process, [true, false], SameUser, "tcp", OtherUser, false),
        (true, Path::Auto, [false, true], SameUser, "tcp", Declined, false),
        (true, Path::Auto, [true, true], SameUser, "process", Proven, false),
        (true, Path::Tcp, [true, true], SameUser, "tcp", TcpOnly, false),
        (true, Path::Auto, [true, true], Everyone, "process", Proven, true),
        (true, Path::Tcp, [true, true], Everyone, "tcp", TcpOnly, true),
    ];
    let case = |i: usize| {
        let (stranger, path, others, explain, ..) = all[i];
        Case { stranger, path, others, explain }
    };
    if let Some(at) = parent() {
        peer_of(case(std::env::var(ASKS).unwrap().parse().unwrap()), at);
    }
    let name = "users_share_memory_only_if_both_ask_and_get_reasons_only_if_allowed";
    let root = is_root(name);
    for (i, (.., path, reason, explained)) in all.into_iter().enumerate() {
        let Case { stranger, path: way, others, explain } = case(i);
        if stranger && !root {
            continue;
        }
        let options = Options { path: way, other_users: others[0], explain, ..Options::from_env() };
        let end = End::new(&options);
        let listener = listening(&end);
        let number = i.to_string();
        let test = format!("users::{name}");
        let mut peer = child_of(&test, listener.address().unwrap(), &[(ASKS, &number)]);
        let (_buffer, _gone) = accepted(&end, &listener, 0);
        let code = peer.wait().unwrap().code();
        assert_eq!(code, Some(found(path, reason, explained)), "{:?}", case(i));
        let kept = end.adapter.denials(|_| true);
        assert_eq!(kept.len(), 1, "the owner has the record: {kept:?}");
    }
}

/// Silent connections of another user take neither our own user's places, nor those of a third one.
#[test]
fn silent_connections_of_a_user_keep_no_other_user_out() {
    let test = "silent_connections_of_a_user_keep_no_other_user_out";
    if let Some(at) = parent() {
        if std::env::var(ASKS).unwrap() == "silent" {
            become_another_user();
            let silent: Vec<_> =
                (0..64).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
            println!("\nall are there");
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            return drop(silent);
        }
        become_user(STRANGER + 1);
        let end = connected_with(at, &Options::from_env());
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(i32::from(end.connector.info().is_err())) }
    }
    if !is_root(test) {
        return;
    }
    let half_open = HalfOpen { total: 64, per_address: 8 };
    let passive = End::new(&Options { half_open, ..Options::from_env() });
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    let mut silent = talking_child_of(&format!("users::{test}"), at, &[(ASKS, "silent")]);
    let mut lines = BufReader::new(silent.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "all are there"));
    until("they are turned away", || listener.turned_away() >= 54);
    join_at(&End::new(&Options::from_env()), &passive, &listener);
    let third = End::on(&passive.adapter);
    let mut peer = child_of(&format!("users::{test}"), at, &[(ASKS, "third")]);
    let (_buffer, _gone) = accepted(&third, &listener, 0);
    assert!(peer.wait().unwrap().success());
    assert_eq!(listener.turned_away(), 54);
    drop(silent.stdin.take());
    assert!(silent.wait().unwrap().success());
}

/// A server of root's that acts for a user for a moment, who comes just then: what could not look into its memory
/// anyway (ptrace(2)) shares none with it.
#[test]
fn a_process_that_acts_for_a_user_shares_no_memory_with_that_user() {
    let test = "users::a_process_that_acts_for_a_user_shares_no_memory_with_that_user";
    if let Some(at) = parent() {
        become_another_user();
        println!("\nready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let local = offerer(at);
        local.send(&hello(NONCE, 0)).unwrap();
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(i32::from(ask(at, NONCE).1)) }
    }
    if !is_root(test) || !alone(test) {
        return;
    }
    let passive = End::new(&Options { path: Path::Process, ..Options::from_env() });
    let listener = listening(&passive);
    let mut peer = talking_child_of(test, listener.address().unwrap(), &[]);
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    // SAFETY: plain calls; libc changes every thread of the process.
    let acts_as = |user| assert_eq!(unsafe { libc::seteuid(user) }, 0);
    acts_as(STRANGER);
    drop(peer.stdin.take());
    let answer = peer.wait().unwrap().code();
    acts_as(0);
    assert_eq!(answer, Some(i32::from(b'-')));
}

/// Another user has the name of our upgrade socket: nothing is believed or offered there, and
/// the connection takes TCP.
#[test]
fn an_upgrade_socket_of_another_user_is_not_used() {
    let test = "an_upgrade_socket_of_another_user_is_not_used";
    if let Some(at) = parent() {
        become_another_user();
        let socket = LocalListener::open(&format!("transom/process/{at}")).unwrap();
        println!("\nit stands");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap(); // until the other test process has ended
        // Connections to it bring nothing.
        while let Ok(local) = socket.accept() {
            let got = local.receive_handover(&mut [0; 64]);
            assert!(!matches!(got, Ok((_, Some(_)))), "memory was handed over: {got:?}");
        }
        println!("nothing was brought");
        return;
    }
    if !is_root(test) {
        return;
    }
    let passive = End::new(&Options { path: Path::Process, ..Options::from_env() });
    let listener = passive.adapter.listener(loopback()).unwrap();
    let at = listener.address().unwrap();
    let mut squatter = talking_child_of(&format!("users::{test}"), at, &[]);
    let mut lines = BufReader::new(squatter.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "it stands"));
    listener.listen(0).unwrap();
    let active = End::new(&Options { path: Path::Process, ..Options::from_env() });
    join_at(&active, &passive, &listener);
    let reason = |end: &End| end.connector.info().unwrap().path_reason;
    assert_eq!(
        (reason(&active), reason(&passive)),
        (PathReason::OtherUser, PathReason::UpgradeNameTaken)
    );
    let (from, to) = (active.buffer(64), passive.buffer(64));
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    active.expect(CompletionKind::Write);
    drop(squatter.stdin.take());
    assert!(lines.any(|line| line == "nothing was brought"));
    assert!(squatter.wait().unwrap().success());
}
