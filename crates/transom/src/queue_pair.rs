//! Queue pairs: the ends of a connection.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use transom_engine::Operation;
use transom_wire::{Atomic, Verdicts};

use crate::endpoint::{Endpoint, Local};
use crate::posted::RequestSummary;
use crate::{
    Batch, Buffer, Error, ErrorKind, Grant, Message, Posted, Region, Result, Rights, Slice, Window,
};

/// An end of a connection. A clone is the same end, for another thread or task. Dropping the last one
/// disconnects; neither ever blocks on the peer.
#[derive(Clone, Debug)]
pub struct QueuePair {
    endpoint: Arc<Endpoint>,
    info: Arc<ConnectionInfo>,
    /// Shared by the clones.
    _held: Arc<Held>,
}

/// Disconnects when it is dropped.
#[derive(Debug)]
struct Held(Arc<Endpoint>);

/// The agreement of two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub peer: SocketAddr,
    /// The path chosen: `tcp`, or `process` for shared memory on one host.
    pub path: &'static str,
    /// Why it is this one, in words.
    pub path_reason: &'static str,
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
    /// Private data that the other side's program sent when it asked, or accepted.
    pub private_data: Vec<u8>,
}

impl QueuePair {
    pub(crate) fn new(endpoint: Arc<Endpoint>, info: ConnectionInfo) -> QueuePair {
        let held = Arc::new(Held(endpoint.clone()));
        QueuePair { endpoint, info: Arc::new(info), _held: held }
    }

    /// The agreement of both sides.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Most bytes that [`send`](QueuePair::send) copies. More go from registered memory
    /// ([`send_from`](QueuePair::send_from)).
    pub const SEND_LIMIT: usize = 4096;

    /// Send a message of at most [`SEND_LIMIT`](QueuePair::SEND_LIMIT) bytes; they are copied now.
    ///
    /// # Errors
    /// [`ErrorKind::TooMuch`] for more than [`SEND_LIMIT`](QueuePair::SEND_LIMIT) bytes, or if as
    /// many requests are under way as the queue pair holds; [`ErrorKind::NotConnected`] and
    /// [`ErrorKind::Canceled`] once this side knows that the connection has ended, or the kind with
    /// which it ended; [`ErrorKind::Forked`]. Nothing is posted then. [`Posted::wait`] has the errors
    /// of the result, that of an end which is noticed later among them.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Result<Posted<()>> {
        let bytes = bytes.as_ref();
        let asked = RequestSummary::Send(bytes.len() as u64);
        if bytes.len() > Self::SEND_LIMIT {
            let limit = Self::SEND_LIMIT;
            return Err(Error::caller(
                ErrorKind::TooMuch,
                asked.to_string(),
                format!("bytes are copied up to {limit}"),
            )
            .accepted("send_from, with a slice of a region"));
        }
        self.post(Operation::Send, Local::Bytes(bytes), asked)
    }

    /// Send a message from registered memory.
    ///
    /// # Errors
    /// As [`send`](QueuePair::send); and [`ErrorKind::Invalid`] for memory of another adapter.
    pub fn send_from(&self, from: Slice) -> Result<Posted<()>> {
        let asked = RequestSummary::Send(from.len());
        self.post(Operation::Send, Local::Slice(from), asked)
    }

    /// The next message. Messages wait in posted receives; dropping this loses none.
    pub fn recv(&self) -> Recv<'_> {
        Recv { queue: self }
    }

    /// The next message, if there is one already. Makes no progress: see [`poll`](QueuePair::poll).
    ///
    /// # Errors
    /// As [`Recv::wait`].
    pub fn try_recv(&self) -> Result<Option<Message>> {
        match self.endpoint.take_message(None) {
            Poll::Ready(message) => message.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.endpoint.ended().map(|why| why.because("the connection"))
    }

    /// Read the peer's memory: all of `from` to the beginning of `into`, which must be at least as
    /// long.
    ///
    /// # Errors
    /// As [`write`](QueuePair::write); and [`ErrorKind::Invalid`] if `into` is shorter than `from`.
    pub fn read(&self, from: Grant, into: Slice) -> Result<Posted<()>> {
        let asked = RequestSummary::Read(from.len());
        into.must_hold(from.len(), asked)?;
        let operation = Operation::Read { token: from.token(), address: from.address() };
        self.post(operation, Local::Slice(into.first(from.len())), asked)
    }

    /// Write all of `from` to the beginning of the peer's `to`. Done when the peer's adapter has
    /// placed it; [`ConnectionInfo::verdicts`] has what that means with peers that are not
    /// Transoms.
    ///
    /// A `from` that is longer than `to` is posted all the same: the owner judges.
    ///
    /// # Errors
    /// [`ErrorKind::TooMuch`] for 4 GiB or more, or if as many requests are under way as the queue
    /// pair holds; [`ErrorKind::Invalid`] for memory of another adapter;
    /// [`ErrorKind::NotConnected`] and [`ErrorKind::Canceled`] once the connection has ended, or
    /// the kind with which it ended; [`ErrorKind::Forked`]. Nothing is posted then.
    /// [`Posted::wait`] has the errors of the result.
    pub fn write(&self, to: Grant, from: Slice) -> Result<Posted<()>> {
        let asked = RequestSummary::Write(from.len());
        let operation = Operation::Write { token: to.token(), address: to.address() };
        self.post(operation, Local::Slice(from), asked)
    }

    /// Add to the word that `at` names, and put what it held before into the first 8 bytes of `old`.
    ///
    /// A word is 8 bytes at a multiple of 8, in the byte order of the machine that owns them. No other
    /// atomic on it comes in between: not of this peer or another one, nor of the owner's program
    /// ([`Region::atomic_u64`]). If the connection ends first, the word may have been changed.
    ///
    /// ```no_run
    /// # use transom::{Grant, QueuePair, Region, Result};
    /// # use std::sync::atomic::Ordering;
    /// # fn f(peer: &QueuePair, grant: Grant, mine: &Region<Vec<u8>>) -> Result<()> {
    /// peer.fetch_add(grant.range(..8), 1, mine.slice(..8))?.wait()?;
    /// let ticket = mine.atomic_u64(0)?.load(Ordering::Acquire);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](QueuePair::write); and [`ErrorKind::Invalid`] if `at` does not have 8 bytes, or
    /// `old` has fewer. The result is [`ErrorKind::Invalid`] too where the word is not aligned, or
    /// the peer has no atomics ([`ConnectionInfo::extension`]).
    pub fn fetch_add(&self, at: Grant, add: u64, old: Slice) -> Result<Posted<()>> {
        self.atomic(at, Atomic::FetchAdd { add }, old)
    }

    /// Put `swap` into the word that `at` names, if it holds `compare`; and put what it held before
    /// into the first 8 bytes of `old`. For the rest see [`fetch_add`](QueuePair::fetch_add).
    ///
    /// # Errors
    /// As [`fetch_add`](QueuePair::fetch_add).
    pub fn compare_swap(
        &self,
        at: Grant,
        compare: u64,
        swap: u64,
        old: Slice,
    ) -> Result<Posted<()>> {
        self.atomic(at, Atomic::CompareSwap { compare, swap }, old)
    }

    fn atomic(&self, at: Grant, change: Atomic, old: Slice) -> Result<Posted<()>> {
        let asked = RequestSummary::Atomic;
        if at.len() != 8 {
            let why = format!("the grant names {} bytes", at.len());
            return Err(Error::caller(ErrorKind::Invalid, asked.to_string(), why)
                .accepted("a word of 8 bytes, such as grant.range(..8)"));
        }
        old.must_hold(8, asked)?;
        let operation = Operation::Atomic { token: at.token(), address: at.address(), change };
        self.post(operation, Local::Slice(old.first(8)), asked)
    }

    /// Requests to be posted together. See [`Batch`].
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.endpoint)
    }

    fn post(
        &self,
        operation: Operation,
        local: Local<'_>,
        asked: RequestSummary,
    ) -> Result<Posted<()>> {
        let key = self.endpoint.post(operation, local, asked)?;
        Ok(Posted::cell(&self.endpoint, key, asked))
    }

    /// Open a window on a range of `region` to this connection's peer. The token exists when this
    /// returns; access begins when the bind executes, which is before anything posted later.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for memory of another adapter, a range without bytes or beyond the
    /// region, and rights that the buffer does not permit (the [`Denial`](crate::Denial)'s text
    /// says which rule); [`ErrorKind::TooMuch`], [`ErrorKind::NotConnected`], [`ErrorKind::System`]
    /// if no token is free, [`ErrorKind::Forked`]. No window is opened then.
    pub fn bind<B: Buffer>(
        &self,
        region: &Region<B>,
        range: impl RangeBounds<u64>,
        rights: Rights,
    ) -> Result<Window> {
        let slice = region.slice(range);
        let token = self.endpoint.bind(&slice, rights)?;
        let grant = Grant::from_parts(token, slice.address(), slice.len(), rights);
        Ok(Window::new(&self.endpoint, slice.region, grant))
    }

    /// Make progress without blocking; says whether anything completed. For programs that watch
    /// memory rather than results.
    pub fn poll(&self) -> bool {
        self.endpoint.poll()
    }

    /// End the connection: every window on it is closed and every request given up when this
    /// returns. The peer gets a disconnect, which is not waited for.
    ///
    /// # Errors
    /// [`ErrorKind::AddressGone`] and [`ErrorKind::Forked`]. A connection that has ended already is
    /// no error.
    pub fn disconnect(&self) -> Result<()> {
        self.endpoint.disconnect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A connection that has ended already is as disconnected as it can be.
        let _ = self.0.disconnect();
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
    ///
    /// # Errors
    /// The kind with which the connection has ended: [`ErrorKind::Canceled`],
    /// [`ErrorKind::Refused`], [`ErrorKind::TimedOut`], [`ErrorKind::TooMuch`] for a message longer
    /// than the receives, [`ErrorKind::Protocol`], [`ErrorKind::NotConnected`]. Messages that
    /// arrived before come first.
    pub fn wait(self) -> Result<Message> {
        let endpoint = &self.queue.endpoint;
        endpoint.block(&"receiving a message", None, || self.taken())?.unwrap_or_else(|| {
            // Without a limit there is an answer.
            Err(endpoint.why_ended("receiving a message"))
        })
    }

    /// Wait for at most `timeout`: `None` if there is no message by then.
    ///
    /// # Errors
    /// As [`wait`](Recv::wait).
    pub fn wait_timeout(self, timeout: Duration) -> Result<Option<Message>> {
        let endpoint = &self.queue.endpoint;
        let message = endpoint.block(&"receiving a message", Some(timeout), || self.taken())?;
        message.transpose()
    }

    fn taken(&self) -> Option<Result<Message>> {
        match self.queue.endpoint.take_message(None) {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }
}

impl Future for Recv<'_> {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Message>> {
        let endpoint = &self.queue.endpoint;
        if let Poll::Ready(message) = endpoint.take_message(Some(context.waker())) {
            return Poll::Ready(message);
        }
        endpoint.await_more();
        endpoint.take_message(Some(context.waker()))
    }
}
