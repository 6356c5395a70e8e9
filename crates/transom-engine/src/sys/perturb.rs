//! Pauses where threads meet each other and the system, so that rare interleavings happen often. Nothing but
//! in the builds of `scripts/perturb`.

/// A moment at which this thread may be overtaken.
#[inline]
pub(crate) fn perturb() {
    #[cfg(transom_perturb)]
    pauses::perturb();
}

#[cfg(transom_perturb)]
mod pauses {
    use std::cell::Cell;
    use std::time::Duration;

    /// Of this many moments one is a pause, and one in a few of these is a long one.
    const PAUSES: u64 = 96;
    const LONG: u64 = 4;
    const LONGEST: u64 = 2_000_000; // ns

    thread_local! {
        static NEXT: Cell<u64> = Cell::new(crate::sys::now().0 | 1);
    }

    pub(super) fn perturb() {
        // xorshift64
        let mut x = NEXT.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        NEXT.set(x);
        let (draw, length) = (x % PAUSES, (x >> 32) % LONGEST);
        match draw {
            0 if (x >> 16).is_multiple_of(LONG) => std::thread::sleep(Duration::from_nanos(length)),
            0 => std::thread::yield_now(),
            _ => {}
        }
    }
}
