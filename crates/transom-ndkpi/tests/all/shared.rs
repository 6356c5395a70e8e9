//! Shared receive queues (NDK SRQ-1 to SRQ-8), in every mode.

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::common::*;
use crate::limits::info;
use crate::queues::plain_results;
use transom_ndkpi::Status;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::types::Sge;

unsafe extern "C" fn notified(context: *mut c_void, status: i32) {
    unsafe { &*context.cast::<SyncSender<i32>>() }.send(status).unwrap();
}

fn try_srq(pd: Ptr, depth: u32, sge: u32, threshold: u32) -> Result<(Ptr, Receiver<i32>), Status> {
    let (told, heard) = sync_channel(64);
    let told: *mut SyncSender<i32> = Box::leak(Box::new(told));
    let t = table::<PdDispatch>(pd);
    let affinity = std::ptr::null();
    let made = create(|cb, ctx, out| unsafe {
        let callback = Some(notified as _);
        (t.create_srq)(pd, depth, sge, threshold, callback, told.cast(), affinity, cb, ctx, out)
    });
    made.map(|srq| (srq, heard))
}

fn try_qp(pd: Ptr, cq: Ptr, srq: Ptr, context: usize) -> Result<Ptr, Status> {
    let t = table::<PdDispatch>(pd);
    let context = std::ptr::without_provenance_mut(context);
    create(|cb, ctx, out| unsafe {
        (t.create_qp_with_srq)(pd, cq, cq, srq, context, 64, 8, 256, cb, ctx, out)
    })
}

fn receive(srq: Ptr, context: usize, list: &[Sge]) -> Status {
    let t = table::<SrqDispatch>(srq);
    let context = std::ptr::without_provenance_mut(context);
    Status(unsafe { (t.receive)(srq, context, list.as_ptr(), list.len() as u32) })
}

fn modify(srq: Ptr, depth: u32, threshold: u32) -> Status {
    let t = table::<SrqDispatch>(srq);
    end_of(|cb, ctx| unsafe { (t.modify)(srq, depth, threshold, cb, ctx) })
}

/// Another side of the same adapter and domain, not connected.
fn side_of(of: &Side) -> Side {
    let cq = cq(of.adapter);
    let qp = qp(of.pd, cq, 78);
    Side { adapter: of.adapter, pd: of.pd, cq, qp, connector: std::ptr::null_mut() }
}

/// A side whose queue pair takes receives from `srq`.
fn side_on(of: &Side, srq: Ptr, context: usize) -> Side {
    let cq = cq(of.adapter);
    let qp = try_qp(of.pd, cq, srq, context).unwrap();
    Side { adapter: of.adapter, pd: of.pd, cq, qp, connector: std::ptr::null_mut() }
}

fn none(heard: &Receiver<i32>) {
    let_others_run();
    assert_eq!(heard.try_recv().ok(), None);
}

fn one(heard: &Receiver<i32>) {
    assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(0));
}

/// Ends a side that shares adapter and domain with another.
fn end_part(side: Side) {
    let mut open = vec![begin_close(side.connector).1];
    open.extend([side.qp, side.cq].map(|object| begin_close(object).1));
    open.iter().for_each(|cell| cell.get());
}

#[test]
fn srq06_a_receive_completes_on_the_queue_pair_that_used_it() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (srq, _heard) = try_srq(server.pd, 8, 1, 0).unwrap();
        let own = || side_of(&client);
        let (one_client, one_server) = connected(own(), side_on(&server, srq, 101));
        let (two_client, two_server) = connected(own(), side_on(&server, srq, 102));
        for context in 1..=4 {
            assert_eq!(receive(srq, context, &[]), Status::SUCCESS);
        }
        for (from, at, pair, context) in [
            (&two_client, &two_server, 102, 1),
            (&one_client, &one_server, 101, 2),
            (&one_client, &one_server, 101, 3),
            (&two_client, &two_server, 102, 4),
        ] {
            assert_eq!(from.send(9, &[], 0), Status::SUCCESS);
            assert_eq!(from.one().1, Status::SUCCESS);
            let entry = &plain_results(at.cq, 1)[0];
            assert_eq!((entry.qp_context.addr(), entry.request_context.addr()), (pair, context));
        }
        // NDK 7: such a queue pair has no receive queue of its own.
        assert_eq!(one_server.receive(5, &[]), Status::INVALID_DEVICE_REQUEST);
        for side in [one_client, one_server, two_client, two_server] {
            end_part(side);
        }
        client.end(&[]);
        server.end(&[srq]);
    });
}

#[test]
fn srq02_srq05_the_notification_comes_once_when_fewer_wait() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (srq, heard) = try_srq(server.pd, 8, 1, 2).unwrap();
        let (from, at) = connected(side_of(&client), side_on(&server, srq, 101));
        let send = |count: usize| {
            for _ in 0..count {
                assert_eq!(from.send(9, &[], 0), Status::SUCCESS);
                assert_eq!(from.one().1, Status::SUCCESS);
                plain_results(at.cq, 1);
            }
        };
        let post = |count: usize| {
            for context in 0..count {
                assert_eq!(receive(srq, context, &[]), Status::SUCCESS);
            }
        };
        // SRQ-5: an empty queue does not notify, nor one that has not been filled.
        none(&heard);
        post(1);
        send(1);
        none(&heard);
        post(3);
        send(1); // two wait
        none(&heard);
        send(1);
        one(&heard);
        send(1);
        none(&heard); // SRQ-2: once
        // SRQ-3: a threshold arms, and the count is below it already.
        assert_eq!(modify(srq, 0, 2), Status::SUCCESS);
        one(&heard);
        // SRQ-4: zeros change nothing.
        assert_eq!(modify(srq, 0, 0), Status::SUCCESS);
        none(&heard);
        post(3);
        assert_eq!(modify(srq, 0, 3), Status::SUCCESS);
        assert_eq!(modify(srq, 0, 2), Status::SUCCESS); // armed anew, not twice
        assert_eq!(modify(srq, 0, 0), Status::SUCCESS);
        none(&heard);
        send(1);
        none(&heard);
        send(1);
        one(&heard);
        none(&heard);
        // An armed notification that a new threshold satisfies comes once.
        post(3);
        assert_eq!(modify(srq, 0, 1), Status::SUCCESS);
        assert_eq!(modify(srq, 0, 8), Status::SUCCESS);
        one(&heard);
        none(&heard);
        for side in [from, at] {
            end_part(side);
        }
        client.end(&[]);
        server.end(&[srq]);
    });
}

#[test]
fn srq01_srq07_limits_are_the_adapters_and_what_waits_is_kept() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let most = info(side.adapter);
        assert!(most.max_srq_depth > 0);
        let invalid = Some(Status::INVALID_PARAMETER);
        let (depth, entries) = (most.max_srq_depth, most.max_receive_request_sge);
        assert_eq!(try_srq(side.pd, depth + 1, 1, 0).err(), invalid);
        assert_eq!(try_srq(side.pd, 1, entries + 1, 0).err(), invalid);
        close(try_srq(side.pd, depth, entries, 0).unwrap().0);

        let (srq, _heard) = try_srq(side.pd, 4, 1, 0).unwrap();
        for context in 0..4 {
            assert_eq!(receive(srq, context, &[]), Status::SUCCESS);
        }
        assert_eq!(receive(srq, 4, &[]), Status::NO_MORE_ENTRIES);
        assert_eq!(receive(srq, 4, &[sge(8, 8, 0), sge(8, 8, 0)]), Status::DATA_OVERRUN);
        assert_eq!(modify(srq, 3, 0), Status::BUFFER_OVERFLOW);
        assert_eq!(modify(srq, depth + 1, 0), Status::INVALID_PARAMETER);
        assert_eq!(receive(srq, 4, &[]), Status::NO_MORE_ENTRIES, "the depth is as before");
        assert_eq!(modify(srq, 5, 0), Status::SUCCESS);
        assert_eq!(receive(srq, 4, &[]), Status::SUCCESS);
        assert_eq!(receive(srq, 5, &[]), Status::NO_MORE_ENTRIES);

        assert_eq!(try_qp(side.pd, side.cq, std::ptr::null_mut(), 1).err(), invalid);
        assert_eq!(try_qp(side.pd, side.cq, side.cq, 1).err(), invalid, "another kind of object");
        let other = half(options(mode));
        assert_eq!(try_qp(other.pd, other.cq, srq, 1).err(), invalid, "another adapter's");
        close(srq);
        for side in [other, side] {
            close_all(&[side.qp, side.cq, side.pd]);
            close_adapter(side.adapter);
        }
    });
}

/// NDK LT-9, SRQ-8: the queue outlives its queue pairs, which leave what they have not used.
#[test]
fn srq08_the_end_of_a_queue_pair_leaves_unused_receives() {
    in_every_mode(|mode| {
        let (client, server) = pair(mode);
        let (srq, _heard) = try_srq(server.pd, 8, 1, 0).unwrap();
        let own = || side_of(&client);
        let (from, at) = connected(own(), side_on(&server, srq, 101));
        for context in 1..=2 {
            assert_eq!(receive(srq, context, &[]), Status::SUCCESS);
        }
        assert_eq!(from.send(9, &[], 0), Status::SUCCESS);
        assert_eq!(from.one().1, Status::SUCCESS);
        assert_eq!(plain_results(at.cq, 1)[0].request_context.addr(), 1);
        end_part(from);
        end_part(at);
        let (from, at) = connected(own(), side_on(&server, srq, 102));
        assert_eq!(from.send(9, &[], 0), Status::SUCCESS);
        assert_eq!(from.one().1, Status::SUCCESS);
        assert_eq!(plain_results(at.cq, 1)[0].request_context.addr(), 2, "it was left");
        let (_, closed) = begin_close(srq);
        let_others_run();
        assert!(!closed.peek(), "LT-9: a queue pair uses it");
        end_part(from);
        end_part(at);
        closed.get();
        client.end(&[]);
        server.end(&[]);
    });
}
