//! The limits of the adapter (NDK 4.1).

use transom_engine::raw;

use crate::types::{AdapterInfo, Version};

/// Private data with Connect, Accept and Reject.
const PRIVATE: u32 = 508;
const SGES: u32 = 32;
const INLINE: u32 = 4096;
const DEPTH: u32 = 16_384;
pub(crate) const TRANSFER: u32 = 1 << 30;
pub(crate) const REGION: u64 = 1 << 46;

/// `NDK_ADAPTER_INFO`, without what was agreed at open.
pub(crate) fn info(adapter: &raw::Adapter) -> AdapterInfo {
    let reads = adapter.options().reads;
    AdapterInfo {
        version: Version::default(),
        vendor_id: 0,
        device_id: 0,
        max_registration_size: REGION as usize,
        max_window_size: REGION as usize,
        frmr_page_count: 512,
        max_initiator_request_sge: SGES,
        max_receive_request_sge: SGES,
        max_read_request_sge: SGES,
        max_transfer_length: TRANSFER,
        max_inline_data_size: INLINE,
        max_inbound_read_limit: reads.inbound,
        max_outbound_read_limit: reads.outbound,
        max_receive_queue_depth: DEPTH,
        max_initiator_queue_depth: DEPTH,
        max_srq_depth: DEPTH,
        max_cq_depth: 1 << 20,
        large_request_threshold: 4096,
        max_caller_data: PRIVATE,
        max_callee_data: PRIVATE,
        adapter_flags: 0,
        rdma_technology: 1, // iWARP
    }
}
