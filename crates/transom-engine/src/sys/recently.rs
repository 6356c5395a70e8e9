//! A clock for callers that ask in every poll.

#[cfg(target_arch = "x86_64")]
use std::cell::Cell;

use transom_wire::Time;

use super::now;

/// Monotonic time, at most 5 microseconds ago, and usually 2: for callers that ask in every poll. A
/// counter of the processor, which costs a quarter of the clock, shows whether this thread's last
/// reading is as young as that.
#[cfg(target_arch = "x86_64")]
#[must_use]
#[inline]
pub fn recently() -> Time {
    /// No processor counts slower than 1 GHz.
    const YOUNG: u64 = 5000;
    thread_local! {
        static READ: Cell<(u64, Time)> = const { Cell::new((0, Time(0))) };
    }
    // SAFETY: every x86-64 processor has the instruction; it reads a register.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    let (then, time) = READ.get();
    // A counter that went backwards, on another processor, makes this difference large.
    if ticks.wrapping_sub(then) < YOUNG {
        return time;
    }
    let time = now();
    READ.set((ticks, time));
    time
}

/// How many processors this process may use, as far as could be found out when it was first asked.
pub(crate) fn processors() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Monotonic time.
#[cfg(not(target_arch = "x86_64"))]
#[must_use]
pub fn recently() -> Time {
    now()
}
