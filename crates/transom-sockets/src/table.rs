//! The table of descriptors.
//!
//! A word for each: nothing yet, no socket of ours, or where its [`Socket`] or epoll [`Set`] is. Both are
//! never freed, so that a call can look at one while another thread closes the descriptor; a socket's
//! segment is unmapped when the last call that uses it has ended.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use transom_switch::layout::{HEADER, Header, Side, segment_length, side_length};
use transom_switch::session::{Session, State};

use super::deferred::Deferred;
use super::epoll::Set;
use super::mutex::Mutex;
use super::offer;
use super::process;
pub(crate) use super::process::may_change;
use super::said::{self, Why};
use super::spin::Spin;
use super::sys::{self, Errno};
use super::young::{Direction, Young};

/// Descriptors from here on stay with TCP.
const DESCRIPTORS: usize = 65_536;

const UNKNOWN: usize = 0;
const PLAIN: usize = 1;
/// A TCP socket that is not connected.
const FRESH: usize = 2;
/// A TCP socket that this process has seen listen or accept.
const LISTENER: usize = 3;
/// Smaller words are no addresses. The lowest bit of an address says that it is a set's.
const WORDS: usize = 16;

static TABLE: [AtomicUsize; DESCRIPTORS] = [const { AtomicUsize::new(UNKNOWN) }; DESCRIPTORS];

/// Descriptors below this number were written once.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A process that must not switch new sockets: its I/O may go past this library.
static FROZEN: AtomicBool = AtomicBool::new(false);

/// The kind of a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    Unknown,
    Plain,
    Fresh,
    Listener,
    Socket(&'static Socket),
    Set(&'static Set),
}

/// An end of a connection: switched, or offered, or (without a segment) young; or a TCP socket that was
/// put into an epoll set before it was connected.
pub(crate) struct Socket {
    /// Calls that use the segment at this moment; how many of them sleep, and how many close a descriptor.
    users: AtomicU32,
    asleep: AtomicU32,
    leaving: AtomicU32,
    /// The process ([`process::generation`]) that counts them. A child of `fork` has none of its parent's threads.
    generation: AtomicU32,
    /// A descriptor for calls whose own was closed while they were under way; [`NONE`], or [`LOST`].
    kept: AtomicI32,
    /// Descriptors of this process.
    descriptors: AtomicU32,
    closing: AtomicBool,
    header: AtomicPtr<Header>,
    ring: AtomicU64,
    passive: AtomicBool,
    /// The peer's TCP socket is closed, or a rule of the segment was broken.
    gone: AtomicBool,
    broken: AtomicBool,
    reported: AtomicBool,
    /// Something was sent to a peer that had closed.
    refused: AtomicBool,
    /// Bytes of this end's second ring that have memory behind them.
    pub(crate) populated: AtomicU64,
    /// When the TCP socket was looked at last, by the processor's clock.
    pub(crate) looked: AtomicU64,
    /// Departures of the other end that were seen, and how many calls look for them still.
    pub(crate) departures: AtomicU32,
    pub(crate) alert: AtomicU32,
    /// Epoll sets of this process that have it.
    pub(crate) sets: AtomicU32,
    /// Where it was last put in one of them.
    pub(crate) slot: AtomicU32,
    pub(crate) spin: Spin,
    pub(crate) young: Young,
    /// Sent by handlers of signals, and not passed on yet.
    pub(crate) deferred: Deferred,
}

/// No descriptor is kept; there was none to be had.
const NONE: c_int = -1;
const LOST: c_int = -2;
/// How long a close waits for calls that use its descriptor at this moment, and have no processor perhaps.
const LONGEST: u64 = 1_000_000_000;

thread_local! {
    /// Connections in whose calls this thread sleeps: more than none in a handler of a signal, and behind one that has
    /// left such a call by `siglongjmp`.
    static SLEEPS: Cell<u32> = const { Cell::new(0) };
}

/// A call sleeps, and looks at [`Socket::descriptor`] again behind that.
pub(crate) struct Asleep<'a>(&'a AtomicU32);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        SLEEPS.set(SLEEPS.get().saturating_sub(1));
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A socket while a call uses it.
pub(crate) struct Held(&'static Socket);

impl std::ops::Deref for Held {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        self.0
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1
            && self.0.closing.load(Ordering::Acquire)
        {
            self.0.release();
        }
    }
}

static POOL: Mutex<Vec<&'static Socket>> = Mutex::new(Vec::new());

impl Socket {
    fn new() -> &'static Socket {
        super::user::prepare_once();
        if let Some(used) = POOL.lock().and_then(|mut pool| pool.pop()) {
            return used;
        }
        Box::leak(Box::new(Socket {
            users: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            leaving: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            kept: AtomicI32::new(NONE),
            descriptors: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            header: AtomicPtr::new(std::ptr::null_mut()),
            ring: AtomicU64::new(0),
            passive: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            populated: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            departures: AtomicU32::new(0),
            alert: AtomicU32::new(0),
            sets: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            spin: Spin::default(),
            young: Young::default(),
            deferred: Deferred::default(),
        }))
    }

    /// Give it the segment of its connection.
    pub(crate) fn attach(&self, segment: &offer::Segment) {
        super::user::prepare();
        self.ring.store(segment.ring, Ordering::Relaxed);
        self.set_side(segment.side);
        self.generation.store(process::generation(), Ordering::Relaxed);
        self.header.store(segment.header, Ordering::Release);
    }

    pub(crate) fn set_side(&self, side: Side) {
        self.passive.store(side == Side::Passive, Ordering::Relaxed);
    }

    pub(crate) fn side(&self) -> Side {
        if self.passive.load(Ordering::Relaxed) { Side::Passive } else { Side::Active }
    }

    /// Whether the connection has a segment.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        !self.header.load(Ordering::Acquire).is_null()
    }

    /// The connection, if it has a segment.
    #[inline]
    pub(crate) fn session(&self) -> Option<Session<'_>> {
        let header = self.header.load(Ordering::Acquire);
        // SAFETY: the mapping stays while this socket is held, and all its words are atomics.
        let header = unsafe { header.as_ref() }?;
        Some(Session::new(header, self.side(), self.ring.load(Ordering::Relaxed)))
    }

    /// The bytes of the rings that a side writes.
    #[inline]
    pub(crate) fn bytes(&self, side: Side) -> *mut u8 {
        let header = self.header.load(Ordering::Acquire).cast::<u8>();
        let before = if side == Side::Passive { side_length(self.ring()) as usize } else { 0 };
        header.wrapping_add(HEADER + before)
    }

    /// The lock of sending.
    ///
    /// `EAGAIN`: this thread has it, and is in a handler of a signal. `ECONNRESET`: another process that has this
    /// end does not give it back, which is the end of the connection.
    #[inline(always)]
    pub(crate) fn sending<'a>(&'a self, session: &Session<'a>) -> Result<Direction<'a>, Errno> {
        self.young.sending(session.send_lock()).map_err(|error| self.not_given_back(error))
    }

    /// The lock of receiving, as [`Socket::sending`].
    #[inline]
    pub(crate) fn receiving<'a>(&'a self, session: &Session<'a>) -> Result<Direction<'a>, Errno> {
        self.young.receiving(session.receive_lock()).map_err(|error| self.not_given_back(error))
    }

    #[cold]
    #[inline(never)]
    fn not_given_back(&self, error: Errno) -> Errno {
        if error == libc::ECONNRESET {
            self.set_broken();
            self.report_end();
        }
        error
    }

    /// The size of the smallest ring.
    pub(crate) fn ring(&self) -> u64 {
        self.ring.load(Ordering::Relaxed)
    }

    /// Whether the peer can send and read nothing more.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn set_gone(&self) {
        // The reset of a TCP that keeps no state behind its close comes by itself (TCP_LINGER2 of tcp(7)).
        let is_brief = |session: Session<'_>| {
            let brief = session.peer().brief.load(Ordering::Relaxed) != 0;
            brief && session.state() == State::Claimed && !session.has_finished()
        };
        if !self.is_gone() && self.session().is_some_and(is_brief) {
            self.refuse();
        }
        self.gone.store(true, Ordering::Relaxed);
    }

    /// The peer has broken a rule of the segment.
    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.set_gone();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether the connection's failure was not reported before: the kernel reports it once.
    pub(crate) fn report_end(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn was_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// Whether this is the first send to a peer that has closed: over TCP it succeeds, and is answered by
    /// a reset.
    pub(crate) fn refuse(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The connection's descriptor for a call that was given `fd`, which another thread may have closed since: the
    /// number may be that of something else by now. A call asks at its start and behind each sleep.
    #[inline]
    pub(crate) fn descriptor(&self, fd: c_int) -> c_int {
        if self.kept.load(Ordering::SeqCst) == NONE { fd } else { self.kept_for(fd) }
    }

    #[cold]
    fn kept_for(&self, fd: c_int) -> c_int {
        if is_named(self, fd) { fd } else { self.kept.load(Ordering::SeqCst) }
    }

    /// This call goes to sleep.
    pub(crate) fn sleeps(&self) -> Asleep<'_> {
        SLEEPS.set(SLEEPS.get() + 1);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        Asleep(&self.asleep)
    }

    /// `fd` is about to be closed. Over TCP a call that is under way goes on with the socket, which ends with the last
    /// of them (close(2)): they get a descriptor of their own. Nobody knows whether a call that this thread was in goes
    /// on: the connection ends for it now.
    fn keep_for_others(&self, fd: c_int) {
        // A call that begins counts itself, and then looks whether the descriptor is this connection's still.
        fence(Ordering::SeqCst);
        let others = || {
            let closing = self.leaving.load(Ordering::SeqCst);
            self.users.load(Ordering::SeqCst).saturating_sub(closing)
        };
        let counted = self.generation.load(Ordering::Relaxed) == process::generation();
        if others() == 0 || !counted || SLEEPS.get() > 0 || !self.is_attached() {
            return;
        }
        if self.kept.load(Ordering::SeqCst) == NONE {
            let kept = sys::duplicate(fd).unwrap_or(LOST);
            KEPT.note(kept);
            self.kept.store(kept, Ordering::SeqCst);
        }
        self.closing.store(true, Ordering::Release);
        let begin = sys::now();
        while others() > self.asleep.load(Ordering::SeqCst)
            && !self.young.is_within()
            && sys::now() - begin < LONGEST
        {
            sys::yield_now();
        }
    }

    /// Look at the TCP socket: a peer that is gone has closed it. A connection ends of which bytes went past
    /// this library, at either end: nobody knows where in the stream they belong.
    pub(crate) fn look_at_tcp(&self, fd: c_int) -> bool {
        if self.is_gone() {
            return true;
        }
        let fd = self.descriptor(fd);
        let Some(mut seen) = sys::look_at_tcp(fd) else {
            self.set_gone();
            return true;
        };
        if let Some(session) = self.session() {
            let is_past = |seen: &sys::Tcp| {
                seen.counts
                    .as_ref()
                    .is_some_and(|counts| session.is_past(counts.sent, counts.received))
            };
            if is_past(&seen) {
                // The kernel reads the state before it locks the socket and reads the counts. An end of the peer's
                // that comes between the two is a byte too many there; the next look sees the end in both.
                let Some(again) = sys::look_at_tcp(fd) else {
                    self.set_gone();
                    return true;
                };
                if is_past(&again) {
                    self.ends_past(&session, fd);
                }
                seen = again;
            }
        }
        if !seen.established {
            self.set_gone();
        }
        self.is_gone()
    }

    /// As [`Socket::look_at_tcp`], where the kernel has said that there are bytes to read, and none is a doorbell: the
    /// words of the segment that count them are the peer's to write, and a call that believed them would look again for
    /// ever.
    #[cold]
    pub(crate) fn look_at_bytes(&self, fd: c_int) {
        if self.look_at_tcp(fd) {
            return;
        }
        let fd = self.descriptor(fd);
        if let Some(session) = self.session()
            && session.is_unannounced(|| sys::unread(fd))
        {
            self.ends_past(&session, fd);
        }
    }

    /// Bytes went past this library.
    #[cold]
    fn ends_past(&self, session: &Session<'_>, fd: c_int) {
        session.end().abortive.store(1, Ordering::Release);
        self.set_broken();
        sys::reset(fd);
    }

    /// No call uses the socket: give back what was kept for those whose descriptor was closed, and behind the close of
    /// the last one forget the segment.
    #[cold]
    fn release(&'static self) {
        if !self.closing.swap(false, Ordering::AcqRel) {
            return;
        }
        let over = self.descriptors.load(Ordering::Acquire) == 0;
        let kept = self.kept.swap(NONE, Ordering::SeqCst);
        if kept >= 0 {
            if over {
                offer::leave(self, kept);
            }
            KEPT.forget(kept);
            sys::close(kept);
        }
        if !over {
            return;
        }
        if kept >= 0
            && let Some(session) = self.session()
        {
            super::stream::closed(&session);
        }
        let header = self.header.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !header.is_null() {
            let length = segment_length(self.ring()) as usize;
            // SAFETY: no call holds it, and no descriptor leads to it.
            unsafe { sys::detach_memory(header.cast(), length) };
        }
        drop(self.deferred.take());
        for flag in [&self.gone, &self.broken, &self.reported, &self.refused, &self.passive] {
            flag.store(false, Ordering::Relaxed);
        }
        for word in [&self.populated, &self.looked] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&self.departures, &self.alert] {
            word.store(0, Ordering::Relaxed);
        }
        if let Some(mut pool) = POOL.lock() {
            pool.push(self);
        }
    }
}

/// Descriptors that are kept for calls under way: a child of `fork` has no such call.
struct Kept([AtomicI32; 32]);

static KEPT: Kept = Kept([const { AtomicI32::new(NONE) }; 32]);

impl Kept {
    fn change(&self, from: c_int, to: c_int) {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.0.iter().any(|one| one.compare_exchange(from, to, order, failed).is_ok());
    }

    fn note(&self, fd: c_int) {
        if fd >= 0 {
            self.change(NONE, fd);
        }
    }

    fn forget(&self, fd: c_int) {
        self.change(fd, NONE);
    }

    fn close_all(&self) {
        for one in &self.0 {
            let fd = one.swap(NONE, Ordering::AcqRel);
            if fd >= 0 {
                sys::close(fd);
            }
        }
    }
}

fn word(fd: c_int) -> Option<&'static AtomicUsize> {
    TABLE.get(usize::try_from(fd).ok()?)
}

fn decoded(word: usize) -> Entry {
    match word {
        UNKNOWN => Entry::Unknown,
        FRESH => Entry::Fresh,
        LISTENER => Entry::Listener,
        _ if word < WORDS => Entry::Plain,
        // SAFETY: the table has addresses of sets with this bit, and sets are never freed.
        _ if word & 1 == 1 => Entry::Set(unsafe { &*((word & !1) as *const Set) }),
        // SAFETY: the table has addresses of sockets without it, and sockets are never freed.
        _ => Entry::Socket(unsafe { &*(word as *const Socket) }),
    }
}

/// Whether the descriptor is one of this socket's.
pub(crate) fn is_named(socket: &Socket, fd: c_int) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::SeqCst) == std::ptr::from_ref(socket) as usize)
}

/// Whether the descriptor is one of this set's.
pub(crate) fn is_set(set: &'static Set, fd: c_int) -> bool {
    matches!(entry(fd), Entry::Set(known) if std::ptr::eq(known, set))
}

/// The entry of a descriptor.
#[inline]
pub(crate) fn entry(fd: c_int) -> Entry {
    word(fd).map_or(Entry::Plain, |word| decoded(word.load(Ordering::Acquire)))
}

/// The socket, held, if the descriptor has one with a segment. A descriptor that nothing is known of
/// is looked at, unless it is one of the standard streams' that has no segment.
#[inline]
pub(crate) fn hold(fd: c_int) -> Option<Held> {
    hold_any(fd).filter(|held| held.is_attached())
}

/// As [`hold`], but with a segment or without.
#[inline]
pub(crate) fn hold_any(fd: c_int) -> Option<Held> {
    let word = word(fd)?;
    let mut seen = word.load(Ordering::Acquire);
    if seen == UNKNOWN {
        offer::resolve(fd);
        seen = word.load(Ordering::Acquire);
    }
    held(word, seen)
}

/// As [`hold`], but a descriptor that nothing is known of stays so.
#[inline]
pub(crate) fn hold_known(fd: c_int) -> Option<Held> {
    let word = word(fd)?;
    held(word, word.load(Ordering::Acquire)).filter(|held| held.is_attached())
}

#[inline]
fn held(word: &AtomicUsize, mut seen: usize) -> Option<Held> {
    loop {
        if seen < WORDS {
            return None;
        }
        let Entry::Socket(socket) = decoded(seen) else { return None };
        socket.users.fetch_add(1, Ordering::AcqRel);
        let held = Held(socket);
        let now = word.load(Ordering::Acquire);
        if now == seen {
            return Some(held);
        }
        // Another thread has closed it meanwhile.
        seen = now;
    }
}

/// The part of the table that was ever written.
fn known() -> &'static [AtomicUsize] {
    TABLE.get(..USED.load(Ordering::Acquire)).unwrap_or(&TABLE)
}

fn set(fd: c_int, to: usize) {
    if let Some(word) = word(fd) {
        if USED.load(Ordering::Relaxed) <= fd as usize {
            USED.fetch_max(fd as usize + 1, Ordering::AcqRel);
        }
        word.store(to, Ordering::Release);
    }
}

pub(crate) fn set_plain(fd: c_int) {
    set(fd, PLAIN);
}

pub(crate) fn set_fresh(fd: c_int) {
    set(fd, FRESH);
}

pub(crate) fn set_listener(fd: c_int) {
    set(fd, LISTENER);
}

/// The descriptor is a new one, of which nothing is known.
pub(crate) fn set_unknown(fd: c_int) {
    if word(fd).is_some_and(|word| word.load(Ordering::Relaxed) != UNKNOWN) {
        set(fd, UNKNOWN);
    }
}

pub(crate) fn set_epoll(fd: c_int, to: &'static Set) {
    set(fd, std::ptr::from_ref(to) as usize | 1);
}

/// A descriptor of an epoll set.
pub(crate) fn descriptor_of(set: &'static Set) -> Option<c_int> {
    let wanted = std::ptr::from_ref(set) as usize | 1;
    let found = known().iter().position(|word| word.load(Ordering::Relaxed) == wanted)?;
    c_int::try_from(found).ok()
}

/// A descriptor of a connection's other than this one.
pub(crate) fn other_descriptor_of(socket: &Socket, fd: c_int) -> Option<c_int> {
    if socket.descriptors.load(Ordering::Acquire) < 2 {
        return None;
    }
    let wanted = std::ptr::from_ref(socket) as usize;
    let is = |(at, word): (usize, &AtomicUsize)| {
        let found = word.load(Ordering::Relaxed) == wanted && at != fd as usize;
        found.then(|| c_int::try_from(at).ok()).flatten()
    };
    known().iter().enumerate().find_map(is)
}

/// The socket of a descriptor, made if there is none; without a segment, if it has none.
pub(crate) fn socket_of(fd: c_int) -> Option<&'static Socket> {
    if let Entry::Socket(socket) = entry(fd) {
        return Some(socket);
    }
    word(fd)?;
    let socket = Socket::new();
    socket.descriptors.store(1, Ordering::Relaxed);
    set(fd, std::ptr::from_ref(socket) as usize);
    Some(socket)
}

/// A descriptor of a connection that is closed when this is dropped. If it was the last one, and no call is under
/// way, this process has left, and the peer is woken to see it.
pub(crate) struct Left {
    held: Held,
    last: bool,
}

impl Left {
    fn new(socket: &'static Socket) -> Left {
        socket.leaving.fetch_add(1, Ordering::SeqCst);
        Left { held: held_again(socket), last: false }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.held.leaving.fetch_sub(1, Ordering::SeqCst);
        if self.last
            && self.held.kept.load(Ordering::SeqCst) < 0
            && let Some(session) = self.held.session()
        {
            super::stream::closed(&session);
        }
    }
}

/// The descriptor is about to be closed, or to name something else. The caller keeps the result until
/// that is done.
pub(crate) fn forget(fd: c_int) -> Option<Left> {
    match entry(fd) {
        Entry::Unknown => {}
        Entry::Plain | Entry::Fresh | Entry::Listener => set(fd, UNKNOWN),
        Entry::Set(one) => {
            set(fd, UNKNOWN);
            one.closed(fd);
        }
        Entry::Socket(socket) => {
            let mut left = Left::new(socket);
            super::epoll::forget(socket, fd);
            set(fd, UNKNOWN);
            socket.keep_for_others(fd);
            left.last = socket.descriptors.fetch_sub(1, Ordering::AcqRel) == 1;
            if left.last {
                said::ended(socket);
                if socket.kept.load(Ordering::SeqCst) < 0 {
                    offer::leave(socket, fd);
                    socket.kept.store(LOST, Ordering::SeqCst);
                }
                socket.closing.store(true, Ordering::Release);
            }
            return Some(left);
        }
    }
    None
}

/// `to` is a new descriptor of what `from` is.
pub(crate) fn duplicate(from: c_int, to: c_int) {
    match entry(from) {
        Entry::Socket(socket) => {
            socket.descriptors.fetch_add(1, Ordering::AcqRel);
            if to <= 2 {
                // Streams of the C library may use it.
                socket.young.stay(Why::Stream);
            }
            set(to, std::ptr::from_ref(socket) as usize);
        }
        Entry::Set(one) => {
            one.duplicated();
            set_epoll(to, one);
        }
        Entry::Unknown => set(to, UNKNOWN),
        Entry::Plain => set(to, PLAIN),
        Entry::Fresh => set(to, FRESH),
        Entry::Listener => set(to, LISTENER),
    }
}

/// Each socket with a segment, once for each descriptor.
pub(crate) fn each_socket(mut act: impl FnMut(c_int, &Session<'_>)) {
    for (fd, word) in known().iter().enumerate() {
        if word.load(Ordering::Relaxed) >= WORDS
            && let Some(held) = hold_known(fd as c_int)
            && let Some(session) = held.session()
        {
            act(fd as c_int, &session);
        }
    }
}

/// Each epoll set, once for each descriptor.
pub(crate) fn each_set(mut act: impl FnMut(c_int, &'static Set)) {
    for (fd, word) in known().iter().enumerate() {
        if let Entry::Set(set) = decoded(word.load(Ordering::Acquire)) {
            act(fd as c_int, set);
        }
    }
}

/// Each socket with a segment, once for each descriptor, as far as its process is known.
pub(crate) fn each_attached(mut act: impl FnMut(&Held)) {
    for word in known() {
        let seen = word.load(Ordering::Acquire);
        if seen >= WORDS
            && let Some(held) = held(word, seen)
            && held.is_attached()
        {
            act(&held);
        }
    }
}

/// The socket, held, by a call that has its descriptor still.
pub(crate) fn held_again(socket: &'static Socket) -> Held {
    socket.users.fetch_add(1, Ordering::AcqRel);
    Held(socket)
}

/// Each connection that this process has, once.
pub(crate) fn each_connection(mut act: impl FnMut(&Socket)) {
    let mut seen = Vec::new();
    for word in known() {
        let at = word.load(Ordering::Acquire);
        if at >= WORDS
            && !seen.contains(&at)
            && let Some(held) = held(word, at)
        {
            seen.push(at);
            act(&held);
        }
    }
}

/// A young connection stays with TCP for good.
pub(crate) fn stays(fd: c_int, why: Why) {
    if let Entry::Socket(socket) = entry(fd) {
        socket.young.stay(why);
    }
}

/// Each connection that is young.
pub(crate) fn each_young(mut act: impl FnMut(&Young)) {
    for word in known() {
        let seen = word.load(Ordering::Acquire);
        if seen >= WORDS
            && let Some(held) = held(word, seen)
            && !held.is_attached()
        {
            act(&held.young);
        }
    }
}

/// No socket of this process is switched from now on.
pub(crate) fn freeze() {
    FROZEN.store(true, Ordering::Relaxed);
}

pub(crate) fn is_frozen() -> bool {
    FROZEN.load(Ordering::Relaxed)
}

/// In the child of a fork, which marks the ports at which it accepts.
pub(crate) fn after_fork() {
    KEPT.close_all();
    for word in known() {
        if word.load(Ordering::Relaxed) == LISTENER {
            word.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

/// Forget each descriptor from `first` to `last`, as [`forget`] does.
pub(crate) fn forget_range(first: usize, last: usize) -> Vec<Left> {
    let range = known().iter().enumerate().skip(first).take_while(|(fd, _)| *fd <= last);
    let used = range.filter(|(_, word)| word.load(Ordering::Relaxed) != UNKNOWN);
    used.filter_map(|(fd, _)| forget(fd as c_int)).collect()
}
