//! An end of a connection, as the engine has it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use transom_engine::raw::{self, ReadLimits, Sink};
use transom_engine::{Data, Flags, Operation, Request, Sge};
use transom_memory::ConnectionId;

use crate::error::{Error, Result};
use crate::status::connect_error;
use crate::{BUFFERS_LIMIT, QUEUE_DEPTH};

/// Reads under way at a time, either way.
const READS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

/// Goes with every refusal, so that the other side can tell a program that refuses from a port that
/// has no listener (WSD C-5).
pub(crate) const REFUSAL: &[u8] = &[1];

/// An end of a connection: a protection domain of its own, a queue pair, a completion queue.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) adapter: raw::Adapter,
    pub(crate) domain: raw::Domain,
    pub(crate) queue_pair: raw::QueuePair,
    pub(crate) queue: raw::CompletionQueue,
    pub(crate) connector: raw::Connector,
    /// See [`Connection::id`].
    id: OnceLock<ConnectionId>,
}

impl Connection {
    pub(crate) fn new(
        adapter: &raw::Adapter,
        connector: raw::Connector,
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
            number: None,
        };
        let queue_pair = adapter.queue_pair(domain, &queue, &queue, None, &options)?;
        Ok(Arc::new(Connection {
            adapter: adapter.clone(),
            domain,
            queue_pair,
            queue,
            connector,
            id: OnceLock::new(),
        }))
    }

    pub(crate) fn connect(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        sink: Sink,
    ) -> Result<()> {
        let any = SocketAddr::new(self.adapter.address(), 0);
        self.connector.bind(from.unwrap_or(any)).map_err(|e| connect_error(e.status, false))?;
        let result = self.connector.connect(&self.queue_pair, to, READS, &[], sink);
        result.map_err(|e| connect_error(e.status, false))
    }

    pub(crate) fn accept(&self, sink: Sink) -> Result<()> {
        Ok(self.connector.accept(&self.queue_pair, READS, &[], sink)?)
    }

    /// The connection is up: registrations can belong to it from now on.
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
        let connected = Connection::new(adapter, adapter.connector()?)?;
        let _ = connected.id.set(ConnectionId { number: u32::MAX, epoch: 1 });
        Ok(connected)
    }

    /// Loses the connection as the engine does when the peer is gone, before it reports that.
    pub(crate) fn lose(&self) {
        self.adapter.close_connection(*self.id.get().unwrap());
    }
}
