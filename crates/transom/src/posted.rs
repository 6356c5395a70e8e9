//! Results that are not there yet.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Result;

/// The result of a request that has been posted. Await it, or [`wait`](Posted::wait) for it.
///
/// The request is under way whether or not anybody asks for the result; dropping this does not
/// cancel it. Ask, though: errors are reported here.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(peer: transom::QueuePair) -> transom::Result<()> {
/// peer.send(b"hello")?;                                // unused `Posted` that must be used
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the request is under way, but its outcome is only told here: .await or .wait() it"]
pub struct Posted<T> {
    _result: PhantomData<T>,
}

impl<T> Posted<T> {
    /// Block until the result is there. Makes progress itself; no other thread has to wake it.
    pub fn wait(self) -> Result<T> {
        todo!()
    }

    /// Whether the result is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        todo!()
    }
}

impl<T> Future for Posted<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<T>> {
        todo!()
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

    /// Something that has happened.
    pub(crate) fn ready(result: Result<T>) -> Pending<T> {
        let (pending, cell) = Pending::new();
        cell.put(result);
        pending
    }

    /// Another one who waits for the same. Whoever comes first gets it.
    pub(crate) fn of(cell: &Arc<Cell<T>>) -> Pending<T> {
        Pending { cell: Arc::clone(cell) }
    }

    /// Block until it has happened.
    pub fn wait(self) -> Result<T> {
        let mut inner = self.cell.lock();
        loop {
            if let Some(result) = inner.result.take() {
                return result;
            }
            inner = self.cell.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut inner = self.cell.lock();
        if let Some(result) = inner.result.take() {
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

/// Where an outcome is put and fetched.
pub(crate) struct Cell<T> {
    inner: Mutex<CellInner<T>>,
    changed: Condvar,
}

struct CellInner<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell { inner: Mutex::new(CellInner { result: None, waker: None }), changed: Condvar::new() }
    }
}

impl<T> Cell<T> {
    fn lock(&self) -> MutexGuard<'_, CellInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has happened. Wakes whoever waits, with no lock held.
    pub(crate) fn put(&self, result: Result<T>) {
        let mut inner = self.lock();
        let old = inner.result.replace(result);
        let waker = inner.waker.take();
        drop(inner);
        self.changed.notify_all();
        drop(old);
        if let Some(waker) = waker {
            waker.wake();
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
    /// Its bytes.
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
