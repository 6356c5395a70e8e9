//! The provider's own receive buffer for the first message of a connection (WSD N-1 to N-3).
//!
//! The passive switch posts its receives only after accept, which may be after the negotiation
//! message has arrived. So one private receive stands first in line from before the connection is
//! up; what it gets is copied to the switch's first receive, one message to one buffer. Later
//! messages find the switch's own receives, or wait at their sender until there is one.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use transom_engine::sys;
use transom_memory::Grant;

use crate::SIZE_LIMIT;
use crate::error::{Error, Result};

/// Room for one message of the greatest size. Untouched pages of it cost nothing.
#[derive(Debug)]
pub(crate) struct PrivateBuffer(NonNull<u8>);

// SAFETY: plain memory, owned by this value.
unsafe impl Send for PrivateBuffer {}
// SAFETY: it is written by the adapter only, until the receive has completed, and read afterwards.
unsafe impl Sync for PrivateBuffer {}

const LAYOUT: Layout = match Layout::from_size_align(SIZE_LIMIT as usize, 4096) {
    Ok(layout) => layout,
    Err(_) => Layout::new::<u64>(),
};

impl PrivateBuffer {
    pub(crate) fn new() -> Option<PrivateBuffer> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).map(PrivateBuffer)
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The message, after its receive has completed and its registration has ended.
    pub(crate) fn message(&self, length: u32) -> Vec<u8> {
        let length = (length as usize).min(LAYOUT.size());
        // SAFETY: so many bytes are ours, were zeroed at least, and nobody writes them any more.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), length) }.to_vec()
    }
}

impl Drop for PrivateBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}

/// Copy into memory of the switch's under the table's grant. Pages that are gone are an error.
pub(crate) fn copy(grant: &Grant<'_>, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    for segment in grant.segments() {
        let length = usize::try_from(segment.length).unwrap_or(usize::MAX).min(rest.len());
        let (piece, others) = rest.split_at(length);
        // SAFETY: the segment lies in memory that the switch has registered for writing, and the
        // grant keeps the registration while the copy runs. Pages that are gone fault safely.
        unsafe { sys::copy_in(segment.host, piece) }.map_err(|_| Error::WSAEFAULT)?;
        rest = others;
    }
    Ok(())
}
