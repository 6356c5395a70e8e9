//! Requests of one side to the other.
//!
//! A new message is a variant of [`Message`], of [`Operation`], of [`Event`](crate::Event) and of
//! `transom_core::Operation`; in rings it is a `RecordKind` of `transom-process`, or a flag. All of these are matched
//! without `_`, so that the compiler names the places that have to know it; do not read them before. What it does not
//! name:
//!
//! - **An older peer must not get it**: a flag of its own, and [`Begin::Unknown`] where the peer has not set it.
//!   `transom-process` says at start-up what it takes (`channel/setup.rs`), `transom-iwarp` in its acknowledgements
//!   (`extension.rs`, `stream/acks.rs`). [`Message::is_extended`] is the flag of immediate data and atomics.
//! - **Counted or answered.** A counted message on TCP calls `count` at its end (`stream/messages.rs` of
//!   `transom-iwarp`) and is a `What` in `gone_out`; one that is answered takes a place among the Reads
//!   (`Outbound::program_reads`), [`Receiving::answer`] has no number, and what it answers is done when it returns.
//! - **Its frame** in `transom-iwarp`: `rdmap.rs`, or `extension.rs` for a queue of our own. Only an answered one needs
//!   more for a Terminate (`stream/blame.rs`, `stream/failure.rs`).
//! - **What the owner does**: the arm for a Write in `transom_core` (`connection/inbound.rs`) is the model of a counted
//!   message: judge, `executed`, `drop_rest`. Its work for one event is bounded and waits for nothing (design rules 5
//!   and 12). A new call of `HostMemory` gets no default, or a lent region silently takes it.
//! - **An unreliable queue pair** that cannot carry it (`connection/outbound.rs`), and a limit of the queue pair.
//! - **The watchers**: the simulator posts it (`workload/requests.rs`, `counters.rs`); `transom-fuzz` sends it
//!   (`stream.rs`, `talk.rs`). Hunks of `transom-sim/mutants` that no longer apply are moved.
//!
//! [`Receiving::answer`]: crate::Receiving::answer

use std::time::Duration;

/// Number of an outbound message on its connection. Consecutive, starting at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

crate::listed_enum! {
    /// The kind of a message, for refusals and traces. Its number is the one that wires of our own give it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Operation {
        /// A Send of any kind.
        Send = 0,
        /// An RDMA Write.
        Write = 1,
        /// An RDMA Read.
        Read = 2,
        /// An invalidation asked for by the peer (Send with Invalidate).
        Invalidate = 3,
        /// An atomic.
        Atomic = 4,
    }
}

impl Operation {
    /// The number that wires of our own give it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether such a message ends with an answer of its own; any other is counted when it is executed.
    #[must_use]
    #[inline]
    pub const fn is_answered(self) -> bool {
        match self {
            Operation::Read | Operation::Atomic => true,
            Operation::Send | Operation::Write | Operation::Invalidate => false,
        }
    }

    /// The one of this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Operation> {
        Operation::ALL.get(usize::from(number)).copied()
    }
}

/// An operation on a word of the peer, which gives back what the word held before. A word is eight
/// bytes at a multiple of 8, in the byte order of the machine that owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Put `swap` there if it holds `compare`.
    CompareSwap {
        /// The value that the word must hold.
        compare: u64,
        /// The new value of the word.
        swap: u64,
    },
    /// Add to it, modulo 2^64.
    FetchAdd {
        /// How much.
        add: u64,
    },
}

impl Atomic {
    /// The word's value after it held `old`.
    #[must_use]
    pub fn result(self, old: u64) -> u64 {
        match self {
            Atomic::CompareSwap { compare, swap } if old == compare => swap,
            Atomic::CompareSwap { .. } => old,
            Atomic::FetchAdd { add } => old.wrapping_add(add),
        }
    }
}

/// Immediate data of a Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// Four bytes for the completion of the receive.
    pub value: u32,
    /// Raise the peer's completion event if it is armed for solicited events only.
    pub solicited: bool,
}

/// An outbound message. Payload is not here: the engine supplies it frame by frame
/// ([`Payload::Message`](crate::Payload::Message)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Consume a receive at the peer.
    Send {
        /// Payload bytes.
        length: u32,
        /// Raise the peer's completion event if it is armed for solicited events only.
        solicited: bool,
        /// Token at the peer to invalidate when the message is delivered.
        invalidate: Option<u32>,
        /// Four bytes for the completion of the receive; never with `invalidate`.
        immediate: Option<u32>,
    },
    /// Place bytes in the peer's memory.
    Write {
        /// Names the memory at the peer.
        token: u32,
        /// First byte at the peer.
        address: u64,
        /// Payload bytes.
        length: u32,
        /// The request will produce a completion that must carry the target's verdict. A wire
        /// without acknowledgements has to find another way ([`Verdicts`](crate::Verdicts)).
        verdict: bool,
        /// Consume a receive once every byte is placed. Only wires whose peer has the extension
        /// ([`Facts::extension`](crate::Facts)) carry immediate data.
        immediate: Option<Immediate>,
    },
    /// Fetch bytes from the peer's memory.
    Read {
        /// Where they are.
        token: u32,
        /// First byte at the peer.
        address: u64,
        /// Bytes asked for.
        length: u32,
        /// The name of the sink on the wire. The peer echoes it and the wire verifies the
        /// echo; placement goes by [`MessageId`], never by these.
        sink_token: u32,
        /// See `sink_token`.
        sink_address: u64,
    },
    /// Change a word of the peer's memory, and fetch what it held before. It is under way as a Read is:
    /// by the same limit, and answered in order with Reads.
    Atomic {
        /// Where the word is.
        token: u32,
        /// The address at the peer.
        address: u64,
        /// The change of the word.
        operation: Atomic,
    },
}

impl Message {
    /// Whether it consumes a receive of the peer.
    #[must_use]
    #[inline]
    pub fn needs_receive(&self) -> bool {
        match self {
            Message::Send { .. } => true,
            Message::Write { immediate, .. } => immediate.is_some(),
            Message::Read { .. } | Message::Atomic { .. } => false,
        }
    }

    /// Whether the peer counts it when it is executed, and the acknowledgement of that count ends it. Any other
    /// message ends with its answer.
    #[must_use]
    #[inline]
    pub fn is_counted(&self) -> bool {
        match self {
            Message::Send { .. } | Message::Write { .. } => true,
            Message::Read { .. } | Message::Atomic { .. } => false,
        }
    }

    /// The immediate data that it carries.
    #[must_use]
    #[inline]
    pub fn immediate(&self) -> Option<Immediate> {
        match *self {
            Message::Send { immediate: Some(value), solicited, .. } => {
                Some(Immediate { value, solicited })
            }
            Message::Write { immediate, .. } => immediate,
            Message::Send { .. } | Message::Read { .. } | Message::Atomic { .. } => None,
        }
    }

    /// Whether only a peer with the extension knows it.
    #[must_use]
    #[inline]
    pub fn is_extended(&self) -> bool {
        match self {
            Message::Send { .. } | Message::Write { .. } => self.immediate().is_some(),
            Message::Read { .. } => false,
            Message::Atomic { .. } => true,
        }
    }

    /// Bytes of payload that it brings to the peer.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> u32 {
        match *self {
            Message::Send { length, .. } | Message::Write { length, .. } => length,
            Message::Read { .. } | Message::Atomic { .. } => 0,
        }
    }

    /// The kind.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Message::Send { .. } => Operation::Send,
            Message::Write { .. } => Operation::Write,
            Message::Read { .. } => Operation::Read,
            Message::Atomic { .. } => Operation::Atomic,
        }
    }
}

/// Answer to [`Sending::begin`](crate::Sending::begin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Frames will follow.
    Started,
    /// Not now; nothing was changed. Try again after [`Event::Resume`](crate::Event::Resume).
    Wait(Waiting),
    /// Never: the peer has no such message. Nothing was changed.
    Unknown,
}

/// Why a message cannot start yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The peer has no receive for it. The engine fails the request after `limit`, if there is one:
    /// a plain queue has about a second, a shared receive queue has for ever.
    Receive {
        /// How long a Send may wait.
        limit: Option<Duration>,
        /// The peer has been asked since this one waits, and has answered that it has none.
        refused: bool,
    },
    /// As many reads as the peer allows are under way. For ever, if it allows none
    /// ([`Facts::limits`](crate::Facts::limits)).
    ReadSlot,
    /// Start-up is not over, or the stream's first frame must come from the peer.
    Start,
}
