//! Connects of peers that came to nothing at this side's listeners, counted by reason. The peer learns that it
//! was refused; the reason is known here only.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a listener has refused a peer's Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectRefusal {
    /// Too many peers were half-way through start-up (iW 14).
    HalfOpen,
    /// As many requests waited for the program as its backlog takes.
    Backlog,
    /// The listener was closed before a program took the request.
    Closed,
    /// The system had no descriptor or no memory for the connection.
    Resources,
    /// The peer did not finish start-up in time, or its bytes were none of start-up.
    Unfinished,
    /// The program has rejected the request, or dropped it.
    ByProgram,
}

/// The counts of one adapter.
#[derive(Debug, Default)]
pub(crate) struct RefusedConnects([AtomicU64; 6]);

impl RefusedConnects {
    /// Counts one more.
    pub(crate) fn count(&self, why: ConnectRefusal) {
        if let Some(count) = self.0.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were for this reason.
    pub(crate) fn of(&self, why: ConnectRefusal) -> u64 {
        self.0.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}
