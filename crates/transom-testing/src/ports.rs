//! Ports without a listener.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of the loopback address that is bound and not listening: a connection to it is refused,
/// and as long as this lives the system gives it to no socket that asks for any. (A port that was
/// free a moment ago may be taken by now.) A socket that names it, and shares as this does
/// (SO_REUSEADDR), may listen there.
#[derive(Debug)]
pub struct Held {
    at: SocketAddr,
    _socket: Socket,
}

impl Held {
    /// A port of the system's choice.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new() -> io::Result<Held> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let at = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Held { at, _socket: socket })
    }

    /// An address without a listener.
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
    fn a_held_port_refuses_until_a_listener_shares_it() {
        let held = Held::new().unwrap();
        let refused = TcpStream::connect(held.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = TcpListener::bind(held.address()).unwrap(); // shares, as everywhere on Unix
        TcpStream::connect(held.address()).unwrap();
    }
}
