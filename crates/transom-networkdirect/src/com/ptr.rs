//! Pointers of C callers. Their validity is the interface's contract (ND2 1.6: null or valid for
//! the call), so that following one is sound exactly as far as the caller keeps it. Null is checked
//! here, in one place.

use std::borrow::Cow;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::net::SocketAddr;

use transom_engine::raw::socket_address;

/// `const T*`, or an array of them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InPtr<T>(*const T, PhantomData<T>);

/// `T*` that the call writes; may be null where the interface says so.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutPtr<T>(*mut T, PhantomData<T>);

impl<T: Copy> InPtr<T> {
    #[cfg(test)]
    pub(crate) fn to(value: &T) -> InPtr<T> {
        InPtr(value, PhantomData)
    }

    /// The pointer's address.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// The value.
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: not null, hence valid by the interface's contract; alignment is not presumed.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// `count` values; an empty slice for none, whatever the pointer.
    pub(crate) fn many<'a>(self, count: usize) -> Option<&'a [T]> {
        if count == 0 {
            return Some(&[]);
        }
        if self.0.is_null() || !self.0.is_aligned() {
            return None;
        }
        // SAFETY: not null and aligned, hence `count` valid values by the interface's contract,
        // which the caller leaves alone during the call.
        Some(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<T: Copy> OutPtr<T> {
    #[cfg(test)]
    pub(crate) fn to(value: &mut T) -> OutPtr<T> {
        OutPtr(value, PhantomData)
    }

    /// This place as a pointer to something else: a field of a structure.
    pub(crate) fn at(address: usize) -> OutPtr<T> {
        OutPtr(std::ptr::with_exposed_provenance_mut(address), PhantomData)
    }

    /// Whether there is nothing to write to.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer's address.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// The value that is there now.
    pub(crate) fn get(self) -> Option<T> {
        InPtr(self.0.cast_const(), PhantomData).get()
    }

    /// Write, unless it is null.
    pub(crate) fn put(self, value: T) {
        self.put_at(0, value);
    }

    /// Write element `index` of the array.
    pub(crate) fn put_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, hence valid for writes by the interface's contract; the callers
            // here stay below the number of elements that the program named.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }
}

impl OutPtr<usize> {
    /// The place for a new object: null until there is one, hence after every error (ND2 1.6).
    pub(crate) fn emptied(self) -> OutPtr<usize> {
        self.put(0);
        self
    }
}

impl OutPtr<u8> {
    /// Copy bytes to it.
    pub(crate) fn put_bytes(self, bytes: &[u8]) {
        if !self.0.is_null() && !bytes.is_empty() {
            // SAFETY: not null, hence valid for as many bytes as the program named, and `bytes` is
            // never longer than that.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        }
    }
}

impl InPtr<u8> {
    /// A text with its final zero byte. What is no UTF-8 is replaced.
    pub(crate) fn text<'a>(self) -> Option<Cow<'a, str>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, hence a text that ends with a zero byte by the interface's contract,
        // which the caller leaves alone during the call.
        Some(unsafe { CStr::from_ptr(self.0.cast()) }.to_string_lossy())
    }

    /// A socket address of `length` bytes, which cover the family's structure; `None` for a family or
    /// length that is none.
    pub(crate) fn socket_address(self, length: usize) -> Option<SocketAddr> {
        let address = socket_address::decode(self.many(length.min(128))?)?;
        (length >= socket_address::length(address.ip())).then_some(address)
    }
}

/// Copy from the program's memory; `None` if its pages are not there.
pub(crate) fn copy_from_program(address: u64, into: &mut [u8]) -> Option<()> {
    // SAFETY: the program says that its bytes are there, and leaves them alone during the call; the
    // copy survives if they are not.
    unsafe { transom_engine::raw::copy_out(address, into) }.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_address_is_as_long_as_its_structure() {
        for text in ["127.0.0.2:54321", "[::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = socket_address::encode(address);
            let read = |length| InPtr::to(&bytes[0]).socket_address(length);
            assert_eq!([read(bytes.len()), read(bytes.len() - 1)], [Some(address), None]);
        }
    }
}
