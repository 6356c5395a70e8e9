//! NdkRegisterMr and NdkDeregisterMr (NDK 11.1, 11.2), every rule, in every completion mode.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, Status};

/// An address of this process at which nothing is mapped.
const NOWHERE: u64 = 0x0000_6b6b_0000_0123;

fn is_mapped(address: u64) -> bool {
    transom_engine::sys::check_pages(address, 1, false).is_ok()
}

/// MR-1, MR-4, MR-8, MR-12, MR-18: what is wrong with the arguments is said inline, in every mode.
#[test]
fn mr1_mr4_mr8_mr12_mr18_arguments_are_judged_inline() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let mr = mr(pd);
        let pages = Pages::new(2);
        let list = pages.mdl();
        let refused = |mdl, length, flags| {
            let (returned, status) = register(mr, mdl, length, flags);
            assert_eq!(returned, status.0, "inline");
            status
        };
        let invalid = Status::INVALID_PARAMETER;
        assert_eq!(refused(std::ptr::null_mut(), 8, 0), invalid);
        assert_eq!(refused(list.0, 0, 0), invalid);
        assert_eq!(refused(list.0, pages.len() + 1, 0), invalid);
        assert_eq!(refused(list.0, 8, 0x10), invalid);
        assert_eq!(refused(list.0, 8, 0x4), invalid, "remote write has local write built in");
        let zero = List::new(0, PAGE).over(&[pages.page(0)]);
        assert_eq!(refused(zero.0, 8, 0), invalid, "MR-8");
        let end = List::new(u64::MAX - 0xfff, PAGE).over(&[pages.page(0)]);
        assert_eq!(refused(end.0, PAGE, 0), invalid, "the last byte of the address space");
        let unbuilt = List::new(NOWHERE, 8);
        assert_eq!(refused(unbuilt.0, 8, 0), invalid);
        assert_eq!(token(mr), 0, "no token without a registration (MR-17)");

        let (returned, status) = register(mr, list.0, 8, flag::ALLOW_REMOTE_WRITE);
        assert_eq!(status, Status::SUCCESS);
        assert_eq!(returned, if mode == Mode::Natural { 0 } else { PENDING });
        assert_ne!(token(mr), 0);
        assert_eq!(register(mr, list.0, 8, 0).0, Status::INVALID_DEVICE_STATE.0, "MR-18");
        assert_eq!(deregister(mr).1, Status::SUCCESS);
        assert_eq!(register(mr, list.0, 8, 0).1, Status::SUCCESS, "registered again");

        let fast = mr_of(pd, true);
        assert_eq!(register(fast, list.0, 8, 0).0, Status::INVALID_DEVICE_REQUEST.0, "MR-1");
        assert_eq!(deregister(fast).0, Status::INVALID_DEVICE_REQUEST.0, "DR-1");
        close_all(&[mr, fast, pd]);
        close_adapter(adapter);
    });
}

/// MR-2, MR-3, MR-10: a chain is one region only if it is virtually contiguous.
#[test]
fn mr2_mr3_mr10_a_chain_must_be_virtually_contiguous() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let mr = mr(pd);
        let pages = Pages::new(3);
        let first = |next: &List| List::new(NOWHERE, 0x800).over(&[pages.page(2)]).then(next);
        let next = |address, page| List::new(address, 0x600).over(&[pages.page(page)]);
        for (address, page, right) in [
            (NOWHERE + 0x800, 2, true),
            (NOWHERE + 0x801, 2, false), // a gap of one byte
            (NOWHERE + 0x7ff, 2, false), // an overlap of one byte
            (NOWHERE + 0x800, 1, false), // another page under the same virtual page (MR-10)
        ] {
            let next = next(address, page);
            let chain = first(&next);
            let (_, status) = register(mr, chain.0, 0xe00, 0);
            assert_eq!(status == Status::SUCCESS, right, "{address:#x} {status:?}");
            if right {
                assert_eq!(deregister(mr).1, Status::SUCCESS);
            } else {
                assert_eq!(status, Status::INVALID_PARAMETER);
                // Only what Length covers is looked at.
                assert_eq!(register(mr, chain.0, 0x800, 0).1, Status::SUCCESS);
                assert_eq!(deregister(mr).1, Status::SUCCESS);
            }
        }
        close_all(&[mr, pd]);
        close_adapter(adapter);
    });
}

/// MR-5, MR-6, MR-7, MR-9: the first MDL's address names byte 0 and is never dereferenced; the bytes
/// are those of the pages in order; the chain is not needed any more once the request is complete.
#[test]
fn mr5_mr6_mr7_mr9_the_address_is_an_index_into_scattered_pages() {
    in_every_mode(|mode| {
        assert!(!is_mapped(NOWHERE) && !is_mapped(NOWHERE + 0x3000));
        let (client, server) = pair(mode);
        let pages = Pages::new(4);
        pages.fill(|i| (i / PAGE * 50 + i % 251) as u8);
        let order = [2, 0, 3];
        let length = 2 * PAGE + 0x200;
        let list = List::new(NOWHERE, length).over(&order.map(|page| pages.page(page)));
        let mr = mr(server.pd);
        assert_eq!(register(mr, list.0, length, flag::ALLOW_REMOTE_READ).1, Status::SUCCESS);
        // Scribbled over before it is freed: whoever still looks at it finds nonsense.
        unsafe { std::ptr::write_bytes(transom_ndkpi::mdl::MmGetMdlPfnArray(list.0), 0xff, 3) };
        drop(list);

        let sink = Pages::new(3);
        let (sink_mr, local) = client.mr(&sink, flag::ALLOW_LOCAL_WRITE);
        let sge = sink.sge(local, 0, length as u32);
        assert_eq!(client.read(1, &[sge], NOWHERE, token(mr)), Status::SUCCESS);
        assert_eq!(client.one(), (1, Status::SUCCESS, 0));
        let all = pages.bytes();
        let expected: Vec<u8> = (0..length)
            .map(|i| {
                let at = i + 0x123;
                all[order[at / PAGE] * PAGE + at % PAGE]
            })
            .collect();
        assert!(sink.bytes()[..length] == expected);
        // MR-8: not by offset from 0 either.
        let sge = sink.sge(local, 0, 8);
        assert_eq!(client.read(2, &[sge], 0, token(mr)), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        client.end(&[sink_mr]);
        server.end(&[mr]);
    });
}

/// MR-11: out of resources inline, or in the callback.
#[test]
fn mr11_resources_run_out_inline_or_in_the_callback() {
    in_every_mode(|mode| {
        let adapter =
            open_with(transom_ndkpi::OpenOptions { max_registrations: 1, ..options(mode) });
        let pd = pd(adapter);
        let (first, second) = (mr(pd), mr(pd));
        let pages = Pages::new(1);
        let list = pages.mdl();
        assert_eq!(register(first, list.0, 8, 0).1, Status::SUCCESS);
        let (returned, status) = register(second, list.0, 8, 0);
        assert_eq!(status, Status::INSUFFICIENT_RESOURCES);
        let natural = mode == Mode::Natural;
        assert_eq!(returned, if natural { status.0 } else { PENDING });
        assert_eq!(token(second), 0);
        assert_eq!(deregister(first).1, Status::SUCCESS);
        assert_eq!(register(second, list.0, 8, 0).1, Status::SUCCESS, "room again");
        close_all(&[first, second, pd]);
        close_adapter(adapter);
    });
}

/// MR-12, MR-16, MR-19, 11.9: what each flag lets a peer do. A refusal ends the connection, so each
/// attempt has its own.
#[test]
fn mr12_mr19_peers_can_do_what_the_flags_say() {
    for (flags, read, write) in [
        (flag::ALLOW_LOCAL_READ, false, false),
        (flag::ALLOW_LOCAL_WRITE, false, false),
        (flag::ALLOW_REMOTE_READ, true, false),
        (flag::ALLOW_REMOTE_WRITE, false, true),
        (flag::ALLOW_REMOTE_READ | flag::ALLOW_REMOTE_WRITE, true, true),
        (flag::RDMA_READ_SINK, false, false),
    ] {
        for (writes, allowed) in [(false, read), (true, write)] {
            let (client, server) = pair(Mode::Natural);
            let (target, own) = (Pages::new(1), Pages::new(1));
            own.fill(|_| 7);
            let (target_mr, remote) = server.mr(&target, flags);
            let also = server.mr(&target, flag::ALLOW_REMOTE_READ | flag::ALLOW_REMOTE_WRITE).0;
            let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
            let (sge, address) = (own.sge(local, 0, 64), target.sge(0, 0, 0).address);
            let posted = match writes {
                true => client.write(1, &[sge], address, remote),
                false => client.read(1, &[sge], address, remote),
            };
            assert_eq!(posted, Status::SUCCESS);
            let expected = if allowed { Status::SUCCESS } else { Status::REMOTE_RESOURCES };
            assert_eq!(client.one().1, expected, "{flags:#x} write {writes}");
            let changed = target.bytes().contains(&7);
            assert_eq!(changed, writes && allowed);
            client.end(&[own_mr]);
            server.end(&[target_mr, also]);
        }
    }
}

/// MR-13 to MR-16: the sink of a Read. An adapter that requires the flag refuses a sink without it,
/// and lets the flag alone suffice; one that does not ignores the flag.
#[test]
fn mr13_mr14_mr15_mr16_the_read_sink_flag_counts_where_the_adapter_says_so() {
    for needed in [false, true] {
        for (flags, if_needed, if_not) in [
            (flag::ALLOW_LOCAL_WRITE, false, true),
            (flag::ALLOW_LOCAL_WRITE | flag::RDMA_READ_SINK, true, true),
            (flag::RDMA_READ_SINK, true, false),
        ] {
            let choice = transom_ndkpi::OpenOptions {
                read_sink_needed: u8::from(needed),
                ..options(Mode::Natural)
            };
            let (client, server) = pair_with(choice, options(Mode::Natural));
            let (source, sink) = (Pages::new(1), Pages::new(1));
            let (source_mr, remote) = server.mr(&source, flag::ALLOW_REMOTE_READ);
            let (sink_mr, local) = client.mr(&sink, flags);
            let address = source.sge(0, 0, 0).address;
            assert_eq!(client.read(1, &[sink.sge(local, 0, 8)], address, remote), Status::SUCCESS);
            let right = if needed { if_needed } else { if_not };
            let expected = if right { Status::SUCCESS } else { Status::ACCESS_VIOLATION };
            assert_eq!(client.one().1, expected, "needed {needed} flags {flags:#x}");
            client.end(&[sink_mr]);
            server.end(&[source_mr]);
        }
    }
}

/// MR-16, MR-20: a receive needs local write; a read sink alone is not enough; sources need nothing.
#[test]
fn mr16_mr20_receives_need_local_write() {
    for (flags, right) in
        [(flag::ALLOW_LOCAL_WRITE, true), (flag::RDMA_READ_SINK, false), (0, false)]
    {
        let choice = transom_ndkpi::OpenOptions { read_sink_needed: 1, ..options(Mode::Natural) };
        let (client, server) = pair_with(options(Mode::Natural), choice);
        let (from, to) = (Pages::new(1), Pages::new(1));
        from.fill(|i| i as u8);
        let (to_mr, to_token) = server.mr(&to, flags);
        let (from_mr, from_token) = client.mr(&from, flag::ALLOW_LOCAL_READ);
        assert_eq!(server.receive(9, &[to.sge(to_token, 16, 64)]), Status::SUCCESS);
        assert_eq!(client.send(1, &[from.sge(from_token, 0, 64)], 0), Status::SUCCESS);
        let (context, status, bytes) = server.one();
        assert_eq!(context, 9);
        if right {
            assert_eq!((status, bytes), (Status::SUCCESS, 64));
            assert_eq!(client.one().1, Status::SUCCESS);
            assert!(to.bytes()[16..80] == from.bytes()[..64]);
        } else {
            assert_eq!(status, Status::ACCESS_VIOLATION);
            assert!(to.bytes().iter().all(|&byte| byte == 0));
        }
        client.end(&[from_mr]);
        server.end(&[to_mr]);
    }
}

/// DR-2, DR-4, DR-5: after deregistration both tokens are dead.
#[test]
fn dr2_dr4_dr5_a_deregistered_token_is_dead() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let (target_mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_WRITE);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(deregister(target_mr).1, Status::SUCCESS);
        assert_eq!(deregister(target_mr).0, Status::INVALID_DEVICE_STATE.0, "DR-4");
        own.fill(|_| 1);
        let address = target.sge(0, 0, 0).address;
        assert_eq!(client.write(1, &[own.sge(local, 0, 8)], address, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        assert!(target.bytes().iter().all(|&byte| byte == 0));
        client.end(&[own_mr]);
        server.end(&[target_mr]);

        let (client, server) = pair(mode);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(deregister(own_mr).1, Status::SUCCESS);
        assert_eq!(client.send(2, &[own.sge(local, 0, 8)], 0), Status::SUCCESS);
        assert_eq!(client.one().1, Status::ACCESS_VIOLATION, "DR-5");
        client.end(&[own_mr]);
        server.end(&[]);
    });
}

/// DR-1, DR-3, MW-2 to MW-10, INV-1, INV-2: windows.
#[test]
fn dr3_mw_windows_open_and_close() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(2), Pages::new(1));
        target.fill(|i| (i % 199) as u8);
        let (mr, region) = server.mr(&target, flag::ALLOW_LOCAL_WRITE);
        let (read_only, _) = server.mr(&target, 0);
        let window = mw(server.pd);
        let base = target.sge(0, 0, 0).address;
        let (r, w) = (op::ALLOW_REMOTE_READ, op::ALLOW_REMOTE_WRITE);
        let invalid = Status::INVALID_PARAMETER;
        assert_eq!(server.bind(mr, window, base, 0, r), invalid);
        assert_eq!(server.bind(mr, window, base + 1, 2 * PAGE, r), invalid, "MW-2");
        assert_eq!(server.bind(mr, window, base, 8, 0), invalid, "MW-4");
        assert_eq!(server.bind(mr, window, base, 8, op::ALLOW_LOCAL_WRITE), invalid, "MW-4");
        assert_eq!(server.bind(read_only, window, base, 8, w), Status::ACCESS_VIOLATION, "MW-5");
        let foreign = common::pd(server.adapter);
        let stranger = mw(foreign);
        assert_eq!(server.bind(mr, stranger, base, 8, r), invalid, "MW-8");

        assert_eq!(server.bind(mr, window, base + 16, 100, r), Status::SUCCESS);
        let first = window_token(window);
        assert_ne!(first, 0, "MW-6: before the completion");
        assert_eq!(server.one(), (0xb1, Status::SUCCESS, 0));
        assert_eq!(server.bind(mr, window, base, 8, r), Status::INVALID_DEVICE_STATE, "MW-9");
        assert_eq!(deregister(mr).1, Status::DEVICE_BUSY, "DR-3");

        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let sge = own.sge(local, 0, 100);
        assert_eq!(client.read(1, &[sge], base + 16, first), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS, "MW-3: by the region's addresses");
        assert!(own.bytes()[..100] == target.bytes()[16..116]);

        assert_eq!(server.invalidate(mr), Status::INVALID_DEVICE_REQUEST, "INV-1");
        assert_eq!(server.invalidate(window), Status::SUCCESS);
        assert_eq!(server.one(), (0x1f, Status::SUCCESS, 0));
        assert_eq!(server.bind(mr, window, base, 8, w), Status::SUCCESS, "bound anew");
        assert_eq!(server.one().1, Status::SUCCESS);
        assert_ne!(window_token(window), first);
        assert_ne!(window_token(window), region);

        assert_eq!(client.read(2, &[sge], base + 16, first), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES, "INV-2: the old token is dead");
        client.end(&[own_mr]);
        // MW-10: the window died with the connection, so nothing keeps the region.
        server.end(&[window, mr, read_only, stranger, foreign]);
    });
}

/// INV-6, INV-7, CQ-9, CQ-10: a peer invalidates a window with a Send; another token of it is fatal.
#[test]
fn inv6_inv7_a_send_invalidates_a_window_and_nothing_else() {
    for right in [true, false] {
        let (client, server) = pair(Mode::Natural);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let (mr, region) = server.mr(&target, flag::ALLOW_LOCAL_WRITE);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let window = mw(server.pd);
        let base = target.sge(0, 0, 0).address;
        assert_eq!(server.bind(mr, window, base, 64, op::ALLOW_REMOTE_READ), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        assert_eq!(server.receive(5, &[target.sge(region, 128, 64)]), Status::SUCCESS);
        let token = if right { window_token(window) } else { region };
        let t = table::<QpDispatch>(client.qp);
        let sge = own.sge(local, 0, 8);
        let posted =
            unsafe { (t.send_and_invalidate)(client.qp, std::ptr::null_mut(), &sge, 1, 0, token) };
        assert_eq!(Status(posted), Status::SUCCESS);
        let received = server.results(1)[0];
        if right {
            assert_eq!(Status(received.status), Status::SUCCESS);
            assert_eq!(received.operation, 0x8001);
            assert_eq!(received.type_specific as u32, token);
            assert_eq!(client.results(1)[0].operation, 2, "CQ-11");
            // MW-9, INV-5: it can be bound again, without a local invalidation.
            let again = server.bind(mr, window, base, 64, op::ALLOW_REMOTE_READ);
            assert_eq!(again, Status::SUCCESS);
        } else {
            assert_ne!(Status(received.status), Status::SUCCESS, "INV-7, INV-9");
            assert_ne!(client.one().1, Status::SUCCESS);
        }
        client.end(&[own_mr]);
        server.end(&[window, mr]);
    }
}
