//! rdma_cm: ids, event channels, events, endpoints.

pub(crate) mod address;
mod connecting;
mod endpoint;
mod events;
pub(crate) mod ids;
mod multicast;

pub(crate) use address::{
    rdma_freeaddrinfo, rdma_get_dst_port, rdma_get_src_port, rdma_getaddrinfo,
};
pub(crate) use connecting::*;
pub(crate) use endpoint::*;
pub(crate) use events::*;
pub(crate) use ids::*;
pub(crate) use multicast::*;
