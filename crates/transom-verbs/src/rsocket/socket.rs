//! A socket: its calls, and the states that they lead through.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::Span;
use super::link::Link;
use super::options::Options;
use super::wait::{News, Waiter};
use super::wire::{Introduction, Word};
use crate::abi::{access, cm_event, qps};
use crate::channel::Channel;
use crate::cm::{Event, Id, Parameters};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory::Region;

/// How long a thread looks at its socket before it sleeps.
const SPIN: Duration = Duration::from_micros(10);
/// How long the end of a socket waits for its peer to have everything.
const LINGER: Duration = Duration::from_secs(10);

/// A socket of type SOCK_STREAM.
#[derive(Debug)]
pub(crate) struct Socket {
    context: Arc<Context>,
    /// Of rdma_cm. Its descriptor is the socket's number.
    channel: Arc<Channel<Event>>,
    pub(crate) news: Arc<News>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    id: Arc<Id>,
    link: Option<Link>,
    options: Options,
    nonblocking: bool,
    /// The program has not ended its directions.
    reads: bool,
    writes: bool,
    /// The connection is over.
    gone: bool,
    /// For SO_ERROR.
    error: Option<Errno>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unconnected,
    Listening,
    Connecting,
    Connected,
    Failed(Errno),
    Closed,
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

impl Inner {
    fn new(id: Arc<Id>, options: Options) -> Inner {
        Inner {
            stage: Stage::Unconnected,
            id,
            link: None,
            options,
            nonblocking: false,
            reads: true,
            writes: true,
            gone: false,
            error: None,
        }
    }

    fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().ok_or(Errno::ENOTCONN)
    }

    /// Make the queue pair and memory of a connection.
    fn make_link(&mut self, context: &Arc<Context>) -> Result<&mut Link> {
        let link = Link::new(context, self.options.sizes)?;
        self.id.move_to(&link.pair, qps::INIT)?;
        link.prepare()?;
        Ok(self.link.insert(link))
    }

    fn fail(&mut self, error: Errno) {
        self.stage = Stage::Failed(error);
        self.error = Some(error);
    }

    /// An event of rdma_cm.
    fn happened(&mut self, event: &Event) {
        let connecting = self.stage == Stage::Connecting;
        match event.kind {
            cm_event::ADDR_ERROR | cm_event::UNREACHABLE | cm_event::CONNECT_ERROR => {
                self.fail(Errno(event.status.abs().max(1)));
            }
            cm_event::REJECTED => self.fail(Errno::ECONNREFUSED),
            cm_event::ESTABLISHED if connecting => match self.establish(&event.private) {
                Ok(()) => self.stage = Stage::Connected,
                Err(error) => self.fail(error),
            },
            cm_event::DISCONNECTED => self.gone = true,
            _ => {}
        }
    }

    fn establish(&mut self, private: &[u8]) -> Result {
        let peer = Introduction::from_bytes(private).ok_or(Errno::EPROTO)?;
        self.id.take_up()?;
        self.link()?.begin(peer);
        Ok(())
    }

    /// The peer sends nothing more, or nothing more can come.
    fn at_end(&self) -> bool {
        !self.reads || self.link.as_ref().is_some_and(|link| !link.peer_sends)
    }

    /// Why nothing can be sent.
    fn broken(&self) -> Option<Errno> {
        match self.stage {
            Stage::Failed(error) => return Some(error),
            Stage::Unconnected | Stage::Listening => return Some(Errno::ENOTCONN),
            Stage::Closed => return Some(Errno::EBADF),
            Stage::Connecting | Stage::Connected => {}
        }
        let link = self.link.as_ref()?;
        if !self.writes || !link.peer_takes {
            return Some(Errno::EPIPE);
        }
        link.failed.or(self.gone.then_some(Errno::ECONNRESET))
    }

    /// Why nothing comes any more although the peer has not ended its direction.
    fn cut(&self) -> Option<Errno> {
        match self.stage {
            Stage::Failed(error) => Some(error),
            Stage::Unconnected | Stage::Listening => Some(Errno::ENOTCONN),
            Stage::Closed => Some(Errno::EBADF),
            Stage::Connecting => None,
            Stage::Connected => {
                let failed = self.link.as_ref().and_then(|link| link.failed);
                failed.or(self.gone.then_some(Errno::ECONNRESET))
            }
        }
    }
}

impl Socket {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Socket>> {
        let channel = Arc::new(Channel::new()?);
        let id = Id::new(context, &channel, false);
        let inner = Inner::new(id, Options::default());
        Ok(Socket::of(context, channel, inner))
    }

    fn of(context: &Arc<Context>, channel: Arc<Channel<Event>>, inner: Inner) -> Arc<Socket> {
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take what has happened. Whoever takes it tells the others that wait.
    fn progress(&self, inner: &mut Inner) {
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
    fn ask<T>(
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
            waiter.sleep(&[self.descriptor()], until)?;
            waiter.clear();
        }
    }

    // ---- connections ----------------------------------------------------------------------------

    pub(crate) fn bind(&self, address: SocketAddr) -> Result {
        let inner = self.lock();
        let one_family = inner.options.get(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? != 0;
        inner.id.lock().one_family = one_family;
        inner.id.bind(address)
    }

    pub(crate) fn listen(&self, backlog: usize) -> Result {
        let mut inner = self.lock();
        match inner.stage {
            Stage::Listening => return Ok(()),
            Stage::Unconnected => {}
            _ => return Err(Errno::EINVAL),
        }
        inner.id.listen(backlog)?;
        inner.stage = Stage::Listening;
        Ok(())
    }

    /// A connection of a peer's, as a socket of its own.
    pub(crate) fn accept(&self) -> Result<Arc<Socket>> {
        self.ask(Patience::OfSocket, |inner| {
            if inner.stage != Stage::Listening {
                return Err(Errno::EINVAL);
            }
            while let Some(event) = self.channel.try_fetch() {
                // A peer that speaks something else, or has gone, is no connection.
                if event.kind == cm_event::CONNECT_REQUEST
                    && let Some(socket) = self.take_up(&event, inner.options.clone())
                {
                    return Ok(Some(socket));
                }
            }
            Ok(None)
        })
    }

    fn take_up(&self, event: &Event, options: Options) -> Option<Arc<Socket>> {
        let id = event.id.clone();
        let connected = || {
            let peer = Introduction::from_bytes(&event.private).ok_or(Errno::EPROTO)?;
            let channel = Arc::new(Channel::new()?);
            id.migrate(&channel);
            let mut inner = Inner::new(id.clone(), options);
            let link = inner.make_link(&self.context)?;
            link.begin(peer);
            let (pair, own) = (link.pair.clone(), link.introduction().to_bytes());
            id.accept(Some(&pair), PARAMETERS, &own)?;
            inner.stage = Stage::Connected;
            Ok(Socket::of(&self.context, channel, inner))
        };
        connected()
            .inspect_err(|_: &Errno| {
                let _ = id.reject(&[]);
            })
            .ok()
    }

    pub(crate) fn connect(&self, peer: SocketAddr) -> Result {
        let nonblocking = {
            let mut inner = self.lock();
            self.progress(&mut inner);
            match inner.stage {
                Stage::Unconnected => self.begin(&mut inner, peer)?,
                Stage::Connecting => {}
                Stage::Connected => return Err(Errno::EISCONN),
                Stage::Failed(error) => return Err(error),
                Stage::Listening => return Err(Errno::EOPNOTSUPP),
                Stage::Closed => return Err(Errno::EBADF),
            }
            inner.nonblocking
        };
        let connected = self.ask(Patience::OfSocket, |inner| match inner.stage {
            Stage::Connecting => Ok(None),
            Stage::Connected => Ok(Some(())),
            Stage::Failed(error) => {
                inner.error = None;
                Err(error)
            }
            _ => Err(Errno::EBADF),
        });
        connected.map_err(|error| match error {
            Errno::EAGAIN if nonblocking => Errno::EINPROGRESS,
            error => error,
        })
    }

    fn begin(&self, inner: &mut Inner, peer: SocketAddr) -> Result {
        inner.id.resolve_address(None, peer)?;
        self.progress(inner);
        if let Stage::Failed(error) = inner.stage {
            inner.error = None;
            return Err(error);
        }
        inner.id.resolve_route()?;
        let link = inner.make_link(&self.context)?;
        let (pair, own) = (link.pair.clone(), link.introduction().to_bytes());
        inner.stage = Stage::Connecting;
        inner.id.connect(Some(&pair), PARAMETERS, &own)
    }

    /// Own address and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let inner = self.lock();
        let id = inner.id.lock();
        (id.local, id.peer.filter(|_| inner.stage == Stage::Connected))
    }

    // ---- bytes ----------------------------------------------------------------------------------

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
        let (id, link) = {
            let mut inner = self.lock();
            inner.stage = Stage::Closed;
            (inner.id.clone(), inner.link.take())
        };
        if let Some(link) = link {
            let _ = id.disconnect(Some(&link.pair));
        }
        id.destroy();
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

    // ---- mapped memory --------------------------------------------------------------------------

    /// The domain in which memory of the program's is registered for the peer: `ENOTCONN` before there
    /// is a connection.
    pub(crate) fn map(
        &self,
        register: impl FnOnce(&Arc<crate::memory::Domain>, u32) -> Result<Arc<Region>>,
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

    // ---- what polls and options ask -------------------------------------------------------------

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

    /// Whether news of rdma_cm may make one of these events hold: a listener's alone is not fetched until
    /// the program accepts.
    pub(crate) fn awaits_connections(&self, asked: Events) -> bool {
        asked & libc::POLLIN != 0 || self.lock().stage != Stage::Listening
    }

    /// Which of the events hold that poll asks for.
    pub(crate) fn events(&self, asked: Events) -> Events {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let pick = |event: Events, holds: bool| if holds { event } else { 0 };
        match inner.stage {
            Stage::Listening => asked & pick(libc::POLLIN, self.channel.has_events()),
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

impl Inner {
    /// Tell the peer which directions the program has ended.
    fn say_end(&mut self) {
        let reads = self.reads;
        let Some(link) = &mut self.link else { return };
        let word = if reads && link.peer_sends { Word::Shutdown } else { Word::Disconnect };
        if link.peer_takes && link.failed.is_none() {
            // A queue that is full has requests that fail, and the peer's end is one of them.
            let _ = link.say(word);
        }
    }
}

/// Nothing is read over the connection.
const PARAMETERS: Parameters =
    Parameters { responder_resources: 0, initiator_depth: 0, retry_count: 7, rnr_retry_count: 7 };
