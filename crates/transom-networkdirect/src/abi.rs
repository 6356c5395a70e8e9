//! Structures and flags that programs share with us (ND2 3.2 to 3.4, ND1 3).

/// ND2_ADAPTER_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nd2AdapterInfo {
    pub(crate) info_version: u32,
    pub(crate) vendor_id: u16,
    pub(crate) device_id: u16,
    pub(crate) adapter_id: u64,
    pub(crate) max_registration_size: usize,
    pub(crate) max_window_size: usize,
    pub(crate) max_initiator_sge: u32,
    pub(crate) max_receive_sge: u32,
    pub(crate) max_read_sge: u32,
    pub(crate) max_transfer_length: u32,
    pub(crate) max_inline_data_size: u32,
    pub(crate) max_inbound_read_limit: u32,
    pub(crate) max_outbound_read_limit: u32,
    pub(crate) max_receive_queue_depth: u32,
    pub(crate) max_initiator_queue_depth: u32,
    pub(crate) max_shared_receive_queue_depth: u32,
    pub(crate) max_completion_queue_depth: u32,
    pub(crate) inline_request_threshold: u32,
    pub(crate) large_request_threshold: u32,
    pub(crate) max_caller_data: u32,
    pub(crate) max_callee_data: u32,
    pub(crate) adapter_flags: u32,
}

/// ND2_RESULT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nd2Result {
    pub(crate) status: i32,
    pub(crate) bytes_transferred: u32,
    pub(crate) queue_pair_context: usize,
    pub(crate) request_context: usize,
    pub(crate) request_type: u32,
}

/// ND2_SGE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nd2Sge {
    pub(crate) buffer: usize,
    pub(crate) buffer_length: u32,
    pub(crate) memory_region_token: u32,
}

/// ND_ADAPTER_INFO, which is ND_ADAPTER_INFO1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NdAdapterInfo {
    pub(crate) vendor_id: u32,
    pub(crate) device_id: u32,
    pub(crate) max_inbound_sge: usize,
    pub(crate) max_inbound_requests: usize,
    pub(crate) max_inbound_length: usize,
    pub(crate) max_outbound_sge: usize,
    pub(crate) max_outbound_requests: usize,
    pub(crate) max_outbound_length: usize,
    pub(crate) max_inline_data: usize,
    pub(crate) max_inbound_read_limit: usize,
    pub(crate) max_outbound_read_limit: usize,
    pub(crate) max_cq_entries: usize,
    pub(crate) max_registration_size: usize,
    pub(crate) max_window_size: usize,
    pub(crate) large_request_threshold: usize,
    pub(crate) max_caller_data: usize,
    pub(crate) max_callee_data: usize,
}

/// ND_RESULT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NdResult {
    pub(crate) status: i32,
    pub(crate) bytes_transferred: usize,
}

/// ND_SGE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NdSge {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) region: usize,
}

/// ND_MW_DESCRIPTOR: a wire object, all of it in network order.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NdMwDescriptor {
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) token: u32,
}

pub(crate) const ND_VERSION_1: u32 = 1;
pub(crate) const ND_VERSION_2: u32 = 0x2_0000;

pub(crate) const ADAPTER_IN_ORDER_DMA: u32 = 0x1;
pub(crate) const ADAPTER_CQ_RESIZE: u32 = 0x100;
pub(crate) const ADAPTER_LOOPBACK: u32 = 0x1_0000;

pub(crate) const NOTIFY_ERRORS: u32 = 0;
pub(crate) const NOTIFY_ANY: u32 = 1;
pub(crate) const NOTIFY_SOLICITED: u32 = 2;

pub(crate) const MR_LOCAL_WRITE: u32 = 0x1;
pub(crate) const MR_REMOTE_READ: u32 = 0x2;
/// Tested alone; programs pass it together with `MR_LOCAL_WRITE` (ND2 C37).
pub(crate) const MR_REMOTE_WRITE_BIT: u32 = 0x4;
pub(crate) const MR_READ_SINK: u32 = 0x8;
pub(crate) const MR_DO_NOT_SECURE_VM: u32 = 0x8000_0000;

pub(crate) const OP_SILENT_SUCCESS: u32 = 0x1;
pub(crate) const OP_READ_FENCE: u32 = 0x2;
pub(crate) const OP_SOLICIT: u32 = 0x4;
pub(crate) const OP_ALLOW_READ: u32 = 0x8;
pub(crate) const OP_ALLOW_WRITE: u32 = 0x10;
pub(crate) const OP_INLINE: u32 = 0x20;
