//! Two processes of one host over shared memory, without I/O.
//!
//! | file | what it holds |
//! |---|---|
//! | [`record`] | one record: 32 bytes of header, its kinds, and what may follow it |
//! | [`ring`] | how records get through memory that the other side may scribble over |
//! | [`flow_control`](flow_control.rs) | acknowledgements and receive credits, one word |
//! | [`lending`] | regions that one side has mapped of the other's, with its consent |
//! | [`duplex`] | a link's two rings as one of its sides uses them |
//! | [`RingCarrier`] | the writing end of the rings as a connection sees it ([`transom_wire::Carrier`]) |
//! | [`Records`] | the records of a ring as the frames of a wire |
//! | [`Channel`] | one connection over records as a [`transom_wire::Wire`] |
//! | [`upgrade`] | the messages before memory is shared, and the rules by which a side is believed |
//!
//! A link carries records from one [`Channel`] to the other. `transom-engine` has one that carries
//! them through a [`duplex`], as `transom-sim` does; to the channel they are bytes in order, so that
//! tests carry them as they like.
//!
//! # Copies and trust
//!
//! A Write or Send is copied into the ring by the sender, out of memory that its own tables let it read,
//! and out of the ring by the receiver, into memory that *its* tables let the sender write. A Read is a
//! request: its owner answers with records. Neither side maps the other's memory, but for [regions](lending)
//! that their program has made to be looked at: the receiver copies out of those without the ring.
//!
//! The other side may change the shared memory at any time. So each word of a slot is read once,
//! into memory of this side, and checked there. Positions are counted here and never taken from the
//! other side, which can only say how far it has read, and no further than was written. Payload is
//! copied once, and no decision depends on it.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod carrier;
mod channel;
pub mod duplex;
mod flow_control;
pub mod lending;
pub mod record;
mod records;
pub mod ring;
pub mod upgrade;

pub use carrier::{Lender, NoRegions, RingCarrier};
pub use channel::Channel;
pub use duplex::{Area, Duplex};
pub use records::{Records, Stop, UNIT};

/// The path's name.
pub const NAME: &str = "process";
/// The wire's name ([`transom_wire::Facts::wire`]).
pub const WIRE: &str = "shared memory of one host";

/// The atomics of the rings; their model test puts loom's in their place, and fewer slots.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) const SLOTS: usize = 256;
}
