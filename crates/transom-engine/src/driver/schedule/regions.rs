//! The shared regions of an adapter: memory that its program has made for peers' processes to map.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use transom_process::lending::Lendable;

use crate::sys;

/// A shared region, and how many peers have mapped it.
#[derive(Debug)]
pub(crate) struct SharedRegion {
    pub(crate) memory: sys::Lent,
    peers: AtomicUsize,
}

impl SharedRegion {
    /// The number of connections whose peer has mapped the region.
    pub(crate) fn peers(&self) -> usize {
        self.peers.load(Ordering::Relaxed)
    }
}

/// All shared regions of an adapter.
#[derive(Debug, Default)]
pub(crate) struct SharedRegions {
    all: Mutex<Vec<Arc<SharedRegion>>>,
    count: AtomicUsize,
}

impl SharedRegions {
    /// Make a region of so many bytes.
    pub(crate) fn create(&self, length: usize) -> std::io::Result<Arc<SharedRegion>> {
        let memory = sys::Lent::create(length)?;
        let region = Arc::new(SharedRegion { memory, peers: AtomicUsize::new(0) });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(region.clone());
        self.count.store(all.len(), Ordering::Release);
        Ok(region)
    }

    /// Take a region back from every process: when this returns, its pages are gone.
    pub(crate) fn revoke(&self, region: &Arc<SharedRegion>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| !Arc::ptr_eq(one, region));
        self.count.store(all.len(), Ordering::Release);
        drop(all);
        region.memory.revoke();
    }

    /// Whether there are none: the usual case, for one load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The region in which these bytes lie.
    pub(crate) fn find(&self, address: u64, length: u64) -> Option<Arc<SharedRegion>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|one| one.memory.offset_of(address, length).is_some()).cloned()
    }

    /// Regions, their bytes, and how many times one is mapped by a peer.
    pub(crate) fn counts(&self) -> (usize, u64, usize) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = all.iter().map(|one| one.memory.length() as u64).sum();
        (all.len(), bytes, all.iter().map(|one| one.peers()).sum())
    }
}

/// A region that the peer of one link was handed.
#[derive(Debug)]
pub(crate) struct Handed {
    region: Arc<SharedRegion>,
    mapped: bool,
}

impl Handed {
    pub(crate) fn new(region: Arc<SharedRegion>) -> Handed {
        Handed { region, mapped: false }
    }

    pub(crate) fn length(&self) -> u64 {
        self.region.memory.length() as u64
    }
}

impl Lendable for Handed {
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        self.region.memory.offset_of(address, length)
    }

    fn is_dropped(&self) -> bool {
        self.region.memory.is_dropped()
    }

    fn on_mapped(&mut self) {
        self.mapped = true;
        self.region.peers.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if self.mapped {
            self.region.peers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
