//! Where the sockets of one user lie.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use transom_os::users::{UNMAPPED, own as user, owns};

/// How a socket's name ends. Before it stand the process's number, a hyphen, and what makes the name
/// unlike every other.
pub const SOCKET: &str = ".sock";

/// A folder that belongs to this user, and that no other user may enter:
/// `$XDG_RUNTIME_DIR/transom`, or `transom-UID` in the temporary directory where the user has no
/// runtime directory.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Why there is no such folder.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    why: String,
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for FolderError {}

impl Folder {
    /// The folder in which this process puts its socket. Made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or what has its name is no folder, is another user's, or open to others.
    pub fn of_user() -> Result<Folder, FolderError> {
        let path = match runtime_directory() {
            Some(runtime) => runtime.join("transom"),
            None => temporary(),
        };
        Folder::make(&path)
    }

    /// The folders in which sockets of this user may lie: a process without the variable has put its own
    /// into the temporary directory.
    #[must_use]
    pub fn existing() -> Vec<Folder> {
        let runtime = runtime_directory().map(|runtime| runtime.join("transom"));
        let all = runtime.into_iter().chain([temporary()]);
        all.filter_map(|path| Folder::check(&path).ok()).collect()
    }

    fn make(path: &Path) -> Result<Folder, FolderError> {
        let made = fs::DirBuilder::new().mode(0o700).create(path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(FolderError { path: path.to_owned(), why: error.to_string() })
            }
            _ => Folder::check(path),
        }
    }

    /// The folder at `path`, if it is this user's alone. A symbolic link is not followed: another user
    /// may have put it into the temporary directory.
    fn check(path: &Path) -> Result<Folder, FolderError> {
        let failed = |why: String| FolderError { path: path.to_owned(), why };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .and_then(|folder| Ok((folder.metadata()?, folder)));
        let (about, folder) = open.map_err(|error| failed(error.to_string()))?;
        if !owns(folder, about.uid()) {
            let (owner, user) = (about.uid(), user());
            let many = if owner == user { UNMAPPED } else { "" };
            return Err(failed(format!("is user {owner}'s{many}, and has to be user {user}'s")));
        }
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(failed(format!(
                "is open to others (mode {mode:o}), and has to have mode 700"
            )));
        }
        Ok(Folder { path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sockets in it, each with the number of the process that has made it.
    pub(crate) fn sockets(&self) -> Vec<(u32, PathBuf)> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_suffix(SOCKET)?.split_once('-')?.0.parse().ok()?;
            Some((number, entry.path()))
        });
        names.collect()
    }
}

/// The user's runtime directory, if the environment names one that is the user's: a program that
/// has changed its user may still have the variable of the user that started it.
fn runtime_directory() -> Option<PathBuf> {
    let path = PathBuf::from(transom_os::environment::variable("XDG_RUNTIME_DIR")?);
    let about = fs::metadata(&path).ok()?;
    let own = about.is_dir() && about.uid() == user() && about.mode() & 0o022 == 0;
    (path.is_absolute() && own).then_some(path)
}

fn temporary() -> PathBuf {
    transom_os::environment::temporary().join(format!("transom-{}", user()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A folder for one test.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("transom-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_folder_is_the_users_alone_or_is_not_used() {
        let scratch = scratch("folder");
        let path = scratch.join("new");
        assert!(Folder::check(&path).is_err(), "it does not exist");
        assert_eq!(Folder::make(&path).unwrap().path(), path);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        Folder::make(&path).expect("it exists, and is good");
        for mode in [0o710, 0o701, 0o704, 0o722] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let why = Folder::make(&path).unwrap_err().to_string();
            assert!(why.contains(&format!("mode {mode:o}")), "{why}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let link = scratch.join("link");
        symlink(&path, &link).unwrap();
        assert!(Folder::make(&link).is_err(), "a link to a good folder");
        let file = scratch.join("file");
        fs::write(&file, "").unwrap();
        assert!(Folder::make(&file).is_err(), "a file");
        if user() == 0 {
            std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
            let why = Folder::make(&path).unwrap_err().to_string();
            assert!(why.contains("54321"), "{why}");
        } else {
            eprintln!("the folder of another user is SKIPPED: only root can make one");
        }
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn sockets_are_known_by_their_names() {
        let path = scratch("names");
        for name in ["12-ab.sock", "12-cd.sock", "x-ab.sock", "12.sock", ".12-ab.new", "7-ab"] {
            fs::write(path.join(name), "").unwrap();
        }
        let mut found = Folder { path: path.clone() }.sockets();
        found.sort();
        let names = ["12-ab.sock", "12-cd.sock"].map(|name| (12, path.join(name)));
        assert_eq!(found, names);
        fs::remove_dir_all(&path).unwrap();
    }
}
