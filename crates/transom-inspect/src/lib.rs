//! The records by which a process describes its adapters, and the place to ask for them.
//!
//! A process that was asked to (`TRANSOM_INSPECT=1`) has a socket in its user's [`Folder`]. A
//! client that connects gets [`Record`]s, one JSON object on each line, and the end of the
//! connection; the process reads nothing. [`processes`] and [`ask`] are the other side. The engine
//! fills the records in; this crate knows no engine.

#![forbid(unsafe_code)]

mod client;
mod folder;
mod metrics;
mod records;

pub use client::{Answer, AskError, Found, ask, processes};
pub use folder::{Folder, FolderError, SOCKET};
pub use metrics::{METRICS, Metric, MetricType, metrics};
pub use records::{
    Adapter, Closed, Connection, Counters, End, Hex, Named, Process, Queue, Record, Refusal,
    Region, TimeOut, Uses, VERSION, Window,
};
