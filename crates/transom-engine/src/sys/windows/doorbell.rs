//! Doorbells, which wake a thread that waits.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use super::fd::{AsFd, FdKind};
use super::socket::own_the_port;
use super::{Fd, perturb};

/// Wakes a thread that waits: a datagram socket of loopback that is its own peer, so that no other
/// process can ring it.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    socket: Fd,
    rung: AtomicBool,
}

impl Doorbell {
    /// A silent one.
    pub fn new() -> io::Result<Doorbell> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        own_the_port(&socket).map_err(io::Error::other)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&address.into())?;
        socket.connect(&socket.local_addr()?)?;
        Ok(Doorbell(Arc::new(Bell { socket: socket.into(), rung: AtomicBool::new(false) })))
    }

    pub(super) fn socket(&self) -> io::Result<&Arc<Socket>> {
        match &self.0.socket.0 {
            FdKind::Socket(socket) => Ok(socket),
            FdKind::Set(_) | FdKind::Alarm(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Whether it is this process's own: always.
    pub fn is_ours(&self) -> bool {
        true
    }

    /// Whether both are one doorbell.
    pub(super) fn is(&self, other: &Doorbell) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ring. Never blocks; ringing twice is ringing once.
    pub fn ring(&self) {
        perturb();
        if !self.0.rung.swap(true, Ordering::AcqRel)
            && let Ok(socket) = self.socket()
            && socket.send(&[1]).is_err()
        {
            // The next ring tries again.
            self.0.rung.store(false, Ordering::Release);
        }
    }

    /// Whether it was rung since it was last silenced; silences it.
    pub fn silence(&self) -> bool {
        let before = self.0.rung.swap(false, Ordering::AcqRel);
        if let Ok(socket) = self.socket() {
            let mut byte = [std::mem::MaybeUninit::uninit(); 1];
            while socket.recv(&mut byte).is_ok() {}
        }
        // Bytes of rings that came meanwhile may be among those taken: these rings are silenced, too, and
        // the next one sends a byte again. A byte that is left wakes a thread once more than it has to.
        self.0.rung.swap(false, Ordering::AcqRel) || before
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> &Fd {
        &self.0.socket
    }
}

thread_local! {
    static OWN: RefCell<Option<Doorbell>> = const { RefCell::new(None) };
}

/// The bell of a thread that waits for a set.
pub(super) fn own_bell() -> io::Result<Doorbell> {
    OWN.with_borrow_mut(|kept| match kept {
        Some(bell) => Ok(bell.clone()),
        None => Doorbell::new().map(|bell| kept.insert(bell).clone()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::poll_any;
    use super::*;

    /// However a ring and a silence meet, the next ring is heard.
    #[test]
    fn a_bell_that_is_rung_while_it_is_silenced_rings_again() {
        let bell = Doorbell::new().unwrap();
        let go_on = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while go_on.load(Ordering::Relaxed) {
                    bell.ring();
                }
            });
            for _ in 0..200 {
                bell.silence();
                // Without an end if the flag is up and no byte is there.
                poll_any(&[], &bell, None).unwrap();
            }
            go_on.store(false, Ordering::Relaxed);
        });
        bell.silence();
        assert!(!bell.silence());
        poll_any(&[], &bell, Some(Duration::ZERO)).unwrap();
    }

    #[test]
    fn no_other_socket_rings_a_bell() {
        let bell = Doorbell::new().unwrap();
        let address = bell.socket().unwrap().local_addr().unwrap().as_socket().unwrap();
        let other = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        other.send_to(b"other", address).unwrap();
        bell.ring();
        poll_any(&[], &bell, None).unwrap();
        let mut byte = [std::mem::MaybeUninit::uninit(); 8];
        assert_eq!(bell.socket().unwrap().recv(&mut byte).unwrap(), 1, "its own byte came first");
        assert!(bell.socket().unwrap().recv(&mut byte).is_err(), "and nothing else");
    }
}
