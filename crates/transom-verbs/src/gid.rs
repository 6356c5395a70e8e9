//! The GID table: the addresses of the host, in the order in which adapters have them (Verbs V25).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use transom_engine::raw;
use transom_os::environment::DeviceName;

use crate::{environment, limits};

/// The type of an entry, as a number and as the kernel writes it.
pub(crate) type Type = (u32, &'static str);

pub(crate) const ROCE_V1: Type = (1, "IB/RoCE v1");
pub(crate) const ROCE_V2: Type = (2, "RoCE v2");
/// The kernel has no type for GIDs of iWARP, and writes the first one.
pub(crate) const IWARP: Type = (0, "IB/RoCE v1");

/// The entries that a device has of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As mlx5 has them: each GID twice, for RoCE v1 and v2, and a link-local one first.
    Mlx5,
    /// An entry of RoCE v2 for each address.
    Plain,
    /// A hardware address for all, as an adapter of iWARP has it.
    Hardware,
}

/// An entry of the GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) bytes: [u8; 16],
    /// The address that it stands for.
    pub(crate) address: IpAddr,
    /// Index of its interface; 0: unknown.
    pub(crate) interface: u32,
    pub(crate) of: Type,
}

/// An address and the index of its interface.
type Place = (IpAddr, u32);

/// The table of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The address that other hosts reach first.
    first: Option<Place>,
    /// The number of the device in the list.
    device: u8,
    entries: Vec<Option<Gid>>,
}

impl Table {
    /// The table of a device of this number with these addresses.
    pub(crate) fn of(addresses: &[Place], layout: Layout, device: u8) -> Table {
        let first = addresses.first().copied();
        let one = |bytes, (address, interface): Place, of| Gid { bytes, address, interface, of };
        let pair = |bytes, place| [ROCE_V1, ROCE_V2].map(|of| Some(one(bytes, place, of)));
        let plain = |place: &Place| Some(one(bytes_of(place.0), *place, ROCE_V2));
        // An index of an address vector is a byte.
        let fits = 2 * (addresses.len() + 1) <= usize::from(u8::MAX);
        let entries = match (layout, first) {
            (Layout::Hardware, Some(first)) => {
                vec![Some(one(of_hardware(node_guid(first, device)), first, IWARP))]
            }
            (Layout::Mlx5, Some(first)) if fits => {
                let local = link_local(first, addresses);
                let mut entries = match local {
                    Some((bytes, place)) => pair(bytes, place).to_vec(),
                    None => vec![None, None],
                };
                for place in addresses {
                    if local.is_none_or(|(bytes, _)| bytes != bytes_of(place.0)) {
                        entries.extend(pair(bytes_of(place.0), *place));
                    }
                }
                entries
            }
            _ => addresses.iter().map(plain).collect(),
        };
        Table { first, device, entries }
    }

    /// An entry; `None`: empty, or beyond the table.
    pub(crate) fn get(&self, index: usize) -> Option<&Gid> {
        self.entries.get(index)?.as_ref()
    }

    /// The entries that are not empty, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Gid)> {
        self.entries.iter().enumerate().filter_map(|(at, gid)| Some((at, gid.as_ref()?)))
    }

    /// The index of an address of this host: of RoCE v2, as rdma_cm takes it.
    pub(crate) fn index_of(&self, address: IpAddr) -> Option<usize> {
        let bytes = bytes_of(address);
        self.iter().find(|(_, gid)| gid.bytes == bytes && gid.of == ROCE_V2).map(|(at, _)| at)
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries of the table, empty ones included.
    pub(crate) fn length(&self) -> usize {
        match self.entries.as_slice() {
            [Some(one)] if one.of == IWARP => 1,
            entries => entries.len().max(limits::GIDS as usize),
        }
    }

    /// The GUID of the device, in network order (Verbs V24).
    pub(crate) fn node_guid(&self) -> u64 {
        self.first.map_or(0, |first| node_guid(first, self.device))
    }
}

/// The link-local GID of the interface of the first address, and the address that it stands for. An adapter
/// makes it of its hardware address; a program reaches this one over IP, so it carries the IPv4 address in the
/// form of RFC 5214. A first address of IPv6 has the interface's own one, or none.
fn link_local((first, interface): Place, addresses: &[Place]) -> Option<([u8; 16], Place)> {
    match first {
        IpAddr::V4(v4) => {
            let mut bytes = EMBEDDED;
            bytes[12..].copy_from_slice(&v4.octets());
            Some((bytes, (first, interface)))
        }
        IpAddr::V6(_) => {
            let own = |place: &&Place| {
                place.1 == interface
                    && matches!(place.0, IpAddr::V6(v6) if v6.is_unicast_link_local())
            };
            addresses.iter().find(own).map(|place| (bytes_of(place.0), *place))
        }
    }
}

/// A link-local GID up to its IPv4 address (RFC 5214, 6.1).
const EMBEDDED: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe, 0, 0, 0, 0];

/// Sixteen bytes of an address; IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that sixteen bytes name.
pub(crate) fn address_of(bytes: [u8; 16]) -> IpAddr {
    match bytes {
        [.., a, b, c, d] if bytes[..12] == EMBEDDED[..12] => Ipv4Addr::new(a, b, c, d).into(),
        bytes => Ipv6Addr::from(bytes).to_canonical(),
    }
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

/// The tables of all devices as of now.
pub(crate) fn tables() -> Vec<Table> {
    let devices = environment::devices();
    let layout = environment::layout();
    let of = |(number, addresses): (u8, Vec<Place>)| Table::of(&addresses, layout, number);
    (0..).zip(shared_out(&addresses(), devices)).map(of).collect()
}

/// The addresses of each device: its own ones, or all that are no other device's. If others have them all, it
/// has them, too: a device without an address is of no use.
fn shared_out(all: &[Place], devices: &[DeviceName]) -> Vec<Vec<Place>> {
    let named = |address: &IpAddr| devices.iter().any(|device| device.addresses.contains(address));
    let rest: Vec<Place> = all.iter().filter(|(address, _)| !named(address)).copied().collect();
    let place = |address: &IpAddr| {
        let here = all.iter().find(|(other, _)| other == address);
        here.copied().unwrap_or((*address, 0))
    };
    let of = |device: &DeviceName| match &*device.addresses {
        [] if rest.is_empty() => all.to_vec(),
        [] => rest.clone(),
        own => own.iter().map(place).collect(),
    };
    devices.iter().map(of).collect()
}

/// The addresses as of now: what other hosts reach first, then loopback, then what is local to a link.
fn addresses() -> Vec<Place> {
    let interfaces = raw::interfaces().unwrap_or_default();
    if let Some(addresses) = environment::addresses() {
        let name = |a: &IpAddr| interfaces.iter().find(|i| i.address == *a).map(|i| &*i.name);
        return addresses.into_iter().map(|a| (a, name(&a).map_or(0, index_of))).collect();
    }
    let mut found: Vec<_> = interfaces
        .iter()
        .filter(|i| i.up)
        .filter_map(|i| Some((class(i.address, i.loopback)?, i)))
        .collect();
    found.sort_by_key(|(class, _)| *class); // stable: within a class as the system has them
    found.into_iter().map(|(_, i)| (i.address, index_of(&i.name))).collect()
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
    netdevice::index_to_name(asked()?, index).ok()
}

/// The index of an interface; 0: unknown. The kernel is asked, because `/sys/class/net` may show another network
/// namespace: the one of who mounted it.
fn index_of(interface: &str) -> u32 {
    asked().and_then(|socket| netdevice::name_to_index(socket, interface).ok()).unwrap_or(0)
}

/// A socket that answers for the interfaces of this network namespace.
fn asked() -> Option<OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

/// The EUI-64 of the network device of an address with the local bit, or, without one, a number made of the
/// address; in network order. Several devices of one network device count its last byte on, as the ports of an
/// adapter do.
fn node_guid((first, _): Place, device: u8) -> u64 {
    let hardware = raw::interfaces()
        .unwrap_or_default()
        .into_iter()
        .find(|i| i.address == first)
        .and_then(|i| std::fs::read_to_string(format!("/sys/class/net/{}/address", i.name)).ok())
        .and_then(|text| {
            let octets = text.trim().split(':').map(|o| u8::from_str_radix(o, 16).ok());
            let octets: Option<Vec<u8>> = octets.collect();
            <[u8; 6]>::try_from(octets?).ok()
        })
        .filter(|octets| octets.iter().any(|o| *o != 0));
    let mut guid = match hardware {
        Some([a, b, c, d, e, f]) => [a | 2, b, c, 0xff, 0xfe, d, e, f],
        None => {
            // FNV-1a: the same in every process of the host.
            let hash = bytes_of(first).iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
            });
            (hash | 0x0200_0000_0000_0000).to_be_bytes()
        }
    };
    guid[7] = guid[7].wrapping_add(device);
    u64::from_ne_bytes(guid)
}

/// The GID of an adapter of iWARP: a hardware address, made of the GUID.
fn of_hardware(guid: u64) -> [u8; 16] {
    let [a, b, c, _, _, d, e, f] = guid.to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&[a, b, c, d, e, f]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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

    fn seen(addresses: &[(&str, u32)], layout: Layout) -> Vec<(usize, String, u32)> {
        let places: Vec<Place> = addresses.iter().map(|(a, i)| (a.parse().unwrap(), *i)).collect();
        let table = Table::of(&places, layout, 0);
        let line = |(at, gid): (usize, &Gid)| (at, Ipv6Addr::from(gid.bytes).to_string(), gid.of.0);
        table.iter().map(line).collect()
    }

    #[test]
    fn v25_gids_lie_where_adapters_have_them() {
        let two = [("192.0.2.1", 2), ("2001:db8::1", 3)];
        let at = |index, gid: &str, of| (index, gid.to_owned(), of);
        let expected = [
            at(0, "fe80::5efe:c000:201", 1),
            at(1, "fe80::5efe:c000:201", 2),
            at(2, "::ffff:192.0.2.1", 1),
            at(3, "::ffff:192.0.2.1", 2),
            at(4, "2001:db8::1", 1),
            at(5, "2001:db8::1", 2),
        ];
        assert_eq!(seen(&two, Layout::Mlx5), expected);
        assert_eq!(
            seen(&two, Layout::Plain),
            [at(0, "::ffff:192.0.2.1", 2), at(1, "2001:db8::1", 2)]
        );
        // Of IPv6 the interface's own link-local address comes first, once; without one, its places are empty.
        let own = [("2001:db8::1", 3), ("fe80::2", 2), ("fe80::3", 3)];
        let indices = |addresses: &[(&str, u32)]| -> Vec<(usize, String)> {
            let all = seen(addresses, Layout::Mlx5).into_iter();
            all.filter(|(_, _, of)| *of == 2).map(|(at, gid, _)| (at, gid)).collect()
        };
        let of = |index, gid: &str| (index, gid.to_owned());
        assert_eq!(indices(&own), [of(1, "fe80::3"), of(3, "2001:db8::1"), of(5, "fe80::2")]);
        assert_eq!(indices(&own[..1]), [of(3, "2001:db8::1")]);
    }

    /// `/sys` goes on to show the network namespace of who mounted it: an interface of another one is not there.
    #[test]
    fn v25_an_interface_is_that_of_the_network_namespace() {
        const INSIDE: &str = "TRANSOM_TEST_IN_A_NAMESPACE";
        const NAME: &str = "gid::tests::v25_an_interface_is_that_of_the_network_namespace";
        let run = |words: &[&str]| {
            let done = Command::new(words[0]).args(&words[1..]).env(INSIDE, "1").output();
            done.map_err(|e| e.to_string()).and_then(|done| {
                let said = String::from_utf8_lossy(&done.stdout).into_owned();
                let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
                if done.status.success() { Ok(said) } else { Err(said + &complaint) }
            })
        };
        let pair = ["ip", "link", "add", "transom-ours", "type", "veth", "peer", "name", "peers"];
        let namespace = ["unshare", "--map-root-user", "--net"];
        if std::env::var_os(INSIDE).is_none() {
            if let Err(why) = run(&[&namespace[..], &pair].concat()) {
                return eprintln!("SKIPPED: it takes a network namespace: {why}");
            }
            let this = std::env::current_exe().unwrap();
            let this = [this.to_str().unwrap(), "--exact", NAME];
            run(&[&namespace[..], &this].concat()).unwrap();
            return;
        }
        run(&pair).unwrap();
        let shown = run(&["ip", "-oneline", "link", "show", "transom-ours"]).unwrap();
        let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
        assert_eq!(index_of("transom-ours"), index);
        assert_eq!(interface_name(index).as_deref(), Some("transom-ours"));
    }

    /// An index is a byte: with more addresses than that has room for in pairs, each is there once.
    #[test]
    fn v25_every_address_has_an_index() {
        let places = |count| -> Vec<Place> {
            (1..=count).map(|i: u8| (Ipv4Addr::new(192, 0, 2, i).into(), 2)).collect()
        };
        for (count, entries) in [(126, 254), (127, 127)] {
            let table = Table::of(&places(count), Layout::Mlx5, 0);
            assert_eq!(table.iter().count(), entries);
            for (address, _) in places(count) {
                let index = table.index_of(address).unwrap();
                assert_eq!(table.get(index).unwrap().address, address);
            }
        }
    }

    #[test]
    fn v24_devices_of_one_address_have_guids_of_their_own() {
        let place = [("192.0.2.1".parse().unwrap(), 0)];
        let guid = |device| Table::of(&place, Layout::Plain, device).node_guid().to_ne_bytes();
        let (first, second) = (guid(0), guid(1));
        assert_eq!(
            (first[..7].to_vec(), first[7].wrapping_add(1)),
            (second[..7].to_vec(), second[7])
        );
        let gid = |device| Table::of(&place, Layout::Hardware, device).get(0).unwrap().bytes;
        assert_ne!(gid(0), gid(1));
    }

    #[test]
    fn v25_a_device_has_its_own_addresses_or_those_that_no_other_has() {
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|a| a.parse().unwrap());
        let all: [Place; 3] = [(a, 2), (b, 3), (c, 2)];
        let of = |list: &str| shared_out(&all, &transom_os::environment::devices(list).unwrap());
        assert_eq!(of("x"), [all.to_vec()]);
        assert_eq!(of("x,y:192.0.2.2"), [vec![(a, 2), (c, 2)], vec![(b, 3)]]);
        assert_eq!(of("x,y"), [all.to_vec(), all.to_vec()]);
        // In the order of the list; an address that is not of this host's is shown all the same, as with
        // TRANSOM_ADDRESSES.
        let far = "198.51.100.7".parse().unwrap();
        assert_eq!(of("x:2001:db8::1+198.51.100.7"), [vec![(c, 2), (far, 0)]]);
        assert_eq!(of("x,y:192.0.2.1+192.0.2.2+2001:db8::1")[0], all.to_vec());
    }

    #[test]
    fn v25_a_link_local_gid_stands_for_the_first_address() {
        let table = Table::of(&[("192.0.2.1".parse().unwrap(), 2)], Layout::Mlx5, 0);
        let first = table.get(0).unwrap();
        assert_eq!((first.address, address_of(first.bytes)), (first.address, first.address));
        assert_eq!(first.address, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(table.index_of(first.address), Some(3));
    }
}
