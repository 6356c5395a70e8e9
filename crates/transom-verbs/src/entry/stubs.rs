//! Names that exist because programs and libraries link them, and do nothing or refuse.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{ibv_ah_attr, ibv_qp_attr, ibv_sa_path_rec};
use crate::errno::Errno;
use crate::sys::set_errno;

fn refuse(error: Errno) -> c_int {
    set_errno(error.0);
    error.0
}

/// `EOPNOTSUPP`.
pub(crate) extern "C" fn refuses() -> c_int {
    refuse(Errno::EOPNOTSUPP)
}

/// Null, and `EOPNOTSUPP`.
pub(crate) extern "C" fn refuses_pointer() -> *mut c_void {
    refuse(Errno::EOPNOTSUPP);
    std::ptr::null_mut()
}

/// -1, and `EOPNOTSUPP`.
pub(crate) extern "C" fn refuses_minus_one() -> c_int {
    refuse(Errno::EOPNOTSUPP);
    -1
}

/// The interface of 2006 has other structures (Verbs V17).
pub(crate) extern "C" fn of_2006() -> c_int {
    refuse(Errno::ENOSYS)
}

/// Stands for calls of 2006 that return a pointer.
pub(crate) extern "C" fn of_2006_pointer() -> *mut c_void {
    refuse(Errno::ENOSYS);
    std::ptr::null_mut()
}

pub(crate) extern "C" fn succeeds() -> c_int {
    0
}

pub(crate) extern "C" fn nothing() {}

/// IBV_FORK_UNNEEDED: nothing is pinned (Verbs V145).
pub(crate) extern "C" fn fork_unneeded() -> c_int {
    2
}

pub(crate) extern "C" fn unknown() -> *const c_char {
    c"unknown".as_ptr()
}

macro_rules! zeroes {
    ($($name:ident: $what:ty;)*) => {
        $(
            /// For a librdmacm that is not ours.
            pub(crate) unsafe extern "C" fn $name(to: *mut $what, _from: *const c_void) {
                if !to.is_null() {
                    // SAFETY: the caller's structure.
                    unsafe { to.write(<$what>::default()) };
                }
            }
        )*
    };
}

zeroes! {
    zeroes_path: ibv_sa_path_rec;
    zeroes_qp_attr: ibv_qp_attr;
    zeroes_ah_attr: ibv_ah_attr;
}
