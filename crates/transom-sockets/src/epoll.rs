//! Epoll sets with switched sockets.
//!
//! A switched socket is in the kernel's set with a number of ours in place of the program's data, and
//! by edge: each doorbell is one event, whether or not it is taken from the TCP stream. The set's answer is
//! made from the rings. Sockets that were busy lately are *hot*: looked at in every call, and not armed, so
//! that their peers make no system call. Before a thread sleeps it arms them, looks again, and leaves
//! them to the kernel until a doorbell makes them hot again. All other descriptors of the set are as
//! the program has put them there.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use transom_switch::interest::{self, Interest};
use transom_switch::session::{Road, Session};

use super::lock::{Guard, Mutex};
use super::ready;
use super::spin::Spin;
use super::stream;
use super::sys::{self, Errno};
use super::table::{self, Entry, Socket};

/// In the upper half of what the kernel keeps for our entries: no address, no small number.
const TAG: u64 = 0xA5C3_0000_0000_0000;
const TAGS: u64 = 0xFFFF_0000_0000_0000;
/// Every so many calls that find a hot socket ready ask the kernel, too.
const TURNS: u32 = 8;
/// Hot sockets beyond this number cool down after some turns without an event.
const FEW: usize = 128;
const IDLE: u32 = 16;
/// Doorbells that lie in a TCP stream before they are taken: fewer than TCP sends without an
/// acknowledgement, which comes when they are taken.
const DOORBELLS: usize = 4;

/// Threads of this process that sleep in a set.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
static SETS: Mutex<Vec<&'static Set>> = Mutex::new(Vec::new());
/// The number of the latest sleep of a set of this process; 0: none yet.
static SLEEP: AtomicU64 = AtomicU64::new(0);

/// The number of a sleep, which no other one of any process has.
fn next_sleep() -> u64 {
    if SLEEP.load(Ordering::Relaxed) == 0 {
        // The lower part is counted up; the upper one is the process's, and never 0.
        let first = sys::random() | 1 << 63;
        let first = first & !u64::from(u32::MAX);
        let _ = SLEEP.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
    }
    SLEEP.fetch_add(1, Ordering::Relaxed) + 1
}

/// Threads of this process that sleep in a set.
pub(crate) fn asleep() -> u32 {
    ASLEEP.load(Ordering::SeqCst)
}

/// An epoll set that has, or has had, a TCP socket.
pub(crate) struct Set {
    inner: Mutex<Inner>,
    /// A descriptor of it, and how many there are.
    descriptor: AtomicI32,
    descriptors: AtomicU32,
    sleepers: AtomicU32,
    /// Threads in a call that waits for it.
    inside: AtomicU32,
    /// Several threads have waited for it at once, or it is in another set: each waiter may take a
    /// doorbell that another one relies on, so each socket has its own.
    shared: AtomicBool,
    /// The set lies in another one, in which threads may sleep whenever no thread waits here.
    nested: AtomicBool,
    used: AtomicU32,
    spin: Spin,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Slot>,
    free: Vec<u32>,
    hot: Vec<u32>,
    turn: u32,
}

/// An entry of the set.
struct Slot {
    socket: Option<&'static Socket>,
    fd: c_int,
    data: u64,
    interest: Interest,
    /// How often the slot was used: part of the number that the kernel keeps.
    generation: u16,
    kernel: Kernel,
    hot: bool,
    counted: bool,
    /// The program has removed the entry, and the kernel's set has it still: programs that remove and add
    /// an entry for each message make no system call. Its next doorbell removes it.
    removed: bool,
    /// The call that has reported it last ([`Inner::turn`]).
    reported: u32,
    idle: u32,
}

/// A thread in a call that waits for a set.
struct Inside(&'static Set);

impl Inside {
    fn new(set: &'static Set) -> Inside {
        if set.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            set.rings_for_each();
        }
        Inside(set)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.0.nested.load(Ordering::SeqCst)
            && let Some(mut inner) = self.0.inner.lock()
        {
            inner.rouse(self.0);
        }
        let less = |count: u32| Some(count.saturating_sub(1));
        let _ = self.0.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// How a slot is in the kernel's set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// With our number, by the program's events, and the socket has no segment.
    AsGiven,
    /// The same, and bytes come over TCP still.
    Tcp,
    /// With our number, by edge, for doorbells.
    Doorbells,
}

/// The number by which the kernel knows a slot.
fn number(at: u32, generation: u16) -> u64 {
    TAG | u64::from(generation) << 32 | u64::from(at)
}

/// The set of a descriptor, made if there is none.
fn set_of(fd: c_int) -> &'static Set {
    if let Entry::Set(set) = table::entry(fd) {
        return set;
    }
    let mut sets = SETS.lock();
    let unused = sets.as_ref().and_then(|sets| {
        sets.iter().copied().find(|set| set.descriptors.load(Ordering::Acquire) == 0)
    });
    let set = unused.unwrap_or_else(|| {
        let set: &'static Set = Box::leak(Box::new(Set {
            inner: Mutex::new(Inner::default()),
            descriptor: AtomicI32::new(-1),
            descriptors: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            shared: AtomicBool::new(false),
            nested: AtomicBool::new(false),
            used: AtomicU32::new(0),
            spin: Spin::default(),
        }));
        if let Some(sets) = &mut sets {
            sets.push(set);
        }
        set
    });
    set.descriptor.store(fd, Ordering::Release);
    set.descriptors.store(1, Ordering::Release);
    set.shared.store(false, Ordering::Relaxed);
    set.nested.store(false, Ordering::Relaxed);
    table::set_epoll(fd, set);
    set
}

/// A descriptor is put into a set. If it is a set, too, a thread may sleep in the outer one, and be woken
/// for the inner one by the doorbell of any socket: each has its own.
fn nest(epoll: c_int, fd: c_int, known: Entry) {
    let inner = match known {
        Entry::Set(inner) => inner,
        // Of what is no set, the kernel says so.
        _ if sys::epoll_control(fd, libc::EPOLL_CTL_DEL, epoll, 0, 0) == Err(libc::ENOENT) => {
            set_of(fd)
        }
        _ => return,
    };
    inner.nested.store(true, Ordering::SeqCst);
    inner.rings_for_each();
}

/// `epoll_ctl`. `None`: the descriptor is not one of ours, and nothing was done.
pub(crate) fn control(
    epoll: c_int,
    what: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) -> Option<Result<usize, Errno>> {
    if let Entry::Unknown = table::entry(fd) {
        super::offer::resolve(fd);
    }
    let socket = match table::entry(fd) {
        Entry::Socket(socket) => socket,
        Entry::Fresh => table::socket_of(fd)?,
        known => {
            if what == libc::EPOLL_CTL_ADD {
                nest(epoll, fd, known);
            }
            return None;
        }
    };
    let set = set_of(epoll);
    let mut inner = set.inner.lock()?;
    let hint = socket.slot.load(Ordering::Relaxed);
    let known = if inner.is(hint, socket, fd) {
        Some(hint as usize)
    } else {
        (0..inner.slots.len()).find(|at| inner.is(*at as u32, socket, fd))
    };
    match (what, known, event) {
        (libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, Some(at), _) if inner.slots[at].removed => {
            Some(Err(libc::ENOENT))
        }
        (libc::EPOLL_CTL_DEL, Some(at), _) if inner.slots[at].kernel == Kernel::Doorbells => {
            let slot = &mut inner.slots[at];
            (slot.removed, slot.interest) = (true, Interest::new(0));
            Some(Ok(0))
        }
        (libc::EPOLL_CTL_ADD, Some(at), Some(event)) if inner.slots[at].removed => {
            let slot = &mut inner.slots[at];
            (slot.removed, slot.data) = (false, event.u64);
            slot.interest = Interest::new(event.events);
            inner.renewed(at as u32, set);
            Some(Ok(0))
        }
        (libc::EPOLL_CTL_DEL, Some(at), _) => {
            let done = sys::epoll_control(epoll, what, fd, 0, 0);
            inner.remove(at as u32);
            Some(done)
        }
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            let at = inner.insert(socket, fd, event);
            let done = inner.register(at, epoll, libc::EPOLL_CTL_ADD);
            if done.is_err() {
                inner.remove(at);
            } else {
                set.used.store(1, Ordering::Release);
                inner.renewed(at, set);
            }
            Some(done)
        }
        (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => {
            let at = at as u32;
            if let Some(slot) = inner.slots.get_mut(at as usize) {
                slot.data = event.u64;
                slot.interest = Interest::new(event.events);
            }
            let done = inner.register(at, epoll, libc::EPOLL_CTL_MOD);
            inner.renewed(at, set);
            Some(done)
        }
        // The kernel has the answer.
        _ => None,
    }
}

/// A socket has got a segment: sets that have it learn it.
pub(crate) fn switched(socket: &Socket, fd: c_int) {
    if socket.sets.load(Ordering::Relaxed) == 0 {
        return;
    }
    each_set(|set, inner| {
        for at in 0..inner.slots.len() as u32 {
            if inner.is(at, socket, fd)
                && let Some(epoll) = set.descriptor()
            {
                let _ = inner.register(at, epoll, libc::EPOLL_CTL_MOD);
                inner.renewed(at, set);
            }
        }
    });
}

/// A descriptor is about to be closed.
pub(crate) fn forget(socket: &Socket, fd: c_int) {
    if socket.sets.load(Ordering::Relaxed) == 0 {
        return;
    }
    each_set(|set, inner| {
        for at in 0..inner.slots.len() as u32 {
            if inner.is(at, socket, fd) {
                if let Some(epoll) = set.descriptor() {
                    let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
                }
                inner.remove(at);
                // A doorbell that a sleeper relies on may have gone with it.
                inner.rouse(set);
            }
        }
    });
}

fn each_set(mut act: impl FnMut(&'static Set, &mut Inner)) {
    let Some(sets) = SETS.lock() else { return };
    for set in sets.iter() {
        if let Some(mut inner) = set.inner.lock() {
            act(set, &mut inner);
        }
    }
}

/// While this is held, a fork finds the sets whole.
pub(crate) fn pause() -> impl Sized {
    let sets = SETS.lock();
    let inner: Vec<Option<Guard<'static, Inner>>> =
        sets.iter().flat_map(|sets| sets.iter().map(|set| set.inner.lock())).collect();
    (inner, sets)
}

/// In the child of a fork, no thread sleeps.
pub(crate) fn after_fork() {
    ASLEEP.store(0, Ordering::SeqCst);
    SLEEP.store(0, Ordering::SeqCst);
    each_set(|set, _| {
        set.sleepers.store(0, Ordering::SeqCst);
        set.inside.store(0, Ordering::SeqCst);
        // Two processes have it: either may take a doorbell.
        set.shared.store(true, Ordering::SeqCst);
    });
}

impl Inner {
    fn is(&self, at: u32, socket: &Socket, fd: c_int) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| {
            slot.fd == fd && slot.socket.is_some_and(|known| std::ptr::eq(known, socket))
        })
    }

    fn insert(&mut self, socket: &'static Socket, fd: c_int, event: libc::epoll_event) -> u32 {
        let fresh = Slot {
            socket: Some(socket),
            fd,
            data: event.u64,
            interest: Interest::new(event.events),
            generation: 0,
            kernel: Kernel::AsGiven,
            hot: false,
            counted: false,
            removed: false,
            reported: 0,
            idle: 0,
        };
        socket.sets.fetch_add(1, Ordering::SeqCst);
        match self.free.pop() {
            Some(at) => {
                let slot = &mut self.slots[at as usize];
                *slot = Slot { generation: slot.generation.wrapping_add(1), ..fresh };
                socket.slot.store(at, Ordering::Relaxed);
                at
            }
            None => {
                self.slots.push(fresh);
                let at = self.slots.len() as u32 - 1;
                socket.slot.store(at, Ordering::Relaxed);
                at
            }
        }
    }

    fn remove(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let Some(socket) = slot.socket.take() else { return };
        socket.sets.fetch_sub(1, Ordering::SeqCst);
        if slot.counted
            && let Some(session) = socket.session()
        {
            session.end().members.fetch_sub(1, Ordering::SeqCst);
        }
        (slot.fd, slot.counted, slot.hot) = (-1, false, false);
        self.hot.retain(|hot| *hot != at);
        self.free.push(at);
    }

    /// Tell the kernel how the slot is in its set from now on.
    fn register(&mut self, at: u32, epoll: c_int, what: c_int) -> Result<usize, Errno> {
        let slot = &mut self.slots[at as usize];
        let Some(socket) = slot.socket else { return Err(libc::ENOENT) };
        let wanted = slot.interest.wanted();
        let number = number(at, slot.generation);
        let Some(session) = socket.session() else {
            slot.kernel = Kernel::AsGiven;
            return sys::epoll_control(epoll, what, slot.fd, wanted, number);
        };
        if !slot.counted {
            session.end().members.fetch_add(1, Ordering::SeqCst);
            slot.counted = true;
        }
        stream::advance(socket, &session, slot.fd);
        if let Ok(Road::Tcp(_)) = session.road_in() {
            slot.kernel = Kernel::Tcp;
            // Once and alone are kept here: the kernel's event may be a doorbell.
            let mut events = wanted & !(interest::ONESHOT | libc::EPOLLEXCLUSIVE as u32);
            if session.sends_by_ring() {
                events &= !(interest::OUT | interest::WRNORM);
            }
            if slot.interest.is_spent() {
                events = 0;
            }
            sys::epoll_control(epoll, what, slot.fd, events, number)
        } else if slot.kernel == Kernel::Doorbells && what == libc::EPOLL_CTL_MOD {
            // The kernel has nothing to learn.
            Ok(0)
        } else {
            slot.kernel = Kernel::Doorbells;
            let events = interest::IN | interest::RDHUP | interest::EDGE;
            sys::epoll_control(epoll, what, slot.fd, events, number)
        }
    }

    /// The interest of a slot is a new one: what holds now is found by the next call, or by a thread
    /// that sleeps in the set already.
    fn renewed(&mut self, at: u32, set: &'static Set) {
        self.heat(at);
        self.rouse(set);
    }

    /// Threads that sleep in the set cannot see the rings: have the kernel report an entry that is ready.
    fn rouse(&mut self, set: &'static Set) {
        if set.sleepers.load(Ordering::SeqCst) == 0 && !set.nested.load(Ordering::SeqCst) {
            return;
        }
        self.arm_hot(set.sleep());
        let ready = self.hot.iter().copied().find(|at| self.is_ready(*at));
        let (Some(at), Some(epoll)) = (ready, set.descriptor()) else { return };
        let slot = &self.slots[at as usize];
        let events = interest::IN | interest::OUT | interest::RDHUP | interest::EDGE;
        let number = number(at, slot.generation);
        let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_MOD, slot.fd, events, number);
    }

    fn heat(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.idle = 0;
            if !slot.hot && slot.kernel != Kernel::AsGiven {
                slot.hot = true;
                self.hot.push(at);
            }
        }
    }

    /// The events of a slot that its rings have.
    fn report(&mut self, at: u32, epoll: c_int) -> u32 {
        let slot = &mut self.slots[at as usize];
        if slot.removed {
            return 0;
        }
        let Some(socket) = slot.socket else { return 0 };
        let Some(session) = socket.session() else { return 0 };
        match ready::known(socket, &session, slot.fd) {
            Some(ready) => {
                let events = slot.interest.report(&ready);
                if slot.kernel != Kernel::Doorbells {
                    let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
                }
                events
            }
            None if session.sends_by_ring() => {
                let room = interest::OUT | interest::WRNORM;
                let events = if session.is_writable() { room } else { 0 };
                let output = session.times_full() << 1;
                let found = interest::Ready { events, input: 0, output };
                slot.interest.report(&found)
            }
            None => 0,
        }
    }

    fn is_ready(&self, at: u32) -> bool {
        let slot = &self.slots[at as usize];
        if slot.removed {
            return false;
        }
        let Some(socket) = slot.socket else { return false };
        let Some(session) = socket.session() else { return false };
        match ready::known(socket, &session, slot.fd) {
            Some(ready) => slot.interest.clone().report(&ready) != 0,
            None if session.sends_by_ring() && session.is_writable() => {
                let events = interest::OUT | interest::WRNORM;
                let output = session.times_full() << 1;
                slot.interest.clone().report(&interest::Ready { events, input: 0, output }) != 0
            }
            None => false,
        }
    }

    fn has_ready(&self) -> bool {
        self.hot.iter().any(|at| self.is_ready(*at))
    }

    fn arm_hot(&self, sleep: u64) {
        for at in &self.hot {
            self.arm(*at, sleep);
        }
    }

    fn arm(&self, at: u32, sleep: u64) {
        let slot = &self.slots[at as usize];
        if let Some(session) = slot.socket.and_then(|socket| socket.session())
            && !slot.removed
        {
            // Of others the kernel reports what comes over TCP.
            let sleep = if slot.kernel == Kernel::Doorbells { sleep } else { 0 };
            ready::arm(&session, slot.interest.wanted(), sleep);
        }
    }

    /// Events of hot slots.
    fn collect(&mut self, epoll: c_int, events: &mut [libc::epoll_event]) -> usize {
        let mut count = 0;
        let length = self.hot.len();
        if length == 0 {
            return 0;
        }
        // Others come first the next time, should the room end.
        let start = self.turn as usize % length;
        for step in 0..length {
            if count == events.len() {
                break;
            }
            let at = self.hot[(start + step) % length];
            if self.slots[at as usize].reported == self.turn {
                continue;
            }
            let found = self.report(at, epoll);
            let slot = &mut self.slots[at as usize];
            if found == 0 {
                slot.idle += 1;
                continue;
            }
            (slot.idle, slot.reported) = (0, self.turn);
            events[count] = libc::epoll_event { events: found, u64: slot.data };
            count += 1;
        }
        if length > FEW {
            self.cool();
        }
        count
    }

    /// Leave sockets to the kernel that have had nothing for some turns.
    fn cool(&mut self) {
        let hot = std::mem::take(&mut self.hot);
        for at in hot {
            let mut stays = self.slots[at as usize].idle < IDLE;
            if !stays {
                self.arm(at, 0);
                stays = self.is_ready(at);
            }
            self.slots[at as usize].hot = stays;
            if stays {
                self.hot.push(at);
            }
        }
    }

    /// Turn the kernel's events into the program's, in place; how many are left.
    fn translate(&mut self, epoll: c_int, events: &mut [libc::epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let event = events[at];
            let (mut found, mut data) = (event.events, event.u64);
            if data & TAGS == TAG {
                (found, data) = self.translated(epoll, found, data);
            }
            if found != 0 {
                events[kept] = libc::epoll_event { events: found, u64: data };
                kept += 1;
            }
        }
        kept
    }

    fn translated(&mut self, epoll: c_int, found: u32, data: u64) -> (u32, u64) {
        let at = data as u32;
        let Some(slot) = self.slots.get(at as usize) else { return (0, 0) };
        let current = number(at, slot.generation) == data;
        let (Some(socket), true) = (slot.socket, current) else { return (0, 0) };
        if slot.removed {
            let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, slot.fd, 0, 0);
            self.remove(at);
            return (0, 0);
        }
        let (fd, data) = (slot.fd, slot.data);
        let Some(session) = socket.session() else {
            self.slots[at as usize].interest.was_reported();
            return (found, data);
        };
        let ended = found & (interest::RDHUP | interest::HUP | interest::ERR) != 0;
        stream::advance(socket, &session, fd);
        if self.is_doorbell(at, &session) {
            if ended {
                socket.look_at_tcp(fd);
            }
            let few = session.doorbells() < DOORBELLS;
            let alone = session.end().waiting.load(Ordering::SeqCst) == 0
                && session.end().members.load(Ordering::SeqCst) <= 1;
            if !few && alone {
                stream::drain(&session, fd);
            }
            self.heat(at);
            let events = self.report(at, epoll);
            if events != 0 {
                self.slots[at as usize].reported = self.turn;
            }
            return (events, data);
        }
        // Bytes come over TCP: the kernel's answer is the program's.
        self.heat(at);
        let slot = &mut self.slots[at as usize];
        if slot.interest.is_spent() {
            return (0, 0);
        }
        let mut events = found;
        if session.sends_by_ring() && found & interest::OUT != 0 {
            events &= !(interest::OUT | interest::WRNORM);
            let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
        }
        let slot = &mut self.slots[at as usize];
        if events != 0 && slot.interest.wanted() & interest::ONESHOT != 0 {
            let all = interest::Ready { events, input: u64::MAX, output: u64::MAX };
            events = slot.interest.report(&all);
            let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
        }
        if events != 0 {
            self.slots[at as usize].reported = self.turn;
        }
        (events, data)
    }

    /// Whether the bytes in the TCP stream are doorbells: the stream's first part is over.
    fn is_doorbell(&self, at: u32, session: &Session<'_>) -> bool {
        self.slots[at as usize].kernel == Kernel::Doorbells
            || !matches!(session.road_in(), Ok(Road::Tcp(_)))
    }
}

impl Set {
    /// Whether it has, or has had, a socket of ours.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }

    /// A descriptor of it.
    fn descriptor(&'static self) -> Option<c_int> {
        let known = self.descriptor.load(Ordering::Acquire);
        if known >= 0 { Some(known) } else { table::descriptor_of(self) }
    }

    pub(crate) fn duplicated(&self) {
        self.descriptors.fetch_add(1, Ordering::AcqRel);
    }

    /// A descriptor is about to be closed.
    pub(crate) fn closed(&self, fd: c_int) {
        if self.descriptor.load(Ordering::Acquire) == fd {
            self.descriptor.store(-1, Ordering::Release);
        }
        if self.descriptors.load(Ordering::Acquire) == 1
            && let Some(mut inner) = self.inner.lock()
        {
            for at in 0..inner.slots.len() as u32 {
                inner.remove(at);
            }
            self.used.store(0, Ordering::Release);
        }
        self.descriptors.fetch_sub(1, Ordering::AcqRel);
    }

    /// For a thread that waits for the set by other means: have doorbells sent.
    pub(crate) fn arm_all(&self) {
        if let Some(inner) = self.inner.lock() {
            inner.arm_hot(0);
        }
    }

    /// From now on each socket has a doorbell of its own.
    fn rings_for_each(&self) {
        if !self.shared.swap(true, Ordering::SeqCst)
            && let Some(inner) = self.inner.lock()
        {
            inner.arm_hot(0);
        }
    }

    /// The number of a sleep that the doorbell of any hot socket ends.
    fn sleep(&self) -> u64 {
        if self.shared.load(Ordering::SeqCst) { 0 } else { next_sleep() }
    }

    /// Whether a call would report a switched socket.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.lock().is_some_and(|inner| inner.has_ready())
    }

    /// `epoll_pwait`.
    ///
    /// # Safety
    /// The mask is a kernel's signal mask, or null.
    pub(crate) unsafe fn wait(
        &'static self,
        epoll: c_int,
        events: &mut [libc::epoll_event],
        limit: Option<u64>,
        mask: *const c_void,
    ) -> Result<usize, Errno> {
        let ask = |events: &mut [libc::epoll_event], limit: Option<u64>| {
            // SAFETY: the slice has room for as many events as it says; the mask is the caller's.
            unsafe {
                let most = events.len() as c_int;
                sys::epoll_wait(epoll, events.as_mut_ptr(), most, limit, mask)
            }
        };
        let deadline = match limit {
            Some(limit) if limit > 0 => Some(sys::now().saturating_add(limit)),
            other => other,
        };
        let _inside = Inside::new(self);
        loop {
            let Some(mut inner) = self.inner.lock() else { return ask(events, limit) };
            inner.turn = inner.turn.wrapping_add(1);
            let mut count = inner.collect(epoll, events);
            // A call that may wait asks the kernel below, where it waits.
            let asks = count == 0 && limit == Some(0);
            if asks || count > 0 && inner.turn % TURNS == 0 && count < events.len() {
                drop(inner);
                let more = match ask(&mut events[count..], Some(0)) {
                    Err(_) if count > 0 => 0,
                    more => more?,
                };
                let Some(again) = self.inner.lock() else { return Ok(count) };
                inner = again;
                count = inner.merge(epoll, events, count, more);
            }
            if count > 0 {
                if self.sleepers.load(Ordering::SeqCst) > 0 {
                    inner.arm_hot(0);
                }
                return Ok(count);
            }
            drop(inner);
            let now = sys::now();
            if deadline.is_some_and(|deadline| deadline == 0 || now >= deadline) {
                return Ok(0);
            }
            let found = || self.is_ready();
            if self.has_hot() && self.spin.look(deadline, found) {
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            ASLEEP.fetch_add(1, Ordering::SeqCst);
            let slept = self.goes_cold().map(|most| {
                let left = deadline.map(|deadline| deadline.saturating_sub(sys::now()));
                ask(
                    events,
                    left.map_or(most, |left| Some(most.map_or(left, |most| left.min(most)))),
                )
            });
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            let Some(slept) = slept else { continue };
            let more = slept?;
            if more > 0 {
                let Some(mut inner) = self.inner.lock() else { return Ok(more) };
                // The same doorbell serves all hot sockets.
                let mut count = inner.merge(epoll, events, 0, more);
                count += inner.collect(epoll, &mut events[count..]);
                if count > 0 {
                    if self.sleepers.load(Ordering::SeqCst) > 0 {
                        inner.arm_hot(0);
                    }
                    return Ok(count);
                }
            }
        }
    }

    fn has_hot(&self) -> bool {
        self.inner.lock().is_some_and(|inner| !inner.hot.is_empty())
    }

    /// Arm every hot socket, and leave those to the kernel that have had nothing for some turns. The sleep
    /// may last so many nanoseconds at most. `None`: one of them is ready.
    fn goes_cold(&self) -> Option<Option<u64>> {
        let Some(mut inner) = self.inner.lock() else { return Some(None) };
        let sleep = self.sleep();
        let mut hot = std::mem::take(&mut inner.hot);
        for at in &hot {
            let busy = inner.slots[*at as usize].idle < IDLE;
            inner.arm(*at, if busy { sleep } else { 0 });
        }
        if hot.iter().any(|at| inner.is_ready(*at)) {
            inner.hot = hot;
            return None;
        }
        let mut most = None;
        hot.retain(|at| {
            let slot = &mut inner.slots[*at as usize];
            let session = slot.socket.and_then(Socket::session);
            let wanted = slot.interest.wanted();
            let without = session.is_some_and(|one| ready::waits_without_doorbell(&one, wanted));
            if without {
                most = Some(ready::SHORT);
            }
            // A doorbell of one of these stands for all of them.
            let rung_for = sleep != 0 && slot.idle < IDLE && slot.kernel == Kernel::Doorbells;
            slot.hot = !slot.removed && (without || rung_for);
            slot.hot
        });
        inner.hot = hot;
        Some(most)
    }
}

impl Inner {
    /// Events of the kernel's behind `count` of ours: how many there are in all. A socket that was
    /// reported from its ring already is not reported again.
    fn merge(
        &mut self,
        epoll: c_int,
        events: &mut [libc::epoll_event],
        count: usize,
        more: usize,
    ) -> usize {
        let end = (count + more).min(events.len());
        let (ours, theirs) = events[..end].split_at_mut(count);
        if ours.is_empty() {
            return self.translate(epoll, theirs);
        }
        let mut kept = 0;
        for at in 0..theirs.len() {
            let event = theirs[at];
            let slot = (event.u64 & TAGS == TAG)
                .then(|| self.slots.get(event.u64 as u32 as usize))
                .flatten();
            let data = slot.map(|slot| slot.data);
            let first = data.and_then(|data| ours.iter_mut().find(|one| one.u64 == data));
            let mut one = [event];
            if self.translate(epoll, &mut one) == 0 {
                continue;
            }
            match first {
                Some(first) => first.events |= one[0].events,
                None => {
                    theirs[kept] = one[0];
                    kept += 1;
                }
            }
        }
        count + kept
    }
}
