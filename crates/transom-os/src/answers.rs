//! Answers of the kernel about sockets, addresses and users, read from their bytes. Nothing here
//! asks for anything: each caller has a way of its own to the kernel, and a fuzzer takes the kernel's place
//! (`transom-fuzz`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An end of a connection. An IPv4 address is one, whatever socket has it.
pub type End = (IpAddr, u16);

/// The end at an address.
#[must_use]
pub fn end(a: SocketAddr) -> End {
    (a.ip().to_canonical(), a.port())
}

// ---- about one socket (netlink, sock_diag) ----

/// `SOCK_DIAG_BY_FAMILY`.
pub const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `INET_DIAG_SKMEMINFO`: the memory of a socket, as `u32`s.
pub const MEMORY: u16 = 7;
/// `SK_MEMINFO_RMEM_ALLOC` and `SK_MEMINFO_RCVBUF`: where these stand there.
const HELD: usize = 0;
const SIZE: usize = 4;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The state of a socket that is not the end of any connection.
pub const LISTENS: u8 = 10;
/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Behind the header: `struct inet_diag_req_v2`, and where `struct inet_diag_msg` has what we ask for.
const QUESTION: usize = 56;
/// Bytes of `struct inet_diag_msg`. Attributes follow.
pub const ABOUT_SOCKET: usize = 72;
const FAMILY: usize = HEADER;
/// Where the answer has the socket's state.
pub const STATE: usize = HEADER + 1;
/// Either end: where its port is, and its address.
const LOCAL: (usize, usize) = (HEADER + 4, HEADER + 8);
const REMOTE: (usize, usize) = (HEADER + 6, HEADER + 24);
const COOKIE: usize = HEADER + 44;
/// Where the answer has the socket's user.
pub const USER: usize = HEADER + 64;
/// Where the answer has the number of the socket's file; 0: no process holds it.
pub const INODE: usize = HEADER + 68;

/// A question about a socket.
#[derive(Clone, Copy, Debug)]
pub enum About {
    /// Of the end of a TCP connection: who holds it.
    Holder,
    /// Of the socket that would take a datagram: its memory.
    Memory,
}

/// A query for the socket at `from`, connected to `to`, with the ends in the order in which the
/// socket's holder sees them; of a socket for datagrams `from` is the sender, `to` the receiver.
#[must_use]
pub fn question(about: About, from: End, to: End) -> [u8; HEADER + QUESTION] {
    let (protocol, extension) = match about {
        About::Holder => (6, 0),
        About::Memory => (17, 1 << (MEMORY - 1)),
    };
    let mut bytes = [0; HEADER + QUESTION];
    let mut at = 0;
    let mut put = |words: &[u8]| {
        bytes[at..at + words.len()].copy_from_slice(words);
        at += words.len();
    };
    put(&((HEADER + QUESTION) as u32).to_ne_bytes());
    put(&BY_FAMILY.to_ne_bytes());
    put(&REQUEST.to_ne_bytes());
    put(&[0; 8]); // sequence, port
    put(&[if from.0.is_ipv4() { AF_INET } else { AF_INET6 }, protocol, extension, 0]);
    put(&u32::MAX.to_ne_bytes()); // in any state
    put(&from.1.to_be_bytes());
    put(&to.1.to_be_bytes());
    for ip in [from.0, to.0] {
        let mut place = [0; 16];
        match ip {
            IpAddr::V4(ip) => place[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => place = ip.octets(),
        }
        put(&place);
    }
    put(&[0; 4]); // any interface
    put(&[0xff; 8]); // no cookie
    bytes
}

/// Whether the kernel knows how to answer such a question: it speaks of a socket, be it another one.
#[must_use]
pub fn is_about_a_socket(answer: &[u8]) -> bool {
    bytes(answer, 4).map(u16::from_ne_bytes) == Some(BY_FAMILY)
}

/// A socket as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The user whose it is; root, of a socket without a holder.
    pub user: u32,
    /// The number that no other socket of this namespace has or will have.
    pub cookie: u64,
    /// Whether a process holds it. One that is shut down for writing has its holder still; one that was not
    /// accepted yet, or is closed, has none.
    pub is_held: bool,
}

/// The socket at `from`, connected to `to`, if that is what the answer is about.
#[must_use]
pub fn found(answer: &[u8], from: End, to: End) -> Option<Found> {
    let word = |at| bytes(answer, at).map(u32::from_ne_bytes);
    let is_end = *answer.get(STATE)? != LISTENS;
    let asked_for = end_at(answer, LOCAL)? == from && end_at(answer, REMOTE)? == to;
    let (low, high) = (word(COOKIE)?, word(COOKIE + 4)?);
    let found = Found {
        user: word(USER)?,
        cookie: u64::from(high) << 32 | u64::from(low),
        is_held: word(INODE)? != 0,
    };
    (is_about_a_socket(answer) && asked_for && is_end).then_some(found)
}

/// The user who holds the socket at `from`, connected to `to`, if that is what the answer is about.
#[must_use]
pub fn holder(answer: &[u8], from: End, to: End) -> Option<u32> {
    found(answer, from, to).filter(|found| found.is_held).map(|found| found.user)
}

/// The receive buffer of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Bytes of memory that messages hold in it, those of the system's own structures included.
    pub held: usize,
    /// How many it may hold.
    pub size: usize,
}

/// The receive buffer of the socket that takes datagrams for `to`, if that is what the answer is about.
#[must_use]
pub fn receive_buffer(answer: &[u8], to: End) -> Option<ReceiveBuffer> {
    let (_, port) = end_at(answer, LOCAL)?;
    let attributes = answer.get(HEADER + ABOUT_SOCKET..)?;
    let (_, memory) = attributes_of(attributes).find(|(kind, _)| *kind == MEMORY)?;
    let word = |at| bytes(memory, at).map(|word| u32::from_ne_bytes(word) as usize);
    let buffer = ReceiveBuffer { held: word(HELD)?, size: word(SIZE)? };
    (is_about_a_socket(answer) && port == to.1).then_some(buffer)
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

// ---- about the Unix sockets of a namespace (netlink, sock_diag) ----

/// `NLM_F_DUMP`: a list.
const LIST: u16 = 0x300;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const REFUSED: u16 = 2;
const ENDED: u16 = 3;
const AF_UNIX: u8 = 1;
/// `TCP_CLOSE`, as a bit: sockets that neither listen nor are connected.
const BOUND: u32 = 1 << 7;
/// `UDIAG_SHOW_NAME` and `UDIAG_SHOW_UID`, and the attributes that they bring.
const SHOWN: u32 = 0x41;
const UNIX_NAME: u16 = 0;
const UNIX_USER: u16 = 7;
/// Behind the header: `struct unix_diag_req`, and `struct unix_diag_msg`. Attributes follow the latter.
const UNIX_QUESTION: usize = 24;
const ABOUT_UNIX: usize = 16;

/// A query for the names of all sockets that are bound and nothing more, and their users.
#[must_use]
pub fn question_of_names() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + UNIX_QUESTION);
    bytes.extend(((HEADER + UNIX_QUESTION) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend((REQUEST | LIST).to_ne_bytes());
    bytes.extend([0; 8]); // sequence, port
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend(BOUND.to_ne_bytes());
    bytes.extend([0; 4]); // any inode
    bytes.extend(SHOWN.to_ne_bytes());
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

/// A process that holds a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHolder {
    /// Which of the names that were asked for.
    pub name: usize,
    /// The user who has made its socket.
    pub user: u32,
    /// The number that it tells.
    pub number: u16,
    /// Which of the name's holders it is.
    pub place: u32,
}

/// A part of the kernel's list of names.
#[derive(Debug, Default)]
pub struct NameList {
    /// Sockets in this part.
    pub sockets: usize,
    /// Those that hold a name that was asked for.
    pub found: Vec<NameHolder>,
    /// Nothing follows.
    pub ended: bool,
    /// The kernel has no such list: its reason.
    pub refused: Option<i32>,
}

/// The holders of these names in a part of the list: those of `NAME=NUMBER#PLACE`.
#[must_use]
pub fn name_holders(part: &[u8], names: &[&str]) -> NameList {
    let mut list = NameList::default();
    for message in messages(part) {
        match bytes(message, 4).map(u16::from_ne_bytes) {
            Some(ENDED) => list.ended = true,
            Some(REFUSED) => {
                list.refused =
                    Some(bytes(message, HEADER).map_or(0, i32::from_ne_bytes).saturating_neg());
            }
            Some(BY_FAMILY) => {
                list.sockets += 1;
                list.found.extend(name_holder(message, names));
            }
            _ => {}
        }
    }
    list
}

fn name_holder(message: &[u8], names: &[&str]) -> Option<NameHolder> {
    let (mut holds, mut user) = (None, None);
    for (kind, value) in attributes_of(message.get(HEADER + ABOUT_UNIX..)?) {
        match kind {
            // A zero precedes names that are no paths.
            UNIX_NAME => holds = value.strip_prefix(&[0]),
            UNIX_USER => user = bytes(value, 0).map(u32::from_ne_bytes),
            _ => {}
        }
    }
    let (holds, rest) = str::from_utf8(holds?).ok()?.rsplit_once('=')?;
    let (number, place) = rest.split_once('#')?;
    let name = names.iter().position(|name| *name == holds)?;
    Some(NameHolder { name, user: user?, number: number.parse().ok()?, place: place.parse().ok()? })
}

// ---- about a route (netlink, rtnetlink) ----

/// `RTM_GETROUTE` and `RTM_NEWROUTE`.
const GET_ROUTE: u16 = 26;
const ROUTE: u16 = 24;
/// `RTA_DST`.
const DESTINATION: u16 = 1;
/// Behind the header: `struct rtmsg`. Attributes follow.
const ABOUT_ROUTE: usize = 12;
/// Where the answer has the kind of the route, and `RTN_LOCAL`: to this host itself.
const ROUTE_KIND: usize = HEADER + 7;
const TO_ITSELF: u8 = 2;

/// A query for the route to an address.
#[must_use]
pub fn question_of_route(to: IpAddr) -> Vec<u8> {
    let (family, address) = match to {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    };
    let attribute = 4 + address.len();
    let mut bytes = Vec::with_capacity(HEADER + ABOUT_ROUTE + attribute);
    bytes.extend(((HEADER + ABOUT_ROUTE + attribute) as u32).to_ne_bytes());
    bytes.extend(GET_ROUTE.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // sequence, port
    bytes.extend([family, address.len() as u8 * 8, 0, 0, 0, 0, 0, 0]);
    bytes.extend([0; 4]); // flags
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(DESTINATION.to_ne_bytes());
    bytes.extend(address);
    bytes
}

/// Whether a route leads to this host itself.
#[must_use]
pub fn leads_here(answer: &[u8]) -> bool {
    bytes(answer, 4).map(u16::from_ne_bytes) == Some(ROUTE)
        && answer.get(ROUTE_KIND) == Some(&TO_ITSELF)
}

// ---- about addresses (netlink, rtnetlink) ----

/// `RTM_DELADDR`.
pub const REMOVED: u16 = 21;
/// Behind the header: `struct ifaddrmsg`, whose first byte is the family. Attributes follow.
const ABOUT: usize = 8;
/// `IFA_ADDRESS`: the address, or that of the other end of a line between two.
pub const ADDRESS: u16 = 1;
/// `IFA_LOCAL`: on such a line, and always with IPv4, the address.
pub const LOCAL_ADDRESS: u16 = 2;
/// Messages, and attributes, begin at multiples of this.
const ALIGN: usize = 4;

/// The addresses that a batch of messages says were removed from an interface.
pub fn removed(news: &[u8]) -> impl Iterator<Item = IpAddr> {
    let is_removal = |message: &&[u8]| bytes(message, 4).map(u16::from_ne_bytes) == Some(REMOVED);
    messages(news).filter(is_removal).filter_map(address_of)
}

/// The messages of a batch, up to the first that is cut short.
fn messages(mut batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes(batch, 0)?) as usize;
        let message = batch.get(..length).filter(|_| length >= HEADER)?;
        batch = batch.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some(message)
    })
}

/// The address that such a message is about.
fn address_of(message: &[u8]) -> Option<IpAddr> {
    let family = *message.get(HEADER)?;
    let (mut local, mut address) = (None, None);
    for (kind, value) in attributes_of(message.get(HEADER + ABOUT..)?) {
        match kind {
            LOCAL_ADDRESS => local = ip_in(family, value),
            ADDRESS => address = ip_in(family, value),
            _ => {}
        }
    }
    local.or(address)
}

/// The attributes of a message, up to the first that is cut short: their kinds and values.
fn attributes_of(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes(rest, 0)?));
        let attribute = (u16::from_ne_bytes(bytes(rest, 2)?), rest.get(4..length)?);
        rest = rest.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some(attribute)
    })
}

fn ip_in(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).ok().map(|four| IpAddr::V4(four.into())),
        AF_INET6 => <[u8; 16]>::try_from(value).ok().map(|sixteen| IpAddr::V6(sixteen.into())),
        _ => None,
    }
}

/// Whether `ours` is an interface's address `held`, or local because of it: an interface with one
/// address of 127/8 has all of them.
#[must_use]
pub fn is_or_includes(held: IpAddr, ours: IpAddr) -> bool {
    let (held, ours) = (held.to_canonical(), ours.to_canonical());
    held == ours || (held.is_ipv4() && ours.is_ipv4() && held.is_loopback() && ours.is_loopback())
}

// ---- about all sockets (/proc/net/tcp) ----

const ESTABLISHED: &str = "01";

/// The user of the socket whose local end is `local` and whose remote end is `remote`.
#[must_use]
pub fn owner_in(text: &str, local: End, remote: End) -> Option<u32> {
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = (words.nth(1)?, words.next()?);
        (parse(from)? == local && parse(to)? == remote).then_some(())?;
        // A socket without a holder (not accepted yet, or closed) is shown as root's.
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
#[must_use]
pub fn maps_every_user(map: &str) -> bool {
    let mut words = map.split_ascii_whitespace();
    [words.next(), words.next(), words.next()] == [Some("0"), Some("0"), Some("4294967295")]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    /// A message as the kernel makes it.
    fn message(kind: u16, family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes.extend([family, 24, 0x80, 0, 7, 0, 0, 0]);
        bytes.extend(attributes.iter().flat_map(|(kind, value)| attribute(*kind, value)));
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    fn all(news: &[u8]) -> Vec<IpAddr> {
        removed(news).collect()
    }

    fn four(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    #[test]
    fn a_removed_address_is_named() {
        let label = (3, &b"eth0\0"[..]);
        let of_4 = message(REMOVED, AF_INET, &[(1, &[10, 0, 0, 1]), (2, &[10, 0, 0, 1]), label]);
        assert_eq!(all(&of_4), [four(1)]);
        let of_6 = message(REMOVED, AF_INET6, &[(1, &SIX), (6, &[0; 16])]);
        assert_eq!(all(&of_6), [IpAddr::from(SIX)]);
        assert_eq!(all(&[&of_4[..], &of_6].concat()), [four(1), IpAddr::from(SIX)]);
    }

    /// On a line between two, the other end's address comes first.
    #[test]
    fn the_local_end_of_a_line_counts() {
        for order in
            [[(1, &[10, 0, 0, 2]), (2, &[10, 0, 0, 1])], [(2, &[10, 0, 0, 1]), (1, &[10, 0, 0, 2])]]
        {
            let attributes = order.map(|(kind, value)| (kind, &value[..]));
            assert_eq!(all(&message(REMOVED, AF_INET, &attributes)), [four(1)]);
        }
    }

    #[test]
    fn a_message_that_is_no_removal_names_no_address() {
        let address: (u16, &[u8]) = (2, &[10, 0, 0, 1]);
        for kind in [0, 3, 16, 17, 20, 22] {
            assert!(all(&message(kind, AF_INET, &[address])).is_empty(), "{kind}");
        }
        assert!(all(&message(REMOVED, 17, &[address])).is_empty(), "another family");
        assert!(
            all(&message(REMOVED, AF_INET6, &[address])).is_empty(),
            "too short for its family"
        );
        assert!(
            all(&message(REMOVED, AF_INET, &[(2, &SIX)])).is_empty(),
            "too long for its family"
        );
        assert!(all(&message(REMOVED, AF_INET, &[])).is_empty());
        // The one behind it is found all the same.
        let later = message(REMOVED, AF_INET, &[address]);
        let news = [message(20, AF_INET, &[address]), message(REMOVED, 17, &[address]), later];
        assert_eq!(all(&news.concat()), [four(1)]);
    }

    #[test]
    fn a_message_cut_short_names_no_address() {
        let whole = message(REMOVED, AF_INET, &[(2, &[10, 0, 0, 1])]);
        for length in 0..whole.len() {
            assert!(all(&whole[..length]).is_empty(), "{length}");
        }
        // Lengths that lie: of the message, and of the attribute.
        for (at, length) in
            [(0, 0_u16), (0, 15), (0, 16), (0, 24), (24, 0), (24, 3), (24, 4), (24, 9)]
        {
            let mut whole = whole.clone();
            whole[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            assert!(all(&whole).is_empty(), "{length} at {at}");
        }
    }

    #[test]
    fn all_of_127_hangs_on_one_address() {
        let local = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        assert!(is_or_includes(local(1), local(1)) && is_or_includes(local(1), local(5)));
        assert!(!is_or_includes(four(1), four(2)) && is_or_includes(four(1), four(1)));
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(!is_or_includes(six, local(1)) && !is_or_includes(local(1), six));
        assert!(is_or_includes(six, six));
    }
}
