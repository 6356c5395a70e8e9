//! Connections that are made without queue pairs, at any address of the host, or refused.

use super::*;

/// V129: made without queue pairs, which join when they like; what the peer sends earlier waits.
#[test]
fn v129_queue_pairs_join_a_connection_that_was_made_without_them() {
    const LONG: usize = 500_000; // more than is kept
    for early in [true, false] {
        let (active, passive) = ends();
        let listener = listener(&passive);
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        active.connector.bind(loopback()).unwrap();
        let (sink, connected) = signal();
        let at = listener.address().unwrap();
        active.connector.connect(None, at, LIMITS, b"to whom", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        assert_eq!(passive.connector.private_data().unwrap(), b"to whom");
        let invalid = Status::ConnectionInvalid;
        assert_eq!(passive.connector.join(&passive.qp).unwrap_err().status, invalid);
        let (sink, accepted) = signal();
        passive.connector.accept(None, LIMITS, b"me", sink).unwrap();
        assert_eq!(connected.wait(), OK);
        let target = passive.buffer(64);
        let remote = Buffer::new(&passive, LONG, Rights(ALL.0 | Rights::REMOTE_WRITE.0));
        let source = active.buffer(LONG);
        source.fill(|_| 7);
        active.connector.join(&active.qp).unwrap();
        if early {
            passive.connector.join(&passive.qp).unwrap();
        }
        active.connector.complete_connect().unwrap();
        assert_eq!(accepted.wait(), OK);
        passive.qp.post_receive(20, &[target.all()]).unwrap();
        let to = Operation::Write { token: remote.token.0, address: remote.address() };
        for length in [8, LONG] {
            active.post(to, &[source.sge(0, length)]);
        }
        send(&active, 3);
        if !early {
            assert!(nothing(&active), "nobody has executed it");
            assert!(passive.adapter.held() < LONG / 2, "bounded, whatever it sends");
            assert_eq!(passive.connector.state(), ConnectorState::Connected);
            passive.connector.join(&passive.qp).unwrap();
        }
        for kind in [CompletionKind::Write, CompletionKind::Write, CompletionKind::Send] {
            active.expect(kind);
        }
        passive.expect(CompletionKind::Receive);
        assert_eq!(remote.bytes(), [7; LONG]);
        let again = passive.connector.join(&passive.qp).unwrap_err().status;
        assert_eq!(again, Status::ConnectionActive);
    }
}

/// V129: or never: the connection carries private data, and its end is noticed, by either side, also
/// if the peer had sent something.
#[test]
fn v129_the_end_of_a_connection_without_a_queue_pair_is_noticed() {
    for leaver in 0..2 {
        let (active, passive) = ends();
        let listener = listener(&passive);
        let (sink, requested) = signal();
        listener.get_request(&passive.connector, sink).unwrap();
        active.connector.bind(loopback()).unwrap();
        let (sink, connected) = signal();
        let at = listener.address().unwrap();
        active.connector.connect(None, at, LIMITS, b"", sink).unwrap();
        assert_eq!(requested.wait(), OK);
        let (sink, accepted) = signal();
        passive.connector.accept(None, LIMITS, b"", sink).unwrap();
        assert_eq!(connected.wait(), OK);
        active.connector.complete_connect().unwrap();
        assert_eq!(accepted.wait(), OK);
        let ends = [&active, &passive];
        ends[leaver].connector.disconnect(crate::raw::Sink::call(|_| ())).unwrap();
        parted(&ends[1 - leaver].connector);
        assert!(nothing(&active) && nothing(&passive));
    }
}

/// Connect to a listener at `to`, from `from`; the addresses that the passive side sees.
fn reach(from: IpAddr, listener: &Listener, to: IpAddr) -> (SocketAddr, SocketAddr) {
    let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
    let active = End::on(&any);
    let passive = End::on(&any);
    let (sink, requested) = signal();
    listener.get_request(&passive.connector, sink).unwrap();
    active.connector.bind((from, 0).into()).unwrap();
    let at = (to, listener.address().unwrap().port()).into();
    let (sink, connected) = signal();
    active.connector.connect(&active.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(requested.wait(), OK);
    let (sink, accepted) = signal();
    passive.connector.accept(&passive.qp, LIMITS, b"", sink).unwrap();
    assert_eq!(connected.wait(), OK);
    active.connector.complete_connect().unwrap();
    assert_eq!(accepted.wait(), OK);
    passive.qp.post_receive(20, &[]).unwrap();
    send(&active, 1);
    assert_eq!(outcomes(&active, 1), [(1, OK)]);
    let info = passive.connector.info().unwrap();
    assert_eq!(info.path, transom_testing::paths::of_this_run(), "{from} to {to}");
    assert_eq!(active.connector.info().unwrap().local, info.peer);
    (info.local, info.peer)
}

/// V113: one adapter and one listener serve every address of the host, of both families, and
/// connections within the host share memory whatever addresses they have.
#[test]
fn v113_one_listener_serves_all_addresses_of_the_host() {
    let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
    let v4 = [Ipv4Addr::LOCALHOST.into(), IpAddr::from([127, 0, 0, 2])];
    let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
    let all = (Ipv6Addr::UNSPECIFIED, 0).into();
    let Ok(listener) = any.listener(all) else { return }; // a machine without IPv6
    listener.listen(0).unwrap();
    for (from, to) in [(v4[0], v4[0]), (v4[0], v4[1]), (v4[1], v4[0]), (v6, v6)] {
        let (local, peer) = reach(from, &listener, to);
        assert_eq!((local.ip(), peer.ip()), (to, from), "as their own family writes them");
    }
    let mine = crate::raw::interfaces().unwrap().into_iter().map(|interface| interface.address);
    for to in mine.filter(|to| to.is_ipv4() && !to.is_loopback()) {
        assert_eq!(reach(v4[0], &listener, to).0.ip(), to);
    }
    // A listener of one address family.
    let listener = any.listener_of_one_family(all).unwrap();
    listener.listen(0).unwrap();
    assert_eq!(reach(v6, &listener, v6).1.ip(), v6);
    let end = End::on(&any);
    end.connector.bind((v4[0], 0).into()).unwrap();
    let at = (v4[0], listener.address().unwrap().port()).into();
    let (sink, refused) = signal();
    end.connector.connect(&end.qp, at, LIMITS, b"", sink).unwrap();
    assert_eq!(refused.wait(), Status::ConnectionRefused);
}

/// Addresses of two interfaces of one host share memory, too.
#[test]
fn v113_two_interfaces_of_one_host_share_memory() {
    with_addresses(|| {
        let any = Adapter::open(Ipv4Addr::UNSPECIFIED.into(), verbs()).unwrap();
        let listener = any.listener((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        listener.listen(0).unwrap();
        let (local, peer) = reach(OURS, &listener, PEERS);
        assert_eq!((local.ip(), peer.ip()), (PEERS, OURS));
    });
}

/// Verbs V124: a program can distinguish a rejection, with private data or without, from a port
/// without a listener, whenever it learns of it.
#[test]
fn v124_a_rejection_ends_no_connection_and_a_closed_port_says_why() {
    let (active, passive) = ends();
    let listener = listener(&passive);
    let address = listener.address().unwrap();
    let limits = crate::raw::ReadLimits { inbound: 1, outbound: 1 };
    let refused = |connector: &Connector| {
        let (sink, answered) = signal();
        connector.bind(loopback()).unwrap();
        connector.connect(None, address, limits, &[], sink).unwrap();
        move || answered.wait()
    };
    let asking = active.adapter.connector().unwrap();
    let answer = refused(&asking);
    let request = passive.adapter.connector().unwrap();
    let (sink, requested) = signal();
    listener.get_request(&request, sink).unwrap();
    assert_eq!(requested.wait(), OK);
    request.reject(&[]).unwrap();
    assert_eq!(answer(), Status::ConnectionRefused);
    assert_eq!(asking.ended(), None);
    drop(listener);
    let asking = active.adapter.connector().unwrap();
    assert_eq!(refused(&asking)(), Status::ConnectionRefused);
    assert_eq!(asking.ended(), Some(EndReason::Link(Status::ConnectionRefused)));
    // No link can be made at all.
    let asking = active.adapter.connector().unwrap();
    let (sink, answered) = signal();
    asking.bind(loopback()).unwrap();
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
    asking.connect(None, elsewhere, limits, &[], sink).unwrap();
    let status = answered.wait();
    assert_eq!(asking.ended(), Some(EndReason::Link(status)));
}
