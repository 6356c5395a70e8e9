//! A library to be preloaded: calls that take a path go on to the next definition, with the paths of
//! Transom's verbs device changed (Verbs V106), and libraries that a program loads by itself are Transom's
//! ([`load`]). Nothing else is allocated and nothing is started, so the
//! calls serve before `main` and in signal handlers, too. At the end of a process that `transom run` leads
//! to, the library says if no queue pair was made ([`end`]).
#![allow(
    unsafe_code,
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the C library's calls, under its names and contracts"
)]

mod end;
mod load;
mod rewrite;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use rewrite::{LONGEST, instead};

/// The next definition of a call behind this library's.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    found
}

fn missing() {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

/// Each call with its arguments before and behind the path, and its result if there is no next one.
macro_rules! calls {
    ($($name:ident($($before:ident: $b:ty),*; path $(, $after:ident: $a:ty)*) -> $result:ty, $none:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($before: $b,)* path: *const c_char $(, $after: $a)*) -> $result {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const NAME: &str = concat!(stringify!($name), "\0");
                let name = CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default();
                let found = next(&NEXT, name);
                if found.is_null() {
                    missing();
                    return $none;
                }
                type Call = unsafe extern "C" fn($($b,)* *const c_char $(, $a)*) -> $result;
                // SAFETY: the definition of this name in the C library has these arguments. Of the calls
                // that take a mode behind others, the register is passed on, and read if there is one.
                let call = unsafe { std::mem::transmute::<*mut c_void, Call>(found) };
                let mut room = [0; LONGEST];
                // SAFETY: the caller keeps the contract of the C library's call.
                unsafe {
                    let path = instead(path, &mut room);
                    call($($before,)* path $(, $after)*)
                }
            }
        )*
    };
}

type Pointer = *mut c_void;

calls! {
    open(; path, flags: c_int, mode: c_uint) -> c_int, -1;
    open64(; path, flags: c_int, mode: c_uint) -> c_int, -1;
    openat(at: c_int; path, flags: c_int, mode: c_uint) -> c_int, -1;
    openat64(at: c_int; path, flags: c_int, mode: c_uint) -> c_int, -1;
    __open_2(; path, flags: c_int) -> c_int, -1;
    __open64_2(; path, flags: c_int) -> c_int, -1;
    __openat_2(at: c_int; path, flags: c_int) -> c_int, -1;
    __openat64_2(at: c_int; path, flags: c_int) -> c_int, -1;
    fopen(; path, mode: *const c_char) -> Pointer, std::ptr::null_mut();
    fopen64(; path, mode: *const c_char) -> Pointer, std::ptr::null_mut();
    stat(; path, to: Pointer) -> c_int, -1;
    stat64(; path, to: Pointer) -> c_int, -1;
    lstat(; path, to: Pointer) -> c_int, -1;
    lstat64(; path, to: Pointer) -> c_int, -1;
    fstatat(at: c_int; path, to: Pointer, flags: c_int) -> c_int, -1;
    fstatat64(at: c_int; path, to: Pointer, flags: c_int) -> c_int, -1;
    __xstat(version: c_int; path, to: Pointer) -> c_int, -1;
    __xstat64(version: c_int; path, to: Pointer) -> c_int, -1;
    __lxstat(version: c_int; path, to: Pointer) -> c_int, -1;
    __lxstat64(version: c_int; path, to: Pointer) -> c_int, -1;
    __fxstatat(version: c_int, at: c_int; path, to: Pointer, flags: c_int) -> c_int, -1;
    __fxstatat64(version: c_int, at: c_int; path, to: Pointer, flags: c_int) -> c_int, -1;
    statx(at: c_int; path, flags: c_int, mask: c_uint, to: Pointer) -> c_int, -1;
    access(; path, mode: c_int) -> c_int, -1;
    faccessat(at: c_int; path, mode: c_int, flags: c_int) -> c_int, -1;
    chdir(; path) -> c_int, -1;
    opendir(; path) -> Pointer, std::ptr::null_mut();
    scandir(; path, list: Pointer, filter: Pointer, compare: Pointer) -> c_int, -1;
    scandir64(; path, list: Pointer, filter: Pointer, compare: Pointer) -> c_int, -1;
    readlink(; path, to: *mut c_char, size: usize) -> isize, -1;
    readlinkat(at: c_int; path, to: *mut c_char, size: usize) -> isize, -1;
    realpath(; path, to: *mut c_char) -> *mut c_char, std::ptr::null_mut();
    __realpath_chk(; path, to: *mut c_char, size: usize) -> *mut c_char, std::ptr::null_mut();
    canonicalize_file_name(; path) -> *mut c_char, std::ptr::null_mut();
    getxattr(; path, name: *const c_char, to: Pointer, size: usize) -> isize, -1;
    lgetxattr(; path, name: *const c_char, to: Pointer, size: usize) -> isize, -1;
    listxattr(; path, to: *mut c_char, size: usize) -> isize, -1;
    llistxattr(; path, to: *mut c_char, size: usize) -> isize, -1;
    statfs(; path, to: Pointer) -> c_int, -1;
    statfs64(; path, to: Pointer) -> c_int, -1;
    inotify_add_watch(fd: c_int; path, mask: c_uint) -> c_int, -1;
    glob(; path, flags: c_int, failed: Pointer, to: Pointer) -> c_int, libc::GLOB_ABORTED;
    glob64(; path, flags: c_int, failed: Pointer, to: Pointer) -> c_int, libc::GLOB_ABORTED;
    ftw(; path, each: Pointer, depth: c_int) -> c_int, -1;
    ftw64(; path, each: Pointer, depth: c_int) -> c_int, -1;
    nftw(; path, each: Pointer, depth: c_int, flags: c_int) -> c_int, -1;
    nftw64(; path, each: Pointer, depth: c_int, flags: c_int) -> c_int, -1;
}
