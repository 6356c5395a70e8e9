//! Where a peer is, as far as the system says.

/// The place of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerPlace {
    /// Another host.
    Elsewhere,
    /// This host. No process holds that end any more, or the system does not say whose it is.
    Here,
    /// This host; the user whose process holds it.
    HereOf(u32),
}
