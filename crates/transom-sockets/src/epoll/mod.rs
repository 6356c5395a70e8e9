//! Epoll sets with switched sockets.
//!
//! A switched socket is in the kernel's set with a number of ours in place of the program's data, and
//! by edge: each doorbell is one event, whether or not it is taken from the TCP stream. The set's answer is
//! made from the rings. Sockets that were busy lately are *hot*: looked at in every call, and not armed, so
//! that their peers make no system call. Before a thread sleeps it arms them, looks again, and leaves
//! them to the kernel until a doorbell makes them hot again. All other descriptors of the set are as
//! the program has put them there.

mod slots;
mod wait;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use transom_switch::interest::Interest;

use super::lock::{Guard, Mutex};
use super::spin::Spin;
use super::sys::{self, Errno};
use super::table::{self, Entry, Socket};
use slots::{Kernel, Slots};

pub(crate) use wait::asleep;

static SETS: Mutex<Vec<&'static Set>> = Mutex::new(Vec::new());

/// A set of this process lies, or has lain, in another one.
static NESTED: AtomicBool = AtomicBool::new(false);

/// An epoll set that has, or has had, a TCP socket.
pub(crate) struct Set {
    inner: Mutex<Slots>,
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
            inner: Mutex::new(Slots::default()),
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
    NESTED.store(true, Ordering::SeqCst);
    inner.rings_for_each();
    if let Some(mut slots) = inner.inner.lock() {
        for at in 0..slots.slots.len() as u32 {
            slots.settle(at, inner);
        }
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
                if set.nested.load(Ordering::SeqCst) {
                    inner.settle(at, set);
                }
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

/// A call has taken bytes, or room: a set within another one may be ready no more, and the kernel does not see
/// that.
#[inline]
pub(crate) fn taken(socket: &Socket) {
    if NESTED.load(Ordering::Relaxed) && socket.sets.load(Ordering::Relaxed) > 0 {
        each_set(|set, inner| {
            if set.nested.load(Ordering::SeqCst)
                && let Some(at) = inner.place(socket)
            {
                inner.settle(at, set);
            }
        });
    }
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

fn each_set(mut act: impl FnMut(&'static Set, &mut Slots)) {
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
    let inner: Vec<Option<Guard<'static, Slots>>> =
        sets.iter().flat_map(|sets| sets.iter().map(|set| set.inner.lock())).collect();
    (inner, sets)
}

/// In the child of a fork, no thread sleeps.
pub(crate) fn after_fork() {
    wait::after_fork();
    each_set(|set, _| {
        set.sleepers.store(0, Ordering::SeqCst);
        set.inside.store(0, Ordering::SeqCst);
        // Two processes have it: either may take a doorbell.
        set.shared.store(true, Ordering::SeqCst);
    });
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

    /// Whether a call would report a switched socket.
    pub(crate) fn is_ready(&self) -> bool {
        self.inner.lock().is_some_and(|inner| inner.has_ready())
    }
}
