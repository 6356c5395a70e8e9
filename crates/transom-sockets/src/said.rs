//! The fate of this process's connections, which it says when it ends, if it was asked to
//! (`TRANSOM_EXPLAIN=1`, `transom run --sockets --explain`).

use std::ffi::CStr;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::offer;
use super::process;
use super::sys;
use super::table::{self, Socket};

/// Why a connection has stayed with TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// Nothing has been decided: the connection has not lasted.
    Short,
    Rules,
    Elsewhere,
    NoListener,
    OtherUser,
    NotOffered,
    NotTaken,
    Options,
    Past,
    Ring,
    Stream,
    Background,
    Started,
    Passed,
    Shut,
    Sets,
    Busy,
    Memory,
    Limit,
}

/// All of them, and what is said.
const REASONS: [(Why, &str); 19] = [
    (Why::Short, "ended before they had lasted (32 answers, or 256 KiB)"),
    (Why::Rules, "are left with TCP by the rules"),
    (Why::Elsewhere, "lead to another host"),
    (Why::NoListener, "lead to a port at which no program under the switch listens"),
    (Why::OtherUser, "come from another user, or from a place that the kernel does not show"),
    (
        Why::NotOffered,
        "come from programs that have offered nothing: without the switch, or with a reason of their own",
    ),
    (Why::NotTaken, "were offered, and the other side has not taken them"),
    (
        Why::Options,
        "have an option that the kernel must serve (SO_ZEROCOPY, SO_TIMESTAMPING, SO_RCVLOWAT, O_ASYNC)",
    ),
    (Why::Past, "had bytes that went past the C library"),
    (
        Why::Ring,
        "belong to a process that has set up an io_uring, whose bytes go past the C library",
    ),
    (Why::Stream, "have a stream of the C library (fdopen), or are a standard descriptor"),
    (Why::Background, "were used by aio_read, aio_write or lio_listio"),
    (Why::Started, "were there when another program was started"),
    (Why::Passed, "were passed to another process while they were young"),
    (Why::Shut, "ended in one direction before they had lasted"),
    (
        Why::Sets,
        "are in an epoll set that nobody waits for, of several threads or processes, or waited for past the C library",
    ),
    (Why::Busy, "were in use by another call whenever they might have been switched"),
    (Why::Memory, "got no shared memory"),
    (
        Why::Limit,
        "are not listed: the limit of file sizes (ulimit -f, RLIMIT_FSIZE) leaves no room",
    ),
];

static STAYED: [AtomicU32; REASONS.len()] = [const { AtomicU32::new(0) }; REASONS.len()];
static SWITCHED: AtomicU32 = AtomicU32::new(0);

/// The first reason of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reason(AtomicU8);

impl Reason {
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, why: Why) {
        let _ = self.0.compare_exchange(0, why as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Why {
        let known = usize::from(self.0.load(Ordering::Relaxed));
        REASONS.get(known).map_or(Why::Short, |(why, _)| *why)
    }
}

/// A connection has ended, or never came so far as to be one of the table's.
pub(crate) fn stayed(why: Why) {
    STAYED[why as usize].fetch_add(1, Ordering::Relaxed);
}

/// The process has left a connection.
pub(crate) fn ended(socket: &Socket) {
    use transom_switch::session::State;
    match socket.session().map(|session| session.state()) {
        Some(State::Claimed) => {
            SWITCHED.fetch_add(1, Ordering::Relaxed);
        }
        Some(_) => stayed(Why::NotTaken),
        None if socket.young.is_connection() => stayed(socket.young.why()),
        None => {}
    }
}

/// In the child of a fork: what its parent has counted is its parent's.
pub(crate) fn after_fork() {
    for count in STAYED.iter().chain([&SWITCHED]) {
        count.store(0, Ordering::Relaxed);
    }
}

/// The process ends.
pub(crate) extern "C" fn at_exit() {
    if process::is_left_out() || !asked() || !process::may_change() {
        return;
    }
    table::each_connection(ended);
    let switched = SWITCHED.swap(0, Ordering::Relaxed);
    let counts = STAYED.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
    let stayed: u32 = counts.iter().sum();
    if switched + stayed == 0 || offer::is_socket(2) {
        return;
    }
    let mut text = format!(
        "transom: {} ({}): {switched} connections switched, {stayed} stayed with TCP\n",
        offer::program_name(),
        sys::pid()
    );
    for ((_, words), count) in REASONS.iter().zip(counts).filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "transom: {count:>8} {words}");
    }
    let _ = sys::write_quietly(2, text.as_bytes());
}

/// A program is about to be started that the library cannot follow into, for this reason.
pub(crate) fn cannot_follow(path: &CStr, why: &str) {
    if asked() {
        let path = path.to_string_lossy();
        let text = format!("transom: {path} {why}: its connections stay with TCP\n");
        let _ = sys::write_quietly(2, text.as_bytes());
    }
}

/// Whether this process was started with the wish. A program may change its variables: nginx's workers have none.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The process begins.
pub(crate) fn begin() {
    let wish = transom_os::environment::variable("TRANSOM_EXPLAIN");
    ASKED.store(wish.is_some_and(|value| value != "0"), Ordering::Relaxed);
}

pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
