//! Socket addresses in C's layout, for the fronts: family in the machine's order, port and address in
//! network order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::sys;

const INET: u16 = 2;
/// Linux's number, and Windows'. Both are understood everywhere.
const INET6: [u16; 2] = [10, 23];

/// Bytes of a `sockaddr_in`.
pub const V4_LENGTH: usize = 16;
/// Bytes of a `sockaddr_in6`, the longest.
pub const V6_LENGTH: usize = 28;

/// The bytes that [`encode`] makes of such an address.
#[must_use]
pub fn length(address: IpAddr) -> usize {
    if address.is_ipv4() { V4_LENGTH } else { V6_LENGTH }
}

/// Reads one; what lies behind its last field need not be there. `None`: another family, or too few
/// bytes.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let family = u16::from_ne_bytes(*family);
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    if family == INET {
        let ip = rest.first_chunk::<4>()?;
        return Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port).into());
    }
    if !INET6.contains(&family) {
        return None;
    }
    let (flow, rest) = rest.split_first_chunk::<4>()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (flow, scope) = (u32::from_ne_bytes(*flow), u32::from_ne_bytes(*rest.first_chunk()?));
    Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope).into())
}

/// Writes one.
#[must_use]
pub fn encode(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6_LENGTH);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(INET.to_ne_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(sys::INET6.to_ne_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_shape_of_this_system() {
        let v4 = SocketAddr::from(([192, 0, 2, 7], 0x1234));
        let inet = [&2_u16.to_ne_bytes()[..], &[0x12, 0x34, 192, 0, 2, 7], &[0; 8]].concat();
        assert_eq!((encode(v4), length(v4.ip())), (inet.clone(), inet.len()));
        assert_eq!([decode(&inet), decode(&inet[..8])], [Some(v4); 2]);
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let v6 = SocketAddr::from(SocketAddrV6::new(ip, 0x1234, 5, 3));
        let (flow, scope) = (5_u32.to_ne_bytes(), 3_u32.to_ne_bytes());
        let rest = [&[0x12, 0x34][..], &flow, &ip.octets(), &scope].concat();
        let [linux, windows] =
            [10_u16, 23].map(|family| [&family.to_ne_bytes()[..], &rest].concat());
        let ours = if sys::INET6 == 23 { &windows } else { &linux };
        assert_eq!((&encode(v6), length(v6.ip())), (ours, ours.len()));
        assert_eq!([decode(&linux), decode(&windows)], [Some(v6); 2]);
    }

    #[test]
    fn too_few_bytes_and_other_families_are_no_address() {
        let (v4, v6) =
            (encode(([127, 0, 0, 1], 1).into()), encode((Ipv6Addr::LOCALHOST, 1).into()));
        for wrong in [&v4[..7], &v6[..27], &[11; 28], &[0; 28], &[2], &[]] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
