//! A guesser of tokens who is another user of this host.

use std::time::Duration;

use transom_memory::Rights;

use super::harness::*;
use super::namespace::{OURS, PEERS, with_addresses};
use super::processes::{accepted, child_of, connected_with, parent};
use super::users::{become_another_user, is_root};
use crate::raw::{Adapter, GuessLimit, Options, Path};
use crate::{CompletionKind, Operation, Status};

/// Rule 7: the kernel says which user guesses. Only that user is slowed down, though all users of
/// this host have the same address.
#[test]
fn only_the_guessing_user_of_this_host_is_slowed_down() {
    let test = "guesses::only_the_guessing_user_of_this_host_is_slowed_down";
    let limit = GuessLimit { free: 3, pause: Duration::from_secs(3600), ..GuessLimit::USUAL };
    let limit = GuessLimit { longest: Duration::from_secs(86400), ..limit };
    let options = Options { path: Path::Tcp, guesses: Some(limit), ..Options::from_env() };
    if let Some(at) = parent() {
        become_another_user();
        for guess in 0..=limit.free {
            let end = connected_with(at, &options);
            let from = end.buffer(8);
            let operation = Operation::Write { token: 0x1234_5600 + guess, address: 0 };
            end.post(operation, &[from.all()]);
            assert_eq!(end.next().status, Status::RemoteAccess);
        }
        let end = End::new(&options);
        let (sink, told) = signal();
        end.connector.bind(loopback()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
        assert_eq!(told.wait(), Status::ConnectionRefused);
        return;
    }
    if !is_root(test) {
        return;
    }
    let owner = End::new(&options);
    let listener = listening(&owner);
    let mut peer = child_of(test, listener.address().unwrap(), &[]);
    for _ in 0..=limit.free {
        let end = End::in_domain(&owner.adapter, owner.domain);
        let (_buffer, gone) = accepted(&end, &listener, 1);
        assert_eq!(gone.wait(), Status::Success);
    }
    assert!(peer.wait().unwrap().success(), "it was let in once more");
    let counters = owner.adapter.counters();
    assert_eq!(counters.guesses, u64::from(limit.free) + 1);
    assert!(counters.slowed > 0);
    // Our own user, from the same address.
    let (active, passive) = (End::new(&options), End::on(&owner.adapter));
    join_at(&active, &passive, &listener);
    let (from, to) = (active.buffer(64), passive.buffer(64));
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    active.expect(CompletionKind::Write);
}

/// Rule 7: a user of this host who guesses from another one of its addresses is known, though he leaves before
/// his guess is judged; others at that address, and in its network, are let in.
#[test]
fn a_guesser_at_another_address_of_this_host_keeps_nobody_out() {
    let test = "guesses::a_guesser_at_another_address_of_this_host_keeps_nobody_out";
    let limit = GuessLimit { free: 3, pause: Duration::from_secs(3600), ..GuessLimit::USUAL };
    let limit = GuessLimit { longest: Duration::from_secs(86400), ..limit };
    let options = Options { path: Path::Tcp, guesses: Some(limit), ..Options::from_env() };
    let from_peers = |at| {
        let end = End::on(&Adapter::open(PEERS, options.clone()).unwrap());
        let (sink, told) = signal();
        end.connector.bind((PEERS, 0).into()).unwrap();
        end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
        let let_in = told.wait() == Status::Success;
        if let_in {
            end.connector.complete_connect().unwrap();
        }
        let_in.then_some(end)
    };
    if let Some(at) = parent() {
        become_another_user();
        for guess in 0.. {
            let Some(end) = from_peers(at) else { return };
            let from = end.buffer(8);
            let operation = Operation::Write { token: 0x1234_5600 + guess, address: 0 };
            end.post(operation, &[from.all()]);
            if guess % 2 == 0 {
                assert_eq!(end.next().status, Status::RemoteAccess);
            }
        }
    }
    with_addresses(|| {
        let adapter = Adapter::open(OURS, options.clone()).unwrap();
        let listener = adapter.listener((OURS, 0).into()).unwrap();
        listener.listen(0).unwrap();
        let at = listener.address().unwrap();
        let mut peer = child_of(test, at, &[]);
        let domain = End::on(&adapter).domain;
        // A guess whose sender leaves at once may never be sent, and is none then.
        while adapter.counters().guesses <= u64::from(limit.free) {
            let end = End::in_domain(&adapter, domain);
            let (_buffer, gone) = accepted(&end, &listener, 1);
            assert_eq!(gone.wait(), Status::Success);
        }
        assert!(peer.wait().unwrap().success(), "turned away from then on");
        assert!(adapter.counters().slowed > 0);
        let end = End::in_domain(&adapter, domain);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| from_peers(at).is_some());
            accepted(&end, &listener, 1);
            assert!(other.join().unwrap());
        });
    });
}

/// Rule 7: after a first guess, peers are identified as they come in: a guesser that leaves before
/// its guess is judged is known all the same.
#[test]
fn a_peer_that_guesses_and_leaves_is_identified_as_it_came_in() {
    let limit = GuessLimit { own_user: true, ..GuessLimit::USUAL };
    let options = Options { path: Path::Tcp, guesses: Some(limit), ..Options::from_env() };
    let owner = End::new(&options);
    let listener = listening(&owner);
    let joined = || {
        let (active, passive) = (End::new(&options), End::on(&owner.adapter));
        join_at(&active, &passive, &listener);
        (active, passive)
    };
    let known = |end: &End| end.qp.0.qp.link().unwrap().known();
    let (first, other) = joined();
    assert_eq!(known(&other), None, "nobody is asked about while nobody guesses");
    let from = first.buffer(8);
    first.post(Operation::Write { token: 0x1234_5678, address: 0 }, &[from.all()]);
    assert_eq!(first.next().status, Status::RemoteAccess);
    let (_second, other) = joined();
    assert!(known(&other).is_some());
}
