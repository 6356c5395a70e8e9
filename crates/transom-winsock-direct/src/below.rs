//! The engine as this front uses it, and its answers in this front's words.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use transom_engine::raw::{self, ReadLimits, Sink};
use transom_engine::{
    Completion, Data, Flags, NotifyKind, Operation, Request, Sge, Status, dialect,
};
use transom_memory::{ConnectionId, Purpose, Rights, Scope, Segment, Token, Unless};

use crate::abi::mem;
use crate::data::Direction;
use crate::error::{Error, Result};
use crate::memory::Key;
use crate::{BUFFERS_LIMIT, QUEUE_DEPTH, SIZE_LIMIT};

/// Reads under way at a time, either way.
const READS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

/// Goes with every refusal, so that the other side can tell a program that refuses from a port that
/// is nobody's (C-5).
pub(crate) const REFUSAL: &[u8] = &[1];

/// What a call's failure is called here.
pub(crate) fn error(status: Status) -> Error {
    match status {
        Status::LocalAccess => Error::WSAEFAULT,
        Status::ConnectionRefused => Error::WSAECONNREFUSED,
        Status::HostUnreachable | Status::NetworkUnreachable | Status::BadNetworkName => {
            Error::WSAEHOSTUNREACH
        }
        Status::InvalidAddress => Error::WSAEADDRNOTAVAIL,
        Status::SharingViolation => Error::WSAEADDRINUSE,
        Status::IoTimeout => Error::WSAETIMEDOUT,
        Status::ConnectionAborted => Error::WSAECONNABORTED,
        Status::ConnectionInvalid => Error::WSAENOTCONN,
        Status::DeviceRemoved => Error::WSAENETDOWN,
        Status::NoMoreEntries | Status::InsufficientResources | Status::TooManyAddresses => {
            Error::WSAENOBUFS
        }
        Status::BufferOverflow => Error::WSAEMSGSIZE,
        _ => Error::WSAEINVAL,
    }
}

#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn failed(e: raw::Error) -> Error {
    error(e.status)
}

/// What a connect's failure is called (C-5): a definitive error only with its guarantee.
/// `answered`: the peer's program has said no, rather than the port being nobody's.
pub(crate) fn connect_error(status: Status, answered: bool) -> Error {
    match status {
        Status::ConnectionRefused if answered => Error::WSAECONNREFUSED,
        Status::ConnectionRefused => Error::WSAECONNRESET,
        Status::HostUnreachable | Status::NetworkUnreachable => Error::WSAEHOSTUNREACH,
        Status::SharingViolation => Error::WSAEADDRINUSE,
        Status::InvalidAddress => Error::WSAEADDRNOTAVAIL,
        _ => Error::WSAETIMEDOUT,
    }
}

/// How a completion failed, and whether this error stays the connection's: `None` is success.
pub(crate) fn completion_error(completion: &Completion) -> Option<(Error, bool)> {
    Some(match completion.status {
        Status::Success => return None,
        Status::Canceled => (Error::WSA_OPERATION_ABORTED, true),
        Status::LocalAccess => (Error::WSAEFAULT, false),
        Status::ReceiveTooSmall => (Error::WSAEMSGSIZE, false),
        _ => (Error::WSAECONNABORTED, true),
    })
}

// ---- adapter ----

pub(crate) fn open(address: IpAddr) -> Result<raw::Adapter> {
    let options = raw::Options {
        dialect: &dialect::WSD,
        largest_transfer: u64::from(SIZE_LIMIT),
        ..raw::Options::default()
    };
    raw::Adapter::open(address, options).map_err(failed)
}

pub(crate) fn addresses() -> Vec<IpAddr> {
    raw::interfaces().map_or_else(|_| Vec::new(), |all| all.iter().map(|one| one.address).collect())
}

// ---- connections ----

/// One end of a connection: a protection domain of its own, a queue pair, a completion queue.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) adapter: raw::Adapter,
    domain: raw::Domain,
    pub(crate) queue_pair: raw::QueuePair,
    pub(crate) queue: raw::CompletionQueue,
    pub(crate) connector: raw::Connector,
    /// The connection's name in the memory table, once it is up.
    connection: OnceLock<ConnectionId>,
}

impl Connected {
    pub(crate) fn new(adapter: &raw::Adapter, connector: raw::Connector) -> Result<Arc<Connected>> {
        let domain = adapter.domain().map_err(failed)?;
        // Every request and every receive has its place in it.
        let queue = adapter.completion_queue(2 * QUEUE_DEPTH as usize).map_err(failed)?;
        let options = raw::QueuePairOptions {
            context: 0,
            initiator_depth: QUEUE_DEPTH,
            receive_depth: QUEUE_DEPTH,
            initiator_sge: BUFFERS_LIMIT as u32,
            receive_sge: BUFFERS_LIMIT as u32,
            inline_size: 0,
        };
        let queue_pair =
            adapter.queue_pair(domain, &queue, &queue, None, &options).map_err(failed)?;
        Ok(Arc::new(Connected {
            adapter: adapter.clone(),
            domain,
            queue_pair,
            queue,
            connector,
            connection: OnceLock::new(),
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
        self.connector.accept(&self.queue_pair, READS, &[], sink).map_err(failed)
    }

    /// It is up: registrations can belong to it from now on.
    pub(crate) fn name(&self) -> Result<()> {
        let connection = self.connector.connection().ok_or(Error::WSAECONNRESET)?;
        let _ = self.connection.set(connection);
        Ok(())
    }

    /// End the connection: every request is flushed, and every token of it dead, when this returns.
    pub(crate) fn end(&self) {
        let _ = self.queue_pair.flush();
        let _ = self.connector.cancel();
        if self.connector.disconnect(Sink::call(|_| ())).is_err() {
            // Not, or no longer, connected: there is nothing to say to the peer.
        }
        if let Some(connection) = self.connection.get() {
            self.adapter.close_connection(*connection);
        }
    }
}

#[cfg(test)]
impl Connected {
    /// One that says that it is up, and has no peer.
    pub(crate) fn lone(adapter: &raw::Adapter) -> Result<Arc<Connected>> {
        let connected = Connected::new(adapter, adapter.connector().map_err(failed)?)?;
        let _ = connected.connection.set(ConnectionId { number: u32::MAX, epoch: 1 });
        Ok(connected)
    }

    /// What the engine does when the peer is gone, before anybody hears of it.
    pub(crate) fn lose(&self) {
        self.adapter.close_connection(*self.connection.get().unwrap());
    }
}

// ---- memory ----

/// What a refusal of the memory table is called. A registration that died with its connection is not
/// the switch's mistake, though the socket has not heard of it yet.
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
fn refused(e: raw::Error) -> Error {
    match e.status {
        Status::ConnectionInvalid => Error::WSAECONNRESET,
        Status::DeviceRemoved => failed(e),
        _ => Error::WSAEFAULT,
    }
}

/// What a refused registration is called.
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
fn unregistered(e: raw::Error) -> Error {
    match e.status {
        Status::InvalidParameter(1) => Error::WSAEFAULT, // the address wraps around
        _ => failed(e),
    }
}

/// What a deregistration is called. A region that died with its connection or its memory counts as
/// deregistered.
fn gone(deregistered: raw::Result<()>) -> Result<()> {
    match deregistered {
        Err(e) if e.status == Status::InvalidParameter(0) => Ok(()),
        other => other.map_err(failed),
    }
}

/// A registration: its token, in its adapter's table.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    adapter: raw::Adapter,
    pub(crate) token: Token,
}

#[allow(unsafe_code, reason = "hands the switch's promise on")]
impl Region {
    /// Belongs to this connection and dies with it. There must be memory behind all of
    /// it, at each registration: pages come and go.
    ///
    /// # Safety
    /// As [`raw::Adapter::register_in`], until it is deregistered or closed.
    pub(crate) unsafe fn of_connection(
        connected: &Connected,
        rights: Rights,
        base: u64,
        key: Key,
    ) -> Result<Region> {
        let connection = connected.connection.get().ok_or(Error::WSAENOTCONN)?;
        let write = key.flags & mem::WRITE != 0;
        let (host, length) = (key.address, u64::from(key.length));
        raw::check_pages(host, length, write).map_err(|_| Error::WSAEFAULT)?;
        let adapter = &connected.adapter;
        let scope = Scope::Connection(connected.domain.0, *connection);
        let segments = [Segment { host, length }];
        // SAFETY: this function's contract.
        let token = unsafe { adapter.register_in(scope, base, &segments, rights) };
        Ok(Region { adapter: adapter.clone(), token: token.map_err(unregistered)? })
    }
}

impl Region {
    /// Whether the memory table permits this use of it to this connection's own program.
    pub(crate) fn permits(
        &self,
        connected: &Connected,
        purpose: Purpose,
        address: u64,
        length: u32,
    ) -> Result<()> {
        let entry = Sge { token: self.token.0, address, length };
        let connection = connected.connection.get().copied();
        connected.queue_pair.probe(connection, purpose, &entry).map_err(refused)
    }

    /// Whether it has a byte in this range of the process.
    pub(crate) fn touches(&self, address: u64, length: u64) -> bool {
        self.adapter.touches(self.token, address, length)
    }

    /// A request that uses it is about to be posted: it cannot be deregistered until
    /// [`Region::release`].
    pub(crate) fn hold(&self) -> Result<()> {
        self.adapter.hold(self.token).map_err(refused)
    }

    pub(crate) fn release(&self) {
        self.adapter.release(self.token);
    }

    /// WSAEINVAL while requests that use it are posted (5.7).
    pub(crate) fn deregister(&self) -> Result<()> {
        let unless = Unless { windows: true, posted: true, ..Unless::default() };
        gone(self.adapter.deregister_unless(self.token, unless))
    }

    /// WSAEINVAL while a transfer of the peer's uses it, from its first byte to its last (5.7).
    pub(crate) fn withdraw(&self, connected: &Connected) -> Result<()> {
        gone(connected.queue_pair.deregister_unused(self.token))
    }

    /// End it, whatever uses it.
    pub(crate) fn close(&self) {
        self.adapter.close_region(self.token);
    }
}

// ---- requests ----

pub(crate) fn post_send(connected: &Connected, context: u64, sges: &[Sge]) -> Result<()> {
    // Behind every RdmaRead: the message may say that the data has been fetched (5.6).
    let request = Request { context, operation: Operation::Send, flags: Flags::READ_FENCE };
    connected.queue_pair.post(&request, Data::Sges(sges)).map_err(failed)
}

pub(crate) fn post_receive(connected: &Connected, context: u64, sges: &[Sge]) -> Result<()> {
    connected.queue_pair.post_receive(context, sges).map_err(failed)
}

pub(crate) fn post_rdma(
    connected: &Connected,
    direction: Direction,
    context: u64,
    sges: &[Sge],
    (token, address): (u32, u64),
) -> Result<()> {
    let operation = match direction {
        Direction::Read => Operation::Read { token, address },
        Direction::Write => Operation::Write { token, address },
    };
    let request = Request { context, operation, flags: Flags::NONE };
    connected.queue_pair.post(&request, Data::Sges(sges)).map_err(failed)
}

/// Call `told` when the queue has something new: with `false` when it is dead.
pub(crate) fn notify(queue: &raw::CompletionQueue, told: impl FnOnce(bool) + Send + 'static) {
    let sink = Sink::call(move |status| told(status.is_success()));
    let _ = queue.notify(NotifyKind::Any, sink);
}

/// A made-up address for a registration that peers may name: far from every real one's value, and
/// far from the end of the address space.
pub(crate) fn made_up_base() -> Result<u64> {
    let seed = raw::random_seed().map_err(|_| Error::WSAENOBUFS)?;
    let word = seed.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok((word & 0x3fff_ffff_ffff_f000) | 0x1000_0000_0000_0000)
}
