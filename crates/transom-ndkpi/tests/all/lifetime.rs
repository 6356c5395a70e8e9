//! Objects and their lifetimes (NDK 2.3, 3): one test per rule, each in every mode.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, notify, op};
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, NdkOpenAdapter, Status};

#[test]
fn ob1_headers_are_filled_in() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let (mr, mw, connector) = (mr(side.pd), mw(side.pd), connector(side.adapter));
        let events = Server::new(side.qp);
        let (listener, _) = listener(side.adapter, Some(take_it), &events);
        for (object, kind) in [
            (side.adapter, 1),
            (side.qp, 2),
            (side.cq, 3),
            (mr, 4),
            (mw, 5),
            (side.pd, 6),
            (connector, 8),
            (listener, 9),
        ] {
            let header = unsafe { &(*object).header };
            assert_eq!(header.object_type, kind);
            assert_eq!(header.version, Version { major: 2, minor: 1 }, "the highest minor");
            assert!(header.ndk_reserved.iter().all(|p| p.is_null()));
        }
        close_all(&[mr, mw, connector, listener, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

/// NDK OB-2: a layer above puts its own table in; the provider does not look there.
#[test]
fn ob2_the_table_is_the_consumers_to_replace() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let t = *table::<PdDispatch>(pd);
        unsafe { (*pd).dispatch = std::ptr::null() };
        unsafe { (*adapter).dispatch = std::ptr::null() };
        let mr = create(|cb, ctx, out| unsafe { (t.create_mr)(pd, 0, cb, ctx, out) }).unwrap();
        unsafe { (*pd).dispatch = (&raw const t).cast() };
        close_all(&[mr, pd]);
        close_adapter(adapter);
    });
}

/// NDK OB-3: a table has no empty slot, whatever the consumer may call.
#[test]
fn ob3_no_slot_of_a_table_is_empty() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let events = Server::new(server.qp);
        let (listener, _) = listener(server.adapter, Some(take_it), &events);
        let endpoint = endpoint(client.adapter, 0).unwrap();
        let (mr, mw, srq) = (mr(client.pd), mw(client.pd), srq(client.pd));
        for (object, entries) in [
            (client.adapter, AdapterDispatch::ENTRIES),
            (client.pd, PdDispatch::ENTRIES),
            (client.cq, CqDispatch::ENTRIES),
            (client.qp, QpDispatch::ENTRIES),
            (mr, MrDispatch::ENTRIES),
            (mw, MwDispatch::ENTRIES),
            (srq, SrqDispatch::ENTRIES),
            (client.connector, ConnectorDispatch::ENTRIES),
            (listener, ListenerDispatch::ENTRIES),
            (endpoint, SharedEndpointDispatch::ENTRIES),
        ] {
            for (name, offset) in entries {
                let slot = unsafe { (*object).dispatch.byte_add(*offset).cast::<usize>().read() };
                assert_ne!(slot, 0, "{name}");
            }
        }
        client.end(&[endpoint, mr, mw, srq]);
        server.end(&[listener]);
    });
}

#[test]
fn ob5_there_are_no_extensions() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let guid = Guid { data1: 1, data2: 2, data3: 3, data4: [4; 8] };
        let mut extension = ExtensionInterface { dispatch: std::ptr::null() };
        let query = |object: Ptr, f: QueryExtension| unsafe {
            Status(f(object.cast(), &guid, Version::default(), &mut extension))
        };
        let mut query = query;
        let no = Status::NOT_SUPPORTED;
        assert_eq!(query(side.adapter, table::<AdapterDispatch>(side.adapter).query_extension), no);
        assert_eq!(query(side.pd, table::<PdDispatch>(side.pd).query_extension), no);
        assert_eq!(query(side.cq, table::<CqDispatch>(side.cq).query_extension), no);
        assert_eq!(query(side.qp, table::<QpDispatch>(side.qp).query_extension), no);
        close_all(&[side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
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

/// NDK 4.1: the size, and the status for a buffer that is too small.
#[test]
fn adapter_information_has_a_size() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let t = table::<AdapterDispatch>(adapter);
        let mut info = std::mem::MaybeUninit::<AdapterInfo>::uninit();
        let mut size = 103;
        let status = unsafe { (t.query_adapter_info)(adapter, info.as_mut_ptr(), &mut size) };
        assert_eq!((Status(status), size), (Status::BUFFER_TOO_SMALL, 104));
        let status = unsafe { (t.query_adapter_info)(adapter, info.as_mut_ptr(), &mut size) };
        assert_eq!(Status(status), Status::SUCCESS);
        let info = unsafe { info.assume_init() };
        assert!(info.max_srq_depth > 0, "SRQ-1");
        assert!(info.frmr_page_count >= 16);
        close_adapter(adapter);
    });
}

unsafe extern "C" fn created(context: *mut c_void, status: i32, object: *mut ObjectHeader) {
    let cell = unsafe { &*context.cast::<Cell<(i32, Shared<*mut ObjectHeader>)>>() };
    cell.set((status, Shared(object)));
}

/// NDK LT-1: inline in the out parameter, or by the callback, and then the out parameter is not
/// touched.
#[test]
fn lt01_an_object_arrives_inline_or_by_the_callback() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let t = table::<AdapterDispatch>(adapter);
        let poison = std::ptr::without_provenance_mut(0x5a5a);
        let (cell, mut out): (Cell<_>, Ptr) = (Cell::default(), poison);
        let context = (&raw const cell).cast_mut().cast();
        let returned = unsafe { (t.create_pd)(adapter, Some(created), context, &mut out) };
        let pd: Ptr = match mode {
            Mode::Natural => {
                assert_eq!(returned, 0);
                assert!(!cell.peek(), "inline: no callback");
                out
            }
            _ => {
                assert_eq!(returned, PENDING);
                let (status, object): (i32, Shared<*mut ObjectHeader>) = cell.get();
                assert_eq!((Status(status), out), (Status::SUCCESS, poison));
                object.0.cast()
            }
        };
        assert_eq!(unsafe { (*pd).header.object_type }, 6);
        close(pd);
        close_adapter(adapter);
    });
}

#[test]
fn lt02_a_creation_that_fails_inline_yields_null() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let t = table::<AdapterDispatch>(adapter);
        let (cell, mut out): (Cell<(i32, Shared<*mut ObjectHeader>)>, Ptr) =
            (Cell::default(), std::ptr::without_provenance_mut(0x5a5a));
        let context = (&raw const cell).cast_mut().cast();
        let (none, null) = (std::ptr::null(), std::ptr::null_mut());
        let done: CreateCompletion = Some(created);
        let returned =
            unsafe { (t.create_cq)(adapter, u32::MAX, None, null, none, done, context, &mut out) };
        assert_eq!(Status(returned), Status::INVALID_PARAMETER);
        assert!(out.is_null() && !cell.peek());
        close_adapter(adapter);
    });
}

/// NDK LT-3: what a close returns says whether its callback comes: once, or not at all.
#[test]
fn lt03_a_close_cannot_fail() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let others = [mr(side.pd), mw(side.pd), connector(side.adapter)];
        for object in others.into_iter().chain([side.qp, side.cq, side.pd]) {
            let (returned, cell) = begin_close(object);
            assert_eq!(returned, if mode == Mode::Natural { 0 } else { PENDING });
            cell.get(); // a second callback would panic in `Cell::set`
        }
        close_adapter(side.adapter);
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

/// NDK LT-5, the second worked race: a failed connect whose callback closes the connector, perhaps
/// before NdkConnect has returned.
#[test]
fn lt05_a_callback_closes_the_object_of_its_request() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let held = transom_testing::ports::Held::new().unwrap();
        let connector = connector(side.adapter);
        let closer =
            Closer { connector, closed: Arc::new(Cell::default()), status: Cell::default() };
        let t = table::<ConnectorDispatch>(connector);
        let (from, to) = (address(0), address(held.address().port()));
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

/// NDK LT-6: a connect that waits for its peer ends as cancelled. In the two modes in which a call
/// waits for its outcome, it has ended when a close may begin (NDK LT-5).
#[test]
fn lt06_a_close_cancels_what_is_under_way() {
    in_every_mode(|mode| {
        let server = half(options(Mode::Natural));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let side = half(options(mode));
        let connector = connector(side.adapter);
        let waits = matches!(mode, Mode::Nested | Mode::OtherThread);
        let answering = waits.then(|| {
            let events = Shared(&raw const *events);
            std::thread::spawn(move || {
                let events = events;
                close(unsafe { &*events.0 }.event.get().0);
            })
        });
        let cell = Arc::new(Cell::default());
        let t = table::<ConnectorDispatch>(connector);
        let (from, to) = (address(0), address(port));
        let returned = unsafe {
            let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
            let (done, context) = (Some(request_done as _), Arc::into_raw(cell.clone()));
            let (none, context) = (std::ptr::null(), context.cast_mut().cast());
            (t.connect)(connector, side.qp, from, 16, to, 16, 1, 1, none, 0, done, context)
        };
        assert_eq!(returned, PENDING);
        if let Some(answering) = answering {
            assert_eq!(Status(cell.get()), Status::CONNECTION_REFUSED);
            answering.join().unwrap();
            close(connector);
        } else {
            let incoming = events.event.get().0;
            let closed = begin_close(connector).1;
            assert_eq!(Status(cell.get()), Status::CANCELLED);
            closed.get();
            close(incoming);
        }
        close_all(&[listener, server.qp, server.cq, server.pd, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
        close_adapter(server.adapter);
    });
}

struct OwnListener {
    listener: Cell<Shared<Ptr>>,
    closed: Arc<Cell<()>>,
    returned: AtomicU32,
}

unsafe extern "C" fn close_the_listener(context: *mut c_void, incoming: Ptr) {
    let own = unsafe { &*context.cast::<OwnListener>() };
    let rejected = begin_close(incoming).1;
    let (returned, cell) = begin_close(own.listener.get().0);
    assert_eq!(returned, PENDING, "this event has not returned");
    assert!(!cell.peek());
    let (closed, shared) = (Arc::clone(&own.closed), Shared(context));
    std::thread::spawn(move || {
        let shared = shared;
        rejected.get();
        cell.get();
        let own = unsafe { &*shared.0.cast::<OwnListener>() };
        assert_eq!(own.returned.load(Ordering::SeqCst), 1, "over before the event had returned");
        closed.set(());
    });
    own.returned.store(1, Ordering::SeqCst);
}

/// NDK LT-7 (b), for an event: the close of its object, begun inside, waits until it has returned.
/// The stretch between the mark and the return is a few instructions wide; that the close is
/// pending at all is what the provider sees to.
#[test]
fn lt07_a_close_waits_for_the_objects_callbacks() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let own = Box::leak(Box::new(OwnListener {
            listener: Cell::default(),
            closed: Arc::new(Cell::default()),
            returned: AtomicU32::new(0),
        }));
        let t = table::<AdapterDispatch>(server.adapter);
        let context = (&raw const *own).cast_mut().cast();
        let made = create(|cb, ctx, out| unsafe {
            (t.create_listener)(server.adapter, Some(close_the_listener), context, cb, ctx, out)
        });
        let (listener, port) = listen(made.unwrap());
        own.listener.set(Shared(listener));
        let client = half(options(mode));
        let connector = connector(client.adapter);
        assert_eq!(connect(connector, client.qp, port, &[]), Status::CONNECTION_REFUSED);
        own.closed.get();
        close_all(&[connector, client.qp, client.cq, client.pd]);
        close_all(&[server.qp, server.cq, server.pd]);
        close_adapter(client.adapter);
        close_adapter(server.adapter);
    });
}

struct SlowEvent {
    started: Cell<()>,
    may_return: Cell<()>,
}

unsafe extern "C" fn slow_disconnect(context: *mut c_void) {
    let slow = unsafe { &*context.cast::<SlowEvent>() };
    slow.started.set(());
    slow.may_return.get();
}

unsafe extern "C" fn slow_notification(context: *mut c_void, status: i32) {
    if Status(status) == Status::SUCCESS {
        unsafe { slow_disconnect(context) };
    }
}

fn slow_event() -> (&'static SlowEvent, *mut c_void) {
    let slow = SlowEvent { started: Cell::default(), may_return: Cell::default() };
    let slow = &*Box::leak(Box::new(slow));
    (slow, (&raw const *slow).cast_mut().cast())
}

/// NDK LT-7 (b): the close of a connector waits for its disconnect event.
#[test]
fn lt07_a_connectors_close_waits_for_its_disconnect_event() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(accept_it), &events);
        let mut client = half(options(mode));
        client.connector = connector(client.adapter);
        assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
        let (slow, context) = slow_event();
        let t = table::<ConnectorDispatch>(client.connector);
        let completed = end_of(|cb, ctx| unsafe {
            (t.complete_connect)(client.connector, Some(slow_disconnect), context, cb, ctx)
        });
        assert_eq!(completed, Status::SUCCESS);
        assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
        close(events.event.get().0);
        slow.started.get();
        let (returned, closed) = begin_close(client.connector);
        assert_eq!(returned, PENDING);
        assert!(!closed.peek(), "the event is running");
        slow.may_return.set(());
        closed.get();
        close_all(&[client.qp, client.cq, client.pd]);
        close_adapter(client.adapter);
        close_all(&[listener, server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
    });
}

/// NDK CQ-13, LT-7 (b): the close of a completion queue waits for its notification.
#[test]
fn lt07_a_queues_close_waits_for_its_notification() {
    in_every_mode(|mode| {
        let (slow, context) = slow_event();
        let (client, server) = pair_on(options(mode), options(mode), |adapter| {
            cq_with(adapter, 64, Some(slow_notification), context)
        });
        assert_eq!(server.receive(1, &[]), Status::SUCCESS);
        unsafe { (table::<CqDispatch>(server.cq).arm)(server.cq, notify::ANY) };
        assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
        slow.started.get();
        let others = [server.connector, server.qp].map(|object| begin_close(object).1);
        let (returned, closed) = begin_close(server.cq);
        assert_eq!(returned, PENDING);
        assert!(!closed.peek(), "the notification is running");
        slow.may_return.set(());
        others.iter().for_each(|cell| cell.get());
        closed.get();
        close(server.pd);
        close_adapter(server.adapter);
        client.end(&[]);
    });
}

/// NDK LT-13: closing a connector whose request is not answered gives its queue pair back: with the
/// requests posted, and to be connected by another.
#[test]
fn lt13_a_connect_that_is_closed_leaves_its_queue_pair() {
    in_every_mode(|mode| {
        if matches!(mode, Mode::Nested | Mode::OtherThread) {
            return; // there a call waits for its outcome, and no close begins meanwhile (NDK LT-5)
        }
        let mut server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let mut client = half(options(mode));
        assert_eq!(client.receive(7, &[]), Status::SUCCESS);
        let first = connector(client.adapter);
        let cell = Arc::new(Cell::default());
        let t = table::<ConnectorDispatch>(first);
        let (from, to) = (address(0), address(port));
        let returned = unsafe {
            let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
            let (done, context) = (Some(request_done as _), Arc::into_raw(cell.clone()));
            let (none, context) = (std::ptr::null(), context.cast_mut().cast());
            (t.connect)(first, client.qp, from, 16, to, 16, 1, 1, none, 0, done, context)
        };
        assert_eq!(returned, PENDING);
        let asked = events.event.get().0;
        let closed = begin_close(first).1;
        assert_eq!(Status(cell.get()), Status::CANCELLED);
        closed.get();
        close_all(&[asked, listener]);
        let events = Server::new(server.qp);
        let (listener, port) = crate::common::listener(server.adapter, Some(accept_it), &events);
        client.connector = connector(client.adapter);
        assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
        assert_eq!(complete(client.connector), Status::SUCCESS);
        assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
        server.connector = events.event.get().0;
        assert_eq!(server.send(1, &[], 0), Status::SUCCESS);
        assert_eq!(client.one(), (7, Status::SUCCESS, 0), "the receive was still posted");
        let listening = begin_close(listener).1;
        client.end(&[]);
        server.end(&[]);
        listening.get();
        Box::leak(events);
    });
}

/// NDK LT-8: after the close nothing is called for the object: not the disconnect event of a
/// connector, though the peer leaves.
#[test]
fn lt08_nothing_is_called_after_a_close() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (client, (listener, _)) = guest(mode, &server, &events);
        close(events.event.get().0);
        client.end(&[]);
        close_all(&[listener, server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
        assert!(!events.disconnected.peek());
    });
}

/// NDK LT-9: antecedents closed first wait for their successors.
#[test]
fn lt09_closing_parents_first_waits_for_the_children() {
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

/// For the worked race: a callback that takes its time.
struct Slow {
    started: Cell<()>,
    may_return: Cell<()>,
    returned: AtomicU32,
}

impl Slow {
    fn new() -> Slow {
        let returned = AtomicU32::new(0);
        Slow { started: Cell::default(), may_return: Cell::default(), returned }
    }
}

unsafe extern "C" fn slow_close(context: *mut c_void) {
    let slow = unsafe { &*context.cast::<Slow>() };
    slow.started.set(());
    slow.may_return.get();
    slow.returned.store(1, Ordering::SeqCst);
}

/// NDK LT-10: an antecedent's close is over only when its successor's close callback has returned.
#[test]
fn lt10_a_close_waits_for_the_close_callbacks_of_successors() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let slow = Slow::new();
        let (returned, cq_closed) = begin_close(client.cq);
        assert_eq!(returned, PENDING);
        let context = (&raw const slow).cast_mut().cast();
        let close_qp = table::<QpDispatch>(client.qp).close;
        // Pending in every mode: the connector hangs on it.
        assert_eq!(unsafe { close_qp(client.qp.cast(), Some(slow_close), context) }, PENDING);
        let connector = Shared(client.connector);
        let closing = std::thread::spawn(move || {
            let connector = connector;
            close(connector.0);
        });
        slow.started.get();
        assert!(!cq_closed.peek(), "the queue pair's callback is running");
        slow.may_return.set(());
        cq_closed.get();
        assert_eq!(slow.returned.load(Ordering::SeqCst), 1);
        closing.join().unwrap();
        close(client.pd);
        close_adapter(client.adapter);
        server.end(&[]);
    });
}

/// NDK LT-11, the first worked race: the adapter's close does not return before the close callback
/// of a child has.
#[test]
fn lt11_the_adapter_waits_for_callbacks_to_return() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let (pd, cq) = (pd(adapter), cq(adapter));
        let qp = qp(pd, cq, 1);
        let slow = Slow::new();
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

unsafe extern "C" fn slow_request(context: *mut c_void, status: i32) {
    assert_eq!(Status(status), Status::SUCCESS);
    unsafe { slow_close(context) };
}

/// NDK LT-11: nor before the callback of a request of its own, behind which no child is left. In
/// the other modes that callback has returned before the call.
#[test]
fn lt11_the_adapter_waits_for_its_own_requests() {
    let adapter = open(Mode::AfterReturn);
    let (pages, mut lam, mut size, mut offset) = (Pages::new(1), [0_u64; 3], 24, 0);
    let list = pages.mdl();
    let slow = Slow::new();
    let context = (&raw const slow).cast_mut().cast();
    let t = table::<AdapterDispatch>(adapter);
    let returned = unsafe {
        let at = lam.as_mut_ptr().cast();
        (t.build_lam)(adapter, list.0, 8, Some(slow_request), context, at, &mut size, &mut offset)
    };
    assert_eq!(returned, PENDING);
    slow.started.get();
    let shared = Shared(adapter);
    let closing = std::thread::spawn(move || {
        let shared = shared;
        close_adapter(shared.0);
    });
    // Long enough for a close that does not wait.
    let_others_run();
    assert!(!closing.is_finished());
    slow.may_return.set(());
    closing.join().unwrap();
    assert_eq!(slow.returned.load(Ordering::SeqCst), 1);
}

/// NDK LT-12: a listener that is being closed takes no more requests, though it still waits for
/// its connectors.
#[test]
fn lt12_a_listener_being_closed_refuses() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (client, (listener, port)) = guest(mode, &server, &events);
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

/// NDK LT-13: a close rejects a request that is not answered.
#[test]
fn lt13_closing_an_unanswered_connector_rejects() {
    in_every_mode(|mode| {
        let server = half(options(mode));
        let events = Server::new(server.qp);
        let (listener, port) = listener(server.adapter, Some(take_it), &events);
        let (client, connecting) =
            connecting(mode, port, |connector, qp, port| connect(connector, qp, port, &[]));
        close(events.event.get().0);
        assert_eq!(connecting.join().unwrap(), Status::CONNECTION_REFUSED);
        client.end(&[]);
        close_all(&[listener, server.qp, server.cq, server.pd]);
        close_adapter(server.adapter);
    });
}

/// NDK LT-13: it ends the connection while another thread posts: every request that was accepted
/// completes once, and when the close is over nothing touches the memory any more.
#[test]
fn lt13_closing_a_connector_ends_the_connection_under_way() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(16));
        own.fill(|_| 1);
        let (target_mr, remote) = server.mr(&Pages::new(16), flag::ALLOW_REMOTE_WRITE);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_REMOTE_READ);
        let at = target.address();
        let (posting, sge) = (Shared((client.qp, client.cq)), own.sge(local, 0, 16 * 4096));
        let poster = std::thread::spawn(move || {
            let posting = posting;
            let (qp, cq) = posting.0;
            let t = table::<QpDispatch>(qp);
            let (mut accepted, mut completed) = (0_u64, 0_u64);
            loop {
                let context = std::ptr::without_provenance_mut(1);
                let posted = unsafe { (t.write)(qp, context, &sge, 1, at, remote, 0) };
                match Status(posted) {
                    Status::SUCCESS => accepted += 1,
                    Status::NO_MORE_ENTRIES => completed += poll(cq),
                    status => {
                        assert_eq!(status, Status::CONNECTION_INVALID);
                        break;
                    }
                }
            }
            while completed < accepted {
                completed += poll(cq);
            }
            (accepted, completed + poll(cq))
        });
        close(client.connector);
        let (accepted, completed) = poster.join().unwrap();
        assert_eq!(accepted, completed);
        close_all(&[client.qp, client.cq, own_mr, client.pd]);
        close_adapter(client.adapter);
        server.end(&[target_mr]);
    });
}

fn poll(cq: Ptr) -> u64 {
    let mut some = [EMPTY; 16];
    let poll = table::<CqDispatch>(cq).get_results_ex;
    u64::from(unsafe { poll(cq, some.as_mut_ptr(), 16) })
}

/// NDK LT-14, 7.4: a queue pair's close returns every receive as cancelled; entries stay in the
/// queue when the queue pair is gone.
#[test]
fn lt14_a_queue_pair_leaves_its_completions() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let pages = Pages::new(1);
        let (mr, local) = client.mr(&pages, flag::ALLOW_LOCAL_WRITE);
        for i in 0..5 {
            assert_eq!(client.receive(i, &[pages.sge(local, i * 64, 64)]), Status::SUCCESS);
        }
        let closed = [client.qp, client.connector].map(|object| begin_close(object).1);
        closed.iter().for_each(|cell| cell.get());
        let all = results(client.cq, 5);
        assert!(all.iter().all(|r| Status(r.status) == Status::CANCELLED));
        assert!(all.iter().enumerate().all(|(i, r)| r.request_context.addr() == i));
        assert!(all.iter().all(|r| r.qp_context.addr() == 77));
        close_all(&[client.cq, mr, client.pd]);
        close_adapter(client.adapter);
        server.end(&[]);
    });
}

/// NDK LT-6, LT-14: the close begins to flush at once, though it is over only when the connector is
/// closed.
#[test]
fn lt06_a_queue_pairs_close_flushes_before_it_is_over() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        (0..3).for_each(|i| assert_eq!(client.receive(i, &[]), Status::SUCCESS));
        let (returned, closed) = begin_close(client.qp);
        assert_eq!(returned, PENDING);
        let all = results(client.cq, 3);
        assert!(all.iter().all(|r| Status(r.status) == Status::CANCELLED));
        assert!(!closed.peek());
        close(client.connector);
        closed.get();
        close_all(&[client.cq, client.pd]);
        close_adapter(client.adapter);
        server.end(&[]);
    });
}

/// NDK LT-15: the close of a region ends its registration, of either kind.
#[test]
fn lt15_closing_a_region_ends_its_registration() {
    in_every_mode(|mode| {
        for fast in [false, true] {
            let (client, server) = pair(mode);
            let (target, own) = (Pages::new(1), Pages::new(1));
            let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
            own.fill(|_| 1);
            let mut lam = lam(server.adapter, &target.mdl(), PAGE);
            let (mr, remote, at) = if fast {
                let mr = frmr(server.pd, 16, true);
                let place = (0, PAGE, 0x10_0000);
                let posted = server.fast_register(mr, lam.pages(), place, op::ALLOW_REMOTE_WRITE);
                assert_eq!((posted, server.one().1), (Status::SUCCESS, Status::SUCCESS));
                (mr, token(mr), 0x10_0000)
            } else {
                let (mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_WRITE);
                (mr, remote, target.address())
            };
            close(mr);
            assert_eq!(client.write(1, &[own.sge(local, 0, 8)], at, remote), Status::SUCCESS);
            assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
            assert!(target.bytes().iter().all(|&byte| byte == 0));
            lam.release(server.adapter);
            client.end(&[own_mr]);
            server.end(&[]);
        }
    });
}

/// NDK LT-16: a domain waits for every kind of child, an adapter for its domain.
#[test]
fn lt16_domains_and_adapters_wait_for_their_children() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let domain = pd(adapter);
        let children = [mr(domain), mr_of(domain, true), mw(domain)];
        let (returned, closed) = begin_close(domain);
        assert_eq!(returned, PENDING);
        for child in children {
            assert!(!closed.peek());
            close(child);
        }
        closed.get();
        let late = pd(adapter);
        let shared = Shared(adapter);
        let closing = std::thread::spawn(move || {
            let shared = shared;
            close_adapter(shared.0);
        });
        assert!(!closing.is_finished());
        close(late);
        closing.join().unwrap();
    });
}

unsafe extern "C" fn forget(_: *mut c_void) {}

/// NDK LT-18: fire and forget: the domain's close still waits for what was closed so.
#[test]
fn lt18_closes_without_a_waiter_are_waited_for_by_the_domain() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let target = Pages::new(1);
        let (mr, _) = server.mr(&target, 0);
        let window = mw(server.pd);
        let at = target.address();
        assert_eq!(server.bind(mr, window, at, 8, op::ALLOW_REMOTE_READ), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        let close_mr = table::<MrDispatch>(mr).close;
        let pending = unsafe { close_mr(mr.cast(), Some(forget), std::ptr::null_mut()) };
        assert_eq!(pending, PENDING, "its window is there");
        let (returned, pd_closed) = begin_close(server.pd);
        assert_eq!(returned, PENDING);
        let others = [server.connector, server.qp, server.cq].map(|o| begin_close(o).1);
        others.iter().for_each(|cell| cell.get());
        assert!(!pd_closed.peek());
        close(window);
        pd_closed.get();
        close_adapter(server.adapter);
        client.end(&[]);
    });
}
