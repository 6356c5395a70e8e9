//! One end of a connection.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use transom_wire::Verdicts;

use crate::{Buffer, Error, Grant, Message, Posted, Region, Result, Rights, Slice, Window};

/// One end of a connection. Dropping it disconnects; neither ever blocks on the peer.
#[derive(Debug)]
pub struct QueuePair {}

/// What two sides have agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub peer: SocketAddr,
    /// The path chosen, e.g. `tcp`.
    pub path: &'static str,
    /// The wire, e.g. `iWARP over TCP (MPA revision 2)`.
    pub wire: &'static str,
    /// A checksum covers every frame.
    pub crc: bool,
    /// Both sides are Transoms and use the extension.
    pub extension: bool,
    /// How requests learn their outcome.
    pub verdicts: Verdicts,
    /// Reads of this side that may be under way at a time.
    pub reads: u32,
    /// The largest frame in bytes.
    pub largest_frame: usize,
}

impl QueuePair {
    /// What was agreed.
    #[must_use]
    pub fn info(&self) -> ConnectionInfo {
        todo!()
    }

    /// Send a message of at most [`SEND_LIMIT`](QueuePair::SEND_LIMIT) bytes; they are copied now.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Result<Posted<()>> {
        let _ = bytes.as_ref();
        todo!()
    }

    /// Most bytes that [`send`](QueuePair::send) copies. More go from registered memory
    /// ([`send_from`](QueuePair::send_from)).
    pub const SEND_LIMIT: usize = 4096;

    /// Send a message from registered memory.
    pub fn send_from(&self, from: Slice) -> Result<Posted<()>> {
        let _ = from;
        todo!()
    }

    /// The next message. Messages wait in posted receives; dropping this loses none.
    pub fn recv(&self) -> Recv<'_> {
        todo!()
    }

    /// The next message, if there is one already.
    pub fn try_recv(&self) -> Result<Option<Message>> {
        todo!()
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        todo!()
    }

    /// Read the peer's memory: all of `from` into `into`, which must be at least as long.
    pub fn read(&self, from: Grant, into: Slice) -> Result<Posted<()>> {
        let _ = (from, into);
        todo!()
    }

    /// Write all of `from` to the beginning of the peer's `to`. Done when the peer's adapter has
    /// placed it (see [`ConnectionInfo::verdicts`] about peers that are not Transoms).
    pub fn write(&self, to: Grant, from: Slice) -> Result<Posted<()>> {
        let _ = (to, from);
        todo!()
    }

    /// Open a window on a range of `region` to this connection's peer. The token exists when this
    /// returns; access begins when the bind executes, which is before anything posted later.
    pub fn bind<B: Buffer>(
        &self,
        region: &Region<B>,
        range: impl RangeBounds<u64>,
        rights: Rights,
    ) -> Result<Window> {
        let _ = (region, range, rights);
        todo!()
    }

    /// Make progress without blocking; says whether anything completed. For programs that watch
    /// memory rather than results.
    pub fn poll(&self) -> bool {
        todo!()
    }

    /// Block until something completes on this queue pair or the time is up; says whether anything
    /// did.
    pub fn wait(&self, at_most: Duration) -> bool {
        let _ = at_most;
        todo!()
    }

    /// End the connection: every window on it is closed and every request given up when this
    /// returns. The peer is told, not waited for.
    pub fn disconnect(&self) -> Result<()> {
        todo!()
    }
}

/// The next message of a [`QueuePair`]: await it, or [`wait`](Recv::wait) for it. Dropping it loses
/// no message.
#[derive(Debug)]
#[must_use = "await it or wait for it"]
pub struct Recv<'a> {
    queue: &'a QueuePair,
}

impl Recv<'_> {
    /// Block until there is one, or the connection has ended.
    pub fn wait(self) -> Result<Message> {
        todo!()
    }
}

impl Future for Recv<'_> {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<Message>> {
        todo!()
    }
}
