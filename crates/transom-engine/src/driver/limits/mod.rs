//! What peers may take before they are accepted, how often they may guess, and what the kernel is asked
//! because of them.

pub(crate) mod admission;
pub(crate) mod guess_limiter;
pub(crate) mod query_budget;
