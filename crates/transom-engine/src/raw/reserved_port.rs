//! Local ports that are in use for as long as a program says.

use std::net::SocketAddr;
use std::sync::Arc;

use super::adapter::Owner;
use super::{Adapter, Error, Listener, Result};
use crate::sys;

/// A local address and port that no other socket of this machine gets, whether anything listens or
/// connects there or not. Dropping the last clone gives it back.
#[derive(Clone, Debug)]
pub struct ReservedPort {
    owner: Arc<Owner>,
    pub(super) port: Arc<sys::ReservedPort>,
}

impl Adapter {
    /// Reserve a local port (0: one that no socket has, and none has had lately). Connections of a
    /// named port that are ending are not in the way.
    ///
    /// # Errors
    /// `InvalidAddress`, `SharingViolation`, `TooManyAddresses`, `InsufficientResources`;
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn reserve_port(&self, address: SocketAddr) -> Result<ReservedPort> {
        self.0.present()?;
        let port = sys::ReservedPort::take(address)
            .map_err(|e| Error::link(e, &format!("reserve {address}")))?;
        Ok(ReservedPort { owner: self.0.clone(), port: Arc::new(port) })
    }
}

impl ReservedPort {
    /// Where it is; tells the port if any was asked for.
    ///
    /// # Errors
    /// The error of the system; `Forked` in a forked child.
    pub fn address(&self) -> Result<SocketAddr> {
        self.owner.here()?;
        self.port.address().map_err(|e| Error::link(e, "get a reserved port's address"))
    }

    /// A listener there, listening ([`Listener::listen`]). The port stays reserved when it has gone.
    ///
    /// # Errors
    /// As [`Adapter::listener`] and [`Listener::listen`].
    pub fn listen(&self, backlog: usize) -> Result<Listener> {
        let address = self.address()?;
        let adapter = Adapter(self.owner.clone());
        self.port.lend(|| {
            let listener = adapter.bind_listener(address, true)?;
            listener.listen(backlog)?;
            Ok(listener)
        })
    }
}
