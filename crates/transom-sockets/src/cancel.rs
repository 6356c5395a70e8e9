//! Threads that are cancelled (`pthread_cancel`) while they sleep in a call of this library.
//!
//! Calls that wait are points at which a cancelled thread ends (pthreads(7)). The C library's calls end it from a handler of
//! a signal, in the midst of the system call. Here calls use connections, and give them back when they return: so a
//! sleep that is cancelled ends with `EINTR`, the call returns to its outermost frame, which has nothing to give back
//! any more, and ends the thread from there ([`point`]).
//!
//! The thread that cancels raises a count, and then looks for the other one among those that sleep. A thread that goes
//! to sleep enters itself there, and then compares the count with that of the start of its call. At least one of the
//! two sees the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::lock;
use super::sys::{self, Errno};

/// How often a thread of this process was cancelled.
static CANCELS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// [`CANCELS`] when this thread's call began.
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// A place of a thread that sleeps: [`FREE`], [`TAKEN`], or which one.
struct Place {
    thread: AtomicUsize,
    number: AtomicU32,
    /// Threads that send signals to the one that sleeps here.
    wakers: AtomicU32,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

/// More threads that sleep at once cannot be cancelled meanwhile.
static PLACES: [Place; 1024] = [const {
    Place { thread: AtomicUsize::new(FREE), number: AtomicU32::new(0), wakers: AtomicU32::new(0) }
}; 1024];

/// How long a cancel goes on with waking a thread, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// This thread sleeps.
struct Asleep(Option<&'static Place>);

impl Asleep {
    fn new() -> Asleep {
        // SAFETY: no argument.
        let thread = unsafe { libc::pthread_self() } as usize;
        // Threads' numbers are addresses, megabytes apart.
        let first = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let (order, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        let free = |at: &usize| {
            let place = &PLACES[(first + at) % PLACES.len()];
            place.thread.compare_exchange(FREE, TAKEN, order, failed).is_ok()
        };
        let found = (0..PLACES.len()).find(free).map(|at| &PLACES[(first + at) % PLACES.len()]);
        if let Some(place) = found {
            place.number.store(lock::thread(), Ordering::Relaxed);
            place.thread.store(thread, Ordering::SeqCst);
        }
        Asleep(found)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let Some(place) = self.0 else { return };
        place.thread.store(FREE, Ordering::SeqCst);
        // A signal that is on its way must not end the next sleep.
        while place.wakers.load(Ordering::SeqCst) > 0 {
            sys::yield_now();
        }
        if CANCELS.load(Ordering::SeqCst) != SEEN.get() {
            // The kernel hands it over by the end of this call.
            sys::yield_now();
        }
    }
}

/// Sleep. `EINTR`, as by a signal: a thread was cancelled since this call began, perhaps this one.
pub(crate) fn asleep<T>(sleep: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _asleep = Asleep::new();
    if CANCELS.load(Ordering::SeqCst) != SEEN.get() { Err(libc::EINTR) } else { sleep() }
}

/// This call must not end before it is done: cancels until now do not wake it.
pub(crate) fn goes_on() {
    SEEN.set(CANCELS.load(Ordering::SeqCst));
}

/// A call that waits begins: a cancelled thread ends here. Nothing on this thread's stack above the program's frames has
/// anything to give back.
#[inline]
pub(crate) fn point() {
    if CANCELS.load(Ordering::Relaxed) != 0 {
        end_if_cancelled();
    }
}

#[cold]
fn end_if_cancelled() {
    goes_on();
    // SAFETY: the frames up to the program's own have nothing to drop, and let the C library unwind them.
    unsafe { pthread_testcancel() };
}

/// Whether a call that has failed did so because a thread was cancelled: it begins again, at its [`point`].
#[inline]
pub(crate) fn is_interrupted(failed: bool) -> bool {
    failed && CANCELS.load(Ordering::Relaxed) != 0 && {
        // SAFETY: the location is this thread's own.
        let error = unsafe { *libc::__errno_location() };
        error == libc::EINTR && CANCELS.load(Ordering::SeqCst) != SEEN.get()
    }
}

/// A thread was cancelled: wake it, if it sleeps in a call.
pub(crate) fn cancelled(thread: libc::pthread_t) {
    CANCELS.fetch_add(1, Ordering::SeqCst);
    let thread = thread as usize;
    let begin = sys::now();
    let is_there = |place: &Place| place.thread.load(Ordering::SeqCst) == thread;
    for place in PLACES.iter().filter(|place| is_there(place)) {
        place.wakers.fetch_add(1, Ordering::SeqCst);
        // A thread that has said so may not sleep yet.
        while is_there(place)
            && sys::now() - begin < LONGEST
            && sys::interrupt_for_cancel(place.number.load(Ordering::Relaxed))
        {
            sys::yield_now();
        }
        place.wakers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In the child of a fork, none of these threads is there.
pub(crate) fn after_fork() {
    for place in &PLACES {
        place.thread.store(FREE, Ordering::Relaxed);
        place.wakers.store(0, Ordering::Relaxed);
    }
}
