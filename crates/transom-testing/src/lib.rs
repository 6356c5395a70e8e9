//! Shared by the tests of several crates, of which this one knows none: [`captures`] of another iWARP, [`tshark`]'s
//! view of ours, [`paths`] that run a suite over the other path, [`ports`] without a listener, [`Pages`] to
//! register, [`Random`] numbers, [`programs`] that a test makes, and the [`compilers`] of C headers.

#![forbid(unsafe_code)]

pub mod captures;
pub mod compilers;
mod pages;
pub mod paths;
pub mod ports;
pub mod programs;
mod random;
mod tshark;

pub use pages::Pages;
pub use random::Random;
pub use tshark::tshark;
