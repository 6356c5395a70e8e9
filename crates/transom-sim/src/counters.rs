//! The scenarios a run has reached: a scenario that was never reached proves nothing.

use std::collections::BTreeMap;

/// Every scenario. The budgeted run must reach each of them.
pub const SCENARIOS: &[&str] = &[
    // Operations that succeeded.
    "write ok",
    "read ok",
    "atomic ok",
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
    "answered in front of a refusal",
    "fenced behind a read",
    "solicited",
    "send with immediate data ok",
    "write with immediate data ok",
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
    "live_token",
    "scope",
    "right",
    "no_wrap",
    "range",
    "aligned",
    "refused: announced",
    "refused: in the middle",
    "refused: answer to a read",
    "refused: invalidation",
    "refused: immediate data",
    "refused: write with immediate data",
    "local list refused",
    "receive refused",
    // Actors who use what they should not.
    "used a stale token",
    "used another's token",
    "used a live token of another",
    "used a window of another connection",
    "used a guessed token",
    "went off the end",
    "one byte behind the end",
    "used the wrong right",
    "wrapped around",
    // Limits.
    "send queue full",
    "receive queue full",
    "shared queue full",
    "completion queue ran over",
    "ran over beside a connection",
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
    "queue pair reset",
    "requests outlived their connection",
    "no connection in time",
    "connected again too early",
    "limits changed beneath a connection",
    "access changed beneath a connection",
    "refused: by the queue pair",
    "refused: serves no reads",
    // Messages that name the shared receive queue they are for.
    "named a queue of another domain",
    "named no queue",
    "named a queue to a plain peer",
    "kept out of a ring",
    "plain peer",
    "plain peer closed on a write",
    "atomic to a plain peer",
    "immediate data to a plain peer",
    "link between processes of one host",
    "whole message sent at once",
    "whole message in a stream",
    "write in a slot",
    "write of a stream",
    "payload beside a slot",
    "write in the data area",
    "placed out of a ring",
    "ring full",
    "fell asleep",
    "found something before it slept",
    "woken by the bell",
    "late bell",
    "died inside of a ring",
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

/// The scenarios that the budget must reach oftener than [`LEAST`] times: about half of what it
/// does reach (docs/reliability.md).
pub const FLOORS: &[(&str, u64)] = &[
    // The network.
    ("partial read", 50_000),
    ("partial write", 15_000),
    ("reset", 500),
    ("half-open", 500),
    ("stalled", 1500),
    ("link gave up", 500),
    ("timed out", 150),
    ("start-up timed out", 400),
    ("late timer", 1000),
    ("bytes corrupted", 80),
    ("torn frame", 40),
    ("reconnected", 2000),
    ("link between processes of one host", 3000),
    // Rings.
    ("whole message sent at once", 400),
    ("whole message in a stream", 600),
    ("write in a slot", 2000),
    ("write of a stream", 250),
    ("payload beside a slot", 1500),
    ("write in the data area", 5000),
    ("acknowledgement taken out of a stream", 3000),
    ("placed out of a ring", 10_000),
    ("ring full", 3000),
    ("fell asleep", 8000),
    ("found something before it slept", 1500),
    ("woken by the bell", 8000),
    ("late bell", 3000),
    ("died inside of a ring", 40),
    // Immediate data.
    ("send with immediate data ok", 2000),
    ("write with immediate data ok", 2000),
    ("refused: write with immediate data", 130),
    ("refused: immediate data", 50),
    // Queue pairs that outlive their connections.
    ("queue pair reset", 1500),
    ("requests outlived their connection", 400),
    ("no connection in time", 900),
    ("connected again too early", 90),
    ("limits changed beneath a connection", 700),
    ("access changed beneath a connection", 700),
    ("refused: by the queue pair", 20),
    ("refused: serves no reads", 45),
    // Messages that name the shared receive queue they are for.
    ("named a queue of another domain", 350),
    ("named no queue", 40),
    ("named a queue to a plain peer", 30),
    // Limits.
    ("send queue full", 100_000),
    ("receive queue full", 100_000),
    ("shared queue full", 50_000),
    ("shared queue empty", 20_000),
    ("completion queue ran over", 500),
    ("ran over beside a connection", 100),
    ("backlog full", 1000),
    ("waited for a read slot", 1500),
    ("waited for a receive", 150),
    ("no receive in time", 150),
    ("no token left", 90),
    ("list too long", 700),
    ("transfer too large", 700),
    ("inline too large", 5000),
    // Memory and processes that go away.
    ("pages vanished", 350),
    ("file truncated", 1000),
    ("process died", 90),
    ("process restarted", 90),
    // Attackers.
    ("used a live token of another", 1500),
    ("used a window of another connection", 45),
    ("used a stale token", 400),
    ("used a guessed token", 500),
    ("went off the end", 1000),
    ("one byte behind the end", 500),
    ("wrapped around", 900),
    ("used the wrong right", 500),
];
/// How often the budget must reach every other scenario.
pub const LEAST: u64 = 3;

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Counters(pub BTreeMap<&'static str, u64>);

impl Counters {
    /// Count a scenario that was reached.
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

    /// Scenarios that the budget has reached too seldom, and how often.
    #[must_use]
    pub fn below(&self) -> Vec<(&'static str, u64)> {
        let floor = |name: &str| FLOORS.iter().find(|(n, _)| *n == name).map_or(LEAST, |f| f.1);
        let counts = SCENARIOS.iter().map(|name| (*name, self.get(name)));
        counts.filter(|(name, count)| *count < floor(name)).collect()
    }

    /// Names that are in no list.
    #[must_use]
    pub fn unlisted(&self) -> Vec<&'static str> {
        self.0.keys().copied().filter(|n| !SCENARIOS.contains(n) && !OTHERS.contains(n)).collect()
    }
}

/// Counted, and not asked for.
pub const OTHERS: &[&str] = &[
    "steps",
    "requests",
    "bytes placed",
    "bytes sent",
    "connections",
    "seeds",
    "a full ring given up",
];
