//! A file in memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::map::{map, unmap};
use crate::{Buffer, Error, ErrorKind, Result};

/// A file mapped read-only, to be lent without reading it first.
///
/// The mapping never gives out a `&[u8]`: every process that may write to the file can change or
/// cut it at any time. A peer that reads a part which is no longer there is refused; no process
/// crashes.
#[derive(Debug)]
pub struct MappedFile {
    map: Map,
}

/// An address range that is ours.
#[derive(Debug)]
pub struct Map {
    start: *mut u8,
    len: usize,
    /// Name of the mapped file, for messages.
    path: PathBuf,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: a shared `Map` only tells where the memory is.
unsafe impl Sync for Map {}

impl MappedFile {
    /// Map the whole of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an empty file, or one that is no regular file;
    /// [`ErrorKind::System`] if it cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedFile> {
        let path = path.as_ref();
        let asked = || format!("mapping {}", path.display());
        let file = File::open(path).map_err(|error| {
            Error::io(asked(), error).accepted("a file that this user may read")
        })?;
        let data = file.metadata().map_err(|error| Error::io(asked(), error))?;
        if !data.is_file() {
            return Err(Error::caller(ErrorKind::Invalid, asked(), "it is not a regular file")
                .accepted("a regular file"));
        }
        let len = usize::try_from(data.len()).unwrap_or(0);
        if len == 0 {
            return Err(Error::caller(ErrorKind::Invalid, asked(), "the file is empty")
                .accepted("a file of at least one byte"));
        }
        let start = map(&file, len).map_err(|error| Error::io(asked(), error))?;
        Ok(MappedFile { map: Map { start, len, path: path.to_owned() } })
    }

    /// How many bytes were mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len
    }

    /// Never: an empty file cannot be mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len == 0
    }
}

// SAFETY: a mapping stays where it is; its bytes are the file's (or a fault, which is no breach);
// it is read-only, and no reference into it is ever made.
unsafe impl Buffer for MappedFile {
    type Parts = Map;
    const WRITABLE: bool = false;

    fn take_apart(self) -> Map {
        self.map
    }

    fn memory(parts: &Map) -> (*mut u8, usize) {
        (parts.start, parts.len)
    }

    fn name(parts: &Map) -> Option<String> {
        Some(parts.path.display().to_string())
    }

    unsafe fn put_together(parts: Map) -> MappedFile {
        MappedFile { map: parts }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is ours, no reference into it exists, and a registration of it has
        // ended (`Buffer::put_together`).
        unsafe { unmap(self.start, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mapped_is_refused_in_a_sentence() {
        let directory = std::env::temp_dir();
        let error = MappedFile::open(&directory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("regular file"), "{error}");
        let error = MappedFile::open(directory.join("transom-no-such-file")).unwrap_err();
        assert_eq!(error.blame(), crate::Blame::System);
        let empty = directory.join(format!("transom-empty-{}", std::process::id()));
        std::fs::write(&empty, b"").unwrap();
        let error = MappedFile::open(&empty).unwrap_err();
        std::fs::remove_file(&empty).unwrap();
        assert!(error.to_string().contains("empty"), "{error}");
    }
}
