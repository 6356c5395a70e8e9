//! Arguments and errors of the calls of a [`Memory`](crate::Memory).

use crate::{Denial, DomainId, Rights, Scope, Segment, Token, rules};

/// Limits of a [`Memory`](crate::Memory).
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest registration in bytes (ND2 R8).
    pub largest_region: u64,
    /// Slots at most, rounded up to the next 4096; a sixteenth of them, and at least 2048, is kept
    /// waiting between uses.
    pub most_tokens: usize,
    /// Count the copies through each token, for [`Memory::inventory`](crate::Memory::inventory).
    /// Each check takes some nanoseconds longer then.
    pub count_uses: bool,
    /// Look at each grant when it ends, for [`Memory::review`](crate::Memory::review). Counts uses,
    /// too.
    pub review_grants: bool,
}

impl Default for Config {
    /// No limits but those of a 32-bit token, and no counts.
    fn default() -> Config {
        Config {
            largest_region: u64::MAX,
            most_tokens: usize::MAX,
            count_uses: false,
            review_grants: false,
        }
    }
}

/// A registration to be made (ND2 5.1).
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// The actors that may use it.
    pub scope: Scope,
    /// Rights that it grants.
    pub rights: Rights,
    /// The address of its first byte as programs and peers name it.
    pub base: u64,
    /// Where the bytes really lie; one segment for an ordinary buffer.
    pub segments: &'a [Segment],
}

/// A window to be bound (ND2 5.2).
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec {
    /// The region.
    pub region: Token,
    /// The actor that binds: must be in the region's domain.
    pub domain: DomainId,
    /// The actors that may use it: none outside the region's own scope. A queue pair for
    /// NetworkDirect and type-2 windows, a domain for type-1 windows.
    pub scope: Scope,
    /// First byte, in the region's addresses.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Rights that it grants: remote rights only.
    pub rights: Rights,
}

/// Why something was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The owner invalidated it.
    Invalidated,
    /// The peer invalidated it.
    InvalidatedByPeer,
    /// The registration was removed.
    Deregistered,
    /// The queue pair or connection ended (ND2 W20).
    Disconnected,
    /// The Bind never executed.
    NeverBound,
}

impl CloseReason {
    pub(crate) fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_code(code: u64) -> CloseReason {
        match code {
            0 => CloseReason::Invalidated,
            1 => CloseReason::InvalidatedByPeer,
            2 => CloseReason::Deregistered,
            3 => CloseReason::Disconnected,
            _ => CloseReason::NeverBound,
        }
    }
}

/// Counts of what depends on a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Windows reserved or bound.
    pub windows: u32,
    /// Requests posted, if the front counts them.
    pub posted: u32,
    /// Copies under way at this moment, through the region's own token or its windows; but for
    /// those of a pass ([`Memory::passes`](crate::Memory::passes)).
    pub guards: u32,
}

/// Conditions that make a deregistration refuse rather than proceed: the front decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unless {
    /// Refuse while windows are bound (ND2 R16); else they are closed too.
    pub windows: bool,
    /// Refuse while requests are posted (WSD A-18).
    pub posted: bool,
}

/// Why a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// No bytes.
    Empty,
    /// More bytes than the limit.
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Base and length, or a segment, wrap around the address space.
    Wraps,
    /// No free token.
    Exhausted,
    /// The token is not a region reserved for this scope, or it has memory already (NDK FR-14).
    NotReserved,
}

/// Why a Bind was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The region's token is not live, or not a region's.
    Region(Box<Denial>),
    /// The region belongs to another domain (ND2 W5).
    Domain,
    /// No bytes.
    Empty,
    /// Write access to a region without `LOCAL_WRITE` (ND2 W7), or no right to bind.
    Right(Box<Denial>),
    /// Not inside the region (ND2 W6).
    Bounds(Box<Denial>),
    /// The window would let in a peer whom the region's own scope keeps out.
    Scope,
    /// Windows grant remote rights only.
    LocalRights,
    /// Not a standing window of this domain, or one that is bound (Verbs V47).
    Standing,
    /// No free token.
    Exhausted,
}

/// Why a deregistration or a close was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeregisterError {
    /// Not registered (ND2 R19), or not a window (ND2 W16), or already closed.
    NotLive(Box<Denial>),
    /// Something hangs on it.
    Busy(Counts),
    /// Not this actor's to close (ND2 W19, NDK INV-9).
    NotYours(Box<Denial>),
}

impl std::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RegisterError::Empty => {
                write!(f, "a registration needs at least one byte {}", rules::REGISTRATION_SIZE)
            }
            RegisterError::TooLarge { limit } => write!(
                f,
                "the registration is larger than the adapter's limit of {limit} bytes {}",
                rules::REGISTRATION_SIZE
            ),
            RegisterError::Wraps => write!(
                f,
                "the registration wraps around the end of the address space: \
                 base and length of it and of each segment must end at or below 2^64 {}",
                rules::NO_WRAP
            ),
            RegisterError::Exhausted => write!(
                f,
                "no free token is left: deregister or invalidate something, or raise the limit {}",
                rules::FREE_TOKEN
            ),
            RegisterError::NotReserved => write!(
                f,
                "the token is not a region reserved for fast registration in this scope, \
                 or it has its memory already: invalidate it first {}",
                rules::RESERVED_REGION
            ),
        }
    }
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BindError::Region(denial) | BindError::Right(denial) | BindError::Bounds(denial) => {
                denial.fmt(f)
            }
            BindError::Domain => {
                write!(f, "{} {}", rules::SAME_DOMAIN.sentence(), rules::SAME_DOMAIN)
            }
            BindError::Empty => {
                write!(f, "a window needs at least one byte {}", rules::WINDOW_SIZE)
            }
            BindError::Scope => write!(
                f,
                "the window would be open to peers whom the region's own scope keeps out: \
                 bind it for the peer of the region's scope {}",
                rules::WINDOW_SCOPE
            ),
            BindError::LocalRights => write!(
                f,
                "a window grants remote rights only: local requests use the region's own token {}",
                rules::WINDOW_RIGHTS
            ),
            BindError::Standing => write!(
                f,
                "this is not the index of a window of this protection domain that is free: \
                 close it before it is bound again {}",
                rules::FREE_WINDOW
            ),
            BindError::Exhausted => RegisterError::Exhausted.fmt(f),
        }
    }
}

impl std::fmt::Display for DeregisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeregisterError::NotLive(denial) | DeregisterError::NotYours(denial) => denial.fmt(f),
            DeregisterError::Busy(counts) => write!(
                f,
                "the region is busy: {} windows bound, {} requests posted, {} copies under way; \
                 invalidate the windows and let the requests complete first {}",
                counts.windows,
                counts.posted,
                counts.guards,
                rules::UNUSED_REGION
            ),
        }
    }
}

impl std::error::Error for RegisterError {}
impl std::error::Error for BindError {}
impl std::error::Error for DeregisterError {}
