//! Streams of the C library on sockets. Such a stream reads and writes by calls of the C library's own,
//! which do not come here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;

use super::{calls, next};
use crate::mutex::Mutex;
use crate::said::Why;
use crate::table::{self, Entry, Left};

type Cookie = *mut c_void;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(Cookie, *mut c_char, usize) -> isize,
    write: unsafe extern "C-unwind" fn(Cookie, *const c_char, usize) -> isize,
    seek: *const c_void,
    close: unsafe extern "C" fn(Cookie) -> c_int,
}

unsafe extern "C-unwind" fn read(cookie: Cookie, to: *mut c_char, length: usize) -> isize {
    // SAFETY: the stream's buffer.
    unsafe { super::io::read(cookie as usize as c_int, to.cast(), length) }
}

unsafe extern "C-unwind" fn write(cookie: Cookie, from: *const c_char, length: usize) -> isize {
    // SAFETY: the stream's bytes. A stream's function answers 0 when it fails.
    unsafe { super::io::write(cookie as usize as c_int, from.cast(), length) }.max(0)
}

unsafe extern "C" fn close(cookie: Cookie) -> c_int {
    // SAFETY: a stream owns its descriptor.
    unsafe { super::descriptors::close(cookie as usize as c_int) }
}

/// Streams that were made here, and their descriptors, which the C library does not know.
static MADE: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// A stream that reads and writes by this library's calls.
unsafe fn stream_of(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    const NAME: &CStr = c"fopencookie";
    let found = next(&NEXT, NAME);
    if found.is_null() {
        return std::ptr::null_mut();
    }
    type Call = unsafe extern "C" fn(Cookie, *const c_char, Functions) -> *mut libc::FILE;
    // SAFETY: the C library's call of this name has these arguments.
    let call = unsafe { std::mem::transmute::<*mut c_void, Call>(found) };
    let functions = Functions { read, write, seek: std::ptr::null(), close };
    // SAFETY: the mode is the caller's, and the functions keep the contract.
    let made = unsafe { call(fd as usize as Cookie, mode, functions) };
    if !made.is_null()
        && let Some(mut all) = MADE.lock()
    {
        all.push((made as usize, fd));
    }
    made
}

unsafe extern "C" {
    static mut stdin: *mut libc::FILE;
    static mut stdout: *mut libc::FILE;
    static mut stderr: *mut libc::FILE;
    fn __fpending(stream: *mut libc::FILE) -> usize;
    fn __fpurge(stream: *mut libc::FILE);
}

/// The standard stream of a descriptor, and how it is opened.
fn standard(fd: c_int) -> Option<(*mut *mut libc::FILE, &'static CStr)> {
    match fd {
        0 => Some((&raw mut stdin, c"r")),
        1 => Some((&raw mut stdout, c"w")),
        2 => Some((&raw mut stderr, c"w")),
        _ => None,
    }
}

/// A switched connection is a standard descriptor from now on: the stream of it has to know. What lies in
/// its buffer goes to the connection, as it would have gone.
pub(super) fn take_over(fd: c_int) {
    /// Where a stream of the C library keeps the begin of what it has not written: its fifth word.
    const WRITE_BASE: usize = 4;
    let Some((stream, mode)) = standard(fd) else { return };
    // SAFETY: the C library lets programs set its streams; the words of a stream are part of its ABI.
    unsafe {
        let (old, new) = (*stream, stream_of(fd, mode.as_ptr()));
        if new.is_null() {
            return;
        }
        if fd == 2 {
            libc::setvbuf(new, std::ptr::null_mut(), libc::_IONBF, 0);
        }
        if !old.is_null() && fd > 0 {
            let left = __fpending(old);
            let begin = *old.cast::<*const c_void>().wrapping_add(WRITE_BASE);
            let mut done = 0;
            while done < left {
                match super::io::write(fd, begin.wrapping_byte_add(done), left - done) {
                    written @ 1.. => done += written.cast_unsigned(),
                    _ => break,
                }
            }
            __fpurge(old);
        }
        *stream = new;
    }
}

/// A program that was started with a switched connection as its standard input or output: its streams
/// have to know.
extern "C" fn at_start() {
    for fd in 0..=2 {
        if crate::offer::is_tcp(fd) && table::hold(fd).is_some() {
            take_over(fd);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

calls! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        if let Entry::Unknown = table::entry(fd)
            && table::may_change()
            && !crate::offer::is_claimed(fd)
        {
            table::set_plain(fd);
        }
        table::stays(fd, Why::Stream);
        let switched = table::hold(fd).is_some_and(|held| {
            held.session().is_some_and(|session| !session.withdraw())
        });
        if switched { stream_of(fd, mode) } else { next(fd, mode) }
    }

    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        fdopen(fd, mode)
    }

    fn fclose(file: *mut libc::FILE) -> c_int, libc::EOF; |next| {
        let left = closing(file);
        if let Some(mut all) = MADE.lock() {
            all.retain(|(made, _)| *made != file as usize);
        }
        let done = next(file);
        drop(left);
        done
    }

    fn _IO_fclose(file: *mut libc::FILE) -> c_int, libc::EOF; |next| {
        fclose(file)
    }

    fn freopen(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        let left = closing(file);
        let done = next(path, mode, file);
        drop(left);
        done
    }

    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, std::ptr::null_mut(); |next| {
        freopen(path, mode, file)
    }

    fn fileno(file: *mut libc::FILE) -> c_int, -1; |next| {
        match next(file) {
            -1 => made_for(file),
            fd => fd,
        }
    }

    fn fileno_unlocked(file: *mut libc::FILE) -> c_int, -1; |next| {
        match next(file) {
            -1 => made_for(file),
            fd => fd,
        }
    }
}

/// The descriptor of a stream that was made here, or -1 with the error that there is.
fn made_for(file: *mut libc::FILE) -> c_int {
    let all = MADE.lock();
    let found = all.as_ref().and_then(|all| all.iter().find(|(made, _)| *made == file as usize));
    found.map_or(-1, |(_, fd)| *fd)
}

/// The C library is about to close the descriptor of a stream by a call of its own.
unsafe fn closing(file: *mut libc::FILE) -> Option<Left> {
    if file.is_null() {
        return None;
    }
    // SAFETY: the caller's stream.
    let fd = unsafe { libc::fileno(file) };
    let known = fd >= 0 && !matches!(table::entry(fd), Entry::Unknown) && table::may_change();
    // A stream that was made here closes by `close`.
    if !known || MADE.lock().is_some_and(|all| all.iter().any(|(made, _)| *made == file as usize)) {
        return None;
    }
    // SAFETY: the caller's stream. Bytes in its buffer are written first.
    unsafe { libc::fflush(file) };
    table::forget(fd)
}
