//! TCP sockets, non-blocking, on raw system calls.

use super::{Fd, IoError, Options, Progress, perturb};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

impl From<Errno> for IoError {
    fn from(e: Errno) -> IoError {
        match e {
            Errno::AGAIN | Errno::INTR | Errno::INPROGRESS | Errno::ALREADY => IoError::NotNow,
            Errno::FAULT => IoError::Fault,
            Errno::CONNREFUSED => IoError::Refused,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => IoError::Reset,
            Errno::TIMEDOUT => IoError::TimedOut,
            Errno::HOSTUNREACH => IoError::Unreachable,
            Errno::NETUNREACH | Errno::NETDOWN => IoError::NoRoute,
            Errno::ADDRINUSE => IoError::InUse,
            Errno::ADDRNOTAVAIL => IoError::NotLocal,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => IoError::Exhausted,
            Errno::ACCESS | Errno::PERM => IoError::Forbidden,
            e => IoError::Other(e.raw_os_error()),
        }
    }
}

type Result<T> = std::result::Result<T, IoError>;

/// IPv6 among the families of addresses, as this system numbers them.
pub(crate) const INET6: u16 = libc::AF_INET6 as u16;

/// A run of bytes to send: host address and length. The layout is the kernel's `struct iovec`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes(libc::iovec);

// SAFETY: a plain pair of numbers; `Stream::send_many` vouches for what it points to.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Bytes of ours, which the caller keeps alive until they are sent.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Bytes {
        Bytes(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
    }

    /// Bytes of an application's memory.
    #[must_use]
    pub fn host(address: u64, length: usize) -> Bytes {
        let address = usize::try_from(address).unwrap_or(0) as *mut libc::c_void;
        Bytes(libc::iovec { iov_base: address, iov_len: length })
    }
}

fn socket_for(address: &SocketAddr) -> Result<Fd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = || net::socket_with(family, SocketType::STREAM, flags, Some(net::ipproto::TCP));
    Ok(Fd::make(socket)?)
}

/// An address as its own family writes it: one of IPv4 at a socket of both families, too.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// An address that is local to a link, with the interface that has it or, of a peer's, with that of `own`.
/// Lists of addresses leave it out, and the system takes none without.
fn on_its_link(address: SocketAddr, own: Option<SocketAddr>) -> SocketAddr {
    let SocketAddr::V6(mut v6) = address else { return address };
    if !v6.ip().is_unicast_link_local() || v6.scope_id() != 0 {
        return address;
    }
    let scope = match own {
        Some(own) => match on_its_link(own, None) {
            SocketAddr::V6(own) => own.scope_id(),
            SocketAddr::V4(_) => 0,
        },
        None => {
            let all = super::interfaces().unwrap_or_default();
            let found = all.into_iter().find(|one| one.address == address.ip());
            let index = |name: &str| {
                let socket = socket_for(&address).ok()?;
                net::netdevice::name_to_index(&socket, name).ok()
            };
            found.and_then(|one| index(&one.name)).unwrap_or(0)
        }
    };
    v6.set_scope_id(scope);
    v6.into()
}

fn local_address(fd: &Fd) -> Result<SocketAddr> {
    let any = net::getsockname(fd)?;
    SocketAddr::try_from(any).map(plain).map_err(|_| IoError::Other(0))
}

/// The local address from which `peer` is reached: what a datagram socket would use. Nothing is
/// sent.
pub fn route_to(peer: SocketAddr) -> Result<SocketAddr> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = || net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let fd = Fd::make(socket)?;
    net::connect(&fd, &peer)?;
    local_address(&fd)
}

/// Whether `address` is one of this machine's. Takes no port: there may be none left.
pub fn check_local(address: std::net::IpAddr) -> Result<()> {
    let address = SocketAddr::new(address, 0);
    let stream = Stream(socket_for(&address)?);
    let address = on_its_link(address, None);
    stream.option(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    Ok(net::bind(&stream.0, &address)?)
}

/// A socket that accepts.
#[derive(Debug)]
pub struct Listener(Fd);

impl Listener {
    /// A socket at `address`; port 0 lets the system choose. `::` takes both families, unless it is to
    /// take `one_family`.
    pub fn bind(address: SocketAddr, one_family: bool) -> Result<Listener> {
        let fd = socket_for(&address)?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            sockopt::set_ipv6_v6only(&fd, one_family)?;
        }
        bind_shared(fd, address).map(Listener)
    }

    /// Let peers connect; `backlog` of them may wait to be accepted.
    pub fn listen(&self, backlog: u16) -> Result<()> {
        Ok(net::listen(&self.0, i32::from(backlog))?)
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        local_address(&self.0)
    }

    /// The next connection, if there is one.
    pub fn accept(&self, options: &Options) -> Result<(Stream, SocketAddr)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accept = || net::acceptfrom_with(&self.0, flags).map(|(fd, peer)| (Fd::of(fd), peer));
        let (fd, peer) = Fd::take(accept).ok_or(IoError::NotNow)??;
        let peer = peer.and_then(|p| SocketAddr::try_from(p).ok()).ok_or(IoError::Other(0))?;
        let peer = plain(peer);
        let stream = Stream(fd);
        stream.configure(options)?;
        Ok((stream, peer))
    }

    /// The descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }
}

/// An address and port that no socket gets, but those to which it is lent.
///
/// The system lets sockets that share (SO_REUSEADDR) bind what all of its holders share, unless one
/// has listened. This socket has listened, shares while it lends, and never accepts.
#[derive(Debug)]
pub struct ReservedPort {
    fd: Fd,
    lending: Mutex<()>,
}

impl ReservedPort {
    /// Take `address`; port 0 lets the system choose. Connections that ended a moment ago are not in
    /// the way.
    pub fn take(address: SocketAddr) -> Result<ReservedPort> {
        let mut fd = bind_shared(socket_for(&address)?, address)?;
        if address.port() == 0 {
            // Below, the system takes a port back that it has chosen, and leaves one that was named.
            fd = bind_shared(socket_for(&address)?, local_address(&fd)?)?;
        }
        net::listen(&fd, 0)?;
        sockopt::set_socket_reuseaddr(&fd, false)?;
        net::shutdown(&fd, net::Shutdown::Read)?;
        Ok(ReservedPort { fd, lending: Mutex::new(()) })
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        local_address(&self.fd)
    }

    /// Let the sockets that `bind` makes have it, too.
    pub fn lend<T>(&self, bind: impl FnOnce() -> T) -> T {
        let _one = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sockopt::set_socket_reuseaddr(&self.fd, true);
        let bound = bind();
        let _ = sockopt::set_socket_reuseaddr(&self.fd, false);
        bound
    }
}

/// Give a socket `address`, which others that share may have too.
fn bind_shared(fd: Fd, address: SocketAddr) -> Result<Fd> {
    let address = on_its_link(address, None);
    sockopt::set_socket_reuseaddr(&fd, true)?;
    match net::bind(&fd, &address) {
        Ok(()) => Ok(fd),
        Err(Errno::ADDRINUSE) if address.port() == 0 => Err(IoError::NoPort),
        Err(e) => Err(e.into()),
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream(Fd);

/// The beginning of what `TCP_INFO` says (`struct tcp_info` of `linux/tcp.h`), as far as the counts: the C library's
/// is shorter. Zero where the kernel says less.
#[repr(C)]
struct TcpInfo {
    state: u8,
    _congestion: u8,
    retransmits: u8,
    probes: u8,
    _options: [u8; 4],
    _segments: [u32; 12],
    /// In milliseconds.
    last_ack_recv: u32,
    _path: [u32; 11],
    _pacing: [u64; 2],
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    _rates: [u64; 7],
    bytes_sent: u64,
}

impl Stream {
    /// Begin to connect from `local` (port 0: any) to `peer`. It is done when the socket becomes
    /// writable; then ask [`Stream::connected`].
    pub fn connect(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        options: &Options,
    ) -> Result<Stream> {
        let stream = Stream(socket_for(&peer)?);
        stream.configure(options)?;
        let local = local.map(|local| on_its_link(local, None));
        let peer = on_its_link(peer, local);
        if let Some(local) = local {
            // Without it, 16,384 short-lived connections exhaust the ports for a minute.
            sockopt::set_socket_reuseaddr(&stream.0, true)?;
            if local.port() == 0 {
                // The port is chosen by `connect`, which knows the peer: more are free then.
                stream.option(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            }
            net::bind(&stream.0, &local)?;
        }
        match net::connect(&stream.0, &peer) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(stream),
            // Every port towards this peer is taken: not the fault of the address.
            Err(Errno::ADDRNOTAVAIL) => Err(IoError::NoPort),
            // From a loopback address to one that is none: the kernel's word for "no way".
            Err(Errno::INVAL) => Err(IoError::Unreachable),
            Err(e) => Err(e.into()),
        }
    }

    /// Begin to connect a socket at `local` (port 0: any) to itself, which TCP knows as a
    /// simultaneous open. Returns the socket and its address.
    pub fn to_itself(local: SocketAddr, options: &Options) -> Result<(Stream, SocketAddr)> {
        let stream = Stream(socket_for(&local)?);
        stream.configure(options)?;
        net::bind(&stream.0, &on_its_link(local, None))?;
        let address = stream.local()?;
        match net::connect(&stream.0, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok((stream, address)),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether a connect has succeeded; `NotNow` while it is under way.
    pub fn connected(&self) -> Result<()> {
        sockopt::socket_error(&self.0)?.map_err(IoError::from)?;
        match net::getpeername(&self.0) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(Errno::NOTCONN) => Err(IoError::NotNow),
            Err(e) => Err(e.into()),
        }
    }

    fn configure(&self, options: &Options) -> Result<()> {
        sockopt::set_tcp_nodelay(&self.0, true)?;
        let millis = u32::try_from(options.silence.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.0, millis)?;
        // Probes find a silent host also while we have nothing to say to it.
        sockopt::set_socket_keepalive(&self.0, true)?;
        let probe = (options.silence / 4).max(Duration::from_secs(1));
        sockopt::set_tcp_keepidle(&self.0, probe)?;
        sockopt::set_tcp_keepintvl(&self.0, probe)?;
        if let Some(name) = &options.congestion {
            let _ = sockopt::set_tcp_congestion(&self.0, name);
        }
        Ok(())
    }

    fn option(&self, level: i32, name: i32, value: i32) {
        // SAFETY: passes a 4-byte value and its size; failure is harmless here.
        unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.0.as_raw_fd(),
                level,
                name,
                &raw const value,
                size_of::<i32>(),
            );
        }
    }

    /// This end's address.
    pub fn local(&self) -> Result<SocketAddr> {
        local_address(&self.0)
    }

    /// Give the connection up, so that another one may have its two addresses (connect(2), AF_UNSPEC).
    pub fn let_go(&self) {
        // A socket that is connected no more has none.
        let _ = net::connect_unspec(&self.0);
    }

    /// The congestion control in use.
    #[cfg(test)]
    pub fn congestion(&self) -> Option<String> {
        sockopt::tcp_congestion(&self.0).ok()
    }

    /// The maximum segment size.
    #[must_use]
    pub fn segment_size(&self) -> Option<u32> {
        let mut value = 0i32;
        let mut size: libc::socklen_t = 4;
        // SAFETY: asks for a 4-byte value and gives room for it; rustix has no call for it.
        let r = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                &raw mut value,
                &raw mut size,
            )
        };
        if r == 0 { u32::try_from(value).ok().filter(|v| *v > 0) } else { None }
    }

    /// The acknowledgements of the peer's host so far.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        const CLOSED: u8 = 7;
        let info = self.info()?;
        let mut waiting = 0i32;
        // SAFETY: the call writes at most as many bytes as `waiting` has.
        let asked = unsafe {
            libc::syscall(libc::SYS_ioctl, self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting)
        };
        (asked == 0).then_some(Progress {
            heard: Duration::from_millis(info.last_ack_recv.into()),
            // Both start anew with each acknowledgement.
            unanswered: info.retransmits > 0 || info.probes > 0,
            // The kernel gives up on what it cannot send, and forgets how much that was.
            waits: waiting > 0 || info.state == CLOSED,
        })
    }

    /// Segments and bytes of the stream that were sent, and that have come. `None`: the kernel does not say.
    #[must_use]
    pub fn traffic(&self) -> Option<[(u32, u64); 2]> {
        let info = self.info()?;
        // Before Linux 4.19 it says what was acknowledged, and not what was sent.
        let sent = info.bytes_sent.max(info.bytes_acked);
        Some([(info.segs_out, sent), (info.segs_in, info.bytes_received)])
    }

    fn info(&self) -> Option<TcpInfo> {
        // SAFETY: numbers, for which zero is a value.
        let mut info: TcpInfo = unsafe { std::mem::zeroed() };
        let mut size = size_of::<TcpInfo>() as libc::socklen_t;
        // SAFETY: the call writes at most as many bytes as `info` has.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                &raw mut info,
                &raw mut size,
            )
        };
        (asked == 0).then_some(info)
    }

    /// Receive. `Ok(0)`: the peer will send no more.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        perturb();
        Ok(net::recv(&self.0, into, RecvFlags::DONTWAIT)?.0)
    }

    /// Send; fewer bytes than given may be taken.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        perturb();
        Ok(net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Send several runs, with more to follow at once ([`Stream::push`] if not). The kernel copies
    /// them before this returns; memory that is not there ends the run early, or is
    /// [`IoError::Fault`] if it is the first byte.
    ///
    /// # Safety
    /// Each run is alive or registered memory, which the caller may read.
    pub unsafe fn send_many(&self, runs: &[Bytes]) -> Result<usize> {
        // SAFETY: a zeroed msghdr is a valid, empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = runs.as_ptr().cast::<libc::iovec>().cast_mut();
        message.msg_iovlen = runs.len() as _;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;
        // SAFETY: the kernel reads the header and the runs during the call, and reports a run that
        // is not mapped.
        let n = unsafe {
            libc::syscall(libc::SYS_sendmsg, self.0.as_raw_fd(), &raw const message, flags)
        };
        usize::try_from(n).map_err(|_| {
            let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            Errno::from_raw_os_error(code).into()
        })
    }

    /// Nothing follows for now: what was held back in hope of more goes out.
    pub fn push(&self) {
        let _ = sockopt::set_tcp_nodelay(&self.0, true);
    }

    /// Say that no more will be sent (FIN). What was sent before still arrives.
    pub fn finish(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Write);
    }

    /// End both directions for every process that holds the descriptor: a forked child may.
    pub fn shut(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Both);
    }

    /// The descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }
}
