//! The core over real wires, in one program: two hosts in one thread, in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod atomics;
mod connections;
mod connectors;
mod data;
mod datagrams;
mod failures;
mod immediate;
mod models;
mod notifications;
mod replay;
mod support;
mod wire;
mod xrc;
