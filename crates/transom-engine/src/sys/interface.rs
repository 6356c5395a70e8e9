//! The addresses of this machine as the driver sees them on every system.

use std::net::IpAddr;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The interface is the loopback: this machine only.
    pub loopback: bool,
    /// The interface is up.
    pub up: bool,
}
