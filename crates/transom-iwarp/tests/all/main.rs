//! The wire's tests, in one program.

#![allow(clippy::unwrap_used, clippy::panic)]

mod captures;
mod common;
mod extension;
mod faults;
mod hostile;
mod messages;
mod random;
mod replay;
mod segments;
mod setup;
mod vectors;
