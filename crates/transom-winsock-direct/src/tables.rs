//! The tables that the switch and the provider hand each other (WSD 2.2, 2.3), and the types of the
//! functions in them. The order of the entries is the binary interface.

use std::ffi::{c_char, c_void};
use std::mem::size_of;

use crate::abi::{NetworkEvents, Overlapped, ProtocolInfo, WsaBuf, WsaBufEx};

/// An entry that is not there.
pub(crate) const NONE: *const c_void = std::ptr::null();

/// A completion routine; never used (WSD O-1).
pub type Routine = *const c_void;
/// `LPCONDITIONPROC`.
pub type Condition = Option<
    unsafe extern "C" fn(
        *mut WsaBuf,
        *mut WsaBuf,
        *mut c_void,
        *mut c_void,
        *mut WsaBuf,
        *mut WsaBuf,
        *mut u32,
        usize,
    ) -> i32,
>;
/// `WPUCreateSocketHandle`.
pub type CreateSocketHandle = unsafe extern "C" fn(u32, usize, *mut i32) -> usize;
/// `WPUCloseSocketHandle`.
pub type CloseSocketHandle = unsafe extern "C" fn(usize, *mut i32) -> i32;
/// `WPUSetEvent`, `WPUResetEvent`.
pub type Event = unsafe extern "C" fn(*mut c_void, *mut i32) -> i32;
/// `WPUCompleteOverlappedRequest`.
pub type CompleteOverlapped =
    unsafe extern "C" fn(usize, *mut Overlapped, u32, u32, *mut i32) -> i32;

/// `WSPUPCALLTABLEEX`. Entries that a SAN provider has no use for are kept as pointers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the entries are named as in WSD 2.2")]
pub struct UpcallTableEx {
    pub close_event: *const c_void,
    pub close_socket_handle: Option<CloseSocketHandle>,
    pub create_event: *const c_void,
    pub create_socket_handle: Option<CreateSocketHandle>,
    pub fd_is_set: *const c_void,
    pub get_provider_path: *const c_void,
    pub modify_ifs_handle: *const c_void,
    pub post_message: *const c_void,
    pub query_blocking_callback: *const c_void,
    pub query_socket_handle_context: *const c_void,
    pub queue_apc: *const c_void,
    pub reset_event: Option<Event>,
    pub set_event: Option<Event>,
    pub open_current_thread: *const c_void,
    pub close_thread: *const c_void,
    pub complete_overlapped_request: Option<CompleteOverlapped>,
}

impl UpcallTableEx {
    /// No function at all: for switches that have some of them.
    pub const NONE: UpcallTableEx = UpcallTableEx {
        close_event: std::ptr::null(),
        close_socket_handle: None,
        create_event: std::ptr::null(),
        create_socket_handle: None,
        fd_is_set: std::ptr::null(),
        get_provider_path: std::ptr::null(),
        modify_ifs_handle: std::ptr::null(),
        post_message: std::ptr::null(),
        query_blocking_callback: std::ptr::null(),
        query_socket_handle_context: std::ptr::null(),
        queue_apc: std::ptr::null(),
        reset_event: None,
        set_event: None,
        open_current_thread: std::ptr::null(),
        close_thread: std::ptr::null(),
        complete_overlapped_request: None,
    };
}

// SAFETY: a table of functions, copied and never written.
unsafe impl Send for UpcallTableEx {}
// SAFETY: as above.
unsafe impl Sync for UpcallTableEx {}

/// `WSPAccept`.
pub type Accept =
    unsafe extern "C" fn(usize, *mut c_void, *mut i32, Condition, usize, *mut i32) -> usize;
/// `WSPBind`.
pub type Bind = unsafe extern "C" fn(usize, *const c_void, i32, *mut i32) -> i32;
/// `WSPConnect`.
pub type Connect = unsafe extern "C" fn(
    usize,
    *const c_void,
    i32,
    *const WsaBuf,
    *mut WsaBuf,
    *const c_void,
    *const c_void,
    *mut i32,
) -> i32;
/// `WSPGetOverlappedResult`.
pub type GetOverlappedResult =
    unsafe extern "C" fn(usize, *mut Overlapped, *mut u32, i32, *mut u32, *mut i32) -> i32;
/// `WSPIoctl`.
pub type Ioctl = unsafe extern "C" fn(
    usize,
    u32,
    *const c_void,
    u32,
    *mut c_void,
    u32,
    *mut u32,
    *mut Overlapped,
    Routine,
    *mut c_void,
    *mut i32,
) -> i32;
/// `WSPRecv`.
pub type Recv = unsafe extern "C" fn(
    usize,
    *mut WsaBuf,
    u32,
    *mut u32,
    *mut u32,
    *mut Overlapped,
    Routine,
    *mut c_void,
    *mut i32,
) -> i32;
/// `WSPSend`.
pub type SendMessage = unsafe extern "C" fn(
    usize,
    *mut WsaBuf,
    u32,
    *mut u32,
    u32,
    *mut Overlapped,
    Routine,
    *mut c_void,
    *mut i32,
) -> i32;

/// `WSPPROC_TABLE`: 30 entries. Those that the switch serves itself (WSD 2.3) are NULL.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the entries are named as in WSD 2.3")]
pub struct ProcTable {
    pub accept: Option<Accept>,
    pub address_to_string: *const c_void,
    pub async_select: *const c_void,
    pub bind: Option<Bind>,
    pub cancel_blocking_call: *const c_void,
    pub cleanup: Option<unsafe extern "C" fn(*mut i32) -> i32>,
    pub close_socket: Option<unsafe extern "C" fn(usize, *mut i32) -> i32>,
    pub connect: Option<Connect>,
    pub duplicate_socket:
        Option<unsafe extern "C" fn(usize, u32, *mut ProtocolInfo, *mut i32) -> i32>,
    pub enum_network_events:
        Option<unsafe extern "C" fn(usize, *mut c_void, *mut NetworkEvents, *mut i32) -> i32>,
    pub event_select: Option<unsafe extern "C" fn(usize, *mut c_void, i32, *mut i32) -> i32>,
    pub get_overlapped_result: Option<GetOverlappedResult>,
    pub get_peer_name: *const c_void,
    pub get_sock_name: *const c_void,
    pub get_sock_opt:
        Option<unsafe extern "C" fn(usize, i32, i32, *mut c_char, *mut i32, *mut i32) -> i32>,
    pub get_qos_by_name:
        Option<unsafe extern "C" fn(usize, *mut WsaBuf, *mut c_void, *mut i32) -> i32>,
    pub ioctl: Option<Ioctl>,
    pub join_leaf: *const c_void,
    pub listen: Option<unsafe extern "C" fn(usize, i32, *mut i32) -> i32>,
    pub recv: Option<Recv>,
    pub recv_disconnect: *const c_void,
    pub recv_from: *const c_void,
    pub select: *const c_void,
    pub send: Option<SendMessage>,
    pub send_disconnect: *const c_void,
    pub send_to: *const c_void,
    pub set_sock_opt:
        Option<unsafe extern "C" fn(usize, i32, i32, *const c_char, i32, *mut i32) -> i32>,
    pub shutdown: *const c_void,
    pub socket: Option<
        unsafe extern "C" fn(i32, i32, i32, *const ProtocolInfo, u32, u32, *mut i32) -> usize,
    >,
    pub string_to_address: *const c_void,
}

/// `WSPRegisterMemory`.
pub type RegisterMemory =
    unsafe extern "C" fn(usize, *mut c_void, u32, u32, *mut i32) -> *mut c_void;
/// `WSPDeregisterMemory`.
pub type DeregisterMemory = unsafe extern "C" fn(usize, *mut c_void, *mut i32) -> i32;
/// `WSPRegisterRdmaMemory`: 0 is success, whatever the typedef in the header says.
pub type RegisterRdmaMemory =
    unsafe extern "C" fn(usize, *mut c_void, u32, u32, *mut c_void, *mut u32, *mut i32) -> i32;
/// `WSPDeregisterRdmaMemory`.
pub type DeregisterRdmaMemory = unsafe extern "C" fn(usize, *mut c_void, u32, *mut i32) -> i32;
/// `WSPRdmaRead`, `WSPRdmaWrite`.
pub type Rdma = unsafe extern "C" fn(
    usize,
    *mut WsaBufEx,
    u32,
    *mut c_void,
    u32,
    u32,
    *mut u32,
    u32,
    *mut Overlapped,
    Routine,
    *mut c_void,
    *mut i32,
) -> i32;
/// `WSPMemoryRegistrationCacheCallback`.
pub type CacheCallback = unsafe extern "C" fn(*mut c_void, usize, *mut i32) -> i32;

const _: () = assert!(size_of::<UpcallTableEx>() == 16 * size_of::<usize>());
const _: () = assert!(size_of::<ProcTable>() == 30 * size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    /// WSD W2: sizes of the structures and tables.
    #[test]
    fn w02_sizes() {
        assert_eq!(size_of::<UpcallTableEx>(), 16 * size_of::<usize>());
        assert_eq!(size_of::<ProcTable>(), 30 * size_of::<usize>());
        assert_eq!(size_of::<WsaBufEx>(), 3 * size_of::<usize>());
    }
}
