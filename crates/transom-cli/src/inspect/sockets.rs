//! Connections of unmodified socket programs, as the kernel's tables show them: whose memory has their segments.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;
use transom_os::users::owns;
use transom_switch::directory;

use crate::files::read_regular;

/// A process under the switch that has such connections.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sockets {
    pub(crate) pid: u32,
    /// Ends of connections whose bytes go through shared memory.
    pub(crate) switched: u32,
    /// Those that this side has offered, and that the other one has not taken.
    pub(crate) offered: u32,
    pub(crate) program: String,
}

/// Bytes of a file with numbers that are read: it has a quarter.
const MOST: u64 = 1 << 20;

/// Whether each segment of this user is that of a switched connection, by its number. Another user may have made
/// the folder first: then it says nothing.
fn segments(folder: &Path, user: u32) -> HashMap<u64, bool> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let open =
        fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(folder);
    let own = open.is_ok_and(|folder| {
        let about = folder.metadata();
        about.is_ok_and(|about| {
            about.uid() == user && about.mode() & 0o077 == 0 && owns(&folder, user)
        })
    });
    let entries = if own { fs::read_dir(folder).ok() } else { None };
    let files = entries.into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("connections-"));
    files
        .filter_map(|file| read_regular(&file.path(), MOST).ok())
        .flat_map(|bytes| directory::entries(&bytes).collect::<Vec<_>>())
        .filter_map(|entry| Some((u64::from(entry.id?), entry.claimed)))
        .collect()
}

/// The segments that the lines of `/proc/PID/maps` name: the kernel has their number where a file's would be.
fn mapped(maps: &str) -> impl Iterator<Item = u64> {
    maps.lines().filter(|line| line.contains("/SYSV")).filter_map(|line| {
        let number = line.split_ascii_whitespace().nth(4)?;
        number.parse().ok()
    })
}

/// The processes of this user that have connections under the switch.
pub(crate) fn processes() -> Vec<Sockets> {
    let user = rustix::process::geteuid().as_raw();
    let segments = segments(Path::new(&format!("/dev/shm/transom-{user}")), user);
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if entry.metadata().map(|about| about.uid()).ok() != Some(user) {
            continue;
        }
        let maps = fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
        let mut one = Sockets { pid, ..Sockets::default() };
        for switched in mapped(&maps).filter_map(|number| segments.get(&number)) {
            *(if *switched { &mut one.switched } else { &mut one.offered }) += 1;
        }
        if one.switched + one.offered > 0 {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            one.program = transom_inspect::printable(name.trim_end_matches('\n'));
            all.push(one);
        }
    }
    all.sort_by_key(|one| one.pid);
    all
}

/// The table of `transom ps`.
pub(crate) fn table(all: &[Sockets]) -> String {
    let mut text = format!("{:>8}  {:>8}  {:>8}  sockets of\n", "pid", "switched", "offered");
    for Sockets { pid, switched, offered, program } in all {
        text += &format!("{pid:>8}  {switched:>8}  {offered:>8}  {program}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another user may have made the folder, and a program of this user anything in it.
    #[test]
    fn what_is_no_list_of_this_user_s_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = std::env::temp_dir().join(format!("transom-lists-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let file = |name: &str| folder.join(format!("connections-{name}"));
        let entry = directory::Entry { cookie: 7, id: Some(9), claimed: true };
        fs::write(file("1"), entry.bytes()).unwrap();
        symlink("/dev/zero", file("2")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(file("3")).status().unwrap().success());
        fs::File::create(file("4")).unwrap().set_len(1 << 40).unwrap();
        let user = rustix::process::geteuid().as_raw();
        mode(0o700);
        assert_eq!(segments(&folder, user), HashMap::from([(9, true)]));
        assert_eq!(segments(&folder, user + 1), HashMap::new());
        mode(0o755);
        assert_eq!(segments(&folder, user), HashMap::new());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn segments_are_known_by_their_number() {
        let maps = "7f00-7f10 r-xp 00000000 fe:00 91 /usr/lib/libc.so.6\n\
                    7f20-7f30 rw-s 00000000 00:01 4 /SYSV00000000 (deleted)\n\
                    7f30-7f40 rw-s 00000000 00:01 32769 /SYSV00000000 (deleted)\n";
        assert_eq!(mapped(maps).collect::<Vec<_>>(), [4, 32769]);
    }
}
