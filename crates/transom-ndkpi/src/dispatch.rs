//! The dispatch tables: the order of their entries is the binary interface (NDK 5).

use std::ffi::c_void;
use std::mem::size_of;

use crate::mdl::Mdl;
use crate::types::{
    AdapterInfo, ExtensionInterface, GroupAffinity, Guid, LogicalAddressMapping, NdkResult,
    NdkResultEx, Object, ObjectHeader, Sge, Version,
};

/// `NDK_FN_CREATE_COMPLETION`.
pub type CreateCompletion = Option<unsafe extern "C" fn(*mut c_void, i32, *mut ObjectHeader)>;
/// `NDK_FN_REQUEST_COMPLETION`.
pub type RequestCompletion = Option<unsafe extern "C" fn(*mut c_void, i32)>;
/// `NDK_FN_CLOSE_COMPLETION`.
pub type CloseCompletion = Option<unsafe extern "C" fn(*mut c_void)>;
/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`.
pub type CqNotification = Option<unsafe extern "C" fn(*mut c_void, i32)>;
/// `NDK_FN_SRQ_NOTIFICATION_CALLBACK`.
pub type SrqNotification = Option<unsafe extern "C" fn(*mut c_void, i32)>;
/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
pub type ConnectEvent = Option<unsafe extern "C" fn(*mut c_void, *mut Object)>;
/// `NDK_FN_DISCONNECT_EVENT_CALLBACK`.
pub type DisconnectEvent = Option<unsafe extern "C" fn(*mut c_void)>;
/// `NDK_FN_DISCONNECT_EVENT_CALLBACK_EX` (2.1).
pub type DisconnectEventEx = Option<unsafe extern "C" fn(*mut c_void, u32)>;

/// `NdkClose*`.
pub type CloseObject = unsafe extern "C" fn(*mut ObjectHeader, CloseCompletion, *mut c_void) -> i32;
/// `NdkQueryExtension`.
pub type QueryExtension =
    unsafe extern "C" fn(*mut ObjectHeader, *const Guid, Version, *mut ExtensionInterface) -> i32;
/// `NdkGetLocalAddress`, `NdkGetPeerAddress`.
pub type GetAddress = unsafe extern "C" fn(*mut Object, *mut c_void, *mut u32) -> i32;
/// `NdkGetRemoteTokenFrom*`, `NdkGetLocalTokenFromMr`.
pub type GetToken = unsafe extern "C" fn(*mut Object) -> u32;
/// `NdkCompleteConnect`.
pub type CompleteConnect = unsafe extern "C" fn(
    *mut Object,
    DisconnectEvent,
    *mut c_void,
    RequestCompletion,
    *mut c_void,
) -> i32;
/// `NdkCompleteConnectEx`.
pub type CompleteConnectEx = unsafe extern "C" fn(
    *mut Object,
    DisconnectEventEx,
    *mut c_void,
    RequestCompletion,
    *mut c_void,
) -> i32;
/// `NdkAccept`.
pub type Accept = unsafe extern "C" fn(
    *mut Object,
    *mut Object,
    u32,
    u32,
    *const c_void,
    u32,
    DisconnectEvent,
    *mut c_void,
    RequestCompletion,
    *mut c_void,
) -> i32;
/// `NdkAcceptEx`.
pub type AcceptEx = unsafe extern "C" fn(
    *mut Object,
    *mut Object,
    u32,
    u32,
    *const c_void,
    u32,
    DisconnectEventEx,
    *mut c_void,
    RequestCompletion,
    *mut c_void,
) -> i32;
/// `NdkRead`, `NdkWrite`.
pub type Transfer =
    unsafe extern "C" fn(*mut Object, *mut c_void, *const Sge, u32, u64, u32, u32) -> i32;

macro_rules! table {
    ($(#[$doc:meta])* $name:ident, $slots:literal { $($entry:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the entries are named as in NDK 5")]
        pub struct $name { $(pub $entry: $ty,)* }
        impl $name {
            /// The entries in order, with their offsets.
            pub const ENTRIES: &'static [(&'static str, usize)] =
                &[$((stringify!($entry), std::mem::offset_of!($name, $entry)),)*];
        }
        const _: () = assert!(size_of::<$name>() == $slots * size_of::<usize>());
    };
}

table! { /// `NDK_ADAPTER_DISPATCH`. No close: adapters are closed by `NdkCloseAdapter`, which blocks.
    AdapterDispatch, 9 {
    query_extension: QueryExtension,
    query_adapter_info: unsafe extern "C" fn(*mut Object, *mut AdapterInfo, *mut u32) -> i32,
    create_cq: unsafe extern "C" fn(*mut Object, u32, CqNotification, *mut c_void,
        *const GroupAffinity, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_pd: unsafe extern "C" fn(
        *mut Object, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_shared_endpoint: unsafe extern "C" fn(*mut Object, *const c_void, u32,
        CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_connector: unsafe extern "C" fn(
        *mut Object, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_listener: unsafe extern "C" fn(*mut Object, ConnectEvent, *mut c_void,
        CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    build_lam: unsafe extern "C" fn(*mut Object, *mut Mdl, usize, RequestCompletion,
        *mut c_void, *mut LogicalAddressMapping, *mut u32, *mut u32) -> i32,
    release_lam: unsafe extern "C" fn(*mut Object, *mut LogicalAddressMapping),
}}

table! { /// `NDK_PD_DISPATCH`.
    PdDispatch, 8 {
    close: CloseObject,
    query_extension: QueryExtension,
    create_mr: unsafe extern "C" fn(
        *mut Object, u8, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_mw: unsafe extern "C" fn(
        *mut Object, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_srq: unsafe extern "C" fn(*mut Object, u32, u32, u32, SrqNotification, *mut c_void,
        *const GroupAffinity, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_qp: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object, *mut c_void, u32, u32,
        u32, u32, u32, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    create_qp_with_srq: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object, *mut Object,
        *mut c_void, u32, u32, u32, CreateCompletion, *mut c_void, *mut *mut Object) -> i32,
    get_privileged_memory_region_token: unsafe extern "C" fn(*mut Object, *mut u32),
}}

table! { /// `NDK_CQ_DISPATCH`.
    CqDispatch, 7 {
    close: CloseObject,
    query_extension: QueryExtension,
    resize: unsafe extern "C" fn(*mut Object, u32, RequestCompletion, *mut c_void) -> i32,
    arm: unsafe extern "C" fn(*mut Object, u32),
    get_results: unsafe extern "C" fn(*mut Object, *mut NdkResult, u32) -> u32,
    control_interrupt_moderation: unsafe extern "C" fn(*mut Object, u32, u32) -> i32,
    get_results_ex: unsafe extern "C" fn(*mut Object, *mut NdkResultEx, u32) -> u32,
}}

table! { /// `NDK_QP_DISPATCH`.
    QpDispatch, 11 {
    close: CloseObject,
    query_extension: QueryExtension,
    flush: unsafe extern "C" fn(*mut Object),
    send: unsafe extern "C" fn(*mut Object, *mut c_void, *const Sge, u32, u32) -> i32,
    receive: unsafe extern "C" fn(*mut Object, *mut c_void, *const Sge, u32) -> i32,
    bind: unsafe extern "C" fn(*mut Object, *mut c_void, *mut Object, *mut Object, *mut c_void,
        usize, u32) -> i32,
    fast_register: unsafe extern "C" fn(*mut Object, *mut c_void, *mut Object, u32, *const i64,
        u32, usize, *mut c_void, u32) -> i32,
    invalidate: unsafe extern "C" fn(*mut Object, *mut c_void, *mut ObjectHeader, u32) -> i32,
    read: Transfer,
    write: Transfer,
    send_and_invalidate: unsafe extern "C" fn(
        *mut Object, *mut c_void, *const Sge, u32, u32, u32) -> i32,
}}

table! { /// `NDK_MR_DISPATCH`. The remote token's entry comes before the local one's.
    MrDispatch, 7 {
    close: CloseObject,
    query_extension: QueryExtension,
    register: unsafe extern "C" fn(
        *mut Object, *mut Mdl, usize, u32, RequestCompletion, *mut c_void) -> i32,
    deregister: unsafe extern "C" fn(*mut Object, RequestCompletion, *mut c_void) -> i32,
    initialize_fast_register: unsafe extern "C" fn(
        *mut Object, u32, u8, RequestCompletion, *mut c_void) -> i32,
    get_remote_token: GetToken,
    get_local_token: GetToken,
}}

table! { /// `NDK_MW_DISPATCH`.
    MwDispatch, 3 {
    close: CloseObject,
    query_extension: QueryExtension,
    get_remote_token: GetToken,
}}

table! { /// `NDK_SRQ_DISPATCH`.
    SrqDispatch, 4 {
    close: CloseObject,
    query_extension: QueryExtension,
    modify: unsafe extern "C" fn(*mut Object, u32, u32, RequestCompletion, *mut c_void) -> i32,
    receive: unsafe extern "C" fn(*mut Object, *mut c_void, *const Sge, u32) -> i32,
}}

table! { /// `NDK_CONNECTOR_DISPATCH`, the 2.1 table; 1.2 uses its first eleven entries.
    ConnectorDispatch, 13 {
    close: CloseObject,
    query_extension: QueryExtension,
    connect: unsafe extern "C" fn(*mut Object, *mut Object, *const c_void, u32, *const c_void,
        u32, u32, u32, *const c_void, u32, RequestCompletion, *mut c_void) -> i32,
    connect_with_shared_endpoint: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object,
        *const c_void, u32, u32, u32, *const c_void, u32, RequestCompletion, *mut c_void) -> i32,
    complete_connect: CompleteConnect,
    accept: Accept,
    reject: unsafe extern "C" fn(*mut Object, *const c_void, u32) -> i32,
    get_connection_data: unsafe extern "C" fn(
        *mut Object, *mut u32, *mut u32, *mut c_void, *mut u32) -> i32,
    get_local_address: GetAddress,
    get_peer_address: GetAddress,
    disconnect: unsafe extern "C" fn(*mut Object, RequestCompletion, *mut c_void) -> i32,
    complete_connect_ex: CompleteConnectEx,
    accept_ex: AcceptEx,
}}

table! { /// `NDK_LISTENER_DISPATCH`.
    ListenerDispatch, 5 {
    close: CloseObject,
    query_extension: QueryExtension,
    listen: unsafe extern "C" fn(
        *mut Object, *const c_void, u32, RequestCompletion, *mut c_void) -> i32,
    get_local_address: GetAddress,
    control_connect_events: unsafe extern "C" fn(*mut Object, u8),
}}

table! { /// `NDK_SHARED_ENDPOINT_DISPATCH`.
    SharedEndpointDispatch, 3 {
    close: CloseObject,
    query_extension: QueryExtension,
    get_local_address: GetAddress,
}}
