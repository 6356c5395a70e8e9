//! The switch's `WSAOVERLAPPED`, by its address (WSD 7).
//!
//! The structure's memory is the switch's until the operation has begun, and the provider's until
//! it has completed (WSD O-10). Fields are read and written as atomics, because the switch polls
//! them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::abi::Overlapped;
use crate::error::Error;

/// `Internal` of an operation under way.
const PENDING: usize = 0x103;

/// An operation, named by the address of its `WSAOVERLAPPED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(usize);

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `None`: it worked.
    pub error: Option<Error>,
    /// Bytes moved.
    pub bytes: u32,
    /// Flags of the call.
    pub flags: u32,
}

impl Operation {
    /// # Safety
    /// `overlapped` is a `WSAOVERLAPPED` that stays, and that nothing else writes, until the
    /// operation has completed; afterwards it is not used through this value.
    #[must_use]
    pub unsafe fn new(overlapped: *mut Overlapped) -> Option<Operation> {
        (!overlapped.is_null()).then(|| Operation(overlapped.expose_provenance()))
    }

    pub(crate) fn address(self) -> usize {
        self.0
    }

    fn at(self) -> *mut Overlapped {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    fn word(self, field: impl Fn(*mut Overlapped) -> *mut usize) -> &'static AtomicUsize {
        // SAFETY: the contract of `new`: the structure stays until the operation has completed, and
        // is not used afterwards.
        unsafe { AtomicUsize::from_ptr(field(self.at())) }
    }

    fn half(self, field: impl Fn(*mut Overlapped) -> *mut u32) -> &'static AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(field(self.at())) }
    }

    fn internal(self) -> &'static AtomicUsize {
        // SAFETY: no access, only the field's address.
        self.word(|at| unsafe { &raw mut (*at).internal })
    }

    /// The switch will poll for it: no upcall (WSD O-3).
    #[must_use]
    pub(crate) fn is_polled(self) -> bool {
        // SAFETY: the contract of `new`; the switch does not write it while the operation runs.
        unsafe { (*self.at()).event }.addr() & 1 != 0
    }

    /// Before the request is posted (WSD O-8).
    pub(crate) fn begin(self, flags: u32) {
        // SAFETY: no access, only the fields' addresses.
        self.word(|at| unsafe { &raw mut (*at).internal_high }).store(0, Ordering::Relaxed);
        // SAFETY: as above.
        self.half(|at| unsafe { &raw mut (*at).offset }).store(flags, Ordering::Relaxed);
        // SAFETY: as above.
        self.half(|at| unsafe { &raw mut (*at).offset_high }).store(0, Ordering::Relaxed);
        self.internal().store(PENDING, Ordering::Release);
    }

    /// The operation never began after all: the call failed.
    pub(crate) fn retract(self) {
        self.internal().store(0, Ordering::Release);
    }

    /// Everything of it is over (WSD O-9); from here on it is the switch's again.
    pub(crate) fn finish(self, error: Option<Error>, bytes: u32) {
        let code = error.map_or(0, |error| error.0 as u32);
        // SAFETY: no access, only the fields' addresses.
        self.half(|at| unsafe { &raw mut (*at).offset_high }).store(code, Ordering::Relaxed);
        // SAFETY: as above.
        let high = self.word(|at| unsafe { &raw mut (*at).internal_high });
        high.store(bytes as usize, Ordering::Relaxed);
        self.internal().store(0, Ordering::Release);
    }

    /// `None` while it is under way.
    #[must_use]
    pub(crate) fn outcome(self) -> Option<Outcome> {
        if self.internal().load(Ordering::Acquire) == PENDING {
            return None;
        }
        // SAFETY: no access, only the fields' addresses.
        let code = self.half(|at| unsafe { &raw mut (*at).offset_high }).load(Ordering::Relaxed);
        // SAFETY: as above.
        let bytes = self.word(|at| unsafe { &raw mut (*at).internal_high });
        // SAFETY: as above.
        let flags = self.half(|at| unsafe { &raw mut (*at).offset }).load(Ordering::Relaxed);
        Some(Outcome {
            error: (code != 0).then_some(Error(code as i32)),
            bytes: u32::try_from(bytes.load(Ordering::Relaxed)).unwrap_or(u32::MAX),
            flags,
        })
    }
}
