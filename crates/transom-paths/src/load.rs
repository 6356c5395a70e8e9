//! Libraries that a program loads by itself: a libibverbs or librdmacm of its own, under its plain name or
//! the one that wheels of Python give it (`libibverbs-1de1263b.so.1`), is the one beside this library
//! instead (Verbs V157).
//!
//! The C library takes the caller of `dlopen` from the return address, and looks through that caller's
//! `DT_RUNPATH` and `$ORIGIN`. A function that calls the next `dlopen` would take the caller's place, so this one
//! jumps there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{missing, next, rewrite};

/// The names of Transom's libraries, and how the names begin that they stand for.
const LED: [(&[u8], &CStr); 2] =
    [(b"libibverbs", c"libibverbs.so.1"), (b"librdmacm", c"librdmacm.so.1")];

/// As `dlopen`.
///
/// # Safety
/// The C library's contract.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(_path: *const c_char, _mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {lead}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov rdi, rax",
        "jmp rdx",
        lead = sym lead,
    )
}

/// Two registers (System V ABI of x86-64, 3.2.3): the path, and where to go on.
#[repr(C)]
struct Lead {
    path: *const c_char,
    next: *mut c_void,
}

/// Where a call of `dlopen` goes on, and with which path.
///
/// # Safety
/// Null, or a C string.
unsafe extern "C" fn lead(path: *const c_char) -> Lead {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let found = next(&NEXT, c"dlopen");
    let next = if found.is_null() { nothing as *mut c_void } else { found };
    if path.is_null() {
        return Lead { path, next };
    }
    // SAFETY: this function's contract.
    let ours = stands_for(unsafe { CStr::from_ptr(path) }.to_bytes()).and_then(beside);
    Lead { path: ours.unwrap_or(path), next }
}

/// Called where no library has a `dlopen`.
extern "C" fn nothing() -> *mut c_void {
    missing();
    std::ptr::null_mut()
}

/// Whether a path is that of a libibverbs, Transom's or another.
pub(crate) fn is_libibverbs(path: &[u8]) -> bool {
    stands_for(path) == Some(0)
}

/// The library of Transom that is meant by a path: the last part is its name, alone or with a word behind a
/// `-`, and `.so` follows.
fn stands_for(path: &[u8]) -> Option<usize> {
    let file = path.rsplit(|byte| *byte == b'/').next()?;
    LED.iter().position(|(begin, _)| {
        let Some(rest) = file.strip_prefix(*begin) else { return false };
        let end = rest.iter().position(|byte| *byte == b'.').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        (word.is_empty() || word.starts_with(b"-")) && rest.starts_with(b".so")
    })
}

/// The path of one of Transom's libraries, found once: where this library lies, if it is there.
fn beside(which: usize) -> Option<*const c_char> {
    static PATHS: [AtomicPtr<c_char>; 2] =
        [const { AtomicPtr::new(std::ptr::null_mut()) }; LED.len()];
    let known = PATHS.get(which)?;
    let mut path = known.load(Ordering::Acquire);
    if path.is_null() {
        path = find(LED.get(which)?.1)?;
        // Another thread may have found it, too: both names are right, and one is left.
        known.store(path, Ordering::Release);
    }
    Some(path)
}

/// A C string that is never given back.
fn find(name: &CStr) -> Option<*mut c_char> {
    // Programs that `transom run` has not led here are left alone.
    // SAFETY: the value is not kept.
    unsafe { rewrite::variable(c"TRANSOM_SYSFS") }?;
    // SAFETY: zeros are a value of it.
    let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of this library, and room for what is known of it.
    if unsafe { libc::dladdr(lead as *const c_void, &raw mut own) } == 0 {
        return None;
    }
    // SAFETY: the name of a loaded library is a C string.
    let own = unsafe { CStr::from_ptr(own.dli_fname) }.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/')? + 1;
    let mut path = own.get(..folder)?.to_vec();
    path.extend_from_slice(name.to_bytes_with_nul());
    let path = path.leak().as_mut_ptr().cast::<c_char>();
    // SAFETY: a C string.
    (unsafe { libc::access(path, libc::R_OK) } == 0).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v157_names_that_stand_for_a_library() {
        for (path, which) in [
            ("libibverbs.so", Some(0)),
            ("libibverbs.so.1", Some(0)),
            ("/opt/wheel.libs/libibverbs-1de1263b.so.1.14.48.0", Some(0)),
            ("librdmacm.so.1", Some(1)),
            ("../librdmacm-9.so", Some(1)),
            ("libibverbs", None),
            ("libibverbsx.so", None),
            ("libibverbs_testing.so", None),
            ("pyverbs/libibverbs.cpython-311-x86_64-linux-gnu.so", None),
            ("pyverbs/libibverbs_enums.cpython-311-x86_64-linux-gnu.so", None),
            ("libibverbs.so/libmlx5.so", None),
            ("/usr/lib/libibverbs/libmlx5-rdmav34.so", None),
            ("xlibibverbs.so.1", None),
            ("", None),
        ] {
            assert_eq!(stands_for(path.as_bytes()), which, "{path}");
        }
    }
}
