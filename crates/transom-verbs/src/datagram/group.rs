//! Multicast groups of queue pairs of datagrams (Verbs V136). A group is a multicast group of IP with a
//! port that its name gives: UDP carries its datagrams to every member, or to none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_engine::raw::{self, Message};

use super::packet::Packet;
use crate::errno::{Errno, Result};
use crate::queue_pair::QueuePair;

/// The number that datagrams to a group name in the place of a queue pair's.
pub(crate) const NUMBER: u32 = 0xff_ffff;
/// The ports of groups: below those that systems hand out.
const PORTS: std::ops::Range<u16> = 0x5000..0x6000;

/// The group that a GID names: an IPv4 group as `::ffff:a.b.c.d` or `ffxx::ffff:a.b.c.d`, any other
/// multicast address of IPv6, or none.
pub(crate) fn of(gid: [u8; 16]) -> Option<IpAddr> {
    let name = Ipv6Addr::from(gid);
    let within = match gid {
        [0xff, _, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
        _ => None,
    };
    let v4 = within.map(Ipv4Addr::from).filter(Ipv4Addr::is_multicast);
    let group = v4.map_or(name.to_canonical(), IpAddr::V4);
    group.is_multicast().then_some(group)
}

/// Spreads names over numbers (FNV-1a).
fn hash(group: IpAddr) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    crate::gid::bytes_of(group).into_iter().fold(0x811c_9dc5, mix)
}

fn port(group: IpAddr) -> u16 {
    PORTS.start + (hash(group) % PORTS.len() as u32) as u16
}

/// The group of IPv4 that stands for `group` where a sender has an address of IPv4 only: one of those
/// that are local to an organisation, if `group` is one of IPv6.
fn over_v4(group: IpAddr) -> Ipv4Addr {
    match group {
        IpAddr::V4(group) => group,
        IpAddr::V6(_) => {
            let [_, b, c, d] = hash(group).to_be_bytes();
            Ipv4Addr::new(239, b, c, d)
        }
    }
}

/// Where a datagram to a group goes from an address of an interface. `None`: a group of IPv4 is not
/// reached from an address of IPv6.
pub(crate) fn destination(own: IpAddr, interface: u32, group: IpAddr) -> Option<SocketAddr> {
    match (own, group) {
        (IpAddr::V4(_), _) => Some((over_v4(group), port(group)).into()),
        (IpAddr::V6(_), IpAddr::V6(to)) => {
            Some(SocketAddrV6::new(to, port(group), 0, interface).into())
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// The groups that a queue pair is attached to, each with the ports at which its datagrams arrive.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<IpAddr, Vec<Arc<raw::DatagramPort>>>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Vec<Arc<raw::DatagramPort>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.lock().is_empty()
    }

    /// Attach a queue pair, whose groups these are. Nothing happens if it is attached already.
    pub(crate) fn attach(&self, queue_pair: &Arc<QueuePair>, group: IpAddr) -> Result {
        let mut groups = self.lock();
        if groups.contains_key(&group) {
            return Ok(());
        }
        let context = queue_pair.context();
        context.counters.attachments.take()?;
        let mut interfaces: Vec<_> = context.gids.iter().map(|(_, gid)| gid.interface).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        interfaces.retain(|interface| *interface != 0);
        let v6 = Some(group).filter(IpAddr::is_ipv6);
        let ways = v6.into_iter().chain([IpAddr::V4(over_v4(group))]);
        let mut refusal = None;
        let mut ports = Vec::new();
        for way in ways {
            let to = Arc::downgrade(queue_pair);
            let sink = move |bytes: &[u8], message: &Message| arrived(&to, bytes, message);
            let address = SocketAddr::new(way, port(group));
            match context.adapter.datagram_group(address, &interfaces, sink) {
                Ok(port) => ports.push(Arc::new(port)),
                Err(error) => refusal = Some(error),
            }
        }
        if let (true, Some(refusal)) = (ports.is_empty(), refusal) {
            context.counters.attachments.give_back();
            return Err(refusal.into());
        }
        for port in &ports {
            queue_pair.receive.add_datagrams(port);
        }
        groups.insert(group, ports);
        Ok(())
    }

    /// Detach a queue pair: `EINVAL` if it is not attached. No datagram of the group arrives afterwards.
    pub(crate) fn detach(&self, queue_pair: &QueuePair, group: IpAddr) -> Result {
        let ports = self.lock().remove(&group).ok_or(Errno::EINVAL)?;
        for port in &ports {
            queue_pair.receive.remove_datagrams(port);
        }
        queue_pair.context().counters.attachments.give_back();
        Ok(())
    }

    /// Detach it from every group.
    pub(crate) fn clear(&self, queue_pair: &QueuePair) {
        let all: Vec<_> = self.lock().keys().copied().collect();
        for group in all {
            let _ = self.detach(queue_pair, group);
        }
    }
}

/// A datagram to a group has come.
fn arrived(to: &Weak<QueuePair>, bytes: &[u8], message: &Message) {
    let (Some(queue_pair), Some(packet)) = (to.upgrade(), Packet::decode(bytes)) else { return };
    if packet.destination == NUMBER {
        super::deliver(&queue_pair, &packet, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> [u8; 16] {
        text.parse::<Ipv6Addr>().unwrap().octets()
    }

    #[test]
    fn v136_the_names_of_groups() {
        let v4 = Some("239.1.2.3".parse().unwrap());
        assert_eq!(of(gid("::ffff:239.1.2.3")), v4);
        assert_eq!(of(gid("ff0e::ffff:239.1.2.3")), v4);
        assert_eq!(of(gid("ff01::1")), Some("ff01::1".parse().unwrap()));
        // Not of IPv4 within: one bit off, and no group.
        for text in ["ff0e::1:ffff:239.1.2.3", "ff0e::fffe:239.1.2.3", "ff0e::ffff:192.0.2.1"] {
            assert_eq!(of(gid(text)), Some(text.parse().unwrap()), "{text}");
        }
        for text in ["::", "fe80::1", "2001:db8::1", "::ffff:223.255.255.255", "::ffff:240.0.0.0"] {
            assert_eq!(of(gid(text)), None, "{text}");
        }
    }

    #[test]
    fn v136_where_datagrams_to_a_group_go() {
        let (v4, v6) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let (four, six): (IpAddr, IpAddr) =
            ("239.1.2.3".parse().unwrap(), "ff05::7".parse().unwrap());
        let to = destination(v4, 3, four).unwrap();
        assert_eq!(to.ip(), four);
        assert!(PORTS.contains(&to.port()));
        assert_eq!(destination(v6, 3, four), None);
        let over_six = destination(v6, 3, six).unwrap();
        assert_eq!(
            over_six,
            SocketAddrV6::new("ff05::7".parse().unwrap(), over_six.port(), 0, 3).into()
        );
        let over_four = destination(v4, 3, six).unwrap();
        let IpAddr::V4(stands) = over_four.ip() else { panic!("{over_four}") };
        assert_eq!((stands.octets()[0], over_four.port()), (239, over_six.port()));
    }
}
