//! Bytes that a handler of a signal has sent on a blocking connection while the call that it has interrupted had the
//! lock of sending.
//!
//! Over TCP such a send succeeds (`signal-safety(7)` has it among the calls of handlers), and a handler cannot wait
//! for its own thread. The bytes are kept, and sent by the interrupted call when it has given the lock back, or by
//! any send before.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Bytes that one call of a handler has sent.
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flags: c_int,
    next: *mut Piece,
}

/// The pieces of a connection, the latest first.
#[derive(Default)]
pub(crate) struct Deferred {
    latest: AtomicPtr<Piece>,
    sending: AtomicBool,
}

/// Pieces are being sent: what handlers send meanwhile comes behind them.
pub(crate) struct Sending<'a>(&'a AtomicBool);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Deferred {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.latest.load(Ordering::Acquire).is_null()
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Acquire)
    }

    /// `None`: another call sends them.
    pub(crate) fn begin(&self) -> Option<Sending<'_>> {
        (!self.sending.swap(true, Ordering::AcqRel)).then_some(Sending(&self.sending))
    }

    pub(crate) fn put(&self, bytes: Vec<u8>, flags: c_int) {
        let piece = Box::into_raw(Box::new(Piece { bytes, flags, next: std::ptr::null_mut() }));
        let link = |latest: *mut Piece| {
            // SAFETY: made above, and not in the list yet.
            unsafe { (*piece).next = latest };
            Some(piece)
        };
        let _ = self.latest.fetch_update(Ordering::AcqRel, Ordering::Acquire, link);
    }

    /// All pieces, the earliest first.
    pub(crate) fn take(&self) -> Vec<Piece> {
        let mut at = self.latest.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let mut all = Vec::new();
        while !at.is_null() {
            // SAFETY: made by `put`, and this call's alone since the list was taken.
            let piece = *unsafe { Box::from_raw(at) };
            at = piece.next;
            all.push(piece);
        }
        all.reverse();
        all
    }
}
