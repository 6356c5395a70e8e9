//! Memory that two processes share: not built for this system yet.

use std::io;

use transom_process::Area;
use transom_process::ring::Shared;

use super::{Fd, GivingBack};

/// A mapping of rings and data areas. There is none on this system.
#[derive(Debug)]
pub(crate) enum Region {}

fn unsupported() -> io::Error {
    let why = "shared memory between processes is built for Linux only";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

impl Region {
    /// Refused.
    pub(crate) fn create() -> io::Result<(Region, Fd)> {
        Err(unsupported())
    }

    /// Refused.
    pub(crate) fn adopt(_fd: Fd) -> io::Result<Region> {
        Err(unsupported())
    }

    #[cfg(test)]
    pub(crate) fn whole(&self) -> (usize, usize) {
        match *self {}
    }

    pub(crate) fn give_back(&self, _side: usize) -> Option<GivingBack> {
        match *self {}
    }
}

impl Area for Region {
    fn shared(&self) -> &Shared {
        match *self {}
    }

    fn address(&self, _side: usize, _offset: usize) -> u64 {
        match *self {}
    }

    fn fill_bytes(&self, _side: usize, _offset: usize, _bytes: &[u8]) {
        match *self {}
    }

    fn read_bytes(&self, _side: usize, _offset: usize, _into: &mut [u8]) {
        match *self {}
    }

    fn fetch_to_write(&self, _line: usize) {
        match *self {}
    }

    fn point(&self, _name: &'static str) {
        match *self {}
    }
}

/// Whether the system lets this process share memory at all.
///
/// # Errors
/// Always: that is not built.
pub(crate) fn try_to_share() -> io::Result<()> {
    Err(unsupported())
}
