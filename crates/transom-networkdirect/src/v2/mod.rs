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
pub(crate) use connector::Connector;
pub(crate) use listener::Listener;
pub(crate) use provider::Provider;
pub(crate) use queue_pair::QueuePair;
pub(crate) use region::Region;
pub(crate) use shared_queue::SharedQueue;
pub(crate) use window::Window;

use crate::call;
use crate::com::members;
use crate::os::OverlappedPtr;
use crate::status::*;

members!(Adapter: CompletionQueue, Connector, QueuePair, Region, SharedQueue, Window);

/// GetOverlappedResult of every object but completion queues.
fn overlapped_result(overlapped: OverlappedPtr, wait: i32) -> Outcome {
    call::overlapped_result(overlapped, wait != 0)
}
