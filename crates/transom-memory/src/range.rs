//! The one place where ranges are compared (ND2 5.3).

/// How a range relates to the object it was asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Inside.
    Inside,
    /// Address and length wrap around the end of the address space.
    Wraps,
    /// Not inside.
    Outside,
}

/// Whether `[address, address + length)` lies inside `[base, base + size)`. No sum is ever formed,
/// so nothing can overflow (ND2 5.3: the reference provider's `offset + length` can wrap).
#[inline]
pub(crate) fn fit(base: u64, size: u64, address: u64, length: u64) -> Fit {
    if address >= base && address - base <= size && length <= size - (address - base) {
        Fit::Inside
    } else if wraps(address, length) {
        Fit::Wraps
    } else {
        Fit::Outside
    }
}

/// Whether a range reaches past the last byte of the address space.
#[inline]
pub(crate) fn wraps(address: u64, length: u64) -> bool {
    length > 0 && length - 1 > u64::MAX - address
}
