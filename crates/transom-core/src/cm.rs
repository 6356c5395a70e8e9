//! Connectors and listeners (ND2 4.7, 4.8): the calls that each state allows, and what they agree.
//!
//! Both are plain values that look their answers up in the dialect's tables. A connector's own lock
//! comes before its link's: its calls take the [`Connection`], its events
//! ([`Connector::on_event`]) arrive afterwards as [`Effect`](crate::Effect)s.

use std::collections::VecDeque;

use transom_wire::ReadLimits;

use crate::tables::{Cell, ConnectorCall, ConnectorState, ListenerCall, ListenerState};
use crate::{
    Connection, ConnectionEvent, Cx, Dialect, Effects, EndReason, Execution, LinkEnd, QueuePair,
    QueuePairState, Status,
};

/// The limits of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Reads it serves, and has under way, at a time.
    pub reads: ReadLimits,
    /// Bytes of private data on Connect.
    pub caller_data: usize,
    /// Bytes of private data on Accept and Reject.
    pub callee_data: usize,
}

/// A peer's request, as handed to a connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Read limits that the peer offers, seen from here.
    pub limits: ReadLimits,
    /// The peer's private data.
    pub private: Box<[u8]>,
}

fn clamp(asked: ReadLimits, most: ReadLimits) -> ReadLimits {
    ReadLimits {
        inbound: asked.inbound.min(most.inbound),
        outbound: asked.outbound.min(most.outbound),
    }
}

/// A queue pair's half for a connection that may open at once: with everything that was posted.
fn attach_passive(queue_pair: &mut QueuePair) -> Result<Execution, Status> {
    let mut execution = queue_pair.attach(QueuePairState::Accepting)?;
    queue_pair.carry(&mut execution);
    Ok(execution)
}

/// A connector.
#[derive(Debug)]
pub struct Connector {
    dialect: &'static Dialect,
    caps: Caps,
    state: ConnectorState,
    limits: ReadLimits,
    private: Box<[u8]>,
    /// The last Connect was rejected,
    refused: bool,
    /// and `private` came with that.
    rejected: bool,
    /// Connect has begun once.
    tried: bool,
    peer_left: bool,
    /// The connection was made without a queue pair, and none has joined it.
    alone: bool,
    /// The outstanding Connect, Accept, Disconnect or request.
    pending: Option<u64>,
    notify: Vec<u64>,
}

impl Connector {
    /// A connector, idle.
    #[must_use]
    pub fn new(dialect: &'static Dialect, caps: Caps) -> Connector {
        Connector {
            dialect,
            caps,
            state: ConnectorState::Idle,
            limits: ReadLimits::default(),
            private: Box::default(),
            refused: false,
            rejected: false,
            tried: false,
            peer_left: false,
            alone: false,
            pending: None,
            notify: Vec::new(),
        }
    }

    /// The connector's state.
    #[must_use]
    pub fn state(&self) -> ConnectorState {
        self.state
    }

    /// Whether `call` may proceed now (ND2 4.7.3). Changes nothing.
    ///
    /// # Errors
    /// The status of the dialect's table for this state.
    pub fn gate(&self, call: ConnectorCall) -> Result<(), Status> {
        match self.dialect.connector[call as usize][self.state as usize] {
            Cell::Ok => Ok(()),
            Cell::Fail(status) => Err(status),
            Cell::IfRejected(_) if self.rejected => Ok(()),
            Cell::IfRefused(_) if self.refused => Ok(()),
            Cell::IfAlone(_) if self.alone => Ok(()),
            Cell::IfRejected(status) | Cell::IfRefused(status) | Cell::IfAlone(status) => {
                Err(status)
            }
            Cell::IfTried(yes, no) => Err(if self.tried { yes } else { no }),
            Cell::IfPeerLeft(yes, no) => Err(if self.peer_left { yes } else { no }),
        }
    }

    /// The connector has an address now. Call [`gate`](Connector::gate) before looking for one.
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`AddressAssociated`).
    pub fn bind(&mut self) -> Result<(), Status> {
        self.gate(ConnectorCall::Bind)?;
        self.state = ConnectorState::Bound;
        Ok(())
    }

    /// Begin to connect: the queue pair's half, if it is to have one, for [`Connection::connect`], and
    /// the limits to offer. The driver makes the link; if it cannot, [`Connector::link_failed`]. An
    /// error changes nothing.
    ///
    /// # Errors
    /// `InvalidBufferSize` for private data beyond the dialect's limit; the status of the dialect's
    /// table for this state; those of [`QueuePair::attach`].
    pub fn connect<'q>(
        &mut self,
        queue_pair: impl Into<Option<&'q mut QueuePair>>,
        waiter: u64,
        asked: ReadLimits,
        private: usize,
    ) -> Result<(Option<Execution>, ReadLimits), Status> {
        self.gate(ConnectorCall::Connect)?;
        if private > self.caps.caller_data {
            return Err(Status::InvalidBufferSize);
        }
        let attach = |pair: &mut QueuePair| pair.attach(QueuePairState::Connecting);
        let execution = queue_pair.into().map(attach).transpose()?;
        self.alone = execution.is_none();
        self.limits = clamp(asked, self.caps.reads);
        self.state = ConnectorState::Connecting;
        self.tried = true;
        (self.refused, self.rejected) = (false, false);
        self.pending = Some(waiter);
        Ok((execution, self.limits))
    }

    /// The link could not be made: Connect ends with `status` and may be tried again. The driver
    /// gives the execution back ([`QueuePair::detach`]).
    pub fn link_failed(&mut self, status: Status, effects: &mut Effects) {
        if self.state == ConnectorState::Connecting {
            self.state = ConnectorState::Bound;
            self.finish(status, effects);
        }
    }

    /// Complete the connection that the peer has accepted.
    ///
    /// # Errors
    /// The status of the dialect's table for this state; `ConnectionAborted` if the peer has gone.
    pub fn complete_connect(
        &mut self,
        cx: &mut Cx<'_>,
        connection: Option<&mut Connection>,
    ) -> Result<(), Status> {
        self.gate(ConnectorCall::CompleteConnect)?;
        let result = connection.map_or(Err(Status::ConnectionAborted), |c| c.confirm(cx));
        self.state = match result {
            Ok(()) => ConnectorState::Connected,
            Err(_) => ConnectorState::Disconnected,
        };
        result
    }

    /// Handed to a listener; `waiter` ends when a request has arrived for it.
    fn queue(&mut self, waiter: u64) {
        self.state = ConnectorState::Queued;
        self.pending = Some(waiter);
    }

    /// A request arrived for it.
    pub fn request(&mut self, offer: Offer, effects: &mut Effects) {
        if matches!(self.state, ConnectorState::Queued | ConnectorState::Idle) {
            self.limits = clamp(offer.limits, self.caps.reads);
            self.private = offer.private;
            self.state = ConnectorState::Requested;
            self.finish(Status::Success, effects);
        }
    }

    /// No request comes for it any more, and `status` says why.
    pub fn unqueue(&mut self, status: Status, effects: &mut Effects) {
        if self.state == ConnectorState::Queued {
            self.state = ConnectorState::Idle;
            self.finish(status, effects);
        }
    }

    /// Accept the request, with a queue pair or without. An error about arguments changes nothing.
    ///
    /// # Errors
    /// As [`Connector::connect`]; `ConnectionAborted` if the peer has gone.
    pub fn accept<'q>(
        &mut self,
        cx: &mut Cx<'_>,
        connection: Option<&mut Connection>,
        queue_pair: impl Into<Option<&'q mut QueuePair>>,
        waiter: u64,
        asked: ReadLimits,
        private: &[u8],
    ) -> Result<(), Status> {
        self.gate(ConnectorCall::Accept)?;
        if private.len() > self.caps.callee_data {
            return Err(Status::InvalidBufferSize);
        }
        let Some(connection) = connection.filter(|c| c.ended().is_none()) else {
            self.peer_left = true;
            self.state = ConnectorState::Disconnected;
            return Err(Status::ConnectionAborted);
        };
        let mut queue_pair = queue_pair.into();
        let execution = queue_pair.as_deref_mut().map(attach_passive).transpose()?;
        let alone = execution.is_none();
        let limits = clamp(asked, self.limits);
        if let Err(status) = connection.accept(cx, execution, limits, private) {
            if let (Some(queue_pair), Some(execution)) = (queue_pair, connection.take_execution()) {
                queue_pair.detach(execution);
            }
            return Err(status);
        }
        self.alone = alone;
        self.limits = limits;
        self.state = ConnectorState::Accepting;
        self.pending = Some(waiter);
        Ok(())
    }

    /// A queue pair takes over a connection that was made without one: before or behind
    /// [`Connector::complete_connect`] on the active side, behind [`Connector::accept`] on the passive
    /// one (Verbs V129). An error changes nothing.
    ///
    /// # Errors
    /// The status of the dialect's table for this state; `ConnectionAborted` without a connection;
    /// those of [`QueuePair::attach`].
    pub fn join(
        &mut self,
        cx: &mut Cx<'_>,
        connection: Option<&mut Connection>,
        queue_pair: &mut QueuePair,
    ) -> Result<(), Status> {
        self.gate(ConnectorCall::Join)?;
        let connection = connection.filter(|c| c.ended().is_none());
        let connection = connection.ok_or(Status::ConnectionAborted)?;
        connection.join(cx, attach_passive(queue_pair)?);
        self.alone = false;
        Ok(())
    }

    /// Reject: the request of a peer, or the peer's acceptance.
    ///
    /// # Errors
    /// `InvalidBufferSize` for private data beyond the dialect's limit; the status of the dialect's
    /// table for this state; `ConnectionAborted` if the peer has gone.
    pub fn reject(
        &mut self,
        cx: &mut Cx<'_>,
        connection: Option<&mut Connection>,
        private: &[u8],
    ) -> Result<(), Status> {
        self.gate(ConnectorCall::Reject)?;
        if private.len() > self.caps.callee_data {
            return Err(Status::InvalidBufferSize);
        }
        let requested = self.state == ConnectorState::Requested;
        let result = match connection {
            Some(connection) if requested => connection.reject(cx, private),
            Some(connection) => {
                connection.disconnect(cx);
                Ok(())
            }
            None => Err(Status::ConnectionAborted),
        };
        if result != Err(Status::InvalidBufferSize) {
            self.state = ConnectorState::Disconnected;
            self.peer_left |= result.is_err();
        }
        result
    }

    /// The limits that were offered or agreed, seen from here (ND2 4.8).
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`ConnectionInvalid`).
    pub fn read_limits(&self) -> Result<ReadLimits, Status> {
        self.gate(ConnectorCall::GetReadLimits)?;
        Ok(self.limits)
    }

    /// The peer's private data.
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`ConnectionInvalid`).
    pub fn private_data(&self) -> Result<&[u8], Status> {
        self.gate(ConnectorCall::GetPrivateData)?;
        Ok(&self.private)
    }

    /// Ask for a notification when the peer disconnects.
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`ConnectionInvalid`,
    /// `ConnectionDisconnected`).
    pub fn notify_disconnect(&mut self, waiter: u64, effects: &mut Effects) -> Result<(), Status> {
        self.gate(ConnectorCall::NotifyDisconnect)?;
        if self.state == ConnectorState::Connected {
            self.notify.push(waiter);
        } else {
            // The event has happened: the peer is gone, or (ND1 11.3) this side has disconnected.
            effects.finish(waiter, Status::Success);
        }
        Ok(())
    }

    /// Disconnect (ND2 4.9): a pending notification ends first, then the requests, then this call.
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`ConnectionInvalid`, `InvalidState`).
    pub fn disconnect(
        &mut self,
        cx: &mut Cx<'_>,
        connection: Option<&mut Connection>,
        waiter: u64,
    ) -> Result<(), Status> {
        self.gate(ConnectorCall::Disconnect)?;
        let peer_gone = self.state == ConnectorState::PeerGone
            || connection.as_ref().is_none_or(|c| c.ended().is_some());
        self.finish_notify(self.dialect.notify_on_disconnect, cx.effects);
        if let Some(connection) = connection {
            connection.disconnect(cx);
        }
        if peer_gone || self.dialect.disconnect_at_once {
            self.state = ConnectorState::Disconnected;
            cx.effects.finish(waiter, Status::Success);
        } else {
            self.state = ConnectorState::Disconnecting;
            self.pending = Some(waiter);
        }
        Ok(())
    }

    /// The last reference to it or to its queue pair is gone: as Disconnect or Reject, without a
    /// waiter. A pending notification ends as at a Disconnect: nobody has canceled it (ND2 4.9).
    pub fn release(&mut self, cx: &mut Cx<'_>, connection: Option<&mut Connection>) {
        match (self.state, connection) {
            (ConnectorState::Requested, Some(connection)) => {
                let _ = connection.reject(cx, &[]);
            }
            (_, Some(connection)) => connection.disconnect(cx),
            (_, None) => {}
        }
        self.finish_notify(self.dialect.notify_on_disconnect, cx.effects);
        self.finish(Status::Canceled, cx.effects);
        self.state = ConnectorState::Disconnected;
    }

    /// Cancel what is outstanding (ND2 4.7.4). A Connect gives its queue pair back: the driver
    /// detaches it.
    pub fn cancel(&mut self, cx: &mut Cx<'_>, connection: Option<&mut Connection>) {
        match self.state {
            ConnectorState::Connecting | ConnectorState::Accepting => {
                let accepting = self.state == ConnectorState::Accepting;
                self.state = ConnectorState::Disconnected;
                self.finish(Status::Canceled, cx.effects);
                if let Some(connection) = connection {
                    if accepting {
                        connection.disconnect(cx);
                    } else {
                        connection.give_up(cx);
                    }
                }
            }
            ConnectorState::Disconnecting => {
                self.state = ConnectorState::Disconnected;
                self.finish(Status::Canceled, cx.effects);
            }
            ConnectorState::Connected => self.finish_notify(Status::Canceled, cx.effects),
            _ => {}
        }
    }

    /// Something happened to its connection.
    pub fn on_event(&mut self, event: &ConnectionEvent, effects: &mut Effects) {
        match (event, self.state) {
            (ConnectionEvent::Requested { limits, private }, _) => {
                self.request(Offer { limits: *limits, private: private.clone() }, effects);
            }
            (ConnectionEvent::Accepted { limits, private }, ConnectorState::Connecting) => {
                self.limits = *limits;
                self.private = private.clone();
                self.state = ConnectorState::Replied;
                self.finish(Status::Success, effects);
            }
            (ConnectionEvent::Rejected { private }, ConnectorState::Connecting) => {
                self.private = private.clone();
                (self.refused, self.rejected) = (true, !private.is_empty());
                self.state = ConnectorState::Bound;
                self.finish(Status::ConnectionRefused, effects);
            }
            (ConnectionEvent::Established, ConnectorState::Accepting) => {
                self.state = ConnectorState::Connected;
                self.finish(Status::Success, effects);
            }
            (ConnectionEvent::Ended(end), state) => self.ended(end.reason, state, effects),
            (ConnectionEvent::Parted(how), ConnectorState::Disconnecting) => {
                self.state = ConnectorState::Disconnected;
                let status = match how {
                    LinkEnd::Finished | LinkEnd::Closed => Status::Success,
                    LinkEnd::TimedOut => Status::IoTimeout,
                    LinkEnd::Failed(_) => Status::ConnectionAborted,
                };
                self.finish(status, effects);
            }
            _ => {}
        }
    }

    fn ended(&mut self, reason: EndReason, state: ConnectorState, effects: &mut Effects) {
        let removed = reason == EndReason::Link(Status::DeviceRemoved);
        match state {
            ConnectorState::Connecting => {
                let status = match reason {
                    EndReason::TimedOut => Status::IoTimeout,
                    EndReason::Link(status) => status,
                    EndReason::Violation | EndReason::PeerFailed => Status::ConnectionAborted,
                    _ => Status::ConnectionRefused,
                };
                self.link_failed(status, effects);
            }
            ConnectorState::Accepting => {
                self.state = ConnectorState::Disconnected;
                let status = match reason {
                    EndReason::TimedOut => Status::IoTimeout,
                    _ if removed => Status::DeviceRemoved,
                    _ => self.dialect.backed_out,
                };
                self.finish(status, effects);
            }
            ConnectorState::Requested | ConnectorState::Replied => {
                self.peer_left = true;
                self.state = ConnectorState::Disconnected;
            }
            ConnectorState::Connected => {
                self.state = ConnectorState::PeerGone;
                // The peer has done nothing if this side's address has gone (ND2 4.5).
                let status = if removed { Status::DeviceRemoved } else { Status::Success };
                self.finish_notify(status, effects);
            }
            ConnectorState::Disconnecting if reason != EndReason::Disconnected => {
                self.state = ConnectorState::Disconnected;
                self.finish(Status::Success, effects);
            }
            _ => {}
        }
    }

    /// The link is gone. A Disconnect that still waits, because its result is unknown, has failed.
    pub fn link_gone(&mut self, effects: &mut Effects) {
        if self.state == ConnectorState::Disconnecting {
            self.state = ConnectorState::Disconnected;
            self.finish(Status::ConnectionAborted, effects);
        }
    }

    fn finish(&mut self, status: Status, effects: &mut Effects) {
        if let Some(waiter) = self.pending.take() {
            effects.finish(waiter, status);
        }
    }

    fn finish_notify(&mut self, status: Status, effects: &mut Effects) {
        for waiter in self.notify.drain(..) {
            effects.finish(waiter, status);
        }
    }
}

/// A request in a listener's backlog: the driver's name for its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The driver's name for the link.
    pub link: u64,
    /// The peer's request.
    pub offer: Offer,
}

/// A listener.
#[derive(Debug)]
pub struct Listener {
    dialect: &'static Dialect,
    state: ListenerState,
    limit: usize,
    backlog: VecDeque<Incoming>,
    /// Connectors that wait for a request: the driver's names for them.
    waiting: VecDeque<u64>,
}

impl Listener {
    /// A listener, idle.
    #[must_use]
    pub fn new(dialect: &'static Dialect) -> Listener {
        Listener {
            dialect,
            state: ListenerState::Idle,
            limit: 0,
            backlog: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The listener's state.
    #[must_use]
    pub fn state(&self) -> ListenerState {
        self.state
    }

    /// Whether `call` may proceed now (ND2 4.7.3). Changes nothing.
    ///
    /// # Errors
    /// The status of the dialect's table for this state.
    pub fn gate(&self, call: ListenerCall) -> Result<(), Status> {
        match self.dialect.listener[call as usize][self.state as usize] {
            Cell::Ok => Ok(()),
            Cell::Fail(status)
            | Cell::IfRejected(status)
            | Cell::IfRefused(status)
            | Cell::IfAlone(status)
            | Cell::IfTried(_, status)
            | Cell::IfPeerLeft(_, status) => Err(status),
        }
    }

    /// The listener has an address now.
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`AddressAssociated`).
    pub fn bind(&mut self) -> Result<(), Status> {
        self.gate(ListenerCall::Bind)?;
        self.state = ListenerState::Bound;
        Ok(())
    }

    /// Take requests; at most `backlog` wait (0 = no limit).
    ///
    /// # Errors
    /// The status of the dialect's table for this state (`InvalidState`).
    pub fn listen(&mut self, backlog: usize) -> Result<(), Status> {
        self.gate(ListenerCall::Listen)?;
        self.state = ListenerState::Listening;
        self.limit = backlog;
        Ok(())
    }

    /// Whether one more request may wait. If not, the driver refuses it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.waiting.is_empty() || self.limit == 0 || self.backlog.len() < self.limit
    }

    /// A request has arrived. `Some`: the connector that takes it; the driver moves the connection
    /// there and calls [`Connector::request`]. `None`: it waits.
    pub fn arrived(&mut self, incoming: Incoming) -> Option<(u64, Incoming)> {
        match self.waiting.pop_front() {
            Some(connector) => Some((connector, incoming)),
            None => {
                self.backlog.push_back(incoming);
                None
            }
        }
    }

    /// A request in the backlog is gone with its peer. Whether there was one.
    pub fn gone(&mut self, link: u64) -> bool {
        let before = self.backlog.len();
        self.backlog.retain(|incoming| incoming.link != link);
        self.backlog.len() < before
    }

    /// GetConnectionRequest with `connector`, which the driver calls `name`. `Some`: a request was
    /// waiting; as [`arrived`](Listener::arrived).
    ///
    /// # Errors
    /// The status of either dialect's table: the listener must listen, the connector be idle.
    pub fn take_request(
        &mut self,
        connector: &mut Connector,
        name: u64,
        waiter: u64,
    ) -> Result<Option<Incoming>, Status> {
        self.gate(ListenerCall::GetConnectionRequest)?;
        connector.gate(ConnectorCall::TakeRequest)?;
        connector.queue(waiter);
        let incoming = self.backlog.pop_front();
        if incoming.is_none() {
            self.waiting.push_back(name);
        }
        Ok(incoming)
    }

    /// Cancel the outstanding requests: the connectors, in the order in which they came; the driver
    /// calls [`Connector::unqueue`] on each.
    pub fn cancel(&mut self) -> Vec<u64> {
        self.waiting.drain(..).collect()
    }

    /// The connector `name` is gone.
    pub fn forget(&mut self, name: u64) {
        self.waiting.retain(|waiting| *waiting != name);
    }

    /// Close: as [`cancel`](Listener::cancel), and the links of the backlog, to be refused.
    pub fn close(&mut self) -> (Vec<u64>, Vec<u64>) {
        self.state = ListenerState::Idle;
        let links = self.backlog.drain(..).map(|incoming| incoming.link).collect();
        (self.cancel(), links)
    }
}
