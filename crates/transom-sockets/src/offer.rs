//! How two processes find each other: a folder of the user's alone with a marker for each port that is
//! listened on under the switch, and the number of the segment of each connection.
//!
//! A segment is made once its connection has lasted. Its memory has no name, and the kernel removes it with the
//! last process that has it attached, however that ends. Its number stands in a file of the folder, beside the
//! kernel's cookie of the active side's TCP socket, which no other socket ever has. The passive side asks the
//! kernel for the cookie of the socket at the other end (`sock_diag`), so neither a process that died nor an
//! address used again leads to a wrong segment. Any process that holds either socket finds the segment in this
//! way: behind `fork`, `exec` and SCM_RIGHTS.

use std::ffi::{CString, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use transom_os::answers::{self, About, Found, question};
use transom_switch::directory::{ENTRY, Entry, entries};
use transom_switch::layout::{HEADER, Header, Side, segment_length, side_length};
use transom_switch::rules::Rules;
use transom_switch::session::{Session, State};

use super::mutex::Mutex;
use super::said::Why;
use super::sys;
use super::table::{self, Socket};

/// Bytes of the smallest rings of a segment that this process makes.
const RING: u64 = 16 << 10;
/// How files of the folder are opened: no link is followed, and no pipe in the place of one is waited for.
const OPEN: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
const SO_COOKIE: c_int = 57;
const SO_TIMESTAMPING: c_int = 37;

/// A segment that is mapped.
pub(crate) struct Segment {
    pub(crate) header: *mut Header,
    pub(crate) ring: u64,
    pub(crate) side: Side,
}

/// The user's rules, and this program's name.
struct Wishes {
    rules: Rules,
    program: String,
}

/// Programs that stay with TCP: shells write to connections by way of `stdio`, past this library; a
/// server of ssh forbids itself the system calls that the switch needs.
const EXCEPTED: [&str; 10] =
    ["sh", "bash", "dash", "zsh", "ksh", "busybox", "fish", "sshd", "sshd-session", "sshd-auth"];

fn wishes() -> &'static Wishes {
    static WISHES: OnceLock<Wishes> = OnceLock::new();
    WISHES.get_or_init(|| {
        let said = transom_os::environment::variable("TRANSOM_SOCKETS").unwrap_or_default();
        let said = said.into_string().unwrap_or_else(|_| "off".to_owned());
        let text = if said.starts_with(['/', '.']) {
            std::fs::read_to_string(&said).unwrap_or_else(|_| "off".to_owned())
        } else {
            said
        };
        let program = program();
        let mut rules = Rules::parse(&text).unwrap_or_else(|_| Rules::off());
        // A caller with fewer rights may have preloaded the library, but moves no connection by it.
        if EXCEPTED.contains(&program.as_str()) || !transom_os::environment::is_believed() {
            rules = Rules::off();
        }
        Wishes { rules, program }
    })
}

fn program() -> String {
    let mut name = [0; 256];
    let Ok(fd) = sys::open(c"/proc/self/cmdline", libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return String::new();
    };
    let read = sys::read(fd, &mut name).unwrap_or_default();
    sys::close(fd);
    let first = name[..read].split(|byte| *byte == 0).next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let name = first.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    // Text behind a colon is a title that the program has given itself.
    name.split(':').next().unwrap_or_default().to_owned()
}

/// Whether the rules keep every connection of this program on TCP.
pub(crate) fn leaves_out() -> bool {
    let wishes = wishes();
    !wishes.rules.may_switch(&wishes.program)
}

/// Whether this program was started with a switched connection as one of the descriptors that shells have names for:
/// it is served, whatever the rules say of others.
pub(crate) fn inherits() -> bool {
    (0..=9).any(|fd| is_tcp(fd) && is_claimed(fd))
}

/// Whether any connection may be switched.
pub(crate) fn may_switch() -> bool {
    !table::is_frozen() && !wishes().rules.is_off()
}

/// Whether a connection whose listening side is at `at` may be switched.
pub(crate) fn wanted(at: SocketAddr) -> bool {
    let wishes = wishes();
    !table::is_frozen() && wishes.rules.switch(&wishes.program, at)
}

/// Why a connection that is not wanted is not.
pub(crate) fn why_not() -> Why {
    if table::is_frozen() { Why::Ring } else { Why::Rules }
}

/// This program's name.
pub(crate) fn program_name() -> &'static str {
    &wishes().program
}

/// The folder of this user, if it is this user's alone. Looked at each time: where it was taken away (by systemd when
/// the user logs out, for one) another user may have made the next one.
fn folder() -> Option<String> {
    let user = sys::user();
    let path = format!("/dev/shm/transom-{user}");
    let name = CString::new(path.clone()).ok()?;
    let look = || sys::stat(&name, libc::AT_SYMLINK_NOFOLLOW);
    let about = look().or_else(|| {
        let _ = sys::mkdir(&name, 0o700);
        look()
    })?;
    let own = about.st_mode & libc::S_IFMT == libc::S_IFDIR
        && about.st_mode & 0o077 == 0
        && sys::owns(&name, about.st_uid);
    own.then_some(path)
}

/// The network namespace: the same port in another one is another port.
fn namespace() -> Option<u64> {
    sys::stat(c"/proc/self/ns/net", 0).map(|about| about.st_ino)
}

/// The file with the numbers of segments.
fn directory_name() -> Option<CString> {
    CString::new(format!("{}/connections-{:x}", folder()?, namespace()?)).ok()
}

fn marker_name(port: u16) -> Option<CString> {
    CString::new(format!("{}/l-{:x}-{port}", folder()?, namespace()?)).ok()
}

fn cookie(fd: c_int) -> Option<u64> {
    sys::option::<u64>(fd, libc::SOL_SOCKET, SO_COOKIE).ok().filter(|cookie| *cookie != 0)
}

/// The address in a socket address of the kernel's.
pub(crate) fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = c_int::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip = match family {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn local_name(fd: c_int) -> Option<SocketAddr> {
    address(&sys::name(fd, libc::SYS_getsockname).ok()?.0)
}

fn peer_name(fd: c_int) -> Option<SocketAddr> {
    address(&sys::name(fd, libc::SYS_getpeername).ok()?.0)
}

/// Whether an address is one of this host's: a socket can be bound to it. Asked once for each address
/// in ten seconds.
fn is_here(ip: IpAddr) -> bool {
    static KNOWN: Mutex<Vec<(IpAddr, bool, u64)>> = Mutex::new(Vec::new());
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return true;
    }
    let now = sys::now();
    let fresh = |known: &&(IpAddr, bool, u64)| known.0 == ip && now - known.2 < 10_000_000_000;
    if let Some(found) = KNOWN.lock().and_then(|known| known.iter().find(fresh).copied()) {
        return found.1;
    }
    let mut bytes = [0; 28];
    let (family, length) = match ip {
        IpAddr::V4(ip) => {
            bytes[4..8].copy_from_slice(&ip.octets());
            (libc::AF_INET, 16)
        }
        IpAddr::V6(ip) => {
            bytes[8..24].copy_from_slice(&ip.octets());
            (libc::AF_INET6, 28)
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    let Ok(probe) = sys::socket(family, libc::SOCK_DGRAM, 0) else { return false };
    let here = sys::bind(probe, &bytes[..length]).is_ok();
    sys::close(probe);
    if let Some(mut known) = KNOWN.lock() {
        known.retain(|one| one.0 != ip);
        if known.len() >= 64 {
            known.remove(0);
        }
        known.push((ip, here, now));
    }
    here
}

/// The cookie of the TCP socket of this network namespace that is at `at` and connected to `to`, if it
/// belongs to this user.
fn cookie_of(at: SocketAddr, to: SocketAddr) -> Option<u64> {
    other_end(at, to).filter(|end| sys::is_ours(end.user)).map(|end| end.cookie)
}

/// The socket that is at `at` and connected to `to`, as the kernel knows it.
fn other_end(at: SocketAddr, to: SocketAddr) -> Option<Found> {
    const NETLINK_SOCK_DIAG: c_int = 4;
    let (at, to) = (answers::end(at), answers::end(to));
    let asked = sys::socket(libc::AF_NETLINK, libc::SOCK_DGRAM, NETLINK_SOCK_DIAG).ok()?;
    let mut answer = [0_u8; 512];
    let got = sys::send(asked, &question(About::Holder, at, to), 0)
        .and_then(|_| sys::receive(asked, &mut answer, 0));
    sys::close(asked);
    answers::found(answer.get(..got.ok()?)?, at, to)
}

/// As the kernel's tables have them: a socket of IPv6 that speaks IPv4 is found by its IPv4 addresses.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

// --- markers ---

/// Whether a descriptor is a socket.
pub(crate) fn is_socket(fd: c_int) -> bool {
    sys::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE).is_ok()
}

/// Whether a descriptor is a TCP socket.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    sys::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// This process listens at the port of `fd`, or accepts there.
pub(crate) fn listens(fd: c_int) {
    match sys::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) {
        Ok(libc::IPPROTO_TCP) => table::set_listener(fd),
        _ => return table::set_plain(fd),
    }
    let Some(at) = local_name(fd) else { return };
    if !wanted(canonical(at)) {
        return;
    }
    let Some(name) = marker_name(at.port()) else { return };
    let flags = libc::O_CREAT | libc::O_WRONLY | OPEN;
    let Ok(marker) = sys::open(&name, flags, 0o600) else { return };
    let _ = sys::write_quietly(marker, &sys::pid().to_ne_bytes());
    sys::close(marker);
    sweep();
}

/// Whether a process under the switch listens at this port, as far as its marker says. A marker that
/// is wrong costs a segment that is never claimed.
fn is_marked(port: u16) -> bool {
    marker_name(port).is_some_and(|name| is_live(&name))
}

/// Whether the process of a marker lives. The marker of one that does not is taken away.
fn is_live(marker: &CString) -> bool {
    let flags = libc::O_RDONLY | OPEN;
    let Ok(file) = sys::open(marker, flags, 0) else { return false };
    let mut pid = [0; 4];
    let read = sys::read(file, &mut pid);
    sys::close(file);
    if read != Ok(4) {
        return false;
    }
    let lives = sys::lives(u32::from_ne_bytes(pid));
    if !lives {
        sys::unlink(marker);
    }
    lives
}

// --- a connection that has lasted ---

/// The outcome of a look at a young connection.
pub(crate) enum Outcome {
    /// The segment is offered, or claimed.
    Switched(Segment),
    /// The peer has offered nothing yet.
    Later,
    /// The connection stays with TCP for good.
    Never(Why),
}

/// Offer a segment, or look for the one that the peer has offered. `counts`: the bytes that were sent and
/// received. No other call uses the connection. `peer`: the kernel's number of the peer's socket, kept
/// from one call to the next.
pub(crate) fn grow(fd: c_int, side: Side, counts: (u64, u64), peer: &AtomicU64) -> Outcome {
    let (Some(at), Some(to)) = (local_name(fd), peer_name(fd)) else {
        return Outcome::Never(Why::Short);
    };
    let (at, to) = (canonical(at), canonical(to));
    let listening = if side == Side::Active { to } else { at };
    let judged = [
        (is_here(to.ip()), Why::Elsewhere),
        (wanted(listening), why_not()),
        (is_ordinary(fd), Why::Options),
        (sys::may_write(LIST), Why::Limit),
    ];
    if let Some((_, why)) = judged.into_iter().find(|(holds, _)| !holds) {
        return Outcome::Never(why);
    }
    let grown = match side {
        Side::Active if !is_marked(to.port()) => Err(Why::NoListener),
        // A process of this user could claim the connection in the place of another user's.
        Side::Active => match other_end(to, at) {
            Some(end) if !end.is_held => return Outcome::Later,
            Some(end) if sys::is_ours(end.user) => offer(fd, (at, to), counts),
            _ => Err(Why::OtherUser),
        },
        Side::Passive => {
            if peer.load(Ordering::Relaxed) == 0 {
                peer.store(cookie_of(to, at).unwrap_or_default(), Ordering::Relaxed);
            }
            let theirs = peer.load(Ordering::Relaxed);
            if theirs == 0 {
                return Outcome::Never(Why::OtherUser);
            }
            let Some(segment) = segment_of(theirs) else {
                return Outcome::Later;
            };
            claim(fd, segment, counts)
        }
    };
    grown.map_or_else(Outcome::Never, Outcome::Switched)
}

/// Whether the kernel has counted the same bytes, so that none went past this library, and nobody has ended a
/// direction.
fn check_whole(fd: c_int, (sent, received): (u64, u64)) -> Result<(), Why> {
    const TRIES: usize = 8;
    let mut within = false;
    for _ in 0..TRIES {
        let before = sys::unread(fd);
        let totals = sys::look_at_tcp(fd).and_then(|seen| seen.counts).ok_or(Why::Past)?;
        let after = sys::unread(fd);
        let left = totals.received.checked_sub(received).ok_or(Why::Past)?;
        if totals.sent != sent {
            return Err(Why::Past);
        }
        within = (before..=after).contains(&left);
        // Otherwise bytes came meanwhile.
        if before == after {
            break;
        }
    }
    // Asked before the count is judged, because the kernel counts the end of the peer's direction as a byte.
    if !sys::look_at_tcp(fd).is_some_and(|seen| seen.established) {
        return Err(Why::Shut);
    }
    if within { Ok(()) } else { Err(Why::Past) }
}

/// Make a segment for the connection. Without memory the connection stays with TCP.
fn offer(
    fd: c_int,
    (at, to): (SocketAddr, SocketAddr),
    counts: (u64, u64),
) -> Result<Segment, Why> {
    check_whole(fd, counts)?;
    let cookie = cookie(fd).ok_or(Why::Memory)?;
    // Other programs need shared memory, too.
    let (used, most) = sys::count_of_memory().ok_or(Why::Memory)?;
    if used >= most / 2 {
        return Err(Why::Memory);
    }
    let length = segment_length(RING) as usize;
    let (id, mapped) = sys::shared_memory(length).map_err(|_| Why::Memory)?;
    let header = mapped.cast::<Header>();
    let segment = Segment { header, ring: RING, side: Side::Active };
    // The smallest ring of each side always has memory: each goes on, whatever larger ones get.
    let first = mapped.cast::<u8>();
    let second = first.wrapping_add(HEADER + side_length(RING) as usize);
    let reserved = sys::populate(first, HEADER + RING as usize)
        .and_then(|()| sys::populate(second, RING as usize));
    if reserved.is_err() {
        return dropped(segment).ok_or(Why::Memory);
    }
    // SAFETY: the mapping has room for it, begins at a page, and zeros are a header of atomics.
    let words = unsafe { &*header };
    let session = Session::new(words, Side::Active, RING);
    words.name_peers(peers(at, to));
    session.count_before(counts.0, counts.1);
    take_options(fd, &session);
    words.prepare(RING, cookie);
    if enter(cookie, id) { Ok(segment) } else { dropped(segment).ok_or(Why::Memory) }
}

/// Take the segment that the peer has offered.
fn claim(fd: c_int, segment: Segment, counts: (u64, u64)) -> Result<Segment, Why> {
    // SAFETY: just mapped; words of atomics.
    let words = unsafe { &*segment.header };
    let session = Session::new(words, Side::Passive, segment.ring);
    let whole = check_whole(fd, counts).and_then(|()| cookie(fd).ok_or(Why::Memory));
    let own = match whole {
        Ok(own) => own,
        Err(why) => return dropped(segment).ok_or(why),
    };
    take_options(fd, &session);
    if !session.claim(own, counts.0, counts.1) {
        return dropped(segment).ok_or(Why::NotTaken);
    }
    note_claim(words.end(Side::Active).cookie.load(Ordering::Relaxed), own);
    let _ = session.road_out();
    no_delay(fd);
    joined(segment, Side::Passive).ok_or(Why::NotTaken)
}

/// Options that the kernel must serve keep a socket on TCP.
fn is_ordinary(fd: c_int) -> bool {
    let number = |level, name| sys::option::<c_int>(fd, level, name).unwrap_or_default();
    let flags = sys::status_flags(fd).unwrap_or_default();
    number(libc::SOL_SOCKET, libc::SO_ZEROCOPY) == 0
        && number(libc::SOL_SOCKET, libc::SO_RCVLOWAT) <= 1
        && flags & libc::O_ASYNC == 0
        && number(libc::SOL_SOCKET, SO_TIMESTAMPING) == 0
        && sys::option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF).unwrap_or(-1) < 0
}

/// Copy the options that the socket had before it had a segment.
fn take_options(fd: c_int, session: &Session<'_>) {
    let end = session.end();
    let linger = sys::option::<[c_int; 2]>(fd, libc::SOL_SOCKET, libc::SO_LINGER);
    let abortive = linger.is_ok_and(|linger| linger[0] != 0 && linger[1] == 0);
    end.abortive.store(u32::from(abortive), Ordering::Relaxed);
    let kept = sys::option::<c_int>(fd, libc::IPPROTO_TCP, libc::TCP_LINGER2);
    end.brief.store(u32::from(kept.is_ok_and(|seconds| seconds < 0)), Ordering::Relaxed);
    let is_set = |level, name| {
        u32::from(sys::option::<c_int>(fd, level, name).is_ok_and(|value| value != 0))
    };
    end.inline.store(is_set(libc::SOL_SOCKET, libc::SO_OOBINLINE), Ordering::Relaxed);
    end.no_delay.store(is_set(libc::IPPROTO_TCP, libc::TCP_NODELAY), Ordering::Relaxed);
    end.cork.store(is_set(libc::IPPROTO_TCP, libc::TCP_CORK), Ordering::Relaxed);
    end.keep_congestion(sys::congestion(fd));
    super::control::take_wishes(fd, session);
}

/// Both addresses, for [`Header::name_peers`].
fn peers(at: SocketAddr, to: SocketAddr) -> [u64; 6] {
    let halves = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [0, u64::from(ip.to_bits())],
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            [(bits >> 64) as u64, bits as u64]
        }
    };
    let family = if at.is_ipv4() { 4 } else { 6 };
    let ports = u64::from(at.port()) << 16 | u64::from(to.port());
    let ([a, b], [c, d]) = (halves(at.ip()), halves(to.ip()));
    [family, ports, a, b, c, d]
}

// --- any process that holds a connection ---

/// Find out what a descriptor is that this process has not made: a connection that another process has
/// switched, or none of ours.
pub(crate) fn resolve(fd: c_int) {
    let socket = |name| sys::option::<c_int>(fd, libc::SOL_SOCKET, name);
    match socket(libc::SO_PROTOCOL) {
        Ok(libc::IPPROTO_TCP) => {}
        Err(libc::EBADF) => return,
        _ => return table::set_plain(fd),
    }
    if socket(libc::SO_ACCEPTCONN) == Ok(1) {
        return listens(fd);
    }
    if peer_name(fd).is_none() && !was_switched(fd) {
        // Not connected: what comes of it is seen when it is connected.
        return table::set_fresh(fd);
    }
    match found(fd) {
        Some(segment) => {
            if let Some(socket) = table::socket_of(fd)
                && socket.young.joins(fd)
            {
                socket.attach(&segment);
            }
        }
        None => {
            if was_switched(fd) {
                // Bytes may have been lost, and the reader learns it.
                sys::reset(fd);
            }
            table::set_plain(fd);
        }
    }
}

/// Whether the other end may be a process of this user's on this host, as it was when the connection was offered. Any
/// process of the user can enter a segment for the number of a socket: those that lead elsewhere have none.
fn is_within_user(fd: c_int) -> bool {
    // A reset has taken the names away.
    let (Some(at), Some(to)) = (local_name(fd), peer_name(fd)) else { return true };
    let (at, to) = (canonical(at), canonical(to));
    let is_open = || sys::look_at_tcp(fd).is_some_and(|seen| seen.established);
    // A socket without a holder was not accepted yet, or is closed.
    let is_own = |end: Found| if end.is_held { sys::is_ours(end.user) } else { !is_open() };
    is_here(to.ip()) && other_end(to, at).is_none_or(is_own)
}

/// Whether a connection had a segment that is gone.
fn was_switched(fd: c_int) -> bool {
    if !is_within_user(fd) {
        return false;
    }
    let peer = || cookie_of(canonical(peer_name(fd)?), canonical(local_name(fd)?));
    [cookie(fd), peer()].into_iter().flatten().any(|cookie| {
        let seen = read_group(cookie);
        seen.is_some_and(|seen| entries(&seen).any(|entry| entry.cookie == cookie && entry.claimed))
    })
}

/// Whether a descriptor that nothing is known of is one end of a switched connection.
pub(crate) fn is_claimed(fd: c_int) -> bool {
    let (Some(at), Some(to)) = (local_name(fd), peer_name(fd)) else { return false };
    let (at, to) = (canonical(at), canonical(to));
    let names = || [cookie(fd), cookie_of(to, at)].into_iter().flatten();
    is_here(to.ip())
        && names().filter_map(segment_of).any(|segment| {
            // SAFETY: just mapped; words of atomics.
            let header = unsafe { &*segment.header };
            let state = Session::new(header, Side::Active, segment.ring).state();
            dropped(segment);
            state == State::Claimed
        })
}

/// The segment of a connection that another process has switched.
pub(crate) fn found(fd: c_int) -> Option<Segment> {
    if !is_within_user(fd) {
        return None;
    }
    // A reset has taken the names away, and left the cookie.
    let own = cookie(fd)?;
    if let Some(segment) = segment_of(own) {
        let side = segment.side;
        return joined(segment, side);
    }
    let (at, to) = (canonical(local_name(fd)?), canonical(peer_name(fd)?));
    if !is_here(to.ip()) {
        return None;
    }
    let segment = segment_of(cookie_of(to, at)?)?;
    // SAFETY: just mapped; words of atomics.
    let session = Session::new(unsafe { &*segment.header }, Side::Passive, segment.ring);
    if session.state() == State::Claimed && session.claim(own, 0, 0) {
        joined(segment, Side::Passive)
    } else {
        dropped(segment)
    }
}

/// A doorbell must not wait for the acknowledgement of the one before, nor for its turn in a stream that
/// is paced.
pub(crate) fn no_delay(fd: c_int) {
    sys::set_reno(fd);
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0);
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
}

fn joined(segment: Segment, side: Side) -> Option<Segment> {
    // SAFETY: mapped; words of atomics.
    let session = Session::new(unsafe { &*segment.header }, side, segment.ring);
    if session.state() == State::Withdrawn {
        return dropped(segment);
    }
    Some(Segment { side, ..segment })
}

fn dropped(segment: Segment) -> Option<Segment> {
    // SAFETY: attached by this module, and used by no other call.
    unsafe { sys::detach_memory(segment.header.cast(), segment_length(segment.ring) as usize) };
    None
}

/// The last descriptor of this process is about to be closed.
pub(crate) fn leave(held: &Socket, fd: c_int) {
    let Some(session) = held.session() else { return };
    if session.state() == State::Claimed {
        // A close with unread bytes is a reset, of doorbells as well: TCP must not see them. Where another process has
        // this end, and sleeps for them, it needs them, and this close is not the last one.
        let end = session.end();
        let is_needed = || {
            let sets = held.sets.load(Ordering::SeqCst);
            end.waiting.load(Ordering::SeqCst) > 0 || end.members.load(Ordering::SeqCst) > sets
        };
        super::stream::drain_if(&session, fd, || !is_needed());
        held.look_at_tcp(fd);
    }
}

// --- numbers of segments ---

/// A cookie has its entry in one group of these.
const GROUP: usize = 8;
const GROUPS: u64 = 2048;

type Group = [u8; ENTRY * GROUP];
/// Bytes that the file with all groups has.
const LIST: u64 = GROUPS * size_of::<Group>() as u64;

fn place(cookie: u64) -> i64 {
    // Cookies are counted up, a few for each processor.
    let mixed = cookie.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (mixed % GROUPS) as i64 * size_of::<Group>() as i64
}

fn group(file: c_int, cookie: u64) -> Group {
    let mut group = [0; ENTRY * GROUP];
    // Bytes that the file does not have yet are zeros.
    let _ = sys::read_at(file, &mut group, place(cookie));
    group
}

fn read_group(cookie: u64) -> Option<Group> {
    let flags = libc::O_RDONLY | OPEN;
    let file = sys::open(&directory_name()?, flags, 0).ok()?;
    let seen = group(file, cookie);
    sys::close(file);
    Some(seen)
}

/// Put an entry where `fits` says that it goes; `false`: nowhere.
fn write_entry(new: &Entry, fits: impl Fn(&Entry) -> bool) -> bool {
    let Some(name) = directory_name() else { return false };
    let flags = libc::O_CREAT | libc::O_RDWR | OPEN;
    let Ok(file) = sys::open(&name, flags, 0o600) else { return false };
    // Another process may take the same place at the same time.
    const TRIES: usize = 4;
    let mut written = false;
    for _ in 0..TRIES {
        let Some(free) = entries(&group(file, new.cookie)).position(|one| fits(&one)) else {
            break;
        };
        let at = place(new.cookie) + (free * ENTRY) as i64;
        if sys::write_at(file, &new.bytes(), at) != Ok(ENTRY) {
            break;
        }
        let same = |one: Entry| one.bytes() == new.bytes();
        written = entries(&group(file, new.cookie)).any(same);
        if written {
            break;
        }
    }
    sys::close(file);
    written
}

/// Tell who looks for this cookie the number of its segment. Places of segments that are gone are used again;
/// `false`: there is none.
fn enter(cookie: u64, id: u32) -> bool {
    let new = Entry { cookie, id: Some(id), claimed: false };
    let gone = |one: &Entry| one.id.is_some_and(|id| sys::about_memory(id).is_none());
    write_entry(&new, |one| one.id.is_none()) || write_entry(&new, gone)
}

/// From now on bytes may be in the segment only: who finds it gone learns that some may be lost.
/// It is found by the passive socket as well, behind the end of the active one.
fn note_claim(cookie: u64, passive: u64) {
    let id = read_group(cookie)
        .and_then(|seen| entries(&seen).find(|one| one.cookie == cookie).and_then(|one| one.id));
    write_entry(&Entry { cookie, id, claimed: true }, |one| one.cookie == cookie);
    let own = Entry { cookie: passive, id, claimed: true };
    let gone = |one: &Entry| one.id.is_some_and(|id| sys::about_memory(id).is_none());
    let _ = write_entry(&own, |one| one.id.is_none()) || write_entry(&own, gone);
}

/// Attach the segment that the socket with this cookie has made, if there is one.
fn segment_of(cookie: u64) -> Option<Segment> {
    let seen = read_group(cookie)?;
    entries(&seen)
        .filter_map(|one| one.id.filter(|_| one.cookie == cookie))
        .find_map(|id| open(id, cookie))
}

/// Attach a segment that another process of this user has made, if it is one.
fn open(id: u32, cookie: u64) -> Option<Segment> {
    let (length, user) = sys::about_memory(id)?;
    if !sys::is_ours(user) || length < HEADER as u64 || length > 1 << 30 {
        return None;
    }
    let at = sys::attach_memory(id, length as usize).ok()?;
    // While it is attached, its number is no other memory's.
    if sys::about_memory(id) != Some((length, user)) {
        // SAFETY: attached above, and used by no other call.
        unsafe { sys::detach_memory(at, length as usize) };
        return None;
    }
    let header = at.cast::<Header>();
    // SAFETY: the mapping has room for it, and begins at a page.
    let words = unsafe { &*header };
    let is = |side: &Side| words.end(*side).cookie.load(Ordering::Relaxed) == cookie;
    match (words.examine(length), [Side::Active, Side::Passive].into_iter().find(is)) {
        (Ok(ring), Some(side)) if segment_length(ring) == length => {
            Some(Segment { header, ring, side })
        }
        _ => {
            // SAFETY: attached above, and used by no other call.
            unsafe { sys::detach_memory(at, length as usize) };
            None
        }
    }
}

// --- what dead processes have left ---

/// Take away markers whose process is gone. Once in a process that listens: one that connects has less time.
fn sweep() {
    static DONE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    if !DONE.swap(std::ptr::dangling_mut(), Ordering::Relaxed).is_null() {
        return;
    }
    let (Some(path), Some(namespace)) = (folder(), namespace()) else { return };
    let Ok(entries) = std::fs::read_dir(&path) else { return };
    let markers = format!("l-{namespace:x}-");
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Ok(full) = CString::new(format!("{path}/{name}")) else { continue };
        // A segment that is being made has no number yet.
        let old = sys::stat(&full, libc::AT_SYMLINK_NOFOLLOW).is_some_and(|about| {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the call writes one such structure.
            unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
            about.st_ctime + 60 < time.tv_sec
        });
        if old && name.starts_with(&markers) {
            is_live(&full);
        }
    }
}
