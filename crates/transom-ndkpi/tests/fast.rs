//! Logical address mappings, the privileged token, fast registration (NDK 11.3 to 11.5): one test
//! per rule, each in every mode.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{Mode, OpenOptions, Status};

const R: u32 = op::ALLOW_REMOTE_READ;
const W: u32 = op::ALLOW_REMOTE_WRITE;
const L: u32 = op::ALLOW_LOCAL_WRITE;
const INVALID: Status = Status::INVALID_PARAMETER;
/// The address of byte 0 of what the tests register: no address of the memory itself.
const BASE: u64 = 0x7700_0000_0000;

/// Scattered pages under an address where nothing is mapped.
fn scattered(pages: &Pages) -> List {
    assert!(!is_mapped(NOWHERE));
    List::new(NOWHERE, 2 * PAGE).over(&[2, 0, 3].map(|page| pages.page(page)))
}

/// An adapter alone.
fn alone(mode: Mode, test: impl FnOnce(Ptr, &Pages)) {
    let adapter = open(mode);
    let pages = Pages::new(4);
    test(adapter, &pages);
    close_adapter(adapter);
}

/// A connected pair; the server has a region for fast registration, a mapping of its pages, and
/// the client some memory.
struct Fixture {
    client: Side,
    server: Side,
    own: Pages,
    own_mr: (Ptr, u32),
    target: Pages,
    lam: Lam,
    fast: Ptr,
}

impl Fixture {
    fn new(mode: Mode) -> Fixture {
        Fixture::with(options(mode), options(mode))
    }
    fn with(client: OpenOptions, server: OpenOptions) -> Fixture {
        let (client, server) = pair_with(client, server);
        let (target, own) = (Pages::new(4), Pages::new(1));
        target.fill(|i| (i / PAGE * 50 + i % 199) as u8);
        let own_mr = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let lam = lam(server.adapter, &target.mdl(), target.len());
        let fast = frmr(server.pd, 16, true);
        Fixture { client, server, own, own_mr, target, lam, fast }
    }
    /// All pages, from the first byte on, at BASE.
    fn register(&self, flags: u32) -> u32 {
        let place = (0, self.target.len(), BASE);
        let posted = self.server.fast_register(self.fast, self.lam.pages(), place, flags);
        assert_eq!(posted, Status::SUCCESS);
        let result = self.server.results(1)[0];
        assert_eq!((result.request_context.addr(), Status(result.status)), (0xfa, Status::SUCCESS));
        assert_eq!(result.operation, 4, "NdkOperationTypeFastRegister");
        token(self.fast)
    }
    fn invalidate(&self) {
        assert_eq!(self.server.invalidate(self.fast), Status::SUCCESS);
        assert_eq!(self.server.one(), (0x1f, Status::SUCCESS, 0));
    }
    fn read(&self, at: u64, length: u32, token: u32) -> Status {
        let sge = self.own.sge(self.own_mr.1, 0, length);
        assert_eq!(self.client.read(1, &[sge], at, token), Status::SUCCESS);
        self.client.one().1
    }
    fn write(&self, at: u64, length: u32, token: u32) -> Status {
        let sge = self.own.sge(self.own_mr.1, 0, length);
        assert_eq!(self.client.write(1, &[sge], at, token), Status::SUCCESS);
        self.client.one().1
    }
    fn end(mut self, extra: &[Ptr]) {
        self.client.end(&[self.own_mr.0]);
        self.lam.release(self.server.adapter);
        self.server.end(&[extra, &[self.fast]].concat());
    }
}

// ---- NDK 11.3 ----

transom_rules::over_both_paths!(path_holds());

#[test]
fn lam01_a_chain_is_judged_as_for_a_registration() {
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let next = |at| List::new(at, 0x600).over(&[pages.page(2)]);
            let chain = |next: &List| List::new(NOWHERE, 0x800).over(&[pages.page(2)]).then(next);
            let (right, wrong) = (next(NOWHERE + 0x800), next(NOWHERE + 0x801));
            assert_eq!(build_lam(adapter, &chain(&wrong), 0xe00, 1024).0, INVALID);
            assert_eq!(build_lam(adapter, &chain(&right), 0xe01, 1024).0, INVALID);
            assert_eq!(build_lam(adapter, &chain(&right), 0, 1024).0, INVALID);
            lam(adapter, &chain(&right), 0xe00).release(adapter);
        });
    });
}

#[test]
fn lam02_one_entry_for_every_page_spanned() {
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let list = scattered(pages);
            for (length, count) in [(1, 1), (PAGE - 0x123, 1), (PAGE - 0x122, 2), (2 * PAGE, 3)] {
                let mut lam = lam(adapter, &list, length);
                assert_eq!((lam.size as usize, lam.pages().len()), (16 + 8 * count, count));
                lam.release(adapter);
            }
        });
    });
}

#[test]
fn lam03_too_little_room_is_answered_with_the_size() {
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
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
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let mut one = lam(adapter, &scattered(pages), 2 * PAGE);
            let mut other = lam(adapter, &pages.mdl(), PAGE);
            assert_eq!((one.offset, other.offset), (0x123, 0));
            one.release(adapter);
            other.release(adapter);
        });
    });
}

/// LAM-7, LAM-9: what failed left nothing behind, what was released is gone; the MDL is as it was.
#[test]
fn lam07_a_failure_maps_nothing() {
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let list = scattered(pages);
            let mut before = lam(adapter, &list, 2 * PAGE);
            assert_eq!(build_lam(adapter, &list, 2 * PAGE, 16).0, Status::BUFFER_TOO_SMALL);
            assert_eq!(build_lam(adapter, &list, 3 * PAGE, 1024).0, INVALID);
            let mut after = lam(adapter, &list, 2 * PAGE);
            assert_eq!(after.pages()[0], before.pages()[0] + 4 * PAGE as u64, "the next in a row");
            before.release(adapter);
            after.release(adapter);
        });
    });
}

/// LAM-8: the pages stay; the list that described them may go once the request is complete.
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

/// LAM-9: also for a request that was posted before.
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

/// LAM-10, PT-6: every domain of the adapter can use a mapping, each by its own token.
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
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let (t, list) = (table::<AdapterDispatch>(adapter), pages.mdl());
            let mut made = Lam { words: vec![0; 8], size: 64, offset: 0 };
            let (none, at) = (std::ptr::null_mut(), made.words.as_mut_ptr().cast());
            let (size, fbo) = (&raw mut made.size, &raw mut made.offset);
            let status = unsafe { (t.build_lam)(adapter, list.0, PAGE, None, none, at, size, fbo) };
            assert_eq!(Status(status), Status::SUCCESS);
            made.release(adapter);
        });
    });
}

#[test]
fn lam12_logical_addresses_are_no_addresses_of_the_program() {
    in_every_mode(|mode| {
        alone(mode, |adapter, pages| {
            let mut all: Vec<Lam> = (0..3).map(|_| lam(adapter, &pages.mdl(), PAGE)).collect();
            let addresses: Vec<u64> = all.iter().flat_map(|lam| lam.pages().to_vec()).collect();
            assert!(addresses.iter().all(|&a| a != 0 && (a as i64) > 0 && !is_mapped(a)));
            assert!(addresses.windows(2).all(|two| two[0] + (PAGE as u64) < two[1]), "apart");
            all.iter_mut().for_each(|lam| lam.release(adapter));
        });
    });
}

/// LT-17: what was never released ends with the adapter.
#[test]
fn lt17_the_adapter_closes_over_mappings() {
    in_every_mode(|mode| alone(mode, |adapter, pages| drop(lam(adapter, &pages.mdl(), PAGE))));
}

// ---- NDK 11.4 ----

/// PT-1, PT-3: to send from, to receive into, to write from; by the logical address beside it.
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

/// PT-3: with the privileged token a virtual address names nothing, with any other a logical one
/// does not.
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

/// PT-4: an entry may span pages whose logical addresses follow each other, and never leaves its
/// mapping.
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

#[test]
fn pt05_a_read_sink_only_where_sinks_need_no_mark() {
    in_every_mode(|mode| {
        for needed in [false, true] {
            let choice = OpenOptions { read_sink_needed: u8::from(needed), ..options(mode) };
            let f = Fixture::with(options(mode), choice);
            let (source_mr, remote) = f.client.mr(&f.own, flag::ALLOW_REMOTE_READ);
            let entry = sge(f.lam.first(), 8, privileged(f.server.pd));
            let at = f.own.sge(0, 0, 0).address;
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
    in_every_mode(|mode| {
        alone(mode, |adapter, _| {
            let (one, other) = (pd(adapter), pd(adapter));
            assert_eq!(privileged(one), privileged(one));
            assert_ne!(privileged(one), privileged(other));
            close_all(&[one, other]);
        });
    });
}

// ---- NDK 11.5 ----

#[test]
fn fr01_only_a_region_made_for_it_is_fast_registered() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (normal, raw) = (mr(f.server.pd), mr_of(f.server.pd, true));
        assert_eq!(initialize(normal, 16, true).0, Status::INVALID_DEVICE_REQUEST.0);
        let place = (0, PAGE, BASE);
        let on = |mr| f.server.fast_register(mr, f.lam.pages(), place, R);
        assert_eq!(on(normal), Status::INVALID_DEVICE_REQUEST);
        assert_eq!(on(raw), Status::INVALID_DEVICE_STATE, "not initialised");
        f.end(&[normal, raw]);
    });
}

#[test]
fn fr02_page_counts_have_a_limit_of_at_least_16() {
    in_every_mode(|mode| {
        alone(mode, |adapter, _| {
            let pd = pd(adapter);
            let mr = mr_of(pd, true);
            assert_eq!(initialize(mr, u32::MAX, true).0, Status::IMPLEMENTATION_LIMIT.0);
            assert_eq!(initialize(mr, 0, true).0, INVALID.0);
            assert_eq!(token(mr), 0);
            for pages in [1, 16, 512, 4096] {
                assert_eq!(initialize(mr, pages, true).1, Status::SUCCESS);
            }
            close_all(&[mr, pd]);
        });
    });
}

#[test]
fn fr03_remote_rights_are_for_regions_initialised_for_them() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let private = frmr(f.server.pd, 16, false);
        let place = (0, PAGE, BASE);
        let ask = |flags| f.server.fast_register(private, &f.lam.pages()[..1], place, flags);
        for flags in [R, W, R | W] {
            assert_eq!(ask(flags), Status::ACCESS_VIOLATION, "{flags:#x}");
        }
        assert_eq!((ask(L), f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(f.read(BASE, 8, token(private)), Status::REMOTE_RESOURCES);
        f.end(&[private]);
    });
}

#[test]
fn fr04_a_region_is_initialised_again_while_it_is_free() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let before = f.register(R);
        assert_eq!(initialize(f.fast, 2, true).0, Status::INVALID_DEVICE_STATE.0, "in use");
        f.invalidate();
        assert_eq!(initialize(f.fast, 2, true).1, Status::SUCCESS);
        assert_eq!(token(f.fast), before);
        let place = (0, PAGE, BASE);
        let posted = f.server.fast_register(f.fast, f.lam.pages(), place, R);
        assert_eq!(posted, INVALID, "four pages, where two are allowed now");
        f.end(&[]);
    });
}

#[test]
fn fr05_tokens_and_requests_follow_the_initialisation() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let raw = mr_of(f.server.pd, true);
        assert_eq!(token(raw), 0);
        assert_eq!(initialize(raw, 16, true).1, Status::SUCCESS);
        assert_ne!(token(raw), 0);
        assert_eq!(f.read(BASE, 8, token(raw)), Status::REMOTE_RESOURCES, "nothing is open yet");
        f.end(&[raw]);
    });
}

#[test]
fn fr06_it_needs_a_connected_queue_pair() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let idle = qp(f.server.pd, f.server.cq, 1);
        let side = Side { qp: idle, ..f.server };
        let posted = side.fast_register(f.fast, f.lam.pages(), (0, PAGE, BASE), R);
        assert_eq!(posted, Status::CONNECTION_INVALID);
        f.end(&[idle]);
    });
}

#[test]
fn fr07_pages_are_aligned_logical_addresses_and_not_too_many() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let good = f.lam.pages();
        let ask = |pages: &[u64]| f.server.fast_register(f.fast, pages, (0, PAGE, BASE), R);
        assert_eq!(ask(&[good[0] + 1]), INVALID, "unaligned");
        assert_eq!(ask(&[good[3] + PAGE as u64]), INVALID, "behind the mapping");
        assert_eq!(ask(&[0]), INVALID);
        assert_eq!(ask(&[f.target.sge(0, 0, 0).address]), INVALID, "an address of the program's");
        assert_eq!(ask(&[good[0]; 17]), INVALID, "more than the 16 it was initialised for");
        // They need not follow each other, nor come from one mapping.
        let mut other = lam(f.server.adapter, &f.target.mdl(), PAGE);
        let mixed = [good[2], other.pages()[0], good[1]];
        let posted = f.server.fast_register(f.fast, &mixed, (0, 3 * PAGE, BASE), R);
        assert_eq!((posted, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        for (index, page) in [2, 0, 1].into_iter().enumerate() {
            assert_eq!(f.read(BASE + (index * PAGE) as u64, 8, token(f.fast)), Status::SUCCESS);
            assert!(f.own.bytes()[..8] == f.target.bytes()[page * PAGE..page * PAGE + 8]);
        }
        other.release(f.server.adapter);
        f.end(&[]);
    });
}

/// FR-8: from FBO on, Length bytes, which the pages must hold; and not a byte more is open.
#[test]
fn fr08_offset_and_length_lie_inside_the_pages() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let pages = &f.lam.pages()[..2];
        let ask = |fbo: u32, length| {
            f.server.fast_register(f.fast, pages, (fbo, length, BASE + u64::from(fbo)), R)
        };
        assert_eq!(ask(PAGE as u32, 8), INVALID, "an offset is less than a page");
        assert_eq!(ask(100, 0), INVALID);
        assert_eq!(ask(100, 2 * PAGE - 99), INVALID);
        assert_eq!((ask(100, 1000), f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(f.read(BASE + 100 + 992, 8, token(f.fast)), Status::SUCCESS);
        assert!(f.own.bytes()[..8] == f.target.bytes()[1092..1100]);
        assert_eq!(f.read(BASE + 100 + 993, 8, token(f.fast)), Status::REMOTE_RESOURCES);
        f.end(&[]);
    });
}

/// FR-9: any base that agrees with the offset; it is what peers call byte 0.
#[test]
fn fr09_the_base_agrees_with_the_offset() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let ask = |base| f.server.fast_register(f.fast, f.lam.pages(), (0x10, 64, base), R);
        for wrong in [BASE, BASE + 0x11, 0x1000, 0] {
            assert_eq!(ask(wrong), INVALID, "{wrong:#x}");
        }
        for right in [0x10, BASE + 0x10, 0xffff_ffff_ffff_0010] {
            assert_eq!((ask(right), f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
            assert_eq!(f.read(right, 64, token(f.fast)), Status::SUCCESS);
            assert!(f.own.bytes()[..64] == f.target.bytes()[0x10..0x50]);
            f.invalidate();
        }
        f.end(&[]);
    });
}

#[test]
fn fr10_base_zero_is_an_address_where_the_offset_is_zero() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let posted = f.server.fast_register(f.fast, f.lam.pages(), (0, 64, 0), R);
        assert_eq!((posted, f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(f.read(8, 8, token(f.fast)), Status::SUCCESS);
        assert!(f.own.bytes()[..8] == f.target.bytes()[8..16]);
        f.end(&[]);
    });
}

#[test]
fn fr11_peers_can_do_what_the_flags_say() {
    in_every_mode(|mode| {
        for (flags, read, write) in
            [(0, false, false), (L, false, false), (R, true, false), (W, false, true)]
        {
            for (writes, allowed) in [(false, read), (true, write)] {
                let f = Fixture::new(mode);
                let token = f.register(flags);
                let status = if writes { f.write(BASE, 8, token) } else { f.read(BASE, 8, token) };
                let expected = if allowed { Status::SUCCESS } else { Status::REMOTE_RESOURCES };
                assert_eq!(status, expected, "{flags:#x} write {writes}");
                f.end(&[]);
            }
        }
        let f = Fixture::new(mode);
        for undefined in [0x20, 0x40, 0x100, 0x8000] {
            let place = (0, PAGE, BASE);
            let posted = f.server.fast_register(f.fast, f.lam.pages(), place, undefined);
            assert_eq!(posted, INVALID, "{undefined:#x}");
        }
        f.end(&[]);
    });
}

/// FR-11 and MR-15: the mark for sinks, where it counts.
#[test]
fn fr11_a_sink_is_marked_where_the_adapter_says_so() {
    in_every_mode(|mode| {
        for (needed, flags, right) in [
            (true, L, false),
            (true, op::RDMA_READ_SINK, true),
            (false, L, true),
            (false, L | op::RDMA_READ_SINK, true),
        ] {
            let choice = OpenOptions { read_sink_needed: u8::from(needed), ..options(mode) };
            let f = Fixture::with(options(mode), choice);
            let local = f.register(flags);
            let (source_mr, remote) = f.client.mr(&f.own, flag::ALLOW_REMOTE_READ);
            let at = f.own.sge(0, 0, 0).address;
            assert_eq!(f.server.read(1, &[sge(BASE, 8, local)], at, remote), Status::SUCCESS);
            let expected = if right { Status::SUCCESS } else { Status::ACCESS_VIOLATION };
            assert_eq!(f.server.one().1, expected, "needed {needed} flags {flags:#x}");
            let closing = begin_close(source_mr).1;
            f.end(&[]);
            closing.get();
        }
    });
}

/// FR-12: the token travels in a Send that is posted behind the registration, without a wait.
#[test]
fn fr12_later_requests_rely_on_the_registration() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        assert_eq!(f.client.receive(1, &[]), Status::SUCCESS);
        let flags = R | op::DEFER;
        let posted = f.server.fast_register(f.fast, f.lam.pages(), (0, PAGE, BASE), flags);
        assert_eq!(posted, Status::SUCCESS);
        let remote = token(f.fast);
        assert_eq!(f.server.send(2, &[], 0), Status::SUCCESS);
        assert_eq!(f.client.one().0, 1);
        assert_eq!(f.read(BASE, 8, remote), Status::SUCCESS);
        f.end(&[]);
    });
}

#[test]
fn fr13_the_token_stays_from_initialisation_to_close() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let first = token(f.fast);
        for _ in 0..3 {
            assert_eq!(f.register(R), first);
            assert_eq!(f.read(BASE, 8, first), Status::SUCCESS);
            f.invalidate();
            assert_eq!(token(f.fast), first);
        }
        assert_eq!(f.read(BASE, 8, first), Status::REMOTE_RESOURCES, "and is dead in between");
        f.end(&[]);
    });
}

#[test]
fn fr14_registering_what_is_registered_fails() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        f.register(R);
        let posted = f.server.fast_register(f.fast, f.lam.pages(), (0, PAGE, BASE), R);
        assert_eq!(posted, Status::SUCCESS, "it is the request that fails");
        assert_eq!(f.server.one(), (0xfa, Status::INVALID_DEVICE_REQUEST, 0));
        f.end(&[]);
    });
}

/// FR-15: a registration that was flushed never was one.
#[test]
fn fr15_a_failed_registration_leaves_nothing() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (other_client, other_server) = another(&f.client, &f.server);
        // On a second queue pair, whose connection ends with a request before it.
        let stranger = mw(f.server.pd);
        let (mr, _) = f.server.mr(&f.target, 0);
        let at = f.target.sge(0, 0, 0).address;
        assert_eq!(other_server.bind(mr, stranger, at, 8, R), Status::SUCCESS);
        assert_eq!(other_server.one().1, Status::SUCCESS);
        assert_eq!(other_server.bind(mr, stranger, at, 8, R), Status::SUCCESS, "MW-9: fails");
        let posted = other_server.fast_register(f.fast, f.lam.pages(), (0, PAGE, BASE), R);
        assert_eq!(other_server.one().1, Status::INVALID_DEVICE_REQUEST);
        if posted == Status::SUCCESS {
            assert_eq!(other_server.one().1, Status::CANCELLED);
        } else {
            assert_eq!(posted, Status::CONNECTION_INVALID);
        }
        assert_eq!(f.read(BASE, 8, token(f.fast)), Status::REMOTE_RESOURCES);
        let closing = [other_client.close(), other_server.close()];
        f.end(&[stranger, mr]);
        closing.iter().flatten().for_each(|cell| cell.get());
    });
}

#[test]
fn fr16_the_page_size_is_the_hosts() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let halves = [f.lam.pages()[0], f.lam.pages()[0] + PAGE as u64 / 2];
        let posted = f.server.fast_register(f.fast, &halves, (0, PAGE, BASE), R);
        assert_eq!(posted, INVALID);
        f.end(&[]);
    });
}

#[test]
fn fr17_every_queue_pair_of_the_domain_serves_the_token_and_no_other() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let remote = f.register(R);
        let (other_client, other_server) = another(&f.client, &f.server);
        let sink = f.own.sge(f.own_mr.1, 0, 8);
        assert_eq!(other_client.read(1, &[sink], BASE, remote), Status::SUCCESS);
        assert_eq!(other_client.one().1, Status::SUCCESS);
        let foreign = pd(f.server.adapter);
        let stranger = frmr(foreign, 16, true);
        let posted = f.server.fast_register(stranger, f.lam.pages(), (0, PAGE, BASE), R);
        assert_eq!(posted, INVALID, "of another domain");
        let closing = [other_client.close(), other_server.close()];
        f.end(&[stranger, foreign]);
        closing.iter().flatten().for_each(|cell| cell.get());
    });
}

/// 11.8: an error of the queue pair leaves a valid registration to the others of its domain.
#[test]
fn ndk_11_8_a_registration_outlives_its_queue_pair() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (other_client, other_server) = another(&f.client, &f.server);
        let posted = other_server.fast_register(f.fast, f.lam.pages(), (0, PAGE, BASE), R);
        assert_eq!((posted, other_server.one().1), (Status::SUCCESS, Status::SUCCESS));
        let closing = [other_client.close(), other_server.close()];
        assert_eq!(f.read(BASE, 8, token(f.fast)), Status::SUCCESS);
        f.end(&[]);
        closing.iter().flatten().for_each(|cell| cell.get());
    });
}
