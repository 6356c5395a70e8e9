//! A descriptor of ours.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// An owned descriptor that does not mind if somebody has closed it under us: every use of it then
/// fails with EBADF, which is a dead link, not a panic (the standard library's own type aborts).
#[derive(Debug)]
pub struct Fd(RawFd);

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        Fd(fd.into_raw_fd())
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: ours until drop and not -1; if somebody closed it, system calls fail.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // rustix asserts success, so it is asked of the kernel directly.
        // SAFETY: ours, and not used afterwards; an error means that it was closed already.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}
