//! The routines of this module that a fault may end, and the handler that lets them go on.

use super::{atomic, copy, fork_generation};

/// The copies that may fault.
const ROUTINES: &[transom_os::signals::Resume] = &[
    copy::machine::resume,
    atomic::machine::resume,
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    transom_os::share::resume,
];

/// Before each copy: install the handler if that has not happened yet, and let its signals through in this thread.
#[inline]
pub(super) fn install() {
    transom_os::signals::prepare(fork_generation, ROUTINES);
}

/// Install the handler, or put it back on top if the program has installed another one since.
/// Asked at registration, because asking costs a system call per signal.
#[cold]
pub fn recheck() {
    transom_os::signals::recheck(fork_generation(), ROUTINES);
}

/// A lock that its thread does not give back.
#[cfg(test)]
pub(crate) fn hold() -> impl Drop {
    transom_os::signals::Held::take(fork_generation())
}
