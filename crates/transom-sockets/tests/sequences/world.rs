//! The connection of a sequence, and what has to be known of it so that no call waits for ever and each answer
//! is settled.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::calls;
use super::together;

/// Numbers by a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// An end of the connection.
#[derive(Default)]
pub(crate) struct End {
    /// The end's descriptors; none: closed.
    pub(crate) fds: Vec<c_int>,
    pub(crate) nonblocking: bool,
    /// Bytes that were sent to it, and that no call has taken.
    pub(crate) unread: usize,
    /// The next byte that it sends.
    pub(crate) position: usize,
    /// SHUT_WR and SHUT_RD.
    pub(crate) finished: bool,
    pub(crate) deaf: bool,
    pub(crate) low_water: usize,
    /// SO_PEEK_OFF is set.
    pub(crate) peeks_from_offset: bool,
}

pub(crate) struct World {
    pub(crate) random: Random,
    /// Whether steps of [`super::rarer`] are among its steps.
    pub(crate) rarer: bool,
    /// Where the answers go: each at once, so that a sequence which ends its process shows how.
    pub(crate) log: File,
    pub(crate) ends: [End; 2],
    /// Epoll sets.
    pub(crate) sets: Vec<c_int>,
    pub(crate) pipe: [c_int; 2],
    pub(crate) file: c_int,
}

/// How often SIGPIPE came.
static PIPES: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_pipe(_: c_int) {
    PIPES.fetch_add(1, Ordering::Relaxed);
}

pub(crate) extern "C" fn on_signal(_: c_int) {}

pub(crate) fn handle(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: zeros are an action without a mask; the handler takes a number.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Bytes of a stream from a position on.
pub(crate) fn pattern(position: usize, length: usize) -> Vec<u8> {
    (position..position + length)
        .map(|at| (at.wrapping_mul(0x9E37) >> 5) as u8 ^ at as u8)
        .collect()
}

/// A short word for bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xCBF2_9CE4_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{}:{hash:08x}", bytes.len())
}

/// Wait until something holds; no test relies on how long that takes.
pub(crate) fn until(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..20_000 {
        if holds() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    false
}

pub(crate) fn number_of(fd: c_int, request: libc::c_ulong) -> c_int {
    let mut count: c_int = -1;
    // SAFETY: the kernel writes one number.
    unsafe { libc::ioctl(fd, request, &raw mut count) };
    count
}

pub(crate) fn polled(fd: c_int, events: i16) -> i16 {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut one, 1, 0) };
    one.revents
}

/// Bytes that an end has received in the kernel's count.
fn received(fd: c_int) -> u64 {
    let mut info = [0_u64; 32];
    let mut size = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most so many bytes.
    unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        );
    }
    info[16]
}

impl World {
    fn new(seed: u64, rarer: bool, log: File) -> World {
        let mut random = Random(seed);
        let mut pipe = [0; 2];
        // SAFETY: two descriptors are written, and a name without a zero within is given.
        let file = unsafe {
            assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC), 0);
            let file = libc::memfd_create(c"sequences".as_ptr(), libc::MFD_CLOEXEC);
            let text = pattern(7, 4096);
            assert_eq!(libc::write(file, text.as_ptr().cast(), text.len()), 4096);
            file
        };
        let start = random.one(&[Start::Lasted, Start::Lasted, Start::Between, Start::Short]);
        let ([one, other], unread) = connected(start);
        let end = |fd, unread| End { fds: vec![fd], unread, low_water: 1, ..End::default() };
        let mut ends = [end(one, 0), end(other, unread)];
        if random.chance(2) {
            ends.reverse();
        }
        World { random, rarer, log, ends, sets: Vec::new(), pipe, file }
    }

    /// A line of the log: a call, and its answer.
    pub(crate) fn say(&mut self, what: &str, answer: &str) {
        let pipes = PIPES.swap(0, Ordering::Relaxed);
        let signal = if pipes > 0 { format!(" SIGPIPE {pipes}") } else { String::new() };
        self.log.write_all(format!("{what} -> {answer}{signal}\n").as_bytes()).unwrap();
    }

    /// A call that has answered `done`.
    pub(crate) fn answer(&mut self, what: &str, done: isize) {
        let text = if done < 0 { format!("{done} errno {}", errno()) } else { done.to_string() };
        self.say(what, &text);
    }

    pub(crate) fn fd(&mut self, end: usize) -> c_int {
        let fds = &self.ends[end].fds;
        fds[(self.random.0 >> 7) as usize % fds.len()]
    }

    /// Whether a call that receives answers at once: there are so many bytes, or nothing follows.
    pub(crate) fn has(&self, end: usize, bytes: usize) -> bool {
        let (this, other) = (&self.ends[end], &self.ends[1 - end]);
        this.unread >= bytes.max(1) || other.finished || other.fds.is_empty() || this.deaf
    }

    /// Wait until everything that was sent has arrived.
    pub(crate) fn settle(&mut self) {
        for end in 0..2 {
            let (this, other) = (&self.ends[end], &self.ends[1 - end]);
            let Some(fd) = this.fds.first().copied() else { continue };
            if other.finished || other.fds.is_empty() {
                until(|| polled(fd, libc::POLLRDHUP) != 0);
            }
            let unread = this.unread as c_int;
            let sender = other.fds.first().filter(|_| this.deaf);
            until(|| match sender {
                // Bytes that come to an end that reads no more need not be counted there.
                Some(sender) => number_of(*sender, libc::TIOCOUTQ) == 0,
                None => number_of(fd, libc::FIONREAD) == unread || this.deaf,
            });
        }
    }
}

/// How a connection is when its sequence begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Under the switch it is switched.
    Lasted,
    /// Under the switch the first end sends by its ring, while bytes lie at the other one unread that came over TCP.
    Between,
    /// Under the switch it is young.
    Short,
}

/// Both ends of a connection, and how many bytes lie unread at the second one.
fn connected(start: Start) -> ([c_int; 2], usize) {
    // SAFETY: addresses have the length that is said, and each exchange is of one byte.
    unsafe {
        let mut at: libc::sockaddr_in = std::mem::zeroed();
        at.sin_family = libc::AF_INET as libc::sa_family_t;
        at.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
        let mut size = size_of_val(&at) as libc::socklen_t;
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let listener = libc::socket(libc::AF_INET, flags, 0);
        let (address, place) = ((&raw mut at).cast::<libc::sockaddr>(), &raw mut size);
        assert_eq!(libc::bind(listener, address, size), 0);
        assert_eq!(libc::listen(listener, 1), 0);
        libc::getsockname(listener, address, place);
        let one = libc::socket(libc::AF_INET, flags, 0);
        assert_eq!(libc::connect(one, address, size), 0);
        let other =
            libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC);
        libc::close(listener);
        let mut byte = 0_u8;
        let room: *mut c_void = (&raw mut byte).cast();
        let turns = match start {
            Start::Lasted => 40,
            Start::Between => 32,
            Start::Short => 20,
        };
        let passes = |from, to| {
            assert_eq!(libc::send(from, room, 1, 0), 1);
            assert_eq!(libc::recv(to, room, 1, 0), 1);
        };
        for _ in 0..turns {
            passes(one, other);
            passes(other, one);
        }
        let mut unread = 0;
        if start == Start::Between {
            let first = pattern(0, 1000);
            assert_eq!(libc::send(one, first.as_ptr().cast(), first.len(), 0), 1000);
            assert_eq!(libc::recv(other, room, 1, 0), 1);
            passes(other, one);
            for _ in 0..50 {
                assert_eq!(libc::send(one, room, 1, 0), 1);
            }
            unread = 1049;
            until(|| number_of(other, libc::FIONREAD) == unread as c_int);
        }
        ([one, other], unread)
    }
}

/// A sequence of calls.
pub(crate) fn run(seed: u64, rarer: bool, log: &File) {
    handle(libc::SIGPIPE, on_pipe, libc::SA_RESTART);
    let mut log = log.try_clone().unwrap();
    log.write_all(format!("seed {seed}\n").as_bytes()).unwrap();
    let mut world = World::new(seed, rarer, log);
    let steps = 20 + world.random.below(40);
    for _ in 0..steps {
        calls::step(&mut world);
        world.settle();
    }
    let road = if world.ends.iter().any(|end| end.fds.is_empty()) { "" } else { road(&mut world) };
    together::end(&mut world);
    for fd in world.sets.drain(..).chain(world.pipe).chain([world.file]) {
        // SAFETY: the sequence's own.
        unsafe { libc::close(fd) };
    }
    world.log.write_all(road.as_bytes()).unwrap();
}

/// How the connection moves its bytes now.
fn road(world: &mut World) -> &'static str {
    let [one, other] = &world.ends;
    if one.finished || other.deaf {
        return "";
    }
    let (from, to) = (one.fds[0], other.fds[0]);
    let before = received(to);
    // A ring may have a doorbell for one of them.
    const FEW: usize = 4;
    for _ in 0..FEW {
        // SAFETY: one byte.
        let sent = unsafe {
            libc::send(from, [0_u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        };
        if sent != 1 {
            return "";
        }
    }
    let all = other.unread + FEW;
    until(|| number_of(to, libc::FIONREAD) >= all as c_int);
    let mut room = vec![0_u8; all];
    // SAFETY: there is room for all.
    unsafe { libc::recv(to, room.as_mut_ptr().cast(), all, libc::MSG_DONTWAIT) };
    world.ends[1].unread = 0;
    if received(to) < before + FEW as u64 { "connection by ring\n" } else { "connection by TCP\n" }
}
