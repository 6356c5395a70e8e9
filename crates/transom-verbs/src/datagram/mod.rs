//! Datagrams of queue pairs of type UD: one UDP datagram each, between the ports that their numbers
//! name (Verbs V138 to Verbs V144).

pub(crate) mod packet;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use transom_engine::raw::{self, IpFields, Message};
use transom_engine::{Datagram, Departure, Destination};
use transom_memory::QueuePairId;

use crate::abi::qps;
use crate::context::Context;
use crate::environment;
use packet::Packet;

/// The address of a datagram's destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// The address of this host to send from.
    pub(crate) own: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) fields: IpFields,
    pub(crate) queue_pair: u32,
}

/// The destination of a request, in the engine's words.
pub(crate) type To = Destination<Address>;

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

/// Send a datagram. The network may lose it, and so does a peer whose number names no port.
pub(crate) fn depart(
    port: &raw::DatagramPort,
    source: u32,
    datagram: &Departure<'_, Address>,
    wire: &mut Vec<u8>,
) {
    let Address { own, peer, fields, queue_pair } = datagram.at;
    let to = (queue_pair >> 8) as u16;
    if to < crate::rendezvous::FIRST_PORT {
        return;
    }
    let packet = Packet {
        destination: queue_pair,
        source,
        key: datagram.key,
        immediate: datagram.immediate,
        solicited: datagram.solicited,
        payload: datagram.payload,
    };
    packet.encode(wire);
    let _ = port.send(own, SocketAddr::new(peer, to), fields, wire);
}

/// A datagram has come: to the queue pair that it names, or nowhere.
fn arrived(context: &Weak<Context>, bytes: &[u8], message: &Message) {
    let (Some(context), Some(packet)) = (context.upgrade(), Packet::decode(bytes)) else { return };
    let Some(queue_pair) = context.queue_pair(packet.destination) else { return };
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
