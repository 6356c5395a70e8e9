//! Acknowledgements and receive credits of both sides. All of it is one word that rides on every
//! record, and stands beside the records when there is none to ride on.
//!
//! | bits | what |
//! |---|---|
//! | 0-31 | records of the peer that were executed, modulo 2^32 |
//! | 32-59 | receives granted, modulo 2^28 |
//! | 60 | there is no receive for the Send that the peer holds back |
//! | 61 | turns with every Send that begins to wait: a word beside the records is read only once while unchanged |
//! | 62 | the receives come from a shared queue: they are granted when asked for |
//! | 63 | a Send of ours waits for a receive |
//!
//! Both counts only grow, so a word that is older than one already seen (it waited in a buffer while a
//! younger one stood beside) is recognised and ignored.

use std::time::Duration;

use transom_wire::{Acknowledgements, Grant, Time};

/// Receives and Sends are counted modulo this and one more.
pub(crate) const CREDITS: u32 = (1 << 28) - 1;
const NONE: u64 = 1 << 60;
const TOGGLE: u64 = 1 << 61;
const SHARED: u64 = 1 << 62;
const WANTED: u64 = 1 << 63;

#[derive(Debug, Default)]
pub(crate) struct FlowControl {
    pacer: Acknowledgements<CREDITS>,
    /// Records that the peer knows to be executed, and bytes executed since then.
    acknowledged: u32,
    bytes: u64,
    toggle: bool,
    /// The half of the peer's last word that is about receives, once there was one.
    grant: Option<u32>,
}

/// The changes that a word of the peer brings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// How many more records the peer has executed.
    pub(crate) executed: u32,
    /// A Send that had to wait may try again.
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

impl FlowControl {
    pub(crate) fn pacer(&mut self) -> &mut Acknowledgements<CREDITS> {
        &mut self.pacer
    }

    /// A record of the peer was executed.
    pub(crate) fn executed(&mut self, now: Time, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.pacer.owe(now);
    }

    /// Receives that the peer may know of, modulo 2^28.
    pub(crate) fn announced_credits(&self) -> u32 {
        self.pacer.announced_credits()
    }

    /// Whether it must leave without anything to ride on; `executed`: as [`FlowControl::word`].
    pub(crate) fn is_due(&self, now: Time, executed: u32, patience: &Patience) -> bool {
        self.pacer.is_due(now, patience.delay, self.is_full(executed, patience))
    }

    fn is_full(&self, executed: u32, patience: &Patience) -> bool {
        self.bytes >= patience.bytes || executed.wrapping_sub(self.acknowledged) >= patience.records
    }

    pub(crate) fn deadline(&self, patience: &Patience) -> Option<Time> {
        self.pacer.deadline(patience.delay)
    }

    /// The word for the peer, of whose records `executed` are executed; the peer counts as
    /// informed.
    pub(crate) fn word(&mut self, executed: u32) -> u64 {
        self.pacer.on_sent();
        self.acknowledged = executed;
        self.bytes = 0;
        let (credits, shared) = self.pacer.credits();
        u64::from(executed)
            | u64::from(credits) << 32
            | if self.toggle { TOGGLE } else { 0 }
            | if shared { SHARED } else { 0 }
            | if self.pacer.is_waiting() { WANTED } else { 0 }
            | if self.pacer.has_none() { NONE } else { 0 }
    }

    /// Uses a credit for a Send. Without one the result is `false`, and the next word says so.
    pub(crate) fn spend(&mut self) -> bool {
        let waited = self.pacer.is_waiting();
        let spent = self.pacer.spend();
        if !spent && !waited {
            self.toggle = !self.toggle;
        }
        spent
    }

    /// How many Sends may begin.
    pub(crate) fn credit(&self) -> u32 {
        self.pacer.credit()
    }

    /// Whether a Send without credit waits because the peer has no receive for it: see
    /// [`Acknowledgements::lacks_receive`].
    pub(crate) fn lacks_receive(&self) -> bool {
        self.pacer.lacks_receive()
    }

    /// Whether the peer has answered that it has no receive for the Send that waits.
    pub(crate) fn is_refused(&self) -> bool {
        self.pacer.is_refused()
    }

    /// Whether there is none here for a Send of the peer's that waits.
    pub(crate) fn has_none(&self) -> bool {
        self.pacer.has_none()
    }

    /// Takes in a word of the peer. `acknowledged`: records of ours that it had executed so far, of
    /// `sent`; `sends`: Sends of its own that have come, modulo 2^28. `None`: it lies.
    #[inline]
    pub(crate) fn learn(
        &mut self,
        word: u64,
        acknowledged: u64,
        sent: u64,
        sends: u32,
    ) -> Option<News> {
        let executed = (word & 0xFFFF_FFFF) as u32;
        let more = executed.wrapping_sub((acknowledged & 0xFFFF_FFFF) as u32);
        let grant = (word >> 32) as u32;
        let asks = word & (WANTED | NONE) != 0;
        if self.grant == Some(grant) && !asks && more <= i32::MAX as u32 {
            // As most are: nothing about receives has changed.
            let known = acknowledged + u64::from(more) <= sent;
            return known.then_some(News { executed: more, ..News::default() });
        }
        self.learn_grant(word, more, (acknowledged, sent), sends)
    }

    fn learn_grant(
        &mut self,
        word: u64,
        more: u32,
        (acknowledged, sent): (u64, u64),
        sends: u32,
    ) -> Option<News> {
        let credits = (word >> 32) as u32 & CREDITS;
        if more > i32::MAX as u32 || self.pacer.is_behind(credits) {
            return Some(News::default()); // older than what we know
        }
        if acknowledged + u64::from(more) > sent {
            return None;
        }
        self.grant = Some((word >> 32) as u32);
        let has = |flag: u64| word & flag != 0;
        let grant = Grant { credits, shared: has(SHARED), wants: has(WANTED), none: has(NONE) };
        let news = self.pacer.on_grant(grant, sends);
        Some(News { executed: more, resume: news.resume, wanted: news.wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const PATIENCE: Patience =
        Patience { delay: Duration::from_micros(20), records: 16, bytes: 1 << 17 };

    /// Whether this is what the peer has granted.
    fn knows(flow_control: &FlowControl, credits: u32) -> bool {
        !flow_control.pacer.is_behind(credits) && flow_control.pacer.is_behind(credits - 1)
    }

    #[test]
    fn an_older_word_changes_nothing_and_a_false_one_is_seen() {
        let mut flow_control = FlowControl::default();
        let at = |executed: u64, credits: u64| executed | credits << 32;
        let news = flow_control.learn(at(5, 7), 0, 9, 0).unwrap();
        assert_eq!((news.executed, knows(&flow_control, 7)), (5, true));
        assert_eq!(flow_control.learn(at(4, 7), 5, 9, 0), Some(News::default()));
        assert_eq!(flow_control.learn(at(5, 6), 5, 9, 0), Some(News::default()));
        assert!(knows(&flow_control, 7));
        assert_eq!(flow_control.learn(at(10, 7), 5, 9, 0), None, "9 were sent");
        // As far as half of what can be counted a number is younger, behind that it is older.
        let half = u64::from(CREDITS / 2);
        assert_eq!(flow_control.learn(at(5, 7 + half + 1), 5, 9, 0), Some(News::default()));
        assert!(knows(&flow_control, 7));
        assert_eq!(flow_control.learn(at(5, 7 + half), 5, 9, 0).map(|news| news.executed), Some(0));
        assert!(knows(&flow_control, 7 + CREDITS / 2));
        flow_control.pacer = Acknowledgements::default();
        flow_control.pacer.on_grant(Grant { credits: 7, ..Grant::default() }, 0);
        let around = flow_control.learn(at(3, 7), 0xFFFF_FFFE, 0x1_0000_0009, 0).unwrap();
        assert_eq!(around.executed, 5, "counts wrap");
    }

    #[test]
    fn an_acknowledgement_waits_for_company_but_not_for_ever() {
        let mut flow_control = FlowControl::default();
        flow_control.pacer().start();
        let _ = flow_control.word(0);
        assert!(!flow_control.is_due(NOW, 0, &PATIENCE));
        flow_control.executed(NOW, 8);
        assert!(!flow_control.is_due(NOW, 1, &PATIENCE), "it may ride along");
        assert!(flow_control.is_due(NOW, 16, &PATIENCE), "sixteen do not wait");
        assert!(flow_control.is_due(NOW.after(PATIENCE.delay), 1, &PATIENCE));
        flow_control.pacer().on_idle_pass();
        flow_control.pacer().on_idle_pass();
        assert!(flow_control.is_due(NOW, 1, &PATIENCE), "two passes found nothing to do");
        let _ = flow_control.word(1);
        flow_control.executed(NOW, 1 << 17);
        assert!(flow_control.is_due(NOW, 2, &PATIENCE), "the ring must not run full");
        let _ = flow_control.word(2);
        flow_control.executed(NOW, (1 << 17) - 1);
        assert!(
            !flow_control.is_due(NOW, 3, &PATIENCE),
            "what was acknowledged does not count again"
        );
        flow_control.executed(NOW, 1);
        assert!(flow_control.is_due(NOW, 4, &PATIENCE));
    }
}
