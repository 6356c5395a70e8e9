//! Whether something is this process's user's: the other end of a socket, a folder.
//!
//! In a user namespace that does not map every user, all that it does not map have one number (65534, usually).
//! Then that number says nothing about who it is, even if it is this process's own. Allocates nothing.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::answers::maps_every_user;

/// Reads the beginning of a file: how many bytes. A library that has calls of the C library's names reads by its own.
pub type Read = fn(&CStr, &mut [u8]) -> usize;

/// This process's user, by whose right it acts.
#[must_use]
pub fn own() -> u32 {
    // SAFETY: a plain call.
    unsafe { libc::geteuid() }
}

/// Whether a user, as the kernel has named it to us, is this process's: its processes could look into the memory of
/// this one by the numbers of users (ptrace(2)). A process that acts for another user is not that user's for it.
#[must_use]
pub fn is_ours(user: u32) -> bool {
    is_ours_with(read, user)
}

/// As [`is_ours`].
#[must_use]
pub fn is_ours_with(read: Read, user: u32) -> bool {
    let (mut real, mut acting, mut saved) = (0, 0, 0);
    // SAFETY: the kernel writes three numbers, which always succeeds.
    unsafe { libc::getresuid(&raw mut real, &raw mut acting, &raw mut saved) };
    [real, acting, saved] == [user; 3] && !is_ambiguous(read, user)
}

/// Whether a folder is this user's, of which the kernel says that its owner is `owner`. Where that number may be
/// another's, the folder's mode is set to what it is: the kernel lets its owner do that.
#[must_use]
pub fn owns(folder: impl AsFd, owner: u32) -> bool {
    owner == own() && (!is_ambiguous(read, owner) || may_change(folder.as_fd().as_raw_fd()))
}

/// The words of a refusal behind an owner's number that is this user's, but stands for others as well.
pub const UNMAPPED: &str = ", as which all users appear that this namespace does not map";

/// Whether the kernel lets this process change the mode of a folder, which is set to what it is.
#[must_use]
pub fn may_change(folder: RawFd) -> bool {
    // SAFETY: zeros are a value of this type, and the kernel writes one such structure.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        libc::fstat(folder, &raw mut about) == 0
            && libc::fchmod(folder, about.st_mode & 0o7777) == 0
    }
}

/// Whether a number stands for every user that this namespace does not map.
#[must_use]
pub fn is_ambiguous(read: Read, user: u32) -> bool {
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    let mut room = [0; 128];
    let known = match NOBODY.load(Ordering::Relaxed) {
        0 => {
            let told = text(read, c"/proc/sys/kernel/overflowuid", &mut room);
            let number = told.trim().parse().unwrap_or(65534);
            NOBODY.store(number, Ordering::Relaxed);
            number
        }
        known => known,
    };
    user == known && !maps_every_user(text(read, c"/proc/self/uid_map", &mut room))
}

fn text<'a>(read: Read, path: &CStr, room: &'a mut [u8]) -> &'a str {
    let count = read(path, room);
    room.get(..count).and_then(|told| std::str::from_utf8(told).ok()).unwrap_or_default()
}

fn read(path: &CStr, room: &mut [u8]) -> usize {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with a zero, and room for as many bytes as are asked for.
    let count = unsafe {
        let fd = libc::open(path.as_ptr(), flags);
        if fd < 0 {
            return 0;
        }
        let count = libc::read(fd, room.as_mut_ptr().cast(), room.len());
        libc::close(fd);
        count
    };
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::process::Command;

    use super::*;

    /// In the test's second process: two folders.
    const FOLDERS: &str = "TRANSOM_TEST_FOLDERS";
    /// Numbers that no user has.
    const ME: u32 = 54_321;
    const STRANGER: u32 = 54_322;

    #[test]
    fn this_user_is_ours_and_no_other() {
        assert!(is_ours(own()) && !is_ours(own() + 1));
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert!(owns(&folder, own()) && !owns(&folder, own() + 1));
    }

    /// Become a user in a namespace that maps no other, under the number of all that it does not map.
    fn enter_a_namespace() {
        // SAFETY: plain calls, in a process of one thread that changes its user.
        unsafe {
            assert_eq!(libc::setresgid(ME, ME, ME), 0);
            assert_eq!(libc::setresuid(ME, ME, ME), 0);
            // A process that has changed its user may not write to its files in /proc else.
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
            assert_eq!(libc::unshare(libc::CLONE_NEWUSER), 0);
        }
        fs::write("/proc/self/uid_map", format!("65534 {ME} 1\n")).unwrap();
        assert_eq!(own(), 65534);
    }

    /// In a namespace of users another user's folder seems to be ours, and is not; our own is.
    #[test]
    fn a_number_that_stands_for_many_is_not_ours() {
        if let Ok(folders) = std::env::var(FOLDERS) {
            let (mine, theirs) = folders.split_once(':').unwrap();
            let (mine, theirs) = (File::open(mine).unwrap(), File::open(theirs).unwrap());
            // SAFETY: the child has one thread, which ends it without running anything else.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    enter_a_namespace();
                    let owner = |folder: &File| folder.metadata().unwrap().uid();
                    let seem = (owner(&mine), owner(&theirs)) == (65534, 65534);
                    let right = seem && owns(&mine, 65534) && !owns(&theirs, 65534);
                    libc::_exit(i32::from(!right || is_ours(65534)));
                }
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                status
            };
            assert_eq!(status, 0);
            return;
        }
        if own() != 0 {
            return eprintln!("SKIPPED: only root can play two users");
        }
        let folder = |user: u32| {
            let path = format!(
                "{}/transom-users-{user}-{}",
                std::env::temp_dir().display(),
                std::process::id()
            );
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            chown(&path, Some(user), None).unwrap();
            path
        };
        let (mine, theirs) = (folder(ME), folder(STRANGER));
        let name = "users::tests::a_number_that_stands_for_many_is_not_ours";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command
            .args(["--exact", name, "--nocapture"])
            .env(FOLDERS, format!("{mine}:{theirs}"))
            .status();
        fs::remove_dir(&mine).unwrap();
        fs::remove_dir(&theirs).unwrap();
        assert!(ended.unwrap().success());
    }
}
