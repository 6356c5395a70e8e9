//! Local and remote addresses, and what is said where a connection cannot come about (NDK 6.7,
//! 9.2).

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::types::Version;
use transom_ndkpi::{NdkOpenAdapter, Status};
use transom_testing::ports::Held;

/// A socket address as C has it, and its size.
pub(crate) fn bytes_of(address: SocketAddr) -> (Vec<u8>, u32) {
    let family: u16 = if address.is_ipv4() { 2 } else { 23 };
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => bytes.extend(v4.ip().octets().into_iter().chain([0; 8])),
        SocketAddr::V6(v6) => {
            bytes.extend([0; 4]);
            bytes.extend(v6.ip().octets().into_iter().chain([0; 4]));
        }
    }
    let length = bytes.len() as u32;
    (bytes, length)
}

pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

pub(crate) fn new_listener(side: &Side, events: &Server) -> Ptr {
    let t = table::<AdapterDispatch>(side.adapter);
    let context = (&raw const *events).cast_mut().cast();
    let make = |cb, ctx, out| unsafe {
        (t.create_listener)(side.adapter, Some(take_it), context, cb, ctx, out)
    };
    create(make).unwrap()
}

pub(crate) fn listen_at(listener: Ptr, at: SocketAddr) -> Status {
    let t = table::<ListenerDispatch>(listener);
    let (at, length) = bytes_of(at);
    end_of(|cb, ctx| unsafe { (t.listen)(listener, at.as_ptr().cast(), length, cb, ctx) })
}

/// The port of a listener, or why there is none.
pub(crate) fn port_of(listener: Ptr) -> Result<u16, Status> {
    let t = table::<ListenerDispatch>(listener);
    let (mut bytes, mut length) = ([0_u8; 16], 16);
    let status = unsafe { (t.get_local_address)(listener, bytes.as_mut_ptr().cast(), &mut length) };
    if status != 0 {
        return Err(Status(status));
    }
    assert_eq!(bytes[4..8], [127, 0, 0, 1]);
    Ok(u16::from_be_bytes([bytes[2], bytes[3]]))
}

pub(crate) fn connect_from(
    side: &Side,
    connector: Ptr,
    from: SocketAddr,
    to: SocketAddr,
) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    let ((from, from_length), (to, to_length)) = (bytes_of(from), bytes_of(to));
    end_of(|cb, ctx| unsafe {
        let (from, to, none) = (from.as_ptr().cast(), to.as_ptr().cast(), std::ptr::null());
        let (from, to) = ((from, from_length), (to, to_length));
        (t.connect)(connector, side.qp, from.0, from.1, to.0, to.1, 1, 1, none, 0, cb, ctx)
    })
}

/// This side's port, or why it has none.
pub(crate) fn local_port(connector: Ptr) -> Result<u16, Status> {
    let t = table::<ConnectorDispatch>(connector);
    let (mut bytes, mut length) = ([0_u8; 16], 16);
    let status =
        unsafe { (t.get_local_address)(connector, bytes.as_mut_ptr().cast(), &mut length) };
    if status == 0 { Ok(u16::from_be_bytes([bytes[2], bytes[3]])) } else { Err(Status(status)) }
}

pub(crate) fn foreign() -> [SocketAddr; 6] {
    [
        (Ipv4Addr::UNSPECIFIED, 0).into(), // every interface of the host
        (Ipv4Addr::new(127, 0, 0, 2), 0).into(),
        (Ipv4Addr::new(192, 0, 2, 1), 0).into(), // no host's
        (Ipv6Addr::UNSPECIFIED, 0).into(),
        (Ipv6Addr::LOCALHOST, 0).into(),
        (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0).into(),
    ]
}

pub(crate) fn idle_side(mode: transom_ndkpi::Mode, test: impl FnOnce(&Side)) {
    let side = half(options(mode));
    test(&side);
    close_all(&[side.qp, side.cq, side.pd]);
    close_adapter(side.adapter);
}

/// INVALID_ADDRESS: not an address of this adapter. The listener is as before, and listens where it
/// may.
#[test]
fn a_listener_takes_an_address_of_its_adapter() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let events = Server::new(side.qp);
            let listener = new_listener(side, &events);
            for at in foreign() {
                assert_eq!(listen_at(listener, at), Status::INVALID_ADDRESS, "{at}");
                assert_eq!(port_of(listener), Err(Status::INVALID_DEVICE_STATE), "{at}");
            }
            assert_eq!(listen_at(listener, local(0)), Status::SUCCESS);
            let port = port_of(listener).unwrap();
            assert_eq!(listen_at(listener, local(0)), Status::INVALID_DEVICE_STATE, "twice");
            assert_eq!(port_of(listener), Ok(port), "nothing changed");
            close(listener);
        });
    });
}

/// The source of a connection is an address of its adapter.
#[test]
fn a_connection_comes_from_an_address_of_its_adapter() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let (connector, held) = (connector(side.adapter), Held::new().unwrap());
            for from in foreign() {
                let status = connect_from(side, connector, from, held.address());
                assert_eq!(status, Status::INVALID_ADDRESS, "{from}");
            }
            let status = connect_from(side, connector, local(0), held.address());
            assert_eq!(status, Status::CONNECTION_REFUSED);
            close(connector);
        });
    });
}

/// SHARING_VIOLATION: the address is in use, for a listener as for the source of a connection; it
/// is free when its listener is closed.
#[test]
fn a_port_belongs_to_one_listener() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let events = Server::new(side.qp);
            let [first, second] = [(); 2].map(|()| new_listener(side, &events));
            // No other socket gets the port while neither of them listens there.
            let kept = Held::new().unwrap();
            let at = kept.address();
            assert_eq!(listen_at(first, at), Status::SUCCESS);
            assert_eq!(listen_at(second, at), Status::SHARING_VIOLATION);
            assert_eq!(port_of(second), Err(Status::INVALID_DEVICE_STATE));
            let (connector, held) = (connector(side.adapter), Held::new().unwrap());
            let status = connect_from(side, connector, at, held.address());
            assert_eq!(status, Status::SHARING_VIOLATION);
            close(first);
            assert_eq!(listen_at(second, at), Status::SUCCESS);
            assert_eq!(port_of(second), Ok(at.port()));
            close_all(&[second, connector]);
        });
    });
}

/// A failed connect may be tried again, from another address: each connect has its own. Between
/// them the connector has none (NDK CN-11).
#[test]
fn each_connect_has_its_own_source() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let mut client = half(options(mode));
        client.connector = connector(client.adapter);
        let [first, second, nobody] = [(); 3].map(|()| Held::new().unwrap());
        let refused = connect_from(&client, client.connector, first.address(), nobody.address());
        assert_eq!(refused, Status::CONNECTION_REFUSED);
        assert_eq!(local_port(client.connector), Err(Status::CONNECTION_INVALID));
        let status = connect_from(&client, client.connector, second.address(), local(port));
        assert_eq!(status, Status::SUCCESS);
        assert_eq!(local_port(client.connector), Ok(second.address().port()));
        assert_eq!(complete(client.connector), Status::SUCCESS);
        let server = Side { connector: events.event.get().0, ..server };
        assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
        let listening = begin_close(listener).1;
        client.end(&[]);
        server.end(&[]);
        listening.get();
        Box::leak(events);
    });
}

/// Calls with addresses of IPv6: an adapter of one, a listener, a connection, both of its
/// addresses.
#[test]
fn an_adapter_has_an_ipv6_address() {
    let here = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    if let Err(why) = TcpListener::bind(here(0)) {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: no IPv6: {why}");
        return;
    }
    let side = |mode| {
        let ((at, length), mut adapter) = (bytes_of(here(0)), std::ptr::null_mut());
        let version = Version { major: 2, minor: 0 };
        let (at, options) = (at.as_ptr().cast(), options(mode));
        let status = unsafe { NdkOpenAdapter(version, at, length, &options, &mut adapter) };
        assert_eq!(Status(status), Status::SUCCESS);
        let (pd, cq) = (pd(adapter), cq(adapter));
        Side { adapter, pd, cq, qp: qp(pd, cq, 77), connector: std::ptr::null_mut() }
    };
    // The address that a call gives, without its family, which is the system's.
    let address = |object: Ptr, get: GetAddress| {
        let (mut bytes, mut length) = ([0_u8; 29], 27);
        let status = unsafe { get(object, bytes.as_mut_ptr().cast(), &mut length) };
        assert_eq!((Status(status), length), (Status::BUFFER_TOO_SMALL, 28));
        assert_eq!(bytes, [0; 29], "nothing is written");
        let status = unsafe { get(object, bytes.as_mut_ptr().cast(), &mut length) };
        assert_eq!((Status(status), length, bytes[28]), (Status::SUCCESS, 28, 0));
        bytes[2..28].to_vec()
    };
    let expected = |port: u16| bytes_of(here(port)).0[2..].to_vec();
    let port_in = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    in_every_mode(|mode| {
        let (mut client, mut server) = (side(mode), side(mode));
        let events = Server::new(server.qp);
        let t = table::<AdapterDispatch>(server.adapter);
        let context = (&raw const *events).cast_mut().cast();
        let listener = create(|cb, ctx, out| unsafe {
            (t.create_listener)(server.adapter, Some(accept_it), context, cb, ctx, out)
        });
        let listener = listener.unwrap();
        assert_eq!(listen_at(listener, local(0)), Status::INVALID_ADDRESS, "of the other family");
        assert_eq!(listen_at(listener, here(0)), Status::SUCCESS);
        let get = table::<ListenerDispatch>(listener).get_local_address;
        let port = port_in(&address(listener, get));
        assert_eq!(address(listener, get), expected(port));
        client.connector = connector(client.adapter);
        let connected = connect_from(&client, client.connector, here(0), here(port));
        assert_eq!(connected, Status::SUCCESS);
        assert_eq!(complete(client.connector), Status::SUCCESS);
        assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
        server.connector = events.event.get().0;
        let [(ours, theirs), (its, ours_there)] =
            [client.connector, server.connector].map(|connector| {
                let t = table::<ConnectorDispatch>(connector);
                (address(connector, t.get_local_address), address(connector, t.get_peer_address))
            });
        assert_eq!((&theirs, &its), (&expected(port), &expected(port)));
        assert_eq!((&ours, &ours_there), (&expected(port_in(&ours)), &ours));
        let listening = begin_close(listener).1;
        client.end(&[]);
        server.end(&[]);
        listening.get();
        Box::leak(events);
    });
}

/// The answer about a destination to which nothing leads; the connector stays usable.
#[test]
fn a_destination_that_cannot_be_reached_says_why() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let connector = connector(side.adapter);
            let held = Held::new().unwrap();
            let port = held.address().port();
            for (to, status) in [
                // A broadcast address is no host's: the system has no route to it for a stream.
                ((Ipv4Addr::new(127, 255, 255, 255), port), Status::NETWORK_UNREACHABLE),
                ((Ipv4Addr::UNSPECIFIED, port), Status::HOST_UNREACHABLE),
                ((Ipv4Addr::new(224, 0, 0, 1), port), Status::HOST_UNREACHABLE),
                ((Ipv4Addr::LOCALHOST, 0), Status::HOST_UNREACHABLE),
                ((Ipv4Addr::LOCALHOST, port), Status::CONNECTION_REFUSED),
            ] {
                let to = to.into();
                assert_eq!(connect_from(side, connector, local(0), to), status, "{to}");
            }
            let to = (Ipv6Addr::LOCALHOST, port).into();
            let status = connect_from(side, connector, local(0), to);
            assert_eq!(status, Status::INVALID_ADDRESS, "of the other family");
            close(connector);
        });
    });
}

/// Anything but a socket address is an INVALID_PARAMETER, here as in any call with one.
#[test]
fn what_is_no_address_is_an_invalid_parameter() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let events = Server::new(side.qp);
            let listener = new_listener(side, &events);
            let t = table::<ListenerDispatch>(listener);
            let (good, length) = bytes_of(local(0));
            let (v6, v6_length) = bytes_of((Ipv6Addr::LOCALHOST, 0).into());
            let unknown = [[1, 0].as_slice(), &good[2..]].concat();
            for (at, length, what) in [
                (std::ptr::null(), length, "NULL"),
                (good.as_ptr(), 7, "an IPv4 address without its last byte"),
                (v6.as_ptr(), v6_length - 1, "an IPv6 address without its last byte"),
                (unknown.as_ptr(), length, "a Unix socket's"),
                (good.as_ptr(), 0, "nothing"),
            ] {
                let end =
                    end_of(|cb, ctx| unsafe { (t.listen)(listener, at.cast(), length, cb, ctx) });
                assert_eq!(end, Status::INVALID_PARAMETER, "{what}");
            }
            close(listener);
        });
    });
}

const ALONE: &str = "TRANSOM_ONE_PORT";
const THIS: &str = "addresses::without_a_free_port_there_are_too_many_addresses";

/// TOO_MANY_ADDRESSES: the system chooses the port, and none is left. In a network namespace with
/// one, so that no other test runs out.
#[test]
fn without_a_free_port_there_are_too_many_addresses() {
    if std::env::var_os(ALONE).is_none() {
        let script =
            "ip link set lo up && echo 40000 40000 > /proc/sys/net/ipv4/ip_local_port_range";
        let unshare = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
            command
        };
        if !unshare(script).output().is_ok_and(|output| output.status.success()) {
            let why = "no right to a network namespace of one's own";
            let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
            return;
        }
        let test = std::env::current_exe().unwrap();
        let script = format!("{script} && exec {} --exact {THIS} --nocapture", test.display());
        let output = unshare(&script).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let events = Server::new(side.qp);
            let (listener, connector) = (new_listener(side, &events), connector(side.adapter));
            let peer = TcpListener::bind(local(41000)).unwrap();
            let last = TcpListener::bind(local(0)).unwrap();
            assert_eq!(last.local_addr().unwrap().port(), 40000);
            assert_eq!(listen_at(listener, local(0)), Status::TOO_MANY_ADDRESSES);
            assert_eq!(port_of(listener), Err(Status::INVALID_DEVICE_STATE));
            let status = connect_from(side, connector, local(0), peer.local_addr().unwrap());
            assert_eq!(status, Status::TOO_MANY_ADDRESSES);
            assert_eq!(endpoint(side.adapter, 0), Err(Status::TOO_MANY_ADDRESSES));
            drop(last);
            assert_eq!(listen_at(listener, local(0)), Status::SUCCESS);
            assert_eq!(port_of(listener), Ok(40000));
            close_all(&[listener, connector]);
        });
    });
}
