//! NetworkDirect, versions 2 and 1, as C++ programs use it.
//!
//! This crate translates: types, flags, status values and object lifetimes of one generation, onto
//! the engine's handles. The crate decides nothing about memory or connections.

#![allow(clippy::too_many_arguments)] // the interfaces have them
#![warn(clippy::missing_errors_doc)]

mod abi;
mod call;
mod client;
mod com;
mod entry;
mod explain;
mod facts;
mod guid;
mod limits;
mod list;
mod marshal;
mod names;
mod nic;
mod os;
mod posting;
mod queue;
mod status;
mod table;
mod v1;
mod v2;
