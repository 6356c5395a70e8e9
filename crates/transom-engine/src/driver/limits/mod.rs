//! Limits for peers: the memory and descriptors they may take before they are accepted, the rate of their guesses,
//! and the queries to the kernel that they cause; and counts of the connects that were refused.

pub(crate) mod admission;
pub(crate) mod descriptors;
pub(crate) mod guess_limiter;
pub(crate) mod query_budget;
pub(crate) mod refused_connects;
pub(crate) mod requests;
