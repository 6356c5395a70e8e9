//! The bookkeeping of the extension: what we owe the peer, and what the peer has granted us.
//!
//! All counts are cumulative and wrap; differences are taken as wrapping numbers.

use std::time::Duration;

use transom_wire::Time;

use crate::extension::Ack;

/// Passes without work after which an owed acknowledgement stops waiting.
const PASSES: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The extension was agreed on and frames may leave.
    on: bool,
    /// The state now, and the state that the peer was told last.
    now: Ack,
    told: Ack,
    /// Since when something is owed.
    since: Option<Time>,
    passes: u8,
    /// Leave with the next call, alone if need be.
    urgent: bool,
    /// The peer holds back a Send for want of credit.
    peer_wants: bool,
    /// The credit that the peer granted, and how many Sends were begun.
    granted: u32,
    used: u32,
    peer_shared: bool,
    /// The peer has said what it grants, be it nothing.
    heard: bool,
    /// A Send of ours was told to wait.
    waiting: bool,
}

/// The change that an acknowledgement of the peer made.
#[derive(Debug, Default)]
pub(super) struct News {
    /// A Send that was told to wait may try again.
    pub(super) resume: bool,
    /// The peer wants credit from a shared queue.
    pub(super) wanted: bool,
}

impl Acks {
    /// Something changed that the peer is to learn.
    fn owe(&mut self, now: Time) {
        if self.since.is_none() {
            self.since = Some(now);
            self.passes = 0;
        }
    }

    pub(super) fn owed(&self) -> bool {
        self.on && (self.urgent || self.since.is_some())
    }

    pub(super) fn executed(&mut self, now: Time) {
        self.now.executed = self.now.executed.wrapping_add(1);
        self.owe(now);
    }

    pub(super) fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        // Cumulative modulo 2^32, as it travels.
        let total = (total & 0xFFFF_FFFF) as u32;
        if total == self.now.credits && shared == self.now.shared {
            return;
        }
        (self.now.credits, self.now.shared) = (total, shared);
        self.owe(now);
        // A peer that waits gets its credit at once.
        self.urgent |= std::mem::take(&mut self.peer_wants);
    }

    /// Whether an acknowledgement that has nothing to ride on must leave.
    pub(super) fn due(&self, now: Time, delay: Duration, limit: u32) -> bool {
        self.ripe(limit) || self.since.is_some_and(|since| now >= since.after(delay))
    }

    /// The same, but for time, which [`deadline`](Acks::deadline) tells.
    pub(super) fn ripe(&self, limit: u32) -> bool {
        self.on
            && (self.urgent
                || self.since.is_some()
                    && (self.passes >= PASSES
                        || self.now.executed.wrapping_sub(self.told.executed) >= limit))
    }

    pub(super) fn deadline(&self, delay: Duration) -> Option<Time> {
        self.since.filter(|_| self.on && !self.urgent).map(|since| since.after(delay))
    }

    pub(super) fn idle_pass(&mut self) {
        if self.since.is_some() {
            self.passes = self.passes.saturating_add(1);
        }
    }

    pub(super) fn flush(&mut self) {
        self.urgent |= self.since.is_some();
    }

    /// The first acknowledgement carries the first credits; the peer cannot send without.
    pub(super) fn start(&mut self) {
        self.on = true;
        self.urgent = true;
    }

    /// The acknowledgement for the peer; it counts as told.
    pub(super) fn take(&mut self) -> Ack {
        self.now.wanted = self.waiting;
        self.told = self.now;
        self.since = None;
        self.passes = 0;
        self.urgent = false;
        self.told
    }

    /// Uses a credit for a Send. `false`: there is none, and the peer will hear of it.
    pub(super) fn spend(&mut self) -> bool {
        if self.used == self.granted {
            if !self.waiting {
                self.waiting = true;
                self.urgent = true;
            }
            return false;
        }
        self.used = self.used.wrapping_add(1);
        self.waiting = false;
        true
    }

    /// How many Sends may begin.
    pub(super) fn credit(&self) -> u32 {
        self.granted.wrapping_sub(self.used)
    }

    /// Whether a Send without credit waits because the peer has no receive for it: from then on its
    /// time is limited. Before the peer's first word it may merely be slow, and a shared queue is
    /// waited for without limit.
    pub(super) fn lacks_receive(&self) -> bool {
        self.heard && !self.peer_shared
    }

    /// Takes in what the peer says about credit; `sends` of it have come. `None`: it takes a grant
    /// back.
    pub(super) fn learn(&mut self, ack: &Ack, sends: u32) -> Option<News> {
        let more = ack.credits.wrapping_sub(self.granted);
        if more > i32::MAX as u32 {
            return None;
        }
        let changed = more > 0 || ack.shared != self.peer_shared || !self.heard;
        (self.granted, self.peer_shared, self.heard) = (ack.credits, ack.shared, true);
        let mut news = News { resume: changed && self.waiting, wanted: false };
        if news.resume && more > 0 {
            self.waiting = false;
        }
        if ack.wanted {
            if self.now.credits == sends {
                self.peer_wants = true;
                news.wanted = self.now.shared;
            } else if self.now.credits != self.told.credits {
                self.urgent = true;
            } // else a credit and this wish have crossed
        }
        Some(news)
    }
}
