//! Memory that peers' processes may map.

use std::sync::{Arc, Weak};

use super::{Adapter, Error, Result};
use crate::Status;
use crate::driver::{Shared, SharedRegion};

/// Memory for registrations whose bytes cross once to a peer on this host.
///
/// The memory is used, and registered, like any other. If a request that moves a few KiB
/// or more from it, or a Read into it, goes over shared memory to a process of the same user, that
/// process maps all of it, and copies the bytes out of it, or into it, under its own check. **That is a
/// grant: the peer's process may look at the whole of it (and change it, once it is the sink of a Read),
/// registered or not, until it is dropped, so keep nothing else in it.**
///
/// Dropping it takes the pages away from every process, whatever the peer does, and waits for none.
/// Deregister first, as with any memory.
#[derive(Debug)]
pub struct SharedMemory {
    adapter: Weak<Shared>,
    region: Arc<SharedRegion>,
}

impl SharedMemory {
    /// The address of the first byte: at the beginning of a page.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region.memory.address()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.region.memory.length()
    }

    /// The connections whose peer has mapped it now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.region.peers()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        match self.adapter.upgrade().filter(|adapter| !adapter.is_foreign()) {
            Some(adapter) => adapter.regions.revoke(&self.region),
            None => self.region.memory.revoke(),
        }
    }
}

impl Adapter {
    /// Memory for registrations that peers' processes of the same user may map: see [`SharedMemory`]. All
    /// zeros, and all of it there. With [`Options::shared_regions`](super::Options::shared_regions) off no
    /// peer maps it.
    ///
    /// # Errors
    /// `InvalidParameter(0)` for no bytes, or more than 64 GiB; `InsufficientResources` if the system has
    /// no memory or no descriptor; `DeviceRemoved`.
    pub fn shared_memory(&self, length: usize) -> Result<SharedMemory> {
        let shared = self.0.present()?;
        let asked = |e: std::io::Error| format!("make {length} bytes to be shared: {e}");
        let region = shared.regions.create(length).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidInput => Error::caller(
                Status::InvalidParameter(0),
                format!("make {length} bytes to be shared: from 1 to 64 GiB are accepted"),
            ),
            _ => Error::system(Status::InsufficientResources, asked(e)),
        })?;
        Ok(SharedMemory { adapter: Arc::downgrade(shared), region })
    }
}
