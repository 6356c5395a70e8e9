//! Two engines in one thread, in virtual time, for tests of `transom-core`.
//!
//! A [`Pair`] is two [`Host`]s with the link between them, over real [`transom_iwarp`] streams or
//! [`transom_process`] channels. The test controls the bytes of the link and the clock.

#![forbid(unsafe_code)]

mod arena;
mod host;
mod pair;

pub use arena::Arena;
pub use host::{Buffer, DOMAIN, Host, HostConfig, Seen, TARGET};
pub use pair::{ACTIVE, PASSIVE, Pair, PairConfig, Path, Wires};
