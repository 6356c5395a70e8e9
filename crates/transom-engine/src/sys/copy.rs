//! Copies to and from memory that may vanish under us (design rule 8): unmapped, protected, or
//! backed by a file that was truncated. A fault ends the copy and says how much was placed.
//!
//! Rule 11: bytes become visible in increasing address order, and the last ones (up to 8, as many
//! as an aligned store holds) by a store of their own that is ordered after all others, because
//! programs spin on them.

/// The memory was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes that were copied before it: exactly the first so many.
    pub placed: usize,
}

/// Bytes that one instruction moves: the length of most small messages, which have a shorter way.
const WORD: usize = 8;

/// Bytes at the end that are published together: the largest aligned power of two that ends where
/// the copy ends, at most 8.
pub(super) fn tail_length(end: usize, length: usize) -> usize {
    if length == 0 {
        return 0;
    }
    let aligned = 1 << (end | 8).trailing_zeros();
    let fits = 1 << length.ilog2();
    aligned.min(fits)
}

/// Write `bytes` to host memory at `host`.
///
/// # Safety
/// The bytes at `host` are registered, and the registration promised that the adapter may write
/// them, that no reference to them exists, and that nothing else (another allocation) takes their
/// place while they are registered. They need not be mapped.
///
/// # Errors
/// [`Fault`], with the bytes that were placed.
#[inline(always)]
pub unsafe fn copy_in(host: u64, bytes: &[u8]) -> Result<(), Fault> {
    let Ok(address) = usize::try_from(host) else { return Err(Fault { placed: 0 }) };
    if bytes.len() == WORD && address.is_multiple_of(WORD) {
        // SAFETY: the source is a live slice of a word; the destination is the caller's promise, and a
        // fault on it is recovered.
        return unsafe { machine::copy_word(address as *mut u8, bytes.as_ptr()) };
    }
    // SAFETY: the source is a live slice; the destination is the caller's promise, and a fault
    // on it is recovered.
    unsafe { copy_in_order(address as *mut u8, bytes.as_ptr(), bytes.len()) }
}

/// Copy to memory that programs may spin on.
unsafe fn copy_in_order(to: *mut u8, from: *const u8, length: usize) -> Result<(), Fault> {
    let tail = tail_length(to.addr().wrapping_add(length), length);
    // SAFETY: the caller's promises.
    unsafe { machine::copy(to, from, length, tail) }
}

/// Read `into.len()` bytes of host memory at `host`.
///
/// # Safety
/// The bytes at `host` are registered, and the registration promised that the adapter may read
/// them. They need not be mapped, and may change while they are read.
///
/// # Errors
/// [`Fault`], with the bytes that were read.
#[inline(always)]
pub unsafe fn copy_out(host: u64, into: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the destination is a live exclusive slice; the source is the caller's promise.
    unsafe { copy_out_raw(host, into.as_mut_ptr(), into.len()) }
}

/// [`copy_out`] to memory that need not be initialised.
///
/// # Safety
/// As [`copy_out`]; and `into` is valid for writes of `length` bytes.
#[inline(always)]
pub(crate) unsafe fn copy_out_raw(host: u64, into: *mut u8, length: usize) -> Result<(), Fault> {
    let Ok(address) = usize::try_from(host) else { return Err(Fault { placed: 0 }) };
    if length == WORD {
        // SAFETY: the caller's promises; a fault on the source is recovered.
        return unsafe { machine::copy_word(into, address as *const u8) };
    }
    // SAFETY: the caller's promises; a fault on the source is recovered. No tail: no program spins
    // on our buffer.
    unsafe { machine::copy(into, address as *const u8, length, 0) }
}

/// [`copy_out_raw`] to memory that another process reads next ([`transom_os::share`]).
///
/// # Safety
/// As [`copy_out_raw`].
pub(crate) unsafe fn copy_to_share(host: u64, into: *mut u8, length: usize) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    if length >= transom_os::share::LEAST {
        let Ok(address) = usize::try_from(host) else { return Err(Fault { placed: 0 }) };
        super::fault::install();
        // SAFETY: the caller's promises; a fault on the source is recovered.
        let placed = unsafe { transom_os::share::copy(address as *const u8, into, length) };
        return if placed == length { Ok(()) } else { Err(Fault { placed }) };
    }
    // SAFETY: the caller's promises.
    unsafe { copy_out_raw(host, into, length) }
}

/// Copy registered memory, or memory shared with a peer, to registered memory, as [`copy_in`].
///
/// # Safety
/// As [`copy_in`] for `to` and [`copy_out`] for `from`, for `length` bytes.
pub(crate) unsafe fn copy_across(from: u64, to: u64, length: usize) -> Result<(), Fault> {
    let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else {
        return Err(Fault { placed: 0 });
    };
    // SAFETY: the caller's promises; a fault on either side is recovered.
    unsafe { copy_in_order(to as *mut u8, from as *const u8, length) }
}

/// x86-64: assembly whose faults the handler in [`super::fault`] redirects.
#[cfg(target_arch = "x86_64")]
pub(super) mod machine {
    use super::Fault;

    // rdi = destination, rsi = source, rdx = body, rcx (on entry) = tail: 0, 1, 2, 4 or 8.
    // Returns what was not copied. A fault in the fast loop resumes at the exact one, which repeats
    // the block byte by byte up to the byte that faults; a fault there or in the tail resumes at
    // the end. Plain 16-byte stores in order, because x86 keeps their order (SDM 3A 8.2.2), while
    // the stores of one `rep movsb` may pass each other (8.2.4); what follows it does not.
    std::arch::global_asm!(
        text_section!("transom_copy"),
        hidden!("__transom_copy_0_1"),
        ".globl __transom_copy_0_1",
        hidden!("__transom_copy_0_1_fast"),
        ".globl __transom_copy_0_1_fast",
        hidden!("__transom_copy_0_1_exact"),
        ".globl __transom_copy_0_1_exact",
        hidden!("__transom_copy_0_1_word"),
        ".globl __transom_copy_0_1_word",
        hidden!("__transom_copy_0_1_end"),
        ".globl __transom_copy_0_1_end",
        ".p2align 5",
        "__transom_copy_0_1:",
        "mov r8, rcx",
        "mov rcx, rdx",
        "cmp rcx, 64",
        "jb __transom_copy_0_1_exact",
        "__transom_copy_0_1_fast:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "sub rcx, 64",
        "cmp rcx, 64",
        "jae __transom_copy_0_1_fast",
        "__transom_copy_0_1_exact:",
        "test rcx, rcx",
        "jz 3f",
        // Word by word, then byte by byte: cheaper than `rep movsb` for the few that are left.
        "2:",
        "cmp rcx, 8",
        "jb 4f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub rcx, 8",
        "jmp 2b",
        "4:",
        "test rcx, rcx",
        "jz 3f",
        "mov al, [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rcx",
        "jmp 4b",
        "3:",
        "test r8, r8",
        "jz __transom_copy_0_1_end",
        "cmp r8, 8",
        "jne 5f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "jmp 8f",
        "5:",
        "cmp r8, 4",
        "jne 6f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "jmp 8f",
        "6:",
        "cmp r8, 2",
        "jne 7f",
        "mov ax, [rsi]",
        "mov [rdi], ax",
        "jmp 8f",
        "7:",
        "mov al, [rsi]",
        "mov [rdi], al",
        "jmp 8f",
        // As with body 0 and tail 8.
        "__transom_copy_0_1_word:",
        "xor ecx, ecx",
        "mov r8d, 8",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "8:",
        "xor r8d, r8d",
        "__transom_copy_0_1_end:",
        "lea rax, [rcx + r8]",
        "ret",
        ".popsection",
    );

    unsafe extern "sysv64" {
        fn __transom_copy_0_1(to: *mut u8, from: *const u8, body: usize, tail: usize) -> usize;
        fn __transom_copy_0_1_word(to: *mut u8, from: *const u8) -> usize;
        static __transom_copy_0_1_fast: u8;
        static __transom_copy_0_1_exact: u8;
        static __transom_copy_0_1_end: u8;
    }

    pub(super) unsafe fn copy(
        to: *mut u8,
        from: *const u8,
        length: usize,
        tail: usize,
    ) -> Result<(), Fault> {
        super::super::fault::install();
        // SAFETY: the caller's promise; a fault on either side is recovered by the handler that
        // was installed just now, and both pointers are used for `length` bytes only.
        let left = unsafe { __transom_copy_0_1(to, from, length - tail, tail) };
        if left == 0 { Ok(()) } else { Err(finish(to, from, length, length - left)) }
    }

    /// Copy a word, by one load and one store.
    #[inline(always)]
    pub(super) unsafe fn copy_word(to: *mut u8, from: *const u8) -> Result<(), Fault> {
        super::super::fault::install();
        // SAFETY: as in `copy`, for the bytes of a word.
        let left = unsafe { __transom_copy_0_1_word(to, from) };
        if left == 0 { Ok(()) } else { Err(finish(to, from, super::WORD, 0)) }
    }

    /// The copy stopped at a word; the bytes of it before the edge of the page are placed one by
    /// one, so that the report is exact.
    #[cold]
    fn finish(to: *mut u8, from: *const u8, length: usize, mut placed: usize) -> Fault {
        while placed < length {
            // SAFETY: within the bytes of the copy that has just faulted; same promise.
            let left = unsafe {
                __transom_copy_0_1(to.wrapping_add(placed), from.wrapping_add(placed), 1, 0)
            };
            if left != 0 {
                break;
            }
            placed += 1;
        }
        Fault { placed }
    }

    /// Where a fault at instruction `at` is to be resumed, if it is ours.
    pub(in super::super) fn resume(at: usize) -> Option<usize> {
        let fast = (&raw const __transom_copy_0_1_fast).addr();
        let exact = (&raw const __transom_copy_0_1_exact).addr();
        let end = (&raw const __transom_copy_0_1_end).addr();
        if (fast..exact).contains(&at) {
            Some(exact)
        } else if (exact..end).contains(&at) {
            Some(end)
        } else {
            None
        }
    }
}

/// Elsewhere: the kernel copies, and reports EFAULT.
#[cfg(not(target_arch = "x86_64"))]
pub(super) mod machine {
    use super::Fault;
    use std::sync::atomic::{Ordering, fence};

    pub(super) unsafe fn copy(
        to: *mut u8,
        from: *const u8,
        length: usize,
        tail: usize,
    ) -> Result<(), Fault> {
        let body = length - tail;
        // SAFETY: the caller's promise.
        let placed = unsafe { kernel_copy(to, from, body) };
        if placed < body {
            return Err(Fault { placed });
        }
        fence(Ordering::Release);
        // SAFETY: the caller's promise; the last `tail` bytes.
        let last = unsafe { kernel_copy(to.wrapping_add(body), from.wrapping_add(body), tail) };
        if last < tail { Err(Fault { placed: body + last }) } else { Ok(()) }
    }

    pub(super) unsafe fn copy_word(to: *mut u8, from: *const u8) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, super::WORD, super::WORD) }
    }

    unsafe fn kernel_copy(to: *mut u8, from: *const u8, length: usize) -> usize {
        let mut placed = 0;
        while placed < length {
            let local = libc::iovec {
                iov_base: from.wrapping_add(placed).cast_mut().cast(),
                iov_len: length - placed,
            };
            let remote =
                libc::iovec { iov_base: to.wrapping_add(placed).cast(), iov_len: length - placed };
            // SAFETY: the kernel checks both sides and moves at most `length - placed` bytes
            // between the two ranges that the caller vouches for.
            let n = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
            match usize::try_from(n) {
                Ok(n) if n > 0 => placed += n,
                _ => break,
            }
        }
        placed
    }

    pub(in super::super) fn resume(_at: usize) -> Option<usize> {
        None
    }
}
