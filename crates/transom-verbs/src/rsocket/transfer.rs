//! The bytes of a connection: to send and to receive, mapped memory, and the ends of both directions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffer::Span;
use super::link::Link;
use super::socket::{Patience, Socket};
use super::state::{Stage, Waiting};
use crate::abi::access;
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Region};

/// How long the end of a socket waits for its peer to have everything.
const LINGER: Duration = Duration::from_secs(10);

impl Socket {
    /// Receive bytes: as many as are there, or all if `whole`. 0: the peer has ended its direction.
    pub(crate) fn receive(
        &self,
        into: Span,
        (whole, peek): (bool, bool),
        patience: Patience,
    ) -> Result<usize> {
        let mut done = 0;
        let result = self.ask(patience, |inner| {
            if inner.link.as_ref().is_some_and(|link| link.available() > 0) && inner.reads {
                done += inner.link()?.take(into.behind(done), peek);
                if done == into.len() || !whole || peek {
                    return Ok(Some(()));
                }
            }
            if inner.at_end() || into.len() == 0 {
                return Ok(Some(()));
            }
            inner.cut().map_or(Ok(None), Err)
        });
        match result {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    /// Send all bytes, or as many as go at once.
    pub(crate) fn send(&self, from: Span, patience: Patience) -> Result<usize> {
        self.sending(from, patience, |link, rest, _| link.give(rest).map(Some))
    }

    fn sending(
        &self,
        from: Span,
        patience: Patience,
        mut give: impl FnMut(&mut Link, Span, usize) -> Result<Option<usize>>,
    ) -> Result<usize> {
        let mut done = 0;
        let result = self.ask(patience, |inner| {
            if let Some(error) = inner.broken() {
                return Err(error);
            }
            if inner.stage == Stage::Connected {
                match give(inner.link()?, from.behind(done), done)? {
                    Some(given) => done += given,
                    None => return Ok(Some(())),
                }
            }
            Ok((done == from.len()).then_some(()))
        });
        match result {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    /// The program ends directions of its own: `how` as of `shutdown`.
    pub(crate) fn shutdown(&self, how: i32) -> Result {
        {
            let mut inner = self.lock();
            self.progress(&mut inner);
            if inner.stage != Stage::Connected {
                return Err(Errno::ENOTCONN);
            }
            let wrote = inner.writes;
            match how {
                libc::SHUT_RD => inner.reads = false,
                libc::SHUT_WR => inner.writes = false,
                libc::SHUT_RDWR => (inner.reads, inner.writes) = (false, false),
                _ => return Err(Errno::EINVAL),
            }
            if wrote && !inner.writes {
                inner.say_end();
            }
        }
        self.news.ring();
        Ok(())
    }

    /// The program closes the socket: the peer gets what was sent, and learns that it was all.
    pub(crate) fn close(&self) {
        {
            let mut inner = self.lock();
            self.progress(&mut inner);
            if inner.stage == Stage::Connected {
                inner.reads = false;
                inner.say_end();
                inner.writes = false;
            }
        }
        let until = Instant::now() + LINGER;
        let arrived = || {
            self.ask(Patience::Until(until), |inner| {
                let waits = inner.stage == Stage::Connected && !inner.gone;
                let link = inner.link.as_ref().filter(|link| waits && link.failed.is_none());
                Ok(link.is_none_or(Link::is_idle).then_some(()))
            })
        };
        // A peer that has not got everything by then finds its connection reset.
        while arrived() == Err(Errno::EINTR) {}
        self.abandon();
    }

    /// End the socket and its connection as they are, and those that it would have accepted.
    pub(super) fn abandon(&self) {
        let (id, link, waiting) = {
            let mut inner = self.lock();
            inner.stage = Stage::Closed;
            (inner.id.clone(), inner.link.take(), std::mem::take(&mut inner.waiting))
        };
        if let Some(link) = link {
            let _ = id.disconnect(Some(&link.pair));
        }
        id.destroy();
        for Waiting { socket, .. } in waiting {
            socket.abandon();
        }
        self.news.ring();
    }

    /// The process ends: what can be said without waiting.
    pub(crate) fn say_goodbye(&self) {
        if let Ok(mut inner) = self.inner.try_lock()
            && inner.stage == Stage::Connected
        {
            inner.reads = false;
            inner.say_end();
        }
    }

    /// The domain in which memory of the program's is registered for the peer: `ENOTCONN` before there
    /// is a connection.
    pub(crate) fn map(
        &self,
        register: impl FnOnce(&Arc<Domain>, u32) -> Result<Arc<Region>>,
        offset: u64,
        shared: bool,
    ) -> Result {
        let mut inner = self.lock();
        let link = inner.link()?;
        let rights = if shared { access::REMOTE_WRITE } else { 0 } | access::LOCAL_WRITE;
        let region = register(link.domain(), rights)?;
        let mapped = link.map(region.clone(), offset, !shared);
        mapped.inspect_err(|_| {
            let _ = region.deregister();
        })
    }

    pub(crate) fn unmap(&self, address: u64, length: u64) -> Result {
        self.lock().link()?.unmap(address, length)
    }

    /// Write into what the peer has mapped at an offset; how much. Fewer than all: the peer has mapped
    /// no more.
    pub(crate) fn write_mapped(
        &self,
        from: Span,
        offset: u64,
        patience: Patience,
    ) -> Result<usize> {
        self.sending(from, patience, |link, rest, done| {
            link.write_mapped(rest, offset.wrapping_add(done as u64))
        })
    }
}
