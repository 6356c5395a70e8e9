//! A socket: how its calls wait, its options, and what poll asks.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::options::Options;
use super::state::{Inner, Stage};
use super::wait::{News, Waiter};
use crate::channel::Channel;
use crate::cm::{Devices, Event, Id};
use crate::context::Context;
use crate::errno::{Errno, Result};

/// How long a thread looks at its socket before it sleeps.
const SPIN: Duration = Duration::from_micros(10);
/// A socket of type SOCK_STREAM.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(super) context: Arc<Context>,
    /// Of rdma_cm. Its descriptor is the socket's number.
    pub(super) channel: Arc<Channel<Event>>,
    pub(crate) news: Arc<News>,
    pub(super) inner: Mutex<Inner>,
}

/// The bits of poll that hold.
pub(crate) type Events = i16;

/// How a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As the socket says.
    OfSocket,
    /// Not at all.
    None,
    /// Whatever the socket says, until then.
    Until(Instant),
}

impl Socket {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Socket>> {
        let channel = Arc::new(Channel::new()?);
        let id = Id::new(&Devices::new(context.clone(), Vec::new()), 0, &channel, false);
        let inner = Inner::new(id, Options::default());
        Ok(Socket::of(context, channel, inner))
    }

    pub(super) fn of(
        context: &Arc<Context>,
        channel: Arc<Channel<Event>>,
        inner: Inner,
    ) -> Arc<Socket> {
        let (context, news, inner) = (context.clone(), Arc::default(), Mutex::new(inner));
        Arc::new(Socket { context, channel, news, inner })
    }

    pub(crate) fn number(&self) -> i32 {
        self.channel.fd()
    }

    /// The descriptor that can be read when rdma_cm has news.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take what has happened. Whoever takes it tells the others that wait.
    pub(super) fn progress(&self, inner: &mut Inner) {
        let mut news = false;
        if inner.stage != Stage::Listening {
            while let Some(event) = self.channel.try_fetch() {
                news = true;
                inner.happened(&event);
            }
        }
        if let Some(link) = &mut inner.link {
            news |= link.progress();
        }
        if news {
            self.news.ring();
        }
    }

    /// The next thing that happens rings.
    pub(crate) fn arm(&self) -> Result {
        let inner = self.lock();
        match &inner.link {
            Some(link) => self.news.arm(&link.queue.engine),
            None => Ok(()),
        }
    }

    /// Ask until there is an answer.
    pub(super) fn ask<T>(
        &self,
        patience: Patience,
        mut answer: impl FnMut(&mut Inner) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut look = || {
            let mut inner = self.lock();
            self.progress(&mut inner);
            let waits = match patience {
                Patience::OfSocket => !inner.nonblocking,
                Patience::None => false,
                Patience::Until(deadline) => Instant::now() < deadline,
            };
            match answer(&mut inner) {
                Ok(None) if !waits => Err(Errno::EAGAIN),
                answered => answered,
            }
        };
        let begin = Instant::now();
        loop {
            if let Some(answered) = look()? {
                return Ok(answered);
            }
            if begin.elapsed() > SPIN {
                break;
            }
            std::hint::spin_loop();
        }
        let until = if let Patience::Until(until) = patience { Some(until) } else { None };
        let waiter = Waiter::new()?;
        let _entered = self.news.enter(&waiter);
        loop {
            self.arm()?;
            if let Some(answered) = look()? {
                return Ok(answered);
            }
            waiter.sleep(self.awaited().as_slice(), until)?;
            waiter.clear();
        }
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.lock().nonblocking = nonblocking;
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.lock().nonblocking
    }

    pub(crate) fn set_option(&self, level: i32, name: i32, value: i32) -> Result {
        let mut inner = self.lock();
        let begun = matches!(inner.stage, Stage::Connecting | Stage::Connected);
        inner.options.set(level, name, value, begun)
    }

    pub(crate) fn option(&self, level: i32, name: i32) -> Result<i32> {
        let mut inner = self.lock();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                self.progress(&mut inner);
                Ok(inner.error.take().map_or(0, |error| error.0))
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                Ok(i32::from(inner.stage == Stage::Listening))
            }
            _ => inner.options.get(level, name),
        }
    }

    /// The descriptor to sleep for, besides the news: what comes to a listener is its thread's.
    pub(crate) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        (self.lock().stage != Stage::Listening).then(|| self.descriptor())
    }

    /// Which of the events hold that poll asks for.
    pub(crate) fn events(&self, asked: Events) -> Events {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let pick = |event: Events, holds: bool| if holds { event } else { 0 };
        match inner.stage {
            Stage::Listening => asked & pick(libc::POLLIN, !inner.waiting.is_empty()),
            Stage::Connecting => 0,
            Stage::Unconnected => libc::POLLHUP | asked & libc::POLLOUT,
            Stage::Failed(_) => {
                libc::POLLERR | libc::POLLHUP | asked & (libc::POLLIN | libc::POLLOUT)
            }
            Stage::Closed => libc::POLLNVAL,
            Stage::Connected => {
                let cut = inner.cut().is_some();
                let ends = inner.at_end();
                let failed = inner.broken().is_some();
                let Some(link) = &mut inner.link else { return libc::POLLERR };
                // Programs that take POLLHUP for the end would miss the bytes before it.
                let here = link.available() > 0;
                asked & pick(libc::POLLIN, here || ends || cut)
                    | asked & pick(libc::POLLOUT, failed || link.can_send())
                    | pick(libc::POLLHUP, ends && failed && !here)
                    | pick(libc::POLLERR, cut && !ends && !here)
                    | asked & pick(libc::POLLRDHUP, ends)
            }
        }
    }
}
