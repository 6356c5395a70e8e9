//! Nothing on the data path allocates (design rule 12), and an idle connection is small.

#![allow(clippy::unwrap_used)]

#[path = "all/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "other tests use more of it")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::{ACTIVE, PASSIVE, Pair};
use transom_core::{Flags, Operation, dialect};
use transom_memory::Rights;
use transom_wire::Buffer;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts this thread's allocations.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; the counters are plain cells
// that need no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A request from post to completion, and its acknowledgement, without the pair's own bookkeeping.
fn round(pair: &mut Pair, out: &mut [Buffer; 2], operation: Operation, sge: transom_core::Sge) {
    let now = pair.now;
    let [a, p] = &mut pair.hosts;
    a.post(1, operation, Flags::NONE, &[sge]).unwrap();
    for _ in 0..3 {
        a.transmit(now, &mut out[ACTIVE]);
        p.receive(now, &out[ACTIVE].bytes);
        out[ACTIVE].bytes.clear();
        p.connection.as_mut().unwrap().before_blocking();
        p.transmit(now, &mut out[PASSIVE]);
        a.receive(now, &out[PASSIVE].bytes);
        out[PASSIVE].bytes.clear();
    }
    assert!(a.cq.pop().unwrap().status.is_success());
    assert!(a.cq.is_empty());
}

#[test]
fn the_data_path_does_not_allocate() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 4096], Rights::LOCAL_WRITE);
    let inbox = p.register(vec![0; 4096], Rights::LOCAL_WRITE);
    let both = Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::LOCAL_WRITE;
    let target = p.register(vec![0; 4096], both);
    (a.quiet, p.quiet) = (true, true);
    let mut out = [0, 1].map(|_| Buffer::new(1 << 16));
    out.iter_mut().for_each(|out| out.bytes.reserve(1 << 17));
    let (token, address) = (target.token.0, target.address);
    let mut before = 0;
    for turn in 0..300 {
        if turn == 100 {
            before = COUNT.get();
        }
        round(&mut pair, &mut out, Operation::Write { token, address }, source.sge(0, 8));
        round(&mut pair, &mut out, Operation::Read { token, address }, source.sge(0, 4000));
        pair.hosts[PASSIVE].post_receive(2, &[inbox.all()]).unwrap();
        round(&mut pair, &mut out, Operation::Send, source.sge(0, 100));
        assert!(pair.hosts[PASSIVE].cq.pop().unwrap().status.is_success());
    }
    assert_eq!(COUNT.get() - before, 0, "allocations in 600 requests");
}

/// The core's part of the 16 KiB that an idle connection may cost.
#[test]
fn an_idle_connection_is_small() {
    let mut pair = Pair::connected(&dialect::ND2);
    pair.hosts[ACTIVE]
        .post(1, Operation::Write { token: 0, address: 0 }, Flags::NONE, &[])
        .unwrap();
    pair.pump();
    let before = BYTES.get();
    pair.hosts[ACTIVE].connection = None;
    pair.hosts[PASSIVE].connection = None;
    let freed = before - BYTES.get();
    let inline = size_of::<transom_core::Connection>() + size_of::<transom_core::QueuePair>();
    let each = freed / 2 + inline as i64;
    assert!(each < 8192, "{each} bytes");
}
