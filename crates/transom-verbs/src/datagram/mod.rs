//! Datagrams of queue pairs of type UD: one UDP datagram each, between the ports that their numbers
//! name (Verbs V138 to Verbs V144).

pub(crate) mod group;
pub(crate) mod packet;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use transom_engine::raw::{self, IpFields, Message};
use transom_engine::{Datagram, Departure, Destination};
use transom_memory::QueuePairId;

use crate::abi::qps;
use crate::context::Context;
use crate::port::Datagrams;
use crate::queue_pair::QueuePair;
use crate::{environment, gid};
use packet::Packet;

/// The address of a datagram's destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// The address of this host to send from.
    pub(crate) own: IpAddr,
    /// The index of its interface; 0: unknown.
    pub(crate) interface: u32,
    /// A host, or a multicast group.
    pub(crate) peer: IpAddr,
    pub(crate) fields: IpFields,
    pub(crate) queue_pair: u32,
}

/// The destination of a request, in the engine's words.
pub(crate) type To = Destination<Address>;

/// The destination of a request that sends nothing.
pub(crate) fn nowhere(domain: raw::Domain) -> To {
    let host = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let fields = IpFields::default();
    let at = Address { own: host, interface: 0, peer: host, fields, queue_pair: 0 };
    Destination { domain: domain.0, key: 0, at }
}

/// Bytes of the longest payload.
pub(crate) fn longest() -> u32 {
    128 << environment::mtu()
}

/// A UDP port of the number of a TCP port, whose datagrams go to the queue pairs of `context`.
pub(crate) fn open(context: &Arc<Context>, address: SocketAddr) -> raw::Result<raw::DatagramPort> {
    let to = Arc::downgrade(context);
    let sink = move |bytes: &[u8], message: &Message| arrived(&to, bytes, message);
    context.adapter.datagram_port(address, sink)
}

/// Where a datagram goes. `None`: its number names no port of the host.
fn destination(address: &Address) -> Option<SocketAddr> {
    let Address { own, interface, peer, queue_pair, .. } = *address;
    if peer.is_multicast() {
        return group::destination(own, interface, peer);
    }
    let port = (queue_pair >> 8) as u16;
    (port >= crate::rendezvous::FIRST_PORT).then(|| gid::socket_address(peer, port, interface))
}

/// Datagrams of requests that have been taken, as they travel.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// Where each goes, and where its bytes end.
    datagrams: Vec<(Address, usize)>,
}

impl Outgoing {
    /// Put one behind the others.
    pub(crate) fn push(&mut self, source: u32, datagram: &Departure<'_, Address>) {
        let packet = Packet {
            destination: datagram.at.queue_pair,
            source,
            key: datagram.key,
            immediate: datagram.immediate,
            solicited: datagram.solicited,
            payload: datagram.payload,
        };
        packet.encode(&mut self.bytes);
        self.datagrams.push((datagram.at, self.bytes.len()));
    }

    /// Send all of them. The network may lose them; without a destination they are lost here. No lock
    /// that a receiver needs may be held: a datagram waits for room at a receiver on this host.
    pub(crate) fn send(&mut self, port: &raw::DatagramPort, sent: &Datagrams) {
        let mut begin = 0;
        for (address, end) in self.datagrams.drain(..) {
            if let Some((to, bytes)) = destination(&address).zip(self.bytes.get(begin..end))
                && port.send(address.own, to, address.fields, bytes).is_ok()
            {
                sent.count(bytes.len(), address.peer.is_multicast());
            }
            begin = end;
        }
        self.bytes.clear();
    }
}

/// A datagram has come: to the queue pair that it names, or nowhere.
fn arrived(context: &Weak<Context>, bytes: &[u8], message: &Message) {
    let (Some(context), Some(packet)) = (context.upgrade(), Packet::decode(bytes)) else { return };
    context.port.received.count(bytes.len(), message.to.is_multicast());
    if let Some(queue_pair) = context.queue_pair(packet.destination) {
        deliver(&queue_pair, &packet, message);
    }
}

fn deliver(queue_pair: &QueuePair, packet: &Packet<'_>, message: &Message) {
    if !matches!(queue_pair.state(), qps::RTR | qps::RTS | qps::SQD | qps::SQE) {
        return;
    }
    let _ = queue_pair.engine.deliver(&Datagram {
        source: QueuePairId(packet.source),
        key: packet.key,
        route: &packet::route(message),
        over_ipv6: message.to.is_ipv6(),
        immediate: packet.immediate,
        solicited: packet.solicited,
        payload: packet.payload,
    });
}
