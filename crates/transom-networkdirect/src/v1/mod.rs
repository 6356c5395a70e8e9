//! Version 1 (ND1): the same engine, with dialect `ND1`, under the older interfaces.

mod adapter;
mod completion_queue;
mod connector;
mod endpoint;
mod listen;
mod provider;
mod space;
mod window;

pub(crate) use adapter::Adapter;
pub(crate) use completion_queue::CompletionQueue;
pub(crate) use connector::Connector;
pub(crate) use endpoint::Endpoint;
pub(crate) use listen::Listen;
pub(crate) use provider::Provider;
pub(crate) use space::Space;
pub(crate) use window::Window;

use crate::call;
use crate::com::{OutPtr, members};
use crate::os::OverlappedPtr;
use crate::status::*;

members!(Adapter: CompletionQueue, Connector, Window);

/// An object that has overlapped requests of its own.
pub(crate) trait Cancel: std::fmt::Debug + Send + Sync {
    /// CancelOverlappedRequests: they are over when it returns.
    fn cancel(&self) -> Outcome;
}

/// GetOverlappedResult of every object but completion queues.
fn overlapped_result(overlapped: OverlappedPtr, bytes: OutPtr<usize>, wait: i32) -> Outcome {
    bytes.put(0);
    call::overlapped_result(overlapped, wait != 0)
}
