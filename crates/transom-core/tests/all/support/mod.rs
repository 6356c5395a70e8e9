//! Two engines in one thread, in virtual time.
//!
//! A [`Pair`] is two [`Host`]s with the link between them, over real [`transom_iwarp`] streams or
//! [`transom_process`] channels. The test controls the bytes of the link and the clock.

mod arena;
mod host;
mod pair;

pub(crate) use arena::Arena;
pub(crate) use host::{Buffer, DOMAIN, Host, HostConfig, Seen, TARGET};
pub(crate) use pair::{ACTIVE, PASSIVE, Pair, PairConfig, Path, Wires, again_over_process};
