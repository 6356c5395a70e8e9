//! Tests of the handle layer over real sockets.

mod harness;
mod traffic;
