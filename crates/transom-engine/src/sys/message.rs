//! Datagrams as the driver sees them on every system.

use std::net::{IpAddr, SocketAddr};

/// Fields of an IP header that a program may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpFields {
    /// The traffic class of IPv6, the type of service of IPv4.
    pub traffic_class: u8,
    /// The hop limit of IPv6, the time to live of IPv4.
    pub hop_limit: u8,
}

/// A message that was taken, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's bytes.
    pub length: usize,
    /// The message's sender.
    pub from: SocketAddr,
    /// The address of this host that it was sent to.
    pub to: IpAddr,
    /// Of its header; 0 where the system does not say.
    pub fields: IpFields,
}
