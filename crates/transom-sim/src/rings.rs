//! Links over shared memory: the shipped rings (`transom_process::Duplex`) in memory of the simulator.
//!
//! A real link has a socket beside its rings, by which sleepers are woken and which says when the other
//! side has ended. Here a [`Way`](crate::network::Way) says that the bell rings, and when, and that it
//! is closed.

use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_core::{Direct, Fault, Output};
use transom_memory::Segment;
use transom_process::ring::{INLINE, Shared};
use transom_process::{Area, Duplex};
use transom_wire::{Message, MessageId, SMALL_HEADER, Time, Wire};

use crate::arena::Arena;
use crate::watch::Watcher;

/// The pretended address of data areas: no memory of a process lies there.
const BASE: u64 = 1 << 60;
/// From one to the next.
const APART: u64 = 1 << 24;

/// Memory that two processes share.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    shared: Shared,
    data: [Mutex<Vec<u8>>; 2],
}

impl Memory {
    /// A fresh one, of the link of that number.
    #[must_use]
    pub fn new(link: usize, data: usize) -> Memory {
        let area = || Mutex::new(vec![0; data]);
        let base = BASE + 2 * APART * link as u64;
        Memory { base, shared: Shared::default(), data: [area(), area()] }
    }

    fn area(&self, side: usize) -> MutexGuard<'_, Vec<u8>> {
        self.data[side.min(1)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes at an address, if they lie in a data area.
    fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let from = address.checked_sub(self.base)?;
        let (side, offset) = ((from / APART) as usize, (from % APART) as usize);
        if side > 1 {
            return None;
        }
        self.area(side).get(offset..offset.checked_add(length)?).map(<[u8]>::to_vec)
    }
}

/// The memory that a process has mapped.
#[derive(Debug, Default)]
pub struct Maps(Mutex<Vec<Weak<Memory>>>);

impl Maps {
    /// Map it.
    pub fn add(&self, memory: &Arc<Memory>) {
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|map| map.strong_count() > 0);
        maps.push(Arc::downgrade(memory));
    }

    /// The bytes at an address.
    pub fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        maps.iter().find_map(|map| map.upgrade()?.read(address, length))
    }
}

/// That memory as one side sees it. The side may end at any point of the ring code: what it does
/// afterwards, the other one does not see.
#[derive(Debug)]
pub struct View {
    memory: Arc<Memory>,
    /// The process ends when it has come by so many points more; 0: never.
    fuse: Cell<u32>,
    ended: Cell<Option<&'static str>>,
    grave: OnceCell<Box<Shared>>,
}

impl View {
    /// The view of a side that lives.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> View {
        View { memory, fuse: Cell::new(0), ended: Cell::new(None), grave: OnceCell::new() }
    }

    /// The process ends at the `points`-th point from now on.
    pub fn doom(&self, points: u32) {
        self.fuse.set(points);
    }

    /// Where it has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&'static str> {
        self.ended.get()
    }
}

impl Area for View {
    fn shared(&self) -> &Shared {
        match self.ended.get() {
            None => &self.memory.shared,
            Some(_) => self.grave.get_or_init(Box::default),
        }
    }

    fn address(&self, side: usize, offset: usize) -> u64 {
        self.memory.base + APART * side as u64 + offset as u64
    }

    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        if self.ended.get().is_none()
            && let Some(place) = self.memory.area(side).get_mut(offset..offset + bytes.len())
        {
            place.copy_from_slice(bytes);
        }
    }

    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        if let Some(bytes) = self.memory.area(side).get(offset..offset + into.len()) {
            into.copy_from_slice(bytes);
        }
    }

    fn point(&self, name: &'static str) {
        if self.ended.get().is_none() && self.fuse.get() > 0 {
            self.fuse.set(self.fuse.get() - 1);
            if self.fuse.get() == 0 {
                self.ended.set(Some(name));
            }
        }
    }
}

/// A side's rings, and how it stands to them.
#[derive(Debug)]
pub struct Rings {
    /// The shipped ones.
    pub duplex: Duplex<View>,
    /// Bytes of those waiting that have left.
    pub written: usize,
    /// This side has said that it sleeps, and waits for the bell.
    pub asleep: bool,
}

impl Rings {
    /// A side's.
    #[must_use]
    pub fn new(memory: Arc<Memory>, side: usize, (slots, data): (usize, usize)) -> Rings {
        let duplex = Duplex::sized(View::new(memory), side, slots, data);
        Rings { duplex, written: 0, asleep: false }
    }
}

/// The outgoing side of rings during one call.
#[derive(Debug)]
pub struct Outlet<'a> {
    /// The rings.
    pub rings: &'a mut Rings,
    /// Bytes that wait.
    pub out: &'a mut Vec<u8>,
    /// Bytes that may leave before others have their turn.
    pub left: usize,
    /// Bytes that waited have left.
    pub flowing: bool,
    /// Frames are copied into the buffer first.
    pub copies: bool,
    /// Where segments lie.
    pub arena: &'a Arena,
    /// Counts.
    pub watcher: &'a Watcher,
}

impl Outlet<'_> {
    /// Move what waits into the rings, as far as there is room.
    pub fn write(&mut self) {
        self.flowing = self.rings.duplex.write(self.out, &mut self.rings.written);
        if !self.flowing {
            self.watcher.see().counters.hit("ring full");
        }
    }
}

impl Outlet<'_> {
    /// Write a Write whose payload does not fit a slot.
    fn write_large(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        let fill = |view: &View, side, offset| {
            view.fill_bytes(side, offset, payload);
            Ok::<(), Infallible>(())
        };
        let header = || wire.whole(now, id, message);
        let done = self.rings.duplex.write_large(payload.len(), fill, header) == Ok(true);
        if done {
            self.watcher.see().whole_out(payload);
            self.watcher.see().counters.hit("large write sent at once");
            self.left = self.left.saturating_sub(SMALL_HEADER + payload.len());
        }
        done
    }
}

impl Output for Outlet<'_> {
    fn room(&self) -> usize {
        let waiting = self.out.get(self.rings.written..).unwrap_or_default();
        if !self.rings.duplex.has_room(waiting) {
            self.watcher.see().counters.hit("ring full");
            return 0;
        }
        if self.flowing { self.left.saturating_sub(waiting.len()) } else { 0 }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    fn wants_direct(&self, _length: usize) -> bool {
        true
    }

    fn takes(&self, length: usize) -> bool {
        let free = self.flowing && self.left > 0;
        free && self.rings.duplex.takes(length, self.out.len())
    }

    fn whole(
        &mut self,
        (wire, now): (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[u8],
    ) -> bool {
        if payload.len() > INLINE {
            return self.write_large((wire, now), id, message, payload);
        }
        let header = wire.whole(now, id, message);
        let Some(header) = &header else { return false };
        self.watcher.see().whole_out(payload);
        self.rings.duplex.write_small(header, payload);
        self.left = self.left.saturating_sub(SMALL_HEADER + payload.len());
        true
    }

    fn lend_whole(
        &mut self,
        link: (&mut dyn Wire, Time),
        id: MessageId,
        message: &Message,
        payload: &[Segment],
    ) -> Direct {
        match self.arena.collect(payload) {
            Ok(bytes) if self.write_large(link, id, message, &bytes) => Direct::Taken,
            Ok(_) => Direct::Copy,
            Err(Fault) => Direct::Fault,
        }
    }

    fn direct(&mut self, header: &[u8], payload: &[Segment], _trailer: &[u8]) -> Direct {
        self.write();
        if !self.flowing || self.copies || !self.out.is_empty() {
            return Direct::Copy;
        }
        let arena = self.arena;
        let collect = || arena.collect(payload);
        let gather = |into: &mut [u8]| {
            let bytes = collect()?;
            into.get_mut(..bytes.len()).ok_or(Fault)?.copy_from_slice(&bytes);
            Ok(())
        };
        let fill = |view: &View, side, offset| {
            view.fill_bytes(side, offset, &collect()?);
            Ok(())
        };
        let total: u64 = payload.iter().map(|segment| segment.length).sum();
        match self.rings.duplex.write_direct(header, total, gather, fill) {
            Ok(true) => {
                self.watcher.see().counters.hit("sent without a copy");
                self.left = self.left.saturating_sub(SMALL_HEADER + total as usize);
                Direct::Taken
            }
            Ok(false) => Direct::Copy,
            Err(Fault) => Direct::Fault,
        }
    }
}
