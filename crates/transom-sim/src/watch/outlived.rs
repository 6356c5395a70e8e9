//! A queue pair that outlives its connections (Verbs V68, V77, V79, V93): when it does, what waits for
//! the next one and for how long, and what its peer may do at all.

use transom_core::tables::QueuePairState;
use transom_core::{EndReason, Limits, Operation, QueuePair};
use transom_memory::{ConnectionId, Purpose, QueuePairId, Rights};
use transom_wire::{Role, Time};

use super::{EndId, Pair, PairId, Stream, Watch, outlives};

/// No connection: of what is open to a queue pair only.
const NOWHERE: ConnectionId = ConnectionId { number: u32::MAX, epoch: 0 };

impl Pair {
    /// Until when a connection has to come about.
    fn due(&self) -> Option<Time> {
        let Limits { connection, reconnection, .. } = self.limits;
        let limit = if self.reconnects { reconnection } else { connection };
        Some(self.waits?.after(limit?))
    }
}

impl Watch {
    /// The call in which a connection has ended is over, and its queue pair goes on, or does not.
    pub fn parted(&mut self, end: EndId, outlived: bool) {
        let Some(stream) = self.ends.get_mut(&end) else { return };
        if !outlives(stream.dialect) || stream.outlived.is_some() {
            return;
        }
        stream.outlived = Some(outlived);
        // A Connect that came to nothing leaves its queue pair as it was.
        let used = stream.open || stream.role == Role::Passive;
        let (Some(key), Some(reason), true) = (stream.pair, stream.ended, used) else { return };
        let wrong = self.may_outlive(end, key, reason).filter(|may| *may != outlived);
        if wrong.is_some() {
            self.current = Some(end);
            self.fail(format!("a connection ends with {reason:?}; outlived: {outlived} (V79)"));
            self.current = None;
        }
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        if outlived {
            pair.failed = false;
            for request in pair.requests.iter_mut().skip(pair.first) {
                request.bad = None;
            }
            if pair.outstanding().0 > 0 {
                self.counters.hit("requests outlived their connection");
            }
        } else {
            pair.over = true;
            self.close_windows(key);
        }
    }

    /// Whether a queue pair goes on: if the peer has left, or is lost, and no request is to blame. `None`:
    /// it may or may not know that a request has succeeded.
    fn may_outlive(&self, end: EndId, key: PairId, reason: EndReason) -> Option<bool> {
        let (stream, pair) = (self.ends.get(&end)?, self.pairs.get(&key)?);
        if stream.resets {
            return Some(true);
        }
        let left = pair.requests.get(pair.first..).unwrap_or_default();
        let failing = left.iter().position(|request| request.bad.is_some());
        let of_peer = match reason {
            EndReason::PeerDisconnected
            | EndReason::Unanswered
            | EndReason::PeerFailed
            | EndReason::TimedOut
            | EndReason::Link(_) => true,
            EndReason::Flushed => !stream.open,
            _ => false,
        };
        // A peer that fails, or is lost, takes the oldest request with it.
        let blames = matches!(reason, EndReason::PeerFailed | EndReason::TimedOut);
        let owed =
            |request: &super::Posted| request.message.is_some() && !self.has_succeeded(request);
        // A failure behind what the peer owes is not the first one.
        let in_front = left.get(..failing.unwrap_or_default()).unwrap_or_default();
        let settled = if in_front.iter().any(owed) { Some(false) } else { None };
        let fails = match failing {
            None => Some(false),
            Some(0) => Some(true),
            Some(_) if blames => Some(true),
            Some(_) => settled,
        };
        if !of_peer || fails == Some(true) {
            return Some(false);
        }
        fails?;
        let blames = blames && stream.open;
        match blames {
            true if left.iter().any(owed) => Some(false),
            true if !left.is_empty() => None,
            _ => Some(true),
        }
    }

    /// Everything that is open to this queue pair only is closed.
    pub fn close_windows(&mut self, (process, number): PairId) {
        if let Some(books) = self.books.get_mut(process) {
            books.over(Some(QueuePairId(number)), NOWHERE);
        }
    }

    /// The queue pair has nothing to do with this connection any more.
    pub fn let_go(&mut self, end: EndId, key: PairId) {
        if let Some(stream) = self.ends.get_mut(&end) {
            stream.pair = None;
        }
        if let Some(pair) = self.pairs.get_mut(&key).filter(|pair| pair.end == Some(end)) {
            pair.end = None;
        }
    }

    /// A connection is established: what comes behind it waits for the next one.
    pub(super) fn connected(&mut self, key: PairId) {
        if let Some(pair) = self.pairs.get_mut(&key) {
            (pair.waits, pair.reconnects) = (None, true);
        }
    }

    /// A queue pair without a connection was looked at, and says until when it waits for one. Whether
    /// that is over.
    pub fn waits(&mut self, key: PairId, front: &QueuePair, due: Option<Time>) -> bool {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&key) else { return false };
        let waits = outlives(pair.dialect)
            && !front.is_attached()
            && front.state() == QueuePairState::Idle
            && front.outstanding().0 > 0;
        let expected = if waits {
            pair.waits.get_or_insert(now);
            pair.due()
        } else {
            None
        };
        if due != expected {
            self.fail(format!(
                "pair {key:x?} waits until {due:?}; the model says {expected:?} (V77)"
            ));
        }
        expected.is_some_and(|due| due <= now)
    }

    /// A connection has not come about in time.
    pub fn gave_up(&mut self, key: PairId) {
        self.counters.hit("no connection in time");
        if let Some(pair) = self.pairs.get_mut(&key) {
            (pair.over, pair.gave_up) = (true, true);
        }
        self.close_windows(key);
    }

    /// Whether a connection may begin that the queue pair was asked for: not while the peer may have
    /// executed what it would execute again (V79).
    pub fn connects(&mut self, key: PairId, begins: bool) {
        let Some(pair) = self.pairs.get(&key) else { return };
        let left = pair.requests.get(pair.first..).unwrap_or_default();
        let begun = |request: &&super::Posted| request.message.is_some();
        let silent =
            |request: &super::Posted| request.flags.contains(transom_core::Flags::SILENT_SUCCESS);
        let possible = left.iter().any(|request| begun(&request));
        let certain = left.iter().filter(begun).any(|request| !silent(request));
        if begins && certain {
            self.fail("a connection begins although requests had begun on another one (V79)");
        } else if !begins && !possible {
            self.fail("a queue pair that waits for a connection takes none (V79)");
        } else if !begins {
            self.counters.hit("connected again too early");
        }
    }

    /// The queue pair begins anew: nothing that was posted completes (V68).
    pub fn reset(&mut self, key: PairId) {
        self.close_windows(key);
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        let shared_left = pair.shared.is_some() && !pair.receives.is_empty();
        let dropped: Vec<Operation> =
            pair.requests.drain(..).skip(pair.first).map(|request| request.operation).collect();
        let limits = (pair.limits, pair.access);
        let fresh = Pair::new(pair.domain, pair.dialect, pair.kind, pair.context, pair.shared);
        *pair = Pair { limits: limits.0, access: limits.1, ..fresh };
        if shared_left {
            self.fail("a reset keeps receives of a shared queue (V68)");
        }
        for operation in dropped {
            self.never_bound(key.0, operation);
        }
        self.counters.hit("queue pair reset");
    }

    /// Whether the peer's access is one that the queue pair admits at all, whatever the token says (V93,
    /// V92).
    pub(super) fn admits(&self, stream: &Stream, purpose: Purpose, length: u64) -> bool {
        let pair = stream.pair.and_then(|key| self.pairs.get(&key));
        let Some(pair) = pair else { return true };
        let right = match purpose {
            Purpose::RemoteRead => Rights::REMOTE_READ,
            Purpose::RemoteWrite => Rights::REMOTE_WRITE,
            Purpose::RemoteAtomic => Rights::REMOTE_ATOMIC,
            _ => return true,
        };
        length == 0 || pair.access.contains(right)
    }

    /// Whether the queue pair serves Reads and atomics.
    pub(super) fn serves_reads(&self, stream: &Stream) -> bool {
        let pair = stream.pair.and_then(|key| self.pairs.get(&key));
        pair.is_none_or(|pair| !pair.limits.refuses_reads)
    }
}
