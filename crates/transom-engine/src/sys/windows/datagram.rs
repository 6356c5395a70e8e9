//! UDP sockets of fronts: there are none on this system yet. Only verbs use them.

use std::net::{IpAddr, SocketAddr};

use super::socket::UNSUPPORTED;
use super::{Fd, IoError, IpFields, Message};

type Result<T> = std::result::Result<T, IoError>;

/// A socket for datagrams. There is none on this system.
#[derive(Debug)]
pub enum Datagrams {}

impl Datagrams {
    /// Refused.
    pub fn bind(_address: SocketAddr) -> Result<Datagrams> {
        Err(UNSUPPORTED)
    }

    /// Refused.
    pub fn join(_group: SocketAddr, _interfaces: &[u32]) -> Result<Datagrams> {
        Err(UNSUPPORTED)
    }

    /// Refused.
    pub fn connect(_peer: SocketAddr) -> Result<Datagrams> {
        Err(UNSUPPORTED)
    }

    pub fn fd(&self) -> &Fd {
        match *self {}
    }

    pub fn address(&self) -> Result<SocketAddr> {
        match *self {}
    }

    pub fn send(&self, _bytes: &[u8]) -> Result<()> {
        match *self {}
    }

    pub fn receive(&self, _into: &mut [u8]) -> Result<usize> {
        match *self {}
    }

    pub fn serve<const N: usize>(
        &self,
        _into: &mut [u8],
        _answer: impl FnOnce(&[u8]) -> Option<[u8; N]>,
    ) -> Result<()> {
        match *self {}
    }

    pub fn take(&self, _into: &mut [u8]) -> Result<Option<Message>> {
        match *self {}
    }

    pub fn send_from(
        &self,
        _from: IpAddr,
        _to: SocketAddr,
        _fields: IpFields,
        _bytes: &[u8],
    ) -> Result<()> {
        match *self {}
    }
}
