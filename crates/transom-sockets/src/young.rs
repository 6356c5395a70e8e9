//! Connections that have not proven to last.
//!
//! A new connection is *young*: its calls go to the kernel, and are counted. A segment costs more than a
//! dozen exchanges over TCP do, so that a young connection is switched only behind some turns, or some
//! hundred KiB. The active side offers, and the passive side looks, at the start of a call. The limits of
//! the passive side lie behind those of the active side, so that its first look finds the offer where
//! requests and answers alternate. Each further look waits for twice as much.
//!
//! A connection is switched while no other call uses it, in any process that has it by `fork`: these
//! share one word of calls in flight, and the locks of the connection once it is switched ([`Words`]). A connection of which bytes passed without being counted here stays
//! with TCP.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use transom_switch::layout::Side;

use super::epoll::{self, Switch};
use super::lock::{self, Locked};
use super::mutex::Mutex;
use super::offer::{self, Outcome};
use super::said::{Reason, Why};
use super::sys::{self, Errno};
use super::table::{self, Held, Socket};

/// The connection has a segment.
const GROWN: u32 = 1 << 31;
/// The connection stays with TCP for good.
const STAYS: u32 = 1 << 30;
/// A thread switches the connection at this moment. The rest of the word: calls in flight.
const GROWING: u32 = 1 << 29;

/// How long a thread waits for another one that switches the connection.
const LONGEST: u64 = 1_000_000_000;

/// Turns and bytes behind which a connection is switched. A turn is a send behind something received.
const TURNS: u32 = 32;
const BYTES: u64 = 256 << 10;

/// The use that a call is about to make of its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Receive,
    /// This many bytes.
    Send(usize),
    /// Neither.
    Wait,
}

/// The library or the kernel: which of them serves a call.
pub(crate) enum Served {
    Ours(Held),
    Kernel(Flight),
}

/// A call that the kernel serves.
pub(crate) struct Flight(Option<Held>);

impl Flight {
    /// Whether the descriptor is a young connection.
    pub(crate) fn is_young(&self) -> bool {
        self.0.is_some()
    }

    /// Count what the call has sent; the result of the call.
    #[inline]
    pub(crate) fn sent(&self, done: isize) -> isize {
        if let (Some(held), Ok(bytes @ 1..)) = (&self.0, u64::try_from(done)) {
            held.young.sent.fetch_add(bytes, Ordering::Relaxed);
            if held.young.heard.swap(false, Ordering::Relaxed) {
                held.young.turns.fetch_add(1, Ordering::Relaxed);
            }
        }
        done
    }

    /// Count what the call has received, if it has taken that from the stream; the result of the call.
    #[inline]
    pub(crate) fn received(&self, flags: c_int, done: isize) -> isize {
        if let (Some(held), Ok(bytes @ 1..)) = (&self.0, u64::try_from(done))
            && flags & libc::MSG_PEEK == 0
        {
            held.young.received.fetch_add(bytes, Ordering::Relaxed);
            held.young.heard.store(true, Ordering::Relaxed);
        }
        done
    }

    /// The connection stays with TCP for good.
    pub(crate) fn stays(&self, why: Why) {
        if let Some(held) = &self.0 {
            held.young.stay(why);
        }
    }
}

impl Drop for Flight {
    #[inline]
    fn drop(&mut self) {
        if let Some(words) = self.0.as_ref().and_then(|held| held.young.words()) {
            words.calls.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Shared by the processes that have an end of a connection by `fork`: no peer has this memory.
#[derive(Default)]
#[repr(C, align(32))]
pub(crate) struct Words {
    /// Calls in flight while the connection is young, and what has become of it.
    calls: AtomicU32,
    sending: AtomicU32,
    receiving: AtomicU32,
    /// 1: calls do not block (`O_NONBLOCK`).
    nonblocking: AtomicU32,
    /// 1: processes may have this end that do not share these words, by `exec` or SCM_RIGHTS. All of them take
    /// the locks in the segment as well.
    crowded: AtomicU32,
}

/// The lock of one direction of an end.
pub(crate) struct Direction<'a> {
    _own: Locked<'a>,
    _shared: Option<Locked<'a>>,
}

/// The counts of a young connection.
#[derive(Default)]
pub(crate) struct Young {
    /// In a page that children of a fork share. Null: no connection yet.
    words: AtomicPtr<Words>,
    /// How often this process had forked when it took the words.
    forks: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    turns: AtomicU32,
    /// Something was received, and nothing was sent since.
    heard: AtomicBool,
    /// The other side had offered nothing when this end looked.
    not_offered: AtomicBool,
    /// Behind its first turn, some call of this library has waited for it by itself.
    asked: AtomicBool,
    /// The limits: turns, bytes sent, bytes received.
    most_turns: AtomicU32,
    most_sent: AtomicU64,
    most_received: AtomicU64,
    /// The kernel's number of the socket at the other end, once it is known.
    pub(crate) peer: AtomicU64,
    /// Why the connection stays with TCP.
    pub(crate) reason: Reason,
}

/// Shared memory of this process: where the next words are, and how many bytes are left in their page.
static WORDS: Mutex<(usize, usize)> = Mutex::new((0, 0));
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Zeros in a page that children of a fork share, never given back; null without memory. `T` consists of atomic
/// words, and its alignment is its size.
fn fresh<T>() -> *mut T {
    let Some(mut words) = WORDS.lock() else { return std::ptr::null_mut() };
    let at = words.0.next_multiple_of(size_of::<T>());
    if at + size_of::<T>() > words.0 + words.1 {
        let Some(page) = sys::shared_page() else { return std::ptr::null_mut() };
        *words = (page as usize + size_of::<T>(), 4096 - size_of::<T>());
        return page.cast();
    }
    let end = at + size_of::<T>();
    *words = (end, words.0 + words.1 - end);
    at as *mut T
}

/// This process has forked, or is the child, which takes no word from its parent's page. Words in use are
/// shared from now on, and are not used again.
pub(crate) fn forked(child: bool) {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if child && let Some(mut words) = WORDS.lock() {
        *words = (0, 0);
    }
}

/// A word in a page that children of a fork share.
#[derive(Default)]
pub(crate) struct Shared {
    word: AtomicPtr<AtomicU32>,
    /// How often this process had forked when it took the word.
    forks: AtomicU32,
}

impl Shared {
    #[inline]
    fn get(&self) -> Option<&AtomicU32> {
        // SAFETY: pages of words are never unmapped.
        unsafe { self.word.load(Ordering::Acquire).as_ref() }
    }

    /// Begin with 0, in a word that no child uses for something else.
    pub(crate) fn begin(&self) {
        let forks = FORKS.load(Ordering::Relaxed);
        match self.get() {
            Some(word) if self.forks.load(Ordering::Relaxed) == forks => {
                word.store(0, Ordering::Release);
            }
            _ => {
                self.forks.store(forks, Ordering::Relaxed);
                self.word.store(fresh(), Ordering::Release);
            }
        }
    }

    /// Whether all of these bits are set. Without a word, everything has been said.
    #[inline]
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.get().is_none_or(|word| word.load(Ordering::SeqCst) & bits == bits)
    }

    /// Set these bits; whether one of them was not.
    pub(crate) fn say(&self, bits: u32) -> bool {
        self.get().is_some_and(|word| word.fetch_or(bits, Ordering::SeqCst) & bits != bits)
    }
}

#[cold]
fn is_nonblocking_now(fd: c_int) -> bool {
    sys::status_flags(fd).unwrap_or_default() & libc::O_NONBLOCK != 0
}

impl Young {
    #[inline]
    fn words(&self) -> Option<&Words> {
        // SAFETY: pages of words are never unmapped.
        unsafe { self.words.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU32> {
        self.words().map(|words| &words.calls)
    }

    /// Words that no other connection uses.
    fn renew(&self) -> Option<&Words> {
        let forks = FORKS.load(Ordering::Relaxed);
        match self.words() {
            Some(words) if self.forks.load(Ordering::Relaxed) == forks => {
                for word in [&words.sending, &words.receiving, &words.nonblocking, &words.crowded] {
                    word.store(0, Ordering::Relaxed);
                }
                words.calls.store(0, Ordering::Release);
            }
            _ => {
                self.forks.store(forks, Ordering::Relaxed);
                self.words.store(fresh(), Ordering::Release);
            }
        }
        self.words()
    }

    /// This process has got the connection from another one, which has switched it. `false`: there is no memory.
    pub(crate) fn joins(&self, fd: c_int) -> bool {
        let Some(words) = self.renew() else { return false };
        words.crowded.store(1, Ordering::Relaxed);
        words.calls.store(GROWN, Ordering::Release);
        self.set_nonblocking(is_nonblocking_now(fd));
        true
    }

    /// Whether calls on this end do not block.
    #[inline]
    pub(crate) fn is_nonblocking(&self, fd: c_int) -> bool {
        let Some(words) = self.words() else { return false };
        if words.crowded.load(Ordering::Relaxed) != 0 {
            // Another process may have said so.
            return is_nonblocking_now(fd);
        }
        words.nonblocking.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_nonblocking(&self, to: bool) {
        if let Some(words) = self.words() {
            words.nonblocking.store(u32::from(to), Ordering::Relaxed);
        }
    }

    /// Take the lock of one direction. `shared` is its word in the segment.
    ///
    /// `EAGAIN`: this thread has it, and is in a handler of a signal. `ECONNRESET`: another process that has this
    /// end does not give it back.
    #[inline]
    fn lock<'a>(
        &'a self,
        own: fn(&Words) -> &AtomicU32,
        shared: &'a AtomicU32,
    ) -> Result<Direction<'a>, Errno> {
        let words = self.words().ok_or(libc::ENOTCONN)?;
        let _own = Locked::take(own(words)).ok_or(libc::EAGAIN)?;
        let crowded = words.crowded.load(Ordering::Relaxed) != 0;
        let _shared = if crowded {
            Some(Locked::take_in_time(shared).ok_or(libc::ECONNRESET)?)
        } else {
            None
        };
        Ok(Direction { _own, _shared })
    }

    #[inline]
    pub(crate) fn sending<'a>(&'a self, shared: &'a AtomicU32) -> Result<Direction<'a>, Errno> {
        self.lock(|words| &words.sending, shared)
    }

    #[inline]
    pub(crate) fn receiving<'a>(&'a self, shared: &'a AtomicU32) -> Result<Direction<'a>, Errno> {
        self.lock(|words| &words.receiving, shared)
    }

    /// Whether this thread has a lock of the end, and is in a handler of a signal.
    pub(crate) fn is_within(&self) -> bool {
        let me = lock::thread();
        self.words().is_some_and(|words| {
            [&words.sending, &words.receiving].into_iter().any(|word| lock::is_held_by(word, me))
        })
    }

    /// A process that does not share these words may get the connection.
    fn crowd(&self) {
        if let Some(words) = self.words()
            && words.crowded.swap(1, Ordering::SeqCst) == 0
        {
            // The holder of a lock has not seen it.
            drop(Locked::take(&words.sending));
            drop(Locked::take(&words.receiving));
        }
    }

    /// A connection begins at this end.
    pub(crate) fn begin(&self, side: Side) {
        for count in [&self.sent, &self.received, &self.peer] {
            count.store(0, Ordering::Relaxed);
        }
        self.turns.store(0, Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
        self.not_offered.store(false, Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
        self.reason.forget();
        let later = u32::from(side == Side::Passive);
        self.most_turns.store(TURNS + later, Ordering::Relaxed);
        self.most_sent.store(BYTES << later, Ordering::Relaxed);
        self.most_received.store(BYTES, Ordering::Relaxed);
        let _ = self.renew();
    }

    /// Another process may get the connection that counts apart: it stays with TCP for good, unless it is switched
    /// already.
    pub(crate) fn stay(&self, why: Why) {
        let Some(word) = self.word() else { return };
        self.reason.note(why);
        let begin = sys::now();
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen & GROWN != 0 {
                return self.crowd();
            }
            let waits = seen & GROWING != 0 && sys::now() - begin < LONGEST;
            let next = seen & !GROWING | STAYS;
            if !waits
                && word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return;
            }
            sys::yield_now();
        }
    }

    /// Whether the connection has lasted.
    #[inline]
    fn is_due(&self, what: Use) -> bool {
        let (turns, ahead) = match what {
            Use::Wait => return false,
            Use::Receive => (0, 0),
            Use::Send(bytes) => (u32::from(self.heard.load(Ordering::Relaxed)), bytes as u64),
        };
        let turns = turns.saturating_add(self.turns.load(Ordering::Relaxed));
        let sent = self.sent.load(Ordering::Relaxed).saturating_add(ahead);
        turns >= self.most_turns.load(Ordering::Relaxed)
            || sent > self.most_sent.load(Ordering::Relaxed)
            || self.received.load(Ordering::Relaxed) > self.most_received.load(Ordering::Relaxed)
    }

    /// Whether a connection has begun, whatever has become of it.
    pub(crate) fn is_connection(&self) -> bool {
        self.word().is_some()
    }

    /// Why the connection has not been switched.
    pub(crate) fn why(&self) -> Why {
        match self.reason.get() {
            Why::Short if self.not_offered.load(Ordering::Relaxed) => Why::NotOffered,
            Why::Short if self.is_due(Use::Receive) => Why::Busy,
            why => why,
        }
    }

    /// Look again behind twice as much of each.
    fn put_off(&self) {
        let turns = self.turns.load(Ordering::Relaxed).max(self.most_turns.load(Ordering::Relaxed));
        self.most_turns.store(turns.saturating_mul(2), Ordering::Relaxed);
        for (count, most) in [(&self.sent, &self.most_sent), (&self.received, &self.most_received)]
        {
            let next = count.load(Ordering::Relaxed).max(most.load(Ordering::Relaxed));
            most.store(next.saturating_mul(2), Ordering::Relaxed);
        }
    }
}

/// A call begins on a descriptor.
#[inline]
pub(crate) fn enter(fd: c_int, what: Use) -> Served {
    match table::hold_any(fd) {
        Some(held) if held.is_attached() => Served::Ours(held),
        Some(held) => enter_young(held, fd, what),
        None => Served::Kernel(Flight(None)),
    }
}

#[inline(never)]
fn enter_young(held: Held, fd: c_int, what: Use) -> Served {
    let (mut begin, mut tried) = (0, false);
    if what == Use::Wait && held.young.turns.load(Ordering::Relaxed) > 0 {
        held.young.asked.store(true, Ordering::Relaxed);
    }
    loop {
        let Some(word) = held.young.word() else { return Served::Kernel(Flight(None)) };
        let seen = word.load(Ordering::Acquire);
        if seen & STAYS != 0 {
            return Served::Kernel(Flight(None));
        }
        if seen & GROWN != 0 {
            join(&held, fd);
            let ours = held.is_attached();
            return if ours { Served::Ours(held) } else { Served::Kernel(Flight(None)) };
        }
        if seen & GROWING != 0 {
            let now = sys::now();
            begin = if begin == 0 { now } else { begin };
            if now - begin >= LONGEST {
                // The thread was in another process, and died: its segment says how far it came.
                let next = seen & !GROWING | GROWN;
                let _ = word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed);
            }
            sys::yield_now();
            continue;
        }
        if seen == 0 && !tried && held.young.is_due(what) {
            if word.compare_exchange(0, GROWING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                tried = true;
                grow(&held, fd, word);
            }
            continue;
        }
        let next = word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed);
        if next.is_ok() {
            return Served::Kernel(Flight(Some(held)));
        }
    }
}

/// Switch the connection, if its peer does. A handler of a signal would wait for its own thread.
fn grow(held: &Held, fd: c_int, word: &AtomicU32) {
    let young = &held.young;
    match epoll::may_switch(held, fd, young.asked.load(Ordering::Relaxed)) {
        Switch::Now => {}
        Switch::NotYet => {
            young.reason.note(Why::Sets);
            return word.store(0, Ordering::Release);
        }
        Switch::Never => {
            young.reason.note(Why::Sets);
            return word.store(STAYS, Ordering::Release);
        }
    }
    let counts = (young.sent.load(Ordering::Relaxed), young.received.load(Ordering::Relaxed));
    let mask = sys::block_signals();
    let next = match offer::grow(fd, held.side(), counts, &young.peer) {
        Outcome::Switched(segment) => {
            young.set_nonblocking(is_nonblocking_now(fd));
            held.attach(&segment);
            GROWN
        }
        Outcome::Later => {
            young.not_offered.store(true, Ordering::Relaxed);
            young.put_off();
            0
        }
        Outcome::Never(why) => {
            young.reason.note(why);
            STAYS
        }
    };
    word.store(next, Ordering::Release);
    if next == GROWN {
        epoll::switched(held);
    }
    sys::restore_signals(mask);
}

/// Another process that has the connection by `fork` has switched it.
#[cold]
fn join(held: &Socket, fd: c_int) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    if !held.is_attached()
        && let Some(segment) = offer::found(fd)
    {
        held.attach(&segment);
        epoll::switched(held);
    }
}

/// A connection begins: the descriptor is young from now on.
pub(crate) fn begin(fd: c_int, side: Side) {
    if let Some(socket) = table::socket_of(fd) {
        socket.set_side(side);
        socket.young.begin(side);
    }
}

/// Bytes are about to go past this library: no connection of this process is switched from now on. `false`,
/// if one is switched already.
pub(crate) fn freeze() -> bool {
    if is_any_switched() {
        return false;
    }
    table::freeze();
    table::each_young(|young| young.stay(Why::Ring));
    !is_any_switched()
}

fn is_any_switched() -> bool {
    let mut any = false;
    table::each_socket(|_, _| any = true);
    table::each_young(|young| {
        any |= young.word().is_some_and(|word| word.load(Ordering::Acquire) & GROWN != 0);
    });
    any
}

/// A program is about to be started, which uses the connections that it inherits past this process.
pub(crate) fn all_stay() {
    epoll::starts_program();
    table::each_young(|young| young.stay(Why::Started));
    table::each_attached(|held| held.young.stay(Why::Started));
}
