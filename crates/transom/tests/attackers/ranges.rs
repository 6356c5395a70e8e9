//! A peer that asks for ranges which wrap around, stick out, or are of no bytes (the mistake of
//! CVE-2016-8636 and CVE-2026-98365 was to add before comparing).

use transom::Rule;

use super::forge::*;

/// The address to ask for, of a window's, and a length.
type Case = (fn(u64) -> u64, u32);

/// Design rule 2: the window has 3968 bytes at `address`. Each of these is refused, alone on its
/// connection, and not a byte around the window changes.
#[test]
fn ranges_that_wrap_or_stick_out_are_refused() {
    let mut owner = Owner::new();
    let cases: &[Case] = &[
        (|_| u64::MAX - 7, 8),            // the sum is 0
        (|_| u64::MAX - 6, 8),            // and beyond
        (|_| u64::MAX, 1),                // the last byte there is
        (|a| a.wrapping_sub(8), 8),       // just before
        (|a| a - 1, 3968),                // by one, at the beginning
        (|a| a + 1, 3968),                // by one, at the end
        (|a| a + 3968, 1),                // just behind
        (|a| a, 3969),                    // too long by one
        (|a| a.wrapping_add(1 << 63), 8), // the other half
        (|_| 0, 8),                       // as if it were an offset
    ];
    for (change, length) in cases {
        for write in [true, false] {
            let (ours, mut forged) = owner.admit();
            let (memory, window) = owner.lend(&ours);
            let (token, address) = parts(window.grant());
            if write {
                forged.write(token, change(address), &vec![1; *length as usize]);
            } else {
                forged.read(token, change(address), *length);
            }
            forged.is_thrown_out();
            let wraps = change(address).checked_add(u64::from(*length) - 1).is_none();
            let rule = if wraps { Rule::Wrap } else { Rule::Bounds };
            let refused = ours.recv().wait().unwrap_err();
            assert_eq!(refused.denial().map(|denial| denial.rule), Some(rule), "{refused}");
            untouched(&memory);
        }
    }
    // The lengths that only a read can ask for.
    for length in [u32::MAX, u32::MAX - 4096, 1 << 31] {
        let (ours, mut forged) = owner.admit();
        let (_memory, window) = owner.lend(&ours);
        let (token, address) = parts(window.grant());
        forged.read(token, address, length);
        forged.is_thrown_out();
        assert!(ours.recv().wait().is_err());
    }
}

/// A range inside is served to the last byte, so that the refusals above are not for another
/// reason.
#[test]
fn the_whole_window_is_served_and_nothing_is_a_range_anywhere() {
    let mut owner = Owner::new();
    let (ours, mut forged) = owner.admit();
    let (memory, window) = owner.lend(&ours);
    let (token, address) = parts(window.grant());
    forged.read(token, address, 3968);
    assert_eq!(forged.answer(), [7; 3968]);
    forged.write(token, address, &[7; 3968]);
    forged.read(token, address + 3967, 1);
    assert_eq!(forged.answer(), [7]);
    // RFC 5040: a Read of no bytes asks nothing of the token, and discloses nothing.
    forged.read(0xdead_beef, u64::MAX, 0);
    assert!(forged.answer().is_empty());
    untouched(&memory);
    drop(ours);
}
