//! Ports at which nobody listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A port of the loopback address that is bound and not listening: a connection to it is refused, and as
/// long as this lives the system gives it to nobody who asks for any. (One that was free a moment ago may
/// be a neighbour's by now.) Who names it, and shares as this does (SO_REUSEADDR), may listen there.
#[derive(Debug)]
pub struct Held {
    at: SocketAddr,
    _socket: OwnedFd,
}

impl Held {
    /// A port of the system's choice.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Held> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Held { at: SocketAddr::try_from(getsockname(&socket)?)?, _socket: socket })
    }

    /// Where nobody listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn nobody_listens_there_until_somebody_does() {
        let held = Held::new().unwrap();
        let refused = TcpStream::connect(held.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = TcpListener::bind(held.address()).unwrap(); // shares, as everywhere on Unix
        TcpStream::connect(held.address()).unwrap();
    }
}
