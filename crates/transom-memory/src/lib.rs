//! Decides which actor may touch which byte.
//!
//! Memory regions, memory windows, their tokens, the one check that every access passes, and the
//! record of what was refused. No I/O, no threads, no pointers: addresses are `u64`, time is an
//! argument.
//!
//! Where to read first: `judge` (the whole decision) and `range` (its arithmetic); then `entry` and
//! `hazard` (why a check needs no lock, and how a close waits for it); then `memory` (what makes
//! tokens) and `close` (what ends them). `token` says how tokens are chosen and when a value comes
//! back. The rest is books (`ledger`, `segments`, `table`, `uses`, `review`) and words (`denial`, `explain`,
//! `display`).
//!
//! The needs of other generations of the interface are data here: scopes (type-1 windows are
//! windows of scope `Domain`; Winsock Direct's registrations are regions of scope `Connection`,
//! which are listed by connection), rights as bits (`LOCAL_READ` is one, for write-only memory),
//! segment lists (NDK), and [`Memory::reserve_region`] (a token that outlives its memory: NDK fast
//! registration). NDK's privileged token is a front's alias for such regions without remote rights.
//!
//! `docs/rules` has each rule that is cited here, with the tests that hold it; `tests/loom.rs` runs
//! `entry` and `hazard` as shipped through every interleaving. To see whether the tests notice
//! broken code: `cargo install cargo-mutants`, then `cargo mutants -p transom-memory -j1 --timeout
//! 120 -f 'crates/transom-memory/src/*.rs'` (`-- --lib --tests` without `loom` and `stress` is
//! faster; those two cover orderings, which cargo-mutants does not change).

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod access;
mod chain;
mod close;
mod denial;
mod display;
mod entry;
mod explain;
mod grant;
mod hazard;
mod inventory;
mod judge;
mod keyed;
mod ledger;
mod memory;
mod name;
mod random;
mod range;
mod review;
mod rights;
pub mod rules;
mod scope;
mod segments;
mod sync;
mod table;
mod token;
mod types;
mod uses;

pub use access::{Access, Actor, Purpose, Segment};
pub use chain::{ChainError, Chained, PAGE, Piece, chained, paged};
pub use denial::{Denial, Mistake, Named, NamedState, Refused};
pub use display::{Advice, Summary};
pub use grant::{Grant, LARGEST_GRANT, LONGEST_PASS, Lane, Pass};
pub use inventory::Listed;
pub use judge::queue_pair_admits;
pub use memory::Memory;
pub use name::{LONGEST_NAME, Name};
pub use review::{Finding, Review, Reviewed};
pub use rights::Rights;
pub use rules::{NamedRule, Rule};
pub use scope::{ConnectionId, DomainId, QueuePairId, Scope};
pub use segments::Segments;
pub use token::Token;
pub use types::{
    BindError, CloseReason, Config, Counts, DeregisterError, RegisterError, Registration, Unless,
    WindowSpec,
};
pub use uses::Uses;

/// A moment in nanoseconds since an origin of the caller's choice; only differences are used, to
/// say how long ago a token died.
pub type Nanoseconds = u64;
