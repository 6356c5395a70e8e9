//! Two engines in one thread, in virtual time: for the tests of this crate, of those above it, and
//! of a later simulator. Real [`transom_iwarp`] streams, or
//! [`transom_process`] channels, run over a link whose bytes the test
//! controls.

mod arena;
mod host;
mod pair;

pub use arena::Arena;
pub use host::{Buffer, DOMAIN, Host, HostConfig, Seen};
pub use pair::{ACTIVE, PASSIVE, Pair, PairConfig, Path, Wires};
