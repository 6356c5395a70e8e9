//! The user behind the other end of a connection within this machine, asked of the kernel about that
//! one socket: what it costs does not grow with the number of sockets, which strangers decide.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::netlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::Fd;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const TCP: u8 = 6;
/// The state of a socket that is not the end of any connection.
const LISTENS: u8 = 10;
const HEADER: usize = 16;
/// Behind the header: `struct inet_diag_req_v2`, and where `struct inet_diag_msg` has what we ask for.
const QUESTION: usize = 56;
const STATE: usize = HEADER + 1;
const USER: usize = HEADER + 64;
const INODE: usize = HEADER + 68;

/// The user whose socket is at the other end of a connection from `local` to `peer`, both addresses of
/// this machine. `None`: nobody holds that socket, it is not on this machine, or the kernel was built
/// without this way to ask.
#[must_use]
pub(crate) fn user_of_peer(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    if !(from.is_loopback() || from == to) {
        return None;
    }
    let socket: Fd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?
    .into();
    send(&socket, &question((from, peer.port()), (to, local.port())), SendFlags::empty()).ok()?;
    // The kernel answers within the call; nobody else can write here without naming this socket.
    let mut answer = [0; 512];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).ok()?;
    read(answer.get(..count)?)
}

/// The kernel has answered once: since then, no answer means that there is no such socket.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Whether the kernel answers such questions, as far as is known, or can be found out from the end of
/// a connection that is ours.
pub(crate) fn is_answered(local: SocketAddr, peer: SocketAddr) -> bool {
    let answers = || ANSWERS.load(Ordering::Relaxed);
    answers() || {
        let _ = user_of_peer(peer, local);
        answers()
    }
}

/// Whose socket is at `from`, connected to `to`? Its ends in the order in which its holder sees them.
fn question(from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    const AF_INET: u8 = libc::AF_INET as u8;
    const AF_INET6: u8 = libc::AF_INET6 as u8;
    let mut bytes = Vec::with_capacity(HEADER + QUESTION);
    bytes.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // sequence, port
    bytes.extend([if from.0.is_ipv4() { AF_INET } else { AF_INET6 }, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes()); // in any state
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    for ip in [from.0, to.0] {
        let mut place = [0; 16];
        match ip {
            IpAddr::V4(ip) => place[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => place = ip.octets(),
        }
        bytes.extend(place);
    }
    bytes.extend([0; 4]); // any interface
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

/// The user in an answer.
fn read(answer: &[u8]) -> Option<u32> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == BY_FAMILY && !ANSWERS.load(Ordering::Relaxed) {
        ANSWERS.store(true, Ordering::Relaxed);
    }
    // A socket that nobody holds (not accepted yet, or closed) is shown as root's. One that is shut down
    // for writing has its holder still.
    let held = word(INODE)? != 0;
    (kind == BY_FAMILY && *answer.get(STATE)? != LISTENS && held).then(|| word(USER))?
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_knows_whose_the_other_end_is() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let at = listener.local_addr().unwrap();
            let from = active.local_addr().unwrap();
            assert_eq!(
                user_of_peer(from, at),
                None,
                "the kernel has accepted, and nobody holds it"
            );
            let (passive, from) = listener.accept().unwrap();
            let me = rustix::process::geteuid().as_raw();
            if user_of_peer(at, from).is_none() {
                eprintln!("not shown: this kernel does not answer (no tcp_diag)");
                return;
            }
            assert_eq!(user_of_peer(at, from), Some(me), "seen from the passive side");
            assert_eq!(user_of_peer(from, at), Some(me), "seen from the active side");
            active.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(user_of_peer(at, from), Some(me), "half-closed, and held");
            drop(active);
            assert_eq!(user_of_peer(at, from), None, "a socket that nobody holds is nobody's");
            drop(passive);
            assert_eq!(user_of_peer(at, ([192, 0, 2, 1], 7).into()), None);
        }
    }

    /// A dual-stack socket of IPv6 may be the other end of a connection of IPv4.
    #[test]
    fn an_ipv4_peer_may_use_an_ipv6_socket() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let active = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_passive, from) = listener.accept().unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let seen = user_of_peer(at, from);
        assert_eq!(seen, user_of_peer(active.local_addr().unwrap(), at), "from either side");
    }

    #[test]
    fn an_answer_cut_short_names_nobody() {
        let mut answer = [0xff; 100];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        for length in 0..INODE + 4 {
            assert_eq!(read(&answer[..length]), None);
        }
        assert_eq!(read(&answer), Some(u32::MAX));
        answer[STATE] = LISTENS;
        assert_eq!(read(&answer), None, "a listener at the peer's port is not the peer");
    }
}
