//! The files of a capture. They hold the bytes of programs, so no other user may read them, and no
//! existing file is written over: a file that another user has put there is not ours.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use transom_packets::Files;

use super::Fd;

/// Names that are tried for a process whose name is taken, too.
const TRIES: u32 = 100;

/// The file of a capture, or the newest of a ring.
#[derive(Debug)]
pub(crate) struct CaptureFiles {
    /// The path without a file's number.
    base: PathBuf,
    file: Fd,
    /// How many are kept; `None`: there is only one.
    ring: Option<u32>,
    next: u64,
    kept: VecDeque<PathBuf>,
}

impl CaptureFiles {
    /// The first file, at `path` or, where that exists, at a path with the process's number in it.
    pub(crate) fn begin_at(path: &Path, ring: Option<u32>) -> io::Result<CaptureFiles> {
        let process = std::process::id().to_string();
        let mut base = path.to_owned();
        for again in 0..TRIES {
            let first = if ring.is_some() { inserted(&base, ".", "1") } else { base.clone() };
            match create(&first) {
                Ok(file) => {
                    let kept = VecDeque::from([first]);
                    return Ok(CaptureFiles { base, file, ring, next: 2, kept });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            let number =
                if again == 0 { process.clone() } else { format!("{process}-{}", again + 1) };
            base = inserted(path, "-", &number);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where the first file lies, if there is only one, or their common name.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }
}

impl Files for CaptureFiles {
    fn begin(&mut self) -> io::Result<()> {
        let path = inserted(&self.base, ".", &self.next.to_string());
        self.next += 1;
        // First, so that a full disk has room for the new one.
        while self.kept.len() as u64 >= u64::from(self.ring.unwrap_or(1)).max(1) {
            if let Some(oldest) = self.kept.pop_front() {
                let _ = std::fs::remove_file(oldest);
            }
        }
        self.file = create(&path)?;
        self.kept.push_back(path);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.file, bytes)?)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        rustix::fs::ftruncate(&self.file, length)?;
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(length))?;
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<Fd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = Fd::make(|| rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR))?;
    // A process that would replace an old capture sees that this one is none. Without locks the file is as good.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok(file)
}

/// A path with something before its extension.
fn inserted(path: &Path, separator: &str, text: &str) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, ToOwned::to_owned);
    name.push(separator);
    name.push(text);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn of_a_ring_the_newest_files_are_kept() {
        let folder = folder("ring");
        std::fs::write(folder.join("x.9.pcapng"), "another's").unwrap();
        let mut files = CaptureFiles::begin_at(&folder.join("x.pcapng"), Some(2)).unwrap();
        for kept in [["x.1.pcapng", "x.2.pcapng"], ["x.2.pcapng", "x.3.pcapng"]] {
            assert_eq!(files.write(b"a block").unwrap(), 7);
            files.begin().unwrap();
            assert_eq!(names(&folder), [&kept[..], &["x.9.pcapng"]].concat());
        }
        files.write(b"whole, half").unwrap();
        files.cut(6).unwrap();
        files.write(b"!").unwrap();
        assert_eq!(std::fs::read(folder.join("x.3.pcapng")).unwrap(), b"whole,!");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_link_is_not_followed_and_a_taken_name_not_used() {
        let folder = folder("link");
        let (path, elsewhere) = (folder.join("x.pcapng"), folder.join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let files = CaptureFiles::begin_at(&path, None).unwrap();
        let again = CaptureFiles::begin_at(&path, None).unwrap();
        assert!(!elsewhere.exists());
        let process = std::process::id();
        assert_eq!(files.base(), folder.join(format!("x-{process}.pcapng")));
        assert_eq!(again.base(), folder.join(format!("x-{process}-2.pcapng")));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_number_of_a_file_stands_before_the_extension() {
        for (path, expected) in
            [("/a/x.pcapng", "/a/x-7.pcapng"), ("x", "x-7"), ("a.b/x.y.z", "a.b/x.y-7.z")]
        {
            assert_eq!(inserted(Path::new(path), "-", "7"), Path::new(expected));
        }
    }
}
