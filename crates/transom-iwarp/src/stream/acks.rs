//! Acknowledgements of the extension: executed messages, credits, and a Send that waits.

use std::time::Duration;

use transom_wire::{Acknowledgements, CreditNews, Grant, Time};

use crate::extension::Ack;

#[derive(Debug, Default)]
pub(super) struct Acks {
    pacer: Acknowledgements<{ u32::MAX }>,
    /// Sends and Writes of the peer that have been executed, and how many of them it knows of.
    executed: u32,
    acknowledged: u32,
    /// Whether the peer takes immediate data and atomics, once it has said so.
    extended: Option<bool>,
}

impl Acks {
    pub(super) fn pacer(&mut self) -> &mut Acknowledgements<{ u32::MAX }> {
        &mut self.pacer
    }

    pub(super) fn executed(&mut self, now: Time) {
        self.executed = self.executed.wrapping_add(1);
        self.pacer.owe(now);
    }

    /// Whether an acknowledgement must leave without a frame to ride on.
    pub(super) fn is_due(&self, now: Time, delay: Duration, limit: u32) -> bool {
        self.pacer.is_due(now, delay, self.is_full(limit))
    }

    /// As [`is_due`](Acks::is_due) but for time.
    pub(super) fn is_ripe(&self, limit: u32) -> bool {
        self.pacer.is_ripe(self.is_full(limit))
    }

    fn is_full(&self, limit: u32) -> bool {
        self.executed.wrapping_sub(self.acknowledged) >= limit
    }

    pub(super) fn extended(&self) -> Option<bool> {
        self.extended
    }

    pub(super) fn is_owed(&self) -> bool {
        self.pacer.is_owed()
    }

    pub(super) fn deadline(&self, delay: Duration) -> Option<Time> {
        self.pacer.deadline(delay)
    }

    pub(super) fn credit(&self) -> u32 {
        self.pacer.credit()
    }

    pub(super) fn lacks_receive(&self) -> bool {
        self.pacer.lacks_receive()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.pacer.is_refused()
    }

    pub(super) fn has_none(&self) -> bool {
        self.pacer.has_none()
    }

    /// The acknowledgement that leaves now.
    pub(super) fn take(&mut self) -> Ack {
        self.pacer.on_sent();
        self.acknowledged = self.executed;
        let (credits, shared) = self.pacer.credits();
        let (wanted, none) = (self.pacer.is_waiting(), self.pacer.has_none());
        Ack { executed: self.executed, credits, shared, wanted, extended: true, none }
    }

    /// Whether the peer takes a grant back.
    pub(super) fn is_behind(&self, ack: &Ack) -> bool {
        self.pacer.is_behind(ack.credits)
    }

    /// Takes in what the peer says about credit, which [is not behind](Acks::is_behind); `sends` of it have
    /// come.
    pub(super) fn learn(&mut self, ack: &Ack, sends: u32) -> CreditNews {
        self.extended = Some(ack.extended);
        let Ack { credits, shared, wanted: wants, none, .. } = *ack;
        self.pacer.on_grant(Grant { credits, shared, wants, none }, sends)
    }
}
