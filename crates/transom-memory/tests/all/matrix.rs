//! The rights matrix, ND2 5.5, row by row.

use crate::common::*;
use transom_memory::*;

/// The ND2 flags as rights. The front does this translation; here it is the specification.
fn of_flags(flags: u32) -> Rights {
    let mut rights = Rights::LOCAL_READ | Rights::BIND;
    for (bit, right) in [
        (0x1, Rights::LOCAL_WRITE),
        (0x2, Rights::REMOTE_READ),
        (0x4, Rights::REMOTE_WRITE),
        (0x8, Rights::READ_SINK),
    ] {
        if flags & bit != 0 {
            rights = rights | right;
        }
    }
    rights
}

const PURPOSES: [Purpose; 5] = [
    Purpose::LocalSource,
    Purpose::ReceiveBuffer,
    Purpose::ReadSink,
    Purpose::RemoteRead,
    Purpose::RemoteWrite,
];

/// A row of (a): '+' or 'x' per purpose.
fn row_a(flags: u32, expected: &str) {
    let memory = memory();
    let token = region(&memory, of_flags(flags));
    for (purpose, expected) in PURPOSES.into_iter().zip(expected.chars()) {
        let refused = (expected == 'x').then_some(Rule::Right);
        let ask = access(purpose, token, BASE, SIZE);
        assert_eq!(rule(&memory, &ask), refused, "flags {flags:#x}, {purpose:?}");
    }
}

#[test]
fn a_0x0_local_read_only() {
    row_a(0x0, "+xxxx");
}
#[test]
fn a_0x1_local_write() {
    row_a(0x1, "+++xx");
}
#[test]
fn a_0x2_remote_read() {
    row_a(0x2, "+xx+x");
}
#[test]
fn a_0x3_local_write_and_remote_read() {
    row_a(0x3, "++++x");
}
#[test]
fn a_0x5_remote_write() {
    row_a(0x5, "+++x+");
}
#[test]
fn a_0x7_remote_read_and_remote_write() {
    row_a(0x7, "+++++");
}
#[test]
fn a_0x8_read_sink_only() {
    row_a(0x8, "+x+xx");
}
#[test]
fn a_0x9_read_sink_and_local_write() {
    row_a(0x9, "+++xx");
}

/// (b): Bind with 0, READ, WRITE, READ + WRITE.
fn row_b(flags: u32, expected: &str) {
    let memory = memory();
    let region = region(&memory, of_flags(flags));
    let rights = [
        Rights::NONE,
        Rights::REMOTE_READ,
        Rights::REMOTE_WRITE,
        Rights::REMOTE_READ | Rights::REMOTE_WRITE,
    ];
    for (rights, expected) in rights.into_iter().zip(expected.chars()) {
        let answer = memory.reserve(&window_spec(region, rights), NOW);
        match expected {
            '+' => assert!(answer.is_ok(), "flags {flags:#x}, {rights}: {answer:?}"),
            _ => assert!(matches!(answer, Err(BindError::Right(_))), "flags {flags:#x}, {rights}"),
        }
    }
}

#[test]
fn b_without_local_write() {
    for flags in [0x0, 0x2, 0x8, 0xa] {
        row_b(flags, "++xx");
    }
}
#[test]
fn b_with_local_write() {
    for flags in [0x1, 0x3, 0x5, 0x7, 0x9, 0xb, 0xd, 0xf] {
        row_b(flags, "++++");
    }
}

/// (c): Read and Write in bounds as given; everything else refused, whatever the rights; and the
/// region's own remote rights do not matter.
fn row_c(rights: Rights, reads: bool, writes: bool) {
    for flags in [0x1, 0x3, 0x5, 0x7] {
        let memory = memory();
        let region = region(&memory, of_flags(flags));
        let token = memory.reserve(&window_spec(region, rights), NOW).unwrap();
        let at = BASE + 0x1000;
        for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite] {
            let whole = access(purpose, token, at, 0x2000);
            assert_eq!(rule(&memory, &whole), Some(Rule::LiveToken), "before Bind executes");
        }
        assert!(memory.activate(token));
        for (purpose, granted) in [(Purpose::RemoteRead, reads), (Purpose::RemoteWrite, writes)] {
            let whole = access(purpose, token, at, 0x2000);
            assert_eq!(judge(&memory, &whole).is_ok(), granted, "in bounds");
            for out in [
                access(purpose, token, at, 0x2001),
                access(purpose, token, at - 1, 1),
                access(purpose, token, at + 0x2000, 1),
            ] {
                assert!(judge(&memory, &out).is_err(), "out of bounds");
            }
            let other = Access { actor: actor(OTHER_QP), ..whole };
            assert_eq!(rule(&memory, &other), Some(Rule::Scope), "other queue pair's peer");
        }
        memory.close(token, Some(QP), NOW).unwrap();
        for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite] {
            let whole = access(purpose, token, at, 0x2000);
            assert_eq!(rule(&memory, &whole), Some(Rule::LiveToken), "after Invalidate");
        }
    }
}

#[test]
fn c_none() {
    row_c(Rights::NONE, false, false);
}
#[test]
fn c_read() {
    row_c(Rights::REMOTE_READ, true, false);
}
#[test]
fn c_write() {
    row_c(Rights::REMOTE_WRITE, false, true);
}
#[test]
fn c_read_and_write() {
    row_c(Rights::REMOTE_READ | Rights::REMOTE_WRITE, true, true);
}

/// The combinations proved by Microsoft's programs that are not rows above: whole requests of 4 MiB
/// and 41 bytes, and ndmw's region without remote rights.
#[test]
fn programs_over_read_over_write_and_ndmw() {
    let memory = memory();
    let size = 4 << 20;
    let segments = [Segment { host: HOST, length: size }];
    let scope = Scope::Domain(DOMAIN);
    let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    for flags in [0x7, 0x9] {
        let registration =
            Registration { scope, rights: of_flags(flags), base: BASE, segments: &segments };
        let region = memory.register(&registration).unwrap();
        let spec = WindowSpec { base: BASE, length: size, ..window_spec(region, rights) };
        let token = memory.reserve(&spec, NOW).unwrap();
        assert!(memory.activate(token));
        let mut lane = memory.lane();
        for purpose in [Purpose::RemoteRead, Purpose::RemoteWrite] {
            let whole = access(purpose, token, BASE, size);
            assert!(memory.probe(&mut lane, &whole, NOW).is_ok());
            let over = Access { length: size + 41, ..whole };
            let denial = memory.probe(&mut lane, &over, NOW).unwrap_err();
            assert_eq!(denial.likely, Mistake::PastTheEnd { bytes: 41 });
        }
    }
}
