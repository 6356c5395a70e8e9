//! Memory windows (NDK 11.6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use transom_memory::Token;

use super::{Mr, Pd};
use crate::Status;
use crate::deliver::{Call, lock};
use crate::life::Life;

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pub(crate) life: Arc<Life>,
    pub(crate) pd: Arc<Pd>,
    bound: Mutex<Option<Arc<Bound>>>,
}

#[derive(Debug)]
struct Bound {
    window: Token,
    mr: Arc<Mr>,
    /// An Invalidate for it has been posted, so the next Bind is no rebinding.
    invalidated: AtomicBool,
}

impl Mw {
    pub(crate) fn new(pd: &Arc<Pd>) -> Arc<Mw> {
        let life = Life::new(&pd.adapter.deliverer, &[&pd.life]);
        Arc::new(Mw { life, pd: Arc::clone(pd), bound: Mutex::new(None) })
    }

    /// The token of the youngest Bind, from the moment it was posted (NDK MW-6); 0 before the
    /// first.
    #[must_use]
    pub fn token(&self) -> u32 {
        lock(&self.bound).as_ref().map_or(0, |bound| bound.window.0)
    }

    /// The window that a Bind would bind again without an invalidation in between (NDK MW-9).
    pub(crate) fn still_bound(&self) -> Option<Token> {
        let bound = lock(&self.bound).clone()?;
        let invalidated = bound.invalidated.load(Ordering::Acquire);
        let still = !invalidated && self.pd.adapter.raw.is_open(bound.window);
        still.then_some(bound.window)
    }

    /// A Bind was posted: the region may not go before this window (NDK 2.2).
    pub(crate) fn set_bound(&self, window: Token, mr: &Arc<Mr>) {
        self.life.follow(&mr.life);
        let bound = Bound { window, mr: Arc::clone(mr), invalidated: AtomicBool::new(false) };
        let before = lock(&self.bound).replace(Arc::new(bound));
        if let Some(before) = before {
            self.life.leave(&before.mr.life);
        }
    }

    /// The window of the youngest Bind, for an Invalidate that was posted for it.
    pub(crate) fn take_invalidated<T>(
        &self,
        post: impl FnOnce(Token) -> Result<T, Status>,
    ) -> Result<T, Status> {
        // Posting may call the consumer back, with no lock held.
        let Some(bound) = lock(&self.bound).clone() else {
            return Err(Status::INVALID_DEVICE_REQUEST); // never bound: there is no token to close
        };
        let posted = post(bound.window)?;
        bound.invalidated.store(true, Ordering::Release);
        Ok(posted)
    }

    /// `NdkCloseMw`: the window dies at once (NDK MW-10).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        if let Some(bound) = lock(&self.bound).as_ref() {
            let _ = self.pd.adapter.raw.revoke(bound.window); // the peer may have closed it
        }
        self.life.close(Box::new(|| ()), Box::new(done))
    }
}
