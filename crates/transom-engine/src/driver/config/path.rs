//! Which way bytes take, why, and how many connections may share memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// The way bytes take between two adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Path {
    /// TCP, always.
    Tcp,
    /// Shared memory between two processes of one host and one user, if both sides can prove that
    /// they are; else TCP. The owner checks each access as over TCP, and only the owner places and
    /// reads.
    #[default]
    Auto,
    /// As [`Path::Auto`], and asked for whatever the peer's address looks like.
    Process,
}

impl Path {
    /// The path of a name.
    pub(crate) fn of_name(name: &str) -> Option<Path> {
        [Path::Tcp, Path::Auto, Path::Process].into_iter().find(|path| path.name() == name)
    }

    /// As options and the environment call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Path::Tcp => "tcp",
            Path::Auto => "auto",
            Path::Process => "process",
        }
    }
}

/// Why a connection has the path that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathReason {
    /// Shared memory: both sides have proven that they may.
    Proven,
    /// TCP, because this side takes nothing else.
    TcpOnly,
    /// TCP, because this side does without the extension.
    NoExtension,
    /// TCP, because the peer's address is none of this host's.
    Elsewhere,
    /// TCP, because there is no upgrade socket beside the peer's port.
    NoUpgradeListener,
    /// TCP, because too many offers wait at the peer's upgrade socket.
    UpgradeListenerBusy,
    /// TCP, because another process has the name that this listener's upgrade socket would have.
    UpgradeNameTaken,
    /// TCP, because the peer is a process of another user, and not both sides have asked for such.
    OtherUser,
    /// TCP, because this side shares memory over as many connections as it may.
    Full,
    /// TCP, because the peer does.
    PeerFull,
    /// TCP, because the peer has declined.
    Declined,
    /// TCP, because the peer has not asked for anything else.
    NotAsked,
    /// TCP, because the peer has asked for memory without an offer at this side's upgrade socket.
    NotHandedOver,
    /// TCP, because the system does not let this process share memory.
    System,
    /// TCP, because the peer has not answered the newest form of start-up.
    OlderPeer,
}

impl PathReason {
    /// The reason as a sentence without a full stop.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            PathReason::Proven => {
                "two processes of this host share memory, and each has proven to the other that it may"
            }
            PathReason::TcpOnly => "this side takes TCP only, by its options or by TRANSOM_PATH",
            PathReason::NoExtension => "this side does without the extension",
            PathReason::Elsewhere => {
                "the peer's address is none of this host's: another host, or another network namespace"
            }
            PathReason::NoUpgradeListener => {
                "the peer has no upgrade socket beside its port: it takes TCP only, or is no Transom, or lives in another network namespace"
            }
            PathReason::UpgradeListenerBusy => "too many offers wait at the peer's upgrade socket",
            PathReason::UpgradeNameTaken => {
                "another process has the name that the upgrade socket beside this listener's port would have"
            }
            PathReason::OtherUser => {
                "the peer is a process of another user, and not both sides have asked for such"
            }
            PathReason::Full => "this side shares memory over as many connections as it may",
            PathReason::PeerFull => "the peer shares memory over as many connections as it may",
            PathReason::Declined => "the peer has declined",
            PathReason::NotAsked => {
                "the peer has not asked for shared memory: it takes TCP only, or may not"
            }
            PathReason::NotHandedOver => {
                "the peer has asked for memory without an offer at this side's upgrade socket"
            }
            PathReason::System => "the system does not let this process share memory",
            PathReason::OlderPeer => "the peer knows older forms of start-up only",
        }
    }
}

impl std::fmt::Display for PathReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// Connections of an adapter that share memory at most, by default. Each takes one descriptor more
/// than TCP does, one mapping of 1.1 MiB, and as many pages of that as are in use.
const SHARED_LINKS: usize = 512;
/// The bytes of such a mapping, or some more.
const MAPPING: usize = 5 << 18;

/// The default of [`Options::shared_links`](super::options::Options::shared_links): 512, and at most an eighth
/// of the descriptors that this process may have, so that they last for nearly as many connections as
/// over TCP, and of its address space.
pub(crate) fn shared_links() -> usize {
    let descriptors = sys::descriptor_limit().map_or(usize::MAX, |n| n / 8);
    let space = sys::address_space_limit().map_or(usize::MAX, |n| n / 8 / MAPPING);
    SHARED_LINKS.min(descriptors).min(space)
}

/// Counts the connections of an adapter that share memory.
#[derive(Debug, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// The right to one connection over shared memory. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    /// Take a place, if fewer than `limit` are taken.
    pub(crate) fn take(&self, limit: usize) -> Option<Place> {
        let more = |taken: usize| (taken < limit).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(self.0.clone()))
    }

    /// How many there are.
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let places = Places::default();
        let (one, two) = (places.take(2), places.take(2));
        assert!(one.is_some() && two.is_some() && places.take(2).is_none());
        drop(one);
        assert_eq!(places.taken(), 1);
        assert!(places.take(2).is_some());
    }
}
