//! Files that others may have put where one of this user's is looked for.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Open a regular file for reading. No link is followed, and nothing is waited for: no pipe's other end, and no
/// process with a lease.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::from(ErrorKind::InvalidInput)) }
}

/// The content of such a file, up to so many bytes.
pub(crate) fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
