//! Links, threads and time: what moves bytes between sockets and the state machines.

mod admission;
mod combining_lock;
mod connect;
mod connector;
mod control;
mod cq;
#[cfg(test)]
mod cq_tests;
mod event_queue;
mod guess_limiter;
mod lease;
#[cfg(test)]
mod lease_tests;
mod link;
mod listener;
mod notifications;
mod options;
mod pass;
mod path;
mod qp;
mod query_budget;
mod ready_set;
mod removal;
mod shared;
mod shared_memory;
mod silence;
mod sleepers;
mod srq;
mod tcp;
mod timers;
mod upgrade;
mod watch;
mod workers;

pub use admission::HalfOpen;
pub use guess_limiter::GuessLimit;
pub use notifications::Sink;
pub use options::{Explain, Options, Trace};
pub use path::{Path, PathReason};
pub use silence::Silence;

pub(crate) use connector::Connector;
pub(crate) use cq::Cq;
pub(crate) use listener::Listener;
pub(crate) use notifications::Notifications;
pub(crate) use options::status_of;
pub(crate) use qp::Qp;
pub(crate) use shared::Shared;
pub(crate) use srq::Srq;

/// What the combining lock, the event queue, the sleepers, and who looks at links are built of; their model tests put
/// loom's in their place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};

    /// What comes before it and what comes behind it may be far apart.
    #[inline]
    pub(super) fn fence(order: Ordering) {
        crate::sys::perturb();
        std::sync::atomic::fence(order);
        crate::sys::perturb();
    }
}
