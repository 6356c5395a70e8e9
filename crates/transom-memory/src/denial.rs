//! The record of a refusal.

use crate::{Access, Nanoseconds, Rights, Scope, Token};

/// The rule that was broken, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The token is live (ND2 5.4, W1, W13, R18).
    LiveToken,
    /// The token belongs to the actor's domain, queue pair or connection (ND2 W3, W18; WSD ).
    Scope,
    /// The connection is established (ND2 R23; WSD A-9).
    Connected,
    /// The token grants the operation (ND2 5.5, R11, R12, W8).
    Right,
    /// The range does not wrap around the address space (ND2 5.3).
    Wrap,
    /// The range lies inside the registration and the window (ND2 5.3, W6).
    Bounds,
}

/// What a token names now, or named last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The token as it was issued.
    pub token: Token,
    /// Window or region.
    pub window: bool,
    /// Its state.
    pub state: NamedState,
    /// First byte it covers.
    pub base: u64,
    /// Bytes it covers.
    pub length: u64,
    /// What it grants.
    pub rights: Rights,
    /// To whom.
    pub scope: Scope,
}

/// State of what a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedState {
    /// Bind was called, and has not executed yet.
    Reserved,
    /// Usable.
    Live,
    /// Closed so many nanoseconds before the refusal.
    Dead {
        /// Why it was closed.
        reason: crate::CloseReason,
        /// How long before the refusal.
        ago: Nanoseconds,
    },
}

/// The likeliest reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// The token is right with its bytes in the other order.
    TokenBytesSwapped,
    /// The token was right until it was closed.
    Stale,
    /// The window is reserved: its Bind has not executed.
    NotYetBound,
    /// The token is another queue pair's or connection's.
    AnotherQueuePair,
    /// The token is another domain's.
    AnotherDomain,
    /// So many bytes of the range lie past the end.
    PastTheEnd {
        /// How many.
        bytes: u64,
    },
    /// So many bytes of the range lie before the beginning.
    BeforeTheBeginning {
        /// How many.
        bytes: u64,
    },
    /// The right was not granted.
    MissingRight,
    /// The address is an offset from the beginning rather than an address.
    OffsetInsteadOfAddress,
    /// Address and length wrap around the end of the address space.
    WrapsAround,
    /// The connection is not, or no longer, established.
    NotConnected,
    /// No token of this value was ever issued, as far as memory reaches.
    NeverIssued,
    /// Cannot tell.
    Unknown,
}

/// One refusal: everything the owner may know. `Display` is a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What was asked, and by whom.
    pub access: Access,
    /// The first rule it broke.
    pub rule: Rule,
    /// What the token names.
    pub named: Option<Named>,
    /// The likeliest reason.
    pub likely: Mistake,
}
