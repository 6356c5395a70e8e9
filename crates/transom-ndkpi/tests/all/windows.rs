//! NdkBind, NdkInvalidate, NdkSendAndInvalidate (NDK 11.6, 11.7): one test per rule, each in every
//! mode.

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, Status};

const R: u32 = op::ALLOW_REMOTE_READ;
const W: u32 = op::ALLOW_REMOTE_WRITE;
const INVALID: Status = Status::INVALID_PARAMETER;

/// A client with memory of its own, and a server with a region without remote rights.
struct Fixture {
    client: Side,
    server: Side,
    own: Pages,
    own_mr: (Ptr, u32),
    target: Pages,
    mr: (Ptr, u32),
}

impl Fixture {
    fn new(mode: Mode) -> Fixture {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(2), Pages::new(1));
        target.fill(|i| (i % 199) as u8);
        let mr = server.mr(&target, flag::ALLOW_LOCAL_WRITE);
        let own_mr = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        Fixture { client, server, own, own_mr, target, mr }
    }
    fn base(&self) -> u64 {
        self.target.address()
    }
    /// A window on 100 bytes from 16 on, bound.
    fn window(&self, flags: u32) -> Ptr {
        let window = mw(self.server.pd);
        let bound = self.server.bind(self.mr.0, window, self.base() + 16, 100, flags);
        assert_eq!(bound, Status::SUCCESS);
        assert_eq!(self.server.one(), (0xb1, Status::SUCCESS, 0));
        window
    }
    /// How a Read of the peer's ends.
    fn read(&self, at: u64, length: u32, token: u32) -> Status {
        let sge = self.own.sge(self.own_mr.1, 0, length);
        assert_eq!(self.client.read(1, &[sge], at, token), Status::SUCCESS);
        self.client.one().1
    }
    fn end(self, extra: &[Ptr]) {
        self.client.end(&[self.own_mr.0]);
        self.server.end(&[extra, &[self.mr.0]].concat());
    }
}

#[test]
fn mw01_a_window_is_nothing_before_its_bind() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = mw(f.server.pd);
        assert_eq!(window_token(window), 0);
        assert_eq!(f.server.invalidate(window), Status::INVALID_DEVICE_REQUEST);
        assert_eq!(f.read(f.base(), 8, window_token(window)), Status::REMOTE_RESOURCES);
        f.end(&[window]);
    });
}

#[test]
fn mw02_a_window_lies_inside_its_region() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = mw(f.server.pd);
        let (base, length) = (f.base(), 2 * PAGE);
        for (at, bytes) in [
            (base, 0),
            (base - 1, 8),
            (base + 1, length),
            (base, length + 1),
            (base + length as u64, 1),
            (base, usize::MAX),
        ] {
            assert_eq!(f.server.bind(f.mr.0, window, at, bytes, R), INVALID, "{bytes} at {at:#x}");
        }
        assert_eq!(f.server.bind(f.mr.0, window, base, length, R), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        f.end(&[window]);
    });
}

/// NDK MW-3: as the region's, a window's address names bytes and is never followed.
#[test]
fn mw03_the_address_is_an_index_that_is_never_followed() {
    in_every_mode(|mode| {
        assert!(!is_mapped(NOWHERE));
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        target.fill(|i| (i % 199) as u8);
        let list = List::new(NOWHERE, 2000).over(&[target.page(0)]);
        let (mr, window) = (mr(server.pd), mw(server.pd));
        assert_eq!(register(mr, list.0, 2000, 0).1, Status::SUCCESS);
        assert_eq!(server.bind(mr, window, NOWHERE + 16, 100, R), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let sge = own.sge(local, 0, 100);
        assert_eq!(client.read(1, &[sge], NOWHERE + 16, window_token(window)), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert!(own.bytes()[..100] == target.bytes()[0x123 + 16..0x123 + 116]);
        // Nor by its offset in the window.
        assert_eq!(client.read(2, &[sge], 0, window_token(window)), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        client.end(&[own_mr]);
        server.end(&[window, mr]);
    });
}

#[test]
fn mw04_a_window_opens_for_reading_or_writing_or_both() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = mw(f.server.pd);
        for flags in [0, op::ALLOW_LOCAL_WRITE, 0x20, R | op::ALLOW_LOCAL_WRITE, 0x40, 0x80] {
            assert_eq!(f.server.bind(f.mr.0, window, f.base(), 8, flags), INVALID, "{flags:#x}");
        }
        for flags in [R, W, R | W] {
            assert_eq!(f.server.bind(f.mr.0, window, f.base(), 8, flags), Status::SUCCESS);
            assert_eq!(f.server.one().1, Status::SUCCESS);
            assert_eq!(f.server.invalidate(window), Status::SUCCESS);
            assert_eq!(f.server.one().1, Status::SUCCESS);
        }
        f.end(&[window]);
    });
}

/// NDK MW-5: remote write needs the region's local write, and no remote right of the region's.
#[test]
fn mw05_remote_write_needs_local_write() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (read_only, _) = f.server.mr(&f.target, 0);
        let window = mw(f.server.pd);
        let (base, denied) = (f.base(), Status::ACCESS_VIOLATION);
        assert_eq!(f.server.bind(read_only, window, base, 8, W), denied);
        assert_eq!(f.server.bind(read_only, window, base, 8, R | W), denied);
        assert_eq!(f.server.bind(read_only, window, base, 8, R), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        let other = f.window(W);
        let sge = f.own.sge(f.own_mr.1, 0, 100);
        let written = f.client.write(1, &[sge], base + 16, window_token(other));
        assert_eq!((written, f.client.one().1), (Status::SUCCESS, Status::SUCCESS));
        f.end(&[window, other, read_only]);
    });
}

/// NDK MW-6: so that it can travel in a Send that is posted behind the Bind.
#[test]
fn mw06_the_token_is_there_when_bind_returns() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = mw(f.server.pd);
        assert_eq!(f.server.bind(f.mr.0, window, f.base(), 8, R), Status::SUCCESS);
        let token = window_token(window);
        assert_ne!(token, 0);
        assert_eq!(f.server.send(2, &[], 0), Status::SUCCESS);
        assert_eq!(f.client.receive(3, &[]), Status::SUCCESS);
        assert_eq!(f.client.one().0, 3);
        assert_eq!(f.read(f.base(), 8, token), Status::SUCCESS);
        f.end(&[window]);
    });
}

/// NDK MW-7: one queue pair at a time; others' peers are refused, also of the same domain.
#[test]
fn mw07_a_window_serves_one_queue_pair() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (readable, writable) = (f.window(R), f.window(W));
        assert_ne!(window_token(readable), window_token(writable), "they may overlap");
        let (other_client, other_server) = another(&f.client, &f.server);
        let sge = f.own.sge(f.own_mr.1, 0, 8);
        let token = window_token(readable);
        assert_eq!(other_client.read(1, &[sge], f.base() + 16, token), Status::SUCCESS);
        assert_eq!(other_client.one().1, Status::REMOTE_RESOURCES);
        assert_eq!(f.read(f.base() + 16, 8, token), Status::SUCCESS, "its own does not notice");
        let closing = [other_client.close(), other_server.close()];
        f.end(&[readable, writable]);
        closing.iter().flatten().for_each(|cell| cell.get());
    });
}

#[test]
fn mw08_region_window_and_queue_pair_share_a_domain() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let foreign = pd(f.server.adapter);
        let (stranger, foreign_mr) = (mw(foreign), mr(foreign));
        assert_eq!(register(foreign_mr, f.target.mdl().0, 64, 0).1, Status::SUCCESS);
        let window = mw(f.server.pd);
        assert_eq!(f.server.bind(f.mr.0, stranger, f.base(), 8, R), INVALID);
        assert_eq!(f.server.bind(foreign_mr, window, f.base(), 8, R), INVALID);
        f.end(&[stranger, foreign_mr, window, foreign]);
    });
}

/// NDK MW-9: binding again without an invalidation is a request that fails, and ends the
/// connection; the window stays what it was until then.
#[test]
fn mw09_binding_again_without_an_invalidation_fails() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let before = window_token(window);
        assert_eq!(f.server.bind(f.mr.0, window, f.base(), 8, R), Status::SUCCESS, "posted");
        assert_eq!(f.server.one(), (0xb1, Status::INVALID_DEVICE_REQUEST, 0));
        assert_eq!(window_token(window), before);
        assert_eq!(f.server.bind(f.mr.0, window, f.base(), 8, R), Status::CONNECTION_INVALID);
        f.end(&[window]);
    });
}

/// NDK MW-10: what ends a window, and that its region is free then.
#[test]
fn mw10_a_window_dies_with_what_it_hangs_on() {
    in_every_mode(|mode| {
        for how in ["invalidate", "peer", "close", "disconnect", "qp"] {
            let f = Fixture::new(mode);
            let window = f.window(R);
            let token = window_token(window);
            let mut open = vec![];
            match how {
                "invalidate" => {
                    assert_eq!(f.server.invalidate(window), Status::SUCCESS);
                    assert_eq!(f.server.one().1, Status::SUCCESS);
                }
                "peer" => {
                    assert_eq!(f.server.receive(5, &[]), Status::SUCCESS);
                    assert_eq!(f.client.send_and_invalidate(6, &[], token), Status::SUCCESS);
                    assert_eq!(f.server.one().1, Status::SUCCESS);
                    assert_eq!(f.client.one().1, Status::SUCCESS);
                }
                "close" => open.push(begin_close(window).1),
                "disconnect" => assert_eq!(f.server.disconnect(), Status::SUCCESS),
                _ => unsafe { (table::<QpDispatch>(f.server.qp).flush)(f.server.qp) },
            }
            assert_eq!(deregister(f.mr.0).1, Status::SUCCESS, "{how}: nothing keeps the region");
            if !["disconnect", "qp"].contains(&how) {
                assert_eq!(f.read(f.base() + 16, 8, token), Status::REMOTE_RESOURCES, "{how}");
            }
            open.iter().for_each(|cell| cell.get());
            f.end(if how == "close" { &[] } else { std::slice::from_ref(&window) });
        }
    });
}

/// NDK MW-9, 2.2: a window that is invalidated is bound to another region, and the first one
/// closes. The close need not wait for the Invalidate: that one comes first, behind a Read.
#[test]
fn mw09_a_window_is_bound_again_behind_its_invalidation() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let (source, sink) = (Pages::new(512), Pages::new(512));
        let (source_mr, remote) = f.client.mr(&source, flag::ALLOW_REMOTE_READ);
        let (sink_mr, local) = f.server.mr(&sink, flag::ALLOW_LOCAL_WRITE);
        let second = Pages::new(1);
        second.fill(|_| 9);
        let (second_mr, _) = f.server.mr(&second, 0);
        let list = [sink.sge(local, 0, sink.len() as u32)];
        assert_eq!(f.server.read(5, &list, source.address(), remote), Status::SUCCESS);
        let t = table::<QpDispatch>(f.server.qp);
        let context = std::ptr::without_provenance_mut(6);
        let posted = unsafe { (t.invalidate)(f.server.qp, context, window.cast(), op::READ_FENCE) };
        assert_eq!(Status(posted), Status::SUCCESS);
        let bound = f.server.bind(second_mr, window, second.address(), 8, R);
        assert_eq!(bound, Status::SUCCESS);
        for context in [5, 6, 0xb1] {
            assert_eq!(f.server.one(), (context, Status::SUCCESS, 0));
        }
        assert_eq!(f.read(second.address(), 8, window_token(window)), Status::SUCCESS);
        assert_eq!(f.own.bytes()[..8], [9; 8]);
        close(f.mr.0); // no window is bound to it any more
        f.client.end(&[f.own_mr.0, source_mr]);
        f.server.end(&[window, second_mr, sink_mr]);
    });
}

struct Asks {
    window: std::sync::atomic::AtomicPtr<transom_ndkpi::types::Object>,
    told: Cell<u32>,
}

unsafe extern "C" fn ask_for_the_token(context: *mut std::ffi::c_void, _status: i32) {
    let asks = unsafe { &*context.cast::<Asks>() };
    asks.told.set(window_token(asks.window.load(std::sync::atomic::Ordering::SeqCst)));
}

/// NDK 0.4: a notification, perhaps inside NdkInvalidate, calls into the window that is
/// invalidated.
#[test]
fn a_callback_inside_an_invalidate_asks_for_the_token() {
    in_every_mode(|mode| {
        let asks = &*Box::leak(Box::new(Asks {
            window: std::sync::atomic::AtomicPtr::default(),
            told: Cell::default(),
        }));
        let context = (&raw const *asks).cast_mut().cast();
        let (client, server) = pair_on(options(mode), options(mode), |adapter| {
            cq_with(adapter, 64, Some(ask_for_the_token), context)
        });
        let (target, window) = (Pages::new(1), mw(server.pd));
        let (mr, _) = server.mr(&target, 0);
        assert_eq!(server.bind(mr, window, target.address(), 8, R), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        asks.window.store(window, std::sync::atomic::Ordering::SeqCst);
        let expected = window_token(window);
        let t = table::<CqDispatch>(server.cq);
        unsafe { (t.arm)(server.cq, transom_ndkpi::flags::notify::ANY) };
        let posting = Shared((server.qp, window));
        // Apart, so that a call that never returns fails the test.
        let poster = std::thread::spawn(move || {
            let posting = posting;
            let (qp, window) = posting.0;
            let context = std::ptr::without_provenance_mut(0x1f);
            let t = table::<QpDispatch>(qp);
            Status(unsafe { (t.invalidate)(qp, context, window.cast(), 0) })
        });
        assert_eq!(asks.told.get(), expected);
        assert_eq!(poster.join().unwrap(), Status::SUCCESS);
        assert_eq!(server.one(), (0x1f, Status::SUCCESS, 0));
        client.end(&[]);
        server.end(&[window, mr]);
    });
}

// ---- NDK 11.7 ----

#[test]
fn inv01_windows_and_fast_registrations_are_invalidated_and_regions_not() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        assert_eq!(f.server.invalidate(f.mr.0), Status::INVALID_DEVICE_REQUEST);
        assert_eq!(f.server.invalidate(f.server.pd), INVALID, "another kind of object");
        assert_eq!(f.server.invalidate(window), Status::SUCCESS);
        assert_eq!(f.server.one(), (0x1f, Status::SUCCESS, 0));
        let fast = frmr(f.server.pd, 16, true);
        let mut lam = lam(f.server.adapter, &f.target.mdl(), PAGE);
        let posted = f.server.fast_register(fast, lam.pages(), (0, PAGE, 0x10_0000), R);
        assert_eq!((posted, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(f.server.invalidate(fast), Status::SUCCESS);
        assert_eq!(f.server.one(), (0x1f, Status::SUCCESS, 0));
        lam.release(f.server.adapter);
        f.end(&[window, fast]);
    });
}

#[test]
fn inv02_an_invalidated_token_reaches_nothing_and_is_fatal() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let token = window_token(window);
        assert_eq!(f.read(f.base() + 16, 100, token), Status::SUCCESS);
        assert!(f.own.bytes()[..100] == f.target.bytes()[16..116]);
        assert_eq!(f.server.invalidate(window), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        f.own.fill(|_| 0xee);
        assert_eq!(f.read(f.base() + 16, 100, token), Status::REMOTE_RESOURCES);
        assert!(f.own.bytes().iter().all(|&byte| byte == 0xee), "no byte has moved");
        assert_eq!(f.client.send(9, &[], 0), Status::CONNECTION_INVALID, "the connection is over");
        f.end(&[window]);
    });
}

#[test]
fn inv05_invalidating_twice_fails_the_request_and_the_connection() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        assert_eq!(f.server.invalidate(window), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        assert_eq!(f.server.invalidate(window), Status::SUCCESS, "not known inline in general");
        assert_eq!(f.server.one(), (0x1f, Status::INVALID_DEVICE_REQUEST, 0));
        assert_eq!(f.server.send(9, &[], 0), Status::CONNECTION_INVALID);
        f.end(&[window]);
    });
}

/// NDK INV-6, CQ-10, CQ-11: the receive says which token; when it does, the token is dead already.
#[test]
fn inv06_a_send_invalidates_before_its_receive_completes() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let token = window_token(window);
        let sge = f.target.sge(f.mr.1, 128, 64);
        assert_eq!(f.server.receive(5, &[sge]), Status::SUCCESS);
        let own = f.own.sge(f.own_mr.1, 0, 8);
        assert_eq!(f.client.send_and_invalidate(6, &[own], token), Status::SUCCESS);
        let received = f.server.results(1)[0];
        assert_eq!(Status(received.status), Status::SUCCESS);
        assert_eq!((received.operation, received.bytes_transferred), (0x8001, 8));
        assert_eq!(received.type_specific as u32, token);
        let sent = f.client.results(1)[0];
        assert_eq!((Status(sent.status), sent.operation), (Status::SUCCESS, 2), "CQ-11");
        // The window can be bound again, without a local invalidation.
        assert_eq!(f.server.bind(f.mr.0, window, f.base(), 64, R), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        assert_eq!(f.read(f.base() + 16, 8, token), Status::REMOTE_RESOURCES);
        f.end(&[window]);
    });
}

#[test]
fn inv07_an_invalid_token_makes_the_receiver_abort() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let token = window_token(window);
        assert_eq!(f.server.invalidate(window), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        assert_eq!(f.server.receive(5, &[]), Status::SUCCESS);
        assert_eq!(f.client.send_and_invalidate(6, &[], token), Status::SUCCESS);
        assert_ne!(f.server.one().1, Status::SUCCESS);
        assert_ne!(f.client.one().1, Status::SUCCESS);
        f.end(&[window]);
    });
}

/// NDK INV-9: windows and fast registrations; never a normal region, never the privileged token.
#[test]
fn inv09_a_peer_invalidates_windows_and_fast_registrations_only() {
    in_every_mode(|mode| {
        for what in ["window", "fast", "region", "privileged"] {
            let f = Fixture::new(mode);
            let window = f.window(R);
            let fast = frmr(f.server.pd, 16, true);
            let mut lam = lam(f.server.adapter, &f.target.mdl(), PAGE);
            let posted = f.server.fast_register(fast, lam.pages(), (0, PAGE, 0x10_0000), R);
            assert_eq!((posted, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
            let (token, right) = match what {
                "window" => (window_token(window), true),
                "fast" => (token(fast), true),
                "region" => (f.mr.1, false),
                _ => (privileged(f.server.pd), false),
            };
            assert_eq!(f.server.receive(5, &[]), Status::SUCCESS);
            assert_eq!(f.client.send_and_invalidate(6, &[], token), Status::SUCCESS);
            let received = f.server.results(1)[0];
            assert_eq!(Status(received.status) == Status::SUCCESS, right, "{what}");
            if right {
                assert_eq!(received.type_specific as u32, token);
            }
            lam.release(f.server.adapter);
            f.end(&[window, fast]);
        }
    });
}

/// NDK INV-10: the adapter's flag is clear, so the request's is ignored: the sink stays.
#[test]
fn inv10_a_read_invalidates_nothing_here() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let window = f.window(R);
        let (t, sge) = (table::<QpDispatch>(f.client.qp), f.own.sge(f.own_mr.1, 0, 8));
        let (at, token) = (f.base() + 16, window_token(window));
        let none = std::ptr::null_mut();
        let flag = op::RDMA_READ_LOCAL_INVALIDATE;
        let posted = unsafe { (t.read)(f.client.qp, none, &sge, 1, at, token, flag) };
        assert_eq!(Status(posted), Status::SUCCESS);
        assert_eq!(f.client.one().1, Status::SUCCESS);
        assert_eq!(f.read(at, 8, token), Status::SUCCESS, "the same sink again");
        f.end(&[window]);
    });
}
