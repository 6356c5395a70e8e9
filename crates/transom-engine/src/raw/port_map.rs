//! A port space beside TCP's, for a front whose services stand beside TCP services of the same ports.

use std::net::SocketAddr;
use std::sync::Arc;

use super::adapter::Owner;
use super::{Adapter, Error, Listener, Result};
use crate::Status;
use crate::driver;

/// A port of the space beside TCP's. Dropping it gives the port back.
#[derive(Debug)]
pub struct MappedPort {
    owner: Arc<Owner>,
    port: Arc<driver::MappedPort>,
}

/// The question where a service of the space beside TCP's listens. Dropping it cancels it.
#[derive(Debug)]
pub struct PortQuestion {
    owner: Arc<Owner>,
    question: Arc<driver::PortQuestion>,
}

impl Adapter {
    /// Give `listener` the port of `address` (0: any) in the space beside TCP's. A TCP socket of the
    /// same address and port is not in the way.
    ///
    /// # Errors
    /// `SharingViolation` if the port is taken there (it is the UDP port of this number),
    /// `InvalidAddress`, `InsufficientResources`; of an adapter that is gone, `DeviceRemoved` or
    /// `Forked`.
    pub fn map_port(&self, address: SocketAddr, listener: &Listener) -> Result<MappedPort> {
        let to = listener.address()?.port();
        let port = driver::MappedPort::bind(self.0.present()?, address, to)
            .map_err(|e| Error::link(e, &format!("map the port of {address}")))?;
        Ok(MappedPort { owner: self.0.clone(), port })
    }

    /// Ask the host of `peer` for the listener that has this port in the space beside TCP's. `found`
    /// is called once, with no lock held: with the address to connect to; with `ConnectionRefused`
    /// if no service has the port, which is known at once; with `IoTimeout` if the host says nothing
    /// for five seconds; or with `Canceled`.
    ///
    /// # Errors
    /// Those of the system where there is no way to the peer; `DeviceRemoved`, `Forked`. `found` is
    /// not called then.
    pub fn find_port(
        &self,
        peer: SocketAddr,
        found: impl FnOnce(std::result::Result<SocketAddr, Status>) + Send + 'static,
    ) -> Result<PortQuestion> {
        let there = move |port| SocketAddr::new(peer.ip(), port);
        let found = Box::new(move |port: std::result::Result<u16, Status>| found(port.map(there)));
        let question = driver::PortQuestion::ask(self.0.present()?, peer, found)
            .map_err(|e| Error::link(e, &format!("ask for the listener of {peer}")))?;
        Ok(PortQuestion { owner: self.0.clone(), question })
    }
}

impl MappedPort {
    /// Where it is, with the port that was chosen if any was asked for.
    ///
    /// # Errors
    /// `Forked`, or what the system says.
    pub fn address(&self) -> Result<SocketAddr> {
        self.owner.here()?;
        self.port.address().map_err(|e| Error::link(e, "get a mapped port's address"))
    }
}

impl Drop for MappedPort {
    fn drop(&mut self) {
        if self.owner.here().is_ok() {
            self.port.close();
        }
    }
}

impl Drop for PortQuestion {
    fn drop(&mut self) {
        if self.owner.here().is_ok() {
            self.question.cancel();
        }
    }
}
