//! Registered memory.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use transom_engine::{Status, raw};
use transom_memory::{Rights, Segment, Token};

use crate::buffer::Owned;
use crate::grant::resolve;
use crate::{Adapter, Blame, Buffer, Error, ErrorKind, Posted, Result, explain};

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

/// The part that a region, its slices, its windows and the requests that use it share. The last of
/// them deregisters, and then frees the buffer: in this order, always.
pub(crate) struct Registered {
    pub(crate) adapter: Adapter,
    pub(crate) token: Token,
    pub(crate) base: u64,
    pub(crate) len: u64,
    writable: bool,
    named: bool,
    /// An `Owned<B>`; gone once the buffer was given back.
    buffer: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len, self.base)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.named {
            self.adapter.shared.names.remove(&(self.base..self.base + self.len));
        }
        let buffer = self.buffer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if buffer.is_none() {
            return; // deregistered, and given back
        }
        // No window is bound any more: each holds a `Registered`. When this has succeeded, no
        // access is under way and none will begin (ND2 R18), and the buffer may go. If not, it must
        // stay.
        if self.adapter.deregister(self.token).is_err() && !self.adapter.is_foreign() {
            std::mem::forget(buffer);
        }
    }
}

/// A range of a registered buffer: where a request takes its bytes from or puts them. Keeps the
/// buffer alive.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) region: Arc<Registered>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Slice {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first bytes.
    pub(crate) fn first(self, len: u64) -> Slice {
        Slice { len, ..self }
    }

    pub(crate) fn address(&self) -> u64 {
        self.region.base.wrapping_add(self.offset)
    }
}

impl<B: Buffer> Region<B> {
    pub(crate) fn new(adapter: &Adapter, buffer: B) -> Result<Region<B>> {
        let (owned, base, len) = Owned::new(buffer);
        let asked = || format!("registering {len} bytes");
        if len == 0 {
            return Err(Error::caller(ErrorKind::Invalid, asked(), "there is nothing to register")
                .accepted("a buffer of at least one byte"));
        }
        let local =
            if B::WRITABLE { Rights::LOCAL_READ | Rights::LOCAL_WRITE } else { Rights::LOCAL_READ };
        let segments = [Segment { host: base, length: len }];
        let (domain, rights) = (adapter.domain(), local | Rights::BIND);
        // SAFETY: the buffer is apart; `Registered` holds its parts, and lets go of them only after
        // deregistration. `Buffer` promises that nothing else uses the memory.
        let token = unsafe { adapter.raw().register(domain, base, &segments, rights) }
            .map_err(|error| explain::call(&asked(), &error))?;
        let name = owned.name();
        let named = name.is_some();
        if let Some(name) = name {
            adapter.shared.names.add(base..base + len, name);
        }
        let buffer: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(Some(Box::new(owned)));
        let (adapter, writable) = (adapter.clone(), B::WRITABLE);
        let shared = Arc::new(Registered { adapter, token, base, len, writable, named, buffer });
        Ok(Region { shared, _buffer: PhantomData })
    }

    /// Give it a name, for messages about refusals and for `transom show`. The first 31 bytes of
    /// the name are kept.
    ///
    /// ```
    /// let adapter = transom::Adapter::open("127.0.0.1".parse()?)?;
    /// let log = adapter.register(vec![0; 4096])?.named("log");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Region<B> {
        self.shared.adapter.raw().set_name(self.shared.token, name);
        self
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    /// Whether there are none. (Never: such a buffer is not accepted.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.len == 0
    }

    /// A range of it. Nothing is judged here: a range that reaches past the end is refused when it
    /// is used.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Slice {
        let (start, end) = resolve(&range, self.shared.len);
        Slice { region: Arc::clone(&self.shared), offset: start, len: end.saturating_sub(start) }
    }

    /// Copy bytes out, from offset `at`. Peers may change the bytes while they are copied; the copy
    /// is yours. Fails if the pages have vanished.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the range is not inside, [`ErrorKind::MemoryGone`] if pages have
    /// vanished: a prefix may have been copied then.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.shared.copy_out(at, into)
    }

    /// Copy bytes in, to offset `at`. The buffer must be writable.
    ///
    /// # Errors
    /// As [`copy_out`](Region::copy_out); and [`ErrorKind::Invalid`] for a buffer that is
    /// read-only.
    pub fn copy_in(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let host = self.shared.host("copying in", at, len)?;
        self.shared.must_be_writable(|| format!("copying {len} bytes in at offset {at}"))?;
        // SAFETY: the range is inside the registered buffer (checked), which is writable (checked)
        // and apart while `self` lives, so that no reference to it exists.
        unsafe { raw::copy_in(host, bytes) }
            .map_err(|fault| gone(format!("copying {len} bytes in at offset {at}"), fault.placed))
    }

    /// The byte at offset `at`, to watch or to set while peers write. A Write's bytes become
    /// visible in increasing address order, so its last byte says that all of it is there (load
    /// with `Acquire`). The buffer must be writable, and its pages must stay: memory of this
    /// process, not of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the byte is not inside, or the buffer is read-only.
    #[inline]
    pub fn atomic_u8(&self, at: u64) -> Result<&AtomicU8> {
        let host = self.shared.atomic::<AtomicU8>(at)?;
        // SAFETY: see `Registered::atomic`; the reference borrows `self`, which must be whole to be
        // deregistered.
        Ok(unsafe { AtomicU8::from_ptr(host) })
    }

    /// Eight bytes at offset `at`, which must be a multiple of 8 in memory.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the bytes are not inside or not aligned, or the buffer is
    /// read-only.
    #[inline]
    pub fn atomic_u64(&self, at: u64) -> Result<&AtomicU64> {
        let host = self.shared.atomic::<AtomicU64>(at)?;
        // SAFETY: as above, and aligned.
        Ok(unsafe { AtomicU64::from_ptr(host.cast()) })
    }

    /// Take the buffer back. When the result is there, no access is under way and none will begin
    /// (ND2 R18). With windows still bound it is refused as [`Busy`](crate::ErrorKind::Busy), and
    /// [`Error::recover`](crate::Error::recover) hands the region back.
    ///
    /// Requests that were posted with a [`Slice`] of it and have not completed are refused when
    /// their turn comes (ND2 R17).
    pub fn deregister(self) -> Posted<B> {
        let shared = &self.shared;
        let asked = || format!("deregistering {} bytes", shared.len);
        if let Err(error) = shared.adapter.deregister(shared.token) {
            let asked = asked();
            if error.status != Status::DeviceBusy {
                return Posted::ready(Err(explain::call(&asked, &error)));
            }
            let windows = match shared.adapter.windows(shared.token) {
                1 => "1 window is".to_owned(),
                count => format!("{count} windows are"),
            };
            let why = format!("{windows} still bound to it (`transom explain unused_region`)");
            return Posted::ready(Err(Error::caller(ErrorKind::Busy, asked, why)
                .accepted("the same once they are revoked; Error::recover hands the region back")
                .giving_back(self)));
        }
        let buffer = shared.buffer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let owned = buffer.and_then(|buffer| (buffer as Box<dyn Any>).downcast::<Owned<B>>().ok());
        // SAFETY: deregistration has succeeded: the engine touches the memory no more. `self` is
        // the only way to a copy or an atomic, and it ends here.
        match owned.and_then(|owned| unsafe { owned.take() }) {
            Some(buffer) => Posted::ready(Ok(buffer)),
            None => Posted::ready(Err(Error::system(asked(), "the buffer is not there"))),
        }
    }
}

impl Registered {
    /// The address of `len` bytes at offset `at`, if they are inside.
    #[inline]
    fn host(&self, doing: &str, at: u64, len: u64) -> Result<u64> {
        if at <= self.len && len <= self.len - at {
            return Ok(self.base + at);
        }
        Err(self.outside(doing, at, len))
    }

    #[cold]
    fn outside(&self, doing: &str, at: u64, len: u64) -> Error {
        Error::caller(
            ErrorKind::Invalid,
            format!("{doing} {len} bytes at offset {at}"),
            format!("the buffer has {} bytes", self.len),
        )
        .accepted(format!("a range inside its {} bytes", self.len))
    }

    pub(crate) fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let len = into.len() as u64;
        let host = self.host("copying out", at, len)?;
        // SAFETY: the range is inside the registered buffer (checked), which is apart while its
        // `Region` lives, so that no mutable reference to it exists.
        unsafe { raw::copy_out(host, into) }
            .map_err(|fault| gone(format!("copying {len} bytes out at offset {at}"), fault.placed))
    }

    fn must_be_writable(&self, asked: impl FnOnce() -> String) -> Result<()> {
        if self.writable { Ok(()) } else { Err(read_only(asked())) }
    }

    /// Where an atomic of type `T` lies: inside, writable, aligned. Everyone else reaches these
    /// bytes by address (peers' writes through the engine's copy, `copy_in`, other atomics), never
    /// by a reference.
    #[inline]
    fn atomic<T>(&self, at: u64) -> Result<*mut u8> {
        let (size, align) = (size_of::<T>() as u64, align_of::<T>() as u64);
        let host = self.host("an atomic of", at, size)?;
        match usize::try_from(host) {
            Ok(address) if self.writable && host.is_multiple_of(align) => {
                Ok(std::ptr::with_exposed_provenance_mut(address))
            }
            _ => Err(self.no_atomic(at, host, (size, align))),
        }
    }

    /// Why there is no atomic of this size and alignment at `host`, which lies inside.
    #[cold]
    fn no_atomic(&self, at: u64, host: u64, (size, align): (u64, u64)) -> Error {
        let asked = format!("an atomic of {size} bytes at offset {at}");
        if !self.writable {
            return read_only(asked);
        }
        if !host.is_multiple_of(align) {
            let offset = at + (align - host % align);
            return Error::caller(ErrorKind::Invalid, asked, "it would not be aligned")
                .accepted(format!("offset {offset}"));
        }
        Error::system(asked, "no such address")
    }
}

#[cold]
fn read_only(asked: String) -> Error {
    Error::caller(ErrorKind::Invalid, asked, "the buffer is read-only")
        .accepted("a buffer of writable memory, such as a Vec<u8>")
}

fn gone(asked: String, placed: usize) -> Error {
    let why = format!(
        "its pages are gone from byte {placed} on: unmapped, protected, or cut off their file"
    );
    Error::new(ErrorKind::MemoryGone, Blame::System, asked, why).accepted(explain::LASTING_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together again, it looks whether its token is still live.
    struct Suspicious {
        bytes: Vec<u8>,
        seen: Arc<Mutex<Seen>>,
    }

    #[derive(Default)]
    struct Seen {
        registered: Option<(Adapter, Token)>,
        live: Vec<bool>,
    }

    // SAFETY: as for the Vec that it holds.
    unsafe impl Buffer for Suspicious {
        type Parts = (<Vec<u8> as Buffer>::Parts, Arc<Mutex<Seen>>);
        const WRITABLE: bool = true;
        fn take_apart(self) -> Self::Parts {
            (self.bytes.take_apart(), self.seen)
        }
        fn memory(parts: &Self::Parts) -> (*mut u8, usize) {
            <Vec<u8> as Buffer>::memory(&parts.0)
        }
        unsafe fn put_together((bytes, seen): Self::Parts) -> Suspicious {
            let mut inner = seen.lock().unwrap();
            let live = inner
                .registered
                .take()
                .map(|(adapter, token)| adapter.raw().counts(token).is_some());
            inner.live.extend(live);
            drop(inner);
            // SAFETY: the caller's promise, passed on.
            Suspicious { bytes: unsafe { Buffer::put_together(bytes) }, seen }
        }
    }

    /// ND2 R18: a buffer that is freed while its token lives is foreign memory open to peers.
    #[test]
    fn a_buffer_never_outlives_its_registration_the_wrong_way_round() {
        let adapter = Adapter::open([127, 0, 0, 1].into()).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let register = || {
            let buffer = Suspicious { bytes: vec![0; 64], seen: seen.clone() };
            let region = adapter.register(buffer).unwrap();
            assert!(adapter.raw().counts(region.shared.token).is_some(), "registered");
            seen.lock().unwrap().registered = Some((adapter.clone(), region.shared.token));
            region
        };
        drop(register());
        drop(register().deregister().wait().unwrap());
        let region = register();
        let slice = region.slice(..);
        drop(region);
        drop(slice);
        assert_eq!(seen.lock().unwrap().live, [false; 3]);
    }
}
