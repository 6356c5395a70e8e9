//! Results that are not there yet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use transom_engine::Status;

use crate::cells::Key;
use crate::endpoint::Endpoint;
use crate::{Error, ErrorKind, Result, Rights};

/// The result of a request that has been posted. Await it, or [`wait`](Posted::wait) for it.
///
/// The request is under way whether or not the result is asked for; dropping this does not
/// cancel it. Ask, though: errors are reported here.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(peer: transom::QueuePair) -> transom::Result<()> {
/// peer.send(b"hello")?;                                // unused `Posted` that must be used
/// # Ok(())
/// # }
/// ```
#[must_use = "the request is under way, but its outcome is only told here: .await or .wait() it"]
pub struct Posted<T> {
    state: PendingState<T>,
}

enum PendingState<T> {
    /// The result is here.
    Ready(Option<Result<T>>),
    /// The result will be in a cell.
    Cell { endpoint: Arc<Endpoint>, key: Key, summary: RequestSummary, value: fn() -> T },
    /// The result was fetched.
    Fetched,
}

/// The subject of a request; a sentence is made of it only when it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestSummary {
    Send(u64),
    Read(u64),
    Write(u64),
    Atomic,
    Batch(u64),
    Bind(u64, Rights),
}

impl fmt::Display for RequestSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestSummary::Send(bytes) => write!(f, "send of {bytes} bytes"),
            RequestSummary::Read(bytes) => write!(f, "read of {bytes} bytes"),
            RequestSummary::Write(bytes) => write!(f, "write of {bytes} bytes"),
            RequestSummary::Atomic => f.write_str("atomic operation"),
            RequestSummary::Bind(bytes, rights) => {
                write!(f, "binding a window of {bytes} bytes ({rights})")
            }
            RequestSummary::Batch(requests) => write!(f, "batch of {requests} requests"),
        }
    }
}

// Nothing in it is pinned.
impl<T> Unpin for Posted<T> {}

impl Posted<()> {
    pub(crate) fn cell(endpoint: &Arc<Endpoint>, key: Key, summary: RequestSummary) -> Posted<()> {
        let endpoint = Arc::clone(endpoint);
        Posted { state: PendingState::Cell { endpoint, key, summary, value: || () } }
    }
}

impl<T> Posted<T> {
    pub(crate) fn ready(result: Result<T>) -> Posted<T> {
        Posted { state: PendingState::Ready(Some(result)) }
    }

    /// Block until the result is there. Makes progress itself; no other thread has to wake it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the owner of the memory refuses, [`ErrorKind::Invalid`] for memory
    /// of this side that may not be used so, [`ErrorKind::Canceled`] and [`ErrorKind::TimedOut`] if
    /// the connection ends first, [`ErrorKind::TooMuch`] for a message longer than the peer's
    /// receives, [`ErrorKind::MemoryGone`], [`ErrorKind::Protocol`], [`ErrorKind::System`]. Each
    /// ends the connection.
    pub fn wait(mut self) -> Result<T> {
        // Without a limit there is an answer.
        self.block(None).unwrap_or_else(|| Err(twice()))
    }

    /// Wait for at most `timeout`: `None` if the result is not there by then. It may be asked for
    /// again, and the request goes on.
    ///
    /// # Errors
    /// As [`wait`](Posted::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T>> {
        self.block(Some(timeout))
    }

    fn block(&mut self, timeout: Option<Duration>) -> Option<Result<T>> {
        let (endpoint, summary) = match &mut self.state {
            PendingState::Ready(result) => {
                return Some(result.take().unwrap_or_else(|| Err(twice())));
            }
            PendingState::Fetched => return Some(Err(twice())),
            PendingState::Cell { endpoint, summary, .. } => (Arc::clone(endpoint), *summary),
        };
        let fetched = endpoint.block(&summary, timeout, || match self.fetch(None) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        fetched.unwrap_or_else(|error| Some(Err(error)))
    }

    /// Whether the result is there. Makes no progress: see
    /// [`QueuePair::poll`](crate::QueuePair::poll).
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.state {
            PendingState::Cell { endpoint, key, .. } => endpoint.is_done(*key),
            _ => true,
        }
    }

    fn fetch(&mut self, waker: Option<&Waker>) -> Poll<Result<T>> {
        let result = match &mut self.state {
            PendingState::Ready(result) => result.take().unwrap_or_else(|| Err(twice())),
            PendingState::Fetched => Err(twice()),
            PendingState::Cell { endpoint, key, summary, value } => match endpoint
                .claim(*key, waker)
            {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => Err(twice()),
                Poll::Ready(Some(Ok(()))) => Ok(value()),
                // Another one of the batch has failed, and that is why.
                Poll::Ready(Some(Err(done)))
                    if matches!(summary, RequestSummary::Batch(_))
                        && done.status == Status::Canceled =>
                {
                    Err(endpoint.why_ended(&summary.to_string()))
                }
                Poll::Ready(Some(Err(done))) => Err(endpoint.failed(&done, &summary.to_string())),
            },
        };
        self.state = PendingState::Fetched;
        Poll::Ready(result)
    }
}

fn twice() -> Error {
    Error::caller(ErrorKind::Invalid, "asking for a result", "it was fetched already")
        .accepted("one wait, or one await, of each request")
}

impl<T> Future for Posted<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Poll::Ready(result) = self.fetch(Some(context.waker())) {
            return Poll::Ready(result);
        }
        if let PendingState::Cell { endpoint, .. } = &self.state {
            endpoint.await_more();
        }
        self.fetch(Some(context.waker()))
    }
}

impl<T> Drop for Posted<T> {
    fn drop(&mut self) {
        if let PendingState::Cell { endpoint, key, .. } = &self.state {
            endpoint.abandon(*key);
        }
    }
}

impl<T> fmt::Debug for Posted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            PendingState::Cell { summary, .. } => write!(f, "Posted({summary})"),
            _ => f.write_str("Posted"),
        }
    }
}

/// Something that happens some time: a peer that connects, a connection that comes about. Await it,
/// or [`wait`](Pending::wait) for it.
#[must_use = "await it or wait for it"]
pub struct Pending<T> {
    cell: Arc<Cell<T>>,
}

impl<T> Pending<T> {
    /// Something that will happen, and where its outcome is to be put.
    pub(crate) fn new() -> (Pending<T>, Arc<Cell<T>>) {
        let cell = Arc::new(Cell::default());
        (Pending { cell: Arc::clone(&cell) }, cell)
    }

    /// Another waiter for the same result. The first one gets it.
    pub(crate) fn of(cell: &Arc<Cell<T>>) -> Pending<T> {
        Pending { cell: Arc::clone(cell) }
    }

    /// Block until it has happened.
    ///
    /// # Errors
    /// Those of the call that made it.
    pub fn wait(self) -> Result<T> {
        let mut inner = self.cell.lock();
        loop {
            if let Some(result) = inner.take() {
                return result;
            }
            inner = self.cell.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wait for at most `timeout`: `None` if it has not happened by then. It may be asked for again.
    ///
    /// # Errors
    /// As [`wait`](Pending::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T>> {
        let inner = self.cell.lock();
        let nothing = |inner: &mut CellInner<T>| inner.result.is_none() && !inner.spent;
        let waited = self.cell.changed.wait_timeout_while(inner, timeout, nothing);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.take()
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut inner = self.cell.lock();
        if let Some(result) = inner.take() {
            return Poll::Ready(result);
        }
        let old = inner.waker.replace(context.waker().clone());
        drop(inner);
        drop(old); // user code: not under the lock
        Poll::Pending
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// Run code of the user's on behalf of others: if it panics, they must not suffer for it. (The
/// panic was reported by the panic hook.)
pub(crate) fn guarded(code: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(code));
}

/// Where an outcome is put and fetched.
pub(crate) struct Cell<T> {
    inner: Mutex<CellInner<T>>,
    changed: Condvar,
}

struct CellInner<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
    /// The outcome was fetched.
    spent: bool,
}

impl<T> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell {
            inner: Mutex::new(CellInner { result: None, waker: None, spent: false }),
            changed: Condvar::new(),
        }
    }
}

impl<T> CellInner<T> {
    fn take(&mut self) -> Option<Result<T>> {
        if self.spent && self.result.is_none() {
            return Some(Err(twice()));
        }
        self.spent |= self.result.is_some();
        self.result.take()
    }
}

impl<T> Cell<T> {
    /// Whether the outcome was fetched.
    pub(crate) fn is_spent(&self) -> bool {
        self.lock().spent
    }

    fn lock(&self) -> MutexGuard<'_, CellInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event has happened. Wakes all that wait, with no lock held.
    pub(crate) fn put(&self, result: Result<T>) {
        let mut inner = self.lock();
        let old = inner.result.replace(result);
        let waker = inner.waker.take();
        drop(inner);
        self.changed.notify_all();
        drop(old);
        if let Some(waker) = waker {
            guarded(|| waker.wake());
        }
    }
}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cell")
    }
}

/// A message that a peer sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(pub(crate) Vec<u8>);

impl Message {
    /// The bytes of the message.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl std::ops::Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} bytes)", self.0.len())
    }
}
