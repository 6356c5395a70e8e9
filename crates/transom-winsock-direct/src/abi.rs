//! Structures and constants as the headers lay them out (WSD 2.6).

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

/// `MEM_*` flags of the two register functions. From the adapter's point of view: read means that
/// it may read the buffer (send it), write that it may write it (receive into it).
pub mod mem {
    /// The adapter may read.
    pub const READ: u32 = 1;
    /// The adapter may write.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const READWRITE: u32 = 3;
}

/// `SOL_SOCKET` of Windows.
pub const SOL_SOCKET: i32 = 0xFFFF;
/// Debugging.
pub const SO_DEBUG: i32 = 1;
/// Largest message.
pub const SO_MAX_MSG_SIZE: i32 = 0x2003;
/// Largest RDMA transfer.
pub const SO_MAX_RDMA_SIZE: i32 = 0x700D;
/// From here on RDMA is the better way.
pub const SO_RDMA_THRESHOLD_SIZE: i32 = 0x700E;
/// Extension functions by GUID.
pub const SIO_GET_EXTENSION_FUNCTION_POINTER: u32 = 0xC800_0006;
/// Addresses of the provider.
pub const SIO_ADDRESS_LIST_QUERY: u32 = 0x4800_0016;
/// Transom's own: which optional functions are offered, as 32 bits
/// ([`Offers::from_bits`](crate::extension::Offers::from_bits)).
pub const SIO_TRANSOM_OFFER: u32 = 0x9800_5401;
/// Transom's own: the newest refusal on the socket, as text with its NUL.
pub const SIO_TRANSOM_EXPLAIN: u32 = 0x5800_5402;
/// Give a registration of the socket a name: see [`RegistrationName`].
pub const SIO_TRANSOM_NAME: u32 = 0x9800_5403;

/// The input of [`SIO_TRANSOM_NAME`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RegistrationName {
    /// A local registration; or 0, and the descriptor names one for the peer.
    pub handle: usize,
    /// Bytes of the descriptor.
    pub descriptor: [u8; 16],
    /// UTF-8 text with its final zero byte.
    pub name: [u8; 32],
}
/// Sockets are overlapped.
pub const WSA_FLAG_OVERLAPPED: u32 = 1;
/// A connection request waits.
pub const FD_ACCEPT: i32 = 0x08;
/// A connect has ended.
pub const FD_CONNECT: i32 = 0x10;
/// Index of the error of `FD_ACCEPT`.
pub const FD_ACCEPT_BIT: usize = 3;
/// Index of the error of `FD_CONNECT`.
pub const FD_CONNECT_BIT: usize = 4;
/// The condition function says yes.
pub const CF_ACCEPT: i32 = 0;
/// The condition function says no.
pub const CF_REJECT: i32 = 1;
/// The condition function says later.
pub const CF_DEFER: i32 = 2;
/// The result of a failed function that returns `int`.
pub const SOCKET_ERROR: i32 = -1;
/// The result of a failed function that returns a socket.
pub const INVALID_SOCKET: usize = usize::MAX;

/// A buffer of a Send or Receive: no handle; the registration is found by the range (WSD M-2).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WsaBuf {
    /// Bytes.
    pub len: u32,
    /// First of them.
    pub buf: *mut c_char,
}

/// A buffer of an RDMA operation, with the handle from `WSPRegisterMemory`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WsaBufEx {
    /// Bytes.
    pub len: u32,
    /// First of them.
    pub buf: *mut c_char,
    /// Registration.
    pub handle: *mut c_void,
}

/// `WSAOVERLAPPED`.
#[derive(Debug)]
#[repr(C)]
pub struct Overlapped {
    /// Under way (0x103), or finished (0).
    pub internal: usize,
    /// Bytes.
    pub internal_high: usize,
    /// Flags of the call.
    pub offset: u32,
    /// Error.
    pub offset_high: u32,
    /// An event; its low bit asks for polling instead of an upcall (WSD O-3).
    pub event: *mut c_void,
}

/// `WSANETWORKEVENTS`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NetworkEvents {
    /// `FD_*`.
    pub events: i32,
    /// An error per event.
    pub errors: [i32; 10],
}

/// `GUID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Guid {
    /// First part.
    pub data1: u32,
    /// Second part.
    pub data2: u16,
    /// Third part.
    pub data3: u16,
    /// The rest.
    pub data4: [u8; 8],
}

/// `WSPDATA`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WspData {
    /// Version that will be used.
    pub version: u16,
    /// Highest version that could be.
    pub high_version: u16,
    /// UTF-16 text.
    pub description: [u16; 256],
}

/// `WSAPROTOCOL_INFOW`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are Winsock 2's, one to one")]
pub struct ProtocolInfo {
    pub service_flags: [u32; 4],
    pub provider_flags: u32,
    pub provider_id: Guid,
    pub catalog_entry_id: u32,
    pub chain_length: i32,
    pub chain: [u32; 7],
    pub version: i32,
    pub address_family: i32,
    pub max_sock_addr: i32,
    pub min_sock_addr: i32,
    pub socket_type: i32,
    pub protocol: i32,
    pub protocol_max_offset: i32,
    pub network_byte_order: i32,
    pub security_scheme: i32,
    pub message_size: u32,
    pub provider_reserved: u32,
    pub protocol_name: [u16; 256],
}

/// An address of `SIO_ADDRESS_LIST_QUERY`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SocketAddress {
    /// `sockaddr`.
    pub address: *mut c_void,
    /// The structure's bytes.
    pub length: i32,
}

/// Head of the answer to `SIO_ADDRESS_LIST_QUERY`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SocketAddressList {
    /// Addresses that follow.
    pub count: i32,
    /// The first.
    pub first: [SocketAddress; 1],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<WsaBuf>() == 16 && offset_of!(WsaBuf, buf) == 8);
    assert!(size_of::<WsaBufEx>() == 24 && offset_of!(WsaBufEx, handle) == 16);
    assert!(size_of::<Overlapped>() == 32 && offset_of!(Overlapped, event) == 24);
    assert!(size_of::<ProtocolInfo>() == 628);
    assert!(size_of::<NetworkEvents>() == 44);
    assert!(size_of::<WspData>() == 516);
    assert!(offset_of!(SocketAddressList, first) == 8);
};
