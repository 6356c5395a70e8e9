//! Connecting to a process's socket: there is none on this system yet.

use std::io;
use std::path::Path;
use std::time::Duration;

/// A connection. There is none on this system.
#[derive(Debug)]
pub(crate) enum Stream {}

impl io::Read for Stream {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Stream {
    pub(crate) fn set_read_timeout(&self, _patience: Option<Duration>) -> io::Result<()> {
        match *self {}
    }
}

/// Refused.
pub(crate) fn connect(
    _path: &Path,
    _patience: Duration,
) -> io::Result<Option<(Stream, Option<u32>)>> {
    Err(io::ErrorKind::Unsupported.into())
}
