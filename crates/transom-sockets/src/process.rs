//! Which process this is, and whether the library has anything to do in it.
//!
//! A child of `fork` begins anew at the first call of the library that it makes, be that in a handler of
//! `pthread_atfork` that others have registered, before or behind this library's. A page that the kernel clears
//! in a child says that the process is a new one, however it was made.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use super::{cancel, epoll, lock, offer, said, started, sys, table, young};

/// A page that is cleared in the child of a fork, however it was made, and not in one of `vfork`. Its first word
/// is 1 once the library knows the process.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// The process that the library knows.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// How many forks lie between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The number in the parent of the thread that has forked.
static FORMER: AtomicU32 = AtomicU32::new(0);

/// [`UNDECIDED`], [`ON`] or [`OFF`].
static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// Whether the rules leave this program out, which has inherited no switched connection either: all of its calls go
/// on to the next definition of their name.
#[inline]
pub(crate) fn is_left_out() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNDECIDED => decide(),
        mode => mode == OFF,
    }
}

#[cold]
fn decide() -> bool {
    let out = offer::leaves_out() && !offer::inherits();
    MODE.store(if out { OFF } else { ON }, Ordering::Relaxed);
    out
}

/// How many forks lie between this process and the first one under the switch.
#[inline]
pub(crate) fn generation() -> u32 {
    // SAFETY: the page is never unmapped.
    if let Some(word) = unsafe { PAGE.load(Ordering::Acquire).as_ref() }
        && word.load(Ordering::Acquire) == 0
        && word.swap(1, Ordering::AcqRel) == 0
    {
        begin();
    }
    GENERATION.load(Ordering::Relaxed)
}

/// The number in the parent of the thread that has forked.
pub(crate) fn former_thread() -> u32 {
    FORMER.load(Ordering::Relaxed)
}

/// This process is the child of a fork.
#[cold]
fn begin() {
    FORMER.store(lock::forget_thread(), Ordering::Relaxed);
    PROCESS.store(sys::pid(), Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    cancel::after_fork();
    young::forked(true);
    epoll::after_fork();
    table::after_fork();
    said::after_fork();
}

/// Whether the table is this process's: not in the child of `vfork`, which has its own descriptors and its
/// parent's memory.
pub(crate) fn may_change() -> bool {
    generation();
    PROCESS.load(Ordering::Relaxed) == sys::pid()
}

extern "C" fn in_parent() {
    young::forked(false);
}

extern "C" fn in_child() {
    if PAGE.load(Ordering::Acquire).is_null() {
        begin();
    }
    generation();
}

/// The library is loaded.
extern "C" fn start() {
    if is_left_out() {
        return;
    }
    PROCESS.store(sys::pid(), Ordering::Relaxed);
    started::begin();
    said::begin();
    if let Some(page) = sys::page_wiped_on_fork() {
        // SAFETY: a fresh page, for good.
        unsafe { &*page }.store(1, Ordering::Relaxed);
        PAGE.store(page, Ordering::Release);
    }
    // SAFETY: the functions stay as long as the library does, which is for good.
    let _: c_int = unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
