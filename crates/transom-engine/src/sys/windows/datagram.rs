//! UDP sockets, non-blocking. Multicast groups, and a sender's choice of header fields, are refused: this
//! system lets a program choose no traffic class, and only verbs, which are Linux's, ask for either.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use windows_sys::Win32::Networking::WinSock::{
    CMSGHDR, IP_HOPLIMIT, IP_PKTINFO, IP_RECVTOS, IP_RECVTTL, IP_TOS, IP_TTL, IPPROTO_IP,
    IPPROTO_IPV6, IPV6_HOPLIMIT, IPV6_PKTINFO, IPV6_RECVTCLASS, IPV6_TCLASS, LPFN_WSARECVMSG,
    LPWSAOVERLAPPED_COMPLETION_ROUTINE, MSG_CTRUNC, MSG_TRUNC, SIO_GET_EXTENSION_FUNCTION_POINTER,
    SIO_UDP_CONNRESET, SOCKET, WSABUF, WSAEMSGSIZE, WSAID_WSARECVMSG, WSAIoctl, WSAMSG, WSASendMsg,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use super::socket::{
    UNSUPPORTED, bind, handle, local_address, own_the_port, plain, set_option, socket_of,
};
use super::{Fd, IoError, IpFields, Message, perturb};

/// Bytes of messages that wait to be taken.
const RECEIVE_BUFFER: usize = 4 << 20;

type Result<T> = std::result::Result<T, IoError>;

/// A socket for datagrams.
#[derive(Debug)]
pub struct Datagrams(Fd);

fn socket_for(address: &SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(*address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Datagrams {
    /// A socket at `address` (port 0: any) that answers from the address at which it was asked, where
    /// the system says which one that is. `one_family`: every address of IPv6 leaves those of IPv4 to
    /// others.
    pub fn bind(address: SocketAddr, one_family: bool) -> Result<Datagrams> {
        let socket = socket_for(&address)?;
        own_the_port(&socket)?;
        let every = address.is_ipv6() && address.ip().is_unspecified();
        if every {
            socket.set_only_v6(one_family)?;
        }
        let both = every && !one_family;
        // A message is shown without what the system does not say of it.
        if address.is_ipv4() || both {
            let _ = set_option(&socket, IPPROTO_IP, IP_PKTINFO, 1);
            let _ = set_option(&socket, IPPROTO_IP, IP_RECVTOS, 1);
            let _ = set_option(&socket, IPPROTO_IP, IP_RECVTTL, 1);
        }
        if address.is_ipv6() {
            let _ = set_option(&socket, IPPROTO_IPV6, IPV6_PKTINFO, 1);
            let _ = set_option(&socket, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
            let _ = set_option(&socket, IPPROTO_IPV6, IPV6_HOPLIMIT, 1);
        }
        // The system grants as much of it as it lets a program have.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        // That a peer has no such port any more fails no receive of what others have sent.
        let off = 0_u32;
        let _ = control(&socket, SIO_UDP_CONNRESET, &off, &mut ());
        bind(&socket, address)?;
        Ok(Datagrams(socket.into()))
    }

    /// Refused: groups are not built for this system.
    pub fn join(_group: SocketAddr, _interfaces: &[u32]) -> Result<Datagrams> {
        Err(UNSUPPORTED)
    }

    /// A socket whose peer is `peer`. Where no socket has that port, sending or receiving fails with
    /// [`IoError::Refused`].
    pub fn connect(peer: SocketAddr) -> Result<Datagrams> {
        let socket = socket_for(&peer)?;
        socket.connect(&peer.into())?;
        Ok(Datagrams(socket.into()))
    }

    fn socket(&self) -> Result<&Socket> {
        socket_of(&self.0)
    }

    /// The socket, to wait for.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.0
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        local_address(self.socket()?)
    }

    /// Send to the peer.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        perturb();
        let socket = self.socket()?;
        has_port(socket)?;
        socket.send(bytes).map(drop).map_err(of_peer)
    }

    /// A message of the peer's; of one that is longer than the room, its beginning, with a length that
    /// is longer, too.
    pub fn receive(&self, into: &mut [u8]) -> Result<usize> {
        perturb();
        let (mut socket, room) = (self.socket()?, into.len());
        match socket.read(into) {
            Err(error) if error.raw_os_error() == Some(WSAEMSGSIZE) => Ok(room + 1),
            done => done.map_err(of_peer).or_else(|error| has_port(socket).and(Err(error))),
        }
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

    /// Take one message of at most `into`'s length. A longer one is dropped: `None`. Where the system does
    /// not name the destination, as of messages of this machine, the socket's own address stands for it.
    pub fn take(&self, into: &mut [u8]) -> Result<Option<Message>> {
        let socket = self.socket()?;
        let receive = receive_message(socket)?;
        let mut control = Control::default();
        let (mut length, mut flags) = (0, 0);
        perturb();
        // SAFETY: every pointer of the header is to memory of this function of the length beside it, and
        // without OVERLAPPED the system uses them during the call only. A call that succeeds has put the
        // sender into the name.
        let taken = unsafe {
            SockAddr::try_init(|name, name_length| {
                let mut part = buffer(into.as_mut_ptr(), into.len());
                let mut header = WSAMSG {
                    name: name.cast(),
                    namelen: *name_length,
                    lpBuffers: &raw mut part,
                    dwBufferCount: 1,
                    Control: buffer(control.bytes.as_mut_ptr(), control.bytes.len()),
                    dwFlags: 0,
                };
                let (header_at, length_at) = (&raw mut header, &raw mut length);
                if receive(handle(socket), header_at, length_at, std::ptr::null_mut(), None) != 0 {
                    return Err(io::Error::last_os_error());
                }
                *name_length = header.namelen;
                control.used = header.Control.len as usize;
                flags = header.dwFlags;
                Ok(())
            })
        };
        let from = match taken {
            Ok(((), name)) => name.as_socket().map(plain),
            Err(error) if error.raw_os_error() == Some(WSAEMSGSIZE) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if flags & (MSG_TRUNC | MSG_CTRUNC) != 0 {
            return Ok(None);
        }
        let (to, fields) = control.way();
        let to = match to {
            Some(to) => to,
            None => self.address()?.ip(),
        };
        Ok(from.map(|from| Message { length: length as usize, from, to, fields }))
    }

    /// Send one message from an address of this host; an unspecified one leaves it to the system. The scope
    /// of an IPv6 destination is the index of the interface to send on. Fields are refused.
    pub fn send_from(
        &self,
        from: IpAddr,
        to: SocketAddr,
        fields: IpFields,
        bytes: &[u8],
    ) -> Result<()> {
        if fields != IpFields::default() {
            return Err(UNSUPPORTED);
        }
        let socket = self.socket()?;
        let own = socket.local_addr()?.as_socket().ok_or(IoError::Other(0))?;
        let mut control = Control::default();
        if !from.is_unspecified() && from != own.ip() {
            control.put_source(from, &to);
        }
        // A socket for both families knows IPv4 by mapped addresses.
        let to = match to.ip() {
            IpAddr::V4(ip) if own.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), to.port())
            }
            _ => to,
        };
        let name = SockAddr::from(to);
        let mut part = buffer(bytes.as_ptr().cast_mut(), bytes.len());
        let header = WSAMSG {
            name: name.as_ptr().cast_mut().cast(),
            namelen: name.len(),
            lpBuffers: &raw mut part,
            dwBufferCount: 1,
            Control: buffer(control.bytes.as_mut_ptr(), control.used),
            dwFlags: 0,
        };
        let mut sent = 0;
        perturb();
        // SAFETY: as in `take`; everything is only read.
        let done = unsafe {
            let (header, sent) = (&raw const header, &raw mut sent);
            WSASendMsg(handle(socket), header, 0, sent, std::ptr::null_mut(), None)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
    }
}

/// Whether some socket has the peer's port, as far as its host has said. Wine 8 fails no call for that.
fn has_port(socket: &Socket) -> Result<()> {
    socket.take_error()?.map_or(Ok(()), |error| Err(of_peer(error)))
}

/// An error of a socket that has one peer: a reset is the word of the peer's host that no socket has the
/// port.
fn of_peer(error: io::Error) -> IoError {
    match error.into() {
        IoError::Reset => IoError::Refused,
        error => error,
    }
}

/// Of longer memory its beginning.
fn buffer(buf: *mut u8, length: usize) -> WSABUF {
    WSABUF { len: u32::try_from(length).unwrap_or(u32::MAX), buf }
}

/// A control call with a plain value in, and one out.
fn control<I: Copy, O>(socket: &Socket, code: u32, input: &I, output: &mut O) -> Result<()> {
    let (input, output) = (std::ptr::from_ref(input).cast(), std::ptr::from_mut(output).cast());
    let (input_size, output_size) = (size_of::<I>() as u32, size_of::<O>() as u32);
    let mut size = 0;
    // SAFETY: both values are alive during the call, of the sizes beside them, and each code that is
    // asked for here writes such a value.
    let done = unsafe {
        let none = std::ptr::null_mut();
        let size = &raw mut size;
        let socket = handle(socket);
        WSAIoctl(socket, code, input, input_size, output, output_size, size, none, None)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

type ReceiveMessage = unsafe extern "system" fn(
    SOCKET,
    *mut WSAMSG,
    *mut u32,
    *mut OVERLAPPED,
    LPWSAOVERLAPPED_COMPLETION_ROUTINE,
) -> i32;

/// `WSARecvMsg`, which no library exports.
fn receive_message(socket: &Socket) -> Result<ReceiveMessage> {
    static FOUND: OnceLock<ReceiveMessage> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let mut found: LPFN_WSARECVMSG = None;
    control(socket, SIO_GET_EXTENSION_FUNCTION_POINTER, &WSAID_WSARECVMSG, &mut found)?;
    let found = found.ok_or(UNSUPPORTED)?;
    Ok(*FOUND.get_or_init(|| found))
}

/// Bytes in front of the value of a control message.
const HEAD: usize = size_of::<CMSGHDR>().next_multiple_of(ALIGNED);
/// Values and messages begin at multiples of this.
const ALIGNED: usize = 8;

/// The control messages of one message.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; 256],
    used: usize,
}

impl Default for Control {
    fn default() -> Control {
        Control { bytes: [0; 256], used: 0 }
    }
}

impl Control {
    /// Choose the address that a message to `to` comes from. No other control message is sent.
    fn put_source(&mut self, from: IpAddr, to: &SocketAddr) {
        let scope = match to {
            SocketAddr::V4(_) => 0_u32,
            SocketAddr::V6(to) => to.scope_id(),
        };
        // An address, and the index of an interface.
        let (level, kind, mut value) = match from {
            IpAddr::V4(ip) => (IPPROTO_IP, IP_PKTINFO, ip.octets().to_vec()),
            IpAddr::V6(ip) => (IPPROTO_IPV6, IPV6_PKTINFO, ip.octets().to_vec()),
        };
        value.extend(scope.to_ne_bytes());
        let head = [level.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let message = [&(HEAD + value.len()).to_ne_bytes()[..], &head, &value].concat();
        if let Some(place) = self.bytes.get_mut(..message.len()) {
            place.copy_from_slice(&message);
            self.used = message.len().next_multiple_of(ALIGNED);
        }
    }

    /// The address that a message was sent to, if it is named, and fields of its header.
    fn way(&self) -> (Option<IpAddr>, IpFields) {
        let (mut to, mut fields) = (None, IpFields::default());
        let mut rest = self.bytes.get(..self.used).unwrap_or(&self.bytes);
        while let Some((level, kind, value, next)) = first_message(rest) {
            let octet = value.first().copied().unwrap_or(0);
            match (level, kind) {
                (IPPROTO_IP, IP_PKTINFO) => {
                    to = value.first_chunk::<4>().map(|ip| IpAddr::from(*ip));
                }
                (IPPROTO_IPV6, IPV6_PKTINFO) => {
                    to = value.first_chunk::<16>().map(|ip| IpAddr::from(*ip).to_canonical());
                }
                (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => fields.traffic_class = octet,
                (IPPROTO_IP, IP_TTL | IP_HOPLIMIT) | (IPPROTO_IPV6, IPV6_HOPLIMIT) => {
                    fields.hop_limit = octet;
                }
                _ => {}
            }
            rest = next;
        }
        (to, fields)
    }
}

/// The first control message of some: level, kind, value, and the bytes of those behind it.
fn first_message(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let length = usize::from_ne_bytes(*length);
    let value = bytes.get(HEAD..length)?;
    let next = bytes.get(length.checked_next_multiple_of(ALIGNED)?..).unwrap_or_default();
    Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), value, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_fields_are_refused() {
        let group = SocketAddr::new("239.255.84.1".parse().unwrap(), 0);
        assert_eq!(Datagrams::join(group, &[]).unwrap_err(), UNSUPPORTED);
        let socket = Datagrams::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let at = socket.address().unwrap();
        for (traffic_class, hop_limit) in [(1, 0), (0, 1)] {
            let fields = IpFields { traffic_class, hop_limit };
            assert_eq!(socket.send_from(at.ip(), at, fields, b"x"), Err(UNSUPPORTED));
        }
        assert_eq!(socket.take(&mut [0; 8]), Err(IoError::NotNow), "nothing was sent");
    }

    /// As `WSASendMsg` takes it and `WSARecvMsg` gives it, with another message in front.
    #[test]
    fn a_source_is_laid_out_as_a_destination_is_read() {
        for (from, to) in [("192.0.2.1", "192.0.2.2:9"), ("2001:db8::1", "[2001:db8::2]:9")] {
            let from: IpAddr = from.parse().unwrap();
            let mut control = Control::default();
            control.put_source(from, &to.parse().unwrap());
            assert_eq!(control.used % ALIGNED, 0);
            assert_eq!(control.way(), (Some(from), IpFields::default()));
            let (own, used) = (control.bytes, control.used);
            control = Control::default();
            let limit = [IPPROTO_IP.to_ne_bytes(), IP_TTL.to_ne_bytes(), 9_i32.to_ne_bytes()];
            let limit = [&(HEAD + 4).to_ne_bytes()[..], &limit.concat(), &[0; 4]].concat();
            control.bytes[..limit.len()].copy_from_slice(&limit);
            control.bytes[limit.len()..][..used].copy_from_slice(&own[..used]);
            control.used = limit.len() + used;
            let fields = IpFields { traffic_class: 0, hop_limit: 9 };
            assert_eq!(control.way(), (Some(from), fields));
        }
    }

    /// No length makes a walk over control messages leave them, or go on for ever.
    #[test]
    fn wrong_lengths_end_the_control_messages() {
        for length in [0, 1, HEAD - 1, HEAD, 257, 1 << 32, usize::MAX - 7, usize::MAX] {
            let mut control = Control::default();
            control.bytes[..8].copy_from_slice(&length.to_ne_bytes());
            for used in [0, 7, 15, 16, 24, 256, 300] {
                control.used = used;
                assert_eq!(control.way(), (None, IpFields::default()), "{length} of {used}");
            }
        }
    }
}
