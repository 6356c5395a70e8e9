//! Streams of the C library on sockets. Such a stream reads and writes by calls of the C library's own,
//! which do not come here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;

use super::{answer, calls, next};
use crate::stream::{self, Receive};
use crate::table::{self, Entry};

type Cookie = *mut c_void;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(Cookie, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(Cookie, *const c_char, usize) -> isize,
    seek: *const c_void,
    close: unsafe extern "C" fn(Cookie) -> c_int,
}

fn one(at: *const c_char, length: usize) -> [libc::iovec; 1] {
    [libc::iovec { iov_base: at.cast_mut().cast(), iov_len: length }]
}

unsafe extern "C" fn read(cookie: Cookie, to: *mut c_char, length: usize) -> isize {
    let fd = cookie as usize as c_int;
    let Some(held) = table::hold_known(fd) else { return crate::sys::fail(libc::EBADF) };
    let vectors = one(to, length);
    answer(stream::receive(&held, fd, Receive { vectors: &vectors, flags: 0, message: None }))
}

unsafe extern "C" fn write(cookie: Cookie, from: *const c_char, length: usize) -> isize {
    let fd = cookie as usize as c_int;
    let Some(held) = table::hold_known(fd) else { return 0 };
    // A stream's function answers 0 when it fails.
    answer(stream::send(&held, fd, &one(from, length), 0, None)).max(0)
}

unsafe extern "C" fn close(cookie: Cookie) -> c_int {
    // SAFETY: a stream owns its descriptor.
    unsafe { super::descriptors::close(cookie as usize as c_int) }
}

/// A stream that reads and writes by this library's calls. The price: `fileno` does not know it.
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
    unsafe { call(fd as usize as Cookie, mode, functions) }
}

/// A program that was started with a switched connection as its standard input or output: its streams
/// have to know.
extern "C" fn at_start() {
    unsafe extern "C" {
        static mut stdin: *mut libc::FILE;
        static mut stdout: *mut libc::FILE;
        static mut stderr: *mut libc::FILE;
    }
    let streams =
        [(0, &raw mut stdin, c"r"), (1, &raw mut stdout, c"w"), (2, &raw mut stderr, c"w")];
    for (fd, stream, mode) in streams {
        if crate::offer::is_tcp(fd) && table::hold(fd).is_some() {
            // SAFETY: no other thread runs yet, and the C library lets programs set these.
            unsafe {
                let new = stream_of(fd, mode.as_ptr());
                if !new.is_null() {
                    if fd == 2 {
                        libc::setvbuf(new, std::ptr::null_mut(), libc::_IONBF, 0);
                    }
                    *stream = new;
                }
            }
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
        table::stays(fd);
        let switched = table::hold(fd).is_some_and(|held| {
            held.session().is_some_and(|session| !session.withdraw())
        });
        if switched { stream_of(fd, mode) } else { next(fd, mode) }
    }

    fn fclose(file: *mut libc::FILE) -> c_int, libc::EOF; |next| {
        let mut left = None;
        if !file.is_null() {
            let fd = libc::fileno(file);
            if fd >= 0 && !matches!(table::entry(fd), Entry::Unknown) && table::may_change() {
                // Bytes in the stream's buffer are written first.
                libc::fflush(file);
                left = table::forget(fd);
            }
        }
        let done = next(file);
        drop(left);
        done
    }
}
