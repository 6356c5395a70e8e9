//! Buffers that can be registered.

/// Memory that can be handed over to an adapter and taken back.
///
/// While it is registered no code has the buffer: it is *taken apart* and put together again on
/// deregistration. A `Vec` or `Box` that is alive beside foreign writes to what it owns would be
/// undefined behaviour, a pair of numbers is not.
///
/// # Safety
///
/// Between [`take_apart`](Buffer::take_apart) and [`put_together`](Buffer::put_together),
/// [`memory`](Buffer::memory) always names the same bytes, and they
/// * stay where they are when the parts move (so: not `[u8; N]`, not an inline vector),
/// * are initialised, all of them (so: not the spare capacity of a `Vec`),
/// * belong to nothing else in this process (so: no borrow), and
/// * may be written by others at any moment if [`WRITABLE`](Buffer::WRITABLE).
///
/// Pages that vanish (a file cut short) are no breach: an access to them fails, and says so.
///
/// A borrow is not a buffer. An API that took one could only be made safe by something that runs
/// when the borrow ends, and Rust does not promise to run anything:
///
/// ```compile_fail,E0277
/// let adapter = transom::Adapter::open("127.0.0.1".parse().unwrap())?;
/// let mut bytes = [0_u8; 64];
/// let region = adapter.register(&mut bytes[..])?;      // the trait `Buffer` is not implemented
/// # Ok::<(), transom::Error>(())
/// ```
///
/// Neither is an array, which would move away with its owner:
///
/// ```compile_fail,E0277
/// let adapter = transom::Adapter::open("127.0.0.1".parse().unwrap())?;
/// let region = adapter.register([0_u8; 64])?;          // the trait `Buffer` is not implemented
/// # Ok::<(), transom::Error>(())
/// ```
///
/// And a registered buffer is gone until it comes back:
///
/// ```compile_fail,E0382
/// let adapter = transom::Adapter::open("127.0.0.1".parse().unwrap())?;
/// let mut bytes = vec![0_u8; 64];
/// let region = adapter.register(bytes)?;
/// bytes[0] = 1;                                        // borrow of moved value: `bytes`
/// # Ok::<(), transom::Error>(())
/// ```
pub unsafe trait Buffer: Sized + Send + Sync + 'static {
    /// The buffer, taken apart: enough to build it again, without a claim on its bytes.
    type Parts: Send + Sync + 'static;

    /// Whether the adapter, and peers through a window for writing, may write to it.
    const WRITABLE: bool;

    /// Take it apart. The result owns the memory.
    fn take_apart(self) -> Self::Parts;

    /// Where the bytes are, and how many.
    fn memory(parts: &Self::Parts) -> (*mut u8, usize);

    /// The name to call it by when something goes wrong with its pages: the file behind them.
    fn name(_parts: &Self::Parts) -> Option<String> {
        None
    }

    /// Put it together again.
    ///
    /// # Safety
    ///
    /// `parts` come from [`take_apart`](Buffer::take_apart), and nothing else reads or writes the
    /// memory any more.
    unsafe fn put_together(parts: Self::Parts) -> Self;
}

/// A `Vec<u8>` taken apart.
#[derive(Debug)]
pub struct VecParts {
    start: *mut u8,
    len: usize,
    capacity: usize,
}

// SAFETY: the parts own their memory as the `Vec` did, and `Vec<u8>` is `Send`.
unsafe impl Send for VecParts {}
// SAFETY: a shared `VecParts` only tells where the memory is.
unsafe impl Sync for VecParts {}

// SAFETY: a Vec's elements stay on the heap where they are; `len` of them are initialised.
unsafe impl Buffer for Vec<u8> {
    type Parts = VecParts;
    const WRITABLE: bool = true;

    fn take_apart(self) -> VecParts {
        let mut this = std::mem::ManuallyDrop::new(self);
        VecParts { start: this.as_mut_ptr(), len: this.len(), capacity: this.capacity() }
    }

    fn memory(parts: &VecParts) -> (*mut u8, usize) {
        (parts.start, parts.len)
    }

    unsafe fn put_together(parts: VecParts) -> Vec<u8> {
        // SAFETY: these are the parts of a Vec that was not dropped (the caller's promise).
        unsafe { Vec::from_raw_parts(parts.start, parts.len, parts.capacity) }
    }
}

// SAFETY: a boxed slice's bytes stay on the heap where they are, all of them initialised.
unsafe impl Buffer for Box<[u8]> {
    type Parts = VecParts;
    const WRITABLE: bool = true;

    fn take_apart(self) -> VecParts {
        self.into_vec().take_apart()
    }

    fn memory(parts: &VecParts) -> (*mut u8, usize) {
        (parts.start, parts.len)
    }

    unsafe fn put_together(parts: VecParts) -> Box<[u8]> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Vec::put_together(parts) }.into_boxed_slice()
    }
}

/// A `BytesMut` taken apart: its own pointer makes no claim on the bytes while nobody asks it for them.
#[cfg(feature = "bytes")]
pub struct BytesMutParts {
    start: *mut u8,
    len: usize,
    bytes: bytes::BytesMut,
}

#[cfg(feature = "bytes")]
impl std::fmt::Debug for BytesMutParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BytesMutParts").field("start", &self.start).field("len", &self.len).finish()
    }
}

#[cfg(feature = "bytes")]
// SAFETY: the parts own their memory as the `BytesMut` did, and that is `Send`.
unsafe impl Send for BytesMutParts {}
#[cfg(feature = "bytes")]
// SAFETY: shared parts only tell where the memory is.
unsafe impl Sync for BytesMutParts {}

#[cfg(feature = "bytes")]
// SAFETY: the bytes lie on the heap where they stay, `len` of them are initialised, and other parts that
// were split off the same allocation have other bytes. Nothing looks at them through `bytes` meanwhile.
unsafe impl Buffer for bytes::BytesMut {
    type Parts = BytesMutParts;
    const WRITABLE: bool = true;

    fn take_apart(mut self) -> BytesMutParts {
        let (start, len) = (self.as_mut_ptr(), self.len());
        BytesMutParts { start, len, bytes: self }
    }

    fn memory(parts: &BytesMutParts) -> (*mut u8, usize) {
        (parts.start, parts.len)
    }

    unsafe fn put_together(parts: BytesMutParts) -> bytes::BytesMut {
        parts.bytes
    }
}

/// Parts that put the buffer together again, and drop it, when they are dropped: nothing of a
/// buffer is ever lost, whatever path leads out.
pub(crate) struct Owned<B: Buffer>(Option<B::Parts>);

impl<B: Buffer> Owned<B> {
    /// The owned parts, where the bytes are (their provenance exposed: the engine names memory by
    /// address) and how many.
    pub(crate) fn new(buffer: B) -> (Owned<B>, u64, u64) {
        let parts = buffer.take_apart();
        let (start, len) = B::memory(&parts);
        let address = start.expose_provenance() as u64;
        (Owned(Some(parts)), address, len as u64)
    }

    /// See [`Buffer::name`].
    pub(crate) fn name(&self) -> Option<String> {
        self.0.as_ref().and_then(B::name)
    }

    /// The buffer again.
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes the memory any more.
    pub(crate) unsafe fn take(mut self) -> Option<B> {
        // SAFETY: the parts come from `take_apart`; the rest is the caller's promise.
        self.0.take().map(|parts| unsafe { B::put_together(parts) })
    }
}

impl<B: Buffer> Drop for Owned<B> {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            // SAFETY: an `Owned` is dropped only after its memory was deregistered (`region.rs`),
            // and deregistration ends every access (ND2 R18).
            drop(unsafe { B::put_together(parts) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // These run under Miri: they touch the memory through the address while the buffer is apart.
    fn through_the_address(address: u64, at: usize, value: u8) {
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(address as usize + at);
        // SAFETY: `at` is inside the buffer, which is apart and not otherwise accessed.
        unsafe { byte.write(value) };
    }

    #[test]
    fn a_vec_comes_back_the_same_with_what_was_written_meanwhile() {
        let mut vec = Vec::with_capacity(100);
        vec.extend_from_slice(b"over the transom");
        let (start, capacity) = (vec.as_ptr(), vec.capacity());
        let (owned, address, len) = Owned::new(vec);
        assert_eq!(len, 16);
        through_the_address(address, 0, b'O');
        // SAFETY: no other code knows the address.
        let vec = unsafe { owned.take() }.unwrap();
        assert_eq!(vec, b"Over the transom");
        assert_eq!((vec.as_ptr(), vec.capacity()), (start, capacity), "no copy was made");
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_that_were_split_come_back_with_what_was_written_meanwhile() {
        let mut all = bytes::BytesMut::from(&b"over the transom"[..]);
        let rest = all.split_off(4);
        let (owned, address, len) = Owned::new(all);
        assert_eq!(len, 4);
        through_the_address(address, 0, b'O');
        // SAFETY: no other code knows the address.
        let mut all = unsafe { owned.take() }.unwrap();
        all.unsplit(rest);
        assert_eq!(&all[..], b"Over the transom");
    }

    #[test]
    fn a_box_comes_back_and_an_empty_buffer_is_harmless() {
        let (owned, address, _) = Owned::new(vec![7_u8; 64].into_boxed_slice());
        through_the_address(address, 63, 8);
        // SAFETY: no other code knows the address.
        assert_eq!(unsafe { owned.take() }.unwrap()[62..], [7, 8]);
        let (owned, _, len) = Owned::new(Vec::new());
        assert_eq!(len, 0);
        drop(owned);
    }

    #[test]
    fn dropped_parts_drop_the_buffer() {
        struct Counted(std::sync::Arc<()>);
        // SAFETY: no bytes at all.
        unsafe impl Buffer for Counted {
            type Parts = std::sync::Arc<()>;
            const WRITABLE: bool = false;
            fn take_apart(self) -> Self::Parts {
                self.0
            }
            fn memory(_: &Self::Parts) -> (*mut u8, usize) {
                (std::ptr::null_mut(), 0)
            }
            unsafe fn put_together(parts: Self::Parts) -> Self {
                Counted(parts)
            }
        }
        let alive = std::sync::Arc::new(());
        drop(Owned::new(Counted(alive.clone())));
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    }
}
