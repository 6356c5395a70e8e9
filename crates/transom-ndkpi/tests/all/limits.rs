//! Each limit that NdkQueryAdapterInfo tells holds: so much is granted, and one more is refused
//! (NDK 4.1, 6.2, 6.3, 6.5).

use std::ffi::c_void;

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, NdkExplain, NdkName, NdkOpenAdapter, Status};

pub(crate) fn info(adapter: Ptr) -> AdapterInfo {
    let t = table::<AdapterDispatch>(adapter);
    let mut info = std::mem::MaybeUninit::<AdapterInfo>::uninit();
    let mut size = 104;
    let status = unsafe { (t.query_adapter_info)(adapter, info.as_mut_ptr(), &mut size) };
    assert_eq!((Status(status), size), (Status::SUCCESS, 104));
    unsafe { info.assume_init() }
}

fn try_cq(adapter: Ptr, depth: u32) -> Result<Ptr, Status> {
    let t = table::<AdapterDispatch>(adapter);
    let null = std::ptr::null_mut();
    create(|cb, ctx, out| unsafe {
        (t.create_cq)(adapter, depth, None, null, std::ptr::null(), cb, ctx, out)
    })
}

fn try_qp(
    pd: Ptr,
    cq: Ptr,
    [receives, initiators, receive, initiator, inline]: [u32; 5],
) -> Result<Ptr, Status> {
    let t = table::<PdDispatch>(pd);
    let null = std::ptr::null_mut();
    create(|cb, ctx, out| unsafe {
        let make = t.create_qp;
        make(pd, cq, cq, null, receives, initiators, receive, initiator, inline, cb, ctx, out)
    })
}

#[test]
fn the_adapter_says_what_it_can() {
    in_every_mode(|mode| {
        for (sink_needed, flags) in [(0, 0x1_0107), (1, 0x1_0105)] {
            let choice =
                transom_ndkpi::OpenOptions { read_sink_needed: sink_needed, ..options(mode) };
            let adapter = open_with(choice);
            let info = info(adapter);
            assert_eq!(info.version, Version { major: 2, minor: 1 });
            assert_eq!(
                info.adapter_flags, flags,
                "in order, loopback, resize, moderation, and no need of marked sinks"
            );
            assert_eq!(info.rdma_technology, 1, "iWARP");
            assert_eq!((info.vendor_id, info.device_id), (0, 0), "no hardware");
            assert_eq!((info.max_caller_data, info.max_callee_data), (508, 508));
            assert_eq!((info.max_inbound_read_limit, info.max_outbound_read_limit), (16, 16));
            let sges = [
                info.max_initiator_request_sge,
                info.max_receive_request_sge,
                info.max_read_request_sge,
            ];
            assert_eq!(sges, [32; 3]);
            assert_eq!((info.max_srq_depth, info.max_window_size > 0), (16_384, true));
            assert!(info.large_request_threshold > 0);
            close_adapter(adapter);
        }
    });
}

/// Too little room, no buffer, and no place for the size.
#[test]
fn information_is_asked_for_with_its_size() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let ask = table::<AdapterDispatch>(adapter).query_adapter_info;
        let null = std::ptr::null_mut();
        let mut size = 104;
        let asked = Status(unsafe { ask(adapter, null, &mut size) });
        assert_eq!((asked, size), (Status::BUFFER_TOO_SMALL, 104));
        assert_eq!(Status(unsafe { ask(adapter, null, null.cast()) }), Status::INVALID_PARAMETER);
        close_adapter(adapter);
    });
}

#[test]
fn queues_are_as_deep_as_the_adapter_says() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let most = info(adapter).max_cq_depth;
        close(try_cq(adapter, most).unwrap());
        assert_eq!(try_cq(adapter, most + 1), Err(Status::INVALID_PARAMETER));
        close_adapter(adapter);
    });
}

/// Each of the five limits of a queue pair by itself.
#[test]
fn queue_pairs_are_as_large_as_the_adapter_says() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let info = info(side.adapter);
        let most = [
            info.max_receive_queue_depth,
            info.max_initiator_queue_depth,
            info.max_receive_request_sge,
            info.max_initiator_request_sge,
            info.max_inline_data_size,
        ];
        let largest = try_qp(side.pd, side.cq, most).unwrap();
        let list = [sge(8, 8, 0); 33];
        let receive = |count| unsafe {
            let post = table::<QpDispatch>(largest).receive;
            Status(post(largest, std::ptr::null_mut(), list.as_ptr(), count))
        };
        assert_eq!((receive(32), receive(33)), (Status::SUCCESS, Status::DATA_OVERRUN));
        close(largest);
        for index in 0..5 {
            let mut more = most;
            more[index] += 1;
            assert_eq!(try_qp(side.pd, side.cq, more), Err(Status::INVALID_PARAMETER), "{index}");
        }
        close_all(&[side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

/// Lists as long as a queue pair's limit (8, in these tests) and one longer, for every kind of
/// request; a Read's too, and no request transfers more than the adapter says.
#[test]
fn requests_are_as_large_as_the_adapter_says() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (own, target) = (Pages::new(1), Pages::new(1));
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let (target_mr, remote) =
            server.mr(&target, flag::ALLOW_REMOTE_WRITE | flag::ALLOW_REMOTE_READ);
        let list: Vec<Sge> = (0..9).map(|i| own.sge(local, i * 8, 8)).collect();
        let at = target.address();
        let over = Status::DATA_OVERRUN;
        assert_eq!(server.receive(1, &[target.sge(remote, 0, 64)]), Status::SUCCESS);
        assert_eq!(client.send(1, &list, 0), over);
        assert_eq!(client.read(1, &list, at, remote), over);
        assert_eq!(client.write(1, &list, at, remote), over);
        assert_eq!(client.receive(1, &list), over);
        assert_eq!(client.send(2, &list[..8], 0), Status::SUCCESS);
        assert_eq!(client.read(3, &list[..8], at, remote), Status::SUCCESS);
        assert_eq!(client.write(4, &list[..8], at, remote), Status::SUCCESS);
        for context in 2..5 {
            assert_eq!(client.one(), (context, Status::SUCCESS, 0));
        }
        let most = info(client.adapter).max_transfer_length;
        let two = [sge(8, most, local), sge(8, 1, local)];
        for posted in [
            client.send(5, &two, 0),
            client.read(5, &two, at, remote),
            client.write(5, &two, at, remote),
        ] {
            assert_eq!(posted, Status::BUFFER_OVERFLOW);
        }
        assert_eq!(server.one(), (1, Status::SUCCESS, 64));
        client.end(&[own_mr]);
        server.end(&[target_mr]);
    });
}

/// NDK WR-9: an inline request has as many bytes as its queue pair has room for, and no more.
#[test]
fn inline_data_is_as_long_as_the_queue_pair_allows() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode); // with 256
        let bytes = [5_u8; 257];
        let at = bytes.as_ptr().expose_provenance() as u64;
        let (sink, none) = (Pages::new(1), std::ptr::null_mut::<c_void>());
        let (sink_mr, token) = server.mr(&sink, flag::ALLOW_REMOTE_WRITE);
        let t = table::<QpDispatch>(client.qp);
        let write = |length| {
            let list = sge(at, length, 0xdead);
            let to = sink.address();
            Status(unsafe { (t.write)(client.qp, none, &list, 1, to, token, op::INLINE) })
        };
        assert_eq!(write(257), Status::INVALID_BUFFER_SIZE);
        assert_eq!(write(256), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert_eq!((sink.bytes()[255], sink.bytes()[256]), (5, 0));
        client.end(&[]);
        server.end(&[sink_mr]);
    });
}

/// NDK INV-4: an Invalidate with a fence waits for the Read into what it ends; NDK WR-10.
#[test]
fn wr10_a_fenced_invalidate_waits_for_the_read() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (source, sink) = (Pages::new(512), Pages::new(512));
        source.fill(|i| (i % 251) as u8);
        let (source_mr, remote) = server.mr(&source, flag::ALLOW_REMOTE_READ);
        let mut lam = lam(client.adapter, &sink.mdl(), sink.len());
        let fast = frmr(client.pd, 512, true);
        let place = (0, sink.len(), 0x7700_0000_0000);
        let rights = op::ALLOW_LOCAL_WRITE | op::RDMA_READ_SINK;
        assert_eq!(client.fast_register(fast, lam.pages(), place, rights), Status::SUCCESS);
        assert_eq!(client.one(), (0xfa, Status::SUCCESS, 0));
        let list = [sge(place.2, sink.len() as u32, token(fast))];
        assert_eq!(client.read(1, &list, source.address(), remote), Status::SUCCESS);
        let t = table::<QpDispatch>(client.qp);
        let context = std::ptr::without_provenance_mut(2);
        let posted = unsafe { (t.invalidate)(client.qp, context, fast.cast(), op::READ_FENCE) };
        assert_eq!(Status(posted), Status::SUCCESS);
        assert_eq!(client.one(), (1, Status::SUCCESS, 0));
        assert_eq!(client.one(), (2, Status::SUCCESS, 0));
        assert!(sink.bytes() == source.bytes());
        lam.release(client.adapter);
        client.end(&[fast]);
        server.end(&[source_mr]);
    });
}

/// The out parameter behind a failed open, and the resources it keeps.
#[test]
fn a_failed_open_yields_null() {
    let at = address(0);
    let version = |major, minor| Version { major, minor };
    let poison = std::ptr::without_provenance_mut(0x5a5a);
    let mut wrong = options(Mode::Natural);
    wrong.completion_mode = 4;
    let good = options(Mode::Natural);
    for (version, length, options, status) in [
        (version(9, 0), 16, &good, Status::BAD_VERSION),
        (version(2, 0), 16, &wrong, Status::INVALID_PARAMETER),
    ] {
        let mut out: Ptr = poison;
        let at = at.as_ptr().cast();
        let opened = unsafe { NdkOpenAdapter(version, at, length, options, &mut out) };
        assert_eq!((Status(opened), out.is_null()), (status, true));
    }
    let foreign = [&2_u16.to_ne_bytes()[..], &[0, 0, 192, 0, 2, 77], &[0; 8]].concat();
    let mut out: Ptr = poison;
    let at = foreign.as_ptr().cast();
    let opened = unsafe { NdkOpenAdapter(version(2, 0), at, 16, &good, &mut out) };
    assert_eq!((Status(opened), out.is_null()), (Status::INVALID_ADDRESS, true));
    let null = std::ptr::null_mut();
    let opened = unsafe { NdkOpenAdapter(version(2, 0), at, 16, &good, null) };
    assert_eq!(Status(opened), Status::INVALID_PARAMETER);
}

/// The sentence about a refusal: its length, and as much of it as fits, with its end. 7.3: the
/// number of its record comes with the failed completion, and none with one that succeeds.
#[test]
fn a_refusal_is_explained_in_the_room_there_is() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        assert_eq!(server.receive(9, &[]), Status::SUCCESS);
        assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
        assert_eq!(client.results(1)[0].provider_error_code, 0);
        assert_eq!(client.send(2, &[sge(8, 8, 0xdead)], 0), Status::SUCCESS);
        let failed = client.results(1)[0];
        assert_eq!(Status(failed.status), Status::ACCESS_VIOLATION);
        let code = failed.provider_error_code;
        assert_ne!(code, 0);
        let explain =
            |text: *mut u8, room| unsafe { NdkExplain(client.adapter, code, text.cast(), room) };
        let length = explain(std::ptr::null_mut(), 0);
        assert!(length > 20);
        let mut text = vec![0xff_u8; length + 2];
        assert_eq!(explain(text.as_mut_ptr(), length + 1), length);
        assert_eq!((text[length], text[length + 1]), (0, 0xff));
        let whole = text[..length].to_vec();
        assert!(std::str::from_utf8(&whole).unwrap().contains("dead"), "{whole:?}");
        text.fill(0xff);
        assert_eq!(explain(text.as_mut_ptr(), 10), length);
        assert_eq!((&text[..9], text[9], text[10]), (&whole[..9], 0, 0xff));
        text.fill(0xff);
        assert_eq!(explain(text.as_mut_ptr(), 0), length);
        assert_eq!(text[0], 0xff);
        let unknown = unsafe { NdkExplain(client.adapter, u32::MAX, text.as_mut_ptr().cast(), 9) };
        assert_eq!((unknown, text[0]), (0, 0xff));
        client.end(&[]);
        server.end(&[]);
    });
}

/// The sentence about a refusal has the name that the consumer has given to the region.
#[test]
fn a_region_is_called_by_the_name_that_it_was_given() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let own = Pages::new(1);
        let (mr, token) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let log = c"log".as_ptr();
        let name = |adapter, token, name| unsafe { Status(NdkName(adapter, token, name)) };
        assert_eq!(name(client.adapter, token ^ 1, log), Status::INVALID_PARAMETER);
        assert_eq!(name(client.adapter, token, std::ptr::null()), Status::INVALID_PARAMETER);
        assert_eq!(name(client.pd, token, log), Status::INVALID_PARAMETER);
        assert_eq!(name(client.adapter, token, log), Status::SUCCESS);
        assert_eq!(client.send(1, &[own.sge(token, PAGE - 4, 8)], 0), Status::SUCCESS);
        let code = client.results(1)[0].provider_error_code;
        let mut text = vec![0_u8; 4096];
        let length =
            unsafe { NdkExplain(client.adapter, code, text.as_mut_ptr().cast(), text.len()) };
        let text = String::from_utf8_lossy(&text[..length]);
        assert!(text.contains("region \"log\""), "{text}");
        client.end(&[mr]);
        server.end(&[]);
    });
}

/// Anything but an object of the right kind is an INVALID_PARAMETER, in every argument.
#[test]
fn objects_of_another_kind_are_invalid_parameters() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let (mr, mw) = (mr(side.pd), mw(side.pd));
        let (t, wrong) = (table::<QpDispatch>(side.qp), Status::INVALID_PARAMETER.0);
        let (none, null) = (std::ptr::null_mut(), std::ptr::null_mut::<Object>());
        for (region, window) in [(mw, mw), (mr, mr), (null, mw), (mr, null)] {
            assert_eq!(unsafe { (t.bind)(side.qp, none, region, window, none, 8, R) }, wrong);
        }
        for other in [side.pd, side.cq, side.qp, null] {
            assert_eq!(unsafe { (t.invalidate)(side.qp, none, other.cast(), 0) }, wrong);
        }
        assert_eq!(unsafe { (t.send)(side.cq, none, std::ptr::null(), 0, 0) }, wrong);
        assert_eq!(unsafe { (t.send)(side.qp, none, std::ptr::null(), 1, 0) }, wrong, "no list");
        assert_eq!(try_qp(side.pd, side.pd, [1; 5]), Err(Status::INVALID_PARAMETER));
        let results = table::<CqDispatch>(side.cq).get_results_ex;
        assert_eq!(unsafe { results(side.qp, [EMPTY; 1].as_mut_ptr(), 1) }, 0);
        close_all(&[mw, mr, side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

const R: u32 = op::ALLOW_REMOTE_READ;
