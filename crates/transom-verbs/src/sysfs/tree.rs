//! Files below a directory that the environment names. The way there and all that is below may have been
//! prepared by another user, so each step is opened by itself, no link is followed, and nothing is written
//! into a folder that another user may change.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use transom_os::users;

/// A folder, for steps from there; a link in its place is none.
const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A file in such a folder. No wait for a pipe in its place.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// A file whose number changes.
const NUMBER: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// A folder, to be locked or listed.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory of this user's, which no other may change.
pub(super) struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// The directory at `path`, step by step from `/`.
    ///
    /// # Errors
    /// A step is a link or no folder, or the directory is another user's or open to others.
    pub(super) fn open(path: &Path) -> Result<Tree> {
        if !path.is_absolute() {
            return Err(refused(path, "has to begin with /"));
        }
        let mut folder = rustix::fs::openat(CWD, "/", FOLDER, Mode::empty())?;
        for step in path.components().skip(1) {
            folder = step_into(&folder, step).map_err(|error| at(path, step, &error))?;
        }
        check(&folder).map_err(|why| refused(path, &why))?;
        Ok(Tree { root: folder })
    }

    /// The folder at `path` below the directory, which is made if there is none.
    ///
    /// # Errors
    /// As [`Tree::open`]; the system's.
    pub(super) fn folder(&self, path: &str) -> Result<OwnedFd> {
        let path = Path::new(path);
        let mut folder = self.root.try_clone()?;
        for step in path.components() {
            let made = rustix::fs::mkdirat(&folder, step.as_os_str(), Mode::from_raw_mode(0o755));
            if let Err(error) = made
                && error != Errno::EXIST
            {
                return Err(at(path, step, &error.into()));
            }
            folder = step_into(&folder, step).map_err(|error| at(path, step, &error))?;
            check(&folder).map_err(|why| refused(path, &why))?;
        }
        Ok(folder)
    }

    /// Have a file with this text at `path`, at once: another process may read, or write the same.
    ///
    /// # Errors
    /// As [`Tree::folder`].
    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.folder(folder)?;
        let found = rustix::fs::openat(&folder, name, FILE, Mode::empty());
        if found.is_ok_and(|file| is_text(file, text)) {
            return Ok(());
        }
        self.replace(&folder, name, |new| self.make(new, text))
    }

    /// Have a symbolic link to `to` at `path`, at once. Nothing here follows it.
    ///
    /// # Errors
    /// As [`Tree::folder`].
    pub(super) fn link(&self, path: &str, to: &str) -> Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.folder(folder)?;
        let found = rustix::fs::readlinkat(&folder, name, Vec::new());
        if found.is_ok_and(|found| found.as_bytes() == to.as_bytes()) {
            return Ok(());
        }
        self.replace(&folder, name, |new| Ok(rustix::fs::symlinkat(to, &self.root, new)?))
    }

    /// Remove the folders in the one at `path` that are not named, with the files in them.
    ///
    /// # Errors
    /// As [`Tree::folder`].
    pub(super) fn keep(&self, path: &str, named: &[String]) -> Result<()> {
        let folder = self.folder(path)?;
        for entry in Dir::read_from(&folder_to_read(&folder, c".")?)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_named = named.iter().any(|named| named.as_bytes() == name.to_bytes());
            if entry.file_type() == FileType::Directory && !is_named && !is_dots(name) {
                remove(&folder, name).or_else(none_is_left)?;
            }
        }
        Ok(())
    }

    /// Whether there is a file with this text at `path`.
    pub(super) fn has(&self, path: &str, text: &str) -> bool {
        let file = rustix::fs::openat(&self.root, path, FILE, Mode::empty());
        file.is_ok_and(|file| is_text(file, text))
    }

    /// Have files of these names in a folder, each with its text if it is new.
    ///
    /// # Errors
    /// As [`Tree::folder`].
    pub(super) fn begin<'a>(
        &self,
        folder: &str,
        mut files: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<()> {
        let folder = self.folder(folder)?;
        files.try_for_each(|(name, text)| self.begin_one(&folder, name, text))
    }

    fn begin_one(&self, folder: &OwnedFd, name: &str, text: &str) -> Result<()> {
        let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::RegularFile) {
            return Ok(());
        }
        self.replace(folder, name, |new| self.make(new, text))
    }

    /// A new file at the top.
    fn make(&self, new: &str, text: &str) -> Result<()> {
        let file = rustix::fs::openat(&self.root, new, NEW_FILE, Mode::from_raw_mode(0o644))?;
        transom_os::signals::without_signals(|| File::from(file).write_all(text.as_bytes()))
    }

    /// Add to the numbers in files of a folder, where they lie: programs keep such a file open, and read it again.
    /// `false`, and nothing was added: another process does so at this moment.
    ///
    /// # Errors
    /// As [`Tree::folder`].
    pub(super) fn add<'a>(
        &self,
        folder: &str,
        numbers: impl Iterator<Item = (&'a str, u64)>,
    ) -> Result<bool> {
        let folder = self.folder(folder)?;
        let lock = rustix::fs::openat(&folder, ".", LISTED, Mode::empty())?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        for (name, more) in numbers.filter(|(_, more)| *more > 0) {
            self.begin_one(&folder, name, "0\n")?;
            let file = rustix::fs::openat(&folder, name, NUMBER, Mode::empty())?;
            add_to(&File::from(file), more)?;
        }
        Ok(true)
    }

    /// Put what `make` makes under a name of its own at the top in the place of `name`.
    fn replace(
        &self,
        folder: &OwnedFd,
        name: &str,
        make: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let new = format!(".new-{:016x}", u64::from_ne_bytes(random));
        let put = || rustix::fs::renameat(&self.root, &new, folder, name).map_err(Error::from);
        let done = make(&new).and_then(|()| put());
        if done.is_err() {
            let _ = rustix::fs::unlinkat(&self.root, &new, AtFlags::empty());
        }
        done
    }
}

/// Whether a file has this text.
fn is_text(file: OwnedFd, text: &str) -> bool {
    let mut found = Vec::new();
    // A byte more: a longer file is another one.
    let read = File::from(file).take(text.len() as u64 + 1).read_to_end(&mut found);
    read.is_ok() && found == text.as_bytes()
}

/// Remove a folder and the files in it.
fn remove(folder: &OwnedFd, name: &CStr) -> Result<()> {
    let gone = folder_to_read(folder, name)?;
    for entry in Dir::read_from(&gone)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            rustix::fs::unlinkat(&gone, entry.file_name(), AtFlags::empty())
                .map_err(Error::from)
                .or_else(none_is_left)?;
        }
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// The list of what is in a folder below another. A link in its place is none.
fn folder_to_read(folder: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, name, LISTED | OFlags::NOFOLLOW, Mode::empty())?)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Another process removes the same, or has put something there again.
fn none_is_left(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty => Ok(()),
        _ => Err(error),
    }
}

/// Add to the number that a file is, by one short write: a reader in the middle of that may see digits of both numbers.
fn add_to(file: &File, more: u64) -> Result<()> {
    /// The longest number, and the end of its line.
    const LONGEST: usize = 21;
    let mut room = [0; LONGEST];
    let read = file.read_at(&mut room, 0)?;
    let found = room.get(..read).and_then(|text| std::str::from_utf8(text).ok());
    let before: Option<u64> = found.and_then(|text| text.trim_end().parse().ok());
    let text = format!("{}\n", before.unwrap_or(0).wrapping_add(more));
    transom_os::signals::without_signals(|| {
        file.write_all_at(text.as_bytes(), 0)?;
        // Longer only if it was no number, or if the number began anew.
        if read > text.len() || before.is_none() { file.set_len(text.len() as u64) } else { Ok(()) }
    })
}

/// The folder that is one step below; neither a step back nor a link is one.
fn step_into(folder: &OwnedFd, step: Component<'_>) -> Result<OwnedFd> {
    let Component::Normal(name) = step else { return Err(ErrorKind::InvalidInput.into()) };
    Ok(rustix::fs::openat(folder, name, FOLDER, Mode::empty())?)
}

/// Whether a folder is this user's, and no other may change what is in it.
fn check(folder: &OwnedFd) -> std::result::Result<(), String> {
    let about = rustix::fs::fstat(folder).map_err(|error| error.to_string())?;
    let (owner, user) = (about.st_uid, users::own());
    if !users::owns(folder, owner) {
        let many = if owner == user { users::UNMAPPED } else { "" };
        return Err(format!("is user {owner}'s{many}, and has to be user {user}'s"));
    }
    let mode = about.st_mode & 0o777;
    if mode & 0o022 != 0 {
        return Err(format!("may be changed by others (mode {mode:o}), and has to have mode 755"));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// An error at one step of a path, in words.
fn at(path: &Path, step: Component<'_>, error: &Error) -> Error {
    let step = step.as_os_str().display();
    let why = match error.kind() {
        ErrorKind::NotADirectory => "is a link or no folder".to_owned(),
        ErrorKind::InvalidInput => "is no step down".to_owned(),
        _ => format!("cannot be entered: {error}"),
    };
    Error::new(error.kind(), format!("{}: `{step}` {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A folder for one test.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().canonicalize().unwrap();
        let path = path.join(format!("transom-tree-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn v105_files_are_written_and_replaced() {
        let root = scratch("files");
        let tree = Tree::open(&root).unwrap();
        for text in ["1\n", "1\n", "12\n", "1\n", ""] {
            tree.write("a/b/c", text).unwrap();
            assert_eq!(fs::read_to_string(root.join("a/b/c")).unwrap(), text);
        }
        let left: Vec<_> = fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["a"], "nothing but the tree is left");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v175_counters_are_the_sums_of_all_who_count() {
        let root = scratch("counts");
        let file = root.join("a/n");
        let text = || fs::read_to_string(&file).unwrap();
        let tree = Tree::open(&root).unwrap();
        let add = |more| tree.add("a", [("n", more), ("still", 0)].into_iter()).unwrap();
        for _ in 0..2 {
            tree.begin("a", [("n", "0\n")].into_iter()).unwrap();
            assert!(add(7));
        }
        assert_eq!(text(), "14\n", "what is there stays");
        assert!(!root.join("a/still").exists());
        // A reader that keeps the file open sees what comes.
        let (open, mut read) = (File::open(&file).unwrap(), [0; 8]);
        assert!(add(86));
        assert_eq!(open.read_at(&mut read, 0).unwrap(), 4);
        assert_eq!(&read[..4], b"100\n");
        // Another process counts.
        let other = File::open(root.join("a")).unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(!add(1));
        assert_eq!(text(), "100\n");
        drop(other);
        let count_up = || (0..100).for_each(|_| while !add(1) {});
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(count_up))));
        assert_eq!(text(), "400\n");
        // A text that is none of a counter's, and a link in its place.
        fs::write(&file, "no number at all").unwrap();
        assert!(add(3));
        assert_eq!(text(), "3\n");
        fs::rename(&file, root.join("elsewhere")).unwrap();
        symlink(root.join("elsewhere"), &file).unwrap();
        assert!(add(4));
        assert_eq!(
            (text(), fs::read(root.join("elsewhere")).unwrap()),
            ("4\n".into(), b"3\n".into())
        );
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_folders_that_are_not_named_are_removed() {
        let root = scratch("kept");
        let tree = Tree::open(&root).unwrap();
        for name in
            ["net/eth0/dev_port", "net/gone/dev_port", "net/gone/type", "net/file", "beside/b"]
        {
            tree.write(name, "0").unwrap();
        }
        fs::create_dir(root.join("net/empty")).unwrap();
        symlink(root.join("beside"), root.join("net/link")).unwrap();
        symlink(root.join("beside/b"), root.join("net/gone/link")).unwrap();
        let left = |path: &str| {
            let entries = fs::read_dir(root.join(path)).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        tree.keep("net", &["eth0".to_owned(), "never".to_owned()]).unwrap();
        assert_eq!(
            left("net"),
            ["eth0", "file", "link"],
            "files and links are not the interfaces'"
        );
        assert_eq!((left("net/eth0"), left("beside")), (vec!["dev_port".into()], vec!["b".into()]));
        tree.keep("net", &[]).unwrap();
        assert_eq!(left("net"), ["file", "link"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_links_are_written_and_replaced() {
        let root = scratch("written-links");
        let tree = Tree::open(&root).unwrap();
        tree.write("a/b", "text").unwrap();
        for to in ["c", "c", "../d"] {
            tree.link("a/b", to).unwrap();
            assert_eq!(fs::read_link(root.join("a/b")).unwrap(), PathBuf::from(to));
        }
        tree.write("a/b", "text").unwrap();
        assert!(root.join("a/b").symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_dir(root.join("a")).unwrap().count(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_no_link_is_followed_at_any_step() {
        let scratch = scratch("links");
        let (root, elsewhere) = (scratch.join("root"), scratch.join("elsewhere"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("file"), "as it was").unwrap();
        let link = scratch.join("link");
        symlink(&scratch, &link).unwrap();
        assert!(Tree::open(&link).is_err(), "the last step");
        let why = Tree::open(&link.join("root")).err().unwrap().to_string();
        assert!(why.contains("`link` is a link"), "a step on the way: {why}");
        assert!(Tree::open(Path::new("root")).is_err(), "a path without a beginning");
        let tree = Tree::open(&root).unwrap();
        symlink(&elsewhere, root.join("over")).unwrap();
        symlink(&elsewhere, root.join("a/over")).unwrap();
        for path in ["over/new", "a/over/new", "a/../../elsewhere/new", "../elsewhere/new"] {
            assert!(tree.write(path, "text").is_err(), "{path}");
        }
        symlink(elsewhere.join("file"), root.join("a/b/file")).unwrap();
        tree.write("a/b/file", "ours").unwrap();
        assert!(
            root.join("a/b/file").symlink_metadata().unwrap().is_file(),
            "the link is replaced"
        );
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "as it was");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn v105_folders_that_others_may_change_are_not_used() {
        let root = scratch("owners");
        let tree = Tree::open(&root).unwrap();
        tree.folder("a").unwrap();
        for mode in [0o775, 0o757, 0o1777] {
            fs::set_permissions(root.join("a"), Permissions::from_mode(mode)).unwrap();
            let why = tree.write("a/b", "text").unwrap_err().to_string();
            assert!(why.contains("changed by others"), "{why}");
            fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
            assert!(Tree::open(&root).is_err(), "{mode:o}");
        }
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(root.join("a"), Some(54_321), None).unwrap();
            let why = tree.write("a/b", "text").unwrap_err().to_string();
            assert!(why.contains("54321"), "{why}");
        } else {
            eprintln!("the folder of another user is SKIPPED: only root can make one");
        }
        assert_eq!(fs::read_dir(root.join("a")).unwrap().count(), 0);
        fs::remove_dir_all(root).unwrap();
    }
}
