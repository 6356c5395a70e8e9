//! A descriptor of ours.
//!
//! A forked child has a copy of each. It must not keep them: as long as it lives, the death of its
//! parent would not end the connections, and a port that was closed would still take requests. So
//! the child closes them first thing ([`close_all`]), and forgets that it had them. A thread that makes or closes
//! one is waited for before a fork ([`before_fork`]): only behind that is it known which are ours.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use super::releases::{Release, release};
use super::{fork_generation, now, pause};

/// An owned descriptor that tolerates being closed by other code of the process: every use of it
/// then fails with EBADF, which is a dead link, not a panic (the standard library's own type
/// aborts). The same in a forked child, whatever has got the number there since.
#[derive(Debug)]
pub struct Fd {
    number: RawFd,
    /// The process that it belongs to.
    generation: u64,
    /// The close may wait for another process.
    foreign: bool,
}

/// A number that no descriptor has: more than Linux ever grants.
const NOBODYS: RawFd = RawFd::MAX;

/// The last of the descriptors for standard input, output and errors.
const STANDARD: RawFd = 2;

/// A bit for each descriptor that is ours, up to the most that Linux grants by default (2^20).
/// Pages of it that no descriptor falls on take no memory.
static OURS: [AtomicU64; 1 << 14] = [const { AtomicU64::new(0) }; 1 << 14];
/// The largest that ever was.
static LARGEST: AtomicI32 = AtomicI32::new(-1);

fn place(number: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((OURS.get(number / 64)?, 1 << (number % 64)))
}

/// Forks that are under way, and threads between the system's word about a descriptor and ours.
static FORKING: AtomicU32 = AtomicU32::new(0);
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// A thread that makes or closes descriptors, or maps memory that no child is to have, which takes no time. Nothing is
/// forked meanwhile.
pub(super) struct Change;

impl Change {
    /// Begin, unless a fork is under way for longer than a few milliseconds: it copies what describes all memory.
    pub(super) fn begin() -> Option<Change> {
        const PATIENCE: Duration = Duration::from_millis(10);
        const PAUSE: Duration = Duration::from_micros(50);
        let mut end = None;
        loop {
            CHANGING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                return Some(Change);
            }
            drop(Change);
            if now() > *end.get_or_insert_with(|| now().after(PATIENCE)) {
                return None;
            }
            pause(PAUSE);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // None in the child of a fork in a handler of signals that has come in between.
        let fewer = |changing: u32| changing.checked_sub(1);
        let _ = CHANGING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
    }
}

/// The next fork begins: wait until all of our descriptors are known. For a second at most, because a handler of
/// signals may fork while its own thread makes one.
pub(super) fn before_fork() {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_micros(10);
    FORKING.fetch_add(1, Ordering::SeqCst);
    let end = now().after(PATIENCE);
    while CHANGING.load(Ordering::SeqCst) > 0 && now() < end {
        pause(PAUSE);
    }
}

/// The fork is over, in the parent.
pub(super) fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// In a forked child: close every descriptor of the parent's. Only does what is allowed there.
pub(super) fn close_all() {
    FORKING.store(0, Ordering::SeqCst);
    CHANGING.store(0, Ordering::SeqCst);
    let largest = usize::try_from(LARGEST.load(Ordering::Relaxed)).map_or(0, |n| n / 64 + 1);
    for (at, word) in OURS.iter().enumerate().take(largest) {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = at * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: a descriptor of ours; the handles that name it belong to another generation now,
            // and neither use nor close it.
            unsafe { libc::syscall(libc::SYS_close, number) };
        }
    }
}

impl Fd {
    /// A descriptor that a system call makes.
    pub(super) fn make<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Fd, E> {
        let _ = fork_generation(); // the forks are watched
        let _change = Change::begin();
        make().map(Fd::of)
    }

    /// Calls that make descriptors in which other processes have a part, and their result: a child that had these could
    /// not be told from its parent. `None`: not while a fork takes its time.
    pub(super) fn take<T>(take: impl FnOnce() -> T) -> Option<T> {
        let _ = fork_generation();
        let _change = Change::begin()?;
        Some(take())
    }

    /// Whether this process has made it, and not one that it was forked from.
    pub fn is_ours(&self) -> bool {
        self.generation == fork_generation()
    }

    /// This descriptor, closed by the thread for releases: another process has made it, or may put
    /// descriptors into it.
    pub(super) fn foreign(mut self) -> Fd {
        self.foreign = true;
        self
    }

    /// Close it in the thread for releases: that may take as long as another process likes, and no fork waits for it.
    pub(super) fn close_slowly(self) {
        let fd = ManuallyDrop::new(self);
        if fd.is_ours() {
            fd.close();
        }
    }

    fn close(&self) {
        // Before it is closed: afterwards the number may be another thread's.
        if let Some((word, bit)) = place(self.number) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        // rustix asserts success, so it is asked of the kernel directly.
        // SAFETY: ours, and not used afterwards; an error means that it was closed already.
        unsafe { libc::syscall(libc::SYS_close, self.number) };
    }

    /// The thread that drops it closes it: that is known to wait for no other process.
    pub(super) fn close_here(&mut self) {
        self.foreign = false;
    }
}

impl Fd {
    /// A descriptor that was just made, in [`Fd::make`] or [`Fd::take`].
    pub(super) fn of(fd: OwnedFd) -> Fd {
        // A program that has closed its standard error, and lines that it or we write there, would reach a peer.
        let fd = if fd.as_raw_fd() > STANDARD {
            fd
        } else {
            rustix::io::fcntl_dupfd_cloexec(&fd, STANDARD + 1).unwrap_or(fd)
        };
        let generation = fork_generation();
        let number = fd.into_raw_fd();
        LARGEST.fetch_max(number, Ordering::Relaxed);
        if let Some((word, bit)) = place(number) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Fd { number, generation, foreign: false }
    }
}

#[cfg(test)]
impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        Fd::of(fd)
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: ours until drop, or `NOBODYS`, and not -1; if other code closed it, system calls
        // fail.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        if self.is_ours() { self.number } else { NOBODYS }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if !self.is_ours() {
            return; // closed already; the number may be another descriptor's by now
        }
        if self.foreign {
            let Fd { number, generation, .. } = *self;
            return release(Release::Close(Fd { number, generation, foreign: false }));
        }
        let _change = Change::begin();
        self.close();
    }
}
