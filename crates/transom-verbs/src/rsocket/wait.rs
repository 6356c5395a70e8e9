//! Threads that wait for news of sockets.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};
use transom_engine::raw;

use crate::errno::{Errno, Result};

/// The descriptor of a thread that waits.
#[derive(Debug)]
pub(crate) struct Waiter(OwnedFd);

impl Waiter {
    pub(crate) fn new() -> Result<Arc<Waiter>> {
        Ok(Arc::new(Waiter(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    fn ring(&self) {
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// A notification from now on ends the next sleep.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = read(&self.0, &mut count);
    }

    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Sleep until something rings, or one of `others` can be read, or `until`.
    ///
    /// # Errors
    /// `EINTR`; `EBADF` if the program has closed one of them: a thread that went on would never sleep.
    pub(crate) fn sleep(&self, others: &[BorrowedFd<'_>], until: Option<Instant>) -> Result {
        let mut fds = vec![PollFd::new(&self.0, PollFlags::IN)];
        fds.extend(others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        poll(&mut fds, left.map(timespec).as_ref())?;
        let closed = fds.iter().any(|fd| fd.revents().contains(PollFlags::NVAL));
        if closed { Err(Errno::EBADF) } else { Ok(()) }
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

/// The waiters for news of a socket. A thread that has changed the socket, or taken completions that others may
/// wait for, rings; a waiter enters before it looks, so that nothing is missed.
#[derive(Debug, Default)]
pub(crate) struct News {
    waiters: Mutex<Vec<Arc<Waiter>>>,
    /// A notification of the completion queue is outstanding.
    armed: AtomicBool,
}

/// A waiter's entry, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    news: Arc<News>,
    waiter: Arc<Waiter>,
}

impl News {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Waiter>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<News>, waiter: &Arc<Waiter>) -> Entered {
        self.lock().push(waiter.clone());
        Entered { news: self.clone(), waiter: waiter.clone() }
    }

    pub(crate) fn ring(&self) {
        for waiter in self.lock().iter() {
            waiter.ring();
        }
    }

    /// The next completion of `queue` rings.
    pub(crate) fn arm(self: &Arc<News>, queue: &raw::CompletionQueue) -> Result {
        if self.armed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let news = Arc::downgrade(self);
        let sink = raw::Sink::call(move |_| {
            if let Some(news) = news.upgrade() {
                news.armed.store(false, Ordering::Release);
                news.ring();
            }
        });
        let asked = queue.notify(transom_engine::NotifyKind::Any, sink);
        asked.inspect_err(|_| self.armed.store(false, Ordering::Release))?;
        Ok(())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut waiters = self.news.lock();
        if let Some(at) = waiters.iter().position(|known| Arc::ptr_eq(known, &self.waiter)) {
            waiters.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v137_a_ring_before_the_sleep_ends_it() {
        let (news, waiter) = (Arc::new(News::default()), Waiter::new().unwrap());
        let entered = news.enter(&waiter);
        news.ring();
        waiter.sleep(&[], None).unwrap();
        waiter.clear();
        drop(entered);
        news.ring();
        waiter.sleep(&[], Some(Instant::now())).unwrap();
        assert!(read(&waiter.0, &mut [0; 8]).is_err());
    }
}
