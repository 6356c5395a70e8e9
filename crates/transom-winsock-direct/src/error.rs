//! Windows Sockets error values (WSD 2.6).

/// An error value. The functions of this interface store it where their last argument points.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Error(pub i32);

/// The result of a function of this interface.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Error {
            $(#[doc = $text] pub const $name: Error = Error($value);)*

            /// The name, if this interface uses it.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self { $(Error::$name => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

errors! {
    WSA_INVALID_HANDLE = 6, "The handle is not valid.";
    WSA_OPERATION_ABORTED = 995, "The socket was closed on this side.";
    WSA_IO_INCOMPLETE = 996, "The operation is still under way.";
    WSA_IO_PENDING = 997, "The operation has begun.";
    WSAEFAULT = 10014, "Memory that is not registered, not accessible, or too small.";
    WSAEINVAL = 10022, "An argument is not allowed, or something is in use.";
    WSAEMFILE = 10024, "Too many sockets.";
    WSAEWOULDBLOCK = 10035, "Not yet.";
    WSAENOTSOCK = 10038, "Not a socket, or one that was closed.";
    WSAEMSGSIZE = 10040, "Too long.";
    WSAEPROTOTYPE = 10041, "The socket type is not SOCK_STREAM.";
    WSAENOPROTOOPT = 10042, "No such option.";
    WSAEPROTONOSUPPORT = 10043, "The protocol is not IPPROTO_TCP.";
    WSAEOPNOTSUPP = 10045, "Not offered.";
    WSAEAFNOSUPPORT = 10047, "The address family is neither AF_INET nor AF_INET6.";
    WSAEADDRINUSE = 10048, "The address is in use.";
    WSAEADDRNOTAVAIL = 10049, "Not an address of this machine.";
    WSAENETDOWN = 10050, "The provider is not started, or failed.";
    WSAECONNABORTED = 10053, "The connection failed.";
    WSAECONNRESET = 10054, "The peer ended it; of a connect: nobody listens there.";
    WSAENOBUFS = 10055, "Out of something.";
    WSAENOTCONN = 10057, "Not connected.";
    WSAETIMEDOUT = 10060, "No answer.";
    WSAECONNREFUSED = 10061, "The peer's program refused.";
    WSAEHOSTUNREACH = 10065, "No such address.";
    WSASYSNOTREADY = 10091, "The network is not ready.";
    WSAVERNOTSUPPORTED = 10092, "Only version 2.2.";
    WSATRY_AGAIN = 11002, "The decision was put off.";
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({self:?})", self.0)
    }
}

impl std::error::Error for Error {}
