//! Which thread looks at which link, and when. Links and listeners are known here as [`Source`]s.
//!
//! [`Source`]: source::Source

pub(crate) mod combining_lock;
pub(crate) mod lease;
#[cfg(test)]
mod lease_tests;
pub(crate) mod ready_set;
pub(crate) mod regions;
pub(crate) mod removal;
pub(crate) mod serve;
pub(crate) mod shared;
pub(crate) mod sleepers;
pub(crate) mod source;
pub(crate) mod spin;
pub(crate) mod sync;
pub(crate) mod timers;
pub(crate) mod traffic;
pub(crate) mod watch;
pub(crate) mod workers;
