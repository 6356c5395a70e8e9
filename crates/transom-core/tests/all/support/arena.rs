//! Application memory at made-up addresses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use transom_core::{Fault, HostMemory};
use transom_wire::Atomic;

/// Buffers at addresses of their own. A buffer can vanish, like pages that are unmapped.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    buffers: Mutex<BTreeMap<u64, Vec<u8>>>,
    ahead: AtomicUsize,
}

impl Arena {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Put a buffer at `address`.
    pub(crate) fn insert(&self, address: u64, bytes: Vec<u8>) {
        self.lock().insert(address, bytes);
    }

    /// The buffer at `address` is gone.
    pub(crate) fn vanish(&self, address: u64) {
        self.lock().remove(&address);
    }

    /// A copy of what lies at `address`; `None` where nothing is.
    #[must_use]
    pub(crate) fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.append(address, length, &mut out).ok().map(|()| out)
    }

    /// How many lines were asked for ahead.
    pub(crate) fn fetched_ahead(&self) -> usize {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Do `then` with the bytes at `address`.
    fn at<T>(
        &self,
        address: u64,
        length: usize,
        then: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Fault> {
        let mut buffers = self.lock();
        let (base, bytes) = buffers.range_mut(..=address).next_back().ok_or(Fault)?;
        let start = usize::try_from(address - base).map_err(|_| Fault)?;
        let end = start.checked_add(length).ok_or(Fault)?;
        Ok(then(bytes.get_mut(start..end).ok_or(Fault)?))
    }
}

impl HostMemory for Arena {
    fn append(&self, from: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.at(from, length, |bytes| out.extend_from_slice(bytes))
    }

    fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.at(from, into.len(), |bytes| into.copy_from_slice(bytes))
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.at(to, bytes.len(), |place| place.copy_from_slice(bytes))
    }

    fn share(&self, _from: u64, _to: u64, _length: usize) -> Result<(), Fault> {
        Err(Fault) // nothing is shared
    }

    fn atomic(&self, word: u64, operation: Atomic) -> Result<u64, Fault> {
        self.at(word, 8, |place| {
            let mut old = [0; 8];
            old.copy_from_slice(place);
            let old = u64::from_ne_bytes(old);
            place.copy_from_slice(&operation.result(old).to_ne_bytes());
            old
        })
    }

    fn fetch_ahead(&self, _line: usize) {
        self.ahead.fetch_add(1, Ordering::Relaxed);
    }
}
