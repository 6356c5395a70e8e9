//! Results that are not there yet.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

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
/// or [`wait`](Pending::wait) for it; dropping it gives it up.
#[derive(Debug)]
#[must_use = "nothing happens before it is awaited or waited for"]
pub struct Pending<'a, T> {
    _result: PhantomData<&'a T>,
}

impl<T> Pending<'_, T> {
    /// Block until it has happened.
    pub fn wait(self) -> Result<T> {
        todo!()
    }
}

impl<T> Future for Pending<'_, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<T>> {
        todo!()
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
