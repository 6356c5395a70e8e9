//! Logical address mappings and the privileged token (NDK 11.3, 11.4): one test per rule, each in
//! every mode.

use crate::common::fixture::*;
use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::mr as flag;
use transom_ndkpi::{OpenOptions, Status};

// ---- NDK 11.3 ----

#[test]
fn lam01_a_chain_is_judged_as_for_a_registration() {
    alone(|adapter, pages| {
        let next = |at| List::new(at, 0x600).over(&[pages.page(2)]);
        let chain = |next: &List| List::new(NOWHERE, 0x800).over(&[pages.page(2)]).then(next);
        let (right, wrong) = (next(NOWHERE + 0x800), next(NOWHERE + 0x801));
        assert_eq!(build_lam(adapter, &chain(&wrong), 0xe00, 1024).0, INVALID);
        assert_eq!(build_lam(adapter, &chain(&right), 0xe01, 1024).0, INVALID);
        assert_eq!(build_lam(adapter, &chain(&right), 0, 1024).0, INVALID);
        lam(adapter, &chain(&right), 0xe00).release(adapter);
    });
}

#[test]
fn lam02_one_entry_for_every_page_spanned() {
    alone(|adapter, pages| {
        let list = scattered(pages);
        for (length, count) in [(1, 1), (PAGE - 0x123, 1), (PAGE - 0x122, 2), (2 * PAGE, 3)] {
            let mut lam = lam(adapter, &list, length);
            assert_eq!((lam.size as usize, lam.pages().len()), (16 + 8 * count, count));
            lam.release(adapter);
        }
    });
}

#[test]
fn lam03_too_little_room_is_answered_with_the_size() {
    alone(|adapter, pages| {
        let list = scattered(pages);
        for room in [0, 16, 39] {
            let (status, asked) = build_lam(adapter, &list, 2 * PAGE, room);
            assert_eq!((status, asked.size), (Status::BUFFER_TOO_SMALL, 40), "{room}");
            assert_eq!(asked.offset, u32::MAX, "and nothing else");
        }
        let (status, mut made) = build_lam(adapter, &list, 2 * PAGE, 48);
        assert_eq!((status, made.size), (Status::SUCCESS, 40), "bytes written");
        made.release(adapter);
    });
}

#[test]
fn lam04_entries_are_pages_in_the_order_of_the_region() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        assert!(f.lam.pages().iter().all(|page| page % PAGE as u64 == 0));
        // The order of the entries is the order of the bytes, also if the list is turned round.
        let backwards: Vec<u64> = f.lam.pages().iter().rev().copied().collect();
        let place = (0, f.target.len(), BASE);
        let posted = f.server.fast_register(f.fast, &backwards, place, R);
        assert_eq!((posted, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        for page in 0..4 {
            let at = BASE + (page * PAGE) as u64;
            assert_eq!(f.read(at, 64, token(f.fast)), Status::SUCCESS);
            let from = (3 - page) * PAGE;
            assert!(f.own.bytes()[..64] == f.target.bytes()[from..from + 64]);
        }
        f.end(&[]);
    });
}

#[test]
fn lam05_the_offset_is_that_of_the_first_byte_in_its_page() {
    alone(|adapter, pages| {
        let mut one = lam(adapter, &scattered(pages), 2 * PAGE);
        let mut other = lam(adapter, &pages.mdl(), PAGE);
        assert_eq!((one.offset, other.offset), (0x123, 0));
        one.release(adapter);
        other.release(adapter);
    });
}

/// NDK LAM-7, LAM-9: what failed left nothing behind, what was released is gone; the MDL is as it
/// was.
#[test]
fn lam07_a_failure_maps_nothing() {
    alone(|adapter, pages| {
        let list = scattered(pages);
        let mut before = lam(adapter, &list, 2 * PAGE);
        assert_eq!(build_lam(adapter, &list, 2 * PAGE, 16).0, Status::BUFFER_TOO_SMALL);
        assert_eq!(build_lam(adapter, &list, 3 * PAGE, 1024).0, INVALID);
        let mut after = lam(adapter, &list, 2 * PAGE);
        assert_eq!(after.pages()[0], before.pages()[0] + 4 * PAGE as u64, "the next in a row");
        before.release(adapter);
        after.release(adapter);
    });
}

/// NDK LAM-8: the pages stay; the list that described them may go once the request is complete.
#[test]
fn lam08_the_chain_is_not_needed_any_more_once_the_request_is_complete() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode); // its list is gone already
        let token = f.register(R);
        assert_eq!(f.read(BASE, 64, token), Status::SUCCESS);
        f.end(&[]);
    });
}

#[test]
fn lam09_a_released_mapping_is_no_address_any_more() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let mut gone = lam(f.server.adapter, &f.target.mdl(), PAGE);
        gone.release(f.server.adapter);
        gone.release(f.server.adapter);
        let place = (0, PAGE, BASE);
        assert_eq!(f.server.fast_register(f.fast, gone.pages(), place, R), INVALID);
        let token = privileged(f.server.pd);
        assert_eq!(f.server.send(1, &[sge(gone.first(), 8, token)], 0), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::ACCESS_VIOLATION);
        f.end(&[]);
    });
}

/// NDK LAM-9: also for a request that was posted before.
#[test]
fn lam09_nothing_goes_through_a_released_mapping() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let mut used = lam(f.server.adapter, &f.target.mdl(), PAGE);
        let before = f.target.bytes();
        let entry = sge(used.first(), 8, privileged(f.server.pd));
        assert_eq!(f.server.receive(1, &[entry]), Status::SUCCESS);
        used.release(f.server.adapter);
        f.own.fill(|_| 0xee);
        assert_eq!(f.client.send(2, &[f.own.sge(f.own_mr.1, 0, 8)], 0), Status::SUCCESS);
        assert_eq!(f.server.one(), (1, Status::ACCESS_VIOLATION, 0));
        assert!(f.target.bytes() == before);
        f.end(&[]);
    });
}

/// NDK LAM-10, PT-6: every domain of the adapter can use a mapping, each by its own token.
#[test]
fn lam10_a_mapping_belongs_to_the_adapter() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (other_pd, own_pd) = (pd(f.server.adapter), f.server.pd);
        let other_cq = cq(f.server.adapter);
        let other_qp = qp(other_pd, other_cq, 1);
        for (domain, queue_pair, queue) in
            [(own_pd, f.server.qp, f.server.cq), (other_pd, other_qp, other_cq)]
        {
            // A receive is judged when a message comes; both domains resolve the address.
            let side = Side { qp: queue_pair, cq: queue, ..f.server };
            let entry = sge(f.lam.first(), 8, privileged(domain));
            assert_eq!(side.receive(1, &[entry]), Status::SUCCESS);
        }
        assert_eq!(f.client.send(2, &[f.own.sge(f.own_mr.1, 0, 8)], 0), Status::SUCCESS);
        assert_eq!(f.server.one(), (1, Status::SUCCESS, 8));
        unsafe { (table::<QpDispatch>(other_qp).flush)(other_qp) };
        f.end(&[other_qp, other_cq, other_pd]);
    });
}

#[test]
fn lam11_without_a_completion_routine_it_completes_inline() {
    alone(|adapter, pages| {
        let (t, list) = (table::<AdapterDispatch>(adapter), pages.mdl());
        let mut made = Lam { words: vec![0; 8], size: 64, offset: 0 };
        let (none, at) = (std::ptr::null_mut(), made.words.as_mut_ptr().cast());
        let (size, fbo) = (&raw mut made.size, &raw mut made.offset);
        let status = unsafe { (t.build_lam)(adapter, list.0, PAGE, None, none, at, size, fbo) };
        assert_eq!(Status(status), Status::SUCCESS);
        made.release(adapter);
    });
}

#[test]
fn lam12_logical_addresses_are_no_addresses_of_the_program() {
    alone(|adapter, pages| {
        let mut all: Vec<Lam> = (0..3).map(|_| lam(adapter, &pages.mdl(), PAGE)).collect();
        let addresses: Vec<u64> = all.iter().flat_map(|lam| lam.pages().to_vec()).collect();
        assert!(addresses.iter().all(|&a| a != 0 && (a as i64) > 0 && !is_mapped(a)));
        assert!(addresses.windows(2).all(|two| two[0] + (PAGE as u64) < two[1]), "apart");
        all.iter_mut().for_each(|lam| lam.release(adapter));
    });
}

/// NDK LT-17: what was never released ends with the adapter.
#[test]
fn lt17_the_adapter_closes_over_mappings() {
    alone(|adapter, pages| drop(lam(adapter, &pages.mdl(), PAGE)));
}

// ---- NDK 11.4 ----

/// NDK PT-1, PT-3: to send from, to receive into, to write from; by the logical address beside it.
#[test]
fn pt01_the_privileged_token_makes_logical_addresses_usable() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let alias = privileged(f.server.pd);
        let at = f.lam.first() + PAGE as u64 + 10;
        assert_eq!(f.client.receive(1, &[f.own.sge(f.own_mr.1, 0, 64)]), Status::SUCCESS);
        assert_eq!(f.server.send(2, &[sge(at, 64, alias)], 0), Status::SUCCESS);
        assert_eq!(f.client.one(), (1, Status::SUCCESS, 64));
        assert_eq!(f.server.one().1, Status::SUCCESS);
        assert!(f.own.bytes()[..64] == f.target.bytes()[PAGE + 10..PAGE + 74]);
        f.own.fill(|_| 0x5a);
        assert_eq!(f.server.receive(3, &[sge(at, 64, alias)]), Status::SUCCESS);
        assert_eq!(f.client.send(4, &[f.own.sge(f.own_mr.1, 0, 64)], 0), Status::SUCCESS);
        assert_eq!(f.server.one(), (3, Status::SUCCESS, 64));
        assert_eq!(f.target.bytes()[PAGE + 10..PAGE + 74], [0x5a; 64]);
        f.end(&[]);
    });
}

#[test]
fn pt02_a_peer_that_presents_the_privileged_token_is_refused() {
    in_every_mode(|mode| {
        for writes in [false, true] {
            let f = Fixture::new(mode);
            let alias = privileged(f.server.pd);
            // In use, so that there is a region behind it.
            assert_eq!(f.server.receive(1, &[sge(f.lam.first(), 8, alias)]), Status::SUCCESS);
            let status = match writes {
                true => f.write(f.lam.first(), 8, alias),
                false => f.read(f.lam.first(), 8, alias),
            };
            assert_eq!(status, Status::REMOTE_RESOURCES);
            assert_eq!(f.server.one().1, Status::CANCELLED, "the connection is over");
            f.end(&[]);
        }
    });
}

/// NDK PT-3: with the privileged token a virtual address names nothing, with any other a logical
/// one does not.
#[test]
fn pt03_each_kind_of_token_has_its_own_addresses() {
    in_every_mode(|mode| {
        for logical in [false, true] {
            let f = Fixture::new(mode);
            let (mr, local) = f.server.mr(&f.target, 0);
            let entry = match logical {
                true => sge(f.lam.first(), 8, local),
                false => f.target.sge(privileged(f.server.pd), 0, 8),
            };
            assert_eq!(f.server.send(1, &[entry], 0), Status::SUCCESS);
            assert_eq!(f.server.one().1, Status::ACCESS_VIOLATION);
            f.end(&[mr]);
        }
    });
}

/// NDK PT-4: an entry may span pages whose logical addresses follow each other, and never leaves
/// its mapping.
#[test]
fn pt04_an_entry_may_span_consecutive_pages_of_one_mapping() {
    in_every_mode(|mode| {
        for (length, right) in [(4 * PAGE as u32, true), (4 * PAGE as u32 + 1, false)] {
            let f = Fixture::new(mode);
            let sink = Pages::new(5);
            let (sink_mr, local) = f.client.mr(&sink, flag::ALLOW_LOCAL_WRITE);
            let whole = sink.sge(local, 0, 5 * PAGE as u32);
            assert_eq!(f.client.receive(1, &[whole]), Status::SUCCESS);
            let entry = sge(f.lam.first(), length, privileged(f.server.pd));
            assert_eq!(f.server.send(2, &[entry], 0), Status::SUCCESS);
            let status = f.server.one().1;
            if right {
                assert_eq!(status, Status::SUCCESS);
                assert!(sink.bytes()[..4 * PAGE] == f.target.bytes());
            } else {
                assert_eq!(status, Status::ACCESS_VIOLATION);
            }
            let Fixture { client, own_mr, lam: mut mapping, server, fast, .. } = f;
            client.end(&[sink_mr, own_mr.0]);
            mapping.release(server.adapter);
            server.end(&[fast]);
        }
    });
}

/// NDK LAM-5, PT-3, FR-8: the first byte of a mapping may lie inside its page, and those after it
/// in pages of any order; the privileged token and a fast registration name the same bytes, and
/// none before them.
#[test]
fn a_mapping_may_begin_inside_a_page() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let mut mapping = lam(f.server.adapter, &scattered(&f.target), 2 * PAGE);
        let offset = mapping.offset as usize;
        assert_ne!(offset, 0);
        let base = BASE + offset as u64;
        let place = (offset as u32, 2 * PAGE, base);
        let posted = f.server.fast_register(f.fast, mapping.pages(), place, R);
        assert_eq!(posted, Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::SUCCESS);
        let byte = |at: usize| f.target.bytes()[[2, 0, 3][at / PAGE] * PAGE + at % PAGE];
        // At its beginning, across the end of a page, at its end.
        for from in [0, PAGE - offset - 4, 2 * PAGE - 8] {
            let expected: Vec<u8> = (from..from + 8).map(|at| byte(offset + at)).collect();
            let at = from as u64;
            assert_eq!(f.read(base + at, 8, token(f.fast)), Status::SUCCESS);
            assert!(f.own.bytes()[..8] == expected, "fast registration, {from}");
            f.own.fill(|_| 0);
            assert_eq!(f.client.receive(1, &[f.own.sge(f.own_mr.1, 0, 8)]), Status::SUCCESS);
            let source = sge(mapping.first() + at, 8, privileged(f.server.pd));
            assert_eq!(f.server.send(2, &[source], 0), Status::SUCCESS);
            assert_eq!((f.client.one().1, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
            assert!(f.own.bytes()[..8] == expected, "privileged token, {from}");
        }
        let before = sge(mapping.first() - 1, 8, privileged(f.server.pd));
        assert_eq!(f.server.send(2, &[before], 0), Status::SUCCESS);
        assert_eq!(f.server.one().1, Status::ACCESS_VIOLATION);
        mapping.release(f.server.adapter);
        f.end(&[]);
    });
}

#[test]
fn pt05_a_read_sink_only_where_sinks_need_no_mark() {
    in_every_mode(|mode| {
        for needed in [false, true] {
            let choice = OpenOptions { read_sink_needed: u8::from(needed), ..options(mode) };
            let f = Fixture::with(options(mode), choice);
            let (source_mr, remote) = f.client.mr(&f.own, flag::ALLOW_REMOTE_READ);
            let entry = sge(f.lam.first(), 8, privileged(f.server.pd));
            let at = f.own.address();
            assert_eq!(f.server.read(1, &[entry], at, remote), Status::SUCCESS);
            let expected = if needed { Status::ACCESS_VIOLATION } else { Status::SUCCESS };
            assert_eq!(f.server.one().1, expected);
            let closing = begin_close(source_mr).1;
            f.end(&[]);
            closing.get();
        }
    });
}

#[test]
fn pt06_every_domain_has_its_own_value() {
    alone(|adapter, _| {
        let (one, other) = (pd(adapter), pd(adapter));
        assert_eq!(privileged(one), privileged(one));
        assert_ne!(privileged(one), privileged(other));
        close_all(&[one, other]);
    });
}
