//! Socket addresses in C's shape: family in host order, port and address in network order.

use std::ffi::c_void;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::Status;

const INET: u16 = 2;
/// Linux's number, and Windows'.
const INET6: [u16; 2] = [10, 23];

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
    parse(bytes)
}

fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let family = u16::from_ne_bytes(*family);
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    if family == INET {
        let (ip, _) = rest.split_first_chunk::<4>()?;
        return Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port).into());
    }
    if !INET6.contains(&family) {
        return None;
    }
    let (flow, rest) = rest.split_first_chunk::<4>()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (scope, _) = rest.split_first_chunk::<4>()?;
    let (flow, scope) = (u32::from_ne_bytes(*flow), u32::from_ne_bytes(*scope));
    Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope).into())
}

fn format(address: &SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(INET.to_ne_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(INET6[0].to_ne_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
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
    let bytes = format(&address);
    let capacity = if out.is_null() { 0 } else { *length as usize };
    *length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if capacity < bytes.len() {
        return Status::BUFFER_TOO_SMALL;
    }
    // SAFETY: `out` has room for `capacity` bytes, which are enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Status::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_shape_of_this_system() {
        let v4 = SocketAddr::from(([192, 0, 2, 7], 0x1234));
        assert_eq!(
            format(&v4),
            [&2_u16.to_ne_bytes()[..], &[0x12, 0x34, 192, 0, 2, 7], &[0; 8]].concat()
        );
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let v6 = SocketAddr::from(SocketAddrV6::new(ip, 0x1234, 0, 3));
        let rest = [&[0x12, 0x34, 0, 0, 0, 0][..], &ip.octets(), &3_u32.to_ne_bytes()].concat();
        let [linux, windows] =
            [10_u16, 23].map(|family| [&family.to_ne_bytes()[..], &rest].concat());
        assert_eq!(format(&v6), linux);
        assert_eq!([parse(&linux), parse(&windows)], [Some(v6); 2]);
        assert_eq!(parse(&format(&v4)), Some(v4));
        assert_eq!([parse(&linux[..27]), parse(&format(&v4)[..7]), parse(&[11; 28])], [None; 3]);
    }
}
