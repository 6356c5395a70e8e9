//! The kernel's answers about one socket of this machine: the user behind the other end of a connection,
//! the receive buffer that a datagram would go to; and whether it is of this machine. The cost does not grow with the number of sockets,
//! which peers could raise.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::netlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::{Fd, PeerPlace};
use transom_os::answers::{
    About, End, ReceiveBuffer, end, holder, is_about_a_socket, leads_here, question,
    question_of_route, receive_buffer,
};

/// A question about a socket costs about as much as a connection.
pub(crate) const ASKING_TAKES_NO_TIME: bool = true;

/// Whether a peer's address is certainly one of this host. Another one of its addresses takes a question:
/// [`place_of_peer`].
#[must_use]
pub(crate) fn is_of_this_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let (from, to) = (end(peer).0, end(local).0);
    from.is_loopback() || from == to
}

/// Where the other end of a connection from `local` to `peer` is. A socket that its process has closed is
/// known by its address alone, so that closing it makes nobody another host's peer.
#[must_use]
pub(crate) fn place_of_peer(local: SocketAddr, peer: SocketAddr) -> PeerPlace {
    if !is_of_this_host(local, peer) && !is_routed_here(end(peer).0) {
        return PeerPlace::Elsewhere;
    }
    user_of_peer(local, peer).map_or(PeerPlace::Here, PeerPlace::HereOf)
}

/// Whether this host takes what is sent to an address.
fn is_routed_here(address: IpAddr) -> bool {
    let mut answer = [0; 512];
    let length = converse(None, &question_of_route(address), &mut answer);
    length.and_then(|length| answer.get(..length)).is_some_and(leads_here)
}

/// The user whose socket is at the other end of a connection from `local` to `peer`. `None`: no process
/// holds that socket, it is not on this machine, or the kernel was built without this query.
#[must_use]
pub(crate) fn user_of_peer(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let (from, to) = (end(peer), end(local));
    let mut answer = [0; 512];
    let length = ask(About::Holder, from, to, &mut answer)?;
    let answer = answer.get(..length)?;
    if is_about_a_socket(answer) && !ANSWERS.load(Ordering::Relaxed) {
        ANSWERS.store(true, Ordering::Relaxed);
    }
    holder(answer, from, to)
}

/// The receive buffer that a datagram from an address of this host to another end of this host goes to.
/// `None`: no socket takes it, or the kernel was built without this query.
#[must_use]
pub(crate) fn receive_buffer_of(from: SocketAddr, to: SocketAddr) -> Option<ReceiveBuffer> {
    let (from, to) = (end(from), end(to));
    let mut answer = [0; 512];
    let length = ask(About::Memory, from, to, &mut answer)?;
    receive_buffer(answer.get(..length)?, to)
}

/// How long the kernel's answer to a question about a socket is.
pub(super) fn ask(about: About, from: End, to: End, answer: &mut [u8]) -> Option<usize> {
    converse(Some(netlink::SOCK_DIAG), &question(about, from, to), answer)
}

/// How long the kernel's answer to a question is. `protocol`: of netlink; `None`: `NETLINK_ROUTE`.
fn converse(protocol: Option<Protocol>, question: &[u8], answer: &mut [u8]) -> Option<usize> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol);
    let socket = Fd::make(socket).ok()?;
    send(&socket, question, SendFlags::empty()).ok()?;
    // The kernel answers within the call; no other sender can reach this unnamed socket.
    Some(recv(&socket, answer, RecvFlags::empty()).ok()?.0)
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    use super::*;
    use transom_os::answers::{
        ABOUT_SOCKET, BY_FAMILY, HEADER, INODE, LISTENS, MEMORY, STATE, USER,
    };

    #[test]
    fn every_address_of_this_host_is_one_of_its_own() {
        if !is_routed_here(Ipv4Addr::LOCALHOST.into()) {
            return eprintln!("not shown: this kernel does not answer (no rtnetlink)");
        }
        for one in super::super::interfaces().unwrap() {
            assert!(is_routed_here(one.address), "{one:?}");
        }
        for other in ["192.0.2.1", "2001:db8::1", "::", "ff02::1"] {
            assert!(!is_routed_here(other.parse().unwrap()), "{other}");
        }
    }

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
        if !is_answered(at, from) {
            eprintln!("not shown: this kernel does not answer (no tcp_diag)");
            return;
        }
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(user_of_peer(at, from), Some(me), "seen from the passive side");
        assert_eq!(user_of_peer(active.local_addr().unwrap(), at), Some(me), "from the active one");
    }

    /// Whatever family the sender is of.
    #[test]
    fn the_kernel_knows_how_full_a_receive_buffer_is() {
        for (at, host) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::1]:0", "::1")]
        {
            let Ok(receiver) = UdpSocket::bind(at) else { continue };
            let host: IpAddr = host.parse().unwrap();
            let sender = UdpSocket::bind((host, 0)).unwrap();
            let from = sender.local_addr().unwrap();
            let to = SocketAddr::new(host, receiver.local_addr().unwrap().port());
            let Some(empty) = receive_buffer_of(from, to) else {
                eprintln!("not shown: this kernel does not answer (no udp_diag)");
                return;
            };
            assert_eq!(empty.held, 0);
            for _ in 0..2 {
                sender.send_to(&[0; 4096], to).unwrap();
            }
            let two = receive_buffer_of(from, to).unwrap();
            assert!(two.held >= 2 * 4096 && two.size == empty.size, "{two:?}");
            for _ in 0..2 {
                receiver.recv(&mut [0; 1]).unwrap();
            }
            assert_eq!(receive_buffer_of(from, to), Some(empty));
            drop(receiver);
            assert_eq!(receive_buffer_of(from, to), None, "no socket takes it");
        }
    }

    #[test]
    fn an_answer_cut_short_or_about_another_port_tells_no_buffer() {
        let memory = |held: u32, size: u32| {
            let mut answer = answer();
            answer[20..22].copy_from_slice(&TO.1.to_be_bytes());
            answer.resize(HEADER + ABOUT_SOCKET, 0);
            for (kind, words) in [(8, vec![9]), (MEMORY, vec![held, size, 9])] {
                answer.extend((4 + 4 * words.len() as u16).to_ne_bytes());
                answer.extend(kind.to_ne_bytes());
                answer.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            }
            answer
        };
        let whole = memory(3, 70_000);
        assert_eq!(receive_buffer(&whole, TO), Some(ReceiveBuffer { held: 3, size: 70_000 }));
        for length in 0..whole.len() {
            assert_eq!(receive_buffer(&whole[..length], TO), None);
        }
        assert_eq!(receive_buffer(&whole, (TO.0, TO.1 + 1)), None);
        let mut of_another_kind = whole;
        of_another_kind[4] ^= 1;
        assert_eq!(receive_buffer(&of_another_kind, TO), None);
    }

    const FROM: End = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 40_000);
    const TO: End = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 7);

    /// An answer to that question: its holder is user 1000.
    fn answer() -> Vec<u8> {
        let mut answer = vec![0; INODE + 4];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[16] = 2;
        // The ends, as the question has them.
        answer[20..56].copy_from_slice(&question(About::Holder, FROM, TO)[24..60]);
        answer[USER..].copy_from_slice(&[1000_u32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat());
        answer
    }

    #[test]
    fn an_answer_cut_short_names_no_user() {
        let mut answer = answer();
        for length in 0..answer.len() {
            assert_eq!(holder(&answer[..length], FROM, TO), None);
        }
        assert_eq!(holder(&answer, FROM, TO), Some(1000));
        answer[STATE] = LISTENS;
        assert_eq!(
            holder(&answer, FROM, TO),
            None,
            "a listener at the peer's port is not the peer"
        );
    }

    #[test]
    fn an_answer_about_another_socket_names_no_user() {
        assert_eq!(holder(&answer(), TO, FROM), None, "the other end of the connection");
        for at in (20..28).chain(40..44) {
            let mut answer = answer();
            answer[at] ^= 1;
            assert_eq!(holder(&answer, FROM, TO), None, "byte {at}");
        }
    }
}
