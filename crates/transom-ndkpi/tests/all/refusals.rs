//! A refused call changes nothing: neither the callback for the connection's end, nor the queue
//! pair of each connector (NDK 2.2, 9.3).

use std::ffi::c_void;
use std::time::{Duration, Instant};

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::{Mode, Status};
use transom_testing::ports::Held;

/// A server that accepts, and a client that the server has accepted but that has not completed.
struct Half {
    client: Side,
    server: Side,
    events: Box<Server>,
    listener: Ptr,
}

impl Half {
    fn new(mode: Mode) -> Half {
        Half::between(mode, mode)
    }
    fn between(client: Mode, server: Mode) -> Half {
        let server = half(options(server));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let mut client = half(options(client));
        client.connector = connector(client.adapter);
        assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
        let server = Side { connector: events.event.get().0, ..server };
        Half { client, server, events, listener }
    }
    fn end(self) {
        let listening = begin_close(self.listener).1;
        self.client.end(&[]);
        self.server.end(&[]);
        listening.get();
    }
}

fn complete_with(connector: Ptr, told: &Cell<u32>) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    let context = (&raw const *told).cast_mut().cast();
    end_of(|cb, ctx| unsafe {
        (t.complete_connect_ex)(connector, Some(disconnected), context, cb, ctx)
    })
}

fn accept_with(connector: Ptr, qp: Ptr, private: &[u8], told: &Cell<u32>) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    let context = (&raw const *told).cast_mut().cast();
    let (data, length) = (private.as_ptr().cast(), private.len() as u32);
    end_of(|cb, ctx| unsafe {
        let event = Some(disconnected as _);
        (t.accept_ex)(connector, qp, 1, 1, data, length, event, context, cb, ctx)
    })
}

/// NDK DC-3: NdkDisconnect while NdkAccept is pending is refused, and the event still comes.
#[test]
fn dc03_a_refused_disconnect_leaves_the_event() {
    in_every_mode(|mode| {
        let half = Half::new(mode);
        assert_eq!(disconnect(half.server.connector), Status::CONNECTION_INVALID);
        assert_eq!(complete(half.client.connector), Status::SUCCESS);
        assert_eq!(Status(half.events.accepted.get()), Status::SUCCESS);
        assert!(!half.events.disconnected.peek());
        assert_eq!(half.client.disconnect(), Status::SUCCESS);
        assert_eq!(half.events.disconnected.get(), 0);
        half.end();
    });
}

/// NDK DC-3: a second NdkCompleteConnect, a second NdkAccept or a NdkConnect is refused; the event
/// of the first comes, once, and that of the refused call never.
#[test]
fn dc03_a_refused_second_step_leaves_the_event_of_the_first() {
    in_every_mode(|mode| {
        let half = Half::new(mode);
        let [first, refused] = [(); 2].map(|()| &*Box::leak(Box::new(Cell::default())));
        let (active, passive) = (half.client.connector, half.server.connector);
        assert_eq!(complete_with(active, first), Status::SUCCESS);
        assert_eq!(Status(half.events.accepted.get()), Status::SUCCESS);
        let invalid = Status::CONNECTION_INVALID;
        assert_eq!(complete_with(active, refused), invalid);
        assert_eq!(accept_with(active, half.client.qp, &[], refused), invalid, "it has connected");
        let active_already = Status::CONNECTION_ACTIVE;
        assert_eq!(accept_with(passive, half.server.qp, &[], refused), active_already);
        assert_eq!(complete_with(passive, refused), invalid);
        assert_eq!(connect(passive, half.server.qp, 1, &[]), invalid, "it has accepted");
        assert_eq!(half.server.disconnect(), Status::SUCCESS);
        assert_eq!(first.get(), 0);
        half.end();
        assert!(!first.peek() && !refused.peek());
    });
}

/// A NdkAccept that is refused for its private data can be made again: its event is the one.
#[test]
fn an_accept_that_is_refused_is_made_again() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let (client, connecting) = connecting(mode, port, |connector, qp, port| {
            (connect(connector, qp, port, &[]), complete(connector))
        });
        let server = Side { connector: events.event.get().0, ..server };
        let refused = &*Box::leak(Box::new(Cell::default()));
        let long = accept_with(server.connector, server.qp, &[0; 509], refused);
        assert_eq!(long, Status::INVALID_BUFFER_SIZE);
        let other = half(options(mode));
        let foreign = accept_with(server.connector, other.qp, &[], refused);
        assert_eq!(foreign, Status::INVALID_PARAMETER, "another adapter's queue pair");
        let accepted = accept_with(server.connector, server.qp, &[0; 508], &events.disconnected);
        assert_eq!(accepted, Status::SUCCESS);
        assert_eq!(connecting.join().unwrap(), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(client.disconnect(), Status::SUCCESS);
        assert_eq!(events.disconnected.get(), 0);
        let listening = begin_close(listener).1;
        client.end(&[]);
        server.end(&[]);
        close_all(&[other.qp, other.cq, other.pd]);
        close_adapter(other.adapter);
        listening.get();
        assert!(!refused.peek());
    });
}

/// NDK DC-4: a side's own NdkDisconnect raises no event on that side, whichever side leaves first;
/// nor does its own close.
#[test]
fn dc04_ones_own_disconnect_is_no_event() {
    in_every_mode(|mode| {
        for leaves in ["disconnects", "closes"] {
            let half = Half::new(mode);
            let own = &*Box::leak(Box::new(Cell::default()));
            assert_eq!(complete_with(half.client.connector, own), Status::SUCCESS);
            assert_eq!(Status(half.events.accepted.get()), Status::SUCCESS);
            if leaves == "disconnects" {
                assert_eq!(half.client.disconnect(), Status::SUCCESS);
                assert_eq!(half.events.disconnected.get(), 0, "the peer is told");
                assert_eq!(half.server.disconnect(), Status::SUCCESS);
            }
            // When the adapters are closed, every callback has returned (NDK LT-11).
            half.end();
            assert!(!own.peek(), "it {leaves}");
        }
    });
}

struct Leaver {
    connector: Ptr,
    event: Cell<u32>,
    left: Cell<i32>,
    completed: Cell<i32>,
}

unsafe extern "C" fn left(context: *mut c_void, status: i32) {
    unsafe { &*context.cast::<Leaver>() }.left.set(status);
}

unsafe extern "C" fn leave_at_once(context: *mut c_void, status: i32) {
    let leaver = unsafe { &*context.cast::<Leaver>() };
    let t = table::<ConnectorDispatch>(leaver.connector);
    let returned = unsafe { (t.disconnect)(leaver.connector, Some(left), context) };
    if returned != PENDING {
        leaver.left.set(returned);
    }
    leaver.completed.set(status);
}

/// NDK DC-4, DC-8: NdkDisconnect inside the completion routine, before the event could be
/// registered.
#[test]
fn dc04_a_disconnect_in_the_completion_routine_is_no_event_either() {
    in_every_mode(|mode| {
        let half = Half::new(mode);
        let leaver = &*Box::leak(Box::new(Leaver {
            connector: half.client.connector,
            event: Cell::default(),
            left: Cell::default(),
            completed: Cell::default(),
        }));
        let t = table::<ConnectorDispatch>(leaver.connector);
        let context = (&raw const *leaver).cast_mut().cast();
        let event = (&raw const leaver.event).cast_mut().cast();
        let (told, done) = (Some(disconnected as _), Some(leave_at_once as _));
        let returned =
            unsafe { (t.complete_connect_ex)(leaver.connector, told, event, done, context) };
        if returned == PENDING {
            assert_eq!(leaver.completed.get(), 0);
            assert_eq!(Status(leaver.left.get()), Status::SUCCESS);
        } else {
            assert_eq!((mode, returned), (Mode::Natural, 0));
        }
        assert_eq!(Status(half.events.accepted.get()), Status::SUCCESS);
        half.end();
        assert!(!leaver.event.peek());
    });
}

/// NDK LT-9, 2.2: the connector belongs to the queue pair that it has connected. A refused
/// NdkConnect or NdkAccept of another one moves nothing: that one closes at once, and the connected
/// one waits.
#[test]
fn lt09_a_refused_connect_moves_no_queue_pair() {
    in_every_mode(|mode| {
        let half = Half::new(mode);
        assert_eq!(complete(half.client.connector), Status::SUCCESS);
        assert_eq!(Status(half.events.accepted.get()), Status::SUCCESS);
        for (side, accepts) in [(&half.client, false), (&half.server, true)] {
            let other = qp(side.pd, side.cq, 78);
            let refused = &*Box::leak(Box::new(Cell::default()));
            let status = match accepts {
                true => accept_with(side.connector, other, &[], refused),
                false => connect(side.connector, other, 1, &[]),
            };
            assert_eq!(status, Status::CONNECTION_ACTIVE);
            close(other); // it would wait for the connector
            assert_eq!(side.receive(1, &[]), Status::SUCCESS, "and the connection is there");
        }
        let (returned, closed) = begin_close(half.client.qp);
        assert_eq!(returned, PENDING, "its connector is open");
        assert!(!closed.peek());
        close(half.client.connector);
        closed.get();
        let (returned, closed) = begin_close(half.server.qp);
        assert_eq!(returned, PENDING);
        assert!(!closed.peek());
        close(half.server.connector);
        closed.get();
        close(half.listener);
        for side in [half.client, half.server] {
            close_all(&[side.cq, side.pd]);
            close_adapter(side.adapter);
        }
    });
}

/// NDK LT-9: what refuses a queue pair because it has a peer, or a connect that fails, leaves no
/// relation either: the queue pair closes, and the connector connects with another.
#[test]
fn lt09_a_failed_connect_leaves_no_relation() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let (connector, held) = (connector(side.adapter), Held::new().unwrap());
        let port = held.address().port();
        assert_eq!(connect(connector, side.qp, port, &[]), Status::CONNECTION_REFUSED);
        assert_eq!(connect(connector, side.qp, port, &[0; 509]), Status::INVALID_BUFFER_SIZE);
        close(side.qp);
        let next = qp(side.pd, side.cq, 78);
        assert_eq!(connect(connector, next, port, &[]), Status::CONNECTION_REFUSED);
        close(next);
        close_all(&[connector, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

/// NDK 6.7: CONNECTION_INVALID where there is nothing to complete, and CONNECTION_ABORTED where the
/// other side has given up.
#[test]
fn the_second_step_fails_when_the_other_side_has_given_up() {
    in_every_mode(|mode| {
        let idle = half(options(mode));
        let connector = connector(idle.adapter);
        assert_eq!(complete(connector), Status::CONNECTION_INVALID);
        assert_eq!(disconnect(connector), Status::CONNECTION_INVALID);
        close_all(&[connector, idle.qp, idle.cq, idle.pd]);
        close_adapter(idle.adapter);

        // The active side gives up.
        let half = Half::new(mode);
        close(half.client.connector);
        assert_eq!(Status(half.events.accepted.get()), Status::CONNECTION_ABORTED);
        assert!(!half.events.disconnected.peek(), "it was never established");
        let client = half.client;
        close_all(&[client.qp, client.cq, client.pd]);
        close_adapter(client.adapter);
        let listening = begin_close(half.listener).1;
        half.server.end(&[]);
        listening.get();

        // The passive side does. In the modes in which NdkAccept waits, it could not be closed (NDK
        // LT-5).
        let half = Half::between(mode, Mode::Natural);
        close(half.server.connector);
        let data = table::<ConnectorDispatch>(half.client.connector).get_connection_data;
        let none = std::ptr::null_mut();
        let begin = Instant::now();
        // A call answers with the size: without a buffer, the next one has to say 0 again.
        let asked =
            || unsafe { Status(data(half.client.connector, none, none, none.cast(), &mut 0)) };
        while asked() == Status::SUCCESS {
            assert!(begin.elapsed() < Duration::from_secs(60), "the news has not come");
            std::thread::yield_now();
        }
        assert_eq!(asked(), Status::CONNECTION_INVALID);
        assert_eq!(complete(half.client.connector), Status::CONNECTION_ABORTED);
        assert_eq!(Status(half.events.accepted.get()), Status::CANCELLED);
        close(half.listener);
        half.client.end(&[]);
        close_all(&[half.server.qp, half.server.cq, half.server.pd]);
        close_adapter(half.server.adapter);
    });
}
