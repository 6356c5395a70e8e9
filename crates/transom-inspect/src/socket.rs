//! Connecting to a process's socket.

use std::io;
pub(crate) use std::os::unix::net::UnixStream as Stream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::folder::user;

/// `None` if another user listens there. Never waits for the process; a read of
/// what it says waits no longer than `patience`.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<Option<Stream>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    if sockopt::socket_peercred(&socket)?.uid.as_raw() != user() {
        return Ok(None);
    }
    let stream = Stream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(Some(stream))
}
