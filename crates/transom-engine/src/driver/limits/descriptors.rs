//! Shares of the descriptors that this process may have. A connection takes one before any program has taken it, so
//! that peers who are not known yet, or not wanted, could hold all of them, and the program opened no file then.

use crate::sys;

/// A share: one of so many equal parts.
pub(crate) fn share(of: usize) -> usize {
    sys::descriptor_limit().map_or(usize::MAX, |all| (all / of).max(1))
}

/// How many requests of peers may wait for a program: as many as a front takes, and at most a quarter of the
/// descriptors that this process may have.
#[must_use]
pub fn waiting_requests(most: usize) -> usize {
    most.min(share(4))
}
