//! The structures and numbers of `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>`, as programs are
//! compiled with them. x86-64 and aarch64 lay them out alike.

#![allow(missing_docs, reason = "the members have the names of the headers")]
#![allow(non_camel_case_types, reason = "the structures have the names of the headers")]

mod cm;
mod numbers;

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use cm::*;
pub use numbers::*;

/// A function that is never called through this pointer, or not by us.
pub type Op = *const c_void;

/// A structure of the table of layouts: name, size, members with offset.
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

macro_rules! layouts {
    ($($name:ident $size:literal { $($member:ident $offset:literal),* $(,)? })*) => {
        $(const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $member) == $offset);)*
        };)*
        /// Every structure, for tests that compare it with the headers of a distribution.
        pub const LAYOUTS: &[Layout] =
            &[$((stringify!($name), $size, &[$((stringify!($member), $offset)),*])),*];
    };
}

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

// ---- arguments ---------------------------------------------------------------------------------

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data, or the key that the message has closed.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// The union of remote operands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_send_wr_remote {
    pub remote_addr: u64,
    /// `rkey` of a Read or Write in the lower half; the first operand of an atomic.
    pub rkey_or_compare: u64,
    pub swap: u64,
    pub atomic_rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data, or the key that a Send or Invalidate closes.
    pub imm_data: u32,
    pub wr: ibv_send_wr_remote,
    pub remote_srqn: u32,
    pub bind_mw: ibv_send_wr_bind,
}

/// The operands of a Bind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_send_wr_bind {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// All groups behind `device_cap_flags_ex` are zero here, so they have no members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub groups: [u32; 27],
    pub phys_port_cnt_ex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_port_attr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    pub active_speed_ex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid_entry {
    /// Two words, so that the structure is aligned as the header's union.
    pub gid: [u64; 2],
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_global_route {
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_srq_init_attr_ex {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
    pub comp_mask: u32,
    pub srq_type: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub cq: *mut ibv_cq,
    pub tm_cap: [u32; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_async_event {
    /// A pointer, or a port's number.
    pub element: *mut c_void,
    pub event_type: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_td_init_attr {
    pub comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_parent_domain_init_attr {
    pub pd: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub comp_mask: u32,
    pub alloc: Op,
    pub free: Op,
    pub pd_context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_sa_path_rec {
    pub dgid: [u64; 2],
    pub sgid: [u64; 2],
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

layouts! {
    ibv_device 664 { node_type 16, transport_type 20, name 24, dev_name 88, dev_path 152, ibdev_path 408 }
    ibv_context 328 { device 0, ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280, abi_compat 320 }
    ibv_context_ops 256 { alloc_mw 56, bind_mw 64, dealloc_mw 72, poll_cq 88, req_notify_cq 96, post_srq_recv 160, post_send 200, post_recv 208 }
    verbs_context 368 {
        free_buf 0, alloc_buf 8, dm_export_dmabuf_fd 16, reg_mr_ex 24, dealloc_dmah 32, alloc_dmah 40, query_port 48,
        advise_mr 56, alloc_null_mr 64, read_counters 72, attach_counters_point_flow 80, create_counters 88,
        destroy_counters 96, reg_dm_mr 104, alloc_dm 112, free_dm 120, modify_flow_action_esp 128,
        destroy_flow_action 136, create_flow_action_esp 144, modify_qp_rate_limit 152, alloc_parent_domain 160,
        dealloc_td 168, alloc_td 176, modify_cq 184, post_srq_ops 192, destroy_rwq_ind_table 200,
        create_rwq_ind_table 208, destroy_wq 216, modify_wq 224, create_wq 232, query_rt_values 240, create_cq_ex 248,
        private 256, query_device_ex 264, destroy_flow 272, create_flow 288, open_qp 304, create_qp_ex 312,
        get_srq_num 320, create_srq_ex 328, open_xrcd 336, close_xrcd 344, sz 360
    }
    ibv_pd 16 { context 0, handle 8 }
    ibv_mr 48 { context 0, pd 8, addr 16, length 24, handle 32, lkey 36, rkey 40 }
    ibv_comp_channel 16 { context 0, fd 8, refcnt 12 }
    ibv_cq 128 { context 0, channel 8, cq_context 16, handle 24, cqe 28, mutex 32, cond 72, comp_events_completed 120, async_events_completed 124 }
    ibv_cq_ex 288 {
        comp_mask 128, status 132, wr_id 136, start_poll 144, next_poll 152, end_poll 160, read_opcode 168,
        read_vendor_err 176, read_byte_len 184, read_imm_data 192, read_qp_num 200, read_src_qp 208, read_wc_flags 216,
        read_slid 224, read_sl 232, read_dlid_path_bits 240, read_completion_ts 248, read_cvlan 256, read_flow_tag 264,
        read_tm_info 272, read_completion_wallclock_ns 280
    }
    ibv_srq 128 { context 0, srq_context 8, pd 16, handle 24, mutex 32, cond 72, events_completed 120 }
    ibv_ah 24 { context 0, pd 8, handle 16 }
    ibv_qp 160 {
        context 0, qp_context 8, pd 16, send_cq 24, recv_cq 32, srq 40, handle 48, qp_num 52, state 56, qp_type 60,
        mutex 64, cond 104, events_completed 152
    }
    ibv_qp_ex 360 {
        qp_base 0, comp_mask 160, wr_id 168, wr_flags 176, wr_atomic_cmp_swp 184, wr_atomic_fetch_add 192,
        wr_bind_mw 200, wr_local_inv 208, wr_rdma_read 216, wr_rdma_write 224, wr_rdma_write_imm 232, wr_send 240,
        wr_send_imm 248, wr_send_inv 256, wr_send_tso 264, wr_set_ud_addr 272, wr_set_xrc_srqn 280,
        wr_set_inline_data 288, wr_set_inline_data_list 296, wr_set_sge 304, wr_set_sge_list 312, wr_start 320,
        wr_complete 328, wr_abort 336, wr_atomic_write 344, wr_flush 352
    }
    ibv_wc 48 {
        wr_id 0, status 8, opcode 12, vendor_err 16, byte_len 20, imm_data 24, qp_num 28, src_qp 32, wc_flags 36,
        pkey_index 40, slid 42, sl 44, dlid_path_bits 45
    }
    ibv_send_wr 128 { wr_id 0, next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_data 36, wr 40, bind_mw 80 }
    ibv_mw_bind_info 32 { mr 0, addr 8, length 16, mw_access_flags 24 }
    ibv_mw_bind 48 { wr_id 0, send_flags 8, bind_info 16 }
    ibv_mw 32 { context 0, pd 8, rkey 16, handle 20 }
    ibv_recv_wr 32 { wr_id 0, next 8, sg_list 16, num_sge 24 }
    ibv_sge 16 { addr 0, length 8, lkey 12 }
    ibv_data_buf 16 { addr 0, length 8 }
    ibv_device_attr 232 {
        fw_ver 0, node_guid 64, sys_image_guid 72, max_mr_size 80, page_size_cap 88, vendor_id 96, vendor_part_id 100,
        hw_ver 104, max_qp 108, max_qp_wr 112, device_cap_flags 116, max_sge 120, max_sge_rd 124, max_cq 128,
        max_cqe 132, max_mr 136, max_pd 140, max_qp_rd_atom 144, max_ee_rd_atom 148, max_res_rd_atom 152,
        max_qp_init_rd_atom 156, max_ee_init_rd_atom 160, atomic_cap 164, max_ee 168, max_rdd 172, max_mw 176,
        max_raw_ipv6_qp 180, max_raw_ethy_qp 184, max_mcast_grp 188, max_mcast_qp_attach 192,
        max_total_mcast_qp_attach 196, max_ah 200, max_fmr 204, max_map_per_fmr 208, max_srq 212, max_srq_wr 216,
        max_srq_sge 220, max_pkeys 224, local_ca_ack_delay 226, phys_port_cnt 227
    }
    ibv_device_attr_ex 400 { orig_attr 0, comp_mask 232, odp_caps 240, completion_timestamp_mask 264, hca_core_clock 272, device_cap_flags_ex 280, phys_port_cnt_ex 396 }
    ibv_port_attr 56 {
        state 0, max_mtu 4, active_mtu 8, gid_tbl_len 12, port_cap_flags 16, max_msg_sz 20, bad_pkey_cntr 24,
        qkey_viol_cntr 28, pkey_tbl_len 32, lid 34, sm_lid 36, lmc 38, max_vl_num 39, sm_sl 40, subnet_timeout 41,
        init_type_reply 42, active_width 43, active_speed 44, phys_state 45, link_layer 46, flags 47,
        port_cap_flags2 48, active_speed_ex 52
    }
    ibv_gid_entry 32 { gid 0, gid_index 16, port_num 20, gid_type 24, ndev_ifindex 28 }
    ibv_global_route 24 { dgid 0, flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22 }
    ibv_ah_attr 32 { grh 0, dlid 24, sl 26, src_path_bits 27, static_rate 28, is_global 29, port_num 30 }
    ibv_qp_cap 20 { max_send_wr 0, max_recv_wr 4, max_send_sge 8, max_recv_sge 12, max_inline_data 16 }
    ibv_qp_attr 144 {
        qp_state 0, cur_qp_state 4, path_mtu 8, path_mig_state 12, qkey 16, rq_psn 20, sq_psn 24, dest_qp_num 28,
        qp_access_flags 32, cap 36, ah_attr 56, alt_ah_attr 88, pkey_index 120, alt_pkey_index 122,
        en_sqd_async_notify 124, sq_draining 125, max_rd_atomic 126, max_dest_rd_atomic 127, min_rnr_timer 128,
        port_num 129, timeout 130, retry_cnt 131, rnr_retry 132, alt_port_num 133, alt_timeout 134, rate_limit 136
    }
    ibv_qp_init_attr 64 { qp_context 0, send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56 }
    ibv_qp_init_attr_ex 136 {
        comp_mask 60, pd 64, xrcd 72, create_flags 80, max_tso_header 84, rwq_ind_tbl 88, rx_hash_conf 96,
        source_qpn 120, send_ops_flags 128
    }
    ibv_srq_attr 12 { max_wr 0, max_sge 4, srq_limit 8 }
    ibv_srq_init_attr 24 { srq_context 0, attr 8 }
    ibv_srq_init_attr_ex 64 { srq_context 0, attr 8, comp_mask 20, srq_type 24, pd 32, xrcd 40, cq 48, tm_cap 56 }
    ibv_async_event 16 { element 0, event_type 8 }
    ibv_cq_init_attr_ex 56 { cqe 0, cq_context 8, channel 16, comp_vector 24, wc_flags 32, comp_mask 40, flags 44, parent_domain 48 }
    ibv_td 8 { context 0 }
    ibv_td_init_attr 4 { comp_mask 0 }
    ibv_parent_domain_init_attr 48 { pd 0, td 8, comp_mask 16, alloc 24, free 32, pd_context 40 }
    ibv_sa_path_rec 64 {
        dgid 0, sgid 16, dlid 32, slid 34, raw_traffic 36, flow_label 40, hop_limit 44, traffic_class 45, reversible 48,
        numb_path 52, pkey 54, sl 56, mtu_selector 57, mtu 58, rate_selector 59, rate 60, packet_life_time_selector 61,
        packet_life_time 62, preference 63
    }
    rdma_cm_id 416 {
        verbs 0, channel 8, context 16, qp 24, route 32, ps 344, port_num 348, event 352, send_cq_channel 360,
        send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392, pd 400, qp_type 408
    }
    rdma_route 312 { src_addr 0, dst_addr 128, sgid 256, dgid 272, pkey 288, path_rec 296, num_paths 304 }
    rdma_event_channel 4 { fd 0 }
    rdma_conn_param 24 { private_data 0, private_data_len 8, responder_resources 9, initiator_depth 10, flow_control 11, retry_count 12, rnr_retry_count 13, srq 14, qp_num 16 }
    rdma_ud_param 56 { private_data 0, private_data_len 8, ah_attr 16, qp_num 48, qkey 52 }
    rdma_cm_join_mc_attr_ex 16 { comp_mask 0, join_flags 4, addr 8 }
    rdma_cm_event 80 { id 0, listen_id 8, event 16, status 20, param 24 }
    rdma_addrinfo 96 {
        ai_flags 0, ai_family 4, ai_qp_type 8, ai_port_space 12, ai_src_len 16, ai_dst_len 20, ai_src_addr 24,
        ai_dst_addr 32, ai_src_canonname 40, ai_dst_canonname 48, ai_route_len 56, ai_route 64, ai_connect_len 72,
        ai_connect 80, ai_next 88
    }
}

/// The distance from the beginning of a context to its `ibv_context`, and the size of both.
pub const CONTEXT_SIZE: usize = size_of::<verbs_context>() + size_of::<ibv_context>();
const _: () = assert!(CONTEXT_SIZE == 696);

/// A GID as its sixteen bytes.
#[must_use]
pub fn gid_bytes(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// A GID as the two words of its union.
#[must_use]
pub fn gid_words(bytes: [u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes(rest)]
}
