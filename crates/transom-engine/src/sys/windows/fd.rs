//! Something to wait for.

use std::sync::Arc;

use socket2::Socket;

use super::event::{AlarmClock, Set};

/// A socket of ours, or what stands in for a descriptor of Linux: a set of sockets, an alarm.
#[derive(Debug)]
pub struct Fd(pub(super) FdKind);

#[derive(Debug)]
pub(super) enum FdKind {
    /// Closed when it is dropped, here and by threads that look at it (`Epoll::remove`).
    Socket(Arc<Socket>),
    Set(Arc<Set>),
    Alarm(Arc<AlarmClock>),
}

impl Fd {
    /// Whether this process has made it: always, because no process is forked here.
    pub fn is_ours(&self) -> bool {
        true
    }
}

impl From<Socket> for Fd {
    fn from(socket: Socket) -> Fd {
        Fd(FdKind::Socket(Arc::new(socket)))
    }
}

/// Has something to wait for.
pub trait AsFd {
    /// The descriptor to wait for.
    fn as_fd(&self) -> &Fd;
}

impl AsFd for Fd {
    fn as_fd(&self) -> &Fd {
        self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> &Fd {
        (*self).as_fd()
    }
}
