//! Connectors and listeners (ND2 4.7).

use std::net::SocketAddr;
use std::sync::Arc;

use transom_memory::ConnectionId;
use transom_wire::Facts;

use super::adapter::Owner;
use super::{Adapter, Error, QueuePair, ReadLimits, ReservedPort, Result, Sink};
use crate::driver::{self, ConnectRefusal, PathReason, Silence};
use crate::tables::ConnectorState;
use crate::{DenialRecord, EndReason, Status};

/// The terms that two sides have agreed, and their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The path: `tcp`, or `process`: shared memory between two processes of this host.
    pub path: &'static str,
    /// Why it is this path.
    pub path_reason: PathReason,
    /// The terms that the wires have agreed.
    pub facts: Facts,
}

/// A connector. Dropping the last clone disconnects, or rejects.
#[derive(Clone, Debug)]
pub struct Connector(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    owner: Arc<Owner>,
    conn: Arc<driver::Connector>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.owner.shared.is_foreign() {
            self.conn.release();
        }
    }
}

impl Adapter {
    /// A connector, idle.
    ///
    /// # Errors
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child;
    /// `InsufficientResources`.
    pub fn connector(&self) -> Result<Connector> {
        let conn = driver::Connector::new(self.0.present()?);
        Ok(Connector(Arc::new(Handle { owner: self.0.clone(), conn })))
    }

    /// A listener at `address` (port 0: any free one), not listening yet. `::` takes IPv4, too.
    ///
    /// # Errors
    /// `InvalidAddress`, `SharingViolation`, `TooManyAddresses`, `InsufficientResources`;
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn listener(&self, address: SocketAddr) -> Result<Listener> {
        self.bind_listener(address, false)
    }

    /// A listener at `address`, as [`Adapter::listener`], that takes its own family only.
    ///
    /// # Errors
    /// As [`Adapter::listener`].
    pub fn listener_of_one_family(&self, address: SocketAddr) -> Result<Listener> {
        self.bind_listener(address, true)
    }

    pub(super) fn bind_listener(&self, address: SocketAddr, one_family: bool) -> Result<Listener> {
        let listener = driver::Listener::bind(self.0.present()?, address, one_family)
            .map_err(|e| Error::link(e, &format!("bind a listener to {address}")))?;
        Ok(Listener(Arc::new(Ear { owner: self.0.clone(), listener })))
    }
}

impl Connector {
    fn conn(&self) -> Result<&Arc<driver::Connector>> {
        self.0.owner.here()?;
        Ok(&self.0.conn)
    }

    /// For calls that go on towards a connection.
    fn present(&self) -> Result<&Arc<driver::Connector>> {
        self.0.owner.present()?;
        Ok(&self.0.conn)
    }

    fn failed(&self, status: Status, call: &'static str) -> Error {
        self.0.owner.state(status, call)
    }

    /// Give it a local address (port 0: any).
    ///
    /// # Errors
    /// `AddressAssociated` in any state but idle; `InvalidAddress`, `SharingViolation`,
    /// `TooManyAddresses`; `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn bind(&self, local: SocketAddr) -> Result<()> {
        self.present()?.bind(local, None).map_err(|s| self.failed(s, "bind"))
    }

    /// Give it a reserved port, which it has for as long as that is reserved. The port may be that of
    /// other connectors, too: each connects to another peer.
    ///
    /// # Errors
    /// As [`Connector::bind`].
    pub fn bind_to(&self, port: &ReservedPort) -> Result<()> {
        let (local, port) = (port.address()?, Arc::downgrade(&port.port));
        self.present()?.bind(local, Some(port)).map_err(|s| self.failed(s, "bind"))
    }

    /// Begin to connect, with a queue pair, or without one ([`Connector::join`]). `sink` gets
    /// `Success` when the peer has accepted, and otherwise the reason.
    ///
    /// # Errors
    /// `BadNetworkName` for a peer that cannot be a destination; `InvalidAddress` for one of another
    /// address family than this side's; `AddressNotAssociated` before [`Connector::bind`];
    /// `ConnectionActive`; `InvalidState`; `InvalidBufferSize`; `InsufficientResources`;
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child. The queue pair is as
    /// it was.
    pub fn connect<'q>(
        &self,
        queue_pair: impl Into<Option<&'q QueuePair>>,
        peer: SocketAddr,
        limits: ReadLimits,
        private: &[u8],
        sink: Sink,
    ) -> Result<()> {
        if peer.ip().is_unspecified() || peer.ip().is_multicast() || peer.port() == 0 {
            return Err(Error::caller(
                Status::BadNetworkName,
                format!("connect: {peer} cannot be a destination; give an address and a port"),
            ));
        }
        let conn = self.present()?;
        if let Some(local) = conn.bound().filter(|local| local.is_ipv4() != peer.is_ipv4()) {
            return Err(Error::caller(
                Status::InvalidAddress,
                format!(
                    "connect: {peer} is of another address family than {local}, from where it would leave"
                ),
            ));
        }
        let qp = queue_pair.into().map(|queue_pair| &queue_pair.0.qp);
        conn.connect(qp, Some(peer), limits, private, sink).map_err(|s| self.failed(s, "connect"))
    }

    /// Have a word of this side's front come to the peer's with the next [`Connector::connect`] or
    /// [`Connector::accept`], if both are Transoms. Over TCP a request brings it to a peer that
    /// [asks](crate::raw::Options::asks_front_word), and private data of a connect or an accept has four bytes less.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn set_front_word(&self, word: u32) -> Result<()> {
        self.conn()?.set_front_word(word);
        Ok(())
    }

    /// The word of the peer's front, while the connection lasts; `None`: none came with its request or acceptance.
    #[must_use]
    pub fn peer_front_word(&self) -> Option<u32> {
        self.conn().ok()?.peer_front_word()
    }

    /// Begin to connect to itself, at the address it is bound to: the queue pair that [joins](Connector::join)
    /// has its own receives and regions as its peer's (Verbs V78). `sink` as of [`Connector::connect`].
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub fn connect_to_itself(&self, limits: ReadLimits, sink: Sink) -> Result<()> {
        let conn = self.present()?;
        conn.connect(None, None, limits, &[], sink).map_err(|s| self.failed(s, "connect to itself"))
    }

    /// Complete the connection that the peer has accepted.
    ///
    /// # Errors
    /// `ConnectionInvalid` without an accepted connection; `ConnectionAborted` if the peer has
    /// gone; `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn complete_connect(&self) -> Result<()> {
        self.present()?.complete_connect().map_err(|s| self.failed(s, "complete a connection"))
    }

    /// Accept the request that [`Listener::get_request`] has put here, with a queue pair, or
    /// without one ([`Connector::join`]). `sink` is called when the peer has completed the
    /// connection.
    ///
    /// # Errors
    /// `ConnectionInvalid` without a request; `ConnectionActive`; `ConnectionAborted` if the peer
    /// has gone; `InvalidBufferSize`; `DeviceRemoved` once the address has gone, `Forked` in a
    /// forked child.
    pub fn accept<'q>(
        &self,
        queue_pair: impl Into<Option<&'q QueuePair>>,
        limits: ReadLimits,
        private: &[u8],
        sink: Sink,
    ) -> Result<()> {
        let conn = self.present()?;
        let qp = queue_pair.into().map(|queue_pair| &queue_pair.0.qp);
        conn.accept(qp, limits, private, sink).map_err(|s| self.failed(s, "accept"))
    }

    /// A queue pair takes over a connection that was made without one: on the active side as soon as
    /// the peer has accepted, on the passive side behind [`Connector::accept`]. Until then nothing of
    /// the peer's is taken but its end; what it sends waits, and its end is not seen behind more than
    /// 64 KiB of that.
    ///
    /// # Errors
    /// `ConnectionActive` if it has a queue pair, or the queue pair a connection; `ConnectionInvalid`
    /// without a connection; `ConnectionAborted` if the peer has left. Nothing is changed.
    pub fn join(&self, queue_pair: &QueuePair) -> Result<()> {
        let conn = self.present()?;
        conn.join(&queue_pair.0.qp).map_err(|s| self.failed(s, "join a connection"))
    }

    /// Reject: a request, or a peer's acceptance. The notice is on its way when this returns.
    ///
    /// # Errors
    /// `InvalidState` or `ConnectionInvalid` without a request; `ConnectionAborted` if the peer has
    /// gone; `InvalidBufferSize`; `DeviceRemoved` once the address has gone, `Forked` in a forked
    /// child.
    pub fn reject(&self, private: &[u8]) -> Result<()> {
        let why = ConnectRefusal::ByProgram;
        self.present()?.reject(private, why).map_err(|s| self.failed(s, "reject"))
    }

    /// Reject a request because as many wait for the program as its backlog takes: it is counted as one that
    /// the listener's own backlog has turned away.
    ///
    /// # Errors
    /// As [`Connector::reject`].
    pub fn turn_away(&self) -> Result<()> {
        let why = ConnectRefusal::Backlog;
        self.present()?.reject(&[], why).map_err(|s| self.failed(s, "reject"))
    }

    /// Call `sink` when the peer disconnects.
    ///
    /// # Errors
    /// `ConnectionInvalid` without a connection; `ConnectionDisconnected` after a disconnect of
    /// this side; `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn notify_disconnect(&self, sink: Sink) -> Result<()> {
        let conn = self.present()?;
        conn.notify_disconnect(sink).map_err(|s| self.failed(s, "notify of a disconnect"))
    }

    /// Disconnect. Everything is flushed and the notice is on its way when this returns, so that
    /// the program may exit at once (ND2 4.9).
    ///
    /// # Errors
    /// `ConnectionInvalid` without a connection; `InvalidState` while another disconnect is under
    /// way; `Forked` in a forked child.
    pub fn disconnect(&self, sink: Sink) -> Result<()> {
        self.conn()?.disconnect(sink).map_err(|s| Error::state(s, "disconnect"))
    }

    /// Cancel what is outstanding (ND2 4.7.4), before this returns.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn cancel(&self) -> Result<()> {
        self.conn()?.cancel();
        Ok(())
    }

    /// Process what has arrived from the peer before this returns: [`Connector::state`] knows of it then.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn process_arrived(&self) -> Result<()> {
        self.conn()?.process_arrived();
        Ok(())
    }

    /// The connector's state; in a forked child, `Disconnected`.
    #[must_use]
    pub fn state(&self) -> ConnectorState {
        let conn = self.conn();
        conn.map_or(ConnectorState::Disconnected, |conn| conn.state())
    }

    /// The connection's name in the memory table: for registrations that belong to one connection
    /// ([`Scope::Connection`](transom_memory::Scope)). `None` when there is none, or none any more.
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        self.conn().ok()?.connection()
    }

    /// Why its connection has ended, if it has. Known when the first request completes by that.
    #[must_use]
    pub fn ended(&self) -> Option<EndReason> {
        self.0.owner.here().ok()?;
        self.0.conn.ended().map(|end| end.reason)
    }

    /// The record of the refusal by which its connection has ended, if that is how it has
    /// [ended](Connector::ended): what this side refused its peer, or the peer this side.
    #[must_use]
    pub fn refusal(&self) -> Option<DenialRecord> {
        self.0.owner.here().ok()?.denials().get(self.0.conn.ended()?.denial).cloned()
    }

    /// If it has [ended](Connector::ended) because the peer did not answer in time: whether that was its
    /// program or its host, as far as this side can tell.
    #[must_use]
    pub fn silence(&self) -> Option<Silence> {
        self.0.owner.here().ok()?;
        self.0.conn.silence()
    }

    /// Read limits, offered or agreed, seen from here (ND2 4.8).
    ///
    /// # Errors
    /// `ConnectionInvalid` without a request or connection; `Forked` in a forked child.
    pub fn read_limits(&self) -> Result<ReadLimits> {
        self.conn()?.read_limits().map_err(|s| Error::state(s, "get the read limits"))
    }

    /// The peer's private data, exactly as sent.
    ///
    /// # Errors
    /// `ConnectionInvalid` without a request or connection; `Forked` in a forked child.
    pub fn private_data(&self) -> Result<Vec<u8>> {
        self.conn()?.private_data().map_err(|s| Error::state(s, "get the private data"))
    }

    /// This end's address.
    ///
    /// # Errors
    /// `ConnectionInvalid` before [`Connector::bind`]; `Forked` in a forked child.
    pub fn local(&self) -> Result<SocketAddr> {
        self.conn()?.local().map_err(|s| Error::state(s, "get the local address"))
    }

    /// The other end's address.
    ///
    /// # Errors
    /// `ConnectionInvalid` before there is a peer; `Forked` in a forked child.
    pub fn peer(&self) -> Result<SocketAddr> {
        self.conn()?.peer().map_err(|s| Error::state(s, "get the peer's address"))
    }

    /// The terms that were agreed; while the connection lasts.
    ///
    /// # Errors
    /// `ConnectionInvalid` without a connection; `Forked` in a forked child.
    pub fn info(&self) -> Result<ConnectionInfo> {
        let conn = self.conn()?;
        let (local, peer) = (self.local()?, self.peer()?);
        let (facts, path_reason) = conn
            .facts()
            .ok_or_else(|| Error::state(Status::ConnectionInvalid, "tell what was agreed"))?;
        let path = if facts.wire == transom_process::WIRE { transom_process::NAME } else { "tcp" };
        Ok(ConnectionInfo { local, peer, path, path_reason, facts })
    }
}

/// A listener. Dropping the last clone refuses the requests that no program has taken.
#[derive(Clone, Debug)]
pub struct Listener(pub(super) Arc<Ear>);

#[derive(Debug)]
pub(super) struct Ear {
    owner: Arc<Owner>,
    pub(super) listener: Arc<driver::Listener>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        if !self.owner.shared.is_foreign() {
            self.listener.close(Status::Canceled);
        }
    }
}

impl Listener {
    fn listener(&self) -> Result<&Arc<driver::Listener>> {
        self.0.owner.here()?;
        Ok(&self.0.listener)
    }

    /// Take requests; at most `backlog` wait for the program (0: 4,096). Where they have a quarter of the descriptors
    /// of this process, others wait in the system's queue.
    ///
    /// # Errors
    /// `InvalidState` if it listens already; `InsufficientResources`; `DeviceRemoved` once the
    /// address has gone, `Forked` in a forked child.
    pub fn listen(&self, backlog: usize) -> Result<()> {
        let shared = self.0.owner.present()?;
        self.0.listener.listen(backlog).map_err(|s| self.0.owner.state(s, "listen"))?;
        // Either this is seen here, or the listener by the thread that removes the adapter.
        if shared.is_removed() {
            self.0.listener.close(Status::DeviceRemoved);
            return Err(self.0.owner.removed());
        }
        Ok(())
    }

    /// Stop listening, as the drop of the last clone does: the port is free when this returns,
    /// whichever thread has a clone still.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn close(&self) -> Result<()> {
        self.listener()?.close(Status::Canceled);
        Ok(())
    }

    /// Where it is; tells the port if any was asked for.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener()?.address())
    }

    /// Put the next request into `connector`; `sink` is called when that has happened.
    ///
    /// # Errors
    /// `InvalidState` before [`Listener::listen`]; `ConnectionActive` unless the connector is idle;
    /// `DeviceRemoved` once the address has gone, `Forked` in a forked child.
    pub fn get_request(&self, connector: &Connector, sink: Sink) -> Result<()> {
        let conn = connector.present()?;
        self.0.owner.present()?;
        self.0.listener.get_request(conn, sink).map_err(|s| self.0.owner.state(s, "get a request"))
    }

    /// End every outstanding [`Listener::get_request`] as canceled, in order, before this returns.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn cancel(&self) -> Result<()> {
        self.listener()?.cancel();
        Ok(())
    }

    /// Connections that were turned away because too many were half-way through start-up.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.listener().map_or(0, |listener| listener.turned_away())
    }
}
