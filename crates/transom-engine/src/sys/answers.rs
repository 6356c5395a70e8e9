//! What the kernel says about sockets and users, read from its bytes. Nothing here asks for anything, so
//! that a fuzzer can speak in the kernel's place (`transom-fuzz`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One end of a connection. An IPv4 address is one, whatever socket has it.
pub(super) type End = (IpAddr, u16);

pub(super) fn end(a: SocketAddr) -> End {
    (a.ip().to_canonical(), a.port())
}

// ---- about one socket (netlink, sock_diag) ----

/// `SOCK_DIAG_BY_FAMILY`.
pub(super) const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The state of a socket that is not the end of any connection.
pub(super) const LISTENS: u8 = 10;
const HEADER: usize = 16;
/// Behind the header: `struct inet_diag_req_v2`, and where `struct inet_diag_msg` has what we ask for.
const QUESTION: usize = 56;
const FAMILY: usize = HEADER;
pub(super) const STATE: usize = HEADER + 1;
/// Either end: where its port is, and its address.
const LOCAL: (usize, usize) = (HEADER + 4, HEADER + 8);
const REMOTE: (usize, usize) = (HEADER + 6, HEADER + 24);
pub(super) const USER: usize = HEADER + 64;
pub(super) const INODE: usize = HEADER + 68;

/// Whose socket is at `from`, connected to `to`? Its ends in the order in which its holder sees them.
pub(super) fn question(from: End, to: End) -> Vec<u8> {
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

/// Whether the kernel knows how to answer such a question: it speaks of a socket, be it another one.
pub(super) fn is_about_a_socket(answer: &[u8]) -> bool {
    bytes(answer, 4).map(u16::from_ne_bytes) == Some(BY_FAMILY)
}

/// The user who holds the socket at `from`, connected to `to`, if that is what the answer is about.
pub(super) fn holder(answer: &[u8], from: End, to: End) -> Option<u32> {
    let word = |at| bytes(answer, at).map(u32::from_ne_bytes);
    // A socket that nobody holds (not accepted yet, or closed) is shown as root's. One that is shut down
    // for writing has its holder still.
    let held = word(INODE)? != 0 && *answer.get(STATE)? != LISTENS;
    let asked_for = end_at(answer, LOCAL)? == from && end_at(answer, REMOTE)? == to;
    (is_about_a_socket(answer) && asked_for && held).then(|| word(USER))?
}

fn end_at(answer: &[u8], (port, address): (usize, usize)) -> Option<End> {
    let ip = match *answer.get(FAMILY)? {
        AF_INET => IpAddr::V4(Ipv4Addr::from(bytes::<4>(answer, address)?)),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(bytes::<16>(answer, address)?)),
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_be_bytes(bytes(answer, port)?)))
}

fn bytes<const N: usize>(answer: &[u8], at: usize) -> Option<[u8; N]> {
    answer.get(at..)?.first_chunk().copied()
}

// ---- about all of them (/proc/net/tcp) ----

const ESTABLISHED: &str = "01";

/// The user of the socket whose local end is `local` and whose remote end is `remote`.
pub(super) fn owner_in(text: &str, local: End, remote: End) -> Option<u32> {
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = (words.nth(1)?, words.next()?);
        (parse(from)? == local && parse(to)? == remote).then_some(())?;
        // A socket that nobody holds (not accepted yet, or closed) is shown as root's.
        let state = words.next()?;
        let user = words.nth(3)?.parse().ok()?;
        let held = words.nth(1)? != "0";
        (state == ESTABLISHED && held).then_some(user)
    })
}

/// `0100007F:1F90`: each 32-bit word in the machine's byte order.
fn parse(text: &str) -> Option<End> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |i: usize| u32::from_str_radix(address.get(i * 8..i * 8 + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (i, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(i)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

// ---- about users (/proc/self/uid_map) ----

/// Whether every user has a number of its own here.
pub(super) fn maps_everybody(map: &str) -> bool {
    let mut words = map.split_ascii_whitespace();
    [words.next(), words.next(), words.next()] == [Some("0"), Some("0"), Some("4294967295")]
}
