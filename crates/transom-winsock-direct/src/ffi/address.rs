//! Socket addresses in C's shape: family in host order, port and address in network order.

use std::ffi::c_void;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::abi::{SocketAddress, SocketAddressList};
use crate::error::{Error, Result};

/// The longest: `sockaddr_in6`.
const LONGEST: usize = 28;

/// # Safety
/// `address` is NULL or has `length` readable bytes.
pub(super) unsafe fn read(address: *const c_void, length: i32) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(Error::WSAEFAULT);
    }
    let length = usize::try_from(length).unwrap_or(0).min(LONGEST);
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) };
    let parse = || {
        let (family, rest) = bytes.split_first_chunk::<2>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let port = u16::from_be_bytes(*port);
        match u16::from_ne_bytes(*family) {
            2 => {
                let (ip, _) = rest.split_first_chunk::<4>()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port).into())
            }
            10 | 23 => {
                let (ip, rest) = rest.get(4..)?.split_first_chunk::<16>()?;
                let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
            }
            _ => None,
        }
    };
    parse().ok_or(Error::WSAEFAULT)
}

/// The bytes of an address, and how many they are.
pub(super) fn bytes_of(address: SocketAddr) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let port = address.port().to_be_bytes();
    let (parts, length): (Vec<u8>, usize) = match address {
        SocketAddr::V4(v4) => {
            let head = 2_u16.to_ne_bytes().into_iter().chain(port);
            (head.chain(v4.ip().octets()).collect(), 16)
        }
        SocketAddr::V6(v6) => {
            let head = 10_u16.to_ne_bytes().into_iter().chain(port).chain([0; 4]);
            let scope = v6.scope_id().to_ne_bytes();
            (head.chain(v6.ip().octets()).chain(scope).collect(), 28)
        }
    };
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    (bytes, length)
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
            let (bytes, length) = bytes_of(*address);
            let place = at.add(head + entries + index * LONGEST);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            let entry = SocketAddress { address: place.cast(), length: length as i32 };
            at.add(head).cast::<SocketAddress>().add(index).write_unaligned(entry);
        }
    }
    (needed, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_shape_of_this_system() {
        let parse = |bytes: &[u8]| {
            // SAFETY: so many bytes are there.
            unsafe { read(bytes.as_ptr().cast(), bytes.len() as i32) }
        };
        let v4 = SocketAddr::from(([192, 0, 2, 7], 0x1234));
        let inet = [&2_u16.to_ne_bytes()[..], &[0x12, 0x34, 192, 0, 2, 7], &[0; 8]].concat();
        let (bytes, length) = bytes_of(v4);
        assert_eq!(bytes[..length], inet);
        assert_eq!([parse(&inet), parse(&inet[..8])], [Ok(v4); 2]);
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let v6 = SocketAddr::from(SocketAddrV6::new(ip, 0x1234, 0, 3));
        let rest = [&[0x12, 0x34, 0, 0, 0, 0][..], &ip.octets(), &3_u32.to_ne_bytes()].concat();
        let [linux, windows] =
            [10_u16, 23].map(|family| [&family.to_ne_bytes()[..], &rest].concat());
        let (bytes, length) = bytes_of(v6);
        assert_eq!(bytes[..length], linux);
        assert_eq!([parse(&linux), parse(&windows)], [Ok(v6); 2]);
        let wrong = [parse(&linux[..27]), parse(&inet[..7]), parse(&[11; 28]), parse(&[])];
        assert_eq!(wrong, [Err(Error::WSAEFAULT); 4]);
    }
}
