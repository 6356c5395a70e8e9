//! Links over shared memory: the shipped rings (`transom_process::Duplex`) in memory of the simulator.
//!
//! A real link has a socket beside its rings, by which sleepers are woken and which says when the other
//! side has ended. Here a [`Way`](crate::network::Way) says that the bell rings, and when, and that it
//! is closed.

use std::cell::{Cell, OnceCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_memory::Segment;
use transom_process::ring::Shared;
use transom_process::{Area, Duplex, NoRegions, RingCarrier};
use transom_wire::{Around, Carrier, Direct, Room};

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

    /// Put bytes at an address. `false`: that lies in no data area.
    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let Some(from) = address.checked_sub(self.base) else { return false };
        let (side, offset) = ((from / APART) as usize, (from % APART) as usize);
        if side > 1 {
            return false;
        }
        let mut area = self.area(side);
        let place = area.get_mut(offset..offset + bytes.len());
        place.map(|place| place.copy_from_slice(bytes)).is_some()
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

    /// Put bytes at an address. `false`: that is not mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        maps.iter().any(|map| map.upgrade().is_some_and(|memory| memory.write(address, bytes)))
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

/// The shipped writing end of rings during one call, with the watcher looking over its shoulder.
#[derive(Debug)]
pub struct Outlet<'a> {
    carrier: RingCarrier<'a, View, NoRegions>,
    /// Where segments lie, and where the rings are mapped.
    arena: &'a Arena,
    watcher: &'a Watcher,
    /// Of the reserved frame: bytes in front of its payload, of its payload, and where that is, if it is shared.
    reserved: (usize, usize, Option<u64>),
}

impl<'a> Outlet<'a> {
    /// An end that lets `limit` bytes leave; `out` waits.
    pub fn new(
        rings: &'a mut Rings,
        out: &'a mut Vec<u8>,
        limit: usize,
        (arena, watcher): (&'a Arena, &'a Watcher),
    ) -> Outlet<'a> {
        let Rings { duplex, written, .. } = rings;
        let carrier = RingCarrier::new(duplex, NoRegions, (out, written), limit);
        Outlet { carrier, arena, watcher, reserved: (0, 0, None) }
    }
}

impl Carrier for Outlet<'_> {
    fn room(&self) -> usize {
        let room = self.carrier.room();
        if room == 0 {
            self.watcher.see().counters.hit("ring full");
        }
        room
    }

    fn takes(&self, length: usize) -> bool {
        self.carrier.takes(length)
    }

    fn reserve(&mut self, around: Around, length: usize) -> Room<'_> {
        let room = self.carrier.reserve(around, length);
        let shared = if let Room::Shared(address) = &room { Some(*address) } else { None };
        self.reserved = (around.front, length, shared);
        room
    }

    fn put(&mut self, payload: &[u8]) {
        self.carrier.put(payload);
    }

    fn frame(&mut self) -> &mut [u8] {
        self.carrier.frame()
    }

    fn commit(&mut self) {
        let (front, length, shared) = self.reserved;
        // The other side sees nothing of what one writes that has ended.
        if length > 0 && self.carrier.duplex().area().ended().is_none() {
            let payload = match shared {
                Some(address) => self.arena.maps.read(address, length).unwrap_or_default(),
                None => self.carrier.frame().get(front..).unwrap_or_default().to_vec(),
            };
            let mut watch = self.watcher.see();
            watch.carried(&payload);
            if shared.is_some() {
                watch.counters.hit("payload beside a slot");
            }
        }
        self.carrier.commit();
    }

    fn release(&mut self) {
        self.carrier.release();
    }

    fn wants_lend(&self, length: usize) -> bool {
        self.carrier.wants_lend(length)
    }

    fn lend(&mut self, header: &[u8], payload: &[Segment], trailer: &[u8]) -> Direct {
        self.carrier.lend(header, payload, trailer)
    }

    fn wants_sink(&self, length: u64) -> bool {
        self.carrier.wants_sink(length)
    }

    fn lend_sink(&mut self, header: &[u8], sink: Segment) -> bool {
        self.carrier.lend_sink(header, sink)
    }
}
