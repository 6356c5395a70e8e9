//! What a run has reached: a scenario that was never reached proves nothing.

use std::collections::BTreeMap;

/// Every scenario. The budgeted run must reach each of them.
pub const SCENARIOS: &[&str] = &[
    // Operations that succeeded.
    "write ok",
    "read ok",
    "send ok",
    "receive ok",
    "bind ok",
    "invalidate ok",
    "fast register ok",
    "silent success",
    "inline",
    "gather of several",
    "message of several frames",
    "empty message",
    "send closes a window",
    "fenced behind a read",
    "solicited",
    // Memory.
    "register",
    "register in pieces",
    "register for a connection",
    "deregister",
    "busy: windows bound",
    "deregister closes windows",
    "revoke",
    "fast register",
    "fast invalidate",
    "no token left",
    "bind refused",
    "window of a domain",
    "window of a connection",
    "reserved and never bound",
    "closed while a message was under way",
    // Refusals of the peer, by rule.
    "refused: LiveToken",
    "refused: Scope",
    "refused: Right",
    "refused: Wrap",
    "refused: Bounds",
    "refused: announced",
    "refused: in the middle",
    "refused: answer to a read",
    "refused: invalidation",
    "local list refused",
    "receive refused",
    // Actors who use what they should not.
    "used a stale token",
    "used another's token",
    "used a live token of another",
    "used a guessed token",
    "went off the end",
    "used the wrong right",
    "wrapped around",
    // Limits.
    "send queue full",
    "receive queue full",
    "shared queue full",
    "completion queue ran over",
    "no receive in time",
    "receive too small",
    "waited for a receive",
    "waited for a read slot",
    "read limit 0",
    "list too long",
    "transfer too large",
    "inline too large",
    "backlog full",
    "shared queue empty",
    // Connections.
    "connected",
    "rejected",
    "connect canceled",
    "disconnected",
    "peer gone",
    "flushed",
    "released",
    "post behind the end",
    "reconnected",
    "plain peer",
    "link between processes of one host",
    "requests kept for the program",
    // Faults.
    "reset",
    "half-open",
    "stalled",
    "timed out",
    "start-up timed out",
    "bytes corrupted",
    "pages vanished",
    "file truncated",
    "process died",
    "process restarted",
    "partial write",
    "partial read",
    "sent without a copy",
    "torn frame",
    "link gave up",
    "late timer",
    // Ends.
    "nothing left at the end",
];

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Counters(pub BTreeMap<&'static str, u64>);

impl Counters {
    /// It happened.
    pub fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Add another run's.
    pub fn add(&mut self, other: &Counters) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// How often.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Scenarios that were not reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        SCENARIOS.iter().copied().filter(|name| self.get(name) == 0).collect()
    }

    /// Names that are in no list.
    #[must_use]
    pub fn unlisted(&self) -> Vec<&'static str> {
        self.0.keys().copied().filter(|n| !SCENARIOS.contains(n) && !OTHERS.contains(n)).collect()
    }
}

/// Counted, and not asked for.
pub const OTHERS: &[&str] =
    &["steps", "requests", "bytes placed", "bytes sent", "connections", "seeds"];
