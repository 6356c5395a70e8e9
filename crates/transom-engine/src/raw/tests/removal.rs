//! An address that goes from under its adapter (ND2 4.5, "device removed").

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Instant;

use transom_memory::{Rights, Segment};

use super::harness::*;
use super::namespace::{OURS, PEERS, ip, with_addresses};
use crate::raw::{Adapter, Options, Path, QueuePairOptions};
use crate::tables::ConnectorState;
use crate::{Completion, CompletionKind, NotifyKind, Operation, Status};

fn open(address: IpAddr, path: Path) -> Adapter {
    let adapter = Adapter::open(address, Options { path, ..Options::from_env() }).unwrap();
    assert!(adapter.is_watched());
    adapter
}

/// Two ends at different addresses; `passive` has not accepted.
fn requested(active: &End, passive: &End) -> Signal {
    let listener = passive.adapter.listener((passive.adapter.address(), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind((active.adapter.address(), 0).into()).unwrap();
    let (sink, connected) = signal();
    let at = listener.address().unwrap();
    active.connector.connect(&active.qp, at, LIMITS, &[], sink).unwrap();
    assert_eq!(requested.wait(), Status::Success);
    connected
}

/// Accepted, and not completed.
fn replied(active: &End, passive: &End) -> Signal {
    let connected = requested(active, passive);
    let (sink, accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, &[], sink).unwrap();
    assert_eq!(connected.wait(), Status::Success);
    accepted
}

fn connected(active: &End, passive: &End) {
    let accepted = replied(active, passive);
    active.connector.complete_connect().unwrap();
    assert_eq!(accepted.wait(), Status::Success);
}

/// The next completion, when there is no use in waiting for it.
fn retrieved(end: &End) -> Completion {
    let (mut one, begun) = ([Completion::default()], Instant::now());
    while end.cq.poll(&mut one) == 0 {
        assert!(begun.elapsed() < PATIENCE, "no completion came");
        std::thread::yield_now();
    }
    one[0]
}

fn is_removed<T>(result: crate::raw::Result<T>) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.status, Status::DeviceRemoved, "{error}");
    assert!(error.to_string().contains("10.203.8.1 is no longer"), "{error}");
}

#[test]
fn what_waits_ends_when_the_address_goes_over_tcp() {
    with_addresses(|| everything_ends(Path::Tcp));
}

#[test]
fn what_waits_ends_when_the_address_goes_over_rings() {
    with_addresses(|| everything_ends(Path::Process));
}

fn everything_ends(path: Path) {
    let (ours, peers) = (open(OURS, path), open(PEERS, path));
    let here = End::on(&ours);
    let end = || End::in_domain(&ours, here.domain);
    let peer = || End::on(&peers);
    let mut waits = Vec::new();
    let mut expect = |what: &'static str, told: Signal| waits.push((what, told));

    // A listener with a connector that waits, and one with a request that no program takes.
    let waiting = end();
    let listener = ours.listener((OURS, 0).into()).unwrap();
    listener.listen(0).unwrap();
    let (sink, told) = signal();
    listener.get_request(&waiting.connector, sink).unwrap();
    expect("GetConnectionRequest", told);

    // A connection in each state.
    let (active, passive) = (peer(), end());
    connected(&active, &passive);
    let (sink, told) = signal();
    passive.connector.notify_disconnect(sink).unwrap();
    expect("NotifyDisconnect", told);
    let buffer = passive.buffer(4096);
    let window = passive.window(&buffer, Rights::REMOTE_READ);
    passive.qp.post_receive(7, &[buffer.all()]).unwrap();
    let (half, accepting) = (peer(), end());
    expect("Accept", replied(&half, &accepting));
    let (_asking, asked) = (peer(), end());
    let _answer = requested(&_asking, &asked);
    // This one gets a TCP connection, and no answer.
    let silent = TcpListener::bind((PEERS, 0)).unwrap();
    let connecting = end();
    connecting.connector.bind((OURS, 0).into()).unwrap();
    let (sink, told) = signal();
    let to = silent.local_addr().unwrap();
    connecting.connector.connect(&connecting.qp, to, LIMITS, &[], sink).unwrap();
    expect("Connect", told);

    // Queues.
    let idle = ours.completion_queue(4).unwrap();
    for kind in [NotifyKind::Any, NotifyKind::Solicited, NotifyKind::Errors] {
        let (sink, told) = signal();
        idle.notify(kind, sink).unwrap();
        expect("CQ Notify", told);
    }
    let shared = ours.shared_receive_queue(4, 1).unwrap();
    let (sink, told) = signal();
    shared.notify(sink).unwrap(); // the threshold is 0
    expect("SRQ Notify", told);
    let blocked = ours.completion_queue(4).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| blocked.wait(Some(PATIENCE)));
        while !blocked.cq.is_slept_on() {
            std::thread::yield_now();
        }
        ip("addr del 10.203.8.1/24 dev ours").unwrap();
        is_removed(thread.join().unwrap());
    });
    for (what, told) in waits {
        assert_eq!(told.wait(), Status::DeviceRemoved, "{what}");
    }

    // Requests posted before are canceled, and can be retrieved; so are requests posted now.
    let completion = retrieved(&passive);
    assert_eq!((completion.request_context, completion.status), (7, Status::Canceled));
    passive.post(Operation::Send, &[]);
    let completion = retrieved(&passive);
    assert_eq!((completion.kind, completion.status), (CompletionKind::Send, Status::Canceled));

    // Nothing begins any more.
    is_removed(ours.present());
    is_removed(ours.domain());
    is_removed(ours.completion_queue(1));
    is_removed(ours.shared_receive_queue(1, 1));
    let options = QueuePairOptions::default();
    is_removed(ours.queue_pair(here.domain, &here.cq, &here.cq, None, &options));
    is_removed(ours.connector());
    is_removed(ours.listener((OURS, 0).into()));
    is_removed(ours.reserve_region(here.domain));
    let memory: &'static mut [u8] = vec![0; 64].leak();
    let segments = [Segment { host: memory.as_ptr() as u64, length: 64 }];
    // SAFETY: leaked, and used for nothing else.
    is_removed(unsafe { ours.register(here.domain, 0, &segments, Rights::NONE) });
    is_removed(here.connector.bind((OURS, 0).into()));
    let (sink, _told) = signal();
    is_removed(connecting.connector.connect(&connecting.qp, to, LIMITS, &[], sink));
    is_removed(connecting.connector.complete_connect());
    let (sink, _told) = signal();
    is_removed(asked.connector.accept(&asked.qp, LIMITS, &[], sink));
    is_removed(asked.connector.reject(&[]));
    let (sink, _told) = signal();
    is_removed(passive.connector.notify_disconnect(sink));
    let (sink, _told) = signal();
    is_removed(listener.get_request(&here.connector, sink));
    is_removed(listener.listen(0));
    let (sink, _told) = signal();
    is_removed(shared.notify(sink));
    is_removed(shared.modify(8, 0));
    is_removed(idle.resize(8));
    is_removed(blocked.wait(None));

    // Calls that clean up work: the window died with its connection.
    assert_eq!(waiting.connector.state(), ConnectorState::Idle);
    listener.cancel().unwrap();
    passive.connector.cancel().unwrap();
    let (sink, told) = signal();
    passive.connector.disconnect(sink).unwrap();
    assert_eq!(told.wait(), Status::Success);
    assert!(ours.revoke(window).is_err());
    ours.deregister(buffer.token).unwrap();

    // The peer's adapter is none the worse.
    peers.present().unwrap();
    let (one, other) = (peer(), peer());
    connected(&one, &other);
}

/// The other side of a connection learns of the end while a way there is left: over rings.
#[test]
fn a_peer_on_this_host_gets_the_end() {
    with_addresses(|| {
        let (ours, peers) = (open(OURS, Path::Process), open(PEERS, Path::Process));
        let (active, passive) = (End::on(&peers), End::on(&ours));
        connected(&active, &passive);
        assert_eq!(active.connector.info().unwrap().path, "process");
        let (sink, gone) = signal();
        active.connector.notify_disconnect(sink).unwrap();
        ip("addr del 10.203.8.1/24 dev ours").unwrap();
        assert_eq!(gone.wait(), Status::Success);
        peers.present().unwrap();
    });
}

fn ends_with(adapter: &Adapter, what: &str) {
    let queue = adapter.completion_queue(1).unwrap();
    let (sink, told) = signal();
    queue.notify(NotifyKind::Any, sink).unwrap();
    ip(what).unwrap();
    assert_eq!(told.wait(), Status::DeviceRemoved, "{what}");
}

#[test]
fn an_interface_that_goes_takes_its_addresses_with_it() {
    with_addresses(|| {
        ends_with(&open(OURS, Path::Auto), "link del ours");
        // The other end of the pair has gone, too.
        assert!(Adapter::open(PEERS, Options::from_env()).is_err());
    });
}

#[test]
fn an_ipv6_address_that_goes_is_noticed() {
    with_addresses(|| {
        let Ok(()) = ip("addr add fd00:203::1/64 dev ours nodad") else {
            return eprintln!("SKIPPED: no IPv6 here");
        };
        let address: IpAddr = "fd00:203::1".parse().unwrap();
        ends_with(&open(address, Path::Auto), "addr del fd00:203::1/64 dev ours");
    });
}

/// 127.0.0.5 is local because 127.0.0.1 is.
#[test]
fn all_of_127_goes_with_its_address() {
    with_addresses(|| {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
        ends_with(&open(address, Path::Auto), "addr del 127.0.0.1/8 dev lo");
    });
}

/// An interface that is down keeps its address; that of another one, and one more, are nothing to this
/// adapter. An address that is on two interfaces is there until the second one loses it.
#[test]
fn what_leaves_the_address_where_it_is_ends_nothing() {
    with_addresses(|| {
        let (ours, peers) = (open(OURS, Path::Tcp), open(PEERS, Path::Tcp));
        let queue = ours.completion_queue(1).unwrap();
        let (sink, told) = signal();
        queue.notify(NotifyKind::Any, sink).unwrap();
        for what in [
            "link set ours down",
            "link set ours up",
            "addr add 10.203.8.2/24 dev ours",
            "addr del 10.203.8.2/24 dev ours",
            "addr add 10.203.8.1/32 dev peers",
            "addr del 10.203.8.1/24 dev ours",
        ] {
            ip(what).unwrap();
            // The call that the adapter's thread makes when the kernel reports the change.
            ours.0.shared.check_address();
            ours.present().unwrap();
        }
        assert_eq!(told.told(), None);
        assert!(ours.listener(SocketAddr::new(OURS, 0)).is_ok());
        ends_with(&peers, "addr del 10.203.9.1/24 dev peers");
        ours.present().unwrap();
        ends_with(&ours, "addr del 10.203.8.1/32 dev peers");
    });
}

/// The program can open another adapter when the address is back.
#[test]
fn an_address_that_comes_back_is_another_adapters() {
    with_addresses(|| {
        let ours = open(OURS, Path::Auto);
        ends_with(&ours, "addr del 10.203.8.1/24 dev ours");
        ip("addr add 10.203.8.1/24 dev ours").unwrap();
        is_removed(ours.present());
        let again = open(OURS, Path::Auto);
        connected(&End::on(&again), &End::on(&again));
    });
}

/// The adapter's own thread notices also while threads of the program look at the links.
#[test]
fn a_program_that_polls_all_the_time_sees_the_removal() {
    with_addresses(|| {
        let ours = open(OURS, Path::Tcp);
        let begun = Instant::now();
        ip("addr del 10.203.8.1/24 dev ours").unwrap();
        while ours.present().is_ok() {
            ours.progress();
            assert!(begun.elapsed() < PATIENCE);
        }
    });
}
