//! rdma_cm.

use std::ffi::{c_char, c_int};

use crate::entry::stubs;
use crate::text;

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    text::pick(&text::CM_EVENTS, i64::from(event), c"UNKNOWN EVENT").as_ptr()
}

pub(crate) use stubs::refuses_minus_one as rdma_accept;
pub(crate) use stubs::refuses_minus_one as rdma_ack_cm_event;
pub(crate) use stubs::refuses_minus_one as rdma_bind_addr;
pub(crate) use stubs::refuses_minus_one as rdma_connect;
pub(crate) use stubs::refuses_minus_one as rdma_create_ep;
pub(crate) use stubs::refuses_minus_one as rdma_create_event_channel;
pub(crate) use stubs::refuses_minus_one as rdma_create_id;
pub(crate) use stubs::refuses_minus_one as rdma_create_qp;
pub(crate) use stubs::refuses_minus_one as rdma_create_qp_ex;
pub(crate) use stubs::refuses_minus_one as rdma_create_srq;
pub(crate) use stubs::refuses_minus_one as rdma_create_srq_ex;
pub(crate) use stubs::refuses_minus_one as rdma_destroy_ep;
pub(crate) use stubs::refuses_minus_one as rdma_destroy_event_channel;
pub(crate) use stubs::refuses_minus_one as rdma_destroy_id;
pub(crate) use stubs::refuses_minus_one as rdma_destroy_qp;
pub(crate) use stubs::refuses_minus_one as rdma_destroy_srq;
pub(crate) use stubs::refuses_minus_one as rdma_disconnect;
pub(crate) use stubs::refuses_minus_one as rdma_establish;
pub(crate) use stubs::refuses_minus_one as rdma_free_devices;
pub(crate) use stubs::refuses_minus_one as rdma_freeaddrinfo;
pub(crate) use stubs::refuses_minus_one as rdma_get_cm_event;
pub(crate) use stubs::refuses_minus_one as rdma_get_devices;
pub(crate) use stubs::refuses_minus_one as rdma_get_dst_port;
pub(crate) use stubs::refuses_minus_one as rdma_get_remote_ece;
pub(crate) use stubs::refuses_minus_one as rdma_get_request;
pub(crate) use stubs::refuses_minus_one as rdma_get_src_port;
pub(crate) use stubs::refuses_minus_one as rdma_getaddrinfo;
pub(crate) use stubs::refuses_minus_one as rdma_init_qp_attr;
pub(crate) use stubs::refuses_minus_one as rdma_listen;
pub(crate) use stubs::refuses_minus_one as rdma_migrate_id;
pub(crate) use stubs::refuses_minus_one as rdma_notify;
pub(crate) use stubs::refuses_minus_one as rdma_reject;
pub(crate) use stubs::refuses_minus_one as rdma_reject_ece;
pub(crate) use stubs::refuses_minus_one as rdma_resolve_addr;
pub(crate) use stubs::refuses_minus_one as rdma_resolve_route;
pub(crate) use stubs::refuses_minus_one as rdma_set_local_ece;
pub(crate) use stubs::refuses_minus_one as rdma_set_option;
