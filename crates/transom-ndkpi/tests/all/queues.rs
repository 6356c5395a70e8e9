//! Completion queues, posts and deferral (NDK 7, 8): one test per rule, each in every mode.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, notify, op};
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, Status};

pub(crate) struct Notified {
    cq: std::sync::atomic::AtomicPtr<Object>,
    pub times: AtomicUsize,
    running: AtomicUsize,
    rearm: AtomicU32,
    told: std::sync::mpsc::SyncSender<i32>,
    thread: Mutex<Option<ThreadId>>,
}

unsafe extern "C" fn notified(context: *mut c_void, status: i32) {
    let notified = unsafe { &*context.cast::<Notified>() };
    assert_eq!(notified.running.fetch_add(1, Ordering::SeqCst), 0, "CQ-3: one at a time");
    notified.times.fetch_add(1, Ordering::SeqCst);
    *notified.thread.lock().unwrap() = Some(std::thread::current().id());
    let rearm = notified.rearm.load(Ordering::SeqCst);
    if rearm != u32::MAX {
        let cq = notified.cq.load(Ordering::SeqCst);
        // NDK CQ-3: normal, and does not recurse.
        unsafe { (table::<CqDispatch>(cq).arm)(cq, rearm) };
    }
    notified.running.fetch_sub(1, Ordering::SeqCst);
    notified.told.send(status).unwrap();
}

/// NDK CQ-5, CQ-6, CQ-15, WR-11: what satisfies which arm, and what two arms amount to.
#[test]
fn cq05_two_arms_are_the_greater_one() {
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
                    thread: Mutex::default(),
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
                    let status = heard.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
                    assert_eq!(Status(status), Status::SUCCESS);
                }
                // NDK CQ-2: once per arm, so the next message says nothing.
                assert_eq!(client.send(2, &[], op::SEND_AND_SOLICIT_EVENT), Status::SUCCESS);
                assert_eq!(client.one().1, Status::SUCCESS);
                results(cq, 2);
                let later = usize::from(!expected && by_solicited);
                if later == 1 {
                    heard.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
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

/// A server whose queue notifies, with receives posted, and its client.
pub(crate) fn notifying(
    mode: Mode,
    rearm: u32,
    depth: u32,
) -> (Side, Side, &'static Notified, Notifications) {
    let (told, heard) = std::sync::mpsc::sync_channel(64);
    let state = &*Box::leak(Box::new(Notified {
        cq: Default::default(),
        times: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
        rearm: AtomicU32::new(rearm),
        told,
        thread: Mutex::default(),
    }));
    let context = (&raw const *state).cast_mut().cast();
    let (client, server) = pair_on(options(mode), options(mode), |adapter| {
        let cq = cq_with(adapter, depth, Some(notified), context);
        state.cq.store(cq, Ordering::SeqCst);
        cq
    });
    (client, server, state, heard)
}

pub(crate) type Notifications = std::sync::mpsc::Receiver<i32>;
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn arm(side: &Side, kind: u32) {
    unsafe { (table::<CqDispatch>(side.cq).arm)(side.cq, kind) };
}

/// A message of no bytes, to its end at the client's.
pub(crate) fn message(client: &Side) {
    assert_eq!(client.send(1, &[], op::SEND_AND_SOLICIT_EVENT), Status::SUCCESS);
    assert_eq!(client.one().1, Status::SUCCESS);
}

/// A message whose receive has completed at the server when this returns: the Read behind the Send
/// is answered in order. The Send's own completion says that the peer has taken the bytes, not that
/// the receive is in its completion queue.
pub(crate) fn delivered_message(client: &Side) {
    message(client);
    assert_eq!(client.read(2, &[], 0, 0), Status::SUCCESS);
    assert_eq!(client.one(), (2, Status::SUCCESS, 0));
}

#[test]
fn cq02_an_arm_is_answered_once() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = notifying(mode, u32::MAX, 64);
        (0..3).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        delivered_message(&client);
        assert_eq!(state.times.load(Ordering::SeqCst), 0, "not armed");
        arm(&server, notify::ANY);
        assert_eq!(Status(heard.recv_timeout(LIMIT).unwrap()), Status::SUCCESS, "CQ-4");
        message(&client);
        message(&client);
        server.results(3);
        client.end(&[]);
        server.end(&[]);
        assert_eq!(state.times.load(Ordering::SeqCst), 1);
    });
}

/// An arm that is answered at once has its callback where the mode says: inside the call on the
/// same thread, inside the call on another one, or on another one after it.
#[test]
fn an_answer_inside_a_call_comes_by_the_mode() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = notifying(mode, u32::MAX, 64);
        assert_eq!(server.receive(1, &[]), Status::SUCCESS);
        delivered_message(&client);
        arm(&server, notify::ANY);
        let times = state.times.load(Ordering::SeqCst);
        heard.recv_timeout(LIMIT).unwrap();
        if matches!(mode, Mode::Nested | Mode::OtherThread) {
            assert_eq!(times, 1, "before the call returns");
        }
        let thread = state.thread.lock().unwrap().unwrap();
        assert_eq!(thread == std::thread::current().id(), mode == Mode::Nested);
        server.results(1);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CQ-3: arming inside the callback is normal, and never makes it run twice at a time (asserted
/// in `notified`).
#[test]
fn cq03_the_callback_arms_again() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = notifying(mode, notify::ANY, 64);
        (0..4).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        arm(&server, notify::ANY);
        for _ in 0..4 {
            message(&client);
            heard.recv_timeout(LIMIT).unwrap();
            server.results(1);
        }
        assert_eq!(state.times.load(Ordering::SeqCst), 4);
        state.rearm.store(u32::MAX, Ordering::SeqCst);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CQ-4: entries that the last callback has seen do not satisfy an arm; a new one does.
#[test]
fn cq04_only_entries_newer_than_the_last_callback_satisfy_an_arm() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = notifying(mode, u32::MAX, 64);
        (0..3).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        arm(&server, notify::ANY);
        message(&client);
        heard.recv_timeout(LIMIT).unwrap();
        arm(&server, notify::ANY); // the entry is still there, and old
        assert!(heard.try_recv().is_err());
        message(&client);
        heard.recv_timeout(LIMIT).unwrap();
        assert_eq!(state.times.load(Ordering::SeqCst), 2);
        server.results(2);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CQ-6, WR-11: a message without SOLICIT satisfies ANY alone. Nothing else completes, so that
/// a notification that has not fired when the adapter is closed never fires (NDK LT-11).
#[test]
fn cq06_a_plain_message_satisfies_any_alone() {
    in_every_mode(|mode| {
        for (kind, times) in [(notify::ERRORS, 0), (notify::SOLICITED, 0), (notify::ANY, 1)] {
            let (client, server, state, _heard) = notifying(mode, u32::MAX, 64);
            assert_eq!(server.receive(1, &[]), Status::SUCCESS);
            arm(&server, kind);
            assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
            assert_eq!(client.one().1, Status::SUCCESS);
            assert_eq!(server.one(), (1, Status::SUCCESS, 0));
            client.end(&[]);
            server.end(&[]);
            assert_eq!(state.times.load(Ordering::SeqCst), times, "{kind}");
        }
    });
}

struct Held {
    cq: std::sync::atomic::AtomicPtr<Object>,
    times: AtomicUsize,
    started: Cell<()>,
    may_return: Cell<()>,
}

unsafe extern "C" fn holds(context: *mut c_void, _status: i32) {
    let held = unsafe { &*context.cast::<Held>() };
    if held.times.fetch_add(1, Ordering::SeqCst) == 0 {
        let cq = held.cq.load(Ordering::SeqCst);
        unsafe { (table::<CqDispatch>(cq).arm)(cq, notify::ANY) };
    }
    held.started.set(());
    held.may_return.get();
}

/// NDK CQ-3: a completion that satisfies an arm while the callback runs fires after it has
/// returned.
#[test]
fn cq03_an_arm_inside_the_callback_is_answered_behind_it() {
    in_every_mode(|mode| {
        let held = &*Box::leak(Box::new(Held {
            cq: Default::default(),
            times: AtomicUsize::new(0),
            started: Cell::default(),
            may_return: Cell::default(),
        }));
        let context = (&raw const *held).cast_mut().cast();
        let (client, server) = pair_on(options(mode), options(mode), |adapter| {
            cq_with(adapter, 64, Some(holds), context)
        });
        held.cq.store(server.cq, Ordering::SeqCst);
        (0..2).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        arm(&server, notify::ANY);
        message(&client);
        held.started.get();
        server.results(1);
        message(&client);
        server.results(1);
        assert_eq!(held.times.load(Ordering::SeqCst), 1, "one at a time");
        held.may_return.set(());
        held.started.get();
        held.may_return.set(());
        client.end(&[]);
        server.end(&[]);
        assert_eq!(held.times.load(Ordering::SeqCst), 2);
    });
}

/// NDK CQ-6: what fails is solicited.
#[test]
fn cq06_a_failed_request_satisfies_solicited() {
    in_every_mode(|mode| {
        let (client, server, _, heard) = notifying(mode, u32::MAX, 64);
        assert_eq!(server.receive(1, &[]), Status::SUCCESS);
        arm(&server, notify::SOLICITED);
        unsafe { (table::<QpDispatch>(server.qp).flush)(server.qp) };
        heard.recv_timeout(LIMIT).unwrap();
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CQ-7, CQ-12: one completion more than there is room for kills the queue, and fires every
/// arm, of any kind.
#[test]
fn cq07_an_overrun_fires_any_arm() {
    in_every_mode(|mode| {
        for kind in [notify::ERRORS, notify::SOLICITED, notify::ANY] {
            let (client, server, _, heard) = notifying(mode, u32::MAX, 2);
            (0..3).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
            for _ in 0..2 {
                // Requests go one at a time: they are in the queue, and old, when the last one is
                // asked about.
                arm(&server, notify::ANY);
                message(&client);
                assert_eq!(Status(heard.recv_timeout(LIMIT).unwrap()), Status::SUCCESS);
            }
            arm(&server, kind);
            assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
            let told = Status(heard.recv_timeout(LIMIT).unwrap());
            assert_eq!(told, Status::BUFFER_OVERFLOW, "{kind}");
            client.one();
            let late = client.send(2, &[], 0);
            let late = if late == Status::SUCCESS { client.one().1 } else { late };
            assert_ne!(late, Status::SUCCESS, "its queue pair is dead");
            client.end(&[]);
            server.end(&[]);
        }
    });
}

/// NDK CQ-8, WR-4: no entry and no notification for a silent success; a failure has its entry.
#[test]
fn cq08_silent_success_makes_no_entry() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        (0..2).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        assert_eq!(client.send(1, &[], op::SILENT_SUCCESS), Status::SUCCESS);
        assert_eq!(client.send(2, &[], 0), Status::SUCCESS);
        assert_eq!(client.one().0, 2, "the silent one before it has left none");
        let wrong = sge(8, 8, 0);
        assert_eq!(client.send(3, &[wrong], op::SILENT_SUCCESS), Status::SUCCESS);
        assert_eq!(client.one(), (3, Status::ACCESS_VIOLATION, 0));
        client.end(&[]);
        server.end(&[]);
    });
}

const NOTHING: NdkResult = NdkResult {
    status: 1,
    bytes_transferred: 0,
    qp_context: std::ptr::null_mut(),
    request_context: std::ptr::null_mut(),
};

/// The given number of completions, by the function with fewer fields. Completions that the peer
/// knows of may still be on their way to the queue.
pub(crate) fn plain_results(cq: Ptr, wanted: usize) -> Vec<NdkResult> {
    let (begin, mut found) = (std::time::Instant::now(), Vec::new());
    while found.len() < wanted {
        let mut some = vec![NOTHING; wanted - found.len()];
        let take = table::<CqDispatch>(cq).get_results;
        let count = unsafe { take(cq, some.as_mut_ptr(), some.len() as u32) };
        found.extend_from_slice(&some[..count as usize]);
        assert!(begin.elapsed() < Duration::from_secs(60), "{} of {wanted}", found.len());
    }
    found
}

/// NDK CQ-9: in order, as many as fit, by either function.
#[test]
fn cq09_results_come_in_order_by_either_function() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let empty = unsafe {
            (table::<CqDispatch>(server.cq).get_results)(server.cq, [NOTHING; 4].as_mut_ptr(), 4)
        };
        assert_eq!(empty, 0);
        (0..5).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        (0..5).for_each(|_| message(&client));
        assert_eq!(server.results(2).iter().map(|r| r.request_context.addr()).max(), Some(1));
        let plain = plain_results(server.cq, 2);
        let contexts = [plain[0], plain[1]].map(|r| r.request_context.addr());
        assert_eq!((contexts, plain[0].qp_context.addr()), ([2, 3], 77));
        assert_eq!(server.one().0, 4);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK CQ-9: a receive that invalidated can be had by the plain function, which does not say so.
#[test]
fn cq09_the_plain_function_takes_invalidating_receives_too() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let target = Pages::new(1);
        let (mr, _) = server.mr(&target, 0);
        let window = mw(server.pd);
        let at = target.address();
        assert_eq!(server.bind(mr, window, at, 8, op::ALLOW_REMOTE_READ), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        assert_eq!(server.receive(5, &[]), Status::SUCCESS);
        assert_eq!(client.send_and_invalidate(6, &[], window_token(window)), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert_eq!(plain_results(server.cq, 1)[0].request_context.addr(), 5);
        assert_eq!(deregister(mr).1, Status::SUCCESS, "the window is closed all the same");
        client.end(&[]);
        server.end(&[window, mr]);
    });
}

/// Larger and smaller, with entries in the queue: none is lost, and what cannot be changes nothing.
#[test]
fn cq14_a_queue_is_resized_and_loses_nothing() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let mut info = std::mem::MaybeUninit::<AdapterInfo>::uninit();
        let mut size = 104;
        let query = table::<AdapterDispatch>(server.adapter).query_adapter_info;
        assert_eq!(unsafe { query(server.adapter, info.as_mut_ptr(), &mut size) }, 0);
        let info = unsafe { info.assume_init() };
        assert_eq!(info.adapter_flags & 0x100, 0x100, "the flag says so");
        let t = table::<CqDispatch>(server.cq);
        let resize =
            |depth: u32| end_of(|cb, ctx| unsafe { (t.resize)(server.cq, depth, cb, ctx) });
        for request in 1..=5 {
            assert_eq!(server.receive(request, &[]), Status::SUCCESS);
            assert_eq!(client.send(request, &[], 0), Status::SUCCESS);
            assert_eq!(client.one().1, Status::SUCCESS);
        }
        // Four entries are in it, and the fifth will be at once.
        assert_eq!(resize(3), Status::BUFFER_OVERFLOW);
        assert_eq!(resize(info.max_cq_depth + 1), Status::INVALID_PARAMETER);
        assert_eq!(resize(64), Status::SUCCESS);
        assert_eq!(resize(5), Status::SUCCESS);
        let entries = plain_results(server.cq, 5);
        let contexts: Vec<_> = entries.iter().map(|entry| entry.request_context.addr()).collect();
        assert_eq!(contexts, [1, 2, 3, 4, 5]);
        assert_eq!(resize(info.max_cq_depth), Status::SUCCESS);
        let null = std::ptr::null_mut();
        assert_eq!(unsafe { (t.resize)(null, 8, None, null.cast()) }, Status::INVALID_PARAMETER.0);
        client.end(&[]);
        server.end(&[]);
    });
}

// ---- NDK 7.1 ----

#[test]
fn wr04_a_post_that_fails_makes_no_completion() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        assert_eq!(client.send(1, &[], 0x8000), Status::INVALID_PARAMETER);
        let many = [sge(8, 8, 0); 9];
        assert_eq!(client.send(2, &many, 0), Status::DATA_OVERRUN);
        assert_eq!(server.receive(3, &[]), Status::SUCCESS);
        assert_eq!(client.send(4, &[], 0), Status::SUCCESS);
        assert_eq!(client.one(), (4, Status::SUCCESS, 0), "the only one");
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK WR-6: no bytes: no list is needed, and no token is looked at.
#[test]
fn wr06_requests_of_no_bytes_are_legal() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        assert_eq!(server.receive(1, &[]), Status::SUCCESS);
        message(&client);
        assert_eq!(server.one(), (1, Status::SUCCESS, 0));
        assert_eq!(client.read(2, &[], 0, 0xdead), Status::SUCCESS);
        assert_eq!(client.one(), (2, Status::SUCCESS, 0));
        assert_eq!(client.write(3, &[], 0, 0xdead), Status::SUCCESS);
        assert_eq!(client.one(), (3, Status::SUCCESS, 0));
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK WR-7: receives at any time, other requests only while connected; Bind, FastRegister and
/// Invalidate are such.
#[test]
fn wr07_receives_are_posted_before_the_connection() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let pages = Pages::new(1);
        let (mr, local) = side.mr(&pages, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(side.receive(1, &[pages.sge(local, 0, 8)]), Status::SUCCESS);
        let no = Status::CONNECTION_INVALID;
        assert_eq!(side.send(2, &[], 0), no);
        assert_eq!(side.read(3, &[], 0, 0), no);
        assert_eq!(side.write(4, &[], 0, 0), no);
        let (window, at) = (mw(side.pd), pages.address());
        assert_eq!(side.bind(mr, window, at, 8, op::ALLOW_REMOTE_READ), no);
        assert_eq!(window_token(window), 0, "and no window is reserved");
        assert_eq!(deregister(mr).1, Status::SUCCESS);
        close_all(&[window, mr, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

#[test]
fn wr08_an_error_completion_ends_the_connection() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        assert_eq!(client.receive(1, &[]), Status::SUCCESS);
        assert_eq!(client.send(2, &[sge(8, 8, 0)], 0), Status::SUCCESS);
        let mut found = client.results(2);
        found.sort_by_key(|result| result.request_context.addr());
        let statuses: Vec<Status> = found.iter().map(|result| Status(result.status)).collect();
        assert_eq!(statuses, [Status::CANCELLED, Status::ACCESS_VIOLATION]);
        assert_eq!(client.send(3, &[], 0), Status::CONNECTION_INVALID);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK WR-9: the bytes are taken before the call returns, tokens are not looked at, entries may be
/// more than other requests have, and the sum has its limit.
#[test]
fn wr09_inline_data_is_taken_at_once() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (mut own, sink) = ([7_u8; 300], Pages::new(1));
        let (sink_mr, local) = server.mr(&sink, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(server.receive(1, &[sink.sge(local, 0, 256)]), Status::SUCCESS);
        let at = own.as_mut_ptr().expose_provenance() as u64;
        let garbage: Vec<Sge> = (0..16).map(|i| sge(at + i * 16, 16, 0xdead_beef)).collect();
        assert_eq!(client.send(2, &garbage, op::INLINE), Status::SUCCESS);
        std::hint::black_box(&mut own).fill(9);
        assert_eq!(server.one(), (1, Status::SUCCESS, 256));
        assert_eq!(sink.bytes()[..256], [7; 256]);
        assert_eq!(client.one().1, Status::SUCCESS);
        let over = [sge(at, 257, 0)];
        assert_eq!(client.send(3, &over, op::INLINE), Status::INVALID_BUFFER_SIZE);
        client.end(&[]);
        server.end(&[sink_mr]);
    });
}

#[test]
fn wr14_bytes_are_those_of_receives() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (own, sink) = (Pages::new(1), Pages::new(1));
        let (own_mr, from) = client.mr(&own, flag::ALLOW_LOCAL_READ);
        let (sink_mr, to) = server.mr(&sink, flag::ALLOW_REMOTE_WRITE);
        assert_eq!(server.receive(1, &[sink.sge(to, 0, 64)]), Status::SUCCESS);
        assert_eq!(client.send(2, &[own.sge(from, 0, 40)], 0), Status::SUCCESS);
        assert_eq!(server.one(), (1, Status::SUCCESS, 40));
        assert_eq!(client.one(), (2, Status::SUCCESS, 0));
        let at = sink.address();
        assert_eq!(client.write(3, &[own.sge(from, 0, 40)], at, to), Status::SUCCESS);
        assert_eq!(client.one(), (3, Status::SUCCESS, 0));
        client.end(&[own_mr]);
        server.end(&[sink_mr]);
    });
}

/// NDK WR-15, 7.3: a Send whose receive does not come in time (a second) is an IO_TIMEOUT, and the
/// end of the connection. In one mode: no call of it ends later than at once.
#[test]
fn wr15_a_send_without_a_receive_times_out() {
    let (client, server) = pair(Mode::Natural);
    assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
    assert_eq!(client.one(), (1, Status::IO_TIMEOUT, 0));
    assert_eq!(client.send(2, &[], 0), Status::CONNECTION_INVALID);
    client.end(&[]);
    server.end(&[]);
}

/// NDK 4.2: every entry says what it was. Receives that invalidate: NDK INV-6.
#[test]
fn each_entry_says_what_it_was() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (own, target) = (Pages::new(1), Pages::new(1));
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let rights = flag::ALLOW_REMOTE_WRITE | flag::ALLOW_REMOTE_READ;
        let (target_mr, remote) = server.mr(&target, rights);
        let (list, at) = ([own.sge(local, 0, 8)], target.address());
        let only = |side: &Side| {
            let result = side.results(1)[0];
            assert_eq!(Status(result.status), Status::SUCCESS);
            assert_eq!(result.type_specific, 0, "nothing was invalidated by the peer");
            (result.operation, result.provider_error_code)
        };
        assert_eq!(server.receive(1, &[target.sge(remote, 0, 8)]), Status::SUCCESS);
        assert_eq!(client.send(2, &list, 0), Status::SUCCESS);
        assert_eq!((only(&client), only(&server)), ((2, 0), (1, 0)), "Send, Receive");
        assert_eq!(client.read(3, &list, at, remote), Status::SUCCESS);
        assert_eq!(only(&client), (32, 0), "Read");
        assert_eq!(client.write(4, &list, at, remote), Status::SUCCESS);
        assert_eq!(only(&client), (64, 0), "Write");
        let window = mw(server.pd);
        assert_eq!(server.bind(target_mr, window, at, 8, op::ALLOW_REMOTE_READ), Status::SUCCESS);
        assert_eq!(only(&server), (8, 0), "Bind");
        assert_eq!(server.invalidate(window), Status::SUCCESS);
        assert_eq!(only(&server), (16, 0), "Invalidate");
        client.end(&[own_mr]);
        server.end(&[window, target_mr]);
    });
}

/// NDK 7.3, WR-14: a message that is too long for its receive: BUFFER_OVERFLOW and no bytes here,
/// REMOTE_RESOURCES there.
#[test]
fn wr14_a_receive_that_is_too_short_has_no_bytes() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (own, sink) = (Pages::new(1), Pages::new(1));
        let (own_mr, from) = client.mr(&own, 0);
        let (sink_mr, to) = server.mr(&sink, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(server.receive(1, &[sink.sge(to, 0, 39)]), Status::SUCCESS);
        assert_eq!(client.send(2, &[own.sge(from, 0, 40)], 0), Status::SUCCESS);
        assert_eq!(server.one(), (1, Status::BUFFER_OVERFLOW, 0));
        assert_eq!(client.one(), (2, Status::REMOTE_RESOURCES, 0));
        client.end(&[own_mr]);
        server.end(&[sink_mr]);
    });
}

#[test]
fn wr16_queues_hold_what_they_were_made_for() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        (0..64).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        assert_eq!(server.receive(64, &[]), Status::NO_MORE_ENTRIES);
        message(&client);
        server.results(1);
        assert_eq!(server.receive(65, &[]), Status::SUCCESS, "a slot is free again");
        client.end(&[]);
        server.end(&[]);
    });
}

// ---- NDK 7.2 ----

/// NDK DF-1, DF-2: a hint: what was deferred is done and completes all the same.
#[test]
fn df02_deferred_requests_complete() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        (0..3).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        assert_eq!(client.send(1, &[], op::DEFER), Status::SUCCESS);
        assert_eq!(client.send(2, &[], op::DEFER), Status::SUCCESS);
        assert_eq!(client.send(3, &[], 0), Status::SUCCESS);
        let contexts =
            client.results(3).iter().map(|r| r.request_context.addr()).collect::<Vec<_>>();
        assert_eq!(contexts, [1, 2, 3]);
        client.end(&[]);
        server.end(&[]);
    });
}

/// NDK DF-3, its test vector: the first is done although the second fails inline and nothing
/// follows.
#[test]
fn df03_a_post_that_fails_lets_the_deferred_ones_go() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let target = Pages::new(1);
        let mut lam = lam(server.adapter, &target.mdl(), PAGE);
        let fast = [true, false].map(|remote| frmr(server.pd, 16, remote));
        let flags = op::ALLOW_REMOTE_READ | op::DEFER;
        let [first, second] =
            fast.map(|mr| server.fast_register(mr, lam.pages(), (0, PAGE, 0x10_0000), flags));
        assert_eq!((first, second), (Status::SUCCESS, Status::ACCESS_VIOLATION));
        assert_eq!(server.one(), (0xfa, Status::SUCCESS, 0));
        assert_eq!(server.invalidate(fast[0]), Status::SUCCESS);
        assert_eq!(server.one().0, 0x1f, "there was exactly one before");
        lam.release(server.adapter);
        client.end(&[]);
        server.end(&fast);
    });
}

/// NDK DF-5, 7.4: a flush returns deferred requests too.
#[test]
fn df05_a_flush_retires_deferred_requests() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        // The Send has no receive at the peer's, and therefore waits.
        assert_eq!(client.send(1, &[], op::DEFER), Status::SUCCESS);
        unsafe { (table::<QpDispatch>(client.qp).flush)(client.qp) };
        assert_eq!(client.one(), (1, Status::CANCELLED, 0));
        assert_eq!(client.receive(2, &[]), Status::SUCCESS, "7.4: accepted, and cancelled");
        assert_eq!(client.one(), (2, Status::CANCELLED, 0));
        assert_eq!(client.send(3, &[], 0), Status::CONNECTION_INVALID);
        client.end(&[]);
        server.end(&[]);
    });
}
