//! The entries of a set: which are hot, how the kernel knows each, and what a call reports.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use transom_switch::interest::{self, Interest};
use transom_switch::session::{Road, Session};

use super::Set;
use crate::ready;
use crate::stream;
use crate::sys::{self, Errno};
use crate::table::Socket;

/// In the upper half of what the kernel keeps for our entries: no address, no small number.
const TAG: u64 = 0xA5C3_0000_0000_0000;
const TAGS: u64 = 0xFFFF_0000_0000_0000;
/// Hot sockets beyond this number cool down after some turns without an event.
const FEW: usize = 128;
pub(super) const IDLE: u32 = 16;
/// Doorbells that lie in a TCP stream before they are taken: fewer than TCP sends without an
/// acknowledgement, which comes when they are taken.
const DOORBELLS: usize = 4;

#[derive(Default)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) hot: Vec<u32>,
    pub(super) turn: u32,
}

/// An entry of the set.
pub(super) struct Slot {
    pub(super) socket: Option<&'static Socket>,
    fd: c_int,
    pub(super) data: u64,
    pub(super) interest: Interest,
    /// How often the slot was used: part of the number that the kernel keeps.
    generation: u16,
    pub(super) kernel: Kernel,
    pub(super) hot: bool,
    counted: bool,
    /// The program has removed the entry, and the kernel's set has it still: programs that remove and add
    /// an entry for each message make no system call. Its next doorbell removes it.
    pub(super) removed: bool,
    /// The call that has reported it last ([`Slots::turn`]).
    reported: u32,
    pub(super) idle: u32,
}

/// How a slot is in the kernel's set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// With our number, by the program's events, and the socket has no segment.
    AsGiven,
    /// The same, and bytes come over TCP still.
    Tcp,
    /// With our number, by edge, for doorbells.
    Doorbells,
}

/// Events by which the kernel has such a slot.
const FOR_DOORBELLS: u32 = interest::IN | interest::RDHUP | interest::EDGE;

/// Whether doorbells of the socket end sleeps of one set, and of nothing else.
fn is_alone(session: &Session<'_>) -> bool {
    session.end().waiting.load(Ordering::SeqCst) == 0
        && session.end().members.load(Ordering::SeqCst) <= 1
}

/// The number by which the kernel knows a slot.
fn number(at: u32, generation: u16) -> u64 {
    TAG | u64::from(generation) << 32 | u64::from(at)
}

impl Slots {
    pub(super) fn is(&self, at: u32, socket: &Socket, fd: c_int) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| {
            slot.fd == fd && slot.socket.is_some_and(|known| std::ptr::eq(known, socket))
        })
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
        self.hot.retain(|hot| *hot != at);
        self.free.push(at);
    }

    /// Tell the kernel how the slot is in its set from now on.
    pub(super) fn register(&mut self, at: u32, epoll: c_int, what: c_int) -> Result<usize, Errno> {
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
            sys::epoll_control(epoll, what, slot.fd, FOR_DOORBELLS, number)
        }
    }

    /// The interest of a slot is a new one: what holds now is found by the next call, or by a thread
    /// that sleeps in the set already.
    pub(super) fn renewed(&mut self, at: u32, set: &'static Set) {
        self.heat(at);
        self.rouse(set);
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
        let events = interest::IN | interest::OUT | interest::RDHUP | interest::EDGE;
        let number = number(at, slot.generation);
        let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_MOD, slot.fd, events, number);
    }

    /// Where the set has a socket.
    pub(super) fn place(&self, socket: &Socket) -> Option<u32> {
        let of = |slot: &Slot| slot.socket.is_some_and(|known| std::ptr::eq(known, socket));
        let hint = socket.slot.load(Ordering::Relaxed);
        match self.slots.get(hint as usize) {
            Some(slot) if of(slot) => Some(hint),
            _ => self.slots.iter().position(of).map(|at| at as u32),
        }
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
        let number = number(at, slot.generation);
        let _ = sys::epoll_control(epoll, libc::EPOLL_CTL_MOD, slot.fd, FOR_DOORBELLS, number);
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

    pub(super) fn is_ready(&self, at: u32) -> bool {
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

    pub(super) fn has_ready(&self) -> bool {
        self.hot.iter().any(|at| self.is_ready(*at))
    }

    pub(super) fn arm_hot(&self, sleep: u64) {
        for at in &self.hot {
            self.arm(*at, sleep);
        }
    }

    pub(super) fn arm(&self, at: u32, sleep: u64) {
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
    pub(super) fn collect(&mut self, epoll: c_int, events: &mut [libc::epoll_event]) -> usize {
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
            // No doorbell: bytes that went past the peer's library.
            if ended || found & interest::IN != 0 && session.doorbells() == 0 {
                socket.look_at_tcp(fd);
            }
            let few = session.doorbells() < DOORBELLS;
            if !few && is_alone(&session) {
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

    /// Events of the kernel's behind `count` of ours: how many there are in all. A socket that was
    /// reported from its ring already is not reported again.
    pub(super) fn merge(
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
