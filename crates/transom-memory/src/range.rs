//! The one place where ranges are compared (ND2 5.3).

/// How a range relates to the object it was asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Inside, so many bytes from its beginning.
    Inside(u64),
    /// Address and length wrap around the end of the address space.
    Wraps,
    /// Not inside.
    Outside,
}

/// Whether `[address, address + length)` lies inside `[base, base + size)`, which does not wrap. No sum
/// is ever formed, so nothing can overflow (ND2 5.3: the reference provider's `offset + length` can
/// wrap).
#[inline]
pub(crate) fn fit(base: u64, size: u64, address: u64, length: u64) -> Fit {
    // An address below the base has an offset of at least 2^64 - base, which is no less than the size:
    // as behind the end, no byte is left from there on.
    let offset = address.wrapping_sub(base);
    let rest = size.saturating_sub(offset);
    if length <= rest && (length > 0 || address >= base && offset <= size) {
        return Fit::Inside(offset);
    }
    if wraps(address, length) { Fit::Wraps } else { Fit::Outside }
}

/// Whether a range reaches past the last byte of the address space.
#[inline]
pub(crate) fn wraps(address: u64, length: u64) -> bool {
    length > 0 && length - 1 > u64::MAX - address
}

/// Whether two ranges have a byte in common. A range that wraps ends with the address space.
pub(crate) fn touch(a: u64, a_length: u64, b: u64, b_length: u64) -> bool {
    let (first, length, second, other) =
        if a <= b { (a, a_length, b, b_length) } else { (b, b_length, a, a_length) };
    other > 0 && length > second - first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// ND2 5.3 in arithmetic that cannot overflow.
    fn oracle(base: u64, size: u64, address: u64, length: u64) -> Fit {
        let [base, size, address, length] = [base, size, address, length].map(u128::from);
        if address >= base && address + length <= base + size {
            Fit::Inside((address - base) as u64)
        } else if address + length > 1 << 64 {
            Fit::Wraps
        } else {
            Fit::Outside
        }
    }

    /// Edges more often than the middle.
    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..20_u64,
            (0..20_u64).prop_map(|near| u64::MAX - near),
            (0..64_u32, 0..3_u64)
                .prop_map(|(bit, off)| (1_u64 << bit).wrapping_add(off).wrapping_sub(1)),
        ]
    }

    proptest! {
        #[test]
        fn nd2_5_3_arithmetic_agrees_with_128_bits(
            base in word(), size in word(), address in word(), length in word()
        ) {
            // An object that wraps cannot be registered.
            let size = size.min((u64::MAX - base).saturating_add(1));
            prop_assert_eq!(fit(base, size, address, length), oracle(base, size, address, length));
        }

        #[test]
        fn nd2_5_3_arithmetic_agrees_near_an_object(
            base in word(), size in 0..40_u64, back in 0..20_u64, on in 0..60_u64, length in 0..60_u64
        ) {
            let size = size.min((u64::MAX - base).saturating_add(1));
            let address = base.wrapping_sub(back).wrapping_add(on);
            prop_assert_eq!(fit(base, size, address, length), oracle(base, size, address, length));
        }
    }

    #[test]
    fn nd2_5_3_edges_of_the_address_space() {
        let max = u64::MAX;
        assert_eq!(fit(0, max, 0, max), Fit::Inside(0));
        assert_eq!(fit(max, 1, max, 1), Fit::Inside(0));
        assert_eq!(fit(max, 1, max, 2), Fit::Wraps);
        assert_eq!(fit(max, 1, 0, 1), Fit::Outside);
        assert_eq!(fit(1, max, 1, max), Fit::Inside(0));
        assert_eq!(fit(1, max, 0, 1), Fit::Outside);
        assert_eq!(fit(1, max, 2, max), Fit::Wraps);
        assert_eq!(fit(5, 0, 5, 0), Fit::Inside(0));
        assert_eq!(fit(5, 0, 6, 0), Fit::Outside);
    }

    #[test]
    fn nothing_wraps_before_the_last_byte() {
        assert!(!wraps(u64::MAX, 1));
        assert!(wraps(u64::MAX, 2));
        assert!(!wraps(u64::MAX, 0));
        assert!(!wraps(0, u64::MAX));
        assert!(wraps(1, u64::MAX) == (1_u128 + u128::from(u64::MAX) > 1 << 64));
        assert!(wraps(2, u64::MAX));
    }
}
