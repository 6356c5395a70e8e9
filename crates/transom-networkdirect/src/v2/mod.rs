//! Version 2 (ND2).

mod adapter;
mod completion_queue;
mod connector;
mod listener;
mod provider;
mod queue_pair;
mod region;
mod shared_queue;
mod window;

pub(crate) use adapter::Adapter;
pub(crate) use completion_queue::CompletionQueue;
pub(crate) use connector::{Connector, private_data, put_address, put_private};
pub(crate) use listener::Listener;
pub(crate) use provider::Provider;
pub(crate) use queue_pair::QueuePair;
pub(crate) use region::Region;
pub(crate) use shared_queue::SharedQueue;
pub(crate) use window::Window;

use crate::os::{OverlappedPtr, result_of};
use crate::status::*;

/// GetOverlappedResult of every object: by the OVERLAPPED alone (ND2 2.3 rules 6 and 7).
fn overlapped_result(overlapped: OverlappedPtr, wait: i32) -> Outcome {
    match result_of(overlapped, wait != 0, |_| {}) {
        Some(status) if status >= 0 => Ok(status),
        Some(status) => Err(status),
        None => Err(ND_INVALID_PARAMETER_1),
    }
}
