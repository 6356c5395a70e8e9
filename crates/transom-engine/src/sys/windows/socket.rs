//! TCP sockets, non-blocking.

use std::cell::Cell;
use std::io;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::windows::io::AsRawSocket;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET6, IPPROTO_TCP, SO_EXCLUSIVEADDRUSE, SOCKET, SOL_SOCKET, TCP_MAXRT, TCP_MAXSEG, WSABUF,
    WSAEACCES, WSAEADDRINUSE, WSAEADDRNOTAVAIL, WSAEALREADY, WSAECONNABORTED, WSAECONNREFUSED,
    WSAECONNRESET, WSAEFAULT, WSAEHOSTUNREACH, WSAEINPROGRESS, WSAEINTR, WSAEINVAL, WSAEMFILE,
    WSAENETDOWN, WSAENETRESET, WSAENETUNREACH, WSAENOBUFS, WSAENOTCONN, WSAEOPNOTSUPP,
    WSAESHUTDOWN, WSAETIMEDOUT, WSAEWOULDBLOCK, WSASend, getsockopt, setsockopt,
};

use super::fd::FdKind;
use super::{Fd, IoError, Options, Progress, perturb};

/// The refusal of everything that is not built for this system.
pub(super) const UNSUPPORTED: IoError = IoError::Other(WSAEOPNOTSUPP);

impl From<io::Error> for IoError {
    fn from(e: io::Error) -> IoError {
        match e.raw_os_error().unwrap_or(0) {
            WSAEWOULDBLOCK | WSAEINTR | WSAEINPROGRESS | WSAEALREADY => IoError::NotNow,
            WSAEFAULT => IoError::Fault,
            WSAECONNREFUSED => IoError::Refused,
            WSAECONNRESET | WSAECONNABORTED | WSAENETRESET | WSAESHUTDOWN => IoError::Reset,
            WSAETIMEDOUT => IoError::TimedOut,
            WSAEHOSTUNREACH => IoError::Unreachable,
            WSAENETUNREACH | WSAENETDOWN => IoError::NoRoute,
            WSAEADDRINUSE => IoError::InUse,
            WSAEADDRNOTAVAIL => IoError::NotLocal,
            WSAEMFILE | WSAENOBUFS => IoError::Exhausted,
            WSAEACCES => IoError::Forbidden,
            code => IoError::Other(code),
        }
    }
}

type Result<T> = std::result::Result<T, IoError>;

/// IPv6 among the families of addresses, as this system numbers them.
pub(crate) const INET6: u16 = AF_INET6;

/// A run of bytes to send: host address and length, as `WSASend` takes them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(WSABUF);

// SAFETY: a plain pair of numbers; `Stream::send_many` vouches for what it points to.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Bytes of ours, which the caller keeps alive until they are sent.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Bytes {
        Bytes::host(bytes.as_ptr().addr() as u64, bytes.len())
    }

    /// Bytes of an application's memory. Of a run of 4 GiB or more the beginning is sent.
    #[must_use]
    pub fn host(address: u64, length: usize) -> Bytes {
        let buf = usize::try_from(address).unwrap_or(0) as *mut u8;
        Bytes(WSABUF { len: u32::try_from(length).unwrap_or(u32::MAX), buf })
    }
}

fn socket_for(address: &SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// An address as its own family writes it: one of IPv4 at a socket of both families, too.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

pub(super) fn local_address(socket: &Socket) -> Result<SocketAddr> {
    socket.local_addr()?.as_socket().map(plain).ok_or(IoError::Other(0))
}

pub(super) fn handle(socket: &Socket) -> SOCKET {
    socket.as_raw_socket() as SOCKET
}

/// Set an option of four bytes.
pub(super) fn set_option(socket: &Socket, level: i32, name: i32, value: u32) -> Result<()> {
    let size = size_of::<u32>() as i32;
    // SAFETY: passes a 4-byte value and its size.
    let done = unsafe { setsockopt(handle(socket), level, name, (&raw const value).cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

/// No other socket may share the port, as `SO_REUSEADDR` of another process would make it.
pub(super) fn own_the_port(socket: &Socket) -> Result<()> {
    set_option(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1)
}

/// The local address from which `peer` is reached: what a datagram socket would use. Nothing is
/// sent.
pub fn route_to(peer: SocketAddr) -> Result<SocketAddr> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&peer.into())?;
    local_address(&socket)
}

/// Whether `address` is one of this machine's.
pub fn check_local(address: IpAddr) -> Result<()> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    Ok(socket.bind(&address.into())?)
}

/// A socket that accepts.
#[derive(Debug)]
pub struct Listener(Fd);

impl Listener {
    /// A socket at `address`; port 0 lets the system choose. `::` takes both families, unless it is to
    /// take `one_family`.
    pub fn bind(address: SocketAddr, one_family: bool) -> Result<Listener> {
        let socket = socket_for(&address)?;
        if BORROWS.get() {
            socket.set_reuse_address(true)?;
        } else {
            own_the_port(&socket)?;
        }
        if address.is_ipv6() && address.ip().is_unspecified() {
            socket.set_only_v6(one_family)?;
        }
        bind(&socket, address)?;
        Ok(Listener(socket.into()))
    }

    fn socket(&self) -> Result<&Socket> {
        socket_of(&self.0)
    }

    /// Let peers connect; `backlog` of them may wait to be accepted.
    pub fn listen(&self, backlog: u16) -> Result<()> {
        Ok(self.socket()?.listen(i32::from(backlog))?)
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        local_address(self.socket()?)
    }

    /// The next connection, if there is one.
    pub fn accept(&self, options: &Options) -> Result<(Stream, SocketAddr)> {
        let (socket, peer) = self.socket()?.accept()?;
        socket.set_nonblocking(true)?;
        let peer = plain(peer.as_socket().ok_or(IoError::Other(0))?);
        configure(&socket, options)?;
        Ok((Stream(socket.into()), peer))
    }

    /// The socket, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }
}

thread_local! {
    /// Whether this thread binds sockets to a port that is lent to them.
    static BORROWS: Cell<bool> = const { Cell::new(false) };
}

/// An address and port that no socket gets, but those to which it is lent.
///
/// The system lets sockets that ask for `SO_REUSEADDR` have the same address, and no others. This one
/// never listens, so that peers are refused. Another program that asks for `SO_REUSEADDR` can take
/// the port, too.
#[derive(Debug)]
pub struct ReservedPort(Socket);

impl ReservedPort {
    /// Take `address`; port 0 lets the system choose. Connections that ended a moment ago are not in
    /// the way.
    pub fn take(address: SocketAddr) -> Result<ReservedPort> {
        if address.port() != 0 {
            // A port that another socket has is refused, also if that one shares it.
            let probe = socket_for(&address)?;
            own_the_port(&probe)?;
            bind(&probe, address)?;
        }
        let socket = socket_for(&address)?;
        socket.set_reuse_address(true)?;
        bind(&socket, address)?;
        Ok(ReservedPort(socket))
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        local_address(&self.0)
    }

    /// Let the sockets that `bind` makes have it, too.
    pub fn lend<T>(&self, bind: impl FnOnce() -> T) -> T {
        let before = BORROWS.replace(true);
        let bound = bind();
        BORROWS.set(before);
        bound
    }
}

/// Give a socket `address`, where no other socket has it.
pub(super) fn bind(socket: &Socket, address: SocketAddr) -> Result<()> {
    match socket.bind(&address.into()).map_err(IoError::from) {
        Err(IoError::InUse | IoError::Exhausted) if address.port() == 0 => Err(IoError::NoPort),
        // The port belongs to a socket that shares it with no other.
        Err(IoError::Forbidden) => Err(IoError::InUse),
        done => done,
    }
}

pub(super) fn socket_of(fd: &Fd) -> Result<&Socket> {
    match &fd.0 {
        FdKind::Socket(socket) => Ok(socket),
        FdKind::Set(_) | FdKind::Alarm(_) => Err(IoError::Other(0)),
    }
}

fn configure(socket: &Socket, options: &Options) -> Result<()> {
    socket.set_tcp_nodelay(true)?;
    // Seconds, and ignored where the system does not have it.
    let seconds = options.silence.as_secs().max(1);
    let limit = u32::try_from(seconds).unwrap_or(u32::MAX);
    let _ = set_option(socket, IPPROTO_TCP, TCP_MAXRT, limit);
    // Probes find a silent host also while we have nothing to say to it.
    let probe = (options.silence / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(probe).with_interval(probe))?;
    Ok(())
}

/// A connection.
#[derive(Debug)]
pub struct Stream(Fd);

impl Stream {
    fn socket(&self) -> Result<&Socket> {
        socket_of(&self.0)
    }

    fn begin(socket: &Socket, peer: SocketAddr) -> Result<()> {
        let Err(error) = socket.connect(&peer.into()) else { return Ok(()) };
        match error.raw_os_error() {
            // From a loopback address to one that is none.
            Some(WSAEINVAL) => Err(IoError::Unreachable),
            // Every port towards this peer is taken: not the fault of the address.
            Some(WSAEADDRNOTAVAIL) => Err(IoError::NoPort),
            _ => match error.into() {
                IoError::NotNow => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Begin to connect from `local` (port 0: any) to `peer`. It is done when the socket becomes
    /// writable; then ask [`Stream::connected`].
    pub fn connect(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        options: &Options,
    ) -> Result<Stream> {
        let socket = socket_for(&peer)?;
        configure(&socket, options)?;
        if let Some(local) = local {
            socket.set_reuse_address(BORROWS.get())?;
            socket.bind(&local.into())?;
        }
        Stream::begin(&socket, peer)?;
        Ok(Stream(socket.into()))
    }

    /// Begin to connect a socket at `local` (port 0: any) to itself, which TCP knows as a
    /// simultaneous open. Returns the socket and its address.
    pub fn to_itself(local: SocketAddr, options: &Options) -> Result<(Stream, SocketAddr)> {
        let socket = socket_for(&local)?;
        configure(&socket, options)?;
        socket.bind(&local.into())?;
        let address = local_address(&socket)?;
        Stream::begin(&socket, address)?;
        Ok((Stream(socket.into()), address))
    }

    /// Whether a connect has succeeded; `NotNow` while it is under way.
    pub fn connected(&self) -> Result<()> {
        let socket = self.socket()?;
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        match socket.peer_addr() {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(WSAENOTCONN) => Err(IoError::NotNow),
            Err(e) => Err(e.into()),
        }
    }

    /// This end's address.
    pub fn local(&self) -> Result<SocketAddr> {
        local_address(self.socket()?)
    }

    /// Give the connection up. Another one may have its two addresses once the socket is closed: this system has no
    /// call for that.
    pub fn let_go(&self) {
        if let Ok(socket) = self.socket() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The congestion control in use: this system has no choice for a socket.
    #[cfg(test)]
    pub fn congestion(&self) -> Option<String> {
        None
    }

    /// The maximum segment size.
    #[must_use]
    pub fn segment_size(&self) -> Option<u32> {
        let mut value = 0_i32;
        let mut size = size_of::<i32>() as i32;
        let socket = handle(self.socket().ok()?);
        // SAFETY: asks for a 4-byte value and gives room for it.
        let done = unsafe {
            getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, (&raw mut value).cast(), &raw mut size)
        };
        if done == 0 { u32::try_from(value).ok().filter(|v| *v > 0) } else { None }
    }

    /// The acknowledgements of the peer's host so far: the system does not say when the last one came.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        None
    }

    /// Segments and bytes that were sent, and that have come: not asked of this system.
    #[must_use]
    pub fn traffic(&self) -> Option<[(u32, u64); 2]> {
        None
    }

    /// Receive. `Ok(0)`: the peer will send no more.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        perturb();
        Ok(self.socket()?.read(into)?)
    }

    /// Send; fewer bytes than given may be taken.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        perturb();
        Ok(self.socket()?.send(bytes)?)
    }

    /// Send several runs. The system copies them before this returns; memory that is not there is
    /// [`IoError::Fault`].
    ///
    /// # Safety
    /// Each run is alive or registered memory, which the caller may read.
    pub unsafe fn send_many(&self, runs: &[Bytes]) -> Result<usize> {
        let socket = handle(self.socket()?);
        let count = u32::try_from(runs.len()).map_err(|_| IoError::NotNow)?;
        let mut sent = 0;
        // SAFETY: without OVERLAPPED the system reads the runs during the call, and reports one that is
        // not mapped. `Bytes` is a WSABUF.
        let done = unsafe {
            let runs = runs.as_ptr().cast::<WSABUF>();
            WSASend(socket, runs, count, &raw mut sent, 0, std::ptr::null_mut(), None)
        };
        if done == 0 { Ok(sent as usize) } else { Err(io::Error::last_os_error().into()) }
    }

    /// Nothing follows for now. Nothing was held back.
    pub fn push(&self) {}

    /// Say that no more will be sent (FIN). What was sent before still arrives.
    pub fn finish(&self) {
        let _ = self.socket().map(|socket| socket.shutdown(std::net::Shutdown::Write));
    }

    /// End both directions.
    pub fn shut(&self) {
        let _ = self.socket().map(|socket| socket.shutdown(std::net::Shutdown::Both));
    }

    /// The socket, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }
}
