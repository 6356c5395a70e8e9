//! An end of a connection, as the engine has it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use transom_engine::raw::{self, ReadLimits, Sink};
use transom_engine::{Data, Flags, Operation, Request, Sge, Status};
use transom_memory::ConnectionId;

use crate::error::{Error, Result};
use crate::hello::Hello;
use crate::provider::lock;
use crate::status::connect_error;
use crate::{BUFFERS_LIMIT, QUEUE_DEPTH};

/// Reads under way at a time, either way.
const READS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

/// Goes with every refusal, so that the other side can tell a program that refuses from a listener
/// that has gone (WSD C-5).
pub(crate) const REFUSAL: &[u8] = &[1];

/// An end of a connection: a protection domain of its own, a queue pair, a completion queue.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) adapter: raw::Adapter,
    pub(crate) domain: raw::Domain,
    pub(crate) queue_pair: raw::QueuePair,
    pub(crate) queue: raw::CompletionQueue,
    pub(crate) connector: raw::Connector,
    /// This end's greeting.
    pub(crate) own: Hello,
    /// The other end's, once it is known.
    peer: OnceLock<Hello>,
    /// The question where the peer listens, while it has no answer.
    question: Mutex<Option<raw::PortQuestion>>,
    /// See [`Connection::id`].
    id: OnceLock<ConnectionId>,
}

/// A call that the first of several holders makes.
fn once<T>(f: impl FnOnce(T) + Send + 'static) -> impl Fn(T) + Clone + Send + 'static {
    let f = Arc::new(Mutex::new(Some(f)));
    move |value| {
        let f = lock(&f).take();
        if let Some(f) = f {
            f(value);
        }
    }
}

impl Connection {
    pub(crate) fn new(
        adapter: &raw::Adapter,
        connector: raw::Connector,
        own: Hello,
    ) -> Result<Arc<Connection>> {
        let domain = adapter.domain()?;
        // Every request and every receive has its place in it.
        let queue = adapter.completion_queue(2 * QUEUE_DEPTH as usize)?;
        let options = raw::QueuePairOptions {
            context: 0,
            initiator_depth: QUEUE_DEPTH,
            receive_depth: QUEUE_DEPTH,
            initiator_sge: BUFFERS_LIMIT as u32,
            receive_sge: BUFFERS_LIMIT as u32,
            inline_size: 0,
            ..raw::QueuePairOptions::default()
        };
        let queue_pair = adapter.queue_pair(domain, &queue, &queue, None, &options)?;
        Ok(Arc::new(Connection {
            adapter: adapter.clone(),
            domain,
            queue_pair,
            queue,
            connector,
            own,
            peer: OnceLock::new(),
            question: Mutex::default(),
            id: OnceLock::new(),
        }))
    }

    /// Find the provider's listener that stands for port `peer`, and connect to it. `done` is called
    /// once, with no lock held.
    pub(crate) fn find(
        self: &Arc<Self>,
        from: SocketAddr,
        peer: SocketAddr,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let done = once(done);
        let (connection, ended) = (Arc::downgrade(self), done.clone());
        let asked = self.adapter.find_port(peer, move |found| match found {
            Err(status) => ended(Err(connect_error(status, false))),
            Ok(at) => match connection.upgrade() {
                Some(connection) => connection.connect(from, at, ended),
                None => ended(Err(Error::WSA_OPERATION_ABORTED)),
            },
        });
        match asked {
            Ok(question) => *lock(&self.question) = Some(question),
            Err(e) => done(Err(connect_error(e.status, false))),
        }
    }

    /// Connect to a provider's listener at its own TCP port. `done` as of [`Connection::find`].
    pub(crate) fn connect(
        self: &Arc<Self>,
        from: SocketAddr,
        to: SocketAddr,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let done = once(done);
        let (connection, ended) = (Arc::downgrade(self), done.clone());
        let sink = Sink::call(move |status| {
            ended(match connection.upgrade() {
                _ if status == Status::Success => Ok(()),
                Some(connection) => Err(connection.refused(status)),
                None => Err(Error::WSA_OPERATION_ABORTED),
            });
        });
        let hello = self.own.to_bytes();
        let begun = self
            .connector
            .bind(from)
            .and_then(|()| self.connector.connect(&self.queue_pair, to, READS, &hello, sink));
        if let Err(e) = begun {
            done(Err(connect_error(e.status, false)));
        }
    }

    fn refused(&self, status: Status) -> Error {
        connect_error(status, self.connector.private_data().is_ok_and(|said| !said.is_empty()))
    }

    /// Accept the peer's request. `sink` hears when the peer has taken the last step.
    pub(crate) fn accept(&self, sink: Sink) -> Result<()> {
        let hello = self.own.to_bytes();
        Ok(self.connector.accept(&self.queue_pair, READS, &hello, sink)?)
    }

    /// The peer has accepted, with its greeting. `false`: it has left since, and that went with it.
    pub(crate) fn accepted(&self) -> Result<bool> {
        let Ok(said) = self.connector.private_data() else { return Ok(false) };
        self.greeted(Hello::read(&said).ok_or(Error::WSAECONNABORTED)?);
        Ok(true)
    }

    /// Take the last step.
    pub(crate) fn complete(&self) -> Result<()> {
        Ok(self.connector.complete_connect()?)
    }

    /// The peer has greeted.
    pub(crate) fn greeted(&self, hello: Hello) {
        let _ = self.peer.set(hello);
    }

    /// Where the peer takes this connection when another process has it, and its name there.
    pub(crate) fn continued_at(&self) -> Option<(SocketAddr, crate::hello::Secret)> {
        let hello = self.peer.get().filter(|hello| hello.takes_at != 0)?;
        let peer = self.connector.peer().ok()?;
        Some((SocketAddr::new(peer.ip(), hello.takes_at), hello.secret))
    }

    /// The connection has its name: registrations can belong to it from now on.
    pub(crate) fn name(&self) -> Result<()> {
        let connection = self.connector.connection().ok_or(Error::WSAECONNRESET)?;
        let _ = self.id.set(connection);
        Ok(())
    }

    /// The connection's name in the memory table, once it is up.
    pub(crate) fn id(&self) -> Option<ConnectionId> {
        self.id.get().copied()
    }

    /// Post a request whose data are `list`.
    pub(crate) fn post(
        &self,
        context: u64,
        operation: Operation,
        flags: Flags,
        list: &[Sge],
    ) -> Result<()> {
        let request = Request { context, operation, flags };
        Ok(self.queue_pair.post(&request, Data::Sges(list))?)
    }

    /// End the connection: every request is flushed, and every token of it dead, when this returns.
    pub(crate) fn end(&self) {
        // Cancels the question, which calls back: with the lock released.
        let question = lock(&self.question).take();
        drop(question);
        let _ = self.queue_pair.flush();
        let _ = self.connector.cancel();
        if self.connector.disconnect(Sink::call(|_| ())).is_err() {
            // Not, or no longer, connected: there is nothing to say to the peer.
        }
        if let Some(connection) = self.id.get() {
            self.adapter.close_connection(*connection);
        }
    }
}

#[cfg(test)]
impl Connection {
    /// A connection that counts as up, and has no peer.
    pub(crate) fn lone(adapter: &raw::Adapter) -> Result<Arc<Connection>> {
        let own = Hello { port: 0, takes_at: 0, secret: [0; 16], continues: None };
        let connected = Connection::new(adapter, adapter.connector()?, own)?;
        let _ = connected.id.set(ConnectionId { number: u32::MAX, epoch: 1 });
        Ok(connected)
    }

    /// Loses the connection as the engine does when the peer is gone, before it reports that.
    pub(crate) fn lose(&self) {
        self.adapter.close_connection(*self.id.get().unwrap());
    }
}
