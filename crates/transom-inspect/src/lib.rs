//! The records by which a process describes its adapters, and the place to ask for them.
//!
//! A process that was asked to (`TRANSOM_INSPECT=1`) has a socket in its user's [`Folder`]. A
//! client that connects gets [`Record`]s, one JSON object on each line, and the end of the
//! connection; the process reads nothing. [`processes`] and [`ask`] are the other side. The engine
//! fills the records in; this crate knows no engine.
//!
//! Under Windows no process has such a socket yet: [`Folder::of_user`] refuses, and nothing is found.

#![forbid(unsafe_code)]

mod client;
#[cfg_attr(windows, path = "windows/folder.rs")]
mod folder;
mod metrics;
mod printable;
mod records;
#[cfg_attr(windows, path = "windows/socket.rs")]
mod socket;

pub use client::{Answer, AskError, Found, ask, ask_for, processes};
pub use folder::{Folder, FolderError, SOCKET};
pub use metrics::{METRICS, Metric, MetricType, metrics};
pub use printable::printable;
pub use records::{
    Adapter, Closed, Connection, Counters, End, Hex, Named, Process, Queue, Record, Refusal,
    Region, TimeOut, Uses, VERSION, Window,
};
