//! Where the bytes of a shared region lie, until it is revoked: the same on every system.

use std::sync::atomic::Ordering;

use super::Lent;

impl Lent {
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// See [`transom_process::lending::Lendable::offset_of`].
    pub(crate) fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.address())?;
        let inside = offset.checked_add(length)? <= self.length as u64;
        // Acquire: once the memory has gone its addresses may be other memory's.
        (inside && !self.revoked.load(Ordering::Acquire)).then_some(offset)
    }

    /// Whether it was revoked.
    pub(crate) fn is_dropped(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.revoke();
    }
}
