//! The objects behind the dispatch tables, without a pointer of the consumer's in them.

mod adapter;
mod connector;
mod cq;
mod lam;
mod listener;
mod mr;
mod mw;
mod pd;
mod qp;
mod shared_endpoint;
mod srq;

pub use adapter::{Adapter, Options};
pub use connector::{ConnectionData, Connector, DisconnectEvent};
pub use cq::{Cq, CqNotification};
pub use lam::{Give, Mapping};
pub use listener::{ConnectEvent, Listener};
pub use mr::Mr;
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{Qp, QpLimits};
pub use shared_endpoint::SharedEndpoint;
pub use srq::{Srq, SrqNotification};
