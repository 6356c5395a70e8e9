//! Copies to and from memory of the program, which need not be there.

std::arch::global_asm!(
    ".pushsection .text.transom_user,\"ax\",@progbits",
    ".hidden __transom_user_copy",
    ".globl __transom_user_copy",
    ".p2align 5",
    // rdi: to, rsi: from, rdx: how many. Answers how many were not copied; rcx counts them at each moment.
    "__transom_user_copy:",
    "mov rcx, rdx",
    "cmp rcx, 512",
    "jae 5f",
    "2:",
    "cmp rcx, 16",
    "jb 3f",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "sub rcx, 16",
    "jmp 2b",
    "3:",
    "cmp rcx, 8",
    "jb 4f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rcx, 8",
    "4:",
    "test rcx, rcx",
    "jz 6f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jmp 4b",
    "5:",
    "rep movsb",
    ".hidden __transom_user_copy_end",
    ".globl __transom_user_copy_end",
    "__transom_user_copy_end:",
    "6:",
    "mov rax, rcx",
    "ret",
    ".popsection",
);

unsafe extern "sysv64" {
    fn __transom_user_copy(to: *mut u8, from: *const u8, count: usize) -> usize;
    static __transom_user_copy_end: u8;
}

/// Copy `count` bytes; how many were copied. Fewer: the program has no memory there.
///
/// # Safety
/// No reference to memory of this library's own lies in what is written.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) -> usize {
    // SAFETY: the caller's; a fault at either side ends the copy.
    count - unsafe { __transom_user_copy(to, from, count) }
}
