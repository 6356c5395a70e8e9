//! For whom a token is valid.

use crate::Actor;

/// A protection domain. NetworkDirect hides one in each adapter, Winsock Direct one in each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainId(pub u32);

/// A queue pair's number: random, 24 bits, unique in its adapter while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePairId(pub u32);

/// A connection: a number and an epoch, so that its successor is another one (WSD A-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Number; may be used again.
    pub number: u32,
    /// Differs each time the number is used.
    pub epoch: u32,
}

/// The actors that may use a token. Fixed when the token is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every queue pair of the domain.
    Domain(DomainId),
    /// A single queue pair.
    QueuePair(DomainId, QueuePairId),
    /// A single connection, and not its successor.
    Connection(DomainId, ConnectionId),
}

impl Scope {
    /// The domain it lies in.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        match *self {
            Scope::Domain(domain) | Scope::QueuePair(domain, _) | Scope::Connection(domain, _) => {
                domain
            }
        }
    }

    /// Whether the actor is one of those for whom it is.
    pub(crate) fn includes(&self, actor: &Actor) -> bool {
        match *self {
            Scope::Domain(domain) => domain == actor.domain,
            Scope::QueuePair(domain, pair) => (domain, pair) == (actor.domain, actor.queue_pair),
            Scope::Connection(domain, connection) => {
                (domain, Some(connection)) == (actor.domain, actor.connection)
            }
        }
    }

    /// Whether every actor of `other` is one of `self`.
    pub(crate) fn covers(&self, other: &Scope) -> bool {
        self == other || *self == Scope::Domain(other.domain())
    }

    /// An actor that stands for the scope, for records of calls that name none.
    pub(crate) fn actor(&self) -> Actor {
        let (queue_pair, connection) = match *self {
            Scope::Domain(_) => (QueuePairId(0), None),
            Scope::QueuePair(_, queue_pair) => (queue_pair, None),
            Scope::Connection(_, connection) => (QueuePairId(0), Some(connection)),
        };
        Actor { domain: self.domain(), queue_pair, connection }
    }
}
