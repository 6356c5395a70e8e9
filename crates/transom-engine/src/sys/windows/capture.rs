//! The files of a capture: there are none on this system, because nothing of a process is called when
//! it exits, so that the last packets would be lost. `exit.rs` refuses before a file is asked for.

use std::io;
use std::path::Path;

use transom_packets::Files;

/// The file of a capture. There is none on this system.
#[derive(Debug)]
pub(crate) enum CaptureFiles {}

impl CaptureFiles {
    /// Refused.
    pub(crate) fn begin_at(_path: &Path, _ring: Option<u32>) -> io::Result<CaptureFiles> {
        Err(io::Error::new(io::ErrorKind::Unsupported, super::exit::NO_HOOKS))
    }

    pub(crate) fn base(&self) -> &Path {
        match *self {}
    }
}

impl Files for CaptureFiles {
    fn begin(&mut self) -> io::Result<()> {
        match *self {}
    }

    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn cut(&mut self, _length: u64) -> io::Result<()> {
        match *self {}
    }
}
