//! Connections (NDK 9): one test per rule, each in every mode.

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::{Mode, Status};

/// NDK 9.1, 9.4, CN-5: the request can be looked at, rejected, or just closed; a paused listener is
/// no listener.
#[test]
fn cn05_requests_are_rejected_closed_or_not_seen() {
    in_every_mode(|mode| {
        for act in ["reject", "close", "pause"] {
            let server = half(options(mode));
            let events = Server::new(server.qp);
            let (listener, port) = listener(server.adapter, Some(take_it), &events);
            if act == "pause" {
                let t = table::<ListenerDispatch>(listener);
                unsafe { (t.control_connect_events)(listener, 1) };
            }
            let (client, connecting) = connecting(mode, port, |connector, qp, port| {
                connect(connector, qp, port, b"hello")
            });
            if act != "pause" {
                let incoming = events.event.get().0;
                let t = table::<ConnectorDispatch>(incoming);
                let (mut inbound, mut outbound, mut data, mut length) = (0, 0, [1_u8; 600], 600);
                let status = unsafe {
                    let data = data.as_mut_ptr().cast();
                    (t.get_connection_data)(
                        incoming,
                        &mut inbound,
                        &mut outbound,
                        data,
                        &mut length,
                    )
                };
                assert_eq!((Status(status), inbound, outbound), (Status::SUCCESS, 16, 16));
                assert_eq!((&data[..5], data[5], length), (&b"hello"[..], 0, 508), "9.4: padded");
                let mut small = 0;
                let status = unsafe {
                    let none = std::ptr::null_mut();
                    (t.get_connection_data)(
                        incoming,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        none,
                        &mut small,
                    )
                };
                assert_eq!((Status(status), small), (Status::SUCCESS, 508));
                if act == "reject" {
                    assert_eq!(unsafe { (t.reject)(incoming, std::ptr::null(), 0) }, 0);
                }
                close(incoming);
            }
            assert_eq!(connecting.join().unwrap(), Status::CONNECTION_REFUSED, "{act}");
            close(listener);
            client.end(&[]);
            close_all(&[server.qp, server.cq, server.pd]);
            close_adapter(server.adapter);
        }
    });
}

/// NDK 9.4: the data that come with a rejection are the active side's to read, padded, and there are
/// no limits then; a rejection without any leaves nothing. Another try may follow, and is another one.
#[test]
fn a_rejection_brings_its_private_data() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let mut client = half(options(mode));
        client.connector = connector(client.adapter);
        for said in [&b"not you"[..], b"", b"later"] {
            let shared = Shared((client.connector, client.qp));
            let connecting = std::thread::spawn(move || {
                let shared = shared;
                connect(shared.0.0, shared.0.1, port, b"hello")
            });
            let incoming = events.event.get().0;
            let t = table::<ConnectorDispatch>(incoming);
            let (data, length) = (said.as_ptr().cast(), said.len() as u32);
            assert_eq!(unsafe { (t.reject)(incoming, data, length) }, 0);
            assert_eq!(connecting.join().unwrap(), Status::CONNECTION_REFUSED);
            close(incoming);
            let t = table::<ConnectorDispatch>(client.connector);
            let (mut inbound, mut outbound, mut data, mut length) = (9, 9, [1_u8; 600], 600);
            let status = unsafe {
                let data = data.as_mut_ptr().cast();
                (t.get_connection_data)(
                    client.connector,
                    &mut inbound,
                    &mut outbound,
                    data,
                    &mut length,
                )
            };
            if said.is_empty() {
                assert_eq!(Status(status), Status::CONNECTION_INVALID);
                continue;
            }
            assert_eq!((Status(status), inbound, outbound), (Status::SUCCESS, 0, 0));
            let (got, rest) = data[..length as usize].split_at(said.len());
            assert_eq!((got, rest.iter().all(|&byte| byte == 0)), (said, true));
        }
        close(listener);
        client.end(&[]);
        close_all(&[server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
    });
}

/// NDK CN-5: a listener's callback gets one request after the other; while it is paused, none; then
/// again.
#[test]
fn cn05_a_listener_is_called_for_every_request() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let t = table::<ListenerDispatch>(listener);
        let client = half(options(mode));
        for paused in [false, false, true, false] {
            unsafe { (t.control_connect_events)(listener, u8::from(paused)) };
            let connector = connector(client.adapter);
            let shared = Shared((connector, client.qp));
            let connecting = std::thread::spawn(move || {
                let shared = shared;
                connect(shared.0.0, shared.0.1, port, &[])
            });
            if !paused {
                close(events.event.get().0); // which rejects it
            }
            assert_eq!(connecting.join().unwrap(), Status::CONNECTION_REFUSED);
            assert!(!events.event.peek());
            close(connector);
        }
        close(listener);
        for side in [client, server] {
            close_all(&[side.qp, side.cq, side.pd]);
            close_adapter(side.adapter);
        }
    });
}

/// NDK DC-3, DC-4: the peer's disconnect is an event, once; one's own is none.
#[test]
fn dc03_the_peer_gets_a_disconnect_once() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (client, (listener, _)) = guest(mode, &server, &events);
        let shared = Shared(client.connector);
        let leaving = std::thread::spawn(move || {
            let shared = shared;
            disconnect(shared.0)
        });
        events.disconnected.get();
        let accepted = events.event.get().0;
        assert_eq!(disconnect(accepted), Status::SUCCESS);
        assert_eq!(leaving.join().unwrap(), Status::SUCCESS);
        close_all(&[accepted, listener]);
        client.end(&[]);
        close_all(&[server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
        Box::leak(events);
    });
}

/// NDK CN-3: silently capped to what the adapter can (16 and 16), and each side's inbound is the
/// other's outbound; the data tells (NDK 9.4).
#[test]
fn cn03_read_limits_are_capped_and_agreed() {
    in_every_mode(|mode| {
        for (asked, offered, accepted, agreed) in [
            ((16, 16), (16, 16), (16, 16), (16, 16)),
            ((17, 0xffff_ffff), (16, 16), (99, 17), (16, 16)),
            ((3, 5), (5, 3), (16, 16), (3, 5)),
            ((16, 16), (16, 16), (2, 1), (1, 2)),
            ((0, 4), (4, 0), (4, 4), (0, 4)),
        ] {
            let server = half(options(mode));
            let events = Server::new(server.qp);
            let (listener, port) = listener(server.adapter, Some(take_it), &events);
            let (client, connecting) = connecting(mode, port, move |connector, qp, port| {
                let connected = connect_with(connector, qp, port, asked, &[]);
                let limits = limits_of(connector);
                (connected, limits, complete(connector))
            });
            let server = Side { connector: events.event.get().0, ..server };
            assert_eq!(limits_of(server.connector), offered, "{asked:?}");
            let t = table::<ConnectorDispatch>(server.connector);
            let (connector, qp, none) = (server.connector, server.qp, std::ptr::null_mut());
            let (inbound, outbound) = accepted;
            let end = end_of(|cb, ctx| unsafe {
                let (data, event) = (std::ptr::null(), None);
                (t.accept)(connector, qp, inbound, outbound, data, 0, event, none, cb, ctx)
            });
            assert_eq!(end, Status::SUCCESS);
            let expected = (Status::SUCCESS, agreed, Status::SUCCESS);
            assert_eq!(connecting.join().unwrap(), expected, "{asked:?}, {accepted:?}");
            assert_eq!(limits_of(connector), (agreed.1, agreed.0));
            let listening = begin_close(listener).1;
            client.end(&[]);
            server.end(&[]);
            listening.get();
        }
    });
}

/// Inbound and outbound.
fn limits_of(connector: Ptr) -> (u32, u32) {
    let t = table::<ConnectorDispatch>(connector);
    let (mut inbound, mut outbound, mut length) = (99, 99, 0);
    let null = std::ptr::null_mut();
    let status = unsafe {
        (t.get_connection_data)(connector, &mut inbound, &mut outbound, null, &mut length)
    };
    assert_eq!(Status(status), Status::SUCCESS);
    (inbound, outbound)
}

/// NDK 9.4: the buffer and its length, in and out.
#[test]
fn private_data_has_a_required_size() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let t = table::<ConnectorDispatch>(client.connector);
        let (none, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        let ask = |data: *mut u8, mut length: u32| {
            let data = data.cast();
            let get = t.get_connection_data;
            let status = unsafe { get(client.connector, none, none, data, &mut length) };
            (Status(status), length)
        };
        assert_eq!(ask(std::ptr::null_mut(), 0), (Status::SUCCESS, 508));
        assert_eq!(ask(std::ptr::null_mut(), 5), (Status::INVALID_PARAMETER, 5));
        let mut data = [7_u8; 600];
        assert_eq!(ask(data.as_mut_ptr(), 507), (Status::BUFFER_TOO_SMALL, 508));
        assert_eq!((data[..507].iter().all(|&byte| byte == 0), data[507]), (true, 7), "as fits");
        data.fill(7);
        assert_eq!(ask(data.as_mut_ptr(), 508), (Status::SUCCESS, 508));
        assert_eq!((data[507], data[508]), (0, 7));
        let status = unsafe { (t.get_connection_data)(client.connector, none, none, null, none) };
        assert_eq!(Status(status), Status::INVALID_PARAMETER, "no length");
        client.end(&[]);
        server.end(&[]);
    });
}

#[test]
fn cn04_private_data_has_its_limit() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let connector = connector(side.adapter);
        let long = [0; 509];
        let status = connect(connector, side.qp, 1, &long);
        assert_eq!(status, Status::INVALID_BUFFER_SIZE);
        let t = table::<ConnectorDispatch>(connector);
        let (at, null) = (address(1), std::ptr::null());
        let status = end_of(|cb, ctx| unsafe {
            let at = at.as_ptr().cast();
            (t.connect)(connector, side.qp, at, 16, at, 16, 1, 1, null, 5, cb, ctx)
        });
        assert_eq!(status, Status::INVALID_PARAMETER, "five bytes at NULL");
        close_all(&[connector, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

/// NDK 2.1: objects of two adapters do not go together.
#[test]
fn a_connector_connects_queue_pairs_of_its_adapter() {
    in_every_mode(|mode| {
        let [one, other] = [(); 2].map(|()| half(options(mode)));
        let connector = connector(one.adapter);
        assert_eq!(connect(connector, other.qp, 1, &[]), Status::INVALID_PARAMETER);
        let t = table::<PdDispatch>(one.pd);
        for (receive, initiator) in [(one.cq, other.cq), (other.cq, one.cq)] {
            let made = create(|cb, ctx, out| unsafe {
                let none = std::ptr::null_mut();
                (t.create_qp)(one.pd, receive, initiator, none, 1, 1, 1, 1, 0, cb, ctx, out)
            });
            assert_eq!(made, Err(Status::INVALID_PARAMETER));
        }
        close(connector);
        for side in [one, other] {
            close_all(&[side.qp, side.cq, side.pd]);
            close_adapter(side.adapter);
        }
    });
}

#[test]
fn cn09_a_queue_pair_has_one_peer_at_a_time() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let second = connector(client.adapter);
        assert_eq!(connect(second, client.qp, 1, &[]), Status::CONNECTION_ACTIVE);
        close(second);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CN-11, CN-12: the addresses of a connection of this address to itself, and the question for
/// their size.
#[test]
fn cn11_both_addresses_of_a_connection() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let get = |connector: Ptr, f: GetAddress| {
            let (mut bytes, mut length) = ([0_u8; 28], 0);
            let status = unsafe { f(connector, std::ptr::null_mut(), &mut length) };
            assert_eq!((Status(status), length), (Status::BUFFER_TOO_SMALL, 16));
            length = 28;
            let status = unsafe { f(connector, bytes.as_mut_ptr().cast(), &mut length) };
            assert_eq!((Status(status), length), (Status::SUCCESS, 16));
            bytes
        };
        let [one, other] = [client.connector, server.connector].map(|connector| {
            let t = table::<ConnectorDispatch>(connector);
            (get(connector, t.get_local_address), get(connector, t.get_peer_address))
        });
        assert_eq!(one, (other.1, other.0));
        assert_eq!(one.0[4..8], [127, 0, 0, 1]);
        client.end(&[]);
        server.end(&[]);
        let idle = half(options(mode));
        let connector = connector(idle.adapter);
        let (f, mut length) = (table::<ConnectorDispatch>(connector).get_peer_address, 0);
        let status = unsafe { f(connector, std::ptr::null_mut(), &mut length) };
        assert!(Status(status).is_error(), "not connected, nor connecting");
        close_all(&[connector, idle.qp, idle.cq, idle.pd]);
        close_adapter(idle.adapter);
    });
}

// ---- NDK 9.3 ----

/// NDK DC-1, DC-2, DC-6: it is over when the peer has answered; everything is flushed and nothing
/// can be sent; the other side ends its half by itself.
#[test]
fn dc01_a_disconnect_ends_when_the_peer_has_answered() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        assert_eq!(client.receive(1, &[]), Status::SUCCESS);
        assert_eq!(client.disconnect(), Status::SUCCESS);
        assert_eq!(client.one(), (1, Status::CANCELLED, 0), "DC-2");
        assert_eq!(client.send(2, &[], 0), Status::CONNECTION_INVALID);
        assert_eq!(server.disconnect(), Status::SUCCESS);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK DC-5: the peer's disconnect cancels nothing of this side's; its own does.
#[test]
fn dc05_the_peers_disconnect_flushes_nothing_here() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (client, (listener, _)) = guest(mode, &server, &events);
        let server = Side { connector: events.event.get().0, ..server };
        assert_eq!(server.receive(1, &[]), Status::SUCCESS);
        assert_eq!(client.disconnect(), Status::SUCCESS);
        events.disconnected.get();
        let poll = table::<CqDispatch>(server.cq).get_results_ex;
        let mut one = [EMPTY; 1];
        assert_eq!(unsafe { poll(server.cq, one.as_mut_ptr(), 1) }, 0);
        assert_eq!(server.disconnect(), Status::SUCCESS);
        assert_eq!(server.one(), (1, Status::CANCELLED, 0));
        let listening = begin_close(listener).1;
        client.end(&[]);
        server.end(&[]);
        listening.get();
    });
}

struct Early {
    connector: Ptr,
    /// The peer, which leaves while the completion routine runs.
    peer: Ptr,
    completed: Cell<i32>,
    told: std::sync::atomic::AtomicU32,
    gone: Cell<()>,
}

/// Whether the connector knows that its peer has gone.
fn peer_is_gone(connector: Ptr) -> bool {
    let t = table::<ConnectorDispatch>(connector);
    let (none, mut length) = (std::ptr::null_mut(), 0);
    unsafe { (t.get_connection_data)(connector, none, none, none.cast(), &mut length) != 0 }
}

unsafe extern "C" fn slow_completion(context: *mut std::ffi::c_void, status: i32) {
    let early = unsafe { &*context.cast::<Early>() };
    let _ = begin_close(early.peer);
    let begin = std::time::Instant::now();
    while !peer_is_gone(early.connector) {
        assert!(begin.elapsed().as_secs() < 60, "the news has not come");
        std::thread::yield_now();
    }
    // Long enough in here for an event to come, if it were to come too early.
    let_others_run();
    assert_eq!(early.told.load(std::sync::atomic::Ordering::SeqCst), 0, "DC-8");
    early.completed.set(status);
}

unsafe extern "C" fn early_event(context: *mut std::ffi::c_void) {
    let early = unsafe { &*context.cast::<Early>() };
    early.told.store(1, std::sync::atomic::Ordering::SeqCst);
    early.gone.set(());
}

/// NDK DC-8: the event does not come before the completion routine of the CompleteConnect that has
/// registered it has returned, though the peer leaves at once; and a connector without one is legal
/// (every other test's).
#[test]
fn dc08_the_event_follows_the_completion_that_registered_it() {
    in_every_mode(|mode| {
        let server = half(options(Mode::Natural));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let client = half(options(mode));
        let connector = connector(client.adapter);
        assert_eq!(connect(connector, client.qp, port, &[]), Status::SUCCESS);
        let early = &*Box::leak(Box::new(Early {
            connector,
            peer: events.event.get().0,
            completed: Cell::default(),
            told: Default::default(),
            gone: Cell::default(),
        }));
        let context = (&raw const *early).cast_mut().cast();
        let t = table::<ConnectorDispatch>(connector);
        let (event, done) = (Some(early_event as _), Some(slow_completion as _));
        let returned = unsafe { (t.complete_connect)(connector, event, context, done, context) };
        if returned == PENDING {
            assert_eq!(early.completed.get(), 0);
        } else {
            assert_eq!(returned, 0);
            let _ = begin_close(early.peer);
        }
        early.gone.get();
        let listening = begin_close(listener).1;
        close_all(&[connector, client.qp, client.cq, client.pd]);
        close_adapter(client.adapter);
        listening.get();
        close_all(&[server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
        Box::leak(events);
    });
}
