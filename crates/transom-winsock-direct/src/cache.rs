//! The registration cache (WSD 9).
//!
//! A deregistered buffer may stay known, so that registering it again is cheap. Here it stays in the
//! memory table as a region of a domain that has no queue pair, with no right at all: nobody can
//! reach it, because its token was never handed out and permits nothing. The token that the switch
//! or a peer knew is dead (9.2, 9.4). A hit must be the same range with exactly the same flags (9.3).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use transom_engine::raw;

use crate::below::{self, Region};
use crate::error::{Error, Result};

/// Buffers kept at most; the oldest leaves first.
const MOST: usize = 256;

/// A buffer, and what it was registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u32,
}

/// The buffers of one adapter.
#[derive(Debug)]
pub(crate) struct Cache {
    adapter: raw::Adapter,
    domain: raw::Domain,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    clock: u64,
    regions: HashMap<Key, (u64, Region)>,
}

impl Cache {
    pub(crate) fn new(adapter: &raw::Adapter) -> Result<Cache> {
        let domain = adapter.domain().map_err(below::failed)?;
        Ok(Cache { adapter: adapter.clone(), domain, kept: Mutex::default() })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer is registered again: whether it was known.
    pub(crate) fn hit(&self, key: Key) -> bool {
        self.kept().regions.contains_key(&key)
    }

    /// A registration has ended: keep its buffer.
    pub(crate) fn keep(&self, key: Key) {
        let region = Region::unreachable(&self.adapter, self.domain, key.address, key.length);
        let Ok(region) = region else { return }; // not kept, which nobody notices
        let mut kept = self.kept();
        kept.clock += 1;
        let now = kept.clock;
        let mut gone = kept.regions.insert(key, (now, region));
        if kept.regions.len() > MOST {
            let oldest = kept.regions.iter().min_by_key(|(_, (age, _))| *age).map(|(key, _)| *key);
            gone = oldest.and_then(|key| kept.regions.remove(&key));
        }
        drop(kept);
        if let Some((_, region)) = gone {
            region.close();
        }
    }

    /// Memory goes away: forget every buffer that has a byte in it (5.5: also partly). How many.
    pub(crate) fn forget(&self, address: u64, length: u64) -> usize {
        let mut kept = self.kept();
        let mut gone = Vec::new();
        kept.regions.retain(|_, (_, region)| {
            let touched = region.touches(address, length);
            if touched {
                gone.push(region.clone());
            }
            !touched
        });
        drop(kept);
        gone.iter().for_each(Region::close);
        gone.len()
    }
}

/// What the cache callback returns: there was nothing of it.
pub(crate) fn never_cached() -> Error {
    Error::WSAEINVAL
}
