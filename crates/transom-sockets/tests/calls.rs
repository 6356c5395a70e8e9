//! The calls that the library takes from the C library.
#![allow(unsafe_code, clippy::unwrap_used, clippy::panic)] // tests

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use transom_sockets as _;

/// Calls by which a program makes, uses, passes on and ends a socket, those of `-D_FORTIFY_SOURCE` and of
/// 64-bit files included. `bind`, `getsockname` and `getpeername` are the kernel's: the socket is.
const CALLS: [&str; 65] = [
    "socket",
    "listen",
    "accept",
    "accept4",
    "connect",
    "shutdown",
    "close",
    "__close",
    "close_range",
    "closefrom",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "fcntl64",
    "ioctl",
    "setsockopt",
    "getsockopt",
    "read",
    "__read_chk",
    "readv",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
    "recvmmsg",
    "write",
    "writev",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "sendfile",
    "sendfile64",
    "splice",
    "poll",
    "__poll_chk",
    "ppoll",
    "__ppoll_chk",
    "select",
    "pselect",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "fdopen",
    "fclose",
    "fork",
    "syscall",
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "fexecve",
    "execl",
    "execlp",
    "execle",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "printf",
];

/// WSD W27.
#[test]
fn w27_every_call_of_the_list_is_the_librarys() {
    let library = std::env::current_exe().unwrap().with_file_name("libtransom_sockets.so");
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string; the library does nothing to this process when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{} cannot be loaded", library.display());
    let is_ours = |call: &str| {
        let name = CString::new(call).unwrap();
        // SAFETY: the handle is that of a library which stays loaded; the name is a C string; zeros are
        // a value of the structure, and the name in it is the loader's.
        unsafe {
            let mut about: libc::Dl_info = std::mem::zeroed();
            let at = libc::dlsym(handle, name.as_ptr());
            assert!(!at.is_null() && libc::dladdr(at, &raw mut about) != 0, "{call}");
            CStr::from_ptr(about.dli_fname).to_bytes().ends_with(b"libtransom_sockets.so")
        }
    };
    let (missing, ours): (Vec<&str>, Vec<&str>) = CALLS.iter().partition(|call| !is_ours(call));
    assert_eq!(missing, ["printf"], "and {} are the library's", ours.len());
}
