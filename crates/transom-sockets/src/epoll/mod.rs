//! Epoll sets with switched sockets.
//!
//! The kernel's set has each entry of the program with the program's data, and with the program's events until
//! the socket is switched. Then it has the socket by edge, and each doorbell is one event, whether or
//! not it is taken from the TCP stream; the set's answer is made from the rings. Sockets that were busy lately
//! are *hot*: looked at in every call, and not armed, so that their peers make no system call. Before a thread
//! sleeps it arms them, looks again, and leaves them to the kernel until a doorbell makes them hot again. All
//! other descriptors of the set are as the program has put them there.
//!
//! `docs/sockets.md` says why no call returns anything else, and `tests/loom.rs` has a model of it.

mod outside;
mod slots;
mod wait;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use super::mutex::{Guard, Mutex};
use super::said::Why;
use super::spin::Spin;
use super::sys::{self, Errno};
use super::table::{self, Entry, Held, Socket};
use super::young::Shared;
use slots::{Kernel, Slots};

pub(crate) use wait::asleep;

/// The sets of this process, each with the next one: none is ever freed.
static SETS: AtomicPtr<Set> = AtomicPtr::new(std::ptr::null_mut());

/// A set of this process lies, or has lain, in another one.
static NESTED: AtomicBool = AtomicBool::new(false);

/// Each waiter may take a doorbell that another one relies on, so each socket has its own: several threads
/// have waited at once, another process has, or the set is in another one.
const SEVERAL: u32 = 1;
/// A program that has the set without this library's knowledge may wait for it.
const ELSEWHERE: u32 = 2;

/// An epoll set, known since it was made, or since a socket of ours was added to it.
pub(crate) struct Set {
    inner: Mutex<Slots>,
    next: AtomicPtr<Set>,
    /// A descriptor of it, and how many there are.
    descriptor: AtomicI32,
    descriptors: AtomicU32,
    /// A descriptor for calls under way whose own was closed, as the last one; -1: none is kept.
    kept: AtomicI32,
    sleepers: AtomicU32,
    /// Threads in a call that waits for it.
    inside: AtomicU32,
    /// [`SEVERAL`] and [`ELSEWHERE`], in memory that children of a fork share.
    waiters: Shared,
    /// This process has it from its parent, by `fork`, and has not used it.
    inherited: AtomicBool,
    /// Removed from it are this process's entries only: it is not its parent's, too.
    own: AtomicBool,
    /// Calls of this library have waited for it.
    waited: AtomicBool,
    /// The set lies in another one, in which threads may sleep whenever no thread waits here.
    nested: AtomicBool,
    /// Descriptors that a handler of a signal has closed while its thread was using [`Set::inner`].
    orphans: AtomicPtr<Orphan>,
    spin: Spin,
}

struct Orphan {
    socket: Held,
    fd: c_int,
    next: *mut Orphan,
}

fn sets() -> impl Iterator<Item = &'static Set> {
    // SAFETY: the list has sets that are never freed.
    let at = |at: *mut Set| unsafe { at.as_ref() };
    let first = at(SETS.load(Ordering::Acquire));
    std::iter::successors(first, move |set| at(set.next.load(Ordering::Acquire)))
}

/// A set that no descriptor names and no call uses, for the descriptor `fd`.
fn fresh(fd: c_int) -> &'static Set {
    let take = |set: &&Set| {
        let unused = set.inside.load(Ordering::SeqCst) == 0;
        let (old, new, order) = (0, 1, Ordering::SeqCst);
        unused && set.descriptors.compare_exchange(old, new, order, order).is_ok()
    };
    let set = sets().find(take).unwrap_or_else(|| {
        let set = Box::into_raw(Box::new(Set {
            inner: Mutex::new(Slots::default()),
            next: AtomicPtr::new(std::ptr::null_mut()),
            descriptor: AtomicI32::new(-1),
            descriptors: AtomicU32::new(1),
            kept: AtomicI32::new(-1),
            sleepers: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            waiters: Shared::default(),
            inherited: AtomicBool::new(false),
            own: AtomicBool::new(true),
            waited: AtomicBool::new(false),
            nested: AtomicBool::new(false),
            orphans: AtomicPtr::new(std::ptr::null_mut()),
            spin: Spin::default(),
        }));
        let link = |first: *mut Set| {
            // SAFETY: made above, and never freed.
            unsafe { &*set }.next.store(first, Ordering::Release);
            Some(set)
        };
        let _ = SETS.fetch_update(Ordering::AcqRel, Ordering::Acquire, link);
        // SAFETY: as above.
        unsafe { &*set }
    });
    set.release();
    set.descriptor.store(fd, Ordering::Release);
    set.waiters.begin();
    for flag in [&set.inherited, &set.waited, &set.nested] {
        flag.store(false, Ordering::SeqCst);
    }
    set.own.store(true, Ordering::SeqCst);
    table::set_epoll(fd, set);
    set
}

/// The program has made a set.
pub(crate) fn made(fd: c_int) {
    table::forget(fd);
    fresh(fd);
}

/// A descriptor is put into a set. If it is a set, too, a thread may sleep in the outer one, and be woken
/// for the inner one by the doorbell of any socket: each has its own.
fn nest(inner: &'static Set) {
    inner.nested.store(true, Ordering::SeqCst);
    NESTED.store(true, Ordering::SeqCst);
    inner.rings_for_each();
    if let Some(mut slots) = inner.lock() {
        for at in 0..slots.slots.len() as u32 {
            slots.settle(at, inner);
        }
        slots.rouse(inner);
    }
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
            if let (Entry::Set(inner), libc::EPOLL_CTL_ADD) = (known, what) {
                nest(inner);
            }
            if let (Entry::Set(set), Some(event)) = (table::entry(epoll), event) {
                set.sees(event);
            }
            return None;
        }
    };
    let Entry::Set(set) = table::entry(epoll) else {
        return adopt(epoll, what, socket, fd, event?);
    };
    set.is_used_here();
    let mut inner = set.lock()?;
    let mut known = inner.find(socket, fd);
    if let Some(at) = known.filter(|at| inner.stands_in(*at)) {
        // The program has given no entry with this descriptor.
        if what != libc::EPOLL_CTL_ADD {
            return Some(Err(libc::ENOENT));
        }
        let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
        inner.remove(at);
        known = None;
    }
    match (what, known, event) {
        (libc::EPOLL_CTL_DEL, Some(at), _) => {
            let done = sys::epoll_control(epoll, what, fd, 0, 0);
            inner.remove(at);
            // A doorbell that a sleeper relies on may have gone with it.
            inner.rouse(set);
            Some(done)
        }
        (libc::EPOLL_CTL_ADD, _, Some(event)) => {
            let at = inner.insert(socket, fd, event);
            // A thread that waits for the set past this library has nothing else.
            if set.waited.load(Ordering::Relaxed) {
                inner.forget_doorbells(at);
            }
            let done = inner.register(at, epoll, libc::EPOLL_CTL_ADD);
            // An entry that the kernel has lost meanwhile is known here still.
            let ends = if done.is_ok() { known } else { Some(at) };
            if let Some(ends) = ends {
                inner.remove(ends);
            }
            if done.is_ok() {
                inner.renewed(at, set);
                if set.nested.load(Ordering::SeqCst) {
                    inner.settle(at, set);
                }
                if set.waiters.has(ELSEWHERE) {
                    socket.young.stay(Why::Sets);
                }
            }
            Some(done)
        }
        (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => {
            let done = inner.modify(at, epoll, event);
            inner.renewed(at, set);
            Some(done)
        }
        // The kernel has the answer.
        _ => None,
    }
}

/// A socket is added to a set that this library has not seen being made: by a program that has started this
/// one, by another process, or past the library. Connections that are in it stay with TCP.
fn adopt(
    epoll: c_int,
    what: c_int,
    socket: &'static Socket,
    fd: c_int,
    event: libc::epoll_event,
) -> Option<Result<usize, Errno>> {
    let adds = what == libc::EPOLL_CTL_ADD && table::may_change();
    if !adds || !matches!(table::entry(epoll), Entry::Unknown | Entry::Plain) {
        return None;
    }
    // The kernel says whether this is a set.
    if let Err(error) = sys::epoll_control(epoll, what, fd, event.events, event.u64) {
        return Some(Err(error));
    }
    socket.young.stay(Why::Sets);
    let set = fresh(epoll);
    set.waiters.say(SEVERAL | ELSEWHERE);
    set.own.store(false, Ordering::SeqCst);
    set.nested.store(true, Ordering::SeqCst);
    NESTED.store(true, Ordering::SeqCst);
    let mut inner = set.lock()?;
    let at = inner.insert(socket, fd, event);
    if socket.is_attached() {
        inner.switched(at, set);
    }
    Some(Ok(0))
}

/// A socket has got a segment: sets that have it learn it.
pub(crate) fn switched(socket: &Socket) {
    each_slot(socket, |set, inner, at| inner.switched(at, set));
}

/// Whether a connection may be switched now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    Now,
    /// A set has it that this library has not been asked about yet, or whose report of it may be on its way.
    NotYet,
    /// A set has it that others may wait for.
    Never,
}

/// Whether every thread that waits for a young connection does so by this library's calls. `asked`: some call
/// of this library has waited for it by itself.
pub(crate) fn may_switch(socket: &Socket, fd: c_int, asked: bool) -> Switch {
    let mut found = Switch::Now;
    if socket.sets.load(Ordering::SeqCst) == 0 {
        let unseen =
            !asked && sys::status_flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
        return if unseen && outside::has(fd) { Switch::Never } else { Switch::Now };
    }
    each_slot(socket, |set, inner, at| {
        if set.waiters.has(ELSEWHERE) {
            found = Switch::Never;
        }
        let to_come = set.descriptor().is_none_or(|epoll| inner.is_to_come(at, epoll));
        if found == Switch::Now && (to_come || !set.waited.load(Ordering::Relaxed)) {
            found = Switch::NotYet;
        }
    });
    found
}

/// A call has taken bytes, or room: a set within another one may be ready no more, and the kernel does not see
/// that.
#[inline]
pub(crate) fn taken(socket: &Socket) {
    if NESTED.load(Ordering::Relaxed) {
        each_slot(socket, |set, inner, at| {
            if set.nested.load(Ordering::SeqCst) {
                inner.settle(at, set);
            }
        });
    }
}

/// A send has found no room, or this end has asked for an end: sets report what they have reported before once it
/// holds again, to threads that sleep in them already, too.
pub(crate) fn changed(socket: &Socket) {
    each_slot(socket, |set, inner, at| {
        inner.renewed(at, set);
        if set.nested.load(Ordering::SeqCst) {
            inner.settle(at, set);
        }
    });
}

/// A descriptor is about to be closed.
pub(crate) fn forget(socket: &'static Socket, fd: c_int) {
    if socket.sets.load(Ordering::SeqCst) == 0 {
        return;
    }
    // While the connection has another descriptor, the kernel goes on reporting the entry.
    let other = table::other_descriptor_of(socket, fd);
    let has = |set: &'static Set| set.lock().is_some_and(|inner| inner.find(socket, fd).is_some());
    if other.is_some()
        && !socket.is_attached()
        && sets().any(|set| set.own.load(Ordering::SeqCst) && has(set))
    {
        socket.young.stay(Why::Sets);
    }
    for set in sets() {
        let Some(mut inner) = set.lock() else {
            set.orphan(table::held_again(socket), fd);
            continue;
        };
        if let Some(at) = inner.find(socket, fd) {
            // Another process that has the set may use the entry, as it may over TCP.
            if let (Some(epoll), true) = (set.descriptor(), set.own.load(Ordering::SeqCst)) {
                if other.is_some() && !socket.is_attached() {
                    inner.remove(at);
                    continue;
                }
                let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
                if let Some(other) = other.filter(|other| inner.find(socket, *other).is_none())
                    && inner.goes_on(at, epoll, other)
                {
                    inner.renewed(at, set);
                    continue;
                }
            }
            inner.remove(at);
            // A doorbell that a sleeper relies on may have gone with it.
            inner.rouse(set);
        }
    }
}

/// A socket that was added to sets before it was one of anything turns out to be none of ours: the kernel's entries
/// are the program's.
pub(crate) fn leave_alone(socket: &Socket, fd: c_int) {
    each_slot(socket, |_, inner, at| {
        if inner.is(at, socket, fd) {
            inner.remove(at);
        }
    });
}

/// A connection was ended by `connect`, and its descriptor stays: sets have it as the kernel does from now on.
pub(crate) fn disconnected(socket: &Socket) {
    each_slot(socket, |set, inner, at| {
        if let Some(epoll) = set.descriptor() {
            inner.as_given(at, epoll);
        }
    });
}

/// Each entry of a socket, with its set.
fn each_slot(socket: &Socket, mut act: impl FnMut(&'static Set, &mut Slots, u32)) {
    if socket.sets.load(Ordering::SeqCst) == 0 {
        return;
    }
    for set in sets() {
        if let Some(mut inner) = set.lock() {
            for at in inner.of(socket) {
                act(set, &mut inner, at);
            }
        }
    }
}

/// A set is handed to another process.
pub(crate) fn leaves(fd: c_int) {
    if let Entry::Set(set) = table::entry(fd) {
        set.goes_elsewhere();
    }
}

/// A program is about to be started, and inherits each set whose descriptor is not closed by that.
pub(crate) fn starts_program() {
    if !SETS.load(Ordering::Acquire).is_null() {
        table::each_set(|fd, set| {
            if sys::descriptor_flags(fd).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0) {
                set.goes_elsewhere();
            }
        });
    }
}

/// In the child of a fork: no thread sleeps, and the sets are the parent's, too.
pub(crate) fn after_fork() {
    wait::after_fork();
    for set in sets() {
        set.sleepers.store(0, Ordering::SeqCst);
        set.inside.store(0, Ordering::SeqCst);
        if set.kept.load(Ordering::SeqCst) >= 0 {
            set.release();
        }
        set.inherited.store(true, Ordering::SeqCst);
        set.own.store(false, Ordering::SeqCst);
        if let Some(mut inner) = set.lock() {
            for slot in &mut inner.slots {
                // The parent has counted it.
                slot.counted = false;
            }
        }
    }
}

impl Set {
    /// The entries. `None`: this thread has them already, and is in a signal handler now.
    fn lock(&'static self) -> Option<Guard<'static, Slots>> {
        self.lock_here()
    }

    /// [`Set::lock`] for a call that each wait makes.
    #[inline(always)]
    fn lock_here(&'static self) -> Option<Guard<'static, Slots>> {
        let mut inner = self.inner.lock()?;
        if !self.orphans.load(Ordering::Acquire).is_null() {
            self.remove_orphans(&mut inner);
        }
        Some(inner)
    }

    #[cold]
    #[inline(never)]
    fn remove_orphans(&'static self, inner: &mut Slots) {
        let mut next = self.orphans.swap(std::ptr::null_mut(), Ordering::AcqRel);
        while !next.is_null() {
            // SAFETY: the list is this call's alone now, and each was made by `orphan`.
            let orphan = unsafe { Box::from_raw(next) };
            if let Some(at) = inner.find(&orphan.socket, orphan.fd) {
                inner.remove(at);
            }
            next = orphan.next;
        }
        inner.rouse(self);
    }

    /// A descriptor is about to be closed, while the interrupted call of this thread has the entries: its slot
    /// ends when that call, or a later one, comes back to them.
    fn orphan(&self, socket: Held, fd: c_int) {
        let orphan = Box::into_raw(Box::new(Orphan { socket, fd, next: std::ptr::null_mut() }));
        let link = |first: *mut Orphan| {
            // SAFETY: made above, and not in the list yet.
            unsafe { (*orphan).next = first };
            Some(orphan)
        };
        let _ = self.orphans.fetch_update(Ordering::AcqRel, Ordering::Acquire, link);
    }

    /// Whether it has a socket of ours.
    pub(crate) fn is_used(&'static self) -> bool {
        self.lock().is_some_and(|inner| inner.slots.iter().any(|slot| slot.socket.is_some()))
    }

    /// A descriptor of it.
    fn descriptor(&'static self) -> Option<c_int> {
        let known = self.descriptor.load(Ordering::Acquire);
        if known >= 0 {
            return Some(known);
        }
        let kept = || Some(self.kept.load(Ordering::SeqCst)).filter(|kept| *kept >= 0);
        table::descriptor_of(self).or_else(kept)
    }

    /// The set's descriptor for a call that was given `epoll`, which another thread may have closed since. `None`: it
    /// has none any more.
    fn descriptor_for(&'static self, epoll: c_int) -> Option<c_int> {
        if table::is_set(self, epoll) { Some(epoll) } else { self.descriptor() }
    }

    pub(crate) fn duplicated(&self) {
        self.descriptors.fetch_add(1, Ordering::AcqRel);
    }

    /// A descriptor is about to be closed.
    pub(crate) fn closed(&'static self, fd: c_int) {
        if self.descriptor.load(Ordering::Acquire) == fd {
            self.descriptor.store(-1, Ordering::Release);
        }
        if self.descriptors.load(Ordering::Acquire) == 1 {
            // The kernel's set goes on with the calls that wait for it.
            let waits = self.inside.load(Ordering::SeqCst) > 0;
            let kept = if waits { sys::duplicate(fd).ok() } else { None };
            match kept {
                Some(kept) => self.kept.store(kept, Ordering::SeqCst),
                None => self.empty(),
            }
        }
        self.descriptors.fetch_sub(1, Ordering::AcqRel);
    }

    /// No call that was under way when the last descriptor was closed waits any more.
    #[cold]
    fn left(&'static self) {
        // As the next set that takes this place would.
        let (old, new, order) = (0, 1, Ordering::SeqCst);
        if self.descriptors.compare_exchange(old, new, order, order).is_ok() {
            if self.inside.load(Ordering::SeqCst) == 0 {
                self.release();
            }
            self.descriptors.fetch_sub(1, order);
        }
    }

    fn release(&'static self) {
        self.empty();
        let kept = self.kept.swap(-1, Ordering::SeqCst);
        if kept >= 0 {
            sys::close(kept);
        }
    }

    fn empty(&'static self) {
        if let Some(mut inner) = self.lock() {
            for at in 0..inner.slots.len() as u32 {
                inner.remove(at);
            }
            inner.marks_given = false;
        }
    }

    /// An entry that is none of ours was given, with this event.
    fn sees(&'static self, event: libc::epoll_event) {
        use transom_switch::interest::{RDNORM, WRNORM};
        if event.events & (RDNORM | WRNORM) != 0
            && let Some(mut inner) = self.lock()
        {
            inner.marks_given = true;
        }
    }

    /// A thread waits for the set by other means until the result is dropped: have doorbells sent.
    pub(crate) fn waits_otherwise(&'static self) -> impl Sized {
        struct Otherwise(&'static Set);
        impl Drop for Otherwise {
            fn drop(&mut self) {
                let less = |count: u32| Some(count.saturating_sub(1));
                let _ = self.0.sleepers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            }
        }
        self.is_used_here();
        self.waited.store(true, Ordering::Relaxed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if let Some(inner) = self.lock() {
            inner.arm_hot(0);
        }
        Otherwise(self)
    }

    /// From now on each socket has a doorbell of its own.
    fn rings_for_each(&'static self) {
        if self.waiters.say(SEVERAL)
            && let Some(inner) = self.lock()
        {
            inner.arm_hot(0);
        }
    }

    /// A call uses the set. One that was inherited has waiters in two processes from then on.
    fn is_used_here(&'static self) {
        if self.inherited.load(Ordering::Relaxed) && self.inherited.swap(false, Ordering::SeqCst) {
            self.waiters.say(SEVERAL | ELSEWHERE);
            if let Some(inner) = self.lock() {
                inner.arm_all();
            }
        }
    }

    /// Others may wait for it from now on: its young connections stay with TCP.
    fn goes_elsewhere(&'static self) {
        self.waiters.say(SEVERAL | ELSEWHERE);
        if let Some(inner) = self.lock() {
            for socket in inner.slots.iter().filter_map(|slot| slot.socket) {
                socket.young.stay(Why::Sets);
            }
            inner.arm_all();
        }
    }

    /// Whether a call would report a switched socket.
    pub(crate) fn is_ready(&'static self) -> bool {
        self.lock().is_some_and(|inner| inner.has_ready())
    }
}
