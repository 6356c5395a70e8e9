//! NdkRegisterMr and NdkDeregisterMr (NDK 11.1, 11.2): one test per rule, each in every mode.

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, OpenOptions, Status};

const INVALID: Status = Status::INVALID_PARAMETER;

/// A region that is not registered, and some memory for it.
fn unregistered(mode: Mode, test: impl FnOnce(Ptr, &Pages)) {
    let adapter = open(mode);
    let pd = pd(adapter);
    let mr = mr(pd);
    let pages = Pages::new(4);
    test(mr, &pages);
    close_all(&[mr, pd]);
    close_adapter(adapter);
}

/// Refused, and inline in every mode (NDK A-16).
fn refused(mr: Ptr, list: &List, length: usize, flags: u32) -> Status {
    let (returned, status) = register(mr, list.0, length, flags);
    assert_eq!(returned, status.0, "inline");
    assert_eq!(token(mr), 0);
    status
}

/// Registered, and deregistered again.
fn works(mr: Ptr, list: &List, length: usize) {
    assert_eq!(register(mr, list.0, length, 0).1, Status::SUCCESS);
    assert_eq!(deregister(mr).1, Status::SUCCESS);
}

/// Two pieces, the first of 0x800 bytes at NOWHERE in page 2.
fn two_pieces(pages: &Pages, second: u64, page: usize) -> (List, List) {
    let next = List::new(second, 0x600).over(&[pages.page(page)]);
    (List::new(NOWHERE, 0x800).over(&[pages.page(2)]).then(&next), next)
}

#[test]
fn mr01_a_region_for_fast_registration_is_not_registered() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let (fast, pages) = (mr_of(pd, true), Pages::new(1));
        assert_eq!(refused(fast, &pages.mdl(), 8, 0), Status::INVALID_DEVICE_REQUEST);
        close_all(&[fast, pd]);
        close_adapter(adapter);
    });
}

#[test]
fn mr02_a_chain_is_virtually_contiguous_as_far_as_length_goes() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let (chain, _next) = two_pieces(pages, NOWHERE + 0x800, 2);
            works(mr, &chain, 0xe00);
            // Memory behind Length is not looked at.
            let (chain, _next) = two_pieces(pages, NOWHERE + 0x9000, 1);
            works(mr, &chain, 0x800);
            assert_eq!(refused(mr, &chain, 0x801, 0), INVALID);
        });
    });
}

#[test]
fn mr03_a_chain_that_is_not_contiguous_is_refused() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            for (second, what) in [(0x801, "a gap of one byte"), (0x7ff, "an overlap of one")] {
                let (chain, _next) = two_pieces(pages, NOWHERE + second, 2);
                assert_eq!(refused(mr, &chain, 0xe00, 0), INVALID, "{what}");
            }
        });
    });
}

#[test]
fn mr04_length_is_held_against_the_chain() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let list = pages.mdl();
            assert_eq!(refused(mr, &List(std::ptr::null_mut()), 8, 0), INVALID, "no MDL");
            assert_eq!(refused(mr, &list, 0, 0), INVALID);
            assert_eq!(refused(mr, &list, pages.len() + 1, 0), INVALID);
            assert_eq!(refused(mr, &list, usize::MAX, 0), INVALID);
            let end = List::new(u64::MAX - 0xfff, PAGE).over(&[pages.page(0)]);
            assert_eq!(refused(mr, &end, PAGE, 0), INVALID, "it wraps");
            assert_eq!(refused(mr, &List::new(NOWHERE, 8), 8, 0), INVALID, "never built");
            works(mr, &list, pages.len());
        });
    });
}

/// NDK MR-5: from the first MDL's very byte, for Length bytes: not one before, not one behind.
#[test]
fn mr05_a_registration_has_its_first_and_its_last_byte_and_no_other() {
    in_every_mode(|mode| {
        for (from, length, inside) in
            [(0, 1, true), (776, 1, true), (0, 777, true), (-1, 1, false), (777, 1, false)]
        {
            let (client, server) = pair(mode);
            let (target, own) = (Pages::new(2), Pages::new(1));
            target.fill(|i| i as u8);
            let list = List::new(NOWHERE, 2000).over(&[target.page(1)]);
            let mr = mr(server.pd);
            assert_eq!(register(mr, list.0, 777, flag::ALLOW_REMOTE_READ).1, Status::SUCCESS);
            let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
            let at = NOWHERE.wrapping_add_signed(from);
            assert_eq!(
                client.read(1, &[own.sge(local, 0, length)], at, token(mr)),
                Status::SUCCESS
            );
            let expected = if inside { Status::SUCCESS } else { Status::REMOTE_RESOURCES };
            assert_eq!(client.one().1, expected, "{length} bytes from {from}");
            if inside {
                assert_eq!(own.bytes()[0], target.bytes()[PAGE + 0x123 + from as usize]);
            }
            client.end(&[own_mr]);
            server.end(&[mr]);
        }
    });
}

/// The bytes that a peer reads from scattered pages under an address where nothing is mapped.
fn scattered(mode: Mode, spoil: impl FnOnce(List)) {
    assert!(!is_mapped(NOWHERE) && !is_mapped(NOWHERE + 0x3000));
    let (client, server) = pair(mode);
    let pages = Pages::new(4);
    pages.fill(|i| (i / PAGE * 50 + i % 251) as u8);
    let order = [2, 0, 3];
    let length = 2 * PAGE + 0x200;
    let list = List::new(NOWHERE, length).over(&order.map(|page| pages.page(page)));
    let mr = mr(server.pd);
    assert_eq!(register(mr, list.0, length, flag::ALLOW_REMOTE_READ).1, Status::SUCCESS);
    spoil(list);
    let sink = Pages::new(3);
    let (sink_mr, local) = client.mr(&sink, flag::ALLOW_LOCAL_WRITE);
    let sge = sink.sge(local, 0, length as u32);
    assert_eq!(client.read(1, &[sge], NOWHERE, token(mr)), Status::SUCCESS);
    assert_eq!(client.one(), (1, Status::SUCCESS, 0));
    let all = pages.bytes();
    let byte = |i: usize| all[order[(i + 0x123) / PAGE] * PAGE + (i + 0x123) % PAGE];
    assert!((0..length).map(byte).eq(sink.bytes()[..length].iter().copied()));
    client.end(&[sink_mr]);
    server.end(&[mr]);
}

#[test]
fn mr06_the_address_is_an_index_that_is_never_followed() {
    in_every_mode(|mode| scattered(mode, drop));
}

/// NDK MR-7: byte i of the region is called VA + i by this side's lists, too.
#[test]
fn mr07_bytes_are_named_by_the_first_address() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (source, target) = (Pages::new(1), Pages::new(1));
        source.fill(|i| (i % 241) as u8);
        let list = List::new(NOWHERE, 2000).over(&[source.page(0)]);
        let mr = mr(client.pd);
        assert_eq!(register(mr, list.0, 2000, 0).1, Status::SUCCESS);
        let (target_mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_WRITE);
        let sge = crate::common::sge(NOWHERE + 100, 50, token(mr));
        let at = target.address();
        assert_eq!(client.write(1, &[sge], at, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert!(target.bytes()[..50] == source.bytes()[0x123 + 100..0x123 + 150]);
        client.end(&[mr]);
        server.end(&[target_mr]);
    });
}

/// NDK MR-8: a base of 0 is refused, and no byte is named by its offset from 0.
#[test]
fn mr08_there_are_no_zero_based_addresses() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let zero = List::new(0, PAGE).over(&[target.page(0)]);
        let mr = mr(server.pd);
        assert_eq!(refused(mr, &zero, 8, 0), INVALID);
        let (target_mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_READ);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(client.read(2, &[own.sge(local, 0, 8)], 0, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        client.end(&[own_mr]);
        server.end(&[mr, target_mr]);
    });
}

/// NDK MR-9: the list is overwritten and freed once the request is complete; a later read of it
/// would find nonsense.
#[test]
fn mr09_the_chain_is_not_needed_any_more_once_the_request_is_complete() {
    in_every_mode(|mode| {
        scattered(mode, |list| {
            let pages = transom_ndkpi::mdl::MmGetMdlPfnArray(list.0);
            unsafe { std::ptr::write_bytes(pages, 0xff, 3) };
        });
    });
}

#[test]
fn mr10_pieces_that_share_a_page_must_name_one_page() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let (chain, _next) = two_pieces(pages, NOWHERE + 0x800, 2);
            works(mr, &chain, 0xe00);
            let (chain, _next) = two_pieces(pages, NOWHERE + 0x800, 1);
            assert_eq!(refused(mr, &chain, 0xe00, 0), INVALID);
        });
    });
}

#[test]
fn mr11_resources_run_out_inline_or_in_the_callback() {
    in_every_mode(|mode| {
        let adapter = open_with(OpenOptions { max_registrations: 1, ..options(mode) });
        let pd = pd(adapter);
        let (first, second) = (mr(pd), mr(pd));
        let pages = Pages::new(1);
        let list = pages.mdl();
        let (returned, status) = register(first, list.0, 8, 0);
        assert_eq!(status, Status::SUCCESS);
        let natural = mode == Mode::Natural;
        assert_eq!(returned, if natural { 0 } else { PENDING });
        let (returned, status) = register(second, list.0, 8, 0);
        assert_eq!(status, Status::INSUFFICIENT_RESOURCES);
        assert_eq!(returned, if natural { status.0 } else { PENDING });
        assert_eq!(token(second), 0);
        assert_eq!(deregister(first).1, Status::SUCCESS);
        assert_eq!(register(second, list.0, 8, 0).1, Status::SUCCESS, "room again");
        close_all(&[first, second, pd]);
        close_adapter(adapter);
    });
}

/// Pages in the opposite order: one segment for each.
fn backwards(pages: &Pages) -> List {
    let count = pages.len() / PAGE;
    let all: Vec<_> = (0..count).rev().map(|page| pages.page(page)).collect();
    List::new(NOWHERE - NOWHERE % PAGE as u64, pages.len()).over(&all)
}

/// A Created region of a natural adapter, and the return of its registration, whose end is awaited.
fn ended(mr: Ptr, list: &List, length: usize) -> (i32, Status) {
    register(mr, list.0, length, flag::ALLOW_REMOTE_READ)
}

/// NDK 0.4, MR-11: a call at DISPATCH level does not wait for as many answers of the kernel as a
/// long list may need: it is PENDING, and complete on another thread. A short one is registered at
/// once.
#[test]
fn mr11_a_long_list_is_registered_behind_the_call() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (short, long) = (Pages::new(64), Pages::new(65));
        long.fill(|i| (i / PAGE) as u8);
        let natural = mode == Mode::Natural;
        let mr = mr(server.pd);
        let at_once = if natural { 0 } else { PENDING };
        assert_eq!(ended(mr, &backwards(&short), short.len()), (at_once, Status::SUCCESS));
        assert_eq!(deregister(mr).1, Status::SUCCESS);
        let list = backwards(&long);
        assert_eq!(ended(mr, &list, long.len()), (PENDING, Status::SUCCESS));
        // NDK MR-9: the list is not needed any more; NDK MR-17: the token serves.
        drop(list);
        let sink = Pages::new(1);
        let (sink_mr, local) = client.mr(&sink, flag::ALLOW_LOCAL_WRITE);
        let at = NOWHERE - NOWHERE % PAGE as u64 + 64 * PAGE as u64;
        long.fill(|i| (i / PAGE) as u8 + 1);
        assert_eq!(client.read(1, &[sink.sge(local, 0, 8)], at, token(mr)), Status::SUCCESS);
        assert_eq!(client.one(), (1, Status::SUCCESS, 0));
        assert_eq!(sink.bytes()[..8], [1; 8], "the first page is the last of the list");
        let (returned, status) = ended(mr, &backwards(&long), long.len());
        assert_eq!((returned, status), (Status::INVALID_DEVICE_STATE.0, status), "MR-18: inline");
        client.end(&[sink_mr]);
        server.end(&[mr]);
    });
}

/// A long list that cannot be registered: its end says why, and the region is as before.
#[test]
fn mr11_a_long_list_that_fails_leaves_the_region_free() {
    in_every_mode(|mode| {
        let adapter = open_with(OpenOptions { max_registrations: 1, ..options(mode) });
        let pd = pd(adapter);
        let [first, second] = [(); 2].map(|()| mr(pd));
        let pages = Pages::new(65);
        let mut hole: Vec<_> = (0..65).rev().map(|page| pages.page(page)).collect();
        hole[64] = std::ptr::with_exposed_provenance_mut((NOWHERE - 0x123) as usize);
        let list = List::new(NOWHERE - 0x123, pages.len()).over(&hole);
        assert_eq!(ended(first, &list, pages.len()), (PENDING, INVALID), "nothing is there");
        assert_eq!(token(first), 0);
        let good = backwards(&pages);
        assert_eq!(ended(first, &good, pages.len()), (PENDING, Status::SUCCESS));
        let out = Status::INSUFFICIENT_RESOURCES;
        assert_eq!(ended(second, &good, pages.len()), (PENDING, out));
        assert_eq!(token(second), 0);
        assert_eq!(deregister(first).1, Status::SUCCESS);
        assert_eq!(ended(second, &good, pages.len()), (PENDING, Status::SUCCESS));
        close_all(&[first, second, pd]);
        close_adapter(adapter);
    });
}

struct Chain {
    mr: Ptr,
    list: List,
    length: usize,
    returned: Cell<i32>,
    second: Cell<i32>,
}

unsafe extern "C" fn second_done(context: *mut std::ffi::c_void, status: i32) {
    unsafe { &*context.cast::<Chain>() }.second.set(status);
}

unsafe extern "C" fn register_another(context: *mut std::ffi::c_void, status: i32) {
    assert_eq!(Status(status), Status::SUCCESS);
    let chain = unsafe { &*context.cast::<Chain>() };
    let (mr, t) = (chain.mr, table::<MrDispatch>(chain.mr));
    let done = Some(second_done as _);
    chain.returned.set(unsafe { (t.register)(mr, chain.list.0, chain.length, 0, done, context) });
}

/// NDK 0.4: callable inside a callback, also on the thread that long registrations are made on; NDK
/// LT-7: a close waits for one that is under way.
#[test]
fn a_long_list_is_registered_inside_a_callback_and_closed_under_way() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let [first, second] = [(); 2].map(|()| mr(pd));
        let pages = Pages::new(65);
        let (list, length) = (backwards(&pages), pages.len());
        let (returned, done) = (Cell::default(), Cell::default());
        let chain = Chain { mr: second, list, length, returned, second: done };
        let t = table::<MrDispatch>(first);
        let context = (&raw const chain).cast_mut().cast();
        let list = backwards(&pages);
        let begun =
            unsafe { (t.register)(first, list.0, length, 0, Some(register_another), context) };
        assert_eq!(begun, PENDING);
        // The region that is being registered, and perhaps called back, ends with its close.
        let closed = match mode {
            Mode::Natural => Some(begin_close(first).1),
            _ => None,
        };
        assert_eq!(chain.returned.get(), PENDING);
        assert_eq!(Status(chain.second.get()), Status::SUCCESS);
        closed.unwrap_or_else(|| begin_close(first).1).get();
        close_all(&[second, pd]);
        close_adapter(adapter);
    });
}

struct Twice {
    mr: Ptr,
    list: List,
    length: usize,
    seen: Cell<[i32; 4]>,
    ended: Cell<i32>,
}

unsafe extern "C" fn registered(context: *mut std::ffi::c_void, status: i32) {
    unsafe { &*context.cast::<Twice>() }.ended.set(status);
}

unsafe extern "C" fn register_twice(context: *mut std::ffi::c_void, _status: i32) {
    let twice = unsafe { &*context.cast::<Twice>() };
    let (mr, list, length, t) =
        (twice.mr, twice.list.0, twice.length, table::<MrDispatch>(twice.mr));
    let done = Some(registered as _);
    unsafe {
        let first = (t.register)(mr, list, length, 0, done, context);
        let again = (t.register)(mr, list, 8, 0, done, context);
        let ended = (t.deregister)(mr, done, context);
        twice.seen.set([first, again, ended, (t.get_remote_token)(mr) as i32]);
    }
}

/// NDK MR-17, MR-18, DR-4: a region under registration is not registered, deregistered or named.
/// Asked on the provider's own thread, which cannot register it meanwhile; in the modes in which a
/// call waits there is no meanwhile.
#[test]
fn mr18_a_region_under_registration_is_neither_free_nor_registered() {
    let adapter = open(Mode::Natural);
    let pd = pd(adapter);
    let [first, second] = [(); 2].map(|()| mr(pd));
    let pages = Pages::new(65);
    let (list, length) = (backwards(&pages), pages.len());
    let (seen, ended) = (Cell::default(), Cell::default());
    let twice = Twice { mr: second, list, length, seen, ended };
    let (t, context) = (table::<MrDispatch>(first), (&raw const twice).cast_mut().cast());
    let list = backwards(&pages);
    let begun = unsafe { (t.register)(first, list.0, length, 0, Some(register_twice), context) };
    assert_eq!(begun, PENDING);
    let state = Status::INVALID_DEVICE_STATE.0;
    assert_eq!(twice.seen.get(), [PENDING, state, state, 0]);
    assert_eq!(Status(twice.ended.get()), Status::SUCCESS);
    assert_ne!(token(second), 0);
    assert_eq!(deregister(second).1, Status::SUCCESS);
    close_all(&[first, second, pd]);
    close_adapter(adapter);
}

/// NDK LT-15: a region that is closed leaves its place to another.
#[test]
fn mr11_a_closed_region_gives_its_place_back() {
    in_every_mode(|mode| {
        let adapter = open_with(OpenOptions { max_registrations: 1, ..options(mode) });
        let pd = pd(adapter);
        let pages = Pages::new(1);
        for _ in 0..3 {
            let mr = mr(pd);
            assert_eq!(register(mr, pages.mdl().0, 8, 0).1, Status::SUCCESS);
            close(mr);
        }
        close(pd);
        close_adapter(adapter);
    });
}

/// NDK MR-12, 11.9: what each flag lets a peer do. A refusal ends the connection, so each attempt
/// has its own.
#[test]
fn mr12_peers_can_do_what_the_flags_say() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let list = pages.mdl();
            for undefined in [0x10, 0x4, 0xc, 0x8000_0000] {
                assert_eq!(refused(mr, &list, 8, undefined), INVALID, "{undefined:#x}");
            }
        });
        for (flags, read, write) in [
            (flag::ALLOW_LOCAL_READ, false, false),
            (flag::ALLOW_LOCAL_WRITE, false, false),
            (flag::ALLOW_REMOTE_READ, true, false),
            (flag::ALLOW_REMOTE_WRITE, false, true),
            (flag::ALLOW_REMOTE_READ | flag::ALLOW_REMOTE_WRITE, true, true),
            (flag::RDMA_READ_SINK, false, false),
        ] {
            assert_eq!(peer_can(mode, flags, false), read, "{flags:#x} read");
            assert_eq!(peer_can(mode, flags, true), write, "{flags:#x} write");
        }
    });
}

/// Whether a peer's Read or Write works on memory registered so.
fn peer_can(mode: Mode, flags: u32, writes: bool) -> bool {
    let (client, server) = pair(mode);
    let (target, own) = (Pages::new(1), Pages::new(1));
    own.fill(|_| 7);
    let (target_mr, remote) = server.mr(&target, flags);
    let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
    let (sge, address) = (own.sge(local, 0, 64), target.address());
    let posted = match writes {
        true => client.write(1, &[sge], address, remote),
        false => client.read(1, &[sge], address, remote),
    };
    assert_eq!(posted, Status::SUCCESS);
    let status = client.one().1;
    let allowed = status == Status::SUCCESS;
    assert!(allowed || status == Status::REMOTE_RESOURCES);
    assert_eq!(target.bytes().contains(&7), writes && allowed);
    client.end(&[own_mr]);
    server.end(&[target_mr]);
    allowed
}

/// Whether memory registered so can be the sink of a Read, on an adapter that needs the flag or
/// not.
fn can_be_sink(mode: Mode, needed: bool, flags: u32) -> bool {
    let choice = OpenOptions { read_sink_needed: u8::from(needed), ..options(mode) };
    let (client, server) = pair_with(choice, options(mode));
    let (source, sink) = (Pages::new(1), Pages::new(1));
    let (source_mr, remote) = server.mr(&source, flag::ALLOW_REMOTE_READ);
    let (sink_mr, local) = client.mr(&sink, flags);
    let address = source.address();
    assert_eq!(client.read(1, &[sink.sge(local, 0, 8)], address, remote), Status::SUCCESS);
    let status = client.one().1;
    assert!([Status::SUCCESS, Status::ACCESS_VIOLATION].contains(&status));
    client.end(&[sink_mr]);
    server.end(&[source_mr]);
    status == Status::SUCCESS
}

#[test]
fn mr13_the_read_sink_flag_goes_with_any_other() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let list = pages.mdl();
            for others in [0, 1, 2, 3, 5, 7] {
                let flags = others | flag::RDMA_READ_SINK;
                assert_eq!(register(mr, list.0, 8, flags).1, Status::SUCCESS, "{flags:#x}");
                assert_eq!(deregister(mr).1, Status::SUCCESS);
            }
        });
    });
}

#[test]
fn mr14_an_adapter_that_needs_no_read_sink_flag_ignores_it() {
    in_every_mode(|mode| {
        assert!(can_be_sink(mode, false, flag::ALLOW_LOCAL_WRITE));
        assert!(can_be_sink(mode, false, flag::ALLOW_LOCAL_WRITE | flag::RDMA_READ_SINK));
    });
}

#[test]
fn mr15_an_adapter_that_needs_the_read_sink_flag_refuses_a_sink_without() {
    in_every_mode(|mode| {
        assert!(!can_be_sink(mode, true, flag::ALLOW_LOCAL_WRITE));
        assert!(can_be_sink(mode, true, flag::ALLOW_LOCAL_WRITE | flag::RDMA_READ_SINK));
    });
}

/// NDK MR-16: for the answers to this side's own Reads, and for nothing else.
#[test]
fn mr16_the_read_sink_flag_alone_is_for_reads_only() {
    in_every_mode(|mode| {
        assert!(can_be_sink(mode, true, flag::RDMA_READ_SINK));
        assert!(!can_be_sink(mode, false, flag::RDMA_READ_SINK), "where it means nothing");
        assert!(!can_receive(mode, flag::RDMA_READ_SINK));
        assert!(!peer_can(mode, flag::RDMA_READ_SINK, true));
    });
}

/// Whether a message can be received into memory registered so, on an adapter that needs the flag.
fn can_receive(mode: Mode, flags: u32) -> bool {
    let choice = OpenOptions { read_sink_needed: 1, ..options(mode) };
    let (client, server) = pair_with(options(mode), choice);
    let (from, to) = (Pages::new(1), Pages::new(1));
    from.fill(|i| i as u8);
    let (to_mr, to_token) = server.mr(&to, flags);
    // NDK MR-20: to be sent, nothing is needed.
    let (from_mr, from_token) = client.mr(&from, flag::ALLOW_LOCAL_READ);
    assert_eq!(server.receive(9, &[to.sge(to_token, 16, 64)]), Status::SUCCESS);
    assert_eq!(client.send(1, &[from.sge(from_token, 0, 64)], 0), Status::SUCCESS);
    let (context, status, bytes) = server.one();
    assert_eq!(context, 9);
    let right = status == Status::SUCCESS;
    if right {
        assert_eq!(bytes, 64);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert!(to.bytes()[16..80] == from.bytes()[..64]);
    } else {
        assert_eq!(status, Status::ACCESS_VIOLATION);
        assert!(to.bytes().iter().all(|&byte| byte == 0));
    }
    client.end(&[from_mr]);
    server.end(&[to_mr]);
    right
}

/// NDK MR-17: from the completion on, whichever way it comes; and not before, nor after a failure.
#[test]
fn mr17_tokens_are_valid_once_the_registration_is_complete() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let mr = mr(server.pd);
        assert_eq!(token(mr), 0);
        assert_eq!(refused(mr, &List::new(NOWHERE, 8), 8, 0), INVALID);
        let list = target.mdl();
        assert_eq!(register(mr, list.0, 8, flag::ALLOW_REMOTE_READ).1, Status::SUCCESS);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let at = target.address();
        assert_eq!(client.read(1, &[own.sge(local, 0, 8)], at, token(mr)), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        client.end(&[own_mr]);
        server.end(&[mr]);
    });
}

#[test]
fn mr18_one_registration_at_a_time() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            let list = pages.mdl();
            assert_eq!(register(mr, list.0, 8, 0).1, Status::SUCCESS);
            let before = token(mr);
            let again = register(mr, list.0, 8, flag::ALLOW_LOCAL_WRITE);
            assert_eq!(again.0, Status::INVALID_DEVICE_STATE.0);
            assert_eq!(token(mr), before, "nothing changed");
            assert_eq!(deregister(mr).1, Status::SUCCESS);
            assert_eq!(register(mr, list.0, 8, 0).1, Status::SUCCESS, "registered again");
        });
    });
}

/// NDK MR-19: each registration of the same bytes has rights of its own.
#[test]
fn mr19_memory_is_registered_many_times_with_different_rights() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let all = [0, flag::ALLOW_REMOTE_READ, flag::ALLOW_REMOTE_WRITE];
        let [none, read, write] = all.map(|flags| server.mr(&target, flags));
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let (sge, at) = (own.sge(local, 0, 8), target.address());
        assert_eq!(client.read(1, &[sge], at, read.1), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert_eq!(client.write(2, &[sge], at, write.1), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        assert_eq!(client.read(3, &[sge], at, none.1), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        client.end(&[own_mr]);
        server.end(&[none.0, read.0, write.0]);
    });
}

#[test]
fn mr20_receives_need_local_write_and_sources_nothing() {
    in_every_mode(|mode| {
        assert!(can_receive(mode, flag::ALLOW_LOCAL_WRITE));
        assert!(!can_receive(mode, 0));
        let (client, server) = pair(mode);
        let (from, to) = (Pages::new(1), Pages::new(1));
        let (to_mr, remote) = server.mr(&to, flag::ALLOW_REMOTE_WRITE);
        let (from_mr, local) = client.mr(&from, flag::ALLOW_LOCAL_READ);
        let at = to.address();
        assert_eq!(client.write(1, &[from.sge(local, 0, 64)], at, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        client.end(&[from_mr]);
        server.end(&[to_mr]);
    });
}

// ---- NDK 11.2 ----

#[test]
fn dr01_each_kind_of_region_has_its_own_end() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, fast) = (Pages::new(1), frmr(server.pd, 16, true));
        let (mr, _) = server.mr(&target, 0);
        assert_eq!(deregister(fast).0, Status::INVALID_DEVICE_REQUEST.0);
        assert_eq!(server.invalidate(mr), Status::INVALID_DEVICE_REQUEST);
        client.end(&[]);
        server.end(&[mr, fast]);
    });
}

#[test]
fn dr02_after_deregistration_the_token_is_dead() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (target, own) = (Pages::new(1), Pages::new(1));
        let (target_mr, remote) = server.mr(&target, flag::ALLOW_REMOTE_WRITE);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        assert_eq!(deregister(target_mr).1, Status::SUCCESS);
        own.fill(|_| 1);
        let address = target.address();
        assert_eq!(client.write(1, &[own.sge(local, 0, 8)], address, remote), Status::SUCCESS);
        assert_eq!(client.one().1, Status::REMOTE_RESOURCES);
        assert!(target.bytes().iter().all(|&byte| byte == 0));
        client.end(&[own_mr]);
        server.end(&[target_mr]);
    });
}

#[test]
fn dr03_a_bound_window_keeps_its_region() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let target = Pages::new(1);
        let (mr, before) = server.mr(&target, 0);
        let window = mw(server.pd);
        let base = target.address();
        assert_eq!(server.bind(mr, window, base, 8, op::ALLOW_REMOTE_READ), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        assert_eq!(deregister(mr).0, Status::DEVICE_BUSY.0, "inline");
        assert_eq!(token(mr), before, "nothing changed");
        assert_eq!(server.invalidate(window), Status::SUCCESS);
        assert_eq!(server.one().1, Status::SUCCESS);
        assert_eq!(deregister(mr).1, Status::SUCCESS);
        client.end(&[]);
        server.end(&[window, mr]);
    });
}

#[test]
fn dr04_what_is_not_registered_cannot_be_deregistered() {
    in_every_mode(|mode| {
        unregistered(mode, |mr, pages| {
            assert_eq!(deregister(mr).0, Status::INVALID_DEVICE_STATE.0);
            works(mr, &pages.mdl(), 8);
            assert_eq!(deregister(mr).0, Status::INVALID_DEVICE_STATE.0, "twice");
        });
    });
}

#[test]
fn dr05_requests_that_still_use_it_fail() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let own = Pages::new(1);
        let (own_mr, local) = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let (from_mr, from) = server.mr(&own, 0);
        assert_eq!(client.receive(1, &[own.sge(local, 0, 8)]), Status::SUCCESS);
        assert_eq!(deregister(own_mr).1, Status::SUCCESS);
        assert_eq!(server.send(2, &[own.sge(from, 64, 8)], 0), Status::SUCCESS);
        assert_eq!(client.one(), (1, Status::ACCESS_VIOLATION, 0));
        client.end(&[own_mr]);
        server.end(&[from_mr]);
    });
}
