//! NdkControlCqInterruptModeration (NDK 8), in every mode. Where no time may end a wait, the interval is
//! without end; where it must, it is short and no other thing can.

use std::sync::atomic::Ordering;

use crate::common::*;
use crate::limits::info;
use crate::queues::{LIMIT, Notifications, Notified, arm, delivered_message, notifying};
use transom_ndkpi::Status;
use transom_ndkpi::dispatch::CqDispatch;
use transom_ndkpi::flags::{adapter, notify, op};

const FOREVER: u32 = u32::MAX;
const MANY: u32 = u32::MAX;
const MIX: Status = Status::INVALID_PARAMETER_MIX;

fn moderate(side: &Side, interval: u32, count: u32) -> Status {
    let t = table::<CqDispatch>(side.cq);
    Status(unsafe { (t.control_interrupt_moderation)(side.cq, interval, count) })
}

/// A connected pair; the server's queue holds 64 and notifies once for each arm.
fn scene(mode: transom_ndkpi::Mode) -> (Side, Side, &'static Notified, Notifications) {
    let (client, server, state, heard) = notifying(mode, u32::MAX, 64);
    (0..32).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
    (client, server, state, heard)
}

fn end(client: Side, server: Side) {
    client.end(&[]);
    server.end(&[]);
}

/// No callback has come, and none is on its way.
fn silent(state: &Notified, before: usize, why: &str) {
    let_others_run();
    assert_eq!(state.times.load(Ordering::SeqCst), before, "{why}");
}

fn called(heard: &Notifications) {
    assert_eq!(Status(heard.recv_timeout(LIMIT).unwrap()), Status::SUCCESS);
}

#[test]
fn the_adapter_says_that_it_moderates() {
    in_every_mode(|mode| {
        let side = half(options(mode));
        let flag = adapter::CQ_INTERRUPT_MODERATION_SUPPORTED;
        assert_eq!(info(side.adapter).adapter_flags & flag, flag);
        assert_eq!(moderate(&side, 20, MANY), Status::SUCCESS);
        close_all(&[side.qp, side.cq, side.pd]);
        close_adapter(side.adapter);
    });
}

#[test]
fn the_count_ends_a_wait_without_end() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = scene(mode);
        assert_eq!(moderate(&server, FOREVER, 3), Status::SUCCESS);
        for round in 0..2 {
            arm(&server, notify::ANY);
            delivered_message(&client);
            delivered_message(&client);
            silent(state, round, "two of three");
            delivered_message(&client);
            called(&heard);
            delivered_message(&client);
            silent(state, round + 1, "once for each arm");
            server.results(4);
        }
        // Entries that are retrieved while the callback is held back count.
        arm(&server, notify::ANY);
        for _ in 0..3 {
            delivered_message(&client);
            server.results(1);
        }
        called(&heard);
        end(client, server);
    });
}

/// The interval alone, as Microsoft's sample sets it; then an interval and a count.
#[test]
fn the_interval_ends_a_wait() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = scene(mode);
        for (round, count) in [(0, MANY), (1, 65), (2, 64)] {
            assert_eq!(moderate(&server, 20, count), Status::SUCCESS);
            arm(&server, notify::ANY);
            silent(state, round, "nothing to report");
            delivered_message(&client);
            called(&heard);
            server.results(1);
        }
        end(client, server);
    });
}

#[test]
fn without_an_interval_or_a_count_nothing_waits() {
    in_every_mode(|mode| {
        let (client, server, _, heard) = scene(mode);
        for (interval, count) in [(0, 9), (0, MANY), (FOREVER, 0), (FOREVER, 1), (0, 0)] {
            assert_eq!(moderate(&server, FOREVER, 2), Status::SUCCESS);
            assert_eq!(moderate(&server, interval, count), Status::SUCCESS);
            arm(&server, notify::ANY);
            delivered_message(&client);
            called(&heard);
            server.results(1);
        }
        end(client, server);
    });
}

/// The newest call counts, also for a callback that is held back; a refused one changes nothing.
#[test]
fn the_newest_call_counts() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = scene(mode);
        assert_eq!(moderate(&server, FOREVER, 3), Status::SUCCESS);
        for (interval, count) in [(FOREVER, MANY), (FOREVER, 65)] {
            assert_eq!(moderate(&server, interval, count), MIX, "{count}");
        }
        arm(&server, notify::ANY);
        delivered_message(&client);
        delivered_message(&client);
        silent(state, 0, "as before the refused calls");
        assert_eq!(moderate(&server, FOREVER, 64), Status::SUCCESS, "as many as the queue holds");
        delivered_message(&client);
        silent(state, 0, "three of 64");
        assert_eq!(moderate(&server, FOREVER, MANY), MIX);
        silent(state, 0, "still");
        assert_eq!(moderate(&server, 20, MANY), Status::SUCCESS);
        called(&heard);
        server.results(3);
        assert_eq!(moderate(&server, FOREVER, 2), Status::SUCCESS);
        arm(&server, notify::ANY);
        delivered_message(&client);
        assert_eq!(moderate(&server, 0, 0), Status::SUCCESS);
        called(&heard);
        end(client, server);
    });
}

/// The depth that a count is compared with is the one after a resize.
#[test]
fn a_resize_changes_what_a_count_can_reach() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = scene(mode);
        let t = table::<CqDispatch>(server.cq);
        let resize =
            |depth: u32| end_of(|cb, ctx| unsafe { (t.resize)(server.cq, depth, cb, ctx) });
        assert_eq!(moderate(&server, FOREVER, 8), Status::SUCCESS);
        assert_eq!(resize(4), Status::SUCCESS);
        assert_eq!(moderate(&server, FOREVER, 5), MIX);
        arm(&server, notify::ANY);
        (0..3).for_each(|_| delivered_message(&client));
        silent(state, 0, "three of four");
        delivered_message(&client);
        called(&heard); // the queue is full
        server.results(4);
        assert_eq!(resize(64), Status::SUCCESS);
        assert_eq!(moderate(&server, FOREVER, 5), Status::SUCCESS);
        end(client, server);
    });
}

/// A plain message satisfies no solicited arm, so it begins no wait; behind one it counts.
#[test]
fn a_wait_begins_when_the_arm_is_satisfied() {
    in_every_mode(|mode| {
        let (client, server, state, heard) = scene(mode);
        let plain = || {
            assert_eq!(client.send(1, &[], 0), Status::SUCCESS);
            assert_eq!(client.one().1, Status::SUCCESS);
            assert_eq!(client.read(2, &[], 0, 0), Status::SUCCESS);
            assert_eq!(client.one().1, Status::SUCCESS);
        };
        assert_eq!(moderate(&server, FOREVER, 2), Status::SUCCESS);
        arm(&server, notify::SOLICITED);
        plain();
        plain();
        silent(state, 0, "nothing solicited");
        server.results(2);
        assert_eq!(client.send(1, &[], op::SEND_AND_SOLICIT_EVENT), Status::SUCCESS);
        assert_eq!(client.one().1, Status::SUCCESS);
        server.results(1);
        silent(state, 0, "one of two");
        plain();
        called(&heard);
        end(client, server);
    });
}

/// NDK CQ-7: a queue that runs over says so at once.
#[test]
fn a_failure_does_not_wait() {
    in_every_mode(|mode| {
        let (client, server, _, heard) = notifying(mode, u32::MAX, 2);
        (0..4).for_each(|i| assert_eq!(server.receive(i, &[]), Status::SUCCESS));
        assert_eq!(moderate(&server, 3_600_000_000, MANY), Status::SUCCESS);
        arm(&server, notify::ANY);
        for request in 0..3 {
            assert_eq!(client.send(request, &[], 0), Status::SUCCESS);
        }
        let status = Status(heard.recv_timeout(LIMIT).unwrap());
        assert_eq!(status, Status::BUFFER_OVERFLOW);
        end(client, server);
    });
}

/// NDK CQ-13: a queue whose callback is held back can be closed, and says nothing more.
#[test]
fn a_close_ends_a_wait() {
    in_every_mode(|mode| {
        let (client, server, state, _heard) = scene(mode);
        assert_eq!(moderate(&server, FOREVER, 64), Status::SUCCESS);
        arm(&server, notify::ANY);
        delivered_message(&client);
        server.results(1);
        end(client, server);
        assert_eq!(state.times.load(Ordering::SeqCst), 0);
    });
}
