//! Attributes of the device. Operations that are missing are not advertised (Verbs V152).

use std::ffi::{c_char, c_int};

use transom_engine::raw;

use crate::abi::{gid_words, ibv_device_attr, ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr};
use crate::gid::Table;
use crate::kind::kind;
use crate::{environment, limits};

pub(crate) const VENDOR: u32 = 0x5452;
/// BAD_PKEY_CNTR, BAD_QKEY_CNTR, CURR_QP_STATE_MOD, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE.
const BASIC: u32 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 11 | 1 << 12 | 1 << 13;
/// MEM_WINDOW, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B.
const WINDOWS: u32 = 1 << 17 | 1 << 21 | 1 << 24;
const XRC: u32 = 1 << 20;
/// The capabilities of the device: XRC is of the InfiniBand transport.
fn capabilities() -> u32 {
    BASIC | WINDOWS | if kind().infiniband { XRC } else { 0 }
}

/// A string as the bytes of a C array, which stays terminated.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte as c_char;
    }
    array
}

/// Atomics see one order among themselves, and with those of the owner's program.
const ATOMIC_HCA: c_int = 1;

/// Attributes of the device.
pub(crate) fn attributes(gids: &Table) -> ibv_device_attr {
    let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let guid = gids.node_guid();
    let infiniband = kind().infiniband;
    let of_datagrams = |number: u32| if infiniband { signed(number) } else { 0 };
    ibv_device_attr {
        fw_ver: chars(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits::REGION,
        page_size_cap: 0xFFFF_F000,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: signed(limits::QUEUE_PAIRS),
        max_qp_wr: signed(limits::DEPTH),
        device_cap_flags: capabilities(),
        max_sge: signed(limits::SGE),
        max_sge_rd: signed(limits::SGE),
        max_cq: signed(limits::QUEUES),
        max_cqe: signed(limits::COMPLETIONS),
        max_mr: signed(limits::REGIONS),
        max_pd: signed(limits::DOMAINS),
        max_qp_rd_atom: signed(limits::READS),
        max_ee_rd_atom: 0,
        max_res_rd_atom: signed(limits::READS * limits::QUEUE_PAIRS),
        max_qp_init_rd_atom: signed(limits::READS),
        max_ee_init_rd_atom: 0,
        atomic_cap: if raw::ATOMICS && infiniband { ATOMIC_HCA } else { 0 },
        max_ee: 0,
        max_rdd: 0,
        max_mw: signed(limits::WINDOWS),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: of_datagrams(limits::ATTACHMENTS),
        max_mcast_qp_attach: of_datagrams(limits::ATTACHMENTS),
        max_total_mcast_qp_attach: of_datagrams(limits::ATTACHMENTS),
        max_ah: of_datagrams(limits::ADDRESS_HANDLES),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: signed(limits::SHARED_QUEUES),
        max_srq_wr: signed(limits::SHARED_DEPTH),
        max_srq_sge: signed(limits::SGE),
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
    }
}

/// Kilohertz of the device's clock, which counts nanoseconds: the engine's, CLOCK_MONOTONIC.
const CLOCK: u64 = 1_000_000;

/// Operations that reach memory which is registered on demand: `ibv_odp_transport_cap_bits`.
mod odp {
    pub(super) const SEND: u32 = 1;
    pub(super) const RECEIVE: u32 = 1 << 1;
    pub(super) const WRITE: u32 = 1 << 2;
    pub(super) const READ: u32 = 1 << 3;
    pub(super) const ATOMIC: u32 = 1 << 4;
    pub(super) const SHARED_RECEIVE: u32 = 1 << 5;
    pub(super) const ALL: u32 = SEND | RECEIVE | WRITE | READ | ATOMIC | SHARED_RECEIVE;
}

/// `odp_caps`: whether there is on-demand paging, and for what of RC, UC and UD (Verbs V45). Every copy here finds out
/// by itself which pages are there.
fn on_demand() -> [u64; 3] {
    const SUPPORT: u64 = 1; // without IBV_ODP_SUPPORT_IMPLICIT
    let (uc, ud) = if kind().infiniband {
        (odp::ALL & !(odp::READ | odp::ATOMIC), odp::SEND | odp::RECEIVE | odp::SHARED_RECEIVE)
    } else {
        (0, 0)
    };
    let rc = if kind().infiniband { odp::ALL } else { odp::ALL & !odp::ATOMIC };
    let words = |first: u32, second: u32| {
        let mut bytes = [0; 8];
        let (low, high) = bytes.split_at_mut(4);
        low.copy_from_slice(&first.to_ne_bytes());
        high.copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    };
    [SUPPORT, words(rc, uc), words(ud, 0)]
}

/// The attributes in the longer structure; groups of capabilities that we do not have are zero.
pub(crate) fn attributes_ex(gids: &Table) -> ibv_device_attr_ex {
    let xrc_odp_caps = if kind().infiniband { odp::ALL & !odp::RECEIVE } else { 0 };
    ibv_device_attr_ex {
        orig_attr: attributes(gids),
        comp_mask: 0,
        odp_caps: on_demand(),
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK,
        device_cap_flags_ex: u64::from(capabilities()),
        groups: [0; 20],
        cq_mod_caps: [u16::MAX, limits::MODERATION_PERIOD],
        more_groups: [0; 5],
        xrc_odp_caps,
        phys_port_cnt_ex: 1,
    }
}

/// Attributes of the port.
pub(crate) fn port(gids: &Table) -> ibv_port_attr {
    let mtu = environment::mtu();
    ibv_port_attr {
        state: 4,
        max_mtu: mtu,
        active_mtu: mtu,
        gid_tbl_len: i32::try_from(gids.length()).unwrap_or(i32::MAX),
        port_cap_flags: kind().port_capabilities,
        max_msg_sz: limits::MESSAGE,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        link_layer: 2,
        ..ibv_port_attr::default()
    }
}

/// An entry of the GID table; `None`: empty, or beyond it.
pub(crate) fn gid_entry(gids: &Table, index: usize) -> Option<ibv_gid_entry> {
    let found = gids.get(index)?;
    Some(ibv_gid_entry {
        gid: gid_words(found.bytes),
        gid_index: u32::try_from(index).ok()?,
        port_num: 1,
        gid_type: found.of.0,
        ndev_ifindex: found.interface,
    })
}
