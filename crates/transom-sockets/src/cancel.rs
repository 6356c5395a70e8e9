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
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

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
    /// The thread's number, or [`NOBODY`]. The thread that wakes it sleeps on this word.
    number: AtomicU32,
    /// Threads that send signals to the one that sleeps here, which waits for their end on this word.
    wakers: AtomicU32,
}

const FREE: usize = 0;
const TAKEN: usize = 1;
/// The number of a thread that is leaving its place.
const NOBODY: u32 = 0;
/// Between two looks of a thread that is told of what it waits for.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Places of threads that sleep, and more of them where these were all taken once. None is ever freed.
struct Places {
    places: [Place; 1024],
    more: AtomicPtr<Places>,
}

static PLACES: Places = Places::new();

impl Places {
    const fn new() -> Places {
        let places = [const {
            Place {
                thread: AtomicUsize::new(FREE),
                number: AtomicU32::new(NOBODY),
                wakers: AtomicU32::new(0),
            }
        }; 1024];
        Places { places, more: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Places> {
        // SAFETY: made by `extended`, and never freed.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    /// The ones behind these, made if there are none.
    #[cold]
    fn extended(&self) -> &'static Places {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Places::new()));
        let (none, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        match self.more.compare_exchange(none, new, order, Ordering::Acquire) {
            // SAFETY: just made, or made by another thread, and never freed.
            Ok(_) => unsafe { &*new },
            Err(others) => {
                // SAFETY: made above, and known to nobody.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above.
                unsafe { &*others }
            }
        }
    }

    /// A free place among these, which is the caller's from now on; `first` says where a look for it begins.
    fn take(&self, first: usize) -> Option<&Place> {
        let (order, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        let free = |place: &&Place| {
            place.thread.load(failed) == FREE
                && place.thread.compare_exchange(FREE, TAKEN, order, failed).is_ok()
        };
        let at = |step: usize| self.places.get((first + step) % self.places.len());
        (0..self.places.len()).filter_map(at).find(free)
    }
}

/// Each place that there is.
fn all() -> impl Iterator<Item = &'static Place> {
    std::iter::successors(Some(&PLACES), |places| places.next()).flat_map(|places| &places.places)
}

/// How long a cancel goes on with waking a thread, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// This thread sleeps.
struct Asleep(&'static Place);

impl Asleep {
    fn new() -> Asleep {
        // SAFETY: no argument.
        let thread = unsafe { libc::pthread_self() } as usize;
        // Threads' numbers are addresses, megabytes apart.
        let first = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut places: &'static Places = &PLACES;
        let place = loop {
            match places.take(first) {
                Some(place) => break place,
                None => places = places.extended(),
            }
        };
        place.number.store(lock::thread(), Ordering::Relaxed);
        place.thread.store(thread, Ordering::SeqCst);
        Asleep(place)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let place = self.0;
        place.number.store(NOBODY, Ordering::SeqCst);
        place.thread.store(FREE, Ordering::SeqCst);
        // A signal that is on its way must not end the next sleep.
        loop {
            let wakers = place.wakers.load(Ordering::SeqCst);
            if wakers == 0 {
                break;
            }
            sys::wake(&place.number, i32::MAX);
            let _ = sys::sleep_on(&place.wakers, wakers, A_MOMENT);
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

// Not inlined: the address of a thread's own word costs its callers a call, whether or not they use it.
#[cold]
#[inline(never)]
fn end_if_cancelled() {
    goes_on();
    // SAFETY: the frames up to the program's own have nothing to drop, and let the C library unwind them.
    unsafe { pthread_testcancel() };
}

/// Whether a call that has failed did so because a thread was cancelled: it begins again, at its [`point`].
#[inline]
pub(crate) fn is_interrupted(failed: bool) -> bool {
    failed && CANCELS.load(Ordering::Relaxed) != 0 && is_cancel()
}

#[cold]
#[inline(never)]
fn is_cancel() -> bool {
    // SAFETY: the location is this thread's own.
    let error = unsafe { *libc::__errno_location() };
    error == libc::EINTR && CANCELS.load(Ordering::SeqCst) != SEEN.get()
}

/// A thread was cancelled: wake it, if it sleeps in a call.
pub(crate) fn cancelled(thread: libc::pthread_t) {
    CANCELS.fetch_add(1, Ordering::SeqCst);
    let thread = thread as usize;
    let begin = sys::now();
    let is_there = |place: &Place| place.thread.load(Ordering::SeqCst) == thread;
    for place in all().filter(|place| is_there(place)) {
        place.wakers.fetch_add(1, Ordering::SeqCst);
        // A thread that has said so may not sleep yet.
        while is_there(place) && sys::now() - begin < LONGEST {
            let number = place.number.load(Ordering::SeqCst);
            if number == NOBODY || !sys::interrupt_for_cancel(number) {
                break;
            }
            let _ = sys::sleep_on(&place.number, number, A_MOMENT);
        }
        place.wakers.fetch_sub(1, Ordering::SeqCst);
        sys::wake(&place.wakers, 1);
    }
}

/// In the child of a fork, none of these threads is there.
pub(crate) fn after_fork() {
    for place in all() {
        place.thread.store(FREE, Ordering::Relaxed);
        place.wakers.store(0, Ordering::Relaxed);
    }
}
