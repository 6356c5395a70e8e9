//! Atomics on memory that may vanish under us (design rule 8): one instruction of the processor with a
//! lock prefix, so that the program's own atomics and those of every connection see one order.

use transom_wire::Atomic;

/// The memory was not there, or this processor has no such instruction here: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vanished;

/// Whether this machine has atomics on memory that may vanish.
pub const ATOMICS: bool = cfg!(target_arch = "x86_64");

/// Carry out an atomic on the word at `host`: what it held before.
///
/// # Safety
/// `host` is a multiple of 8, and its eight bytes are registered, as in
/// [`copy_in`](super::copy_in). They need not be mapped.
pub unsafe fn atomic(host: u64, operation: Atomic) -> Result<u64, Vanished> {
    let address = usize::try_from(host).map_err(|_| Vanished)?;
    // SAFETY: the caller's promise; a fault on the word is recovered.
    unsafe { machine::atomic(address as *mut u64, operation) }
}

/// x86-64: assembly whose faults the handler in [`super::fault`] redirects.
#[cfg(target_arch = "x86_64")]
pub(super) mod machine {
    use super::{Atomic, Vanished};

    // rdi = word, rsi = operand, rdx = where the word's old value goes (ours, never gone); of the swap
    // rcx = the value to compare with. Returns 0, or 1 after a fault, which resumes at the end.
    std::arch::global_asm!(
        text_section!("transom_atomic"),
        hidden!("__transom_atomic_0_1_add"),
        ".globl __transom_atomic_0_1_add",
        hidden!("__transom_atomic_0_1_swap"),
        ".globl __transom_atomic_0_1_swap",
        hidden!("__transom_atomic_0_1_fault"),
        ".globl __transom_atomic_0_1_fault",
        ".p2align 5",
        "__transom_atomic_0_1_add:",
        "lock xadd [rdi], rsi",
        "mov [rdx], rsi",
        "xor eax, eax",
        "ret",
        "__transom_atomic_0_1_swap:",
        "mov rax, rcx",
        "lock cmpxchg [rdi], rsi",
        "mov [rdx], rax",
        "xor eax, eax",
        "ret",
        "__transom_atomic_0_1_fault:",
        "mov eax, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "sysv64" {
        fn __transom_atomic_0_1_add(word: *mut u64, add: u64, old: *mut u64) -> u32;
        fn __transom_atomic_0_1_swap(word: *mut u64, swap: u64, old: *mut u64, compare: u64)
        -> u32;
        static __transom_atomic_0_1_fault: u8;
    }

    pub(super) unsafe fn atomic(word: *mut u64, operation: Atomic) -> Result<u64, Vanished> {
        super::super::fault::install();
        let mut old = 0;
        // SAFETY: `word` is the caller's promise, and a fault on it is recovered by the handler that was
        // installed just now; `old` is ours.
        let failed = unsafe {
            match operation {
                Atomic::FetchAdd { add } => __transom_atomic_0_1_add(word, add, &raw mut old),
                Atomic::CompareSwap { compare, swap } => {
                    __transom_atomic_0_1_swap(word, swap, &raw mut old, compare)
                }
            }
        };
        if failed == 0 { Ok(old) } else { Err(Vanished) }
    }

    /// Where a fault at instruction `at` is to be resumed, if it is ours.
    pub(in super::super) fn resume(at: usize) -> Option<usize> {
        let start = (__transom_atomic_0_1_add as *const ()).addr();
        let fault = (&raw const __transom_atomic_0_1_fault).addr();
        (start..fault).contains(&at).then_some(fault)
    }
}

/// Elsewhere: the kernel has no call that changes a word of ours atomically and survives its absence.
#[cfg(not(target_arch = "x86_64"))]
pub(super) mod machine {
    use super::{Atomic, Vanished};

    pub(super) unsafe fn atomic(_: *mut u64, _: Atomic) -> Result<u64, Vanished> {
        Err(Vanished)
    }
}
