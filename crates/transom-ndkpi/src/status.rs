//! NTSTATUS values (NDK 0.3).

/// An NTSTATUS: 32 bits, severity in the top two.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub i32);

impl Status {
    /// Severity 0 or 1. `PENDING` is a success: ask for it first.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0 >= 0
    }

    /// Severity 3. Warnings (`DEVICE_BUSY`, `BUFFER_OVERFLOW`, `NO_MORE_ENTRIES`) are neither.
    #[must_use]
    pub fn is_error(self) -> bool {
        (self.0 as u32) >> 30 == 3
    }
}

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = $text] pub const $name: Status = Status($value as u32 as i32);)*

            /// The name without its prefix, if it is one that this interface uses.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self { $(Status::$name => Some(stringify!($name)),)* _ => None }
            }

            /// Every status of the table.
            pub const ALL: &'static [(&'static str, Status)] =
                &[$((stringify!($name), Status::$name),)*];
        }
    };
}

statuses! {
    SUCCESS = 0x0000_0000, "Done.";
    PENDING = 0x0000_0103, "The callback will tell.";
    BUFFER_OVERFLOW = 0x8000_0005, "More arrived than fits: a message, or completions in a queue.";
    DEVICE_BUSY = 0x8000_0011, "Something still hangs on it.";
    NO_MORE_ENTRIES = 0x8000_001A, "The queue is full.";
    UNSUCCESSFUL = 0xC000_0001, "Failed.";
    ACCESS_VIOLATION = 0xC000_0005, "Local memory: token, range or right is wrong.";
    INVALID_PARAMETER = 0xC000_000D, "An argument is outside what is allowed.";
    INVALID_DEVICE_REQUEST = 0xC000_0010, "Not for an object of this kind or state.";
    NO_MEMORY = 0xC000_0017, "Out of memory.";
    BUFFER_TOO_SMALL = 0xC000_0023, "The required size is returned.";
    INVALID_PARAMETER_MIX = 0xC000_0030, "Arguments that exclude each other.";
    DATA_OVERRUN = 0xC000_003C, "Too many scatter/gather entries, or too much data.";
    SHARING_VIOLATION = 0xC000_0043, "The address is in use.";
    INSUFFICIENT_RESOURCES = 0xC000_009A, "Out of something.";
    IO_TIMEOUT = 0xC000_00B5, "The peer did not answer in time.";
    NOT_SUPPORTED = 0xC000_00BB, "Not built.";
    INTERNAL_ERROR = 0xC000_00E5, "A fault of this provider.";
    CANCELLED = 0xC000_0120, "Flushed before it was done.";
    REMOTE_RESOURCES = 0xC000_013D, "The peer's adapter refused the access.";
    INVALID_ADDRESS = 0xC000_0141, "Not an address of this adapter.";
    INVALID_DEVICE_STATE = 0xC000_0184, "The object is in another state.";
    INVALID_BUFFER_SIZE = 0xC000_0206, "More inline or private data than allowed.";
    TOO_MANY_ADDRESSES = 0xC000_0209, "No free port.";
    ADDRESS_ALREADY_EXISTS = 0xC000_020A, "Such a connection exists already.";
    CONNECTION_DISCONNECTED = 0xC000_020C, "The connection has ended.";
    CONNECTION_REFUSED = 0xC000_0236, "Nobody listens, or the peer said no.";
    CONNECTION_INVALID = 0xC000_023A, "Not connected.";
    CONNECTION_ACTIVE = 0xC000_023B, "Already connected.";
    NETWORK_UNREACHABLE = 0xC000_023C, "No route to the network.";
    HOST_UNREACHABLE = 0xC000_023D, "No route to the host.";
    REQUEST_ABORTED = 0xC000_0240, "The request was given up.";
    CONNECTION_ABORTED = 0xC000_0241, "The other side gave up.";
    DEVICE_REMOVED = 0xC000_02B6, "The adapter is gone (or this is a forked child).";
    IMPLEMENTATION_LIMIT = 0xC000_042B, "Beyond what this provider can do.";
    BAD_VERSION = 0xC001_0004, "NDIS_STATUS_BAD_VERSION: an interface version nobody speaks.";
    ADAPTER_NOT_READY = 0xC001_0011, "NDIS_STATUS_ADAPTER_NOT_READY: not enabled.";
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#010x}", self.0),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#010x} ({self:?})", self.0)
    }
}
