//! How calls and requests end.

/// The engine's own status: fine enough that every front can map it onto its codes (ND2 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The request or call succeeded.
    #[default]
    Success,
    /// Ended by a flush, a disconnect or an explicit cancel.
    Canceled,

    // ---- ends of requests (ND2 4.5) ----
    /// Memory that this side named: outside its region, dead token, missing right, or its pages are
    /// gone.
    LocalAccess,
    /// Memory of the peer that this side named.
    RemoteAccess,
    /// The peer failed in a way that is not about access.
    RemoteError,
    /// The peer had no receive in time, or fell silent.
    IoTimeout,
    /// The peer had no receive for as long as this queue pair allows (Verbs V94).
    ReceiverNotReady,
    /// No connection came about in time, or the peer was lost (Verbs V77, V79).
    RetryExceeded,
    /// This receive is shorter than the message.
    ReceiveTooSmall,
    /// The peer's receive is shorter than our message.
    PeerReceiveTooSmall,
    /// The peer takes no such request.
    PeerInvalidRequest,
    /// A request whose operation and data do not fit each other, found when it executes (ND2 C10).
    InvalidRequest,
    /// This side failed.
    InternalError,

    // ---- ends of calls ----
    /// Not connected.
    ConnectionInvalid,
    /// Already connecting or connected.
    ConnectionActive,
    /// The peer's program said no, or no program listens.
    ConnectionRefused,
    /// The peer was gone already.
    ConnectionAborted,
    /// This side has disconnected (0xC000020C in ND2).
    ConnectionDisconnected,
    /// The object is in another state.
    InvalidState,
    /// Private data longer than the limit.
    InvalidBufferSize,
    /// A second bind (0xC0000238 in ND2).
    AddressAssociated,
    /// Connect before Bind (0xC0000239 in ND2).
    AddressNotAssociated,
    /// As many requests as the queue holds are outstanding.
    NoMoreEntries,
    /// More scatter/gather entries than granted.
    DataOverrun,
    /// More bytes than a transfer, an inline request or a buffer may have.
    BufferOverflow,
    /// Argument number so-and-so.
    InvalidParameter(u8),
    /// This engine or dialect does not do that.
    NotSupported,
    /// Something hangs on it.
    DeviceBusy,
    /// The adapter's address has gone from this machine.
    DeviceRemoved,
    /// This process was forked from the one that opened the adapter.
    Forked,
    /// Memory, descriptors or tokens ran out.
    InsufficientResources,
    /// No route to the network.
    NetworkUnreachable,
    /// No route to the host.
    HostUnreachable,
    /// A destination that cannot be one (0xC00000CC in ND2).
    BadNetworkName,
    /// Not an address of this adapter.
    InvalidAddress,
    /// Another socket has this address and port.
    SharingViolation,
    /// No ephemeral port is left.
    TooManyAddresses,
    /// A completion queue ran over and is dead, with all its queue pairs (ND2 4.4, C27).
    QueueOverrun,
}

impl Status {
    /// Whether it is [`Status::Success`].
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Status::Success)
    }
}
