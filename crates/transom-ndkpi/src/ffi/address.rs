//! Socket addresses of a consumer.

use std::ffi::c_void;
use std::net::SocketAddr;

use transom_engine::raw::socket_address;

use crate::Status;

/// Read one.
///
/// # Safety
/// `address` is NULL or has `length` readable bytes.
pub(super) unsafe fn read(address: *const c_void, length: u32) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let length = usize::try_from(length).unwrap_or(0).min(128);
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) };
    socket_address::decode(bytes)
}

/// `NdkGet*Address`: NULL or too little room is answered with the size (NDK CN-11).
///
/// # Safety
/// `out` is NULL or has `*length` writable bytes; `length` is NULL or may be read and written.
pub(super) unsafe fn write(
    address: Result<SocketAddr, Status>,
    out: *mut c_void,
    length: *mut u32,
) -> Status {
    let address = match address {
        Ok(address) => address,
        Err(status) => return status,
    };
    // SAFETY: this function's contract.
    let Some(length) = (unsafe { length.as_mut() }) else { return Status::INVALID_PARAMETER };
    let bytes = socket_address::encode(address);
    let capacity = if out.is_null() { 0 } else { *length as usize };
    *length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if capacity < bytes.len() {
        return Status::BUFFER_TOO_SMALL;
    }
    // SAFETY: `out` has room for `capacity` bytes, which are enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Status::SUCCESS
}
