//! A socket: its state, its parts, and its end.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};

use transom_engine::raw;

use crate::abi::{FD_ACCEPT, FD_CONNECT};
use crate::connection::{Connection, REFUSAL};
use crate::data::Range;
use crate::duplicate::Handover;
use crate::error::{Error, Result};
use crate::memory::{Registration, Registrations};
use crate::overlapped::Operation;
use crate::provider::{Provider, fresh_number, lock};
use crate::region::Region;

/// Where a socket stands.
#[derive(Clone, Debug, Default)]
pub(crate) enum SocketPhase {
    #[default]
    Created,
    Bound,
    Listening,
    Connecting,
    /// Connected: memory can be registered, data can move.
    Connected,
    /// The connection is gone; the socket waits to be closed (WSD ).
    Failed(Error),
    /// Handed to another process (WSD D-3).
    Suspended,
    Closed,
}

/// An operation under way.
pub(crate) struct Posted {
    pub(crate) operation: Operation,
    /// Buffers of a receive, which is posted again when the connection moves to another process of
    /// the peer's (WSD D-5).
    pub(crate) receive: Option<Vec<Range>>,
    /// Regions whose deregistration it holds up (WSD A-18).
    pub(crate) regions: Vec<Region>,
}

#[derive(Default)]
pub(crate) struct SocketState {
    pub(crate) phase: SocketPhase,
    pub(crate) local: Option<SocketAddr>,
    /// The address family that the switch asked for; none for a socket that came by an accept or from
    /// another process: it has its address.
    pub(crate) is_ipv4: Option<bool>,
    /// Event object and mask of `WSPEventSelect`.
    pub(crate) select: Option<(usize, i32)>,
    /// `FD_*` that have happened and were not fetched, with the error of a connect.
    pub(crate) happened: i32,
    pub(crate) connect_error: Option<Error>,
    pub(crate) adapter: Option<raw::Adapter>,
    /// The parts of a socket with a connection, or on the way to one.
    pub(crate) channel: Option<Arc<Connection>>,
    pub(crate) registrations: Registrations,
    pub(crate) posted: HashMap<u64, Posted>,
    pub(crate) next_request: u64,
    /// The record of the newest refusal that an operation of this side's met.
    pub(crate) denial: u64,
    pub(crate) listener: Option<raw::Listener>,
    /// The port under which the listener is found.
    pub(crate) mapped: Option<raw::MappedPort>,
    pub(crate) backlog: usize,
    /// Requests that wait, and what they hold.
    pub(crate) requests: VecDeque<(raw::Connector, raw::HeldDescriptor)>,
    pub(crate) waiting: raw::DescriptorShare,
    /// The connection from another process of the peer's that is to take this one's place.
    pub(crate) successor: Option<Arc<Connection>>,
    /// The connection has ended while its successor was on its way.
    pub(crate) awaits_successor: bool,
    /// The half that hands the socket to another process.
    pub(crate) handover: Option<Arc<Handover>>,
}

/// The parts of a socket that end with its use in this process.
pub(crate) struct Parts {
    channel: Option<Arc<Connection>>,
    successor: Option<Arc<Connection>>,
    listener: Option<raw::Listener>,
    mapped: Option<raw::MappedPort>,
    requests: VecDeque<(raw::Connector, raw::HeldDescriptor)>,
    handover: Option<Arc<Handover>>,
}

impl SocketState {
    /// The socket is of no use from here on: its registrations end, and its parts are the caller's.
    pub(crate) fn retire(&mut self, phase: SocketPhase) -> Parts {
        self.phase = phase;
        self.registrations.end();
        Parts {
            channel: self.channel.take(),
            successor: self.successor.take(),
            listener: self.listener.take(),
            mapped: self.mapped.take(),
            requests: std::mem::take(&mut self.requests),
            handover: self.handover.take(),
        }
    }
}

pub(crate) struct Socket {
    pub(crate) provider: Weak<Provider>,
    pub(crate) number: usize,
    pub(crate) handle: usize,
    pub(crate) state: Mutex<SocketState>,
    pub(crate) changed: Condvar,
    /// Completions are taken off the queue by one thread at a time, so that they stay in order.
    pub(crate) draining: Mutex<()>,
    /// Bytes moved: by messages, by RDMA.
    pub(crate) message_bytes: AtomicUsize,
    pub(crate) rdma_bytes: AtomicUsize,
}

impl Socket {
    /// A socket of the provider's, with the switch's handle for it (WSD S-3).
    pub(crate) fn new(provider: &Arc<Provider>) -> Result<Arc<Socket>> {
        let number = fresh_number();
        let handle = provider.switch.create_socket_handle(number)?;
        Ok(Arc::new(Socket {
            provider: Arc::downgrade(provider),
            number,
            handle,
            state: Mutex::default(),
            changed: Condvar::new(),
            draining: Mutex::new(()),
            message_bytes: AtomicUsize::new(0),
            rdma_bytes: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn provider(&self) -> Result<Arc<Provider>> {
        self.provider.upgrade().ok_or(Error::WSAENETDOWN)
    }

    /// The connection, if there is one and it has not failed; else what a call gets that needs one.
    pub(crate) fn channel(state: &SocketState) -> Result<Arc<Connection>> {
        match &state.phase {
            SocketPhase::Connected => state.channel.clone().ok_or(Error::WSAENOTCONN),
            SocketPhase::Failed(error) => Err(*error),
            SocketPhase::Closed => Err(Error::WSAENOTSOCK),
            SocketPhase::Suspended => Err(Error::WSAEINVAL),
            _ => Err(Error::WSAENOTCONN),
        }
    }

    /// Something that the switch selected has happened.
    pub(crate) fn happened(self: &Arc<Self>, state: &mut SocketState, what: i32) {
        state.happened |= what;
        let Some((event, _)) = state.select.filter(|(_, mask)| mask & what != 0) else { return };
        if let Ok(provider) = self.provider() {
            let switch = Arc::clone(&provider.switch);
            provider.upcalls.queue(move || switch.set_event(event));
        }
    }

    /// `WSPEventSelect`: FD_ACCEPT and FD_CONNECT only (WSD 8.7). Earlier events count too.
    pub(crate) fn select(self: &Arc<Self>, event: usize, mask: i32) -> Result<()> {
        if mask & !(FD_ACCEPT | FD_CONNECT) != 0 {
            return Err(Error::WSAEINVAL);
        }
        let mut state = lock(&self.state);
        state.select = (mask != 0).then_some((event, mask));
        let before = state.happened & mask;
        if before != 0 {
            self.happened(&mut state, before);
        }
        Ok(())
    }

    /// `WSPEnumNetworkEvents`: what happened, with the error of the connect; the record is cleared.
    pub(crate) fn network_events(&self, event: usize) -> Result<(i32, Option<Error>)> {
        let provider = self.provider()?;
        let mut state = lock(&self.state);
        let mask = state.select.map_or(0, |(_, mask)| mask);
        let events = state.happened & mask;
        state.happened &= !events;
        let error = if events & FD_CONNECT != 0 { state.connect_error } else { None };
        drop(state);
        if event != 0 {
            provider.switch.reset_event(event);
        }
        Ok((events, error))
    }

    /// The connection is gone: later calls get the same error at once (WSD X-10).
    pub(crate) fn fail(&self, state: &mut SocketState, error: Error) {
        if matches!(state.phase, SocketPhase::Connected | SocketPhase::Connecting) {
            state.phase = SocketPhase::Failed(error);
            self.changed.notify_all();
        }
    }

    pub(crate) fn revoke_touched(&self, address: u64, length: u64) -> usize {
        lock(&self.state).registrations.revoke_touched(address, length)
    }

    /// Registrations alive: local, remote.
    pub(crate) fn registered(&self) -> (usize, usize) {
        lock(&self.state).registrations.count()
    }

    /// Give a registration a name.
    pub(crate) fn name(&self, registration: Registration, name: &str) -> Result<()> {
        let state = lock(&self.state);
        let token = state.registrations.token(registration).ok_or(Error::WSAEINVAL)?;
        let adapter = state.adapter.as_ref().ok_or(Error::WSAEINVAL)?;
        adapter.set_name(token, name).then_some(()).ok_or(Error::WSAEINVAL)
    }

    /// The newest refusal that this side's operations met, or that the peer met here.
    pub(crate) fn explain(&self) -> Option<String> {
        let state = lock(&self.state);
        let adapter = state.adapter.as_ref()?;
        let number = state.channel.as_ref().map(|channel| channel.queue_pair.config().number);
        let here =
            adapter.denials(|record| record.queue_pair.is_some() && record.queue_pair == number);
        let newest = here.last().map_or(0, |(id, _)| *id).max(state.denial);
        adapter.denial(newest).map(|record| record.cause.to_string())
    }

    /// Bytes moved so far: by messages, by RDMA.
    pub(crate) fn moved(&self) -> (usize, usize) {
        let message = self.message_bytes.load(Ordering::Relaxed);
        (message, self.rdma_bytes.load(Ordering::Relaxed))
    }

    /// `WSPCloseSocket`, at any moment (WSD X-7), of a socket that was [retired](State::retire).
    /// After the memory come the signals (WSD A-23), then the handle (WSD X-4).
    pub(crate) fn close(self: &Arc<Self>, parts: Parts) {
        self.end(parts);
        // Once: a socket that is closed is in no table any more.
        if let Ok(provider) = self.provider() {
            let (switch, handle) = (Arc::clone(&provider.switch), self.handle);
            provider.upcalls.queue(move || switch.close_socket_handle(handle));
        }
    }

    /// End what the socket had. When this returns, every operation under way has ended.
    pub(crate) fn end(self: &Arc<Self>, parts: Parts) {
        self.changed.notify_all();
        drop(parts.mapped);
        if let Some(listener) = parts.listener {
            let _ = listener.cancel();
        }
        for (connector, _) in parts.requests {
            let _ = connector.reject(REFUSAL);
        }
        // A connection that another process has taken is not this one's to end.
        let taken = parts.handover.is_some_and(|handover| handover.close());
        for channel in parts.channel.iter().chain(&parts.successor).filter(|_| !taken) {
            if let Ok(provider) = self.provider() {
                provider.forget(channel);
            }
            // Flushes every request: their completions are in the queue when it returns.
            channel.end();
            self.drain(channel);
        }
        self.abort_rest(Error::WSA_OPERATION_ABORTED);
    }
}
