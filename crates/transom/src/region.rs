//! Registered memory.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::{Buffer, Posted, Result};

/// A registered buffer. Owns it, and gives it back on [`deregister`](Region::deregister).
///
/// Dropping it deregisters, too, as soon as the last [`Window`](crate::Window), [`Slice`] and
/// request that refer to it are gone; then the buffer is dropped.
///
/// There is no way to a reference into it, because others write to it:
///
/// ```compile_fail,E0608
/// # fn f(region: transom::Region<Vec<u8>>) -> u8 {
/// region[0]                                            // cannot index
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn f(region: &transom::Region<Vec<u8>>) -> &[u8] {
/// region.as_ref()                                      // `AsRef<[u8]>` is not implemented
/// # }
/// # fn g(region: &transom::Region<Vec<u8>>) where transom::Region<Vec<u8>>: AsRef<[u8]> {}
/// # fn h(region: &transom::Region<Vec<u8>>) { g(region) }
/// ```
///
/// An atomic to spin on lives no longer than the region:
///
/// ```compile_fail,E0505
/// # fn f(region: transom::Region<Vec<u8>>) -> transom::Result<()> {
/// let bell = region.atomic_u8(0)?;
/// let vec = region.deregister();                       // cannot move out while borrowed
/// bell.load(std::sync::atomic::Ordering::Acquire);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Region<B: Buffer> {
    pub(crate) shared: Arc<Registered>,
    _buffer: PhantomData<fn() -> B>,
}

#[derive(Debug)]
pub(crate) struct Registered {}

/// A range of a registered buffer: where a request takes its bytes from or puts them. Keeps the
/// buffer alive.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) region: Arc<Registered>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl<B: Buffer> Region<B> {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Whether there are none. (Never: such a buffer is not accepted.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of it. Nothing is judged here: a range that reaches past the end is refused when it
    /// is used.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Slice {
        let _ = range;
        todo!()
    }

    /// Copy bytes out, from offset `at`. They may change while they are copied; the copy is yours.
    /// Fails if the pages have vanished.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let _ = (at, into);
        todo!()
    }

    /// Copy bytes in, to offset `at`. The buffer must be writable.
    pub fn copy_in(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let _ = (at, bytes);
        todo!()
    }

    /// The byte at offset `at`, to watch or to set while peers write. A Write's bytes become visible
    /// in increasing address order, so its last byte says that all of it is there (load with
    /// `Acquire`). The buffer must be writable.
    pub fn atomic_u8(&self, at: u64) -> Result<&AtomicU8> {
        let _ = at;
        todo!()
    }

    /// Eight bytes at offset `at`, which must be a multiple of 8 in memory.
    pub fn atomic_u64(&self, at: u64) -> Result<&AtomicU64> {
        let _ = at;
        todo!()
    }

    /// Take the buffer back. When the result is there, no access is under way and none will begin
    /// (ND2 R18). With windows still bound it is refused as [`Busy`](crate::ErrorKind::Busy), and
    /// [`Error::recover`](crate::Error::recover) hands the region back.
    pub fn deregister(self) -> Posted<B> {
        todo!()
    }
}
