//! The GID table: the addresses of the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use transom_engine::raw;

use crate::environment;

/// An entry of the GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) address: IpAddr,
    /// Index of its interface; 0: unknown.
    pub(crate) interface: u32,
}

/// Sixteen bytes of an address; IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that sixteen bytes name.
pub(crate) fn address_of(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// An address and a port. An address that is local to a link names its interface.
pub(crate) fn socket_address(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, interface).into()
        }
        address => SocketAddr::new(address, port),
    }
}

/// The interface that an address names; 0: none.
pub(crate) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Whether an address means nothing without an interface, and names none.
pub(crate) fn needs_interface(address: SocketAddr) -> bool {
    let link_local = matches!(address.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
    link_local && scope(address) == 0
}

/// An address of IPv4 as such.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    socket_address(address.ip().to_canonical(), address.port(), scope(address))
}

/// The table as of now: what other hosts reach first, then loopback, then what is local to a link.
pub(crate) fn table() -> Vec<Gid> {
    let interfaces = raw::interfaces().unwrap_or_default();
    if let Some(addresses) = environment::addresses() {
        let name = |a: &IpAddr| interfaces.iter().find(|i| i.address == *a).map(|i| &*i.name);
        let entry = |a: IpAddr| Gid { address: a, interface: name(&a).map_or(0, index_of) };
        return addresses.into_iter().map(entry).collect();
    }
    let mut found: Vec<_> = interfaces
        .iter()
        .filter(|i| i.up)
        .filter_map(|i| Some((class(i.address, i.loopback)?, i)))
        .collect();
    found.sort_by_key(|(class, _)| *class); // stable: within a class as the system has them
    found
        .into_iter()
        .map(|(_, i)| Gid { address: i.address, interface: index_of(&i.name) })
        .collect()
}

/// The rank of an address among the others; `None`: no GID.
fn class(address: IpAddr, loopback: bool) -> Option<u8> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let usable = !address.is_unspecified() && !address.is_multicast();
    usable.then_some(match address {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => 2,
        IpAddr::V6(Ipv6Addr::LOCALHOST) => 3,
        _ if link_local => 4,
        _ if loopback => 3,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    })
}

/// The name of the interface of an index.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let interfaces = raw::interfaces().unwrap_or_default();
    interfaces.into_iter().map(|i| i.name.to_string()).find(|name| index_of(name) == index)
}

fn index_of(interface: &str) -> u32 {
    let path = format!("/sys/class/net/{interface}/ifindex");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The GUID of this host, in network order: the EUI-64 of the network device of GID 0 with the local
/// bit, or, without one, a number made of GID 0.
pub(crate) fn node_guid(table: &[Gid]) -> u64 {
    let Some(first) = table.first() else { return 0 };
    let hardware = raw::interfaces()
        .unwrap_or_default()
        .into_iter()
        .find(|i| i.address == first.address)
        .and_then(|i| std::fs::read_to_string(format!("/sys/class/net/{}/address", i.name)).ok())
        .and_then(|text| {
            let octets = text.trim().split(':').map(|o| u8::from_str_radix(o, 16).ok());
            let octets: Option<Vec<u8>> = octets.collect();
            <[u8; 6]>::try_from(octets?).ok()
        })
        .filter(|octets| octets.iter().any(|o| *o != 0));
    let guid = match hardware {
        Some([a, b, c, d, e, f]) => [a | 2, b, c, 0xff, 0xfe, d, e, f],
        None => {
            // FNV-1a: the same in every process of the host.
            let hash = bytes_of(first.address).iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
            });
            (hash | 0x0200_0000_0000_0000).to_be_bytes()
        }
    };
    u64::from_ne_bytes(guid)
}

/// The GID of an adapter of iWARP: a hardware address, made of the GUID, with the interface of GID 0.
pub(crate) fn of_hardware(table: &[Gid]) -> Option<([u8; 16], u32)> {
    let first = table.first()?;
    let [a, b, c, _, _, d, e, f] = node_guid(table).to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&[a, b, c, d, e, f]);
    Some((bytes, first.interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v25_an_ipv4_address_is_a_mapped_gid_and_back() {
        let bytes = bytes_of("192.0.2.1".parse().unwrap());
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(address_of(bytes), "192.0.2.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn v25_the_order_of_addresses() {
        let class = |text: &str, loopback| class(text.parse().unwrap(), loopback);
        assert!(class("192.0.2.1", false) < class("2001:db8::1", false));
        assert!(class("2001:db8::1", false) < class("127.0.0.1", true));
        assert!(class("127.0.0.1", true) < class("::1", true));
        assert!(class("::1", true) < class("fe80::1", false));
        assert_eq!(class("0.0.0.0", false), None);
    }
}
