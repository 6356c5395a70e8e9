//! UDP sockets, non-blocking.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Fd, IoError, IpFields, Message, perturb};

/// Bytes of messages that wait to be taken.
const RECEIVE_BUFFER: usize = 4 << 20;

type Result<T> = std::result::Result<T, IoError>;

/// A socket for datagrams.
#[derive(Debug)]
pub struct Datagrams(Fd);

fn socket_for(address: &SocketAddr) -> Result<Fd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = || net::socket_with(family, SocketType::DGRAM, flags, Some(net::ipproto::UDP));
    Ok(Fd::make(socket)?)
}

impl Datagrams {
    /// A socket at `address` (port 0: any) that answers from the address at which it was asked.
    /// `one_family`: every address of IPv6 leaves those of IPv4 to others.
    pub fn bind(address: SocketAddr, one_family: bool) -> Result<Datagrams> {
        let socket = Datagrams::prepared(&address, one_family)?;
        net::bind(&socket.0, &address)?;
        Ok(socket)
    }

    /// A socket that takes what is sent to a multicast group, at its port, on `interfaces` (by index; 0
    /// or none: as the system chooses), and nothing else. Other sockets may take the same.
    pub fn join(group: SocketAddr, interfaces: &[u32]) -> Result<Datagrams> {
        let socket = Datagrams::prepared(&group, false)?;
        net::sockopt::set_socket_reuseaddr(&socket.0, true)?;
        net::bind(&socket.0, &group)?;
        let any = if interfaces.is_empty() { &[0][..] } else { interfaces };
        let joined = any.iter().map(|&interface| match group.ip() {
            IpAddr::V4(group) => net::sockopt::set_ip_add_membership_with_ifindex(
                &socket.0,
                &group,
                &Ipv4Addr::UNSPECIFIED,
                interface,
            ),
            IpAddr::V6(group) => {
                net::sockopt::set_ipv6_add_membership(&socket.0, &group, interface)
            }
        });
        // A group that one interface can have is joined there.
        let refused = joined.filter(std::result::Result::is_err).collect::<Vec<_>>();
        match refused.first() {
            Some(Err(error)) if refused.len() == any.len() => Err((*error).into()),
            _ => Ok(socket),
        }
    }

    /// A socket that says of each message where it was sent to.
    fn prepared(address: &SocketAddr, one_family: bool) -> Result<Datagrams> {
        let socket = Datagrams(socket_for(address)?);
        if address.is_ipv6() && address.ip().is_unspecified() {
            net::sockopt::set_ipv6_v6only(&socket.0, one_family)?;
        }
        // Where a message was sent to is known only if this is asked for before it comes. Without the
        // fields of its header a message is shown with the usual ones.
        if address.is_ipv4() {
            socket.option(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        } else {
            socket.option(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
            let _ = socket.option(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
            let _ = socket.option(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT);
        }
        let _ = socket.option(libc::IPPROTO_IP, libc::IP_RECVTOS);
        let _ = socket.option(libc::IPPROTO_IP, libc::IP_RECVTTL);
        // The system grants as much of it as it lets a program have.
        let _ = net::sockopt::set_socket_recv_buffer_size(&socket.0, RECEIVE_BUFFER);
        Ok(socket)
    }

    /// A socket whose peer is `peer`. Where no socket has that port, sending or receiving fails with
    /// [`IoError::Refused`].
    pub fn connect(peer: SocketAddr) -> Result<Datagrams> {
        let socket = Datagrams(socket_for(&peer)?);
        net::connect(&socket.0, &peer)?;
        Ok(socket)
    }

    fn option(&self, level: i32, name: i32) -> Result<()> {
        let on = 1_i32;
        // SAFETY: passes a 4-byte value and its size.
        let done = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                self.0.as_raw_fd(),
                level,
                name,
                &raw const on,
                size_of::<i32>(),
            )
        };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// The descriptor, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        SocketAddr::try_from(net::getsockname(&self.0)?).map_err(|_| IoError::Other(0))
    }

    /// Send to the peer.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        perturb();
        net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// A message of the peer's; of one that is longer than the room, its beginning, with a length that is
    /// longer, too.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        perturb();
        Ok(net::recv(&self.0, into, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?.1)
    }

    /// Take one message of at most `into`'s length and answer it with what `answer` returns, from
    /// the address that it was sent to. A longer message is dropped.
    pub fn serve<const N: usize>(
        &self,
        into: &mut [u8],
        answer: impl FnOnce(&[u8]) -> Option<[u8; N]>,
    ) -> Result<()> {
        let Some(message) = self.take(into)? else { return Ok(()) };
        if let Some(answer) = into.get(..message.length).and_then(answer) {
            let _ = self.send_from(message.to, message.from, IpFields::default(), &answer);
        }
        Ok(())
    }

    /// Take one message of at most `into`'s length. A longer one, or one whose destination the system
    /// does not name, is dropped: `None`.
    pub fn take(&self, into: &mut [u8]) -> Result<Option<Message>> {
        let mut control = Control::default();
        // SAFETY: a plain structure of numbers, for which zero is a value.
        let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: a zeroed msghdr is a valid, empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control.bytes).cast();
        header.msg_controllen = control.bytes.len();
        perturb();
        // SAFETY: every pointer of the header is to memory of this function of the length beside it.
        let count = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::syscall(libc::SYS_recvmsg, self.0.as_raw_fd(), &raw mut header, flags)
        };
        let length = usize::try_from(count).map_err(|_| last_error())?;
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Ok(None);
        }
        // SAFETY: the system has filled in name and control messages, of the lengths in the header.
        let (from, (to, fields)) = unsafe { (address_in(&name), way_in(&header)) };
        let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
        Ok(Some(Message { length, from, to, fields }))
    }

    /// Send one message from an address of this host. A hop limit of 0 leaves it to the system. The
    /// scope of an IPv6 destination is the index of the interface to send on.
    pub fn send_from(
        &self,
        from: IpAddr,
        to: SocketAddr,
        fields: IpFields,
        bytes: &[u8],
    ) -> Result<()> {
        let mut control = Control::default();
        let dual = net::getsockname(&self.0)?.address_family() == AddressFamily::INET6;
        // A socket for both families knows IPv4 by mapped addresses.
        let mapped = |ip: IpAddr| match ip {
            IpAddr::V4(v4) if dual => v4.to_ipv6_mapped().into(),
            ip => ip,
        };
        let scope = match to {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(to) => to.scope_id(),
        };
        match mapped(from) {
            IpAddr::V4(from) => control.put(
                (libc::IPPROTO_IP, libc::IP_PKTINFO),
                libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(from).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                },
            ),
            IpAddr::V6(from) => control.put(
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
                libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
                    ipi6_ifindex: scope,
                },
            ),
        };
        // A mapped address has the fields of IPv4.
        let (level, class, limit) = match from {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        if fields.traffic_class != 0 {
            control.put((level, class), i32::from(fields.traffic_class));
        }
        if fields.hop_limit != 0 {
            control.put((level, limit), i32::from(fields.hop_limit));
        }
        let to = match (to, mapped(to.ip())) {
            (SocketAddr::V4(to), IpAddr::V6(ip)) => SocketAddr::new(ip.into(), to.port()),
            (to, _) => to,
        };
        let name = net::SocketAddrAny::from(to);
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: a zeroed msghdr is a valid, empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.addr_len();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control.bytes).cast();
        header.msg_controllen = control.used;
        perturb();
        // SAFETY: as in `take`; everything is only read.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::syscall(libc::SYS_sendmsg, self.0.as_raw_fd(), &raw const header, flags)
        };
        if sent < 0 { Err(last_error()) } else { Ok(()) }
    }
}

/// Room for the control messages of one message.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; 128],
    /// A multiple of a header's alignment.
    used: usize,
}

impl Default for Control {
    fn default() -> Control {
        Control { bytes: [0; 128], used: 0 }
    }
}

impl Control {
    /// Put one control message behind those that are here, if there is room.
    fn put<T: Copy>(&mut self, (level, kind): (i32, i32), value: T) {
        // SAFETY: both only compute with a size.
        let (length, space) = unsafe {
            let size = size_of::<T>() as u32;
            (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize)
        };
        let Some(room) = self.bytes.get_mut(self.used..self.used + space) else { return };
        // SAFETY: the room is aligned for a header and holds it and the value behind it; CMSG_DATA need
        // not be aligned for the value, so that it is written without that.
        unsafe {
            let header = room.as_mut_ptr().cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = length;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}

/// The address in a `sockaddr_storage` that the system has filled in; IPv4 not as mapped.
fn address_in(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = std::ptr::from_ref(name);
    match i32::from(
        // SAFETY: a structure of numbers.
        unsafe { (*name).ss_family },
    ) {
        libc::AF_INET => {
            // SAFETY: of this family, the storage begins with such a structure.
            let v4 = unsafe { *name.cast::<libc::sockaddr_in>() };
            let ip = IpAddr::from(u32::from_be(v4.sin_addr.s_addr).to_be_bytes());
            Some(SocketAddr::new(ip, u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { *name.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddr::new(v4.into(), port),
                None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// The address that a message was sent to, and fields of its header.
///
/// # Safety
/// A header that the system has filled in, with its control messages.
unsafe fn way_in(header: &libc::msghdr) -> (Option<IpAddr>, IpFields) {
    let (mut to, mut fields) = (None, IpFields::default());
    // SAFETY: this function's contract; the data of each kind is such a structure, maybe not aligned.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let data = libc::CMSG_DATA(message);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    to = Some(u32::from_be(info.ipi_addr.s_addr).to_be_bytes().into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical());
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => fields.traffic_class = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    fields.traffic_class = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    fields.hop_limit = data.cast::<i32>().read_unaligned() as u8;
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, message);
        }
    }
    (to, fields)
}

fn last_error() -> IoError {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Errno::from_raw_os_error(code).into()
}

#[cfg(test)]
mod tests {
    use super::super::tests::datagram::wait;
    use super::*;

    #[test]
    fn each_member_of_a_group_takes_what_is_sent_there() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let index = super::super::interfaces().unwrap();
        let index = index.iter().find(|i| i.address == loopback).map(|i| i.name.clone()).unwrap();
        let index = net::netdevice::name_to_index(
            Datagrams::bind((loopback, 0).into(), false).unwrap().fd(),
            &index,
        );
        let sender = Datagrams::bind((loopback, 0).into(), false).unwrap();
        let group =
            SocketAddr::new("239.255.84.1".parse().unwrap(), sender.address().unwrap().port());
        let members = [(); 2].map(|()| Datagrams::join(group, &[index.unwrap()]).unwrap());
        let other = SocketAddr::new("239.255.84.2".parse().unwrap(), group.port());
        let fields = IpFields { traffic_class: 0, hop_limit: 1 };
        sender.send_from(loopback, other, fields, b"not for them").unwrap();
        sender.send_from(loopback, group, fields, b"for both").unwrap();
        for member in &members {
            wait(member);
            let message = member.take(&mut [0; 16]).unwrap().unwrap();
            let from = sender.address().unwrap();
            assert_eq!(message, Message { length: 8, from, to: group.ip(), fields });
            assert_eq!(member.take(&mut [0; 16]), Err(IoError::NotNow));
        }
    }

    #[test]
    fn a_group_that_no_interface_can_have_is_refused() {
        let group = SocketAddr::new("239.255.84.3".parse().unwrap(), 0);
        assert!(Datagrams::join(group, &[1 << 30]).is_err());
        let unicast = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
        assert!(Datagrams::join(unicast, &[]).is_err());
    }
}
