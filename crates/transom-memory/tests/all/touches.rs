//! WSD A-28: which regions lie in memory that goes away. Partial overlap counts.
use crate::common::*;
use transom_memory::*;

#[test]
fn wsd_a28_a_region_is_touched_by_any_range_that_shares_a_byte_with_it() {
    let memory = memory();
    let region = region(&memory, ALL);
    for (host, length, touched) in [
        (HOST, SIZE, true),
        (HOST - 0x1000, 0x1000, false),
        (HOST - 0x1000, 0x1001, true),
        (HOST + SIZE - 1, 1, true),
        (HOST + SIZE, 0x1000, false),
        (HOST + 8, 8, true),
        (HOST + 8, 0, false),
        (0, u64::MAX, true),
        (HOST + 8, u64::MAX, true),
    ] {
        assert_eq!(memory.touches(region, host, length), touched, "{host:#x} {length:#x}");
    }
    let window = window(&memory, region, Rights::REMOTE_READ);
    assert!(!memory.touches(window, HOST, SIZE), "a window has no memory of its own");
    memory.deregister(region, Unless::default(), NOW).unwrap();
    assert!(!memory.touches(region, HOST, SIZE));
}

#[test]
fn wsd_a28_every_segment_counts() {
    let memory = memory();
    let segments =
        [Segment { host: HOST, length: 0x1000 }, Segment { host: HOST + 0x4000, length: 0x1000 }];
    let scope = Scope::Domain(DOMAIN);
    let rights = Rights::LOCAL_READ;
    let region =
        memory.register(&Registration { scope, rights, base: BASE, segments: &segments }).unwrap();
    assert!(memory.touches(region, HOST + 0x4fff, 1));
    assert!(!memory.touches(region, HOST + 0x1000, 0x3000));
}
