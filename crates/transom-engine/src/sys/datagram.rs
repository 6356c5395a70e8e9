//! UDP sockets, non-blocking, for a question of a few bytes and its answer.

use std::net::SocketAddr;

use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Fd, IoError, perturb};

type Result<T> = std::result::Result<T, IoError>;

/// A socket for datagrams.
#[derive(Debug)]
pub struct Datagrams(Fd);

fn socket_for(address: &SocketAddr) -> Result<Fd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::DGRAM, flags, Some(net::ipproto::UDP))?.into())
}

impl Datagrams {
    /// A socket at `address` (port 0: any) that answers from the address at which it was asked.
    pub fn bind(address: SocketAddr) -> Result<Datagrams> {
        let socket = Datagrams(socket_for(&address)?);
        // Where a message was sent to is known only if this is asked for before it comes.
        if address.is_ipv4() {
            socket.option(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        } else {
            socket.option(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
        }
        net::bind(&socket.0, &address)?;
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

    /// A message of the peer's; of one that is longer than the room, its beginning, with its length.
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
        #[repr(C, align(8))]
        struct Control([u8; 128]);
        let mut control = Control([0; 128]);
        // SAFETY: a plain structure of numbers, for which zero is a value.
        let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: a zeroed msghdr is a valid, empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control.0).cast();
        message.msg_controllen = control.0.len();
        perturb();
        // SAFETY: every pointer of the header is to memory of this function of the length beside it.
        let count = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::syscall(libc::SYS_recvmsg, self.0.as_raw_fd(), &raw mut message, flags)
        };
        let count = usize::try_from(count).map_err(|_| last_error())?;
        if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Ok(());
        }
        let Some(answer) = into.get(..count).and_then(answer) else { return Ok(()) };
        // The control message has the address that was asked, in the form in which it names the
        // address to answer from.
        let mut part = libc::iovec { iov_base: answer.as_ptr().cast_mut().cast(), iov_len: N };
        message.msg_iov = &raw mut part;
        message.msg_flags = 0;
        // SAFETY: as above; the answer is only read.
        unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::syscall(libc::SYS_sendmsg, self.0.as_raw_fd(), &raw const message, flags);
        }
        Ok(())
    }
}

fn last_error() -> IoError {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Errno::from_raw_os_error(code).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(socket: &Datagrams) {
        let fd = rustix::event::PollFd::new(socket.fd(), rustix::event::PollFlags::IN);
        rustix::event::poll(&mut [fd], None).unwrap();
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let server = Datagrams::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let port = server.address().unwrap().port();
        for host in ["127.0.0.1", "127.0.0.2"] {
            // A connected socket takes nothing from another address.
            let client =
                Datagrams::connect((host.parse::<std::net::IpAddr>().unwrap(), port).into());
            let client = client.unwrap();
            client.send(b"question").unwrap();
            wait(&server);
            server.serve(&mut [0; 16], |bytes| (bytes == b"question").then_some(*b"yes")).unwrap();
            wait(&client);
            let mut room = [0; 8];
            assert_eq!(client.receive(&mut room), Ok(3));
            assert_eq!(&room[..3], b"yes");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_dropped() {
        let server = Datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = Datagrams::connect(server.address().unwrap()).unwrap();
        client.send(&[0; 17]).unwrap();
        client.send(&[0; 16]).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            wait(&server);
            server
                .serve(&mut [0; 16], |bytes| {
                    seen.push(bytes.len());
                    None::<[u8; 1]>
                })
                .unwrap();
        }
        assert_eq!(seen, [16]);
        assert_eq!(server.serve(&mut [0; 16], |_| None::<[u8; 1]>), Err(IoError::NotNow));
    }

    #[test]
    fn a_port_that_no_socket_has_is_known_at_once() {
        let nobody = Datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = Datagrams::connect(nobody.address().unwrap()).unwrap();
        drop(nobody);
        client.send(b"question").unwrap();
        wait(&client);
        assert_eq!(client.receive(&mut [0; 8]), Err(IoError::Refused));
    }
}
