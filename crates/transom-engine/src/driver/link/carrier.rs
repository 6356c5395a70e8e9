//! The carrier of a link's bytes: the socket, or the rings that took its place.
//!
//! A link has exactly one carrier. The connection above sees the same wire whatever carries it; what
//! differs between carriers is answered here, by `tcp` and by `shared_memory`. `upgrade` chooses.

use transom_wire::ReadLimits;

use super::rings::Rings;
use crate::driver::config::path::Place;
use crate::driver::schedule::traffic::Traffic;
use crate::sys::{Fd, Local, Stream};

/// How much is asked for at a time of a peer that is not known yet.
const INITIAL_READ_SIZE: usize = 16 * 1024;

/// The one carrier of a link, with everything that only this carrier needs.
pub(crate) enum Carrier {
    /// The socket.
    Tcp(Tcp),
    /// The socket, until both sides have chosen their path.
    Upgrading(Stage, Tcp),
    /// Two rings. The socket stays, and is not read any more.
    SharedMemory(Box<Rings>),
}

/// How a link uses its socket.
#[derive(Debug)]
pub(crate) struct Tcp {
    /// Bytes to ask for in one read: fewer for a peer whose frames are small.
    pub(super) read_size: usize,
    /// The last write announced more bytes to the system (`MSG_MORE`).
    pub(super) corked: bool,
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp { read_size: INITIAL_READ_SIZE, corked: false }
    }
}

/// How far a link has come in choosing its path.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Active: offer an upgrade when the TCP connection has come about.
    Look(Box<ConnectRequest>),
    /// Active: offered and asked, not answered.
    Offered(Box<PendingUpgrade>),
    /// Passive: no byte has come.
    Opening,
}

/// An upgrade that was offered, until the peer has answered.
#[derive(Debug)]
pub(crate) struct PendingUpgrade {
    pub(super) request: ConnectRequest,
    pub(super) offer: Offered,
    pub(super) heard: Vec<u8>,
}

/// The active side's end of an upgrade that it has offered.
#[derive(Debug)]
pub(crate) struct Offered {
    /// The socket at which it was, and where memory comes.
    pub(super) local: Local,
    /// The place of that memory's descriptor.
    pub(super) reserved: Fd,
    /// Our place among the links of the adapter that share memory.
    pub(super) place: Place,
}

/// The configuration of the connection, on whichever wire.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) limits: ReadLimits,
    pub(crate) private: Box<[u8]>,
}

impl Carrier {
    /// The socket. `stage`: where the choice of the path stands, if there is a choice.
    pub(crate) fn tcp(stage: Option<Stage>) -> Carrier {
        match stage {
            None => Carrier::Tcp(Tcp::default()),
            Some(stage) => Carrier::Upgrading(stage, Tcp::default()),
        }
    }

    /// Frames and bytes that were sent, and that have come: records of rings, segments of TCP. `None`: not known,
    /// or the path is not chosen yet.
    pub(super) fn traffic(&self, stream: &Stream) -> Option<[Traffic; 2]> {
        match self {
            Carrier::Tcp(_) => Some(
                stream
                    .traffic()?
                    .map(|(packets, bytes)| Traffic { packets: u64::from(packets), bytes }),
            ),
            Carrier::SharedMemory(rings) => {
                let of = |ring: transom_process::ring::Traffic| Traffic {
                    packets: ring.records,
                    bytes: ring.bytes,
                };
                Some(rings.duplex.traffic().map(of))
            }
            Carrier::Upgrading(..) => None,
        }
    }

    /// The path's name.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_shared_memory() { transom_process::NAME } else { "tcp" }
    }

    #[inline]
    pub(crate) fn is_shared_memory(&self) -> bool {
        matches!(self, Carrier::SharedMemory(_))
    }

    #[inline]
    pub(crate) fn socket(&mut self) -> Option<&mut Tcp> {
        match self {
            Carrier::Tcp(tcp) | Carrier::Upgrading(_, tcp) => Some(tcp),
            Carrier::SharedMemory(_) => None,
        }
    }

    #[inline]
    pub(crate) fn rings(&self) -> Option<&Rings> {
        match self {
            Carrier::SharedMemory(rings) => Some(rings),
            Carrier::Tcp(_) | Carrier::Upgrading(..) => None,
        }
    }

    #[inline]
    pub(crate) fn rings_mut(&mut self) -> Option<&mut Rings> {
        match self {
            Carrier::SharedMemory(rings) => Some(rings),
            Carrier::Tcp(_) | Carrier::Upgrading(..) => None,
        }
    }

    /// The stage of an upgrade whose `is_due` says yes. From here on the path is TCP, unless the caller
    /// puts another carrier in its place.
    pub(crate) fn take_stage(&mut self, is_due: impl FnOnce(&Stage) -> bool) -> Option<Stage> {
        if !matches!(self, Carrier::Upgrading(stage, _) if is_due(stage)) {
            return None;
        }
        match std::mem::replace(self, Carrier::tcp(None)) {
            Carrier::Upgrading(stage, tcp) => {
                *self = Carrier::Tcp(tcp);
                Some(stage)
            }
            Carrier::Tcp(_) | Carrier::SharedMemory(_) => None,
        }
    }

    /// An upgrade was offered, and its answer has not come.
    pub(crate) fn awaits_answer(&self) -> bool {
        matches!(self, Carrier::Upgrading(Stage::Offered(_), _))
    }

    /// Whether the descriptor says when what is pending can go on: a socket has room, or is connected.
    /// No event announces room in a ring, whose reader wakes this side; and after an offer this side
    /// waits for an answer, not for room.
    pub(crate) fn announces_room(&self) -> bool {
        !self.is_shared_memory() && !self.awaits_answer()
    }

    /// The carrier's descriptor is new since this was last asked.
    pub(crate) fn take_moved(&mut self) -> bool {
        self.rings_mut().is_some_and(|rings| std::mem::take(&mut rings.moved))
    }
}
