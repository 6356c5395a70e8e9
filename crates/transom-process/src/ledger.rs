//! What we owe the peer, and what it has granted us: all of it in one word that rides on every record,
//! and stands beside the records when there is none to ride on.
//!
//! | bits | what |
//! |---|---|
//! | 0-31 | records of the peer that were executed, modulo 2^32 |
//! | 32-60 | receives granted, modulo 2^29 |
//! | 61 | turns with every Send that begins to wait: nobody looks twice at a word that stands beside the records unchanged |
//! | 62 | the receives come from a shared queue: they are granted when asked for |
//! | 63 | a Send of ours waits for a receive |
//!
//! Both counts only grow, so a word that is older than one already seen (it waited in a buffer while a
//! younger one stood beside) is recognised and ignored.

use std::time::Duration;

use transom_wire::Time;

/// Passes without work after which an acknowledgement stops waiting.
const PASSES: u8 = 2;
/// Receives and Sends are counted modulo this and one more.
pub(crate) const CREDITS: u32 = (1 << 29) - 1;
const TOGGLE: u64 = 1 << 61;
const SHARED: u64 = 1 << 62;
const WANTED: u64 = 1 << 63;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    on: bool,
    /// Receives posted so far, and where they come from.
    credits: u32,
    shared: bool,
    /// What the peer was told last.
    told_credits: u32,
    told_executed: u32,
    since: Option<Time>,
    passes: u8,
    urgent: bool,
    /// Bytes executed since the peer was told.
    bytes: u64,
    peer_wants: bool,
    /// What the peer granted, and how many Sends were begun.
    granted: u32,
    used: u32,
    peer_shared: bool,
    heard: bool,
    waiting: bool,
    toggle: bool,
}

/// What a word of the peer changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// How many more records the peer has executed.
    pub(crate) executed: u32,
    /// A Send that was told to wait may try again.
    pub(crate) resume: bool,
    /// The peer wants credit from a shared queue.
    pub(crate) wanted: bool,
}

/// Limits of an acknowledgement's patience.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) delay: Duration,
    pub(crate) records: u32,
    pub(crate) bytes: u64,
}

impl Ledger {
    fn owe(&mut self, now: Time) {
        if self.since.is_none() {
            self.since = Some(now);
            self.passes = 0;
        }
    }

    /// A record of the peer was executed.
    pub(crate) fn executed(&mut self, now: Time, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.owe(now);
    }

    pub(crate) fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        let total = (total & u64::from(CREDITS)) as u32;
        if total == self.credits && shared == self.shared {
            return;
        }
        (self.credits, self.shared) = (total, shared);
        self.owe(now);
        // A peer that waits gets its credit at once.
        self.urgent |= std::mem::take(&mut self.peer_wants);
    }

    /// Receives that the peer may know of, modulo 2^29.
    pub(crate) fn told_credits(&self) -> u32 {
        self.told_credits
    }

    /// Whether it must leave without anything to ride on; `executed`: as [`Ledger::word`].
    pub(crate) fn is_due(&self, now: Time, executed: u32, patience: &Patience) -> bool {
        let late = |since: Time| now >= since.after(patience.delay);
        self.is_ripe(executed, patience) || self.on && self.since.is_some_and(late)
    }

    /// The same, but for time, which [`Ledger::deadline`] tells.
    pub(crate) fn is_ripe(&self, executed: u32, patience: &Patience) -> bool {
        self.on
            && (self.urgent
                || self.since.is_some()
                    && (self.passes >= PASSES
                        || self.bytes >= patience.bytes
                        || executed.wrapping_sub(self.told_executed) >= patience.records))
    }

    pub(crate) fn deadline(&self, patience: &Patience) -> Option<Time> {
        self.since.filter(|_| self.on && !self.urgent).map(|since| since.after(patience.delay))
    }

    pub(crate) fn idle_pass(&mut self) {
        if self.since.is_some() {
            self.passes = self.passes.saturating_add(1);
        }
    }

    pub(crate) fn flush(&mut self) {
        self.urgent |= self.since.is_some();
    }

    /// Messages may flow: the first word carries the first credits.
    pub(crate) fn start(&mut self) {
        self.on = true;
        self.urgent = true;
    }

    /// What to tell the peer, who has had so many records executed; it counts as told.
    pub(crate) fn word(&mut self, executed: u32) -> u64 {
        self.told_credits = self.credits;
        self.told_executed = executed;
        self.since = None;
        self.passes = 0;
        self.urgent = false;
        self.bytes = 0;
        u64::from(executed)
            | u64::from(self.credits) << 32
            | if self.toggle { TOGGLE } else { 0 }
            | if self.shared { SHARED } else { 0 }
            | if self.waiting { WANTED } else { 0 }
    }

    /// Uses a credit for a Send. `false`: there is none, and the peer will hear of it.
    pub(crate) fn spend(&mut self) -> bool {
        if self.used == self.granted {
            if !self.waiting {
                self.waiting = true;
                self.toggle = !self.toggle;
                self.urgent = true;
            }
            return false;
        }
        self.used = self.used.wrapping_add(1) & CREDITS;
        self.waiting = false;
        true
    }

    /// How many Sends may begin.
    pub(crate) fn credit(&self) -> u32 {
        self.granted.wrapping_sub(self.used) & CREDITS
    }

    /// Whether a Send without credit waits because the peer has no receive for it: from then on its
    /// time is limited. Before the peer's first word it may merely be slow, and a shared queue is
    /// waited for without limit.
    pub(crate) fn lacks_receive(&self) -> bool {
        self.heard && !self.peer_shared
    }

    /// Takes in a word of the peer. `acknowledged`: records of ours that it had executed so far, of
    /// `sent`; `sends`: Sends of its own that have come, modulo 2^29. `None`: it lies.
    pub(crate) fn learn(
        &mut self,
        word: u64,
        acknowledged: u64,
        sent: u64,
        sends: u32,
    ) -> Option<News> {
        let executed = (word & 0xFFFF_FFFF) as u32;
        let more = executed.wrapping_sub((acknowledged & 0xFFFF_FFFF) as u32);
        let credits = (word >> 32) as u32 & CREDITS;
        let granted = credits.wrapping_sub(self.granted) & CREDITS;
        if more > i32::MAX as u32 || granted > CREDITS / 2 {
            return Some(News::default()); // older than what we know
        }
        if acknowledged + u64::from(more) > sent {
            return None;
        }
        let shared = word & SHARED != 0;
        let changed = granted > 0 || shared != self.peer_shared || !self.heard;
        (self.granted, self.peer_shared, self.heard) = (credits, shared, true);
        let resume = changed && self.waiting;
        if resume && granted > 0 {
            self.waiting = false;
        }
        let mut wanted = false;
        if word & WANTED != 0 {
            if self.credits == sends {
                self.peer_wants = true;
                wanted = self.shared;
            } else if self.credits != self.told_credits {
                self.urgent = true;
            } // else a credit and this wish have crossed
        }
        Some(News { executed: more, resume, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const PATIENCE: Patience =
        Patience { delay: Duration::from_micros(20), records: 16, bytes: 1 << 17 };

    #[test]
    fn an_older_word_changes_nothing_and_a_false_one_is_seen() {
        let mut ledger = Ledger::default();
        let at = |executed: u64, credits: u64| executed | credits << 32;
        let news = ledger.learn(at(5, 7), 0, 9, 0).unwrap();
        assert_eq!((news.executed, ledger.granted), (5, 7));
        assert_eq!(ledger.learn(at(4, 7), 5, 9, 0), Some(News::default()));
        assert_eq!(ledger.learn(at(5, 6), 5, 9, 0), Some(News::default()));
        assert_eq!(ledger.granted, 7);
        assert_eq!(ledger.learn(at(10, 7), 5, 9, 0), None, "9 were sent");
        // As far as half of what can be counted a number is younger, behind that it is older.
        let half = u64::from(CREDITS / 2);
        assert_eq!(ledger.learn(at(5, 7 + half + 1), 5, 9, 0), Some(News::default()));
        assert_eq!(ledger.granted, 7);
        assert_eq!(ledger.learn(at(5, 7 + half), 5, 9, 0).map(|news| news.executed), Some(0));
        assert_eq!(u64::from(ledger.granted), 7 + half);
        ledger.granted = 7;
        let around = ledger.learn(at(3, 7), 0xFFFF_FFFE, 0x1_0000_0009, 0).unwrap();
        assert_eq!(around.executed, 5, "counts wrap");
    }

    #[test]
    fn an_acknowledgement_waits_for_company_but_not_for_ever() {
        let mut ledger = Ledger::default();
        ledger.start();
        let _ = ledger.word(0);
        assert!(!ledger.is_due(NOW, 0, &PATIENCE));
        ledger.executed(NOW, 8);
        assert!(!ledger.is_due(NOW, 1, &PATIENCE), "it may ride along");
        assert!(ledger.is_due(NOW, 16, &PATIENCE), "sixteen do not wait");
        assert!(ledger.is_due(NOW.after(PATIENCE.delay), 1, &PATIENCE));
        ledger.idle_pass();
        ledger.idle_pass();
        assert!(ledger.is_due(NOW, 1, &PATIENCE), "two passes found nothing to do");
        let _ = ledger.word(1);
        ledger.executed(NOW, 1 << 17);
        assert!(ledger.is_due(NOW, 2, &PATIENCE), "the ring must not run full");
        let _ = ledger.word(2);
        ledger.executed(NOW, (1 << 17) - 1);
        assert!(!ledger.is_due(NOW, 3, &PATIENCE), "what was acknowledged does not count again");
        ledger.executed(NOW, 1);
        assert!(ledger.is_due(NOW, 4, &PATIENCE));
    }
}
