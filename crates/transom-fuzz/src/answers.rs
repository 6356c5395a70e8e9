//! The kernel's answers about sockets, memory, users and addresses, genuine or forged. A process
//! taken for the same user learns more, and is not slowed when it guesses; so an answer about
//! another socket must name no user. An adapter ends when its address is named as removed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use transom_os::answers as sockets;

use crate::Input;

#[allow(dead_code, unreachable_pub)]
#[path = "../../transom-engine/src/sys/maps.rs"]
mod maps;

/// Input: which answer, what was asked, and the answer.
pub fn answers(input: &[u8]) {
    let mut input = Input(input);
    match input.byte().unwrap_or(0) % 5 {
        0 => socket(input),
        1 => table(input),
        2 => memory(input),
        3 => users(input.0),
        _ => addresses(input.0),
    }
}

/// The ends of a connection, as the corpus has them.
fn ends(input: &mut Input<'_>) -> Option<[SocketAddr; 2]> {
    let six = input.byte()? % 2 == 1;
    let mut end = || {
        let (place, rest) = input.0.split_first_chunk::<18>()?;
        input.0 = rest;
        let [a, b, c, d, ..] = *place;
        let ip = match place.first_chunk::<16>() {
            Some(bytes) if six => IpAddr::V6(Ipv6Addr::from(*bytes)),
            _ => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        };
        Some((ip, u16::from_be_bytes([place[16], place[17]])).into())
    };
    Some([end()?, end()?])
}

fn socket(mut input: Input<'_>) {
    let Some([from, to]) = ends(&mut input) else { return };
    let holder = |answer: &[u8]| sockets::holder(answer, sockets::end(from), sockets::end(to));
    let answer = input.0;
    assert_eq!(holder(answer), holds(answer, [from, to]).then(|| number(answer, 80)));
    // The kernel's answer if there is such a socket; then one about another socket, and a part.
    let dice = input.word() as usize;
    let mut right = vec![0; 88];
    let mut places = Vec::new();
    right[4] = 20;
    for (end, port, ip) in [(from, 20, 24), (to, 22, 40)] {
        let (family, address) = match end.ip() {
            IpAddr::V4(ip) if dice.is_multiple_of(2) => (2, ip.octets().to_vec()),
            IpAddr::V4(ip) => (10, ip.to_ipv6_mapped().octets().to_vec()),
            IpAddr::V6(ip) => (10, ip.octets().to_vec()),
        };
        right[16] = family;
        right[port..port + 2].copy_from_slice(&end.port().to_be_bytes());
        right[ip..ip + address.len()].copy_from_slice(&address);
        places.extend((port..port + 2).chain(ip..ip + address.len()));
    }
    right[80..84].copy_from_slice(&1000_u32.to_ne_bytes());
    right[84] = 1;
    assert_eq!(holder(&right), Some(1000));
    assert_eq!(holder(&right[..dice % 88]), None);
    right[places[dice / 16 % places.len()]] ^= 1 << (dice / 2 % 8);
    assert_eq!(holder(&right), None, "{right:?}");
}

fn number(answer: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap())
}

/// Whether an answer is about this socket, and the socket has a holder.
fn holds(answer: &[u8], ends: [SocketAddr; 2]) -> bool {
    if answer.len() < 88 || answer[4..6] != 20_u16.to_ne_bytes() {
        return false;
    }
    let named = ends.iter().zip([(20, 24), (22, 40)]).all(|(end, (port, ip))| {
        let short = (end.ip().to_canonical(), answer[16]);
        answer[port..port + 2] == end.port().to_be_bytes()
            && match short {
                (IpAddr::V4(short), 2) => answer[ip..ip + 4] == short.octets(),
                (IpAddr::V4(short), 10) => answer[ip..ip + 16] == short.to_ipv6_mapped().octets(),
                (IpAddr::V6(long), 10) => answer[ip..ip + 16] == long.octets(),
                _ => false,
            }
    });
    named && answer[17] != 10 && number(answer, 84) != 0
}

fn table(mut input: Input<'_>) {
    let Some(ends) = ends(&mut input) else { return };
    let Ok(text) = str::from_utf8(input.0) else { return };
    let owner = |text: &str| sockets::owner_in(text, sockets::end(ends[0]), sockets::end(ends[1]));
    if let Some(user) = owner(text) {
        let line = text.lines().skip(1).map(|line| line.split_ascii_whitespace().collect());
        let says = |words: Vec<&str>| {
            words.len() > 9
                && [words[1], words[2]].iter().zip(ends).all(|(word, end)| is_name(word, end))
                && (words[3], words[7].parse(), words[9] != "0") == ("01", Ok(user), true)
        };
        assert!(line.into_iter().any(says), "{user} of {ends:?}");
    }
    let line = |[from, to]: [SocketAddr; 2]| {
        let [from, to] = [from, to].map(|end| names(end)[0].clone());
        format!("sl local\n 0: {from} {to} 01 0:0 00:0 0 1000 0 4660 1\n")
    };
    assert_eq!(owner(&line(ends)), Some(1000));
    for (end, port) in [(0, 1), (1, 1), (0, 0x100), (1, 0x8000)] {
        let mut other = ends;
        other[end].set_port(other[end].port() ^ port);
        assert_eq!(owner(&line(other)), None, "{other:?}");
    }
}

/// How the tables write an end: the short way or as one of IPv6.
fn names(end: SocketAddr) -> [String; 2] {
    let words = |octets: &[u8]| -> String {
        octets.chunks(4).map(|four| format!("{:08X}", number(four, 0))).collect()
    };
    let names = match end.ip().to_canonical() {
        IpAddr::V4(ip) => [words(&ip.octets()), words(&ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => [(); 2].map(|()| words(&ip.octets())),
    };
    names.map(|name| format!("{name}:{:04X}", end.port()))
}

/// A number may have a sign, as far as we care, and a port more zeros.
fn is_name(word: &str, end: SocketAddr) -> bool {
    let Some((ip, port)) = word.split_once(':') else { return false };
    let port = format!("{:0>4}", port.trim_start_matches(['+', '0']));
    let name = format!("{}:{port}", ip.replace('+', "0")).to_uppercase();
    names(end).contains(&name)
}

fn memory(mut input: Input<'_>) {
    let write = input.byte().unwrap_or(0) % 2 == 1;
    let (start, length) = (input.word(), input.word());
    let end = start.saturating_add(length);
    match maps::check_text(input.0, [(start, length)], write) {
        // Each byte of it is in a line that allows it.
        Ok(()) => {
            let text = String::from_utf8_lossy(input.0);
            let mut at = start;
            while at < end {
                let reaches = |line: &str| {
                    let (range, rights) = line.split_once(' ')?;
                    let (from, to) = range.split_once('-')?;
                    let hex = |text| u64::from_str_radix(text, 16).ok();
                    let allowed = rights.starts_with(if write { "rw" } else { "r" });
                    (allowed && hex(from)? <= at).then(|| hex(to))?
                };
                let reach = text.split('\n').filter_map(reaches).max();
                assert!(reach.is_some_and(|reach| reach > at), "nothing is at {at:#x}");
                at = reach.unwrap_or(end);
            }
        }
        Err(
            maps::PageError::Hole { at }
            | maps::PageError::NoAccess { at }
            | maps::PageError::ReadOnly { at },
        ) => assert!((start..end).contains(&at), "{at:#x}"),
    }
}

fn users(map: &[u8]) {
    let Ok(map) = str::from_utf8(map) else { return };
    if sockets::maps_every_user(map) {
        let numbers: Vec<u64> = map.split_whitespace().take(3).flat_map(str::parse).collect();
        assert_eq!(numbers, [0, 0, u64::from(u32::MAX)]);
    }
}

/// A batch of messages about addresses.
fn addresses(news: &[u8]) {
    let removed = |news: &[u8]| sockets::removed(news).collect::<Vec<_>>();
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let named = removed(news);
    // Header, what it is about, and one attribute with an address: so long is the shortest.
    assert!(named.len() <= news.len() / (16 + 8 + 4 + 4), "{named:?}");
    for ip in &named {
        let octets = octets(*ip);
        assert!(news.windows(octets.len()).any(|bytes| bytes == octets), "{ip} is not in it");
    }
    // The kernel's news that an address is removed; that it was added; and a part of that.
    let mut input = Input(news);
    let dice = input.word() as usize;
    let ip = match dice % 2 {
        0 => IpAddr::V4(Ipv4Addr::from(input.word() as u32)),
        _ => IpAddr::V6(Ipv6Addr::from(u128::from(input.word()) << 64 | 7)),
    };
    let mut right = vec![0; 24];
    right[4] = 21;
    right[16] = if ip.is_ipv4() { 2 } else { 10 };
    // On a line between two, the address of the other end stands beside it.
    for (kind, ip) in [(1, other_end(ip)), (2, ip)] {
        let octets = octets(ip);
        right.extend([4 + octets.len() as u8, 0, kind, 0]);
        right.extend(octets);
    }
    right[0] = right.len() as u8;
    assert_eq!(removed(&[&right[..], news].concat()), [&[ip][..], &named].concat());
    assert!(removed(&right[..dice % right.len()]).is_empty());
    right[4] ^= 1 << (dice / 64 % 8);
    assert!(removed(&right).is_empty(), "{right:?}");
}

fn other_end(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(u32::from(ip) ^ 1)),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip) ^ 1)),
    }
}
