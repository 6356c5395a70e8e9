//! Shared regions: on this system memory that no peer maps, because every connection takes TCP. A program
//! that asks for some gets ordinary pages.

use std::io;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

use transom_memory::Segment;
use transom_process::lending;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};

use super::Fd;
use crate::Fault;

/// Memory of ours. Dropping the last handle does not revoke it: [`Lent::revoke`] does.
#[derive(Debug)]
pub(crate) struct Lent {
    base: usize,
    pub(super) length: usize,
    pub(super) revoked: AtomicBool,
}

impl Lent {
    /// Fresh memory, all zeros, all of it there.
    pub(crate) fn create(length: usize) -> io::Result<Lent> {
        if !(1..=lending::LARGEST).contains(&(length as u64)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: fresh pages at an address of the system's choice.
        let base =
            unsafe { VirtualAlloc(null(), length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
        if base.is_null() {
            return Err(io::Error::last_os_error());
        }
        let base = base.expose_provenance();
        Ok(Lent { base, length, revoked: AtomicBool::new(false) })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Nothing: there is no peer to hand it over to.
    pub(crate) fn fd(&self) -> Option<&Fd> {
        None
    }

    /// Give the memory back.
    pub(crate) fn revoke(&self) {
        if self.revoked.swap(true, Ordering::AcqRel) {
            return;
        }
        let base = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: allocated by `create`, and released once; the caller has deregistered it, so that no
        // reference into it exists.
        unsafe { VirtualFree(base, 0, MEM_RELEASE) };
    }
}

/// A mapping of memory that a peer has lent. There is none on this system.
#[derive(Debug)]
pub(crate) enum Borrowed {}

impl Borrowed {
    /// Refused.
    pub(crate) fn adopt(_fd: Fd) -> io::Result<Borrowed> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn address(&self, _offset: u64) -> u64 {
        match *self {}
    }

    /// Never called.
    ///
    /// # Safety
    /// None is needed: there is no mapping.
    pub(crate) unsafe fn fill(&self, _offset: u64, _payload: &[Segment]) -> Result<(), Fault> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Safety
    /// None is needed: there is no mapping.
    pub(crate) unsafe fn copy_to(&self, _from: u64, _to: u64, _length: usize) -> Result<(), Fault> {
        match *self {}
    }
}

impl lending::Borrowed for Borrowed {
    fn length(&self) -> u64 {
        match *self {}
    }

    fn is_dropped(&self) -> bool {
        match *self {}
    }
}
