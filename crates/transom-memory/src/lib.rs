//! Who may touch which byte.
//!
//! Memory regions, memory windows, their tokens, the one check that every access passes, and the
//! record of what was refused. No I/O, no threads, no pointers: addresses are `u64`, time is an
//! argument.

#![forbid(unsafe_code)]

mod access;
mod denial;
mod rights;
mod scope;
mod table;

pub use access::{Access, Actor, Grant, Lane, Purpose, Segment};
pub use denial::{Denial, Mistake, Named, NamedState, Rule};
pub use rights::Rights;
pub use scope::{ConnectionId, DomainId, QueuePairId, Scope};
pub use table::{
    BindError, CloseReason, Config, Counts, DeregisterError, Memory, RegisterError, Registration,
    Unless, WindowSpec,
};

/// A 32-bit token: what `ibverbs` calls a key, iWARP an STag and NetworkDirect a token. 0 is never
/// handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// A moment in nanoseconds since an origin of the caller's choice; only differences are used, to
/// say how long ago a token died.
pub type Nanoseconds = u64;
