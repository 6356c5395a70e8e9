//! The record of a refusal.

use crate::{Access, Name, Nanoseconds, Purpose, Rights, Rule, Scope, Token};

/// The object that a token names now, or named last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The token as it was issued.
    pub token: Token,
    /// The region: itself, or a window's.
    pub region: Token,
    /// Window or region.
    pub window: bool,
    /// The name that the program gave it ([`Memory::set_name`](crate::Memory::set_name)).
    pub name: Option<Name>,
    /// State of the object.
    pub state: NamedState,
    /// Of a window that is reserved or live: how long before the refusal it was reserved.
    pub age: Option<Nanoseconds>,
    /// First byte it covers.
    pub base: u64,
    /// Bytes it covers.
    pub length: u64,
    /// Rights that it grants.
    pub rights: Rights,
    /// To whom.
    pub scope: Scope,
}

/// State of what a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedState {
    /// Bind was called, and has not executed yet; or a region is waiting for its memory.
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
    /// The token is right with its bytes in the other order, or was until it was closed.
    TokenBytesSwapped,
    /// The token was right until it was closed.
    Stale,
    /// The window is reserved: its Bind has not executed.
    NotYetBound,
    /// The token names a region where a window belongs, or the other way round.
    WrongKind,
    /// The token is another queue pair's.
    AnotherQueuePair,
    /// The token is another connection's; perhaps an earlier one of the same pair (WSD A-8).
    AnotherConnection,
    /// The token is another domain's.
    AnotherDomain,
    /// This many bytes of the range lie past the end.
    PastTheEnd {
        /// How many.
        bytes: u64,
    },
    /// This many bytes of the range lie before the beginning.
    BeforeTheBeginning {
        /// How many.
        bytes: u64,
    },
    /// The right was not granted.
    MissingRight,
    /// The address is an offset from the beginning rather than an address.
    OffsetInsteadOfAddress,
    /// The address is right with its bytes in the other order.
    AddressBytesSwapped,
    /// Address and length wrap around the end of the address space.
    WrapsAround,
    /// The word of an atomic begins this many bytes behind a multiple of 8; 0: its address is one, and
    /// the memory behind it lies elsewhere.
    Misaligned {
        /// How many.
        bytes: u64,
    },
    /// The connection is not, or no longer, established.
    NotConnected,
    /// No token of this value was ever issued.
    NeverIssued,
    /// Cannot tell.
    Unknown,
}

impl Mistake {
    /// A word for programs, which stays the same.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mistake::TokenBytesSwapped => "token_bytes_swapped",
            Mistake::Stale => "stale",
            Mistake::NotYetBound => "not_yet_bound",
            Mistake::WrongKind => "wrong_kind",
            Mistake::AnotherQueuePair => "another_queue_pair",
            Mistake::AnotherConnection => "another_connection",
            Mistake::AnotherDomain => "another_domain",
            Mistake::PastTheEnd { .. } => "past_the_end",
            Mistake::BeforeTheBeginning { .. } => "before_the_beginning",
            Mistake::MissingRight => "missing_right",
            Mistake::OffsetInsteadOfAddress => "offset_instead_of_address",
            Mistake::AddressBytesSwapped => "address_bytes_swapped",
            Mistake::WrapsAround => "wraps_around",
            Mistake::Misaligned { .. } => "misaligned",
            Mistake::NotConnected => "not_connected",
            Mistake::NeverIssued => "never_issued",
            Mistake::Unknown => "unknown",
        }
    }
}

/// A refusal: everything the owner may know. `Display` says what happened and the likeliest mistake
/// in a few words, `{:#}` is the full record; what the peer may see
/// without its owner's leave is [`Denial::for_peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The access, and the actor that asked for it.
    pub access: Access,
    /// The first rule it broke.
    pub rule: Rule,
    /// The rights of which one was needed.
    pub wanted: Rights,
    /// The object that the token names, or named last; `None` if it never named anything, or too
    /// long ago.
    pub named: Option<Named>,
    /// The object that was probably meant: the token whose bytes were swapped.
    pub meant: Option<Named>,
    /// The likeliest reason.
    pub likely: Mistake,
}

/// The part that a refused peer learns: the class of rule, and its own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The class.
    pub rule: Rule,
    /// The operation it wanted.
    pub purpose: Purpose,
    /// The token it named.
    pub token: Token,
    /// First byte it named.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

impl Denial {
    /// Whether the first byte that was asked for lies inside what the token names. For fronts whose
    /// codes tell a wrong beginning from a wrong end (ND1 8.5.1).
    #[must_use]
    pub fn begins_inside(&self) -> bool {
        self.named.is_some_and(|named| {
            self.access.address >= named.base && self.access.address - named.base < named.length
        })
    }

    /// Whether the asker has named a token that never was its own: a guess, or another actor's. A
    /// token that is or was its own is neither: it may have been closed while the request was under
    /// way.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        let own = |named: Named| named.scope.includes(&self.access.actor);
        matches!(self.rule, Rule::LiveToken | Rule::Scope)
            && !self.named.or(self.meant).is_some_and(own)
    }

    /// The short form, which tells a peer nothing that it did not know, but for the class of rule.
    #[must_use]
    pub fn for_peer(&self) -> Refused {
        let Access { purpose, token, address, length, .. } = self.access;
        Refused { rule: self.rule, purpose, token, address, length }
    }
}

impl std::error::Error for Denial {}
