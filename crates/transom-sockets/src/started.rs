//! Programs that this process starts: whether the library follows into them, and what becomes of the connections that
//! they inherit.
//!
//! A program without the library would read doorbells from a switched connection, and wait for ever for its bytes. So
//! it gets a socket in the connection's place that was reset: every call on it fails, and says so. The connection goes
//! on in those that have it by other descriptors.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::said;
use super::sys;
use super::table;
use super::user;
use super::young;

/// The file that is started.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Path(*const c_char),
    /// A name that is looked for in `PATH`, unless it has a slash.
    Name(*const c_char),
    Descriptor(c_int),
    /// A shell, or what cannot be known.
    Other,
}

/// A program's text, if it is all there.
fn text(at: *const c_char) -> Option<CString> {
    /// `PATH_MAX` of the kernel's.
    const MOST: usize = 4096;
    let mut bytes = Vec::new();
    while bytes.len() < MOST {
        // SAFETY: a plain byte.
        match unsafe { user::fetch(at.wrapping_add(bytes.len()).cast::<u8>()) }? {
            0 => return CString::new(bytes).ok(),
            byte => bytes.push(byte),
        }
    }
    None
}

fn path_of(what: What) -> Option<CString> {
    match what {
        What::Path(at) => text(at),
        What::Descriptor(fd) => CString::new(format!("/proc/self/fd/{fd}")).ok(),
        What::Name(at) => {
            let name = text(at)?;
            if name.as_bytes().contains(&b'/') {
                return Some(name);
            }
            let folders =
                transom_os::environment::variable("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            std::env::split_paths(&folders)
                .filter_map(|folder| {
                    let path = folder.join(OsStr::from_bytes(name.as_bytes()));
                    CString::new(path.as_os_str().as_bytes()).ok()
                })
                .find(|path| sys::stat(path, 0).is_some())
        }
        What::Other => None,
    }
}

/// Why the library cannot follow into a program. `None`: it can, or the file will not be started.
fn hindrance(path: &CStr) -> Option<&'static str> {
    let is_program = |about: &libc::stat| {
        about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_mode & 0o111 != 0
    };
    let about = sys::stat(path, 0).filter(is_program)?;
    let mut head = [0; 4096];
    // A pipe may be in the place of the file by now, and is not waited for.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = sys::open(path, flags, 0).ok()?;
    let length = sys::read(file, &mut head).unwrap_or_default();
    sys::close(file);
    let image = head.get(..length).filter(|image| image.starts_with(b"\x7FELF"))?;
    let has = |word: &[u8]| image.windows(word.len()).any(|bytes| bytes == word);
    let set_user = about.st_mode & libc::S_ISUID != 0 && about.st_uid != sys::user();
    // Root has all rights that a file may give.
    let gives = sys::user() != 0 && sys::gives_capabilities(path);
    if set_user || about.st_mode & libc::S_ISGID != 0 || gives {
        Some("runs with another user's rights")
    } else if has(b"ld-musl") {
        Some("is linked with musl")
    } else if !has(b"ld-linux") {
        Some("is linked statically")
    } else {
        None
    }
}

/// Whether this process has the library by its variables, as it was started.
static BY_VARIABLE: AtomicBool = AtomicBool::new(false);

/// The process begins.
pub(crate) fn begin() {
    let has =
        transom_os::environment::variable("LD_PRELOAD").is_some_and(|list| names(list.as_bytes()));
    BY_VARIABLE.store(has, Ordering::Relaxed);
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether a list of libraries names this one.
fn names(list: &[u8]) -> bool {
    const LIBRARY: &[u8] = b"transom_sockets";
    list.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

fn has_library(variables: *const *const c_char) -> bool {
    (0..)
        .map_while(|at| {
            // SAFETY: a plain word.
            unsafe { user::fetch(variables.wrapping_add(at)) }
                .filter(|variable| !variable.is_null())
        })
        .any(|variable| {
            let variable = text(variable).unwrap_or_default();
            variable.as_bytes().strip_prefix(b"LD_PRELOAD=").is_some_and(names)
        })
}

/// Whether a program that gets these variables has the library. Null: this process's.
fn preloads(variables: *const *const c_char) -> bool {
    // SAFETY: the C library's variables.
    let variables = if variables.is_null() { unsafe { environ } } else { variables };
    !BY_VARIABLE.load(Ordering::Relaxed) || has_library(variables)
}

/// Before a program is started in the place of this one, or (`beside`) in a process of its own: connections that are
/// young stay with TCP. The caller keeps the result until the call has failed, or the other process is there.
pub(crate) fn starts(what: What, variables: *const *const c_char, beside: bool) -> impl Sized {
    young::all_stay();
    let mut inherited = Vec::new();
    table::each_socket(|fd, session| {
        let claimed = session.state() == transom_switch::session::State::Claimed;
        if claimed && sys::descriptor_flags(fd).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0) {
            inherited.push(fd);
        }
    });
    if inherited.is_empty() && !said::asked() {
        return Replaced::default();
    }
    let path = path_of(what);
    let why = path.as_deref().and_then(hindrance);
    if let (Some(path), Some(why)) = (&path, why) {
        said::cannot_follow(path, why);
    }
    let follows = why.is_none() && preloads(variables);
    if follows { Replaced::default() } else { Replaced::new(inherited, beside) }
}

/// Descriptors of connections, and what they were before others took their place.
#[derive(Default)]
struct Replaced {
    before: Vec<(c_int, c_int)>,
    /// Closed in the program that is started beside this one.
    closed: Vec<c_int>,
}

impl Replaced {
    fn new(inherited: Vec<c_int>, beside: bool) -> Replaced {
        let mut replaced = Replaced::default();
        if beside {
            // This process goes on with them.
            for fd in inherited {
                sys::set_descriptor_flags(fd, libc::FD_CLOEXEC);
                replaced.closed.push(fd);
            }
            return replaced;
        }
        let Some(reset) = (!inherited.is_empty()).then(sys::reset_socket).flatten() else {
            return replaced;
        };
        for fd in inherited {
            if let Ok(kept) = sys::duplicate(fd) {
                sys::put_in_place(reset, fd);
                replaced.before.push((fd, kept));
            }
        }
        sys::close(reset);
        replaced
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        for (fd, kept) in &self.before {
            sys::put_in_place(*kept, *fd);
            sys::close(*kept);
        }
        for fd in &self.closed {
            sys::set_descriptor_flags(*fd, 0);
        }
    }
}
