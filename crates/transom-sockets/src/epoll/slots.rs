//! The entries of a set: which are hot, how the kernel knows each, and what a call reports.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_switch::interest::{self, Interest, Ready};
use transom_switch::session::{Road, Session};

use super::{Set, outside};
use crate::ready;
use crate::stream;
use crate::sys::{self, Errno};
use crate::table::Socket;
use crate::user;

/// Events of ordinary bytes and room, by which the kernel tells doorbells and the first bytes of a switched
/// socket from what other entries report that have the same data.
const MARKS: u32 = interest::RDNORM | interest::WRNORM;
/// Events by which the kernel has a socket that receives by its ring.
const FOR_DOORBELLS: u32 = interest::IN | interest::RDNORM | interest::RDHUP | interest::EDGE;
/// Hot sockets beyond this number cool down after [`IDLE`] turns without an event, though no thread sleeps.
const FEW: usize = 128;
/// Turns without an event behind which a socket is left to the kernel: looks at it have cost some 5 µs by then, as
/// much as its next doorbell costs both sides. A set finds one socket ready in most turns, so each of many that are
/// busy has nothing for twice as many turns as there are of them.
pub(super) const IDLE: u32 = 256;
/// Doorbells that lie in a TCP stream before they are taken: fewer than TCP sends without an
/// acknowledgement, which comes when they are taken.
const DOORBELLS: usize = 4;

#[derive(Default)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slots in use, by the program's data.
    by_data: BTreeSet<(u64, u32)>,
    pub(super) hot: Vec<u32>,
    pub(super) turn: u32,
    /// Entries that the kernel has as the program has given them, and that are to be reported once.
    once: u32,
    /// Another entry of the set asks for [`MARKS`].
    pub(super) marks_given: bool,
}

/// An entry of the set.
pub(super) struct Slot {
    pub(super) socket: Option<&'static Socket>,
    fd: c_int,
    /// The descriptor of the program's entry is closed: `fd` is another one of the same connection, by which the kernel
    /// has the entry now.
    stands_in: bool,
    data: u64,
    pub(super) interest: Interest,
    pub(super) kernel: Kernel,
    pub(super) hot: bool,
    /// Counted among the sets of its end.
    pub(super) counted: bool,
    /// Counted in [`Slots::once`].
    once: bool,
    /// The call that has reported it last ([`Slots::turn`]).
    reported: u32,
    pub(super) idle: u32,
}

/// The events by which the kernel's set has a slot. The data is the program's in each case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// The program's, and the socket has no segment.
    AsGiven,
    /// The program's with [`MARKS`]: the socket is switched, and bytes come over TCP still.
    Tcp,
    /// [`FOR_DOORBELLS`]: as before, but what there is to read is counted here ([`ready::counts_bytes`]).
    Counted,
    /// [`FOR_DOORBELLS`].
    Doorbells,
}

/// Whether doorbells of the socket end sleeps of one set, and of nothing else.
fn is_alone(session: &Session<'_>) -> bool {
    session.end().waiting.load(Ordering::SeqCst) == 0
        && session.end().members.load(Ordering::SeqCst) <= 1
}

impl Slots {
    pub(super) fn is(&self, at: u32, socket: &Socket, fd: c_int) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| {
            slot.fd == fd && slot.socket.is_some_and(|known| std::ptr::eq(known, socket))
        })
    }

    /// The slot of a descriptor.
    pub(super) fn find(&self, socket: &Socket, fd: c_int) -> Option<u32> {
        let hint = socket.slot.load(Ordering::Relaxed);
        if self.is(hint, socket, fd) {
            return Some(hint);
        }
        (0..self.slots.len() as u32).find(|at| self.is(*at, socket, fd))
    }

    /// The slots of a socket, of which each descriptor has one.
    pub(super) fn of(&self, socket: &Socket) -> Vec<u32> {
        let of = |slot: &Slot| slot.socket.is_some_and(|known| std::ptr::eq(known, socket));
        (0..self.slots.len() as u32).filter(|at| of(&self.slots[*at as usize])).collect()
    }

    pub(super) fn insert(
        &mut self,
        socket: &'static Socket,
        fd: c_int,
        event: libc::epoll_event,
    ) -> u32 {
        let fresh = Slot {
            socket: Some(socket),
            fd,
            stands_in: false,
            data: event.u64,
            interest: Interest::new(event.events),
            kernel: Kernel::AsGiven,
            hot: false,
            counted: false,
            once: false,
            reported: 0,
            idle: 0,
        };
        socket.sets.fetch_add(1, Ordering::SeqCst);
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = fresh;
                at
            }
            None => {
                self.slots.push(fresh);
                self.slots.len() as u32 - 1
            }
        };
        socket.slot.store(at, Ordering::Relaxed);
        self.by_data.insert((event.u64, at));
        self.count_once(at);
        at
    }

    pub(super) fn remove(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let Some(socket) = slot.socket.take() else { return };
        socket.sets.fetch_sub(1, Ordering::SeqCst);
        if slot.counted
            && let Some(session) = socket.session()
        {
            session.end().members.fetch_sub(1, Ordering::SeqCst);
        }
        (slot.fd, slot.counted, slot.hot) = (-1, false, false);
        self.by_data.remove(&(slot.data, at));
        self.count_once(at);
        self.hot.retain(|hot| *hot != at);
        self.free.push(at);
    }

    /// Before the kernel gets a slot: doorbells that are over would have it report the new entry at once.
    pub(super) fn forget_doorbells(&self, at: u32) {
        let slot = &self.slots[at as usize];
        let Some(session) = slot.socket.and_then(|socket| socket.session()) else { return };
        let relies = |count: &AtomicU32| count.load(Ordering::SeqCst) > 0;
        stream::drain_if(&session, slot.fd, || {
            !relies(&session.end().waiting) && !relies(&session.end().members)
        });
    }

    /// Whether the program has closed the descriptor of this entry, and not given the one that stands in for it.
    pub(super) fn stands_in(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| slot.stands_in)
    }

    /// The descriptor of a slot is about to be closed, and the connection has another one: the entry goes on, as
    /// the kernel's would (epoll(7)).
    pub(super) fn goes_on(&mut self, at: u32, epoll: c_int, other: c_int) -> bool {
        let Some(slot) = self.slots.get_mut(at as usize) else { return false };
        (slot.fd, slot.stands_in) = (other, true);
        self.register(at, epoll, libc::EPOLL_CTL_ADD).is_ok()
    }

    /// `EPOLL_CTL_MOD`. The slot keeps what it had if the kernel refuses.
    pub(super) fn modify(
        &mut self,
        at: u32,
        epoll: c_int,
        event: libc::epoll_event,
    ) -> Result<usize, Errno> {
        let slot = &mut self.slots[at as usize];
        let (data, new) = (slot.data, Interest::new(event.events));
        let alone = libc::EPOLLEXCLUSIVE as u32;
        if (slot.interest.wanted() | event.events) & alone != 0 {
            // Of an entry that is woken alone, the manual page says so.
            return Err(libc::EINVAL);
        }
        let old = std::mem::replace(&mut slot.interest, new);
        slot.data = event.u64;
        let done = if slot.kernel == Kernel::Doorbells && data == event.u64 {
            // The kernel has nothing to learn.
            Ok(0)
        } else {
            self.register(at, epoll, libc::EPOLL_CTL_MOD)
        };
        let slot = &mut self.slots[at as usize];
        if done.is_err() {
            (slot.interest, slot.data) = (old, data);
        } else if data != event.u64 {
            self.by_data.remove(&(data, at));
            self.by_data.insert((event.u64, at));
        }
        self.count_once(at);
        done
    }

    /// Bring [`Slots::once`] up to date behind a change of a slot.
    fn count_once(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        let once = slot.socket.is_some()
            && slot.kernel == Kernel::AsGiven
            && slot.interest.wanted() & interest::ONESHOT != 0;
        let before = std::mem::replace(&mut slot.once, once);
        self.once = self.once + u32::from(once) - u32::from(before);
    }

    /// Tell the kernel how the slot is in its set from now on.
    pub(super) fn register(&mut self, at: u32, epoll: c_int, what: c_int) -> Result<usize, Errno> {
        let slot = &mut self.slots[at as usize];
        let Some(socket) = slot.socket else { return Err(libc::ENOENT) };
        let wanted = slot.interest.wanted();
        let Some(session) = socket.session() else {
            slot.kernel = Kernel::AsGiven;
            return sys::epoll_control(epoll, what, slot.fd, wanted, slot.data);
        };
        let alone = libc::EPOLLEXCLUSIVE as u32;
        let with_alone = interest::IN | interest::OUT | interest::ERR | interest::HUP;
        let with_alone = with_alone | interest::EDGE | libc::EPOLLWAKEUP as u32 | alone;
        if what == libc::EPOLL_CTL_ADD && wanted & alone != 0 && wanted & !with_alone != 0 {
            return Err(libc::EINVAL);
        }
        if !slot.counted {
            session.end().members.fetch_add(1, Ordering::SeqCst);
            slot.counted = true;
        }
        stream::advance(socket, &session, slot.fd);
        let (kernel, events) = match session.road_in() {
            // Of both ends' end the kernel tells by edge: once.
            Ok(Road::Tcp(_)) if slot.interest.is_spent() => (Kernel::Tcp, interest::EDGE),
            Ok(Road::Tcp(_)) if ready::counts_bytes(&session) => (Kernel::Counted, FOR_DOORBELLS),
            Ok(Road::Tcp(_)) => {
                // Once and alone are kept here: the kernel's event may be a doorbell.
                let mut events = wanted & !(interest::ONESHOT | alone);
                if session.sends_by_ring() {
                    events &= !(interest::OUT | interest::WRNORM);
                }
                for (plain, mark) in
                    [(interest::IN, interest::RDNORM), (interest::OUT, interest::WRNORM)]
                {
                    events |= if events & plain != 0 { mark } else { 0 };
                }
                (Kernel::Tcp, events)
            }
            _ => (Kernel::Doorbells, FOR_DOORBELLS),
        };
        slot.kernel = kernel;
        let (fd, data) = (slot.fd, slot.data);
        self.count_once(at);
        if what == libc::EPOLL_CTL_MOD && wanted & alone != 0 {
            // The kernel changes no entry that is woken alone, but takes a new one.
            let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
            return sys::epoll_control(epoll, libc::EPOLL_CTL_ADD, fd, events, data);
        }
        sys::epoll_control(epoll, what, fd, events, data)
    }

    /// The socket of a slot has got a segment.
    pub(super) fn switched(&mut self, at: u32, set: &'static Set) {
        if self.slots[at as usize].kernel != Kernel::AsGiven {
            return;
        }
        let Some(epoll) = set.descriptor() else { return };
        let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
        self.renewed(at, set);
    }

    /// The connection has ended, and its descriptor is one of a socket that is not connected: the kernel has the entry
    /// as the program has given it from now on.
    pub(super) fn as_given(&mut self, at: u32, epoll: c_int) {
        let Some(slot) = self.slots.get(at as usize) else { return };
        let (fd, wanted, data) = (slot.fd, slot.interest.wanted(), slot.data);
        if slot.kernel != Kernel::AsGiven && !slot.stands_in {
            // The kernel changes no entry that is woken alone, but takes a new one.
            let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
            let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_ADD, fd, wanted, data);
        }
        self.remove(at);
    }

    /// Whether a slot that is to be reported once has not been: a thread may be on its way with that report.
    pub(super) fn is_to_come(&self, at: u32, epoll: c_int) -> bool {
        let slot = &self.slots[at as usize];
        // Another entry may have the same data: the kernel knows which of them it has reported.
        slot.once && !(slot.interest.is_spent() && outside::is_spent(epoll, slot.fd))
    }

    /// The interest of a slot is a new one: what holds now is found by the next call, or by a thread
    /// that sleeps in the set already.
    pub(super) fn renewed(&mut self, at: u32, set: &'static Set) {
        if self.slots[at as usize].kernel != Kernel::AsGiven {
            self.heat(at);
            self.rouse(set);
        }
    }

    /// Threads that sleep in the set cannot see the rings: have the kernel report an entry that is ready.
    pub(super) fn rouse(&mut self, set: &'static Set) {
        if set.sleepers.load(Ordering::SeqCst) == 0 && !set.nested.load(Ordering::SeqCst) {
            return;
        }
        self.arm_hot(set.sleep());
        let ready = self.hot.iter().copied().find(|at| self.is_ready(*at));
        let (Some(at), Some(epoll)) = (ready, set.descriptor()) else { return };
        let slot = &self.slots[at as usize];
        let events = FOR_DOORBELLS | interest::WRNORM;
        let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_MOD, slot.fd, events, slot.data);
    }

    /// Have the kernel's set report a socket no more that is not ready any longer: it says of a set within
    /// another one whether that is ready.
    pub(super) fn settle(&mut self, at: u32, set: &'static Set) {
        let Some(slot) = self.slots.get(at as usize) else { return };
        let session = slot.socket.and_then(|socket| socket.session());
        let (Some(session), Some(epoll)) = (session, set.descriptor()) else { return };
        if slot.kernel != Kernel::Doorbells || self.is_ready(at) || !is_alone(&session) {
            return;
        }
        stream::drain(&session, slot.fd);
        let (what, events) = (libc::EPOLL_CTL_MOD, FOR_DOORBELLS);
        let _ = sys::epoll_control(epoll, what, slot.fd, events, slot.data);
        self.renewed(at, set);
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
        let Some(socket) = slot.socket else { return 0 };
        let Some(session) = socket.session() else { return 0 };
        if stream::is_left(socket, &session) {
            socket.look_at_tcp(slot.fd);
        }
        match self.known(at, socket, &session) {
            Some(ready) => {
                let slot = &mut self.slots[at as usize];
                let events = slot.interest.report(&ready);
                if slot.kernel != Kernel::Doorbells {
                    let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
                }
                events
            }
            None => {
                // The program has set a mark, or has taken it back.
                let slot = &self.slots[at as usize];
                let counted = slot.kernel == Kernel::Counted;
                if counted != ready::counts_bytes(&session) && !slot.interest.is_spent() {
                    let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
                }
                let Some(found) = self.besides(at, &session) else { return 0 };
                self.slots[at as usize].interest.report(&found)
            }
        }
    }

    /// As [`ready::known`]. No peer goes back from its ring to TCP: the kernel's entry waits for doorbells by then.
    fn known(&self, at: u32, socket: &Socket, session: &Session<'_>) -> Option<Ready> {
        let slot = &self.slots[at as usize];
        let known = ready::known(socket, session, slot.fd);
        if known.is_some() || slot.kernel != Kernel::Doorbells {
            return known;
        }
        socket.set_broken();
        Some(ready::state(socket, session))
    }

    /// Events that the kernel does not know of a socket whose bytes come over TCP still, if its entry waits for that.
    fn besides(&self, at: u32, session: &Session<'_>) -> Option<Ready> {
        let slot = &self.slots[at as usize];
        let socket = slot.socket?;
        let (mut found, wanted) =
            (ready::besides(socket, session, slot.fd), slot.interest.wanted());
        // Bytes that come through the ring are an edge, whatever lies before them.
        let behind = wanted & interest::EDGE != 0 && session.head_in() > 0;
        if found.events & (wanted | interest::HUP | interest::ERR) == 0 && !behind {
            return None;
        }
        // An event has all that holds (epoll_ctl(2)), what the kernel knows of included.
        let in_tcp = ready::in_tcp(session, slot.fd);
        if in_tcp > 0 && !ready::counts_bytes(session) {
            found.events |= interest::IN | interest::RDNORM;
        }
        found.input = ready::input(socket, session, in_tcp);
        Some(found)
    }

    pub(super) fn is_ready(&self, at: u32) -> bool {
        let slot = &self.slots[at as usize];
        let Some(socket) = slot.socket else { return false };
        let Some(session) = socket.session() else { return false };
        let found = self.known(at, socket, &session).or_else(|| self.besides(at, &session));
        found.is_some_and(|found| slot.interest.clone().report(&found) != 0)
    }

    /// How long a sleep may last that no doorbell of the socket's ends.
    pub(super) fn without_doorbell(&self, at: u32) -> Option<u64> {
        let slot = &self.slots[at as usize];
        let session = slot.socket.and_then(|socket| socket.session())?;
        ready::without_doorbell(&session, slot.interest.wanted())
    }

    /// Whether bytes of a hot socket come over TCP still: the kernel has a part of its events.
    pub(super) fn is_between(&self) -> bool {
        self.hot.iter().any(|at| self.slots[*at as usize].kernel == Kernel::Tcp)
    }

    pub(super) fn has_ready(&self) -> bool {
        self.hot.iter().any(|at| self.is_ready(*at))
    }

    pub(super) fn arm_hot(&self, sleep: u64) {
        for at in &self.hot {
            self.arm(*at, sleep);
        }
    }

    /// As [`Slots::arm_hot`], and those that the kernel looks after, with doorbells of their own.
    pub(super) fn arm_all(&self) {
        for at in 0..self.slots.len() as u32 {
            self.arm(at, 0);
        }
    }

    pub(super) fn arm(&self, at: u32, sleep: u64) {
        let slot = &self.slots[at as usize];
        if let Some(session) = slot.socket.and_then(|socket| socket.session()) {
            // Of others the kernel reports what comes over TCP.
            let sleep = if slot.kernel == Kernel::Doorbells { sleep } else { 0 };
            ready::arm(&session, slot.interest.wanted(), sleep);
        }
    }

    /// Events of hot slots that this turn has not reported, behind the first `count` of the program's room; how many
    /// there are with those.
    ///
    /// # Errors
    /// `EFAULT`: the program has no memory for the first one.
    pub(super) fn collect(
        &mut self,
        epoll: c_int,
        (events, most): (*mut libc::epoll_event, usize),
        mut count: usize,
    ) -> Result<usize, Errno> {
        let length = self.hot.len();
        if length == 0 {
            return Ok(count);
        }
        // Others come first the next time, should the room end.
        let start = self.turn as usize % length;
        for step in start..start + length {
            if count == most {
                break;
            }
            let at = self.hot[if step < length { step } else { step - length }];
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
            let event = libc::epoll_event { events: found, u64: slot.data };
            if !user::put(events.wrapping_add(count), event) {
                // The next call reports it.
                slot.interest = Interest::new(slot.interest.wanted());
                return if count > 0 { Ok(count) } else { Err(libc::EFAULT) };
            }
            count += 1;
        }
        if length > FEW {
            self.cool();
        }
        Ok(count)
    }

    /// Leave sockets to the kernel that have had nothing for some turns.
    fn cool(&mut self) {
        let hot = std::mem::take(&mut self.hot);
        for at in hot {
            let mut stays = self.slots[at as usize].idle < IDLE;
            if !stays {
                self.arm(at, 0);
                stays = self.is_ready(at) || self.without_doorbell(at).is_some();
            }
            self.slots[at as usize].hot = stays;
            if stays {
                self.hot.push(at);
            }
        }
    }

    /// Turn the kernel's events into the program's, in place; how many are left.
    pub(super) fn translate(&mut self, epoll: c_int, events: &mut [libc::epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let libc::epoll_event { events: found, u64: data } = events[at];
            let found = self.translated(epoll, found, data);
            if found != 0 {
                events[kept] = libc::epoll_event { events: found, u64: data };
                kept += 1;
            }
        }
        kept
    }

    /// The program's events for one of the kernel's. Several entries may have the same data: then the first
    /// one is reported that is ready, and the others are hot.
    fn translated(&mut self, epoll: c_int, found: u32, data: u64) -> u32 {
        let marked = found & MARKS != 0;
        // The reset of a connection by this library is an end without marks.
        let ended = found & (interest::HUP | interest::ERR) != 0;
        if !marked && !ended && self.once == 0 {
            return found;
        }
        let (mut ours, mut events, mut from) = (false, 0, 0);
        while let Some(at) = self.with_data(data, from) {
            from = at.saturating_add(1);
            let slot = &mut self.slots[at as usize];
            if slot.kernel == Kernel::AsGiven {
                slot.interest.was_reported();
            } else if marked || ended && self.has_ended(at) {
                ours = true;
                if events == 0 {
                    events = self.of_switched(at, epoll, found);
                } else {
                    self.heat(at);
                }
            } else if ended {
                self.heat(at);
            }
        }
        if ours && !self.marks_given { events } else { events | found }
    }

    /// Whether the kernel's socket of a slot has ended: an event that says so is this slot's.
    fn has_ended(&self, at: u32) -> bool {
        let mut one = [libc::pollfd { fd: self.slots[at as usize].fd, events: 0, revents: 0 }];
        let ended = libc::POLLHUP | libc::POLLERR;
        sys::poll(&mut one, Some(0), std::ptr::null()).is_ok() && one[0].revents & ended != 0
    }

    /// The first slot from `from` on that has this data.
    fn with_data(&self, data: u64, from: u32) -> Option<u32> {
        self.by_data.range((data, from)..=(data, u32::MAX)).next().map(|(_, at)| *at)
    }

    /// The program's events for the kernel's events of a socket that is switched.
    fn of_switched(&mut self, at: u32, epoll: c_int, found: u32) -> u32 {
        let slot = &self.slots[at as usize];
        let (fd, wanted) = (slot.fd, slot.interest.wanted());
        let Some(socket) = slot.socket else { return 0 };
        let Some(session) = socket.session() else { return 0 };
        let ended = found & (interest::RDHUP | interest::HUP | interest::ERR) != 0;
        stream::advance(socket, &session, fd);
        self.heat(at);
        let events = if self.is_doorbell(at, &session) {
            if ended {
                socket.look_at_tcp(fd);
            }
            let few = session.doorbells() < DOORBELLS;
            if !few && is_alone(&session) {
                stream::drain(&session, fd);
            }
            let events = self.report(at, epoll);
            // A doorbell for nothing may be bytes that went past the peer's library.
            let past = events == 0 && found & interest::IN != 0 && socket.look_at_tcp(fd);
            if past { self.report(at, epoll) } else { events }
        } else if self.slots[at as usize].interest.is_spent() {
            0
        } else if ready::counts_bytes(&session) {
            self.report(at, epoll)
        } else {
            // Bytes come over TCP: the kernel's answer is the program's, but for room in the ring.
            let known = ready::with_own_end(socket, &session, fd, found);
            let mut events = known & (wanted | interest::ERR | interest::HUP);
            let room = interest::OUT | interest::WRNORM;
            let rooms = session.sends_by_ring() && events & room != 0;
            if rooms {
                events &= !room;
            }
            if events != 0 {
                let more = ready::besides(socket, &session, fd);
                let input = ready::input(socket, &session, ready::in_tcp(&session, fd));
                let all = Ready { events: events | more.events, input, ..more };
                let interest = &mut self.slots[at as usize].interest;
                // Of bytes there may be a doorbell, when they were reported already. Of the rest the kernel alone knows.
                let of_bytes = interest::IN | interest::RDNORM | room;
                let anyway = known & !of_bytes != 0 || events & room != 0;
                events = if anyway { interest.report_anyway(&all) } else { interest.report(&all) };
            }
            let once = events != 0 && wanted & interest::ONESHOT != 0;
            // By edge, what the kernel says of room is passed over, and a new entry would be told of everything again.
            if rooms && wanted & interest::EDGE == 0 || once {
                let _ = self.register(at, epoll, libc::EPOLL_CTL_MOD);
            }
            events
        };
        if events != 0 {
            self.slots[at as usize].reported = self.turn;
        }
        events
    }

    /// Whether the bytes in the TCP stream are doorbells: the stream's first part is over.
    fn is_doorbell(&self, at: u32, session: &Session<'_>) -> bool {
        self.slots[at as usize].kernel == Kernel::Doorbells
            || !matches!(session.road_in(), Ok(Road::Tcp(_)))
    }
}
