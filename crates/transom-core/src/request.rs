//! Requests that programs post, and their completions.

use transom_memory::{QueuePairId, Rights, Segment, Token};
use transom_wire::{Atomic, Operation as WireOperation, Time};

use crate::Status;

/// An entry of a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Local token of the region.
    pub token: u32,
    /// First byte.
    pub address: u64,
    /// Bytes. Entries of no bytes are skipped without a look at the token (ND2 5.3).
    pub length: u32,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Consume a receive of the peer.
    Send,
    /// Send, and close a window at the peer (ND1, NDK; iW 8.4).
    SendWithInvalidate {
        /// The window's token, as the peer made it known.
        token: u32,
    },
    /// Place bytes in the peer's memory.
    Write {
        /// Remote token.
        token: u32,
        /// Remote address.
        address: u64,
    },
    /// Fetch bytes of the peer's memory.
    Read {
        /// Remote token.
        token: u32,
        /// Remote address.
        address: u64,
    },
    /// Let a reserved window live.
    Bind {
        /// The token that `Memory::reserve` returned.
        window: Token,
    },
    /// Bind a standing window, as [`Memory::bind_standing`](transom_memory::Memory::bind_standing): judged
    /// when its turn comes (Verbs V47).
    BindStanding {
        /// The window's index with the key that begins.
        key: Token,
        /// The region.
        region: Token,
        /// First byte, in the region's addresses.
        base: u64,
        /// Bytes. Of a window that is open to a whole domain, none closes it.
        length: u64,
        /// Remote rights.
        rights: Rights,
        /// Peers count its addresses from 0 (Verbs V49).
        zero_based: bool,
        /// Open to every queue pair of the domain, rather than to this one; a Bind ends what such a
        /// window had before.
        wide: bool,
    },
    /// Close a window, or take the memory from a fast-registered region, in queue order.
    Invalidate {
        /// The window's token.
        window: Token,
    },
    /// Give a reserved region its memory ([`Data::Memory`]) in queue order: what is posted behind it
    /// may rely on it (NDK FR-12). The token stays what `Memory::reserve_region` returned (NDK FR-13).
    FastRegister {
        /// The token that `Memory::reserve_region` returned, for the queue pair's whole domain (NDK
        /// FR-17).
        region: Token,
        /// The address of the first byte, as programs and peers name it (NDK FR-9).
        base: u64,
        /// The rights that it grants.
        rights: Rights,
    },
    /// An operation that this engine, its peer or the kind of queue pair lacks: fails with `status`
    /// when its turn comes, and ends the queue pair (Verbs V81).
    Unsupported {
        /// How it completes; not a success.
        status: Status,
    },
    /// Consume a receive of the peer, whose completion shows four bytes (Verbs V87).
    SendWithImmediate {
        /// The bytes.
        immediate: u32,
    },
    /// Place bytes in the peer's memory, then consume a receive (Verbs V87).
    WriteWithImmediate {
        /// Remote token.
        token: u32,
        /// Remote address.
        address: u64,
        /// Four bytes for the completion of the receive.
        immediate: u32,
    },
    /// Change a word of the peer's memory, and fetch what it held before, in this machine's byte order:
    /// the list has eight bytes (Verbs V95). It is fenced, limited and answered as a Read is.
    Atomic {
        /// Remote token.
        token: u32,
        /// Remote address, a multiple of 8.
        address: u64,
        /// The change of the word.
        change: Atomic,
    },
    /// A receive. Posted with [`QueuePair::post_receive`](crate::QueuePair::post_receive).
    Receive,
}

/// Why a request of this status is none that the adapter carries out.
pub(crate) fn why_unsupported(status: Status) -> &'static str {
    match status {
        Status::BufferOverflow => "the message is longer than the adapter's largest",
        _ => "this connection has no such operation",
    }
}

impl Operation {
    /// Whether it is under way until an answer of its own has come, whose sink its list is.
    #[must_use]
    pub const fn fetches(&self) -> bool {
        match self.on_wire() {
            Some(operation) => operation.is_answered(),
            None => false,
        }
    }

    /// Whether it moves bytes of a scatter/gather list.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        match self {
            Operation::Send
            | Operation::SendWithInvalidate { .. }
            | Operation::SendWithImmediate { .. }
            | Operation::Write { .. }
            | Operation::WriteWithImmediate { .. }
            | Operation::Read { .. }
            | Operation::Atomic { .. }
            | Operation::Receive => true,
            Operation::Bind { .. }
            | Operation::BindStanding { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. }
            | Operation::Unsupported { .. } => false,
        }
    }

    /// The kind of its message, as refusals name it; `None`: it makes none.
    #[must_use]
    pub const fn on_wire(&self) -> Option<WireOperation> {
        match self {
            Operation::Send
            | Operation::SendWithInvalidate { .. }
            | Operation::SendWithImmediate { .. } => Some(WireOperation::Send),
            Operation::Write { .. } | Operation::WriteWithImmediate { .. } => {
                Some(WireOperation::Write)
            }
            Operation::Read { .. } => Some(WireOperation::Read),
            Operation::Atomic { .. } => Some(WireOperation::Atomic),
            Operation::Bind { .. }
            | Operation::BindStanding { .. }
            | Operation::Invalidate { .. }
            | Operation::FastRegister { .. }
            | Operation::Unsupported { .. }
            | Operation::Receive => None,
        }
    }
}

/// Flags of a request (ND2 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Success makes no completion; failure always does.
    pub const SILENT_SUCCESS: Flags = Flags(1);
    /// Starts only after all earlier Reads and atomics of the queue pair have completed.
    pub const READ_FENCE: Flags = Flags(1 << 1);
    /// The peer's receive completion is solicited.
    pub const SOLICIT: Flags = Flags(1 << 2);

    /// Whether every flag of `other` is here.
    #[must_use]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A request to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back in the completion.
    pub context: u64,
    /// The operation.
    pub operation: Operation,
    /// Whether it completes, when it starts, and what its peer is told.
    pub flags: Flags,
}

/// The local side of a request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory. Read during the call only.
    Sges(&'a [Sge]),
    /// The bytes themselves, captured by the call; no token is needed (ND2 2.9).
    Inline(&'a [u8]),
    /// The memory that a region is made of, in order; for [`Operation::FastRegister`] only.
    Memory(&'a [Segment]),
}

/// The kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A receive.
    Receive,
    /// A receive that a Write with immediate data has consumed; its memory is untouched.
    ReceiveWrite,
    /// A Send of any kind.
    Send,
    /// A Write of either kind.
    Write,
    /// A Read.
    Read,
    /// A Bind.
    Bind,
    /// An Invalidate.
    Invalidate,
    /// A fast registration.
    FastRegister,
    /// An atomic that compares and swaps.
    CompareSwap,
    /// An atomic that fetches and adds.
    FetchAdd,
    /// A reserved operation.
    Other,
}

/// Flags of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionFlags(pub u16);

impl CompletionFlags {
    /// The sender asked for a solicited event (ND2 N5).
    pub const SOLICITED: CompletionFlags = CompletionFlags(1);
    /// `value` is the token of a window that the message closed.
    pub const INVALIDATED: CompletionFlags = CompletionFlags(1 << 1);
    /// `value` is immediate data.
    pub const IMMEDIATE: CompletionFlags = CompletionFlags(1 << 2);
    /// The receive holds a datagram, behind [`ROUTE_HEADER`](crate::ROUTE_HEADER) bytes; `source` has
    /// sent it.
    pub const DATAGRAM: CompletionFlags = CompletionFlags(1 << 3);
    /// The datagram came over IPv6.
    pub const OVER_IPV6: CompletionFlags = CompletionFlags(1 << 4);

    /// Whether every flag of `other` is here.
    #[must_use]
    pub const fn contains(self, other: CompletionFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A completion: a plain value that outlives everything it names (ND2 1.3 rule 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's context.
    pub request_context: u64,
    /// The queue pair's context.
    pub queue_pair_context: u64,
    /// The queue pair's number.
    pub queue_pair: QueuePairId,
    /// The kind of operation that was asked for.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: Status,
    /// Bytes received, or written by the message that consumed it, for receives; bytes asked for
    /// otherwise.
    pub length: u32,
    /// The token or the immediate data that a flag says is here.
    pub value: u32,
    /// Which members count.
    pub flags: CompletionFlags,
    /// The sender of a datagram.
    pub source: QueuePairId,
    /// Names the record that explains a failure ([`DenialLog`](crate::DenialLog)); 0 = none.
    pub denial: u64,
    /// The number of the place in its queue ([`member`](Completion::member)) that is free once this is retrieved,
    /// and all places before it.
    pub place: u32,
    /// The queue of requests or receives, as the completion queue numbers those that complete in it
    /// ([`CompletionQueue::bind`](crate::CompletionQueue::bind)); 0 = none.
    pub member: u32,
    /// When the queue got it, if the queue keeps times
    /// ([`CompletionQueue::keep_times`](crate::CompletionQueue::keep_times)); else zero.
    pub at: Time,
}

impl Completion {
    /// An empty completion, to be filled by
    /// [`CompletionQueue::poll`](crate::CompletionQueue::poll).
    pub const BLANK: Completion = Completion {
        request_context: 0,
        queue_pair_context: 0,
        queue_pair: QueuePairId(0),
        kind: CompletionKind::Other,
        status: Status::Success,
        length: 0,
        value: 0,
        flags: CompletionFlags(0),
        source: QueuePairId(0),
        denial: 0,
        place: 0,
        member: 0,
        at: Time(0),
    };
}

impl Default for Completion {
    fn default() -> Completion {
        Completion::BLANK
    }
}

impl Operation {
    /// The kind its completion shows.
    #[must_use]
    pub const fn kind(&self) -> CompletionKind {
        match self {
            Operation::Send
            | Operation::SendWithInvalidate { .. }
            | Operation::SendWithImmediate { .. } => CompletionKind::Send,
            Operation::Write { .. } | Operation::WriteWithImmediate { .. } => CompletionKind::Write,
            Operation::Read { .. } => CompletionKind::Read,
            Operation::Bind { .. } | Operation::BindStanding { .. } => CompletionKind::Bind,
            Operation::Invalidate { .. } => CompletionKind::Invalidate,
            Operation::FastRegister { .. } => CompletionKind::FastRegister,
            Operation::Receive => CompletionKind::Receive,
            Operation::Atomic { change: Atomic::CompareSwap { .. }, .. } => {
                CompletionKind::CompareSwap
            }
            Operation::Atomic { change: Atomic::FetchAdd { .. }, .. } => CompletionKind::FetchAdd,
            Operation::Unsupported { .. } => CompletionKind::Other,
        }
    }
}
