//! Socket addresses of a switch.

use std::ffi::c_void;
use std::net::SocketAddr;

use transom_engine::raw::socket_address;

use crate::abi::{SocketAddress, SocketAddressList};
use crate::error::{Error, Result};

/// Room for the longest.
const LONGEST: usize = socket_address::V6_LENGTH;

/// # Safety
/// `address` is NULL or has `length` readable bytes.
pub(super) unsafe fn read(address: *const c_void, length: i32) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(Error::WSAEFAULT);
    }
    let length = usize::try_from(length).unwrap_or(0).min(LONGEST);
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) };
    socket_address::decode(bytes).ok_or(Error::WSAEFAULT)
}

/// The list and, behind it, the addresses that it points to.
pub(super) fn put_list(addresses: &[SocketAddr], at: *mut u8, room: usize) -> (usize, bool) {
    let head = size_of::<SocketAddressList>() - size_of::<SocketAddress>();
    let entries = addresses.len() * size_of::<SocketAddress>();
    let needed = head + entries + addresses.len() * LONGEST;
    if at.is_null() || room < needed {
        return (needed, false);
    }
    // SAFETY: `room` bytes are there, and every write below lies within `needed`. Nothing is
    // assumed about alignment.
    unsafe {
        at.cast::<i32>().write_unaligned(i32::try_from(addresses.len()).unwrap_or(0));
        for (index, address) in addresses.iter().enumerate() {
            let bytes = socket_address::encode(*address);
            let place = at.add(head + entries + index * LONGEST);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            let entry = SocketAddress { address: place.cast(), length: bytes.len() as i32 };
            at.add(head).cast::<SocketAddress>().add(index).write_unaligned(entry);
        }
    }
    (needed, true)
}
