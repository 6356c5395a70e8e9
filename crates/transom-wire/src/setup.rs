//! Words of connection set-up.

use crate::Verdicts;

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connects.
    Active,
    /// The side that listens.
    Passive,
    /// Both sides: what is sent comes back. There is no start-up.
    Itself,
}

/// Reads that may be under way at a time, seen from one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadLimits {
    /// Reads of the peer that this side serves at a time.
    pub inbound: u32,
    /// Reads of this side at a time.
    pub outbound: u32,
}

impl ReadLimits {
    /// The smaller of both, in each direction.
    #[must_use]
    pub fn within(self, caps: ReadLimits) -> ReadLimits {
        ReadLimits {
            inbound: self.inbound.min(caps.inbound),
            outbound: self.outbound.min(caps.outbound),
        }
    }

    /// The peer's limits as they look from this side: it asks for what the other serves.
    #[must_use]
    pub fn mirrored(self) -> ReadLimits {
        ReadLimits { inbound: self.outbound, outbound: self.inbound }
    }
}

/// A set-up call that makes no sense now, or whose arguments do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The call belongs to another state or role.
    Order,
    /// More private data than the wire carries; the limit in bytes.
    PrivateData {
        /// The value that would have been accepted.
        limit: usize,
    },
}

/// The agreement of two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The wire, e.g. `iWARP over TCP (MPA revision 2)`.
    pub wire: &'static str,
    /// A checksum covers every frame.
    pub checksum: bool,
    /// The peer asked for markers.
    pub markers: bool,
    /// Both sides are Transoms and use the extension.
    pub extension: bool,
    /// How requests learn their outcome.
    pub verdicts: Verdicts,
    /// Agreed read limits; the user's, without a slot the wire keeps for itself.
    pub limits: ReadLimits,
    /// The largest frame that can arrive, in bytes: what the engine may have to keep.
    pub largest_frame: usize,
    /// The largest payload this side puts in one frame.
    pub largest_payload: usize,
}
