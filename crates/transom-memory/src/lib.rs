//! Who may touch which byte.
//!
//! Memory regions, memory windows, their tokens, the one check that every access passes, and the
//! record of what was refused. No I/O, no threads, no pointers: addresses are `u64`, time is an
//! argument.

#![forbid(unsafe_code)]

mod access;
mod close;
mod denial;
mod display;
mod entry;
mod explain;
mod grant;
mod hazard;
mod judge;
mod ledger;
mod memory;
mod random;
mod range;
mod rights;
mod scope;
mod segments;
mod sync;
mod table;
mod token;
mod types;

pub use access::{Access, Actor, Purpose, Segment};
pub use denial::{Denial, Mistake, Named, NamedState, Refused, Rule};
pub use display::Summary;
pub use grant::{Grant, LARGEST_GRANT, LONGEST_PASS, Lane, Pass};
pub use memory::Memory;
pub use rights::Rights;
pub use scope::{ConnectionId, DomainId, QueuePairId, Scope};
pub use segments::Segments;
pub use token::Token;
pub use types::{
    BindError, CloseReason, Config, Counts, DeregisterError, RegisterError, Registration, Unless,
    WindowSpec,
};

/// A moment in nanoseconds since an origin of the caller's choice; only differences are used, to
/// say how long ago a token died.
pub type Nanoseconds = u64;
