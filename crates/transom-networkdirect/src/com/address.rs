//! Socket addresses in the operating system's layout.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const AF_INET: u16 = 2;
#[cfg(target_os = "linux")]
const AF_INET6: u16 = 10;
#[cfg(not(target_os = "linux"))]
const AF_INET6: u16 = 23;

/// Length of a `sockaddr_in`.
pub(crate) const V4_LENGTH: usize = 16;
/// Length of a `sockaddr_in6`.
pub(crate) const V6_LENGTH: usize = 28;

/// Read one. The length must cover the family's structure.
pub(crate) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let field = |from: usize, n: usize| bytes.get(from..from + n);
    let two = |from| field(from, 2).and_then(|b| <[u8; 2]>::try_from(b).ok());
    let four = |from| field(from, 4).and_then(|b| <[u8; 4]>::try_from(b).ok());
    let family = u16::from_ne_bytes(two(0)?);
    let port = u16::from_be_bytes(two(2)?);
    if family == AF_INET && bytes.len() >= V4_LENGTH {
        return Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(four(4)?), port)));
    }
    if family == AF_INET6 && bytes.len() >= V6_LENGTH {
        let address: [u8; 16] = field(8, 16)?.try_into().ok()?;
        let scope = u32::from_ne_bytes(four(24)?);
        return Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, scope)));
    }
    None
}

/// Write one.
pub(crate) fn encode(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6_LENGTH);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(AF_INET.to_ne_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(AF_INET6.to_ne_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Bytes that [`encode`] makes of it.
pub(crate) fn length(address: IpAddr) -> usize {
    if address.is_ipv4() { V4_LENGTH } else { V6_LENGTH }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_and_short_ones_are_refused() {
        for text in ["127.0.0.2:54321", "[::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = encode(address);
            assert_eq!(bytes.len(), length(address.ip()));
            assert_eq!(decode(&bytes), Some(address));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(decode(&[0; 28]), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_address_has_the_shape_of_this_system() {
        let v4 = SocketAddr::from(([192, 0, 2, 7], 0x1234));
        let inet = [&2_u16.to_ne_bytes()[..], &[0x12, 0x34, 192, 0, 2, 7], &[0; 8]].concat();
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let v6 = SocketAddr::from(SocketAddrV6::new(ip, 0x1234, 0, 3));
        let head = [&10_u16.to_ne_bytes()[..], &[0x12, 0x34, 0, 0, 0, 0]].concat();
        let inet6 = [&head[..], &ip.octets(), &3_u32.to_ne_bytes()].concat();
        assert_eq!([encode(v4), encode(v6)], [inet.clone(), inet6.clone()]);
        assert_eq!([decode(&inet), decode(&inet6)], [Some(v4), Some(v6)]);
    }
}
