//! Sockets as the driver sees them on every system: errors, options, what the peer's host has said.

use std::time::Duration;

/// Why a call on a socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// Nothing to read, or no room to write, now.
    NotNow,
    /// The memory to be sent is gone, and nothing of it was sent.
    Fault,
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer's host does not answer.
    TimedOut,
    /// No way to the peer's host.
    Unreachable,
    /// No way to the peer's network.
    NoRoute,
    /// The address or port is in use.
    InUse,
    /// Not an address of this machine.
    NotLocal,
    /// No free port, or none towards this peer.
    NoPort,
    /// No free descriptor or memory.
    Exhausted,
    /// Not allowed.
    Forbidden,
    /// Anything else: the system's number for it.
    Other(i32),
}

impl std::fmt::Display for IoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IoError::NotNow => "nothing can be moved now",
            IoError::Fault => "the memory to be sent is gone",
            IoError::Refused => "the peer's host refused the connection: nobody listens there",
            IoError::Reset => "the peer reset the connection",
            IoError::TimedOut => "the peer's host does not answer",
            IoError::Unreachable => "no route to the peer's host",
            IoError::NoRoute => "no route to the peer's network",
            IoError::InUse => "the address and port are in use",
            IoError::NotLocal => "not an address of this machine",
            IoError::NoPort => "every port is taken",
            IoError::Exhausted => "the system is out of descriptors or memory",
            IoError::Forbidden => "the system does not allow it",
            IoError::Other(n) => return write!(f, "{}", std::io::Error::from_raw_os_error(*n)),
        })
    }
}

impl std::error::Error for IoError {}

/// The acknowledgements of a peer's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How long ago the last acknowledgement came.
    pub heard: Duration,
    /// A probe, or something that was sent again, has had no answer.
    pub unanswered: bool,
    /// Not everything was acknowledged.
    pub waits: bool,
}

/// Options of every connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Give up on a peer host that acknowledges nothing for so long (TCP_USER_TIMEOUT).
    pub silence: Duration,
    /// Congestion control to pin, if any; ignored if the system does not have it.
    #[cfg_attr(windows, allow(dead_code, reason = "this system has no choice for a socket"))]
    pub congestion: Option<String>,
}
