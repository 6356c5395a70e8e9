//! The reasons why a connection and its link need more than the quick steps, in one word.
//!
//! A new state gets a bit. Below [`OF_STEPS`](Attention::OF_STEPS)'s end it also keeps a pass from starting
//! messages of one frame ([`Connection::transmit`](crate::Connection::transmit)); bits behind that only send the
//! link's threads to a pass. More places have to know a state in which no request may start:
//! `Connection::start_all`, which starts those of several frames; `Connection::wants_write`, because work that does not
//! get on keeps a polling thread from resting; `Connection::set_execution`, which sets the bits of a new connection; and
//! `Execution::bind_now`, which asks for an open connection and nothing in front of the Bind.
//!
//! Only this file makes a [`Quiet`]. `Connection::is_quiet` asks for it in the driver's name (`link/quick.rs`), with all
//! bits; `Connection::quiet` asks before whole messages (`connection/whole.rs`, `connection/frames.rs`), inside of a pass
//! as well, with those of the steps alone: there a tracer stops them (`Tracer::wants_messages`). `Link::bind_now` makes
//! no message, and asks for `TRACED` alone.
//!
//! A bit neither wakes a link nor keeps it awake: `Link::rearm` asks for `UNREAD` and `MORE` alone. A control call makes
//! a pass before it returns, and a pass makes the driver's bits anew (`Link::conclude`); what is to last until a message
//! comes is a field of `LinkState`, of which `conclude` makes the bit. The tests of Verbs V94
//! (`raw/tests/verbs/requests.rs` of the engine) show how a test has a link take the quick steps, or a pass.

use crate::QueuePairKind;

/// A bit for each reason. The code that causes such a state sets its bit, and the code that ends the state clears
/// it. Those of the driver are computed anew behind each pass, but for `UNREAD`, `MORE` and `SHARED`. At 0 a message of
/// one frame needs nothing but to be judged, copied and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention(u32);

/// Proof that nothing was unusual when it was asked. The steps that start messages demand it; those that receive ask
/// for it and go on, because what they meet on the way changes it.
#[derive(Clone, Copy, Debug)]
pub struct Quiet(());

impl Attention {
    /// No messages flow: start-up, an end, or no queue pair.
    pub(crate) const CLOSED: u32 = 1;
    /// The queue pair is unreliable or of an XRC domain, or both sides are one.
    pub(crate) const KIND: u32 = 1 << 1;
    /// The peer acknowledges nothing.
    pub(crate) const PLAIN: u32 = 1 << 2;
    /// A message of the peer's waits for a receive.
    pub(crate) const INTAKE_PAUSED: u32 = 1 << 3;
    /// The next request waits for the wire.
    pub(crate) const REQUEST_WAITS: u32 = 1 << 4;
    /// The bits that concern the connection's own steps; all others concern a driver.
    const OF_STEPS: u32 = (1 << 5) - 1;
    /// The program is to get an event of the queue pair.
    pub(crate) const EVENT: u32 = 1 << 5;
    /// The peer asks for a receive of the shared queue.
    pub(crate) const CREDIT: u32 = 1 << 6;
    /// The peer has asked so since a receive was last looked for.
    pub(crate) const CREDIT_ASKED: u32 = 1 << 7;

    /// Driver: the link's carrier is not chosen, not connected, or has been shut down.
    pub const CARRIER: u32 = 1 << 16;
    /// Driver: bytes wait for room in the link.
    pub const PENDING: u32 = 1 << 17;
    /// Driver: bytes that have come are kept.
    pub const PARTIAL: u32 = 1 << 18;
    /// Driver: nothing is read for now, because a message waits for a receive.
    pub const UNREAD: u32 = 1 << 19;
    /// Driver: the peer is not known yet.
    pub const STARTING: u32 = 1 << 20;
    /// Driver: a capture is open, or a program traces.
    pub const TRACED: u32 = 1 << 21;
    /// Driver: receives come from a shared queue.
    pub const SHARED: u32 = 1 << 22;
    /// Driver: events wait behind the last pass.
    pub const BEHIND: u32 = 1 << 23;
    /// Driver: the last pass has ended with more to send.
    pub const MORE: u32 = 1 << 24;

    pub(crate) const NEW: Attention = Attention(Attention::CLOSED);

    /// The states of these bits begin.
    #[inline]
    pub fn set(&mut self, bits: u32) {
        self.0 |= bits;
    }

    /// The states of these bits end.
    #[inline]
    pub fn clear(&mut self, bits: u32) {
        self.0 &= !bits;
    }

    /// The state of these bits is on, or not.
    #[inline]
    pub fn put(&mut self, bits: u32, on: bool) {
        if on { self.set(bits) } else { self.clear(bits) }
    }

    /// Whether the state of one of these bits is on.
    #[must_use]
    #[inline]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// Whether nothing is unusual about the connection's own steps.
    #[inline]
    pub(crate) fn of_steps(self) -> Option<Quiet> {
        (!self.has(Attention::OF_STEPS)).then_some(Quiet(()))
    }

    /// Whether nothing is unusual at all.
    #[must_use]
    #[inline]
    pub fn quiet(self) -> Option<Quiet> {
        (self.0 == 0).then_some(Quiet(()))
    }
}

impl QueuePairKind {
    /// Whether messages of this kind need more than the quick steps.
    pub(crate) fn is_unusual(self) -> bool {
        self != QueuePairKind::Rc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_STEPS: [u32; 5] = [
        Attention::CLOSED,
        Attention::KIND,
        Attention::PLAIN,
        Attention::INTAKE_PAUSED,
        Attention::REQUEST_WAITS,
    ];
    const OTHERS: [u32; 12] = [
        Attention::EVENT,
        Attention::CREDIT,
        Attention::CREDIT_ASKED,
        Attention::CARRIER,
        Attention::PENDING,
        Attention::PARTIAL,
        Attention::UNREAD,
        Attention::STARTING,
        Attention::TRACED,
        Attention::SHARED,
        Attention::BEHIND,
        Attention::MORE,
    ];

    /// Each bit by itself keeps the quick steps away, and only those of the connection's steps keep messages from
    /// being started or placed.
    #[test]
    fn each_bit_is_unusual_by_itself() {
        let mut none = Attention::NEW;
        none.clear(Attention::CLOSED);
        assert!(none.quiet().is_some() && none.of_steps().is_some());
        let all = OF_STEPS.into_iter().chain(OTHERS);
        assert_eq!(all.clone().fold(0, |seen, bit| seen | bit).count_ones(), 17, "each its own");
        for bit in all {
            let mut attention = none;
            attention.put(bit, true);
            assert!(attention.has(bit) && attention.quiet().is_none(), "{bit:#x}");
            assert_eq!(attention.of_steps().is_none(), OF_STEPS.contains(&bit), "{bit:#x}");
            attention.put(bit, false);
            assert!(!attention.has(bit) && attention.quiet().is_some(), "{bit:#x}");
        }
    }
}
