//! Connectors, listeners, queue pairs and their queues: a core state machine each, with its lock, its
//! links and its waiters.

// The model test of `cq.rs` puts modules of its own in the place of these.
use super::link;
use super::link::notifications;
use super::schedule::{removal, shared, sleepers, sync};

pub(crate) mod connect;
pub(crate) mod connector;
pub(crate) mod cq;
#[cfg(test)]
mod cq_tests;
pub(crate) mod datagram_port;
pub(crate) mod listener;
pub(crate) mod port_map;
pub(crate) mod qp;
mod receiver_room;
pub(crate) mod srq;
pub(crate) mod wait_timer;
pub(crate) mod xrc;
