//! The functions that programs call, in C's words: they read and write the program's structures, and
//! call the safe modules. What the table `exports.txt` names is here.

pub(crate) mod address;
pub(crate) mod cm;
pub(crate) mod completion;
pub(crate) mod completion_ex;
pub(crate) mod device;
pub(crate) mod memory;
pub(crate) mod post;
pub(crate) mod queue_pair;
pub(crate) mod receive;
pub(crate) mod rsocket;
pub(crate) mod shell;
pub(crate) mod stubs;
pub(crate) mod text;
pub(crate) mod window;
pub(crate) mod work;
pub(crate) mod xrc;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::{Errno, Result};
use crate::sys::set_errno;

/// Returns the value of `work`. A panic of ours ends as `EIO`, and leaves no exported function
/// (Verbs V15).
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        transom_os::say!("transom: a fault of this library ended a call (EIO); please report it");
        Err(Errno::EIO)
    })
}

/// 0, or the number of the error, which is `errno`, too.
pub(crate) fn number(work: impl FnOnce() -> Result) -> c_int {
    match caught(work) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.0);
            error.0
        }
    }
}

/// Returns the value of `work`, or -1 and `errno`.
pub(crate) fn minus_one(work: impl FnOnce() -> Result<c_int>) -> c_int {
    caught(work).unwrap_or_else(|error| {
        set_errno(error.0);
        -1
    })
}

unsafe extern "C-unwind" {
    fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize;
}

/// Fetch an event behind the descriptor of its channel: `take` has it, or `false` if it was taken back after
/// the read. 0, or -1 and `errno`.
///
/// The read is a cancellation point. A thread that is canceled there unwinds through this frame and its
/// caller's, so that neither may hold what has to be dropped.
#[inline]
pub(crate) fn fetched(fd: c_int, take: impl Fn() -> Result<bool>) -> c_int {
    loop {
        let mut count = 0_u64;
        // SAFETY: room for the count, which is all that an eventfd gives.
        if unsafe { read(fd, (&raw mut count).cast(), size_of_val(&count)) } < 0 {
            return -1;
        }
        match caught(&take) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => {
                set_errno(error.0);
                return -1;
            }
        }
    }
}

/// A count, or -1 and `errno`.
pub(crate) fn count(work: impl FnOnce() -> Result<usize>) -> isize {
    caught(work).map_or_else(
        |error| {
            set_errno(error.0);
            -1
        },
        usize::cast_signed,
    )
}

/// A pointer, or null and `errno`.
pub(crate) fn pointer<T>(work: impl FnOnce() -> Result<*mut T>) -> *mut T {
    caught(work).unwrap_or_else(|error| {
        set_errno(error.0);
        std::ptr::null_mut()
    })
}

/// For calls without a result.
pub(crate) fn quiet(work: impl FnOnce() -> Result) {
    let _ = caught(work);
}
