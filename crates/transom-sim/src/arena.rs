//! A process's memory: buffers at made-up addresses, which can vanish like pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use transom_core::{Fault, HostMemory};
use transom_memory::{Memory, Segment, Token};
use transom_wire::Atomic;

use crate::rings::Maps;
use crate::watch::Watcher;

/// A buffer. Only its first `valid` bytes can be touched: the rest of its file was cut off.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    valid: usize,
}

/// The buffers of one process. Every copy is shown to the watcher first.
#[derive(Debug)]
pub struct Arena {
    process: usize,
    memory: Arc<Memory>,
    watcher: Watcher,
    buffers: Mutex<BTreeMap<u64, Buffer>>,
    /// Memory shared with peers.
    pub maps: Maps,
}

impl Arena {
    /// No memory yet. `memory`: the table whose guards must be held while bytes are copied.
    #[must_use]
    pub fn new(process: usize, memory: Arc<Memory>, watcher: Watcher) -> Arena {
        Arena { process, memory, watcher, buffers: Mutex::default(), maps: Maps::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Buffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Put a buffer at `address`.
    pub fn insert(&self, address: u64, bytes: Vec<u8>) {
        if let Some(shadow) = self.watcher.see().shadows.get_mut(self.process) {
            shadow.insert(address, bytes.clone());
        }
        let valid = bytes.len();
        self.lock().insert(address, Buffer { bytes, valid });
    }

    /// The program writes its own memory.
    pub fn poke(&self, address: u64, at: usize, bytes: &[u8]) {
        if let Some(buffer) = self.lock().get_mut(&address)
            && let Some(place) = buffer.bytes.get_mut(at..at + bytes.len())
        {
            place.copy_from_slice(bytes);
            self.watcher.see().paint(self.process, address + at as u64, bytes);
        }
    }

    /// Only the first bytes of a buffer are left; 0: it is gone.
    pub fn truncate(&self, address: u64, valid: usize) {
        if let Some(buffer) = self.lock().get_mut(&address) {
            buffer.valid = buffer.valid.min(valid);
        }
    }

    /// The pages behind `address` are gone.
    pub fn tear(&self, address: u64) {
        if let Some((base, buffer)) = self.lock().range_mut(..=address).next_back() {
            buffer.valid = buffer.valid.min((address - base) as usize);
        }
    }

    /// Addresses and sizes of the buffers.
    #[must_use]
    pub fn buffers(&self) -> Vec<(u64, usize)> {
        self.lock().iter().map(|(address, buffer)| (*address, buffer.bytes.len())).collect()
    }

    /// Compare everything with what it must be.
    pub fn compare(&self) {
        let mut watch = self.watcher.see();
        for (address, buffer) in &*self.lock() {
            watch.compare(self.process, *address, &buffer.bytes);
        }
    }

    /// Rule 5: each copy holds a guard, so that a close waits.
    fn guarded(&self, region: Option<u32>) {
        let Some(region) = region else { return };
        let guards = self.memory.counts(Token(region)).map_or(0, |counts| counts.guards);
        if guards == 0 && self.memory.passes() == 0 {
            self.watcher.see().fail("bytes are copied, and no guard is held (rule 5)");
        }
    }

    /// Do `then` with as many of the bytes as are there.
    fn at<T>(
        &self,
        address: u64,
        length: usize,
        then: impl FnOnce(&mut [u8]) -> T,
    ) -> (Option<T>, bool) {
        let mut buffers = self.lock();
        let Some((base, buffer)) = buffers.range_mut(..=address).next_back() else {
            return (None, false);
        };
        let start = (address - base) as usize;
        let end = (start + length).min(buffer.valid);
        match buffer.bytes.get_mut(start..end) {
            Some(place) => (Some(then(place)), end == start + length),
            None => (None, false),
        }
    }

    fn fault(&self) -> Fault {
        let mut watch = self.watcher.see();
        watch.with(|_, _, stream| stream.faulted = true);
        Fault
    }
}

impl Arena {
    /// The bytes of segments, one behind the other.
    pub fn collect(&self, segments: &[Segment]) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        for segment in segments {
            self.append(segment.host, segment.length as usize, &mut bytes)?;
        }
        Ok(bytes)
    }
}

impl HostMemory for Arena {
    fn append(&self, from: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        if let Some(bytes) = self.maps.read(from, length) {
            self.watcher.see().kept(&bytes);
            out.extend_from_slice(&bytes);
            return Ok(());
        }
        let region = self.watcher.see().reads(self.process, from, length as u64);
        self.guarded(region);
        let before = out.len();
        let (_, whole) = self.at(from, length, |bytes| out.extend_from_slice(bytes));
        if !whole {
            out.truncate(before);
            return Err(self.fault());
        }
        self.watcher.see().on_bytes_read(out.get(before..).unwrap_or_default());
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        let Some(bytes) = self.maps.read(from, length) else {
            self.watcher.see().fail(format!("{length} bytes at {from:#x} are in no ring"));
            return Err(Fault);
        };
        self.watcher.see().counters.hit("placed out of a ring");
        self.write(to, &bytes)
    }

    fn share(&self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        self.append(from, length, &mut bytes)?;
        if !self.maps.write(to, &bytes) {
            self.watcher.see().fail(format!("{length} bytes go to {to:#x}, which is in no ring"));
        }
        Ok(())
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        let region = self.watcher.see().writes(self.process, to, bytes);
        self.guarded(region);
        // On a fault a prefix may stand.
        let (placed, whole) = self.at(to, bytes.len(), |place| {
            place.copy_from_slice(bytes.get(..place.len()).unwrap_or_default());
            place.len()
        });
        let placed = placed.unwrap_or(0);
        self.watcher.see().paint(self.process, to, bytes.get(..placed).unwrap_or_default());
        if whole { Ok(()) } else { Err(self.fault()) }
    }

    fn atomic(&self, word: u64, operation: Atomic) -> Result<u64, Fault> {
        let region = self.watcher.see().changes(self.process, word, operation);
        self.guarded(region);
        let (old, _) = self.at(word, 8, |place| {
            let old = place.first_chunk_mut::<8>()?;
            let before = u64::from_ne_bytes(*old);
            *old = operation.result(before).to_ne_bytes();
            Some(before)
        });
        let Some(old) = old.flatten() else { return Err(self.fault()) };
        let mut watch = self.watcher.see();
        watch.paint(self.process, word, &operation.result(old).to_ne_bytes());
        watch.changed(old);
        Ok(old)
    }
}
