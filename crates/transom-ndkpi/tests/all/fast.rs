//! Fast registration (NDK 11.5): one test per rule, each in every mode.

use crate::common::fixture::*;
use crate::common::*;
use transom_ndkpi::flags::{mr as flag, op};
use transom_ndkpi::{OpenOptions, Status};

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
    alone(|adapter, _| {
        let pd = pd(adapter);
        let mr = mr_of(pd, true);
        assert_eq!(initialize(mr, u32::MAX, true).0, Status::IMPLEMENTATION_LIMIT.0);
        assert_eq!(initialize(mr, 0, true).0, INVALID.0);
        assert_eq!(token(mr), 0);
        // A gigabyte: as much as one request transfers.
        for pages in [1, 16, 512, 4096, 1 << 18] {
            assert_eq!(initialize(mr, pages, true).1, Status::SUCCESS);
        }
        assert_eq!(initialize(mr, (1 << 18) + 1, true).0, Status::IMPLEMENTATION_LIMIT.0);
        close_all(&[mr, pd]);
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
        assert_eq!(ask(&[f.target.address()]), INVALID, "an address of the program's");
        assert_eq!(ask(&[good[0]; 17]), INVALID, "more than the 16 it was initialised for");
        let three = frmr(f.server.pd, 3, true);
        let exact = |pages: &[u64]| f.server.fast_register(three, pages, (0, PAGE, BASE), R);
        assert_eq!(exact(good), INVALID, "four, for three");
        assert_eq!((exact(&good[..3]), f.server.one().1), (Status::SUCCESS, Status::SUCCESS));
        close(three);
        // Pages need not follow each other, nor come from one mapping.
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

/// NDK FR-8: from FBO on, Length bytes, which the pages must hold; and not a byte more is open.
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

/// NDK FR-9: any base that agrees with the offset; it is what peers call byte 0.
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

/// NDK FR-11 and MR-15: the mark for sinks, where it counts.
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
            let at = f.own.address();
            assert_eq!(f.server.read(1, &[sge(BASE, 8, local)], at, remote), Status::SUCCESS);
            let expected = if right { Status::SUCCESS } else { Status::ACCESS_VIOLATION };
            assert_eq!(f.server.one().1, expected, "needed {needed} flags {flags:#x}");
            let closing = begin_close(source_mr).1;
            f.end(&[]);
            closing.get();
        }
    });
}

/// NDK FR-12: the token travels in a Send that is posted behind the registration, without a wait.
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

/// NDK FR-15: a registration that was flushed never was one.
#[test]
fn fr15_a_failed_registration_leaves_nothing() {
    in_every_mode(|mode| {
        let f = Fixture::new(mode);
        let (other_client, other_server) = another(&f.client, &f.server);
        // On a second queue pair, whose connection ends with a request before it.
        let stranger = mw(f.server.pd);
        let (mr, _) = f.server.mr(&f.target, 0);
        let at = f.target.address();
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

/// NDK 11.8: an error of the queue pair leaves a valid registration to the others of its domain.
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
