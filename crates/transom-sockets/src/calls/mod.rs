//! The C library's calls, under its names.

mod background;
mod descriptors;
mod formatted;
mod io;
mod move_bytes;
mod options;
mod raw;
mod rings;
mod sockets;
mod start;
mod stdio;
mod threads;
mod waits;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::sys::{self, Errno};

/// The name of a call, which ends with a zero.
pub(crate) const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The next definition of a call behind this library's; null, with `errno` set, if there is none.
#[inline]
pub(crate) fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    if found.is_null() {
        sys::fail(libc::ENOSYS);
    }
    found
}

/// Define calls. Each body gets the next definition of its name, under the name between the bars; a
/// call without a next definition answers what stands behind its result. A call with `#[waits]` is one at which
/// a cancelled thread ends.
macro_rules! calls {
    ($($(#[$waits:ident])? fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $none:expr; |$next:ident| $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
                static NEXT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
                const NAME: &std::ffi::CStr = $crate::calls::c_name(concat!(stringify!($name), "\0"));
                let found = $crate::calls::next(&NEXT, NAME);
                if found.is_null() {
                    return $none;
                }
                // The C library ends cancelled threads within its calls.
                type Call = unsafe extern "C-unwind" fn($($kind),*) -> $result;
                // SAFETY: the definition of this name in the C library has these arguments; those of a
                // call that takes fewer are passed on unread.
                #[allow(unused_variables, reason = "some calls do without the next definition")]
                let $next = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Call>(found) };
                if $crate::process::is_left_out() {
                    // SAFETY: the caller keeps the contract of the C library's call.
                    return unsafe { $next($($argument),*) };
                }
                // SAFETY: the caller keeps the contract of the C library's call.
                #[allow(unused_unsafe, reason = "some bodies call nothing unsafe")]
                let body = || -> $result { unsafe { $body } };
                $crate::calls::run!($($waits)? body)
            }
        )*
    };
}

/// The body of a call.
macro_rules! run {
    ($body:ident) => {
        $body()
    };
    (waits $body:ident) => {
        loop {
            $crate::cancel::point();
            let done = $body();
            if !$crate::cancel::is_interrupted(done == -1) {
                return done;
            }
        }
    };
}
pub(crate) use calls;
pub(crate) use run;

/// As C calls answer: the number, or -1 and `errno`.
pub(crate) fn answer(result: Result<usize, Errno>) -> isize {
    result.map_or_else(sys::fail, |count| count as isize)
}

/// As [`answer`], of calls that answer an `int`.
pub(crate) fn answer_int(result: Result<usize, Errno>) -> c_int {
    answer(result) as c_int
}
