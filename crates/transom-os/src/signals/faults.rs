//! Copies of memory that may vanish: a handler for SIGSEGV and SIGBUS that lets a routine go on behind a fault of
//! its own.
//!
//! The handler acts on faults of the routines that it was told of, and hands every other one to the handler that
//! was there before. A program that installs a handler of its own later sees these faults first, until
//! [`recheck`] puts this one on top again.
//!
//! A fault whose signal its thread blocks ends the process, whatever handlers there are: the instruction cannot go on
//! without its signal (sigprocmask(2)). Services block every signal, these two among them (`sigfillset`), in
//! each of their threads but one. So each thread lets the two through before its first copy, once.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Where a fault at an instruction is to be resumed, if the instruction is one of the routine's. Called by a
/// handler of a signal.
pub type Resume = fn(usize) -> Option<usize>;

/// The routines: addresses of functions of the type [`Resume`], or 0.
static ROUTINES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// The handlers that were there before ours: the very first, and the one found last. They differ
/// when a program installed another one on top and we went on top of that again. Each is one word, so
/// that a fault in another thread reads the old one or the new one.
struct Previous {
    first: AtomicUsize,
    latest: AtomicUsize,
}

/// A handler with three arguments, in a word beside its address: no address of a program has this bit.
const THREE: usize = 1 << (usize::BITS - 1);

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
static PREVIOUS: [Previous; 2] =
    [const { Previous { first: AtomicUsize::new(0), latest: AtomicUsize::new(0) } }; 2];
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Admits one thread of this process at a time. No mutex: a forked child whose parent's other
/// thread held it would wait for ever. The child takes this lock over instead; it sees the handlers
/// as they are, and repeats whatever was half done.
#[derive(Debug)]
pub struct Held(());

/// The holder: 0, or one more than the generation of the process.
static HOLDER: AtomicU64 = AtomicU64::new(0);

impl Held {
    /// Wait for other threads of this process, which has this many forks between it and its first ancestor.
    #[must_use]
    pub fn take(generation: u64) -> Held {
        let mine = generation.wrapping_add(1);
        loop {
            let holder = HOLDER.load(Ordering::Relaxed);
            let free = holder != mine;
            let taken = |holder| {
                HOLDER.compare_exchange(holder, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            if free && taken(holder) {
                return Held(());
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

thread_local! {
    /// The handler is installed, and this thread has let its signals through.
    static READY: Cell<bool> = const { Cell::new(false) };
}

/// Whether the handler is installed.
#[inline]
#[must_use]
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Before a copy: [`recheck`], if that has not happened yet, and let the signals through in this thread.
#[inline]
pub fn prepare(generation: impl FnOnce() -> u64, routines: &[Resume]) {
    if !READY.get() {
        begin(generation(), routines);
    }
}

#[cold]
fn begin(generation: u64, routines: &[Resume]) {
    if !is_installed() {
        recheck(generation, routines);
    }
    let_through();
    READY.set(true);
}

/// Signals that a process has sent, and this thread holds back, stay where they are: nobody expects them now.
fn let_through() {
    // SAFETY: zeros are a value of this type, and the kernel reads and writes these sets.
    unsafe {
        let [mut waiting, mut ours] = std::mem::zeroed::<[libc::sigset_t; 2]>();
        libc::sigpending(&raw mut waiting);
        for signal in SIGNALS {
            if libc::sigismember(&raw const waiting, signal) != 1 {
                libc::sigaddset(&raw mut ours, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const ours, std::ptr::null_mut());
    }
}

/// Install the handler for these routines and those of earlier calls, or put it back on top if the program has
/// installed another one since. It costs a system call for each of the two signals. `generation`: how many forks
/// lie between this process and its first ancestor; a child takes over what a thread of its parent had begun.
///
/// A library of a process can tell of four routines.
#[cold]
pub fn recheck(generation: u64, routines: &[Resume]) {
    let _one = Held::take(generation);
    for routine in routines {
        let word = *routine as usize;
        let place = |known: &&AtomicUsize| [0, word].contains(&known.load(Ordering::Relaxed));
        if let Some(place) = ROUTINES.iter().find(place) {
            place.store(word, Ordering::Release);
        }
    }
    let first_time = !INSTALLED.load(Ordering::Relaxed);
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks for the current action; `now` is room for it.
        if unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: filled in by the call above; all-zero bytes are a valid sigaction too.
        let now = unsafe { now.assume_init() };
        if now.sa_sigaction == handler as *const () as usize {
            continue;
        }
        let three = if now.sa_flags & libc::SA_SIGINFO == 0 { 0 } else { THREE };
        if first_time {
            previous.first.store(now.sa_sigaction | three, Ordering::Release);
        }
        previous.latest.store(now.sa_sigaction | three, Ordering::Release);
        let mut ours = now;
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | (now.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
        // SAFETY: `ours` is a complete action; the handler is async-signal-safe.
        unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) };
    }
    INSTALLED.store(true, Ordering::Release);
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes both; si_code > 0 means that the kernel raised the
    // signal for an instruction of this thread, not that a process sent it.
    if unsafe { (*info).si_code } > 0 && redirect(context) {
        return;
    }
    chain(signal, info, context);
}

#[cfg(target_arch = "x86_64")]
fn redirect(context: *mut libc::c_void) -> bool {
    // SAFETY: the kernel's context of the interrupted thread, writable until we return.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let Some(at) = registers.get_mut(libc::REG_RIP as usize) else { return false };
    let fault = *at as usize;
    let resumed = ROUTINES.iter().find_map(|routine| {
        let routine = routine.load(Ordering::Acquire);
        // SAFETY: a function of this type, or 0, which is none.
        unsafe { std::mem::transmute::<usize, Option<Resume>>(routine) }?(fault)
    });
    if let Some(to) = resumed {
        *at = to as i64;
    }
    resumed.is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn redirect(_context: *mut libc::c_void) -> bool {
    false
}

/// Mark the context of a fault as handed on. `true`: this handler has had it before, and the handler that
/// was found last has called it back.
///
/// The mark stands in the context, where the kernel writes zero at each delivery and reads nothing when the
/// handler returns. A mark of the thread's would outlive a handler that leaves the fault by `siglongjmp`.
fn mark(context: *mut libc::c_void) -> bool {
    let ours = (&raw const PREVIOUS).cast_mut().cast::<libc::ucontext_t>();
    // SAFETY: the kernel's context of the interrupted thread, or a handler's copy of it, writable until
    // we return.
    let link = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_link };
    std::mem::replace(link, ours) == ours
}

fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = &PREVIOUS[usize::from(signal == libc::SIGBUS)];
    let cell = if mark(context) { &previous.first } else { &previous.latest };
    let found = cell.load(Ordering::Acquire);
    match found & !THREE {
        // The default, and what the kernel does about ignored faults: die. Put the default back and
        // return; the instruction faults again. A signal that a process sent is sent again.
        before @ (libc::SIG_DFL | libc::SIG_IGN) => {
            // SAFETY: sigaction and raise are async-signal-safe; a zeroed action is the default.
            unsafe {
                if before == libc::SIG_IGN && (*info).si_code <= 0 {
                    return;
                }
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        address if found & THREE != 0 => {
            // SAFETY: installed as a three-argument handler of this signal.
            let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute::<usize, _>(address) };
            f(signal, info, context);
        }
        address => {
            // SAFETY: installed as a one-argument handler of this signal.
            let f: extern "C" fn(i32) = unsafe { std::mem::transmute::<usize, _>(address) };
            f(signal);
        }
    }
}
