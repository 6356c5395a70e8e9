//! The extension functions for memory (WSD 5).

use std::ffi::c_void;

use super::{call, entry};
use crate::descriptor::LENGTH;
use crate::error::Error;
use crate::memory::Handle;

/// The bytes of a descriptor. NULL and every other length are no descriptor: nothing is read, and
/// the empty one is refused where all of them are judged.
///
/// # Safety
/// `descriptor` is NULL or has `length` readable bytes, which stay during the call.
pub(super) unsafe fn descriptor<'a>(descriptor: *const c_void, length: u32) -> &'a [u8] {
    if descriptor.is_null() || length as usize != LENGTH {
        return &[];
    }
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts(descriptor.cast(), LENGTH) }
}

pub(super) unsafe extern "C" fn register_memory(
    s: usize,
    buffer: *mut c_void,
    length: u32,
    flags: u32,
    errno: *mut i32,
) -> *mut c_void {
    let address = buffer.expose_provenance() as u64;
    // SAFETY: the switch's pointers; it keeps the memory until it deregisters it.
    unsafe {
        entry(errno, std::ptr::null_mut(), |provider| {
            let handle = provider.register_memory(s, address, length, flags)?;
            Ok(std::ptr::without_provenance_mut(handle.0))
        })
    }
}

pub(super) unsafe extern "C" fn deregister_memory(
    s: usize,
    handle: *mut c_void,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.deregister_memory(s, Handle(handle.addr()))) }
}

pub(super) unsafe extern "C" fn register_rdma_memory(
    s: usize,
    buffer: *mut c_void,
    length: u32,
    flags: u32,
    out: *mut c_void,
    out_length: *mut u32,
    errno: *mut i32,
) -> i32 {
    let address = buffer.expose_provenance() as u64;
    // SAFETY: the switch's pointers; it keeps the memory until it deregisters it.
    unsafe {
        call(errno, |provider| {
            let out_length = out_length.as_mut().ok_or(Error::WSAEFAULT)?;
            // The question for the size comes before any look at the buffer (WSD 5.3).
            let room = std::mem::replace(out_length, LENGTH as u32);
            if out.is_null() || (room as usize) < LENGTH {
                return Err(Error::WSAEFAULT);
            }
            let made = provider.register_rdma_memory(s, address, length, flags)?;
            out.cast::<[u8; LENGTH]>().write(made);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn deregister_rdma_memory(
    s: usize,
    bytes: *mut c_void,
    length: u32,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointers.
    unsafe { call(errno, |provider| provider.deregister_rdma_memory(s, descriptor(bytes, length))) }
}

pub(super) unsafe extern "C" fn cache_callback(
    address: *mut c_void,
    size: usize,
    errno: *mut i32,
) -> i32 {
    // SAFETY: the switch's pointer.
    unsafe { call(errno, |provider| provider.memory_goes_away(address.addr() as u64, size as u64)) }
}
