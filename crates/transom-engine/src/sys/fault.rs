//! The routines of this module that a fault may end, and the handler that lets them go on.

use super::{atomic, copy, fork_generation};

/// Install the handler if that has not happened yet. One load when it has.
#[inline]
pub(super) fn install() {
    if !transom_os::signals::is_installed() {
        recheck();
    }
}

/// Install the handler, or put it back on top if the program has installed another one since.
/// Asked at registration, because asking costs a system call per signal.
#[cold]
pub fn recheck() {
    let routines = [
        copy::machine::resume,
        atomic::machine::resume,
        #[cfg(all(target_arch = "x86_64", not(windows)))]
        transom_os::share::resume,
    ];
    transom_os::signals::recheck(fork_generation(), &routines);
}

/// A lock that its thread does not give back.
#[cfg(test)]
pub(crate) fn hold() -> impl Drop {
    transom_os::signals::Held::take(fork_generation())
}
