//! Calls on threads.

use std::ffi::c_int;

use super::calls;
use crate::cancel;

calls! {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int, libc::ENOSYS; |next| {
        let done = next(thread);
        if done == 0 {
            cancel::cancelled(thread);
        }
        done
    }
}
