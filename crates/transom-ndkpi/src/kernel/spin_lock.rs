//! `KSPIN_LOCK`, and the interrupt request level that it raises.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread outside of every spin lock.
pub const PASSIVE_LEVEL: u8 = 0;
/// A thread that holds a spin lock.
pub const DISPATCH_LEVEL: u8 = 2;

/// Looks at a lock before the processor is left to its holder, which may wait for one.
const LOOKS: u32 = 64;

/// `KSPIN_LOCK`: 0 while it is free.
pub type KSpinLock = AtomicUsize;

thread_local! {
    static LEVEL: Cell<u8> = const { Cell::new(PASSIVE_LEVEL) };
}

/// Set a lock up, free.
///
/// # Safety
/// No thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeInitializeSpinLock(lock: &KSpinLock) {
    lock.store(0, Ordering::Relaxed);
}

/// The interrupt request level of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn KeGetCurrentIrql() -> u8 {
    LEVEL.get()
}

/// Raise this thread to `DISPATCH_LEVEL` and take the lock. A thread that has it already waits for
/// ever, as in the original.
///
/// # Safety
/// The lock was set up, `before` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeAcquireSpinLock(lock: &KSpinLock, before: *mut u8) {
    let level = LEVEL.replace(DISPATCH_LEVEL);
    // SAFETY: this function's contract.
    unsafe {
        before.write(level);
        KeAcquireSpinLockAtDpcLevel(lock);
    }
}

/// Let the lock go, and lower this thread to `level`.
///
/// # Safety
/// This thread has taken the lock, and `level` is what that said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeReleaseSpinLock(lock: &KSpinLock, level: u8) {
    // SAFETY: this function's contract.
    unsafe { KeReleaseSpinLockFromDpcLevel(lock) };
    LEVEL.set(level);
}

/// Take the lock, at `DISPATCH_LEVEL` already.
///
/// # Safety
/// The lock was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeAcquireSpinLockAtDpcLevel(lock: &KSpinLock) {
    while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        let mut looks = 0;
        while lock.load(Ordering::Relaxed) != 0 {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Let the lock go, and stay at `DISPATCH_LEVEL`.
///
/// # Safety
/// This thread has taken the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn KeReleaseSpinLockFromDpcLevel(lock: &KSpinLock) {
    lock.store(0, Ordering::Release);
}
