//! The size that the table states is the size that it took from the allocator.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use transom_memory::*;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(1 << 40) };
}

/// Counts what this thread has; the one that runs the tests allocates whenever it likes.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_footprint_is_what_was_allocated() {
    for count_uses in [false, true] {
        agrees_with(Config { count_uses, ..Config::default() });
    }
}

fn agrees_with(config: Config) {
    let before = LIVE.get();
    let memory = Memory::new([1; 32], config);
    let agrees = |what: &str| {
        let live = LIVE.get() - before + size_of::<Memory>();
        let said = memory.footprint();
        // Hash tables round up to groups.
        assert!(live.abs_diff(said) <= live / 200, "{what}: said {said}, allocated {live}");
    };
    agrees("empty");
    let lanes: Vec<Lane> = (0..1000).map(|_| memory.lane()).collect();
    let own = lanes.capacity() * size_of::<Lane>();
    LIVE.set(LIVE.get() - own);
    agrees("lanes");
    let domain = DomainId(1);
    let register = |segments: &[Segment]| {
        let rights = Rights::LOCAL_READ | Rights::BIND;
        let scope = Scope::Domain(domain);
        memory.register(&Registration { scope, rights, base: 0x1000, segments }).unwrap()
    };
    let region = register(&[Segment { host: 0x1000, length: 0x1000 }]);
    agrees("one region");
    for number in 0..20_000 {
        let scope = Scope::QueuePair(domain, QueuePairId(number));
        let (base, length, rights) = (0x1000, 64, Rights::REMOTE_READ);
        memory.reserve(&WindowSpec { region, domain, scope, base, length, rights }, 0).unwrap();
    }
    agrees("a window for each of many queue pairs");
    for _ in 0..2_000 {
        register(&[0x1000, 0x3000, 0x5000].map(|host| Segment { host, length: 16 }));
    }
    agrees("regions in several segments");
    LIVE.set(LIVE.get() + own);
}
