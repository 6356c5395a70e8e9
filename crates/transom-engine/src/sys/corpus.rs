//! Answers of this kernel as the corpus of the fuzz target `answers`; `transom-fuzz` has their form. Users,
//! inodes and names of files are made up.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

use rustix::net::{RecvFlags, recv};

use super::AddressWatch;
use super::diag::ask;
use transom_os::answers::{About, INODE, USER, end, is_about_a_socket};

/// `cargo test -p transom-engine --lib -- --ignored write_the_corpus`
#[test]
#[ignore = "writes fuzz/corpus/answers"]
fn write_the_corpus() {
    for (name, bound) in [("v4", "127.0.0.1:0"), ("v6", "[::1]:0"), ("mapped", "[::]:0")] {
        let listener = TcpListener::bind(bound).unwrap();
        let mut at = listener.local_addr().unwrap();
        if name == "mapped" {
            at = ([127, 0, 0, 1], at.port()).into();
        }
        let active = TcpStream::connect(at).unwrap();
        let ends = [active.local_addr().unwrap(), at];
        let turned = [ends[1], ends[0]];
        socket(&format!("{name}-not-accepted"), turned);
        let passive = listener.accept().unwrap().0;
        socket(&format!("{name}-active"), ends);
        socket(&format!("{name}-passive"), turned);
        socket(&format!("{name}-listener"), [at, ([127, 0, 0, 1], 1).into()]);
        table(&format!("{name}-active"), ends);
        active.shutdown(Shutdown::Write).unwrap();
        drop(active);
        socket(&format!("{name}-closed"), ends);
        table(&format!("{name}-closed"), turned);
        drop((listener, passive));
        socket(&format!("{name}-nobody"), turned);
    }
    memory();
    std::thread::scope(|scope| scope.spawn(addresses).join().unwrap());
    for (number, map) in ["/proc/self/uid_map", "0 1000 1\n"].iter().enumerate() {
        let map = std::fs::read_to_string(map).unwrap_or((*map).to_owned());
        write(&format!("users-{number}"), &[&[3], map.as_bytes()].concat());
    }
}

/// Record the kernel's answer about the socket at the first of these ends.
fn socket(name: &str, ends: [SocketAddr; 2]) {
    let mut answer = [0; 512];
    let length = ask(About::Holder, end(ends[0]), end(ends[1]), &mut answer).unwrap();
    let answer = &mut answer[..length];
    answer[12..16].fill(0); // who asked
    if is_about_a_socket(answer) {
        answer[INODE - 24..INODE - 16].fill(0); // cookie
        answer[USER..INODE].copy_from_slice(&1000_u32.to_ne_bytes());
        let held = u32::from(answer[INODE..INODE + 4] != [0; 4]);
        answer[INODE..INODE + 4].copy_from_slice(&(held * 4660).to_ne_bytes());
    }
    write(&format!("socket-{name}"), &[&asked(0, ends)[..], answer].concat());
}

/// The kernel's tables of these sockets; of other programs' sockets nothing.
fn table(name: &str, ends: [SocketAddr; 2]) {
    let ports = ends.map(|end| format!(":{:04X}", end.port()));
    for (number, file) in ["/proc/net/tcp", "/proc/net/tcp6"].iter().enumerate() {
        let text = std::fs::read_to_string(file).unwrap();
        let mut lines = text.lines();
        let mut ours = vec![lines.next().unwrap().to_owned()];
        for line in lines {
            let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
            if !ports.iter().any(|port| words[1].ends_with(port)) {
                continue;
            }
            words.truncate(11); // behind them a place in the kernel
            words[7] = "1000";
            words[9] = if words[9] == "0" { "0" } else { "4660" };
            ours.push(format!("   {}", words.join(" ")));
        }
        let input = [&asked(1, ends)[..], ours.join("\n").as_bytes()].concat();
        write(&format!("table-{name}-{number}"), &input);
    }
}

/// The first mappings of this process, and what lies in one, in two, and across a gap.
fn memory() {
    let text = String::from_utf8_lossy(&std::fs::read("/proc/self/maps").unwrap()).into_owned();
    let lines: Vec<Vec<&str>> =
        text.lines().take(10).map(|line| line.split_ascii_whitespace().collect()).collect();
    let written: String = lines
        .iter()
        .map(|words| format!("{} {} {} 00:00 0   /a name\n", words[0], words[1], words[2]))
        .collect();
    let first = u64::from_str_radix(lines[0][0].split_once('-').unwrap().0, 16).unwrap();
    let last = u64::from_str_radix(lines[9][0].split_once('-').unwrap().1, 16).unwrap();
    for (number, (length, write_too)) in
        [(4096, 0), (4096, 1), (1 << 20, 0), (last - first, 0)].iter().enumerate()
    {
        let asked = [&[2, *write_too][..], &first.to_le_bytes(), &u64::to_le_bytes(*length)];
        write(&format!("memory-{number}"), &[&asked.concat()[..], written.as_bytes()].concat());
    }
}

/// Record the kernel's messages about addresses that come and go, with the interfaces of a
/// namespace of this thread's own. Takes root, and `ip`.
fn addresses() {
    // SAFETY: this thread alone gets another namespace.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let ip = |arguments: &str| {
        let status = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.unwrap().success(), "{arguments}");
    };
    ip("link set lo up");
    ip("link add name one type veth peer name two");
    ip("link set one up");
    let watch = AddressWatch::open(Ipv4Addr::LOCALHOST.into()).unwrap();
    let mut said = Vec::new();
    for (name, change) in [
        ("added", "addr add 10.0.0.1/24 dev one label one:1"),
        ("second", "addr add 10.0.0.2/24 dev one"),
        ("removed", "addr del 10.0.0.2/24 dev one"),
        ("line", "addr add 10.1.0.1 peer 10.1.0.2/32 dev one"),
        ("line-removed", "addr del 10.1.0.1 peer 10.1.0.2/32 dev one"),
        ("six", "addr add fd00::1/64 dev one nodad"),
        ("six-removed", "addr del fd00::1/64 dev one"),
        ("interface", "link del one"),
    ] {
        ip(change);
        let mut news = vec![4];
        let mut bytes = [0; 4096];
        while let Ok((length, _)) = recv(watch.fd(), &mut bytes[..], RecvFlags::empty()) {
            news.extend(&bytes[..length]);
        }
        write(&format!("addresses-{name}"), &news);
        said.extend_from_slice(&news[1..]);
    }
    write("addresses-all", &[&[4][..], &said].concat());
}

/// Which way to ask, and the ends of a connection.
fn asked(way: u8, ends: [SocketAddr; 2]) -> Vec<u8> {
    let mut input = vec![way, u8::from(ends[0].is_ipv6())];
    for end in ends {
        match end {
            SocketAddr::V4(end) => input.extend([&end.ip().octets()[..], &[0; 12]].concat()),
            SocketAddr::V6(end) => input.extend(end.ip().octets()),
        }
        input.extend(end.port().to_be_bytes());
    }
    input
}

fn write(name: &str, input: &[u8]) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/answers");
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(format!("{directory}/{name}"), input).unwrap();
}
