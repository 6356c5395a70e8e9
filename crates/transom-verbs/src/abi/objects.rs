//! The structures that stand for objects: contexts and what they make.

use super::*;

// ---- contexts ----------------------------------------------------------------------------------

#[repr(C)]
#[derive(Debug)]
pub struct ibv_device {
    pub ops: [Op; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_context_ops {
    pub compat_query_device: Op,
    pub compat_query_port: Op,
    pub compat_1: [Op; 5],
    pub alloc_mw: Op,
    pub bind_mw: Op,
    pub dealloc_mw: Op,
    pub compat_2: Op,
    pub poll_cq: Op,
    pub req_notify_cq: Op,
    pub compat_3: [Op; 7],
    pub post_srq_recv: Op,
    pub compat_4: [Op; 4],
    pub post_send: Op,
    pub post_recv: Op,
    pub compat_5: [Op; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// The structure in front of an [`ibv_context`]; it grows at its beginning.
#[repr(C)]
#[derive(Debug)]
pub struct verbs_context {
    pub free_buf: Op,
    pub alloc_buf: Op,
    pub dm_export_dmabuf_fd: Op,
    pub reg_mr_ex: Op,
    pub dealloc_dmah: Op,
    pub alloc_dmah: Op,
    pub query_port: Op,
    pub advise_mr: Op,
    pub alloc_null_mr: Op,
    pub read_counters: Op,
    pub attach_counters_point_flow: Op,
    pub create_counters: Op,
    pub destroy_counters: Op,
    pub reg_dm_mr: Op,
    pub alloc_dm: Op,
    pub free_dm: Op,
    pub modify_flow_action_esp: Op,
    pub destroy_flow_action: Op,
    pub create_flow_action_esp: Op,
    pub modify_qp_rate_limit: Op,
    pub alloc_parent_domain: Op,
    pub dealloc_td: Op,
    pub alloc_td: Op,
    pub modify_cq: Op,
    pub post_srq_ops: Op,
    pub destroy_rwq_ind_table: Op,
    pub create_rwq_ind_table: Op,
    pub destroy_wq: Op,
    pub modify_wq: Op,
    pub create_wq: Op,
    pub query_rt_values: Op,
    pub create_cq_ex: Op,
    pub private: Op,
    pub query_device_ex: Op,
    pub destroy_flow: Op,
    pub placeholder_2: Op,
    pub create_flow: Op,
    pub placeholder_1: Op,
    pub open_qp: Op,
    pub create_qp_ex: Op,
    pub get_srq_num: Op,
    pub create_srq_ex: Op,
    pub open_xrcd: Op,
    pub close_xrcd: Op,
    pub placeholder_0: Op,
    pub sz: usize,
}

// ---- objects -----------------------------------------------------------------------------------

#[repr(C)]
#[derive(Debug)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: c_int,
    pub wr_id: u64,
    pub start_poll: Op,
    pub next_poll: Op,
    pub end_poll: Op,
    pub read_opcode: Op,
    pub read_vendor_err: Op,
    pub read_byte_len: Op,
    pub read_imm_data: Op,
    pub read_qp_num: Op,
    pub read_src_qp: Op,
    pub read_wc_flags: Op,
    pub read_slid: Op,
    pub read_sl: Op,
    pub read_dlid_path_bits: Op,
    pub read_completion_ts: Op,
    pub read_cvlan: Op,
    pub read_flow_tag: Op,
    pub read_tm_info: Op,
    pub read_completion_wallclock_ns: Op,
}

#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Op,
    pub wr_atomic_fetch_add: Op,
    pub wr_bind_mw: Op,
    pub wr_local_inv: Op,
    pub wr_rdma_read: Op,
    pub wr_rdma_write: Op,
    pub wr_rdma_write_imm: Op,
    pub wr_send: Op,
    pub wr_send_imm: Op,
    pub wr_send_inv: Op,
    pub wr_send_tso: Op,
    pub wr_set_ud_addr: Op,
    pub wr_set_xrc_srqn: Op,
    pub wr_set_inline_data: Op,
    pub wr_set_inline_data_list: Op,
    pub wr_set_sge: Op,
    pub wr_set_sge_list: Op,
    pub wr_start: Op,
    pub wr_complete: Op,
    pub wr_abort: Op,
    pub wr_atomic_write: Op,
    pub wr_flush: Op,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_xrcd {
    pub context: *mut ibv_context,
}
