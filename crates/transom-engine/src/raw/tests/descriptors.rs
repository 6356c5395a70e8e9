//! Descriptors of a process that peers hold before its program has taken their connections. A child of this process
//! takes another user's number for it, which only root can.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::harness::*;
use super::processes::{alone, parent, talking_child_of};
use super::upgrade::{ask, offerer};
use super::users::{become_another_user, is_root};
use crate::Status;
use crate::raw::{HalfOpen, Listener, Options, Path};

/// Descriptors that the listening process may have.
const ALL: u64 = 200;
/// Descriptors that it needs for itself.
const OWN: usize = 50;
/// Connections of the other user.
const FLOOD: usize = 300;

/// In the child: the ports of all listeners, of which [`parent`] is the first.
const PORTS: &str = "TRANSOM_TEST_PORTS";

fn may_have(descriptors: Option<u64>) {
    let limits = getrlimit(Resource::Nofile);
    let current = descriptors.or(limits.maximum);
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).unwrap();
}

/// In the child: another user connects again and again, and says `each` every time.
fn flood(at: SocketAddr, each: &[u8]) {
    become_another_user();
    hold(|_| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(each).unwrap();
        stream
    });
}

/// In the child: another user asks each of so many listeners in turn, again and again.
fn ask_in_turn(at: SocketAddr, listeners: usize) {
    become_another_user();
    let ports = std::env::var(PORTS).unwrap();
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().unwrap()).collect();
    assert_eq!(ports.len(), listeners);
    hold(|turn| {
        let mut stream = TcpStream::connect((at.ip(), ports[turn % listeners])).unwrap();
        stream.write_all(b"MPA ID Req Frame\x00\x01\x00\x00").unwrap();
        stream
    });
}

/// In the child: make many of these, and keep them.
fn hold<T>(one: impl FnMut(usize) -> T) {
    may_have(None);
    let all: Vec<_> = (0..FLOOD).map(one).collect();
    println!("\nall are there");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(all);
}

/// Start the child of this test, and wait until it has made its connections to the listeners.
fn flooded(test: &str, listeners: &[&Listener]) -> Child {
    let at: Vec<_> = listeners.iter().map(|listener| listener.address().unwrap()).collect();
    let ports: Vec<_> = at.iter().map(|at| at.port().to_string()).collect();
    let mut child = talking_child_of(test, at[0], &[(PORTS, &ports.join(" "))]);
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "all are there"));
    child
}

/// The process has descriptors for its own purposes.
fn has_descriptors() {
    let files: Vec<_> = (0..OWN).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    drop(files);
}

/// Silent connections have a part of the descriptors, and those of other users of this host half of that.
#[test]
fn silent_connections_leave_descriptors_for_others() {
    let test = "descriptors::silent_connections_leave_descriptors_for_others";
    if let Some(at) = parent() {
        return flood(at, b"");
    }
    if !is_root(test) || !alone(test) {
        return;
    }
    may_have(Some(ALL));
    let usual = HalfOpen::default();
    assert_eq!((usual.total, usual.per_address), (ALL as usize / 4, ALL as usize / 4));
    let passive = End::new(&Options::from_env());
    let (one, other) = (listening(&passive), listening(&passive));
    let mut child = flooded(test, &[&one]);
    // All listeners of an adapter have these places together, and all other users of this host half of them.
    let most = usual.total.div_ceil(2);
    until("the others are turned away", || one.turned_away() >= (FLOOD - most) as u64);
    has_descriptors();
    join_at(&End::new(&Options::from_env()), &passive, &other);
    assert_eq!(one.turned_away(), (FLOOD - most) as u64);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Requests that wait for the program have a part of the descriptors; others wait where they take none, and are not
/// lost.
#[test]
fn requests_that_wait_leave_descriptors_for_others() {
    let test = "descriptors::requests_that_wait_leave_descriptors_for_others";
    if let Some(at) = parent() {
        return flood(at, b"MPA ID Req Frame\x00\x01\x00\x00");
    }
    if !is_root(test) || !alone(test) {
        return;
    }
    may_have(Some(ALL));
    let passive = End::new(&Options::from_env());
    let (busy, other) = (listening(&passive), listening(&passive));
    let mut child = flooded(test, &[&busy]);
    let (waiting, links) = (ALL as usize / 4, || passive.adapter.counters().links);
    until("as many wait as may", || links() >= waiting);
    // Those that the program takes leave places to as many; some more may be half-way through start-up.
    const TAKEN: usize = 20;
    let take = |_| {
        let callee = End::on(&passive.adapter);
        let (sink, asked) = signal();
        busy.get_request(&callee.connector, sink).unwrap();
        assert_eq!(asked.wait(), Status::Success);
        callee
    };
    let taken: Vec<_> = (0..TAKEN).map(take).collect();
    until("the next ones wait", || links() >= waiting + TAKEN);
    assert!(links() <= waiting + TAKEN + HalfOpen::default().total, "{}", links());
    has_descriptors();
    join_at(&End::new(&Options::from_env()), &passive, &other);
    drop(taken);
    // The rest come in as places are free. Those that are refused, and stay, have such a place.
    for taken in 0..ALL as usize / 2 {
        drop(take(taken));
        assert!(links() <= waiting + TAKEN + HalfOpen::default().total, "{}", links());
    }
    assert_eq!(busy.turned_away(), 0);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// However many listeners are busy, together they leave descriptors to the program, and to one that is not.
#[test]
fn busy_listeners_together_leave_descriptors_for_others() {
    const LISTENERS: usize = 8;
    let test = "descriptors::busy_listeners_together_leave_descriptors_for_others";
    if let Some(at) = parent() {
        return ask_in_turn(at, LISTENERS);
    }
    if !is_root(test) || !alone(test) {
        return;
    }
    may_have(Some(ALL));
    let passive = End::new(&Options::from_env());
    let busy = [(); LISTENERS].map(|()| listening(&passive));
    let other = listening(&passive);
    let mut child = flooded(test, &busy.each_ref());
    // Each holds as many as are left, or one more, while some are half-way through start-up.
    let least = ALL as usize / 8 * 5 * LISTENERS / (LISTENERS + 1) - HalfOpen::default().total;
    until("the listeners are full", || passive.adapter.counters().links >= least);
    has_descriptors();
    join_at(&End::new(&Options::from_env()), &passive, &other);
    has_descriptors();
    // None of them has kept the others from some.
    for listener in &busy {
        let callee = End::on(&passive.adapter);
        let (sink, asked) = signal();
        listener.get_request(&callee.connector, sink).unwrap();
        assert_eq!(asked.wait(), Status::Success);
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// A program that has most of the descriptors for itself: peers have a part of the others.
#[test]
fn a_program_with_many_files_keeps_descriptors() {
    const LISTENERS: usize = 4;
    const FILES: usize = 80;
    let test = "descriptors::a_program_with_many_files_keeps_descriptors";
    if let Some(at) = parent() {
        return ask_in_turn(at, LISTENERS);
    }
    let Some(_) = crate::sys::descriptors_in_use() else {
        return eprintln!("SKIPPED: Linux before 6.2 does not say how many are in use");
    };
    if !is_root(test) || !alone(test) {
        return;
    }
    may_have(Some(ALL));
    let passive = End::new(&Options::from_env());
    let busy = [(); LISTENERS].map(|()| listening(&passive));
    let files: Vec<_> = (0..FILES).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let free = ALL as usize - crate::sys::descriptors_in_use().unwrap();
    let mut child = flooded(test, &busy.each_ref());
    // Each of four has half of what the others leave, and some more are half-way through start-up.
    until("the listeners are full", || passive.adapter.counters().links >= free / 5 * 2);
    let few: Vec<_> = (0..free / 4).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    drop((few, files));
    // There are more now.
    until("others come in", || passive.adapter.counters().links >= free / 5 * 4);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Processes of our own user that connect to the upgrade socket, and offer nothing, have a part of them.
#[test]
fn silent_offers_leave_descriptors_for_others() {
    let test = "descriptors::silent_offers_leave_descriptors_for_others";
    if let Some(at) = parent() {
        // A question has the listener look at many offers.
        return hold(|turn| (offerer(at), (turn == FLOOD - 1).then(|| ask(at, [1; 16]).1)));
    }
    if !alone(test) {
        return;
    }
    may_have(Some(ALL));
    let options = Options { path: Path::Process, ..Options::from_env() };
    let passive = End::new(&options);
    let listener = listening(&passive);
    let mut child = flooded(test, &[&listener]);
    has_descriptors();
    join_at(&End::new(&options), &passive, &listener);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
