//! Connections of sockets: to listen, accept and connect.

use std::net::SocketAddr;
use std::sync::Arc;

use transom_engine::raw;

use super::options::Options;
use super::socket::{Patience, Socket};
use super::state::{Inner, Stage};
use super::wait::Waiter;
use super::wire::Introduction;
use crate::abi::cm_event;
use crate::channel::Channel;
use crate::cm::{Event, Parameters};
use crate::errno::{Errno, Result};

/// Connections that are made and that the program has not accepted, at most: each has buffers.
const MOST_WAITING: usize = 64;

/// Nothing is read over the connection.
const PARAMETERS: Parameters = Parameters {
    responder_resources: 0,
    initiator_depth: 0,
    retry_count: 7,
    rnr_retry_count: 7,
    number: 0,
};

impl Socket {
    pub(crate) fn bind(&self, address: SocketAddr) -> Result {
        let inner = self.lock();
        let one_family = inner.options.get(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? != 0;
        inner.id.take_one_family(one_family)?;
        inner.id.bind(address)
    }

    pub(crate) fn listen(self: &Arc<Socket>, backlog: i32) -> Result {
        let mut inner = self.lock();
        match inner.stage {
            Stage::Listening => return Ok(()),
            Stage::Unconnected => {}
            _ => return Err(Errno::EINVAL),
        }
        let waiter = Waiter::new()?;
        let socket = self.clone();
        // Looks at the stage once this call has given the lock back.
        raw::spawn_quiet("transom-rsocket", move || socket.take_requests(&waiter))?;
        inner.id.listen(backlog, || {})?;
        inner.room = usize::try_from(backlog).map_or(MOST_WAITING, |n| n.clamp(1, MOST_WAITING));
        inner.stage = Stage::Listening;
        Ok(())
    }

    /// Connect peers whether or not the program has come to accept them, as far as there is room, until the socket is
    /// closed (Verbs V137).
    fn take_requests(self: Arc<Socket>, waiter: &Arc<Waiter>) {
        let _entered = self.news.enter(waiter);
        loop {
            waiter.clear();
            let (options, full) = {
                let inner = self.lock();
                if inner.stage != Stage::Listening {
                    return;
                }
                (inner.options.clone(), inner.is_full())
            };
            let event = if full { None } else { self.channel.try_fetch() };
            let Some(event) = event else {
                let request = (!full).then(|| self.descriptor());
                match waiter.sleep(request.as_slice(), None) {
                    Ok(()) | Err(Errno::EINTR) => continue,
                    Err(_) => return,
                }
            };
            // A peer that speaks something else, or has gone, is no connection.
            if event.kind == cm_event::CONNECT_REQUEST
                && let Some(socket) = self.take_up(&event, options)
            {
                self.give(socket);
            }
        }
    }

    /// A connection for the program to accept.
    fn give(&self, socket: Arc<Socket>) {
        let mut inner = self.lock();
        if inner.stage == Stage::Listening {
            inner.add_waiting(socket);
            drop(inner);
            self.news.ring();
        } else {
            drop(inner);
            socket.abandon();
        }
    }

    /// A connection of a peer's, as a socket of its own.
    pub(crate) fn accept(&self) -> Result<Arc<Socket>> {
        let accepted = self.ask(Patience::OfSocket, |inner| {
            if inner.stage != Stage::Listening {
                return Err(Errno::EINVAL);
            }
            Ok(inner.waiting.pop_front().map(|waiting| waiting.socket))
        })?;
        // There is room for another one.
        self.news.ring();
        Ok(accepted)
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
        inner.id.resolve_address(None, peer, || {})?;
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
}
