//! Lifetimes, completion queues and connections (NDK 3, 8, 9), in every completion mode.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, notify, op};
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, NdkOpenAdapter, Status};

/// OB-1, OB-2, OB-5: what a header holds, and that the table in it is the consumer's to replace.
#[test]
fn ob1_ob2_ob5_headers_and_tables() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        for (object, kind) in [(adapter, 1), (pd, 6)] {
            let header = unsafe { &(*object).header };
            assert_eq!(header.object_type, kind);
            assert_eq!(header.version, Version { major: 2, minor: 1 }, "the highest minor");
            assert!(header.ndk_reserved.iter().all(|p| p.is_null()));
        }
        let t = *table::<PdDispatch>(pd);
        let guid = Guid { data1: 1, data2: 2, data3: 3, data4: [4; 8] };
        let mut extension = ExtensionInterface { dispatch: std::ptr::null() };
        let none =
            unsafe { (t.query_extension)(pd.cast(), &guid, Version::default(), &mut extension) };
        assert_eq!(Status(none), Status::NOT_SUPPORTED, "OB-5");
        // A layer above puts its own table in; the provider must not look there (OB-2).
        unsafe { (*pd).dispatch = std::ptr::null() };
        let mr = create(|cb, ctx, out| unsafe { (t.create_mr)(pd, 0, cb, ctx, out) }).unwrap();
        unsafe { (*pd).dispatch = (&raw const t).cast() };
        close_all(&[mr, pd]);
        close_adapter(adapter);
    });
}

#[test]
fn versions_are_negotiated_at_open() {
    for (major, minor, right) in [(1, 0, true), (1, 3, false), (3, 0, false)] {
        let (mut adapter, at) = (std::ptr::null_mut(), address(0));
        let (version, at) = (Version { major, minor }, at.as_ptr().cast());
        let status = unsafe { NdkOpenAdapter(version, at, 16, std::ptr::null(), &mut adapter) };
        assert_eq!(status == 0, right);
        if right {
            assert_eq!(unsafe { (*adapter).header.version }, Version { major: 1, minor: 2 });
            close_adapter(adapter);
        } else {
            assert_eq!(Status(status), Status::BAD_VERSION);
        }
    }
}

/// NDK 4.1: the size, and what too small a buffer is told.
#[test]
fn adapter_information_has_a_size() {
    let adapter = open(Mode::Natural);
    let t = table::<AdapterDispatch>(adapter);
    let mut info = std::mem::MaybeUninit::<AdapterInfo>::uninit();
    let mut size = 103;
    let status = unsafe { (t.query_adapter_info)(adapter, info.as_mut_ptr(), &mut size) };
    assert_eq!((Status(status), size), (Status::BUFFER_TOO_SMALL, 104));
    let status = unsafe { (t.query_adapter_info)(adapter, info.as_mut_ptr(), &mut size) };
    assert_eq!(Status(status), Status::SUCCESS);
    let info = unsafe { info.assume_init() };
    assert_eq!(info.max_srq_depth, 0, "SRQ-1");
    assert!(info.frmr_page_count >= 16);
    close_adapter(adapter);
}

/// LT-9, LT-10, LT-16: antecedents closed first wait for their successors, in the order of the
/// relations, and each is told once.
#[test]
fn lt9_lt10_lt16_closing_parents_first_waits_for_the_children() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let pages = Pages::new(1);
        let (mr, _) = side.mr(&pages, 0);
        let parents = [side.pd, side.cq].map(begin_close);
        for (returned, cell) in &parents {
            assert_eq!(*returned, PENDING);
            assert!(!cell.peek());
        }
        close(mr);
        assert!(!parents[0].1.peek(), "the queue pair is still there");
        close(side.qp);
        parents.iter().for_each(|(_, cell)| cell.get());
        close_adapter(side.adapter);
    });
}

/// What the worked race needs: a callback that takes its time.
struct Slow {
    started: Cell<()>,
    may_return: Cell<()>,
    returned: AtomicU32,
}

unsafe extern "C" fn slow_close(context: *mut c_void) {
    let slow = unsafe { &*context.cast::<Slow>() };
    slow.started.set(());
    slow.may_return.get();
    slow.returned.store(1, Ordering::SeqCst);
}

/// LT-11, the first worked race: the adapter's close does not return before the close callback of a
/// child has.
#[test]
fn lt11_the_adapter_waits_for_callbacks_to_return() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let (pd, cq) = (pd(adapter), cq(adapter));
        let qp = qp(pd, cq, 1);
        let slow = Slow {
            started: Cell::default(),
            may_return: Cell::default(),
            returned: AtomicU32::new(0),
        };
        let close_cq = table::<CqDispatch>(cq).close;
        let context = (&raw const slow).cast_mut().cast();
        // Pending in every mode: the queue pair hangs on it.
        assert_eq!(unsafe { close_cq(cq.cast(), Some(slow_close), context) }, PENDING);
        let handles = Shared((qp, pd, adapter));
        let closing = std::thread::spawn(move || {
            let handles = handles;
            let (qp, pd, adapter) = handles.0;
            let _ = begin_close(qp);
            let _ = begin_close(pd);
            close_adapter(adapter);
        });
        slow.started.get();
        // The callback is running: whatever the adapter's close does, it cannot have returned.
        assert!(!closing.is_finished());
        slow.may_return.set(());
        closing.join().unwrap();
        assert_eq!(slow.returned.load(Ordering::SeqCst), 1);
    });
}

struct Closer {
    connector: Ptr,
    closed: Arc<Cell<()>>,
    status: Cell<i32>,
}

unsafe extern "C" fn close_in_callback(context: *mut c_void, status: i32) {
    let closer = unsafe { &*context.cast::<Closer>() };
    closer.status.set(status);
    let (returned, cell) = begin_close(closer.connector);
    assert_eq!(returned, PENDING, "LT-7: this callback has not returned yet");
    let closed = Arc::clone(&closer.closed);
    std::thread::spawn(move || {
        cell.get();
        closed.set(());
    });
}

/// LT-5, LT-7, the second worked race: a failed connect whose callback closes the connector, perhaps
/// before NdkConnect has returned.
#[test]
fn lt5_lt7_a_callback_closes_the_object_of_its_request() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connector = connector(side.adapter);
        let closer =
            Closer { connector, closed: Arc::new(Cell::default()), status: Cell::default() };
        let t = table::<ConnectorDispatch>(connector);
        let (from, to) = (address(0), address(free.port()));
        let returned = unsafe {
            let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
            let context = (&raw const closer).cast_mut().cast();
            (t.connect)(
                connector,
                side.qp,
                from,
                16,
                to,
                16,
                1,
                1,
                std::ptr::null(),
                0,
                Some(close_in_callback),
                context,
            )
        };
        if returned == PENDING {
            assert_eq!(Status(closer.status.get()), Status::CONNECTION_REFUSED);
            closer.closed.get();
        } else {
            assert_eq!((mode, Status(returned)), (Mode::Natural, Status::CONNECTION_REFUSED));
            close(connector);
        }
        close_all(&[side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

/// LT-15: the close of a region ends its registration.
#[test]
fn lt15_closing_a_region_ends_its_registration() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let (mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_WRITE);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        own.fill(|_| 1);
        close(mr);
        let at = target.sge(0, 0, 0).address;
        assert_eq!(client.write(1, &[own.sge(local, 0, 8)], at, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        assert!(target.bytes().iter().all(|&byte| byte == 0));
        client.end(&[own_mr]);
        server.end(&[]);
    });
}

/// LT-14, 7.4: flush and close return every receive as cancelled.
#[test]
fn lt14_flush_returns_every_receive() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let pages = Pages::new(1);
        let (mr, local) = client.mr(&pages, flag::ALLOW_LOCAL_WRITE);
        for i in 0..5 {
            assert_eq!(client.receive(i, &[pages.sge(local, i * 64, 64)]), Status::SUCCESS);
        }
        unsafe { (table::<QpDispatch>(client.qp).flush)(client.qp) };
        let all = client.results(5);
        assert!(all.iter().all(|r| Status(r.status) == Status::CANCELLED));
        assert!(all.iter().enumerate().all(|(i, r)| r.request_context.addr() == i));
        assert!(all.iter().all(|r| r.qp_context.addr() == 77));
        assert_eq!(client.send(9, &[], 0), Status::CONNECTION_INVALID);
        client.end(&[mr]);
        server.end(&[]);
    });
}

struct Notified {
    cq: std::sync::atomic::AtomicPtr<Object>,
    times: AtomicUsize,
    running: AtomicUsize,
    rearm: AtomicU32,
    told: std::sync::mpsc::SyncSender<i32>,
}

unsafe extern "C" fn notified(context: *mut c_void, status: i32) {
    let notified = unsafe { &*context.cast::<Notified>() };
    assert_eq!(notified.running.fetch_add(1, Ordering::SeqCst), 0, "CQ-3: one at a time");
    notified.times.fetch_add(1, Ordering::SeqCst);
    let rearm = notified.rearm.load(Ordering::SeqCst);
    if rearm != u32::MAX {
        let cq = notified.cq.load(Ordering::SeqCst);
        // CQ-3: normal, and does not recurse.
        unsafe { (table::<CqDispatch>(cq).arm)(cq, rearm) };
    }
    notified.running.fetch_sub(1, Ordering::SeqCst);
    notified.told.send(status).unwrap();
}

/// CQ-2 to CQ-6, WR-11: what satisfies which arm, and what two arms amount to.
#[test]
fn cq2_cq4_cq5_cq6_arms_and_notifications() {
    in_every_mode(|mode| {
        let (e, any, s) = (notify::ERRORS, notify::ANY, notify::SOLICITED);
        // (arms, solicited message notifies, plain message notifies)
        for (arms, by_solicited, by_plain) in [
            (vec![e], false, false),
            (vec![s], true, false),
            (vec![any], true, true),
            (vec![e, s], true, false),
            (vec![s, e], true, false),
            (vec![s, s], true, false),
            (vec![e, any], true, true),
            (vec![any, e], true, true),
            (vec![any, s], true, true),
            (vec![s, any], true, true),
            (vec![9], false, false),
        ] {
            for solicited in [false, true] {
                let (told, heard) = std::sync::mpsc::sync_channel(64);
                let state = Box::leak(Box::new(Notified {
                    cq: Default::default(),
                    times: AtomicUsize::new(0),
                    running: AtomicUsize::new(0),
                    rearm: AtomicU32::new(u32::MAX),
                    told,
                }));
                let adapter = open(mode);
                let context = (&raw const *state).cast_mut().cast();
                let cq = cq_with(adapter, 64, Some(notified), context);
                state.cq.store(cq, Ordering::SeqCst);
                let pd = pd(adapter);
                let qp = qp(pd, cq, 1);
                let events = Server::new(qp);
                let (listener, port) = listener(adapter, Some(accept_it), &events);
                let mut client = half(options(mode));
                client.connector = connector(client.adapter);
                assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
                assert_eq!(complete(client.connector), Status::SUCCESS);
                let accepted = events.event.get().0;
                assert_eq!(events.accepted.get(), 0);
                let receive = table::<QpDispatch>(qp).receive;
                for _ in 0..2 {
                    let none = std::ptr::null_mut();
                    assert_eq!(unsafe { receive(qp, none, std::ptr::null(), 0) }, 0);
                }
                for arm in &arms {
                    unsafe { (table::<CqDispatch>(cq).arm)(cq, *arm) };
                }
                let flags = if solicited { op::SEND_AND_SOLICIT_EVENT } else { 0 };
                assert_eq!(client.send(1, &[], flags), Status::SUCCESS);
                assert_eq!(client.one().1, Status::SUCCESS);
                let expected = if solicited { by_solicited } else { by_plain };
                if expected {
                    let status = heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
                    assert_eq!(Status(status), Status::SUCCESS);
                }
                // CQ-2: once per arm, so the next message says nothing.
                assert_eq!(client.send(2, &[], op::SEND_AND_SOLICIT_EVENT), Status::SUCCESS);
                assert_eq!(client.one().1, Status::SUCCESS);
                results(cq, 2);
                let later = usize::from(!expected && by_solicited);
                if later == 1 {
                    heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
                }
                client.end(&[]);
                let all = [listener, accepted, qp, cq, pd].map(|o| begin_close(o).1);
                all.iter().for_each(|cell| cell.get());
                close_adapter(adapter);
                let times = state.times.load(Ordering::SeqCst);
                assert_eq!(times, usize::from(expected) + later, "{arms:?} solicited {solicited}");
                Box::leak(events);
            }
        }
    });
}

/// 9.1, 9.4, CN-5: the request can be looked at, rejected, or just closed; a paused listener is no
/// listener.
#[test]
fn cn5_requests_are_rejected_closed_or_not_seen() {
    in_every_mode(|mode| {
        for act in ["reject", "close", "pause"] {
            let server = half(options(mode));
            let events = Server::new(server.qp);
            let (listener, port) = listener(server.adapter, Some(take_it), &events);
            if act == "pause" {
                let t = table::<ListenerDispatch>(listener);
                unsafe { (t.control_connect_events)(listener, 1) };
            }
            let mut client = half(options(mode));
            client.connector = connector(client.adapter);
            let shared = Shared((client.connector, client.qp));
            let connecting = std::thread::spawn(move || {
                let shared = shared;
                connect(shared.0.0, shared.0.1, port, b"hello")
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

/// LT-12, LT-13: a listener that is being closed takes no more requests, though it still waits for
/// its connectors.
#[test]
fn lt12_a_listener_being_closed_refuses() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let mut client = half(options(mode));
        client.connector = connector(client.adapter);
        assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
        assert_eq!(complete(client.connector), Status::SUCCESS);
        assert_eq!(events.accepted.get(), 0);
        let accepted = events.event.get().0;
        let (returned, cell) = begin_close(listener);
        assert_eq!(returned, PENDING);
        let mut late = half(options(mode));
        late.connector = connector(late.adapter);
        assert_eq!(connect(late.connector, late.qp, port, &[]), Status::CONNECTION_REFUSED);
        assert!(!cell.peek());
        close(accepted);
        cell.get();
        late.end(&[]);
        client.end(&[]);
        close_all(&[server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
        Box::leak(events);
    });
}

/// DC-3, DC-4, DC-8: the peer's disconnect is an event, once; one's own is none.
#[test]
fn dc3_dc4_the_peer_is_told_of_a_disconnect() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let mut client = half(options(mode));
        client.connector = connector(client.adapter);
        assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
        assert_eq!(complete(client.connector), Status::SUCCESS);
        assert_eq!(events.accepted.get(), 0);
        let disconnect = |connector: Ptr| {
            let t = table::<ConnectorDispatch>(connector);
            end_of(|cb, ctx| unsafe { (t.disconnect)(connector, cb, ctx) })
        };
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

/// What is not built says so, and the README lists the same.
#[test]
fn entries_that_are_not_built_say_so() {
    let readme = include_str!("../README.md");
    for entry in NOT_BUILT {
        assert!(readme.contains(entry), "{entry} is missing in the README");
    }
    let side = half(options(Mode::Natural));
    let no = Status::NOT_SUPPORTED.0;
    let mr = mr_of(side.pd, true);
    unsafe {
        let t = table::<MrDispatch>(mr);
        let null = std::ptr::null_mut();
        assert_eq!((t.initialize_fast_register)(mr, 16, 1, Some(request_done), null), no);
        let t = table::<CqDispatch>(side.cq);
        assert_eq!((t.resize)(side.cq, 8, Some(request_done), null), no);
        assert_eq!((t.control_interrupt_moderation)(side.cq, 1, 1), no);
        let mut token = 1;
        (table::<PdDispatch>(side.pd).get_privileged_memory_region_token)(side.pd, &mut token);
        assert_eq!(token, 0);
    }
    close_all(&[mr, side.qp, side.cq, side.pd]);
    close_adapter(side.adapter);
}
