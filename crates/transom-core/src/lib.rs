//! Queue pairs, completion queues, connections: the state machines of an RDMA engine, without I/O.
//!
//! The state machines take bytes, time and memory as arguments ([`Cx`]) and return [`Effects`]; so
//! a test runs two of them against each other in virtual time. Clippy holds that (see this crate's
//! clippy.toml). `transom-engine` gives them sockets, threads and time.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod attention;
mod chain;
mod cm;
mod connection;
mod context;
mod copy;
mod cq;
mod datagram;
mod denials;
pub mod dialect;
mod exec;
mod local;
mod occupancy;
mod pair;
mod qp;
mod queue;
mod request;
mod srq;
mod status;
pub mod tables;
pub mod trace;

pub use attention::{Attention, Quiet};
pub use chain::{Chain, ReceiveChain};
pub use cm::{Caps, Connector, Incoming, Listener, Offer};
pub use connection::{
    Connection, ConnectionConfig, ConnectionOverview, LinkEnd, LinkWish, Received, TIME_OUTS,
};
pub use context::{
    ConnectionEvent, Cx, Denials, Effect, Effects, End, EndReason, Fault, Finished, HostMemory,
    Later, Settle, SharedReceives, Side,
};
pub use cq::{Capacity, CompletionQueue, Moderation, NotifyKind};
pub use datagram::{Datagram, Departure, Destination, ROUTE_HEADER};
pub use denials::{DenialCause, DenialLog, DenialRecord};
pub use dialect::Dialect;
pub use exec::Execution;
pub use occupancy::Places;
pub use qp::{Limits, QueuePair, QueuePairConfig, QueuePairEvent, QueuePairKind};
pub use queue::RequestQueue;
pub use request::{
    Completion, CompletionFlags, CompletionKind, Data, Flags, Operation, Request, Sge,
};
pub use srq::SharedReceiveQueue;
pub use status::Status;
pub use tables::QueuePairState;
