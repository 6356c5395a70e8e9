//! Queue pairs, completion queues, connections: an RDMA engine.
//!
//! The modules here have no I/O. They take bytes, time and memory as arguments ([`Cx`]) and return
//! [`Effects`]; so a test runs two of them against each other in virtual time. Clippy holds that (see
//! this crate's clippy.toml). The other half gives them what they lack: [`sys`] is the operating
//! system, `driver` has links, threads and time, [`raw`] is the handle layer for fronts.

#![deny(unsafe_code)]

mod cm;
mod connection;
mod context;
mod copy;
mod cq;
mod denials;
pub mod dialect;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
mod driver;
mod exec;
mod output;
mod qp;
mod queue;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod raw;
mod request;
mod srq;
mod status;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod sys;
pub mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;

pub use cm::{Caps, Connector, Incoming, Listener, Offer};
pub use connection::{Connection, ConnectionConfig, LinkEnd, LinkWish, Received};
pub use context::{
    ConnectionEvent, Cx, Denials, Effect, Effects, End, EndReason, Fault, Finished, HostMemory,
    SharedReceives, Side,
};
pub use cq::{Capacity, CompletionQueue, NotifyKind};
pub use denials::{DenialCause, DenialLog, DenialRecord};
pub use dialect::Dialect;
pub use exec::Execution;
pub use output::{Buffer, Direct, Output};
pub use qp::{QueuePair, QueuePairConfig, QueuePairKind};
pub use queue::RequestQueue;
pub use request::{
    Completion, CompletionFlags, CompletionKind, Data, Flags, Operation, Request, Sge,
};
pub use srq::SharedReceiveQueue;
pub use status::Status;
pub use tables::QueuePairState;
