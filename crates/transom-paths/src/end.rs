//! The end of a program that `transom run` has started: whether it, or a program that it started, has made
//! a queue pair, and if not, why (Verbs V156).
//!
//! `TRANSOM_RUN` is the number of the process, letters for what is wanted (`n`: a note, `r`: the status
//! [`UNUSED`] where no queue pair was made), and a file, to which the verbs library appends a letter when a
//! program asks for the device list, opens the device, and makes a queue pair.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write;

use crate::{load, rewrite};

/// The exit status where `transom run --require` finds that no queue pair was made.
const UNUSED: c_int = 96;

unsafe extern "C" {
    /// As `atexit`, with the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    static program_invocation_short_name: *const c_char;
}

/// Run by the loader. Registered this early, the function is called behind those of the program and of the
/// verbs library.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if run().is_some() {
        // SAFETY: this library is preloaded, and so never unloaded; the argument is not used.
        unsafe { on_exit(ended, std::ptr::null_mut()) };
    }
}

struct Run {
    process: i32,
    note: bool,
    require: bool,
    file: &'static CStr,
}

fn run() -> Option<Run> {
    // SAFETY: `transom run` has set it, and programs leave it alone.
    let text: &'static CStr = unsafe { rewrite::variable(c"TRANSOM_RUN") }?;
    let bytes = text.to_bytes();
    let first = bytes.iter().position(|byte| *byte == b':')?;
    let second = first + 1 + bytes.get(first + 1..)?.iter().position(|byte| *byte == b':')?;
    let wishes = bytes.get(first + 1..second)?;
    Some(Run {
        process: std::str::from_utf8(bytes.get(..first)?).ok()?.parse().ok()?,
        note: wishes.contains(&b'n'),
        require: wishes.contains(&b'r'),
        file: CStr::from_bytes_with_nul(text.to_bytes_with_nul().get(second + 1..)?).ok()?,
    })
}

extern "C" fn ended(status: c_int, _: *mut c_void) {
    let mut other = Text::default();
    find_another(&mut other);
    let instead = settle(status, other.as_str());
    if instead != status {
        // SAFETY: the C library lets a function of the list call this: those left in the list run, buffers
        // are written, and this status takes the place of the one before.
        unsafe { libc::exit(instead) };
    }
}

/// Say what has not been used, once; the status to end with. `other`: a libibverbs that is loaded.
fn settle(status: c_int, other: &str) -> c_int {
    let Some(run) = run() else { return status };
    // SAFETY: asks for a number.
    let first = unsafe { libc::getpid() } == run.process;
    let mut room = [0; 4096];
    let stages = read(run.file, &mut room);
    if first {
        // SAFETY: a C string.
        unsafe { libc::unlink(run.file.as_ptr()) };
    }
    // Without the file it has been said, or nothing is known.
    let Some(stages) = stages.filter(|stages| !stages.contains(&b'q')) else { return status };
    if run.note && (first || !other.is_empty()) {
        say(stages, other);
    }
    if first && run.require && status == 0 { UNUSED } else { status }
}

/// The end without the functions of `atexit`: of a shell, and of a forked child.
fn leave(status: c_int) -> ! {
    let status = settle(status, ""); // a signal's handler may be here, so the loader is not asked
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}

fn read<'a>(file: &CStr, room: &'a mut [u8]) -> Option<&'a [u8]> {
    // No wait for a pipe in its place.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: a C string.
    let fd = unsafe { libc::open(file.as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the room has as many bytes; the descriptor was just opened.
    let count = unsafe { libc::read(fd, room.as_mut_ptr().cast(), room.len()) };
    // SAFETY: as above.
    unsafe { libc::close(fd) };
    room.get(..usize::try_from(count).ok()?)
}

fn say(stages: &[u8], other: &str) {
    // SAFETY: the C library's, which it has set before any library ran.
    let program = unsafe { CStr::from_ptr(program_invocation_short_name) };
    let program = program.to_str().unwrap_or("program");
    // SAFETY: asks for a number.
    let process = unsafe { libc::getpid() };
    let mut line = Text::default();
    let _ = write!(line, "transom: {program}[{process}] made no queue pair: ");
    let _ = match other {
        "" if stages.contains(&b'o') => write!(line, "it opened the device, and went no further"),
        "" if stages.contains(&b'l') => write!(
            line,
            "it asked for the devices, and opened none; a device of another name? (transom run --device NAME)"
        ),
        "" => write!(line, "nothing asked Transom's libibverbs for a device"),
        other => {
            write!(line, "it has loaded a libibverbs of its own, {other}, which is not Transom's")
        }
    };
    let _ = writeln!(line);
    let text = line.as_str();
    // A pipe without a reader and a limit of file sizes lose the line; their signals would end the program
    // otherwise than it has ended.
    // SAFETY: as many bytes as are said; the sets are local, and zeros are a value of their type.
    unsafe {
        let [mut ours, mut before] = std::mem::zeroed::<[libc::sigset_t; 2]>();
        libc::sigaddset(&raw mut ours, libc::SIGPIPE);
        libc::sigaddset(&raw mut ours, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, &raw mut before);
        if libc::write(2, text.as_ptr().cast(), text.len()) < 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const ours, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// Text in a place of its own: nothing is allocated.
struct Text {
    bytes: [u8; 1024],
    length: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; 1024], length: 0 }
    }
}

impl Text {
    fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Write the path of a libibverbs that is loaded from elsewhere than beside this library.
fn find_another(to: &mut Text) {
    // SAFETY: the callback is called during this call only, with a pointer to the text.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut *to).cast()) };
}

/// The folder of a path.
fn folder(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..end).unwrap_or_default()
}

unsafe extern "C" fn look(about: *mut libc::dl_phdr_info, _size: usize, to: *mut c_void) -> c_int {
    // SAFETY: the loader's structure, whose name is a C string or null.
    let name = unsafe { (*about).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !load::is_libibverbs(path) {
        return 0;
    }
    // SAFETY: zeros are a value of it.
    let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of this library, and room for what is known of it.
    let known = unsafe { libc::dladdr(look as *const c_void, &raw mut own) } != 0;
    // SAFETY: the name of a loaded library is a C string.
    if known && folder(unsafe { CStr::from_ptr(own.dli_fname) }.to_bytes()) == folder(path) {
        return 0;
    }
    // SAFETY: `find_another` gives a text that nothing else has.
    let to = unsafe { &mut *to.cast::<Text>() };
    let _ = to.write_str(std::str::from_utf8(path).unwrap_or("whose name is no text"));
    1
}
