//! The connection manager: what queue pairs and connections of rdma_cm have to do with each other.

use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::queue_pair::QueuePair;

/// A queue pair goes to RTR with the alias of a connection as its destination (V128).
pub(crate) fn join(_queue_pair: &Arc<QueuePair>, _alias: u32) -> Result {
    Err(Errno::EINVAL)
}

/// A queue pair leaves its connection.
pub(crate) fn leave(_queue_pair: &QueuePair) {}
