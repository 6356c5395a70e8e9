//! NetworkDirect, versions 2 and 1, as C++ programs use it.
//!
//! This crate translates: types, flags, status values and object lifetimes of one generation, onto the
//! engine's handles. It decides nothing about memory or connections.

mod com;
mod guid;
mod os;
mod status;
