//! The receive buffer of a socket, about which this system answers no question.

/// The receive buffer of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveBuffer {
    /// Bytes of memory that messages hold in it.
    pub(crate) held: usize,
    /// How many it may hold.
    pub(crate) size: usize,
}
