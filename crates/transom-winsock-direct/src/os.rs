//! The way of a socket's record from one process of this user to another (WSD 12): an abstract Unix
//! socket that is named after the token.

use std::io::{Read, Result as Io};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::error::{Error, Result};

/// Where the taker comes.
#[derive(Debug)]
pub(crate) struct Place(UnixListener);

/// One end between giver and taker.
#[derive(Debug)]
pub(crate) struct Stream(UnixStream);

/// This system gives sockets to other processes.
pub(crate) fn check() -> Result<()> {
    Ok(())
}

impl Place {
    /// The place of a token; `None` where another socket of this system has it.
    pub(crate) fn new(token: u32) -> Option<Place> {
        UnixListener::bind_addr(&name(token).ok()?).ok().map(Place)
    }

    /// The next process that comes; `None` once the place is closed.
    pub(crate) fn accept(&self) -> Option<Stream> {
        self.0.accept().ok().map(|(stream, _)| Stream(stream))
    }

    /// The thread that accepts returns, and no process comes any more.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl Stream {
    /// The place of a token, as the taker finds it. A read waits for so long at most.
    pub(crate) fn to(token: u32, patience: Duration) -> Result<Stream> {
        let no = |_| Error::WSAEINVAL;
        let stream = UnixStream::connect_addr(&name(token)?).map_err(no)?;
        stream.set_read_timeout(Some(patience)).map_err(no)?;
        Ok(Stream(stream))
    }

    /// Say a few bytes, for which a fresh socket has room. An end that has gone is noticed elsewhere.
    pub(crate) fn say(&self, bytes: &[u8]) {
        let _ = send(&self.0, bytes, SendFlags::NOSIGNAL);
    }

    /// Whether the other end is a process of this user, and this one if any is asked for.
    pub(crate) fn is_process(&self, process: Option<u32>) -> bool {
        let Ok(other) = socket_peercred(&self.0) else { return false };
        let number = other.pid.as_raw_nonzero().get().unsigned_abs();
        other.uid == rustix::process::geteuid() && process.is_none_or(|process| process == number)
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> Io<usize> {
        (&self.0).read(room)
    }
}

fn name(token: u32) -> Result<Name> {
    let name = format!("transom/duplicate/{token:08x}");
    Name::from_abstract_name(name).map_err(|_| Error::WSAENOBUFS)
}
