//! Events that a wire reports to its engine.

use crate::{Atomic, Bytes, Immediate, MessageId, Operation, PeerError, ReadLimits};

/// A step of [`Receiving::decode`](crate::Receiving::decode).
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// Bytes used up. 0 = more are needed, nothing was consumed, `event` is `None`.
    pub consumed: usize,
    /// Our own messages up to this one were executed: that came with these bytes, and comes first.
    pub done: Option<MessageId>,
    /// There may be other [events](crate::Receiving::poll_event) that came with them, and come first.
    pub news: bool,
    /// The meaning of the frame to the engine, if any.
    pub event: Option<Event<'b>>,
}

impl<'b> Decoded<'b> {
    /// More bytes are needed.
    pub const NOTHING: Decoded<'static> = Decoded::of(0, None);

    /// A frame of `consumed` bytes that brings no news of messages of this side's.
    #[must_use]
    pub const fn of(consumed: usize, event: Option<Event<'b>>) -> Decoded<'b> {
        Decoded { consumed, done: None, news: false, event }
    }
}

/// The look of the next bytes, unverified ([`Receiving::glance`](crate::Receiving::glance)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Bytes of the frame, never 0.
    pub length: usize,
    /// The token it names, if it names one.
    pub token: Option<u32>,
}

/// A read request of the peer that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadSlot(pub u32);

/// How the outcome of a Write or Send becomes known to its initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdicts {
    /// The peer acknowledges every message with its status.
    Acknowledged,
    /// A zero-length Read behind a signalled Write, whose answer says that the Write was executed.
    /// A peer may close the connection before it answers, as Linux's siw does at the end of a
    /// session. If it closes in order (FIN; no reset, no Terminate), and its TCP has acknowledged
    /// everything, the Write succeeds all the same: RFC 5040 wants a Terminate for what is refused.
    /// Whether the peer's program had closed before the Write came, nothing says. After any other
    /// end the Write is canceled. Sends complete when they are sent.
    ProbedByRead,
    /// Not at all: requests complete when they are sent.
    SentOnly,
}

/// Something the engine must act on. Payload borrows the bytes handed to `decode`.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'b> {
    // ---- start-up ----
    /// Passive side: a peer asks to connect.
    ConnectRequest {
        /// The peer's offer, seen from here: `inbound` is how many reads *we* may serve it,
        /// `outbound` how many we may have under way.
        limits: ReadLimits,
        /// The application's bytes, exactly as sent.
        private: &'b [u8],
    },
    /// Active side: accepted; [`StartUp::confirm`](crate::StartUp::confirm) completes it.
    Accepted {
        /// Agreed limits, seen from here.
        limits: ReadLimits,
        /// The application's bytes.
        private: &'b [u8],
    },
    /// Active side: rejected by the peer's program.
    Rejected {
        /// The application's bytes.
        private: &'b [u8],
    },
    /// Passive side: the active side has completed the connection.
    Established,

    // ---- inbound messages ----
    /// A Write of `length` bytes is about to arrive: check the whole of it now.
    WriteAnnounced {
        /// Token it names.
        token: u32,
        /// First byte.
        address: u64,
        /// All of its bytes.
        length: u64,
    },
    /// Bytes of a Write, in increasing address order.
    Write {
        /// Token it names.
        token: u32,
        /// Where `payload` begins.
        address: u64,
        /// The bytes.
        payload: Bytes<'b>,
        /// The message is complete with these.
        last: bool,
        /// The message consumes a receive when it is complete (valid with `last`).
        immediate: Option<Immediate>,
    },
    /// Bytes of a Send.
    Send {
        /// Offset of `payload` in the message.
        offset: u32,
        /// The bytes.
        payload: Bytes<'b>,
        /// The message is complete with these.
        last: bool,
        /// The sender asked for a solicited event (valid with `last`).
        solicited: bool,
        /// Token to invalidate before the receive completes (valid with `last`).
        invalidate: Option<u32>,
        /// Immediate data (valid with `last`); never with `invalidate`.
        immediate: Option<u32>,
    },
    /// The peer wants to read. If the engine does not refuse, the wire asks for the bytes with
    /// frames whose payload is [`Payload::Memory`](crate::Payload::Memory). Reads of no bytes are
    /// answered by the wire itself: there is nothing to check.
    ReadRequest {
        /// Names the request until its last frame.
        slot: ReadSlot,
        /// Token it names.
        token: u32,
        /// First byte.
        address: u64,
        /// Bytes asked for.
        length: u32,
    },
    /// The peer wants a word changed. If the engine does not refuse, it does so at once, and hands what
    /// the word held before to [`Receiving::answer`](crate::Receiving::answer).
    Atomic {
        /// Token it names.
        token: u32,
        /// The word.
        address: u64,
        /// The change of the word.
        operation: Atomic,
    },
    /// The peer's messages from here on are for the shared receive queue of this number, until it names
    /// another one.
    Target {
        /// The number, as this side has made it known.
        number: u32,
    },
    /// The answer to our atomic: it has been executed. The wire has verified that it is the one expected
    /// next.
    AtomicAnswer {
        /// Which atomic.
        id: MessageId,
        /// The value of the word before.
        value: u64,
    },
    /// Bytes of an answer to our read. The wire has verified that they are the ones expected next.
    ReadData {
        /// Which read.
        id: MessageId,
        /// Offset of `payload` in what was asked for.
        offset: u32,
        /// The bytes.
        payload: Bytes<'b>,
        /// The read is complete with these.
        last: bool,
    },

    // ---- about our own messages ----
    /// Every Send and Write up to and including this one has succeeded, as far as
    /// [`Verdicts`] can tell. Reads and atomics end with their answer.
    Done {
        /// The youngest of them.
        through: MessageId,
    },
    /// The peer ended the stream with an error. `id` is the message it blames, when that is known.
    PeerFailed {
        /// The message of ours that was refused.
        id: Option<MessageId>,
        /// The peer's words.
        error: PeerError,
    },
    /// Something a [`Begin::Wait`](crate::Begin::Wait) waited for has changed.
    Resume,
    /// The peer holds a Send for which it has no credit; give it one from the shared queue when
    /// there is one ([`Receiving::receives_posted`](crate::Receiving::receives_posted)).
    CreditWanted,
}

impl Event<'_> {
    /// The operation that the peer asks for with it: to be judged, and refused where nothing may be asked.
    #[must_use]
    #[inline]
    pub fn asks_for(&self) -> Option<Operation> {
        match self {
            Event::WriteAnnounced { .. } | Event::Write { .. } => Some(Operation::Write),
            Event::Send { .. } => Some(Operation::Send),
            Event::ReadRequest { .. } => Some(Operation::Read),
            Event::Atomic { .. } => Some(Operation::Atomic),
            Event::ConnectRequest { .. }
            | Event::Accepted { .. }
            | Event::Rejected { .. }
            | Event::Established
            | Event::Target { .. }
            | Event::AtomicAnswer { .. }
            | Event::ReadData { .. }
            | Event::Done { .. }
            | Event::PeerFailed { .. }
            | Event::Resume
            | Event::CreditWanted => None,
        }
    }
}
