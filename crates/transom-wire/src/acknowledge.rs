//! The acknowledgements that a wire of our own owes its peer: when one leaves, and the receives that
//! both sides grant each other with it.

use std::time::Duration;

use crate::Time;

/// Passes without work after which an owed acknowledgement stops waiting for a frame to ride on.
const PASSES: u8 = 2;

/// Acknowledgements of one connection. Receives and Sends are counted modulo `MASK + 1`, which is a
/// power of two: all counts only grow, and differences are taken as wrapping numbers.
///
/// An acknowledgement rides on the next frame. One that finds no frame leaves alone when it is
/// urgent, when two passes found no work, when `full` says that many are owed, or after a delay.
#[derive(Debug, Default)]
pub struct Acknowledgements<const MASK: u32> {
    /// Acknowledgements were agreed on and frames may leave.
    on: bool,
    /// Since when something is owed.
    since: Option<Time>,
    passes: u8,
    /// Leave with the next call, alone if need be.
    urgent: bool,
    /// Receives posted so far; whether they come from a shared queue.
    posted: u32,
    shared: bool,
    /// `posted` as the peer knows it.
    announced: u32,
    /// The peer holds back a Send for want of credit, and there has been no receive for it since.
    peer_wants: bool,
    /// The receives that the peer granted, and how many Sends were begun.
    granted: u32,
    used: u32,
    peer_shared: bool,
    /// The peer has said what it grants, be it nothing.
    peer_known: bool,
    /// A Send of ours waits for a receive.
    waiting: bool,
    /// The peer has answered that it has none.
    refused: bool,
}

/// The receives of the peer, as its acknowledgement has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Receives granted so far, modulo `MASK + 1`.
    pub credits: u32,
    /// The receives come from a shared queue.
    pub shared: bool,
    /// A Send of the peer's waits for a receive of this side.
    pub wants: bool,
    /// The peer has no receive for the Send of this side that waits.
    pub none: bool,
}

/// The change that an acknowledgement of the peer made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditNews {
    /// A Send that had to wait may try again.
    pub resume: bool,
    /// The peer wants credit from a shared queue.
    pub wanted: bool,
}

impl<const MASK: u32> Acknowledgements<MASK> {
    /// Messages may flow. The first acknowledgement is urgent: it carries the first credits, and the
    /// peer cannot send without.
    pub fn start(&mut self) {
        self.on = true;
        self.urgent = true;
    }

    /// Something has changed that the peer is to learn.
    pub fn owe(&mut self, now: Time) {
        if self.since.is_none() {
            self.since = Some(now);
            self.passes = 0;
        }
    }

    /// Of receives, so many have been posted since the connection began.
    pub fn receives_posted(&mut self, now: Time, total: u64, shared: bool) {
        let total = (total & u64::from(MASK)) as u32;
        if total == self.posted && shared == self.shared {
            return;
        }
        (self.posted, self.shared) = (total, shared);
        self.owe(now);
        // A peer that waits gets its credit at once.
        self.urgent |= std::mem::take(&mut self.peer_wants);
    }

    // ---- when one leaves ----------------------------------------------------------------------

    /// Whether anything is owed.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.on && (self.urgent || self.since.is_some())
    }

    /// Whether one must leave without a frame to ride on; `full`: so many are owed that none waits.
    #[must_use]
    pub fn is_due(&self, now: Time, delay: Duration, full: bool) -> bool {
        let late = |since: Time| now >= since.after(delay);
        self.is_ripe(full) || self.on && self.since.is_some_and(late)
    }

    /// As [`is_due`](Self::is_due) but for time, of which [`deadline`](Self::deadline) speaks.
    #[must_use]
    pub fn is_ripe(&self, full: bool) -> bool {
        self.on && (self.urgent || self.since.is_some() && (self.passes >= PASSES || full))
    }

    /// When an owed acknowledgement has waited for `delay`.
    #[must_use]
    pub fn deadline(&self, delay: Duration) -> Option<Time> {
        self.since.filter(|_| self.on && !self.urgent).map(|since| since.after(delay))
    }

    /// A pass found no work.
    pub fn on_idle_pass(&mut self) {
        if self.since.is_some() {
            self.passes = self.passes.saturating_add(1);
        }
    }

    /// An owed acknowledgement leaves with the next call.
    pub fn flush(&mut self) {
        self.urgent |= self.since.is_some();
    }

    /// An acknowledgement leaves. The caller puts [`credits`](Self::credits) and
    /// [`is_waiting`](Self::is_waiting) on it.
    pub fn on_sent(&mut self) {
        self.announced = self.posted;
        self.since = None;
        self.passes = 0;
        self.urgent = false;
    }

    // ---- credits ------------------------------------------------------------------------------

    /// Receives granted to the peer, modulo `MASK + 1`, and whether they come from a shared queue.
    #[must_use]
    pub fn credits(&self) -> (u32, bool) {
        (self.posted, self.shared)
    }

    /// Receives that the peer may know of.
    #[must_use]
    pub fn announced_credits(&self) -> u32 {
        self.announced
    }

    /// Whether a Send of the peer's waits, and there is no receive for it: the acknowledgement says so.
    #[must_use]
    pub fn has_none(&self) -> bool {
        self.peer_wants
    }

    /// Whether a Send of this side waits for a receive at the peer.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Uses a credit for a Send. Without one the result is `false`, and the peer learns that a Send
    /// waits.
    pub fn spend(&mut self) -> bool {
        if self.used == self.granted {
            self.urgent |= !self.waiting;
            self.waiting = true;
            return false;
        }
        self.used = self.used.wrapping_add(1) & MASK;
        (self.waiting, self.refused) = (false, false);
        true
    }

    /// How many Sends may begin.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.granted.wrapping_sub(self.used) & MASK
    }

    /// Whether a Send without credit waits because the peer has no receive for it: from then on its
    /// time is limited. Before the peer's first acknowledgement the peer may merely be slow, and a
    /// shared queue is waited for without limit.
    #[must_use]
    pub fn lacks_receive(&self) -> bool {
        self.peer_known && !self.peer_shared
    }

    /// Whether the peer, asked for a receive for the Send that waits, has answered that it has none.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.waiting && self.refused
    }

    /// Whether `credits` is an older grant than the one that is known.
    #[must_use]
    pub fn is_behind(&self, credits: u32) -> bool {
        credits.wrapping_sub(self.granted) & MASK > MASK / 2
    }

    /// The peer grants receives, and no fewer than [before](Self::is_behind); `sends` of its Sends have come.
    pub fn on_grant(&mut self, grant: Grant, sends: u32) -> CreditNews {
        let Grant { credits, shared, wants, none } = grant;
        let more = credits != self.granted;
        let changed = more || shared != self.peer_shared || !self.peer_known;
        (self.granted, self.peer_shared, self.peer_known) = (credits, shared, true);
        let refuses = self.waiting && none && !more && !self.refused;
        self.refused |= refuses;
        let mut news = CreditNews { resume: refuses || changed && self.waiting, wanted: false };
        if news.resume && more {
            (self.waiting, self.refused) = (false, false);
        }
        if wants {
            if self.posted == sends {
                // Unless a receive comes first, the next acknowledgement says that there is none.
                self.urgent |= !self.peer_wants;
                self.peer_wants = true;
                news.wanted = self.shared;
            } else if self.posted != self.announced {
                self.urgent = true;
            } // else a credit and this wish have crossed
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const DELAY: Duration = Duration::from_micros(20);
    type Acks = Acknowledgements<7>;

    fn grant(credits: u32, shared: bool, wants: bool) -> Grant {
        Grant { credits, shared, wants, none: false }
    }

    fn started() -> Acks {
        let mut acks = Acks { on: true, ..Acks::default() };
        acks.on_sent();
        acks
    }

    #[test]
    fn an_acknowledgement_waits_for_a_frame_but_not_for_ever() {
        let mut acks = started();
        assert!(!acks.is_owed() && !acks.is_due(NOW, DELAY, true), "nothing is owed");
        acks.owe(NOW);
        assert!(acks.is_owed() && !acks.is_due(NOW, DELAY, false), "it may ride along");
        assert!(acks.is_due(NOW, DELAY, true), "many do not wait");
        assert!(acks.is_due(NOW.after(DELAY), DELAY, false) && !acks.is_ripe(false));
        assert_eq!(acks.deadline(DELAY), Some(NOW.after(DELAY)));
        acks.on_idle_pass();
        assert!(!acks.is_ripe(false));
        acks.on_idle_pass();
        assert!(acks.is_ripe(false), "two passes found nothing to do");
        acks.on_sent();
        acks.on_idle_pass();
        acks.flush();
        assert!(!acks.is_owed() && acks.deadline(DELAY).is_none(), "nothing is owed again");
        acks.owe(NOW);
        acks.flush();
        assert!(acks.is_ripe(false) && acks.deadline(DELAY).is_none(), "no time passes");
    }

    #[test]
    fn nothing_is_due_before_the_start() {
        let mut acks = Acks::default();
        acks.owe(NOW);
        acks.flush();
        assert!(!acks.is_owed() && !acks.is_due(NOW.after(DELAY), DELAY, true));
        assert_eq!(acks.deadline(DELAY), None);
        acks.start();
        assert!(acks.is_due(NOW, DELAY, false), "the first carries the first credits");
    }

    #[test]
    fn a_send_spends_a_credit_or_waits_for_one() {
        let mut acks = started();
        assert!(!acks.lacks_receive(), "the peer may be slow");
        assert!(!acks.spend() && acks.is_waiting() && acks.is_ripe(false), "the peer is to learn");
        acks.on_sent();
        assert!(!acks.spend() && !acks.is_ripe(false), "the peer knows already");
        let news = acks.on_grant(grant(1, false, false), 0);
        assert_eq!(news, CreditNews { resume: true, wanted: false });
        assert_eq!(acks.credit(), 1);
        assert!(acks.lacks_receive() && acks.spend() && acks.credit() == 0 && !acks.spend());
        assert!(acks.on_grant(grant(1, true, false), 0).resume, "a shared queue is waited for");
        assert!(!acks.lacks_receive());
    }

    #[test]
    fn grants_wrap_and_older_ones_are_recognised() {
        let mut acks = started();
        acks.on_grant(grant(6, false, false), 0);
        assert!(acks.is_behind(5) && !acks.is_behind(6) && !acks.is_behind(7));
        assert!(!acks.is_behind(1), "6, 7, 0, 1: as far as half of the circle");
        assert!(acks.is_behind(2));
        for _ in 0..6 {
            assert!(acks.spend());
        }
        assert!(!acks.spend());
        acks.on_grant(grant(0, false, false), 0);
        assert_eq!(acks.credit(), 2, "two more, around the end");
        assert!(acks.spend() && acks.spend() && !acks.spend());
    }

    #[test]
    fn a_peer_that_waits_gets_its_credit_at_once() {
        let mut acks = started();
        assert!(
            !acks.on_grant(grant(0, false, true), 0).wanted,
            "a queue of its own grants by itself"
        );
        acks.receives_posted(NOW, 9, false);
        assert!(acks.is_ripe(false));
        assert_eq!((acks.credits(), acks.announced_credits()), ((1, false), 0), "modulo 8");
        acks.on_sent();
        assert_eq!(acks.announced_credits(), 1);
        acks.receives_posted(NOW, 9, false);
        assert!(!acks.is_owed(), "nothing is new");
        acks.receives_posted(NOW, 2, true);
        assert!(acks.is_owed() && !acks.is_ripe(false), "nobody waits for it");
        assert!(
            !acks.on_grant(grant(0, false, true), 1).wanted && acks.is_ripe(false),
            "now one does"
        );
        acks.on_sent();
        assert!(acks.on_grant(grant(0, false, true), 2).wanted, "a shared queue grants when asked");
        acks.on_sent();
        assert!(
            !acks.on_grant(grant(0, false, true), 1).wanted && !acks.is_owed(),
            "they have crossed"
        );
    }

    /// A peer that says that it has none, for the Send that waits, has refused it: once, until it grants one.
    #[test]
    fn a_peer_that_has_no_receive_says_so_to_the_send_that_waits() {
        let none = |credits| Grant { none: true, ..grant(credits, false, false) };
        let mut acks = started();
        assert!(!acks.on_grant(none(0), 0).resume && !acks.is_refused(), "no Send waits");
        assert!(!acks.spend());
        assert!(acks.on_grant(none(0), 0).resume && acks.is_refused());
        assert!(acks.is_waiting(), "the Send still waits");
        assert!(!acks.on_grant(none(0), 0).resume, "it has said so before");
        assert!(!acks.spend() && acks.is_refused());
        assert!(acks.on_grant(grant(1, false, false), 0).resume);
        assert!(!acks.is_refused() && !acks.is_waiting());
        assert!(acks.spend() && !acks.is_refused());
    }

    /// The other way round: the acknowledgement says that there is none until a receive is posted.
    #[test]
    fn a_wish_without_a_receive_is_answered_with_none() {
        let mut acks = started();
        assert!(!acks.has_none());
        acks.on_grant(grant(0, false, true), 0);
        assert!(acks.has_none() && acks.is_ripe(false), "the peer is to hear it at once");
        acks.on_sent();
        acks.on_grant(grant(0, false, true), 0);
        assert!(acks.has_none() && !acks.is_ripe(false), "it has been told");
        acks.receives_posted(NOW, 1, false);
        assert!(!acks.has_none() && acks.is_ripe(false));
        acks.on_sent();
        acks.on_grant(grant(0, false, false), 0);
        assert!(!acks.has_none(), "no Send of the peer's waits");
    }

    /// Two passes without work let an acknowledgement go, counted from the moment that it is owed.
    #[test]
    fn passes_are_counted_anew_for_each_acknowledgement() {
        let mut acks = started();
        acks.owe(NOW);
        acks.on_idle_pass();
        acks.on_sent();
        acks.owe(NOW);
        acks.on_idle_pass();
        assert!(!acks.is_ripe(false));
        acks.on_idle_pass();
        assert!(acks.is_ripe(false));
    }
}
