//! Where the libraries are.

use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::command::exit::{Exit, Failure, Outcome, system};
use transom_inspect::Folder;

/// The library that is preloaded for path names.
pub(super) const PATHS: &str = "libtransom_paths.so";

/// The library that is preloaded for sockets.
pub(super) const SOCKETS: &str = "libtransom_sockets.so";

/// Counts the changes of what the libraries write into the directory that stands for `/sys`: they write
/// nothing over what another version has made otherwise.
const LAYOUT: u32 = 2;

/// Names that programs know them by, and those that cargo gives them.
const NAMES: [(&str, &str); 6] = [
    ("libibverbs.so.1", "libtransom_verbs.so"),
    ("libibverbs.so", "libtransom_verbs.so"),
    ("librdmacm.so.1", "libtransom_rdmacm.so"),
    ("librdmacm.so", "libtransom_rdmacm.so"),
    (PATHS, "libtransom_paths.so"),
    (SOCKETS, "libtransom_sockets.so"),
];

/// A directory that has both under the names that programs look for: `../lib/transom` beside the
/// installed command, or links to what cargo has built.
pub(super) fn directory() -> Outcome<PathBuf> {
    let command = std::env::current_exe().map_err(system("find this command's own file"))?;
    let libraries = of(&command)?;
    if is_read_by_loaders(&libraries) { Ok(libraries) } else { link_to(&libraries) }
}

/// Whether loaders read a path in `LD_PRELOAD` and `LD_LIBRARY_PATH` as it is: what parts two paths there, and what
/// begins a token, cannot be quoted (ld.so(8)).
fn is_read_by_loaders(path: &Path) -> bool {
    let parts = |byte: &u8| byte.is_ascii_whitespace() || b":;$".contains(byte);
    !path.as_os_str().as_bytes().iter().any(parts)
}

/// A link to a directory of libraries, at a path that loaders read.
fn link_to(libraries: &Path) -> Outcome<PathBuf> {
    let folder = folder_for_links()?;
    let mut hasher = std::hash::DefaultHasher::new();
    libraries.hash(&mut hasher);
    let link = folder.path().join(format!("libraries-{:016x}", hasher.finish()));
    if !is_read_by_loaders(&link) {
        let sentence = format!(
            "loaders read no path with white space, `:`, `;` or `$` in LD_PRELOAD: neither {} nor {}",
            libraries.display(),
            folder.path().display()
        );
        return Err(
            Failure::new(Exit::System, sentence).try_this("TMPDIR=/tmp, without XDG_RUNTIME_DIR")
        );
    }
    put_link(&link, libraries).map_err(system("link the libraries"))?;
    Ok(link)
}

/// The libraries of a command's file.
fn of(command: &Path) -> Outcome<PathBuf> {
    let beside = command.parent().unwrap_or(Path::new("/"));
    let installed = beside.join("../lib/transom");
    if installed.join("libibverbs.so.1").exists() {
        let installed = installed.canonicalize().map_err(system("find the libraries"))?;
        return ours(&installed, command).map(|()| installed);
    }
    let built = [beside.to_owned(), beside.join("deps")]
        .into_iter()
        .find(|directory| NAMES.iter().all(|(_, built)| directory.join(built).exists()));
    match built {
        Some(built) => ours(&built, command).and_then(|()| links(&built, command)),
        None => Err(Failure::new(
            Exit::System,
            format!(
                "the libraries are neither in {} nor beside {}",
                installed.display(),
                command.display()
            ),
        )
        .try_this(if is_of_a_build(beside) {
            "cargo build"
        } else {
            "packaging/install PREFIX in Transom's sources, which installs this command with its \
             libraries; cargo install leaves them out"
        })),
    }
}

/// Whether no other user puts libraries into a directory: it is the administrator's, this user's, or that of who has
/// put the command there.
///
/// # Errors
/// A sentence, if it is another's, or anybody may write to it.
fn ours(directory: &Path, command: &Path) -> Outcome {
    let failed = || system("look at the libraries");
    let about = fs::metadata(directory).map_err(failed())?;
    let owners =
        [0, rustix::process::geteuid().as_raw(), fs::metadata(command).map_err(failed())?.uid()];
    let why = match (about.uid(), about.mode() & 0o7777) {
        (owner, _) if !owners.contains(&owner) => format!("is user {owner}'s"),
        (_, mode) if mode & 0o002 != 0 => format!("can be written to by all users (mode {mode:o})"),
        _ => return Ok(()),
    };
    let sentence = format!("the libraries may be another user's: {} {why}", directory.display());
    Err(Failure::new(Exit::System, sentence)
        .try_this("a copy of this command and its libraries in a directory of your own"))
}

/// Whether cargo builds into a directory.
fn is_of_a_build(directory: &Path) -> bool {
    directory.join("deps").is_dir() || directory.join(".cargo-lock").exists()
}

/// The path of a library that is preloaded, as the GNU C library's loader reads it (ld.so(8): `$LIB`). Others
/// read it as it stands, find nothing, and start the program without the library.
pub(super) fn for_this_loader(libraries: &Path, name: &str) -> PathBuf {
    let known = LIB.iter().all(|(lib, _)| libraries.join(lib).join(name).exists());
    if known { libraries.join("$LIB").join(name) } else { libraries.join(name) }
}

/// The variable that has AddressSanitizer start with another library before its own, which would end the
/// program else.
pub(super) fn any_link_order() -> (&'static str, OsString) {
    let mut options = transom_os::environment::variable("ASAN_OPTIONS").unwrap_or_default();
    options.push(if options.is_empty() { "" } else { ":" });
    options.push("verify_asan_link_order=0");
    ("ASAN_OPTIONS", options)
}

/// The names that `$LIB` stands for, and links that make each of them the directory of the libraries itself: Debian has a
/// directory for each kind of machine, other systems have one of the first two.
const LIB: [(&str, &str); 3] =
    [("lib64", "lib64"), ("lib", "lib"), ("lib/x86_64-linux-gnu", "x86_64-linux-gnu")];

/// A directory of this user's alone that stands for `/sys`: the libraries write the device there. Runs with
/// one device in one network namespace share it; the addresses of another namespace are others.
///
/// # Errors
/// A sentence, if there is none.
pub(super) fn sysfs(device: impl Hash) -> Result<PathBuf, String> {
    let mut hasher = std::hash::DefaultHasher::new();
    let namespace = fs::metadata("/proc/self/ns/net").map(|about| about.ino()).ok();
    (LAYOUT, device, namespace).hash(&mut hasher);
    let folder = Folder::of_user().map_err(|error| error.to_string())?;
    let path = folder.path().join(format!("sys-{:016x}", hasher.finish()));
    // The libraries write into no folder that others may change, and follow no link to one.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.and_then(|()| path.canonicalize()).map_err(|error| format!("{}: {error}", path.display()))
}

/// An empty file of this process's number, in a directory of this user's alone. Those of processes that
/// have ended without a look at theirs are removed.
///
/// # Errors
/// A sentence, if there is none.
pub(super) fn run_file() -> Result<PathBuf, String> {
    const NAME: &str = "run-";
    let folder = Folder::of_user().map_err(|error| error.to_string())?;
    for old in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
        let name = old.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_file(old.path());
        }
    }
    let path = folder.path().join(format!("{NAME}{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    made.map(|_| path.clone()).map_err(|error| format!("{}: {error}", path.display()))
}

/// This user's folder, for links to libraries.
fn folder_for_links() -> Outcome<Folder> {
    Folder::of_user().map_err(|error| {
        Failure::new(Exit::System, format!("find a directory for the libraries: {error}"))
    })
}

/// Links to libraries that cargo has built: beside them, or in a directory of this user's alone.
fn links(built: &Path, command: &Path) -> Outcome<PathBuf> {
    let beside = built.join("transom-run");
    if link_all(&beside, built).is_ok() && ours(&beside, command).is_ok() {
        return Ok(beside);
    }
    let folder = folder_for_links()?;
    let own = folder.path().join("run");
    link_all(&own, built).map_err(system("link the libraries"))?;
    Ok(own)
}

/// Links that name other files are replaced; several commands may do this at once.
fn link_all(directory: &Path, built: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let libraries = NAMES.map(|(name, file)| (name, built.join(file)));
    for (name, target) in libraries.into_iter().chain(LIB.map(|(_, link)| (link, ".".into()))) {
        put_link(&directory.join(name), &target)?;
    }
    Ok(())
}

/// Have a link to `target`, at once: another command may put the same one there.
fn put_link(link: &Path, target: &Path) -> std::io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    let mut new = link.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&new);
    symlink(target, &new)?;
    fs::rename(&new, link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    /// A copy of the command in a directory where others have theirs: what they put beside it is not loaded.
    #[test]
    fn libraries_that_another_user_can_put_there_are_not_used() {
        let scratch =
            std::env::temp_dir().join(format!("transom-libraries-{}", std::process::id()));
        let (bin, lib) = (scratch.join("bin"), scratch.join("lib/transom"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let command = bin.join("transom");
        fs::write(&command, "").unwrap();
        let mode = |of: &Path, mode| {
            fs::set_permissions(of, fs::Permissions::from_mode(mode)).unwrap();
        };
        let why = || of(&command).unwrap_err().sentence;
        let whose = || {
            let Ok(found) = of(&command) else { return None };
            Some(found.strip_prefix(scratch.canonicalize().unwrap()).unwrap().to_owned())
        };
        // Built: beside the command.
        NAMES.iter().for_each(|(_, built)| fs::write(bin.join(built), "").unwrap());
        assert_eq!(of(&command).unwrap(), bin.join("transom-run"));
        mode(&bin, 0o1777);
        assert!(why().contains("can be written to by all users (mode 1777)"), "{}", why());
        mode(&bin, 0o755);
        // Installed: in the directory next to it.
        fs::write(lib.join("libibverbs.so.1"), "").unwrap();
        assert_eq!(whose(), Some("lib/transom".into()));
        mode(&lib, 0o777);
        assert!(why().contains("(mode 777)"), "{}", why());
        mode(&lib, 0o755);
        if rustix::process::geteuid().is_root() {
            chown(&lib, Some(54_321), None).unwrap();
            assert!(why().contains("is user 54321's"), "{}", why());
            // Theirs is the command, too.
            chown(&command, Some(54_321), None).unwrap();
            assert_eq!(whose(), Some("lib/transom".into()));
        } else {
            eprintln!("the directory of another user is SKIPPED: only root can make one");
        }
        fs::remove_dir_all(&scratch).unwrap();
    }
}
