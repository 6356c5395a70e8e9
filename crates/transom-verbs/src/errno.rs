//! Numbers of errors, and where the engine's statuses become one.

use transom_engine::{Status, raw};

/// A positive `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The result of a call.
pub(crate) type Result<T = ()> = std::result::Result<T, Errno>;

macro_rules! numbers {
    ($($name:ident)*) => {
        impl Errno { $(pub(crate) const $name: Errno = Errno(libc::$name);)* }
    };
}

numbers! {
    EINVAL ENOMEM EBUSY ENOENT EFAULT EIO ENOSYS EOPNOTSUPP EPROTONOSUPPORT ENODATA
    EACCES EADDRNOTAVAIL EADDRINUSE ECONNREFUSED ETIMEDOUT ENETUNREACH EHOSTUNREACH ENODEV
    EBADF EAGAIN EINTR ENOTCONN EISCONN EINPROGRESS EPIPE ECONNRESET EPROTO ENOPROTOOPT EAFNOSUPPORT
}

impl From<raw::Error> for Errno {
    fn from(error: raw::Error) -> Errno {
        Errno::from(error.status)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno)
    }
}

impl From<Status> for Errno {
    /// The errno of a call that the engine refuses. (How requests end is in `status.rs`.)
    fn from(status: Status) -> Errno {
        match status {
            Status::NoMoreEntries | Status::InsufficientResources | Status::TooManyAddresses => {
                Errno::ENOMEM
            }
            Status::LocalAccess => Errno::EFAULT,
            Status::DeviceBusy => Errno::EBUSY,
            Status::NotSupported => Errno::EOPNOTSUPP,
            Status::DeviceRemoved => Errno::ENODEV,
            Status::Forked | Status::InternalError => Errno::EIO,
            Status::SharingViolation => Errno::EADDRINUSE,
            Status::InvalidAddress => Errno::EADDRNOTAVAIL,
            Status::ConnectionRefused => Errno::ECONNREFUSED,
            Status::IoTimeout => Errno::ETIMEDOUT,
            Status::NetworkUnreachable => Errno::ENETUNREACH,
            Status::HostUnreachable => Errno::EHOSTUNREACH,
            _ => Errno::EINVAL,
        }
    }
}
