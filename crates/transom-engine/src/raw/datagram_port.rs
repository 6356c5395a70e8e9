//! UDP ports, for a front whose datagrams go over UDP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::adapter::Owner;
use super::{Adapter, Error, Result};
use crate::driver;
use crate::sys::{IpFields, Message};

/// A UDP port. Dropping it gives the port back.
#[derive(Debug)]
pub struct DatagramPort {
    owner: Arc<Owner>,
    port: Arc<driver::DatagramPort>,
}

impl Adapter {
    /// Take the UDP port of `address` (0: any; the wildcard address of IPv6 takes both families).
    /// `sink` has each message of at most 16 KiB: its bytes, and what the network says of it. It is called
    /// for one message after the other, in order, by a background thread or inside
    /// [`DatagramPort::progress`]; messages that come meanwhile wait in the system's buffer, or are lost.
    ///
    /// # Errors
    /// `SharingViolation` if the port is taken; `InvalidAddress`, `InsufficientResources`; of an adapter
    /// that is gone, `DeviceRemoved` or `Forked`.
    pub fn datagram_port(
        &self,
        address: SocketAddr,
        sink: impl Fn(&[u8], &Message) + Send + Sync + 'static,
    ) -> Result<DatagramPort> {
        self.bind_datagrams(address, false, sink)
    }

    /// As [`Adapter::datagram_port`]; the wildcard address of IPv6 leaves those of IPv4 to others.
    ///
    /// # Errors
    /// As [`Adapter::datagram_port`].
    pub fn datagram_port_of_one_family(
        &self,
        address: SocketAddr,
        sink: impl Fn(&[u8], &Message) + Send + Sync + 'static,
    ) -> Result<DatagramPort> {
        self.bind_datagrams(address, true, sink)
    }

    fn bind_datagrams(
        &self,
        address: SocketAddr,
        one_family: bool,
        sink: impl Fn(&[u8], &Message) + Send + Sync + 'static,
    ) -> Result<DatagramPort> {
        let shared = self.0.present()?;
        let port = driver::DatagramPort::bind(shared, address, one_family, Box::new(sink))
            .map_err(|e| Error::link(e, &format!("take the UDP port of {address}")))?;
        Ok(DatagramPort { owner: self.0.clone(), port })
    }
}

impl Adapter {
    /// Take what is sent to a multicast group, at the port beside it, on the interfaces with these
    /// indices (none: as the system chooses). Every member of the group gets each message; `sink` is
    /// called as that of [`Adapter::datagram_port`] is.
    ///
    /// # Errors
    /// `InvalidAddress` if no interface can have the group; `InsufficientResources`; of an adapter that
    /// is gone, `DeviceRemoved` or `Forked`.
    pub fn datagram_group(
        &self,
        group: SocketAddr,
        interfaces: &[u32],
        sink: impl Fn(&[u8], &Message) + Send + Sync + 'static,
    ) -> Result<DatagramPort> {
        let shared = self.0.present()?;
        let port = driver::DatagramPort::join(shared, group, interfaces, Box::new(sink))
            .map_err(|e| Error::link(e, &format!("join the multicast group {group}")))?;
        Ok(DatagramPort { owner: self.0.clone(), port })
    }
}

impl DatagramPort {
    /// Where it is, with the port that was chosen if any was asked for.
    ///
    /// # Errors
    /// `Forked`, or what the system says.
    pub fn address(&self) -> Result<SocketAddr> {
        self.owner.here()?;
        self.port.address().map_err(|e| Error::link(e, "get a UDP port's address"))
    }

    /// Hand what has come to the sink, unless another thread is doing so: a program that polls need not
    /// wait for the background thread.
    pub fn progress(&self) {
        if self.owner.here().is_ok() {
            self.port.progress();
        }
    }

    /// Send a message from an address of this host. A hop limit of 0 leaves it to the system. The scope
    /// of an IPv6 destination is the index of the interface to send on; 0: any. While the system's
    /// buffers have no room for it, that of a receiver on this host included, the call waits for up to
    /// 250 ms; to a receiver that has taken nothing for so long, messages are lost without a wait until
    /// its buffer has room again.
    ///
    /// # Errors
    /// `Forked`, or what the system says: the message is lost.
    pub fn send(&self, from: IpAddr, to: SocketAddr, fields: IpFields, bytes: &[u8]) -> Result<()> {
        self.owner.here()?;
        self.port
            .send(from, to, fields, bytes)
            .map_err(|e| Error::link(e, &format!("send a datagram to {to}")))
    }
}

impl DatagramPort {
    /// Send without a wait: a message for which there is no room in the system's buffers is lost. For
    /// sinks, whose thread serves other connections, too.
    ///
    /// # Errors
    /// `Forked`, or what the system says: the message is lost.
    pub fn send_now(
        &self,
        from: IpAddr,
        to: SocketAddr,
        fields: IpFields,
        bytes: &[u8],
    ) -> Result<()> {
        self.owner.here()?;
        self.port
            .send_now(from, to, fields, bytes)
            .map_err(|e| Error::link(e, &format!("send a datagram to {to}")))
    }
}

impl Drop for DatagramPort {
    fn drop(&mut self) {
        if self.owner.here().is_ok() {
            self.port.close();
        }
    }
}
