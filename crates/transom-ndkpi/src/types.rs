//! Structures as `ndkpi.h` lays them out (NDK 4.1), with their sizes and offsets asserted for
//! 64-bit targets.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};

/// Interface version; passed by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor: as a request, the lowest that is acceptable.
    pub minor: u16,
}

/// The kind of object that a header belongs to (NDK 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ObjectType {
    /// Adapter.
    Adapter = 1,
    /// Queue pair.
    Qp = 2,
    /// Completion queue.
    Cq = 3,
    /// Memory region.
    Mr = 4,
    /// Memory window.
    Mw = 5,
    /// Protection domain.
    Pd = 6,
    /// Shared endpoint.
    SharedEndpoint = 7,
    /// Connector.
    Connector = 8,
    /// Listener.
    Listener = 9,
    /// Shared receive queue.
    Srq = 10,
}

/// In front of every object. `ndk_reserved` belongs to the layer above (NDK OB-1).
#[derive(Debug)]
#[repr(C)]
pub struct ObjectHeader {
    /// Negotiated version.
    pub version: Version,
    /// An [`ObjectType`].
    pub object_type: u32,
    /// Zero when the object is handed out; not touched afterwards.
    pub ndk_reserved: [*mut c_void; 4],
}

/// The visible part of every object: a header and a table that the consumer may replace (NDK OB-2).
#[derive(Debug)]
#[repr(C)]
pub struct Object {
    /// Header.
    pub header: ObjectHeader,
    /// The table of the object's functions.
    pub dispatch: *const c_void,
}

/// A completion (`NDK_RESULT`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NdkResult {
    /// How it ended.
    pub status: i32,
    /// Valid for receives only (NDK WR-14).
    pub bytes_transferred: u32,
    /// Context of the queue pair.
    pub qp_context: *mut c_void,
    /// Context of the request.
    pub request_context: *mut c_void,
}

/// A completion with its type (`NDK_RESULT_EX`, the 2.1 shape; 1.2 reads the same bytes on 64-bit).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NdkResultEx {
    /// How it ended.
    pub status: i32,
    /// Valid for receives only.
    pub bytes_transferred: u32,
    /// Context of the queue pair.
    pub qp_context: *mut c_void,
    /// Context of the request.
    pub request_context: *mut c_void,
    /// An operation type.
    pub operation: u32,
    /// 0 on success, else the number of the refusal's record, if there is one.
    pub provider_error_code: u32,
    /// The invalidated token of a `ReceiveAndInvalidate`; undefined otherwise.
    pub type_specific: usize,
}

/// A run of local bytes (`NDK_SGE`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sge {
    /// Virtual address inside the region; with the privileged token, a logical address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local token.
    pub token: u32,
}

/// `NDK_ADAPTER_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are NDK 4.1's, one to one")]
pub struct AdapterInfo {
    pub version: Version,
    pub vendor_id: u32,
    pub device_id: u32,
    pub max_registration_size: usize,
    pub max_window_size: usize,
    pub frmr_page_count: u32,
    pub max_initiator_request_sge: u32,
    pub max_receive_request_sge: u32,
    pub max_read_request_sge: u32,
    pub max_transfer_length: u32,
    pub max_inline_data_size: u32,
    pub max_inbound_read_limit: u32,
    pub max_outbound_read_limit: u32,
    pub max_receive_queue_depth: u32,
    pub max_initiator_queue_depth: u32,
    pub max_srq_depth: u32,
    pub max_cq_depth: u32,
    pub large_request_threshold: u32,
    pub max_caller_data: u32,
    pub max_callee_data: u32,
    pub adapter_flags: u32,
    pub rdma_technology: u32,
}

/// Head of a logical address mapping; the array has `adapter_page_count` elements.
#[derive(Debug)]
#[repr(C)]
pub struct LogicalAddressMapping {
    /// The provider's.
    pub adapter_context: *mut c_void,
    /// Pages.
    pub adapter_page_count: u32,
    /// First of them.
    pub adapter_page_array: [i64; 1],
}

/// An extension interface (none exists).
#[derive(Debug)]
#[repr(C)]
pub struct ExtensionInterface {
    /// The object's table.
    pub dispatch: *const c_void,
}

/// A GUID.
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

/// A hint about processors; not followed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GroupAffinity {
    /// Processors.
    pub mask: usize,
    /// Group.
    pub group: u16,
    /// Zero.
    pub reserved: [u16; 3],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Version>() == 4);
    assert!(size_of::<ObjectHeader>() == 40 && offset_of!(ObjectHeader, ndk_reserved) == 8);
    assert!(size_of::<Object>() == 48 && offset_of!(Object, dispatch) == 40);
    assert!(size_of::<NdkResult>() == 24 && offset_of!(NdkResult, request_context) == 16);
    assert!(size_of::<NdkResultEx>() == 40 && offset_of!(NdkResultEx, operation) == 24);
    assert!(offset_of!(NdkResultEx, provider_error_code) == 28);
    assert!(offset_of!(NdkResultEx, type_specific) == 32);
    assert!(size_of::<Sge>() == 16 && offset_of!(Sge, token) == 12);
    assert!(size_of::<AdapterInfo>() == 104 && offset_of!(AdapterInfo, rdma_technology) == 96);
    assert!(offset_of!(AdapterInfo, max_registration_size) == 16);
    assert!(offset_of!(AdapterInfo, frmr_page_count) == 32);
    assert!(offset_of!(AdapterInfo, adapter_flags) == 92);
    assert!(offset_of!(LogicalAddressMapping, adapter_page_array) == 16);
    assert!(size_of::<GroupAffinity>() == 16);
    assert!(size_of::<ExtensionInterface>() == 8);
    assert!(size_of::<Guid>() == 16);
};
