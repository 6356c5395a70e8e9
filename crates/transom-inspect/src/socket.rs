//! Connecting to a process's socket.

use std::io;
pub(crate) use std::os::unix::net::UnixStream as Stream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use transom_os::users::is_ours;

/// A connection, and the process that listens there, if the kernel names it: one of another PID namespace has no
/// number here. `None` if another user listens there. Never waits for the process; a read of what it says
/// waits no longer than `patience`.
pub(crate) fn connect(
    path: &Path,
    patience: Duration,
) -> io::Result<Option<(Stream, Option<u32>)>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // A process could answer with some, and a read that takes the bytes beside one closes it: for as long as
    // that process likes. Linux before 6.16 does not know this.
    let _ = transom_os::peers::refuse_descriptors(&socket);
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let listener = transom_os::peers::peer(&socket)?;
    if !is_ours(listener.user) {
        return Ok(None);
    }
    let stream = Stream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(Some((stream, listener.process)))
}
