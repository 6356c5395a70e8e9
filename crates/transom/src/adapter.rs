//! The adapter: where everything begins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::{Buffer, Connect, Listener, Region, Result};

/// An RDMA adapter in software, at one local address. Clones are the same adapter; it ends with the
/// last handle that belongs to it.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {}

/// Who may learn why an access was refused, beyond the class of rule. The owner always keeps the
/// whole record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Explain {
    /// Nobody.
    Nobody,
    /// The same user on the same host.
    #[default]
    SameUser,
    /// Every peer. An attacker learns from refusals; choose this on networks you trust.
    Everyone,
}

/// How an adapter is to be opened. Start from [`Adapter::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) crc: bool,
    pub(crate) extension: bool,
    pub(crate) explain: Explain,
    pub(crate) depth: usize,
}

impl Options {
    /// Ask for a checksum (CRC32c) over every frame. On by default. A peer that asks for it gets it
    /// either way.
    pub fn crc(mut self, on: bool) -> Options {
        self.crc = on;
        self
    }

    /// Offer Transom's extension of iWARP (acknowledgements, announced Writes, receive credits). On
    /// by default; off, this side behaves as one that has never heard of it.
    pub fn extension(mut self, on: bool) -> Options {
        self.extension = on;
        self
    }

    /// Who may learn why an access was refused.
    pub fn explain(mut self, to: Explain) -> Options {
        self.explain = to;
        self
    }

    /// How many requests a queue pair holds (default 128).
    pub fn depth(mut self, requests: usize) -> Options {
        self.depth = requests;
        self
    }

    /// Open an adapter at a local address.
    pub fn open(self, address: IpAddr) -> Result<Adapter> {
        let _ = address;
        todo!()
    }

    /// Open an adapter at the local address from which `peer` is reached.
    pub fn route_to(self, peer: SocketAddr) -> Result<Adapter> {
        let _ = peer;
        todo!()
    }
}

/// What happened on an adapter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Results that arrived after their [`Posted`](crate::Posted) was dropped.
    pub unclaimed: u64,
    /// Accesses of peers that were refused here.
    pub refused: u64,
}

/// An address at which an adapter can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Name of the network interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// It reaches this machine only.
    pub loopback: bool,
}

impl Adapter {
    /// An adapter at a local address, with the default [`Options`]. Needs no privileges, no kernel
    /// module and no pinned memory.
    pub fn open(address: IpAddr) -> Result<Adapter> {
        Adapter::options().open(address)
    }

    /// An adapter at the local address from which `peer` is reached.
    pub fn route_to(peer: SocketAddr) -> Result<Adapter> {
        Adapter::options().route_to(peer)
    }

    /// Options, all at their defaults.
    pub fn options() -> Options {
        Options { crc: true, extension: true, explain: Explain::SameUser, depth: 128 }
    }

    /// The addresses at which an adapter can be opened on this machine.
    pub fn list() -> Result<Vec<AdapterInfo>> {
        todo!()
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        todo!()
    }

    /// Hand a buffer over. No peer can touch it before a window is opened on it
    /// ([`QueuePair::bind`](crate::QueuePair::bind)).
    pub fn register<B: Buffer>(&self, buffer: B) -> Result<Region<B>> {
        let _ = buffer;
        todo!()
    }

    /// Wait for peers at a local address. Port 0: any free port.
    pub fn listen(&self, at: SocketAddr) -> Result<Listener> {
        let _ = at;
        todo!()
    }

    /// Connect to a peer. Nothing happens before the result is awaited or
    /// [`wait`](Connect::wait)ed for.
    pub fn connect(&self, to: SocketAddr) -> Connect {
        let _ = to;
        todo!()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        todo!()
    }
}
