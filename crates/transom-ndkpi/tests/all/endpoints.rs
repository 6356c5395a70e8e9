//! Local addresses that are in use (NDK CN-6), and shared endpoints (NDK CN-8), in every mode.

use std::net::{SocketAddr, TcpListener};

use crate::addresses::*;
use crate::common::*;
use transom_ndkpi::Status;
use transom_ndkpi::dispatch::*;
use transom_testing::ports::Held;

const IN_USE: Status = Status::SHARING_VIOLATION;

/// Whether `at` is in use, for every call that takes an address and for other programs.
fn assert_used(side: &Side, at: SocketAddr, used: bool, why: &str) {
    let events = Server::new(side.qp);
    let nobody = Held::new().unwrap();
    let (listener, connector) = (new_listener(side, &events), connector(side.adapter));
    let of = |ends: Status| if used { IN_USE } else { ends };
    assert_eq!(listen_at(listener, at), of(Status::SUCCESS), "listen: {why}");
    close(listener);
    let connected = connect_from(side, connector, at, nobody.address());
    assert_eq!(connected, of(Status::CONNECTION_REFUSED), "connect: {why}");
    close(connector);
    let made = endpoint(side.adapter, at.port());
    assert_eq!(made.err(), used.then_some(IN_USE), "endpoint: {why}");
    made.into_iter().for_each(close);
    assert_eq!(TcpListener::bind(at).is_err(), used, "another program: {why}");
}

fn connect_shared(side: &Side, endpoint: Ptr, to: SocketAddr) -> Status {
    let t = table::<ConnectorDispatch>(side.connector);
    let (to, length) = bytes_of(to);
    end_of(|cb, ctx| unsafe {
        let (to, none) = (to.as_ptr().cast(), std::ptr::null());
        (t.connect_with_shared_endpoint)(
            side.connector,
            side.qp,
            endpoint,
            to,
            length,
            1,
            1,
            none,
            0,
            cb,
            ctx,
        )
    })
}

fn address_of(endpoint: Ptr) -> SocketAddr {
    let t = table::<SharedEndpointDispatch>(endpoint);
    let (mut bytes, mut length) = ([0_u8; 16], 8);
    let get = |bytes: &mut [u8; 16], length: &mut u32| {
        Status(unsafe { (t.get_local_address)(endpoint, bytes.as_mut_ptr().cast(), length) })
    };
    assert_eq!((get(&mut bytes, &mut length), length), (Status::BUFFER_TOO_SMALL, 16));
    assert_eq!(bytes, [0; 16], "nothing is written");
    assert_eq!((get(&mut bytes, &mut length), length), (Status::SUCCESS, 16));
    assert_eq!(bytes[4..8], [127, 0, 0, 1]);
    local(u16::from_be_bytes([bytes[2], bytes[3]]))
}

/// A side that listens, and accepts once.
struct Callee {
    side: Side,
    events: Box<Server>,
    listener: Ptr,
    at: SocketAddr,
}

impl Callee {
    fn new(mode: transom_ndkpi::Mode, at: SocketAddr) -> Callee {
        let side = half(options(mode));
        let events = Server::new(side.qp);
        let t = table::<AdapterDispatch>(side.adapter);
        let context = (&raw const *events).cast_mut().cast();
        let listener = create(|cb, ctx, out| unsafe {
            (t.create_listener)(side.adapter, Some(accept_it), context, cb, ctx, out)
        })
        .unwrap();
        assert_eq!(listen_at(listener, at), Status::SUCCESS);
        let at = local(port_of(listener).unwrap());
        Callee { side, events, listener, at }
    }
    /// The peer has connected: complete it on both sides.
    fn completed(&mut self, peer: &Side) {
        assert_eq!(complete(peer.connector), Status::SUCCESS);
        assert_eq!(Status(self.events.accepted.get()), Status::SUCCESS);
        self.side.connector = self.events.event.get().0;
    }
    fn end(self) {
        let listening = begin_close(self.listener).1;
        self.side.end(&[]);
        listening.get();
        Box::leak(self.events);
    }
}

/// A side with a connector, to connect with.
fn caller(mode: transom_ndkpi::Mode) -> Side {
    let side = half(options(mode));
    Side { connector: connector(side.adapter), ..side }
}

/// A message in each direction.
fn talk(one: &Side, other: &Side) {
    for (from, to) in [(one, other), (other, one)] {
        assert_eq!(to.receive(1, &[]), Status::SUCCESS);
        assert_eq!(from.send(2, &[], 0), Status::SUCCESS);
        assert_eq!(from.one(), (2, Status::SUCCESS, 0));
        assert_eq!(to.one(), (1, Status::SUCCESS, 0));
    }
}

#[test]
fn cn06_a_listeners_port_is_in_use_until_its_connectors_are_closed() {
    in_every_mode(|mode| {
        idle_side(mode, |third| {
            let kept = Held::new().unwrap();
            for at in [local(0), kept.address()] {
                let client = caller(mode);
                let mut callee = Callee::new(mode, at);
                let at = callee.at;
                assert_used(third, at, true, "it listens");
                let connected = connect_from(&client, client.connector, local(0), at);
                assert_eq!(connected, Status::SUCCESS);
                callee.completed(&client);
                let (returned, listening) = begin_close(callee.listener);
                assert_eq!(returned, PENDING);
                assert_used(third, at, true, "its listener is being closed");
                talk(&client, &callee.side);
                client.end(&[]);
                assert_used(third, at, true, "a connector is open, if disconnected");
                close(std::mem::replace(&mut callee.side.connector, std::ptr::null_mut()));
                listening.get();
                // Another program may have any other port by now.
                if at == kept.address() {
                    assert_used(third, at, false, "nothing has it");
                }
                close_all(&[callee.side.qp, callee.side.cq, callee.side.pd]);
                close_adapter(callee.side.adapter);
                Box::leak(callee.events);
            }
        });
    });
}

#[test]
fn cn06_a_connections_source_is_in_use_until_its_connector_is_closed() {
    in_every_mode(|mode| {
        idle_side(mode, |third| {
            let (kept, nobody) = (Held::new().unwrap(), Held::new().unwrap());
            for from in [local(0), kept.address()] {
                let client = caller(mode);
                let mut callee = Callee::new(mode, local(0));
                let refused = connect_from(&client, client.connector, from, nobody.address());
                assert_eq!(refused, Status::CONNECTION_REFUSED);
                if from.port() != 0 {
                    assert_used(third, from, false, "the connect has failed");
                }
                let connected = connect_from(&client, client.connector, from, callee.at);
                assert_eq!(connected, Status::SUCCESS);
                let at = local(local_port(client.connector).unwrap());
                assert!(from.port() == 0 || from == at);
                assert_used(third, at, true, "it is being connected");
                callee.completed(&client);
                assert_used(third, at, true, "it is connected");
                let again = connect_from(&client, client.connector, from, callee.at);
                assert_eq!(again, Status::CONNECTION_ACTIVE);
                assert_used(third, at, true, "a refused connect");
                talk(&client, &callee.side);
                callee.end();
                assert_used(third, at, true, "its connector is open");
                close(client.connector);
                if at == kept.address() {
                    assert_used(third, at, false, "it is closed");
                }
                close_all(&[client.qp, client.cq, client.pd]);
                close_adapter(client.adapter);
            }
        });
    });
}

/// Connections to several peers from one address; one peer has only one of them. The endpoint's
/// close waits for its connectors, and its address is in use as long.
#[test]
fn cn08_a_shared_endpoint_serves_several_connections() {
    in_every_mode(|mode| {
        let [mut one, mut two] = [(); 2].map(|()| Callee::new(mode, local(0)));
        let first = caller(mode);
        let second = another_side(&first);
        let kept = Held::new().unwrap();
        let endpoint = endpoint(first.adapter, kept.address().port()).unwrap();
        let at = address_of(endpoint);
        assert_eq!(at, kept.address());
        idle_side(mode, |third| {
            assert_used(third, at, true, "an endpoint has it");
            assert_eq!(connect_shared(&first, endpoint, one.at), Status::SUCCESS);
            one.completed(&first);
            let twice = connect_shared(&second, endpoint, one.at);
            assert_eq!(twice, Status::ADDRESS_ALREADY_EXISTS);
            assert_eq!(local_port(second.connector), Err(Status::CONNECTION_INVALID));
            assert_eq!(connect_shared(&second, endpoint, two.at), Status::SUCCESS);
            two.completed(&second);
            for side in [&first, &second] {
                assert_eq!(local_port(side.connector), Ok(at.port()));
            }
            talk(&first, &one.side);
            talk(&second, &two.side);
            let (returned, closing) = begin_close(endpoint);
            assert_eq!(returned, PENDING);
            close(first.connector);
            let_others_run();
            assert!(!closing.peek(), "a connector is left");
            assert_used(third, at, true, "of an endpoint that is being closed");
            talk(&second, &two.side);
            close(second.connector);
            closing.get();
            assert_used(third, at, false, "the last connector is closed");
        });
        one.end();
        two.end();
        close_all(&[second.qp, second.cq, first.qp, first.cq, first.pd]);
        close_adapter(first.adapter);
    });
}

/// Another queue pair and connector in the domain of `side`.
fn another_side(side: &Side) -> Side {
    let cq = cq(side.adapter);
    let (adapter, pd) = (side.adapter, side.pd);
    Side { adapter, pd, cq, qp: qp(pd, cq, 78), connector: connector(adapter) }
}

/// A failed connect leaves the endpoint, which can be closed without waiting for the connector.
#[test]
fn a_failed_connect_leaves_its_shared_endpoint() {
    in_every_mode(|mode| {
        let side = caller(mode);
        let nobody = Held::new().unwrap();
        let endpoint = endpoint(side.adapter, 0).unwrap();
        for to in [nobody.address(), local(0)] {
            let status = connect_shared(&side, endpoint, to);
            assert!(!status.is_success(), "{to}");
        }
        close(endpoint); // with the connector open
        close_all(&[side.connector, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

#[test]
fn a_shared_endpoint_has_an_address_of_its_adapter() {
    in_every_mode(|mode| {
        idle_side(mode, |side| {
            let t = table::<AdapterDispatch>(side.adapter);
            let make = |at: *const u8, length| {
                create(|cb, ctx, out| unsafe {
                    (t.create_shared_endpoint)(side.adapter, at.cast(), length, cb, ctx, out)
                })
            };
            for at in foreign() {
                let (bytes, length) = bytes_of(at);
                assert_eq!(make(bytes.as_ptr(), length), Err(Status::INVALID_ADDRESS), "{at}");
            }
            let (good, _) = bytes_of(local(0));
            for (at, length) in [(std::ptr::null(), 16), (good.as_ptr(), 7), (good.as_ptr(), 0)] {
                assert_eq!(make(at, length), Err(Status::INVALID_PARAMETER), "{length}");
            }
            let held = Held::new().unwrap();
            let named = endpoint(side.adapter, held.address().port()).unwrap();
            assert_eq!(address_of(named), held.address());
            assert_eq!(endpoint(side.adapter, held.address().port()), Err(IN_USE));
            assert_eq!(address_of(named), held.address(), "nothing changed");
            close(named);
            let again = endpoint(side.adapter, held.address().port()).unwrap();
            close(again);
        });
    });
}

/// The calls that are refused, and that nothing has changed: the connection comes about afterwards.
#[test]
fn a_connect_with_an_endpoint_is_refused_where_it_makes_no_sense() {
    in_every_mode(|mode| {
        let mut callee = Callee::new(mode, local(0));
        let (side, foreign) = (caller(mode), half(options(mode)));
        let own = endpoint(side.adapter, 0).unwrap();
        assert_ne!(address_of(own).port(), 0);
        let theirs = endpoint(foreign.adapter, 0).unwrap();
        let to = callee.at;
        for (endpoint, why) in [
            (theirs, "of another adapter"),
            (std::ptr::null_mut(), "NULL"),
            (side.cq, "no endpoint"),
        ] {
            assert_eq!(connect_shared(&side, endpoint, to), Status::INVALID_PARAMETER, "{why}");
        }
        let with_qp = |qp| connect_shared(&Side { qp, ..copy(&side) }, own, to);
        assert_eq!(with_qp(foreign.qp), Status::INVALID_PARAMETER);
        let t = table::<ConnectorDispatch>(side.connector);
        let (at, length) = bytes_of(to);
        let data = vec![0_u8; 509];
        let too_much = end_of(|cb, ctx| unsafe {
            let (at, data) = (at.as_ptr().cast(), data.as_ptr().cast());
            (t.connect_with_shared_endpoint)(
                side.connector,
                side.qp,
                own,
                at,
                length,
                1,
                1,
                data,
                509,
                cb,
                ctx,
            )
        });
        assert_eq!(too_much, Status::INVALID_BUFFER_SIZE);
        assert_eq!(connect_shared(&side, own, to), Status::SUCCESS);
        assert_eq!(connect_shared(&side, own, to), Status::CONNECTION_ACTIVE);
        callee.completed(&side);
        let second = another_side(&side);
        let busy = connect_shared(&Side { qp: side.qp, ..copy(&second) }, own, to);
        assert_eq!(busy, Status::CONNECTION_ACTIVE, "the queue pair is in use");
        let incoming = Side { connector: callee.side.connector, ..copy(&callee.side) };
        let at_callee = endpoint(callee.side.adapter, 0).unwrap();
        assert_eq!(connect_shared(&incoming, at_callee, to), Status::CONNECTION_INVALID);
        assert_eq!(side.disconnect(), Status::SUCCESS);
        assert_eq!(connect_shared(&side, own, to), Status::INVALID_DEVICE_STATE);
        close(at_callee);
        callee.end();
        close_all(&[second.connector, second.qp, second.cq]);
        side.end(&[own]);
        close_all(&[theirs, foreign.qp, foreign.cq, foreign.pd]);
        close_adapter(foreign.adapter);
    });
}

fn copy(side: &Side) -> Side {
    Side { ..*side }
}
