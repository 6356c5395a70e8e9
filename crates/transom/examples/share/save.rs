//! Put a file where it belongs, whole or not at all.
//!
//! The bytes go to a file of another name in the same directory, `.OUT.PID.part`, which takes the
//! place of OUT in one step when all of it is on the disk. A program that is killed on the way
//! leaves that file behind; its lock ends with the process, and the next writer of OUT removes it.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const END: &str = ".part";

/// Write `bytes` to `out`. A reader of the file finds the old content, or all of this.
pub(crate) fn whole(out: &Path, bytes: &[u8]) -> Result<()> {
    // Through a link, to what it names.
    let out = &fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    if out.exists() && !out.is_file() {
        return OpenOptions::new().write(true).open(out)?.write_all(bytes); // a device: nothing to replace
    }
    let name = out.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "it is no file name"))?;
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let ours = format!(".{name}.");
    tidy(directory, &ours);

    let part = directory.join(format!("{ours}{}{END}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
    let written = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(Error::from)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&part, out));
    if written.is_err() {
        let _ = fs::remove_file(&part); // the first error says what happened
        return written;
    }
    File::open(directory)?.sync_all() // the new name, too
}

/// Remove what others have left behind who wrote the same file and were killed.
fn tidy(directory: &Path, ours: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let middle = name.to_str().and_then(|n| n.strip_prefix(ours)?.strip_suffix(END));
        if middle.is_some_and(|pid| pid.parse::<u32>().is_ok())
            && let Ok(file) = File::open(entry.path())
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}
