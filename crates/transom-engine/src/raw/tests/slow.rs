//! Other processes hand over what takes an hour to close, wherever a descriptor can be put, and no
//! connection waits for that.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sockopt,
};
use transom_memory::Rights;

use super::harness::*;
use super::processes::{alone, connected_with, parent, talking_child_of};
use super::shared_memory::shared;
use super::users::{become_another_user, is_root};
use crate::driver::Link;
use crate::raw::{Options, Path};
use crate::sys::{Fd, IoError, Local, LocalListener, is_behind};
use crate::{CompletionKind, Operation};

/// Longer than any test waits.
const LINGER: Duration = Duration::from_secs(3600);

/// In the other process: it stays our own user's.
const OWN: &str = "TRANSOM_TEST_OWN";

/// A socket whose last close waits for [`LINGER`] (socket(7)), unless the other end, which comes with it,
/// ends before.
fn slow() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(LINGER)).unwrap();
    (socket.into(), other)
}

/// The ways in which a socket is given a descriptor.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// With a byte.
    Plain,
    /// With a byte out of band, before another byte.
    OutOfBand,
    /// Two with one byte.
    Two,
}

const WAYS: [Way; 3] = [Way::Plain, Way::OutOfBand, Way::Two];

/// Put slow sockets into `to`, so that the last handle of them lies there; the other ends of them.
fn give(to: impl AsFd, way: Way, bytes: &[u8]) -> Vec<TcpStream> {
    let count = if matches!(way, Way::Two) { 2 } else { 1 };
    let (sockets, others): (Vec<_>, Vec<_>) = (0..count).map(|_| slow()).unzip();
    let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let band = if matches!(way, Way::OutOfBand) { SendFlags::OOB } else { SendFlags::empty() };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | band;
    match rustix::net::sendmsg(&to, &[IoSlice::new(bytes)], &mut control, flags) {
        Ok(_) => {}
        // Linux before 5.15 has no bytes out of band in these sockets, some of which refuse descriptors; and
        // the other side may be gone.
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::PIPE) => {
            for socket in &sockets {
                sockopt::set_socket_linger(socket, None).unwrap();
            }
        }
        Err(e) => panic!("{e}"),
    }
    if matches!(way, Way::OutOfBand) {
        let _ = rustix::net::send(&to, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    drop(fds);
    // The other side may have released them already: then this is the close that waits.
    std::thread::spawn(move || drop(sockets));
    others
}

fn offer() -> Vec<u8> {
    [&b"TRANSOM6"[..], b"0123456789abcdef", &[0]].concat()
}

fn name(at: SocketAddr) -> String {
    format!("transom/process/{at}")
}

/// A name of this process's own: the same tests may run beside it.
fn own(name: &str) -> String {
    format!("transom-test/{name}/{}", std::process::id())
}

/// A process that plays the other side of `test`, until its standard input ends.
fn other_side(test: &str, at: SocketAddr) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut other = talking_child_of(&format!("slow::{test}"), at, &[]);
    let lines = BufReader::new(other.stdout.take().unwrap()).lines().map(Result::unwrap);
    (other, lines)
}

/// In that process: all is given.
fn given_until_the_end<T>(kept: T) {
    println!("\nit is given");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(kept);
}

/// Two connected ends still reach each other.
fn write_once((active, passive): &(End, End)) {
    let (from, to) = (active.buffer(64), passive.buffer(64));
    let window = passive.window(&to, Rights::REMOTE_WRITE);
    active.post(Operation::Write { token: window.0, address: to.address() }, &[from.all()]);
    active.expect(CompletionKind::Write);
}

fn process() -> Options {
    Options { path: Path::Process, ..Options::from_env() }
}

/// Descriptors of another user do not reach this process, which could not end before each of them is closed: not
/// before its connection to the upgrade socket is accepted, and not behind that. Nor do those of our own user that has
/// not proven itself, as it may be a relay.
#[test]
fn no_descriptor_of_a_stranger_reaches_a_listener() {
    let test = "no_descriptor_of_a_stranger_reaches_a_listener";
    if let Some(at) = parent() {
        if std::env::var_os(OWN).is_none() {
            become_another_user();
        }
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let pipe = Fd::from(pipe);
        let local = Local::connect(&name(at)).unwrap();
        let before = local.hand_over(&offer(), &pipe);
        // The listener accepts it, and answers behind that.
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&[&b"Transom process1"[..], b"fedcba9876543210"].concat()).unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        let behind = local.hand_over(&offer(), &pipe);
        return println!("\n{before:?} {behind:?}");
    }
    if !is_root(test) || !alone(&format!("slow::{test}")) {
        return;
    }
    let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    if transom_os::peers::refuse_descriptors(&probe).is_err() {
        return eprintln!("SKIPPED: this system does not know how to refuse descriptors");
    }
    let passive = End::new(&process());
    let listener = listening(&passive);
    let at = listener.address().unwrap();
    for own in [false, true] {
        let mut attacker = Command::new(std::env::current_exe().unwrap());
        attacker.args(["--exact", &format!("raw::tests::slow::{test}"), "--nocapture"]);
        attacker.env("TRANSOM_TEST_PEER", at.to_string());
        if own {
            attacker.env(OWN, "1");
        }
        let said = attacker.output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        // Of another user the connection has been closed by then.
        let known = ["Err(Forbidden) Err(Forbidden)", "Err(Forbidden) Err(Reset)"];
        assert!(said.lines().any(|line| known.contains(&line)), "{own}: {said}");
    }
}

/// Another user puts descriptors into a listener's upgrade socket that take an hour to close.
/// Established connections go on, new ones come about and share memory, and the listener closes.
#[test]
fn another_user_s_descriptors_keep_no_connection_waiting() {
    let test = "another_user_s_descriptors_keep_no_connection_waiting";
    if let Some(at) = parent() {
        become_another_user();
        let given: Vec<_> = WAYS
            .map(|way| {
                let local = Local::connect(&name(at)).unwrap();
                give(local.fd(), way, &offer())
            })
            .into();
        return given_until_the_end(given);
    }
    if !is_root(test) || !alone(&format!("slow::{test}")) {
        return;
    }
    keeps_no_connection_waiting(test);
}

/// Slow offers of a process of our own user.
#[test]
fn our_own_user_s_offers_keep_no_connection_waiting() {
    let test = "our_own_user_s_offers_keep_no_connection_waiting";
    if let Some(at) = parent() {
        let given: Vec<_> = WAYS
            .map(|way| {
                let local = Local::connect(&name(at)).unwrap();
                give(local.fd(), way, &offer())
            })
            .into();
        return given_until_the_end(given);
    }
    if !alone(&format!("slow::{test}")) {
        return;
    }
    keeps_no_connection_waiting(test);
}

fn keeps_no_connection_waiting(test: &str) {
    let (first, passive) = (End::new(&process()), End::new(&process()));
    let listener = listening(&passive);
    join_at(&first, &passive, &listener);
    let established = (first, passive);
    let fresh = |end: &End| End::in_domain(&end.adapter, end.domain);
    let (mut other, mut lines) = other_side(test, listener.address().unwrap());
    assert!(lines.any(|line| line == "it is given"));
    for _ in 0..3 {
        let ends = (fresh(&established.0), fresh(&established.1));
        join_at(&ends.0, &ends.1, &listener);
        assert_eq!(ends.0.connector.info().unwrap().path, "process");
        write_once(&ends);
        write_once(&established);
    }
    let at = listener.address().unwrap();
    listener.close().unwrap();
    drop(LocalListener::open(&name(at)).unwrap());
    write_once(&established);
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}

/// The peer of a connection over rings puts such descriptors into the socket that wakes this side. Other
/// connections go on, also when this one ends.
#[test]
fn a_peer_s_descriptors_keep_no_other_connection_waiting() {
    let test = "a_peer_s_descriptors_keep_no_other_connection_waiting";
    if let Some(at) = parent() {
        let given: Vec<_> = WAYS
            .map(|way| {
                let end = connected_with(at, &process());
                let link = Link::all(&end.adapter.0.shared).remove(0);
                // Two messages: behind the first one the other side may not listen any more.
                let given = [(); 2].map(|()| give(link.bell.get().unwrap().fd(), way, &[1]));
                (given, end)
            })
            .into();
        let given: Vec<_> = given.into_iter().map(|(given, _end)| given).collect();
        return given_until_the_end(given);
    }
    if !alone(&format!("slow::{test}")) {
        return;
    }
    let (first, passive) = (End::new(&process()), End::new(&process()));
    let listener = listening(&passive);
    join_at(&first, &passive, &listener);
    let established = (first, passive);
    let (mut other, mut lines) = other_side(test, listener.address().unwrap());
    let mut ends = Vec::new();
    for _ in WAYS {
        let end = End::in_domain(&established.1.adapter, established.1.domain);
        let gone = super::processes::accepted(&end, &listener, 0);
        ends.push((end, gone));
    }
    assert!(lines.any(|line| line == "it is given"));
    for (_, (_, gone)) in &ends {
        gone.wait();
        write_once(&established);
    }
    drop(ends);
    write_once(&established);
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}

/// A descriptor that was given to a socket is released by no thread that looks into the socket, reads from
/// it, or drops it, or its listener. What waits to be released is bounded, and so is what is accepted.
#[test]
fn no_thread_of_a_connection_releases_what_was_given() {
    let test = "slow::no_thread_of_a_connection_releases_what_was_given";
    if !alone(test) {
        return;
    }
    let (at, aside) = (&own("slow"), &own("slow-unaccepted"));
    let listener = LocalListener::open(at).unwrap();
    let never_accepts = LocalListener::open(aside).unwrap();
    let mut others = Vec::new();
    for way in WAYS {
        let (active, unaccepted) = (Local::connect(at).unwrap(), Local::connect(aside).unwrap());
        let passive = listener.accept().unwrap();
        active.take_descriptors();
        passive.take_descriptors();
        others.push(give(active.fd(), way, &[1]));
        // Before Linux 6.16.
        others.push(give(unaccepted.fd(), way, &[1]));
        others.push(give(passive.fd(), way, &[1]));
        let got = passive.receive_handover(&mut [0; 8]);
        assert!(matches!(
            (way, got),
            (Way::Two, Err(IoError::Forbidden)) | (_, Ok((1.., Some(_))))
        ));
        drop((active, passive));
    }
    drop((listener, never_accepts));
    let listener = LocalListener::open(at).unwrap();
    let mut count = 0;
    let full = loop {
        match Local::connect(at) {
            Ok(local) => drop(local),
            Err(full) => break full,
        }
        count += 1;
        assert!(count < 1000, "so much may not wait to be released");
    };
    assert_eq!((full, is_behind()), (IoError::Exhausted, true));
    assert_eq!(listener.accept().unwrap_err(), IoError::Exhausted);
    let shut = LocalListener::open(&own("slow-shut")).unwrap();
    shut.shut();
    assert!(shut.wait().is_none(), "a thread that waits there returns all the same");
    drop(others);
    until("all is released", || !is_behind());
    listener.accept().unwrap();
}

/// Clients of inspections that put descriptors into their sockets and read nothing keep no other from its answer.
#[test]
fn what_a_client_leaves_keeps_no_answer_waiting() {
    if !alone("slow::what_a_client_leaves_keeps_no_answer_waiting") {
        return;
    }
    let end = End::new(&Options { inspect: true, ..Options::from_env() });
    let folder = transom_inspect::Folder::of_user().unwrap();
    let process = std::process::id();
    let ours = |path: &std::path::PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(&format!("{process}-"))
    };
    let all = std::fs::read_dir(folder.path()).unwrap();
    let socket = all.map(|entry| entry.unwrap().path()).find(ours).unwrap();
    let given = WAYS.map(|way| {
        let client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        (give(&client, way, &[1]), client)
    });
    for (_, client) in &given {
        client.shutdown(std::net::Shutdown::Read).unwrap();
    }
    let asks = || assert_eq!(transom_inspect::ask(process).unwrap().process.adapters, 1);
    asks();
    // Nor do so many that upgrade sockets take no more.
    let at = &own("slow-upgrades");
    let upgrades = LocalListener::open(at).unwrap();
    while !is_behind() {
        drop(Local::connect(at).unwrap());
        let _ = upgrades.accept();
    }
    for _ in 0..300 {
        asks();
    }
    drop(end);
}

/// Have this process hold the lock of a mapping's file, as long as it lives: a thread writes to the file out
/// of memory whose page does not come. `false`: this system does not let it.
fn hold_the_file_of(mapping: &str) -> bool {
    const PAGE: usize = 4096;
    /// ioctl_userfaultfd(2).
    const API: [libc::c_ulong; 2] = [0xc018_aa3f, 0xaa];
    const REGISTER: [libc::c_ulong; 2] = [0xc020_aa00, 1];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains(mapping)).unwrap();
    let place = line.split_whitespace().next().unwrap();
    let file =
        std::fs::OpenOptions::new().write(true).open(format!("/proc/self/map_files/{place}"));
    let Ok(file) = file else { return false };
    // SAFETY: a page of its own, which nothing else of this process touches; both structures are larger than
    // what the calls read and write.
    let page = unsafe {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0);
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        let mut api = [API[1], 0, 0];
        let mut register = [page.addr() as libc::c_ulong, PAGE as _, REGISTER[1], 0];
        if libc::ioctl(faults, API[0], api.as_mut_ptr()) != 0
            || libc::ioctl(faults, REGISTER[0], register.as_mut_ptr()) != 0
        {
            return false;
        }
        page.addr()
    };
    let writer = std::thread::spawn(move || {
        use std::os::fd::AsRawFd;
        let page: *const libc::c_void = std::ptr::with_exposed_provenance(page);
        // SAFETY: the page is there as far as this process can tell; the call waits for it.
        unsafe { libc::pwrite(file.as_raw_fd(), page, PAGE, 0) };
    });
    // The thread holds the lock once it waits for its page.
    let waits = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let call = libc::SYS_pwrite64.to_string();
        all.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok())
            .any(|said| said.split(' ').next() == Some(&call))
    };
    until("it writes", || waits() || writer.is_finished());
    !writer.is_finished()
}

/// The peer of a connection over rings holds the lock of their file when this side gives pages of it back.
/// Only the thread for releases waits: other connections go on, also when this one ends.
#[test]
fn a_peer_that_holds_the_file_of_the_rings_keeps_no_connection_waiting() {
    let test = "a_peer_that_holds_the_file_of_the_rings_keeps_no_connection_waiting";
    if let Some(at) = parent() {
        let end = connected_with(at, &process());
        end.qp.post_receive(1, &[end.buffer(65_536).all()]).unwrap();
        let held = hold_the_file_of("memfd:transom ");
        println!("\n{}", if held { "it is given" } else { "this system does not let it" });
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        drop(end);
        // SAFETY: ends the process, whose thread waits for ever, without running anything else.
        unsafe { libc::_exit(0) }
    }
    if !alone(&format!("slow::{test}")) {
        return;
    }
    let (first, passive) = (End::new(&process()), End::new(&process()));
    let listener = listening(&passive);
    join_at(&first, &passive, &listener);
    let established = (first, passive);
    let (mut other, mut lines) = other_side(test, listener.address().unwrap());
    let end = End::in_domain(&established.1.adapter, established.1.domain);
    let _gone = super::processes::accepted(&end, &listener, 0);
    let said = lines.find(|line| line == "it is given" || line.starts_with("this system")).unwrap();
    if said != "it is given" {
        return eprintln!("{test} is SKIPPED: {said}");
    }
    let payload = end.buffer(65_536);
    end.post(Operation::Send, &[payload.all()]);
    end.expect(CompletionKind::Send);
    let link = end.qp.0.qp.link().unwrap();
    assert!(link.placed() > 0);
    until("pages are given back", || link.gives_back());
    for _ in 0..3 {
        write_once(&established);
    }
    drop((link, end));
    write_once(&established);
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}

/// The peer that has mapped a shared region holds the lock of its file when the region is dropped. The drop
/// returns all the same, and other connections go on.
#[test]
fn a_peer_that_holds_the_file_of_a_region_does_not_keep_its_drop() {
    let test = "a_peer_that_holds_the_file_of_a_region_does_not_keep_its_drop";
    const MAPPING: &str = "memfd:shared-by-transom";
    const MOST: u64 = 64;
    if let Some(at) = parent() {
        let end = connected_with(at, &process());
        let buffer = end.buffer(65_536);
        for receive in 0..MOST {
            end.qp.post_receive(receive, &[buffer.all()]).unwrap();
        }
        let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(MAPPING);
        while !is_mapped() {
            end.expect(CompletionKind::Receive);
        }
        let held = hold_the_file_of(MAPPING);
        println!("\n{}", if held { "it is given" } else { "this system does not let it" });
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        drop(end);
        // SAFETY: ends the process, whose thread waits for ever, without running anything else.
        unsafe { libc::_exit(0) }
    }
    if !alone(&format!("slow::{test}")) {
        return;
    }
    let (first, passive) = (End::new(&process()), End::new(&process()));
    let listener = listening(&passive);
    join_at(&first, &passive, &listener);
    let established = (first, passive);
    let (mut other, mut lines) = other_side(test, listener.address().unwrap());
    let end = End::in_domain(&established.1.adapter, established.1.domain);
    let _gone = super::processes::accepted(&end, &listener, 0);
    let (memory, from) = shared(&end);
    // The region is handed over with a Send, and counts as mapped with one that follows the peer's answer.
    for _ in 0..MOST {
        end.post(Operation::Send, &[from.sge(0, 65_536)]);
        end.expect(CompletionKind::Send);
        if memory.peers() == 1 {
            break;
        }
    }
    assert_eq!(memory.peers(), 1);
    let said = lines.find(|line| line == "it is given" || line.starts_with("this system")).unwrap();
    if said != "it is given" {
        return eprintln!("{test} is SKIPPED: {said}");
    }
    end.adapter.deregister(from.token).unwrap();
    drop(memory);
    assert_eq!(other.try_wait().unwrap(), None, "the peer holds it still");
    write_once(&established);
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}
