//! A consumer in Rust that speaks to the provider as a C program does: through tables and pointers.
//! Every request is driven to its end whatever way the mode makes it end.
#![allow(dead_code, unreachable_pub, unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use transom_ndkpi::dispatch::*;
use transom_ndkpi::mdl::*;
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, NdkCloseAdapter, NdkOpenAdapter, OpenOptions, Status};

mod calls;
pub mod fixture;
mod memory;
mod objects;
mod side;

pub use calls::*;
pub use memory::*;
pub use objects::*;
pub use side::*;

pub type Ptr = *mut Object;
pub const PENDING: i32 = 0x103;
pub const PAGE: usize = 4096;

/// Run a test in every completion mode.
pub fn in_every_mode(test: impl Fn(Mode)) {
    for mode in Mode::ALL {
        println!("{mode:?}");
        test(mode);
    }
}
