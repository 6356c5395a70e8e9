//! Copies to and from memory of the program, which need not be there.

use std::mem::MaybeUninit;

use transom_os::share;

use super::process;
use super::sys::Errno;

std::arch::global_asm!(
    ".pushsection .text.transom_user,\"ax\",@progbits",
    ".hidden __transom_user_copy",
    ".globl __transom_user_copy",
    ".p2align 5",
    // rdi: to, rsi: from, rdx: how many. Answers how many were not copied; rcx counts them at each moment, in blocks
    // of up to 64 bytes.
    "__transom_user_copy:",
    "mov rcx, rdx",
    "cmp rcx, 512",
    "jae 5f",
    "7:",
    "cmp rcx, 64",
    "jb 2f",
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
    "jmp 7b",
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
    "cmp rcx, 4",
    "jb 8f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "sub rcx, 4",
    "jz 6f",
    "8:",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jnz 8b",
    "jmp 6f",
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

/// Where a fault of the copy is resumed.
fn resume(at: usize) -> Option<usize> {
    let begin = __transom_user_copy as *const () as usize;
    let end = (&raw const __transom_user_copy_end).addr();
    (begin..end).contains(&at).then_some(end)
}

/// Before the first copy of a connection: a fault of a copy ends no program from now on. One that has installed
/// a handler for such signals meanwhile keeps it for all other faults.
pub(crate) fn prepare() {
    transom_os::signals::recheck(generation(), ROUTINES);
}

/// [`prepare`], if this process has not yet; and this thread lets through what a fault of a copy raises.
#[inline]
pub(crate) fn prepare_once() {
    transom_os::signals::prepare(generation, ROUTINES);
}

const ROUTINES: &[transom_os::signals::Resume] = &[resume, share::resume];

fn generation() -> u64 {
    u64::from(process::generation())
}

/// Whether faults of a copy are taken care of: since the first call of this process that was served by way of them.
#[inline]
pub(crate) fn is_prepared() -> bool {
    transom_os::signals::is_installed()
}

/// The program's memory at this address. `None`: it has no memory there.
///
/// # Safety
/// Any bytes are a value of this type.
#[inline]
pub(crate) unsafe fn fetch<T: Copy>(at: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value has room for itself.
    let whole = unsafe { fetch_into(at, value.as_mut_ptr(), 1) };
    // SAFETY: all of its bytes were written.
    whole.then(|| unsafe { value.assume_init() })
}

/// As [`fetch`], of so many values, to memory of this library's own. `false`: the program has not all of them.
///
/// # Safety
/// As of `fetch`, and there is room for so many values at `to`.
#[inline]
pub(crate) unsafe fn fetch_into<T: Copy>(at: *const T, to: *mut T, count: usize) -> bool {
    let size = count * size_of::<T>();
    // SAFETY: the caller's.
    !at.is_null() && unsafe { copy(at.cast(), to.cast(), size) } == size
}

/// As [`fetch`], of an argument that may be none.
///
/// # Errors
/// `EFAULT`: the program has no memory there.
///
/// # Safety
/// As of `fetch`.
#[inline]
pub(crate) unsafe fn fetch_optional<T: Copy>(at: *const T) -> Result<Option<T>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    unsafe { fetch(at) }.map(Some).ok_or(libc::EFAULT)
}

/// Give the program a value at this address. `false`: it has no memory there.
#[inline]
pub(crate) fn put<T: Copy>(at: *mut T, value: T) -> bool {
    let from = (&raw const value).cast();
    // SAFETY: the program's memory, and a value of so many bytes.
    !at.is_null() && unsafe { copy(from, at.cast(), size_of::<T>()) } == size_of::<T>()
}

/// Copy `count` bytes; how many were copied. Fewer: the program has no memory there.
///
/// # Safety
/// No reference to memory of this library's own lies in what is written.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) -> usize {
    prepare_once();
    // SAFETY: the caller's; a fault at either side ends the copy.
    count - unsafe { __transom_user_copy(to, from, count) }
}

/// [`copy`] to memory that another process reads next ([`share`]).
///
/// # Safety
/// As of `copy`.
#[inline]
pub(crate) unsafe fn copy_to_share(from: *const u8, to: *mut u8, count: usize) -> usize {
    prepare_once();
    // SAFETY: the caller's; a fault at either side ends the copy.
    unsafe {
        if count < share::LEAST { copy(from, to, count) } else { share::copy(from, to, count) }
    }
}
