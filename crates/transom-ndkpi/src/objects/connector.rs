//! Connectors (NDK 9).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use transom_engine::Status as Engine;
use transom_engine::raw::{self, ReadLimits};

use super::{Adapter, Qp, SharedEndpoint};
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::life::Life;
use crate::table::{is_peers_doing, sink};

/// Called once when the peer has disconnected or the connection was lost; the argument is the
/// reason, 0 where none is known.
pub type DisconnectEvent = Box<dyn FnOnce(u32) + Send>;

/// Called with the status in which a request has ended.
type RequestCompletion = Box<dyn FnOnce(Status) + Send>;

/// The peer's private data, and the read limits as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// Reads of the peer served at a time.
    pub inbound: u32,
    /// Reads of this side at a time.
    pub outbound: u32,
    /// Private data, padded with zeros to the constant size of this direction (NDK 9.4).
    pub private: Vec<u8>,
}

/// A connector.
pub struct Connector {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    /// `None` once closed: the last handle of it disconnects, or rejects.
    raw: Mutex<Option<raw::Connector>>,
    /// The local port of its connection, which is in use until it is closed (NDK CN-6).
    port: Mutex<Option<raw::ReservedPort>>,
    /// Made by a listener for a request of a peer.
    incoming: bool,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Connector>, Status> {
        let raw = adapter.raw.connector()?;
        Ok(Connector::around(adapter, raw, &[&adapter.life], false))
    }

    pub(crate) fn around(
        adapter: &Arc<Adapter>,
        raw: raw::Connector,
        antecedents: &[&Arc<Life>],
        incoming: bool,
    ) -> Arc<Connector> {
        let life = Life::new(&adapter.deliverer, antecedents);
        let (adapter, raw) = (Arc::clone(adapter), Mutex::new(Some(raw)));
        Arc::new(Connector { life, adapter, raw, port: Mutex::default(), incoming })
    }

    /// The engine's connector, while this one is open.
    fn raw(&self) -> Result<raw::Connector, Status> {
        lock(&self.raw).clone().ok_or(Status::CONNECTION_INVALID)
    }

    /// A request that ends when the engine says so.
    fn request(
        self: &Arc<Self>,
        done: Done<()>,
        start: impl FnOnce(RequestCompletion) -> Result<(), Status>,
    ) -> Status {
        let pending = Pending::new(&self.adapter.deliverer, self.life.busy(), done);
        let outcome = Arc::clone(&pending);
        let completion = Box::new(move |status| outcome.resolve(status, ()));
        if let Err(status) = start(completion) {
            return status; // refused at once: no callback
        }
        returned(pending.settle())
    }

    /// Start a request that connects this with the objects of `antecedents`, whose closes from now on
    /// wait for this connector's (NDK LT-9): until the request is refused, or fails.
    fn start_with(
        self: &Arc<Self>,
        antecedents: &[&Arc<Life>],
        completion: RequestCompletion,
        start: impl FnOnce(RequestCompletion) -> Result<(), Status>,
    ) -> Result<(), Status> {
        // Before the request, because its callback may close them.
        antecedents.iter().for_each(|antecedent| self.life.follow(antecedent));
        let leave = {
            let life = Arc::clone(&self.life);
            let antecedents: Vec<_> = antecedents.iter().copied().map(Arc::clone).collect();
            move || antecedents.iter().for_each(|antecedent| life.leave(antecedent))
        };
        let if_failed = leave.clone();
        let ended = Box::new(move |status: Status| {
            if !status.is_success() {
                if_failed();
            }
            completion(status);
        });
        start(ended).inspect_err(|_| leave())
    }

    /// `NdkConnect`.
    ///
    /// # Errors
    /// `PENDING`, or inline: `INVALID_PARAMETER` for a queue pair of another adapter,
    /// `CONNECTION_INVALID` for an incoming connector, `INVALID_ADDRESS` for a source that is not
    /// the adapter's, `SHARING_VIOLATION` and `TOO_MANY_ADDRESSES` for its port,
    /// `CONNECTION_ACTIVE` if connector or queue pair is in use, `INVALID_DEVICE_STATE` once the
    /// connector has disconnected, `INVALID_BUFFER_SIZE` for too much private data,
    /// `DEVICE_REMOVED`. By the callback: `CONNECTION_REFUSED`, `NETWORK_UNREACHABLE`,
    /// `HOST_UNREACHABLE`, `IO_TIMEOUT`, `CONNECTION_ABORTED`, `CANCELLED`.
    pub fn connect(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        from: SocketAddr,
        to: SocketAddr,
        limits: ReadLimits,
        private: &[u8],
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        self.connect_as(qp, None, done, |raw, completion| {
            if !self.adapter.has_address(from) {
                return Err(Status::INVALID_ADDRESS);
            }
            let idle = takes_address(raw.bind(from))?;
            let named = from.port() != 0;
            if idle && let Some(port) = self.reserve(from)? {
                raw.bind_to(&port)?;
                *lock(&self.port) = Some(port);
            }
            let connector = Arc::downgrade(self);
            let ended = sink(move |status: Status| {
                if let Some(connector) = connector.upgrade()
                    && !status.is_success()
                {
                    lock(&connector.port).take();
                }
                completion(if named { with_named_port(status) } else { status });
            });
            raw.connect(&qp.raw, to, limits, private, ended).map_err(|error| {
                if idle {
                    lock(&self.port).take();
                }
                error.into()
            })
        })
    }

    /// The port of a Connect, which gives it back if it fails (NDK CN-6). `None`: any, and each has a
    /// connection that is ending. The system finds one that has none to this peer then, and the
    /// connection's own socket is its only holder.
    fn reserve(&self, from: SocketAddr) -> Result<Option<raw::ReservedPort>, Status> {
        match self.adapter.raw.reserve_port(from) {
            Ok(port) => Ok(Some(port)),
            Err(error) if error.status == Engine::TooManyAddresses => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Both forms of connect: what they check, and what outlives the connection.
    fn connect_as(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        endpoint: Option<&Arc<SharedEndpoint>>,
        done: Done<()>,
        start: impl FnOnce(&raw::Connector, RequestCompletion) -> Result<(), Status>,
    ) -> Status {
        let of_others = endpoint.is_some_and(|e| !Arc::ptr_eq(&e.adapter, &self.adapter));
        if of_others || !Arc::ptr_eq(&qp.pd.adapter, &self.adapter) {
            return Status::INVALID_PARAMETER;
        }
        if self.incoming {
            return Status::CONNECTION_INVALID;
        }
        self.request(done, |completion| {
            let raw = self.raw()?;
            let mut antecedents = vec![&qp.life];
            antecedents.extend(endpoint.map(|endpoint| &endpoint.life));
            self.start_with(&antecedents, completion, |completion| start(&raw, completion))
        })
    }

    /// `NdkConnectWithSharedEndpoint`: the endpoint's address is the source. Many connectors may have
    /// it, each to another destination (NDK CN-8).
    ///
    /// # Errors
    /// As [`Connector::connect`], without those of a source; `INVALID_PARAMETER` for an endpoint of
    /// another adapter, `INVALID_DEVICE_STATE` for one that is being closed. By the callback also
    /// `ADDRESS_ALREADY_EXISTS`, if the endpoint has a connection to that destination.
    pub fn connect_with_shared_endpoint(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        endpoint: &Arc<SharedEndpoint>,
        to: SocketAddr,
        limits: ReadLimits,
        private: &[u8],
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        self.connect_as(qp, Some(endpoint), done, |raw, completion| {
            takes_address(raw.bind_to(&endpoint.port()?))?;
            let ended = sink(move |status| completion(with_named_port(status)));
            Ok(raw.connect(&qp.raw, to, limits, private, ended)?)
        })
    }

    /// `NdkCompleteConnect(Ex)`.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if there is nothing to complete, `CONNECTION_ABORTED` if the peer has
    /// given up.
    pub fn complete_connect(
        self: &Arc<Self>,
        event: Option<DisconnectEvent>,
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        self.establish(event, done, |completion| {
            self.raw()?.complete_connect()?;
            completion(Status::SUCCESS);
            Ok(())
        })
    }

    /// `NdkAccept(Ex)`.
    ///
    /// # Errors
    /// `PENDING`, or inline: `INVALID_PARAMETER` for a queue pair of another adapter,
    /// `CONNECTION_INVALID` for a connector without a request, `CONNECTION_ACTIVE` if the queue
    /// pair is in use, `CONNECTION_ABORTED` if the peer has gone, `INVALID_BUFFER_SIZE` for too
    /// much private data. By the callback: `CONNECTION_REFUSED` if the peer backs out,
    /// `IO_TIMEOUT`, `CANCELLED`.
    pub fn accept(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        limits: ReadLimits,
        private: &[u8],
        event: Option<DisconnectEvent>,
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        if !Arc::ptr_eq(&qp.pd.adapter, &self.adapter) {
            return Status::INVALID_PARAMETER;
        }
        if !self.incoming {
            return Status::CONNECTION_INVALID;
        }
        self.establish(event, done, |completion| {
            let raw = self.raw()?;
            self.start_with(&[&qp.life], completion, |completion| {
                Ok(raw.accept(&qp.raw, limits, private, sink(completion))?)
            })
        })
    }

    /// The last step of either side. The event belongs to the request: one that is refused or fails
    /// leaves the event of an earlier one as it is. The event may come once the callback has
    /// returned, not earlier (NDK DC-8).
    fn establish(
        self: &Arc<Self>,
        event: Option<DisconnectEvent>,
        done: Done<()>,
        start: impl FnOnce(RequestCompletion) -> Result<(), Status>,
    ) -> Status {
        let event = Arc::new(Mutex::new(event));
        let (connector, theirs) = (Arc::clone(self), Arc::clone(&event));
        let then = Box::new(move |status: Status, ()| {
            done(status, ());
            connector.established(status, &theirs);
        });
        let status = self.request(then, start);
        if status != Status::PENDING {
            self.established(status, &event); // inline: `done` was not called
        }
        status
    }

    /// The connection has come up, or not: from now on the engine holds the event (NDK DC-3).
    fn established(self: &Arc<Self>, status: Status, event: &Mutex<Option<DisconnectEvent>>) {
        if !status.is_success() {
            return;
        }
        let (Some(event), Ok(raw)) = (lock(event).take(), self.raw()) else { return };
        let connector = Arc::downgrade(self);
        let gone = Box::new(move |status| {
            if let Some(connector) = connector.upgrade() {
                connector.gone(status, event);
            }
        });
        // An error says that this side has disconnected already, which is no event (NDK DC-4).
        let _ = raw.notify_disconnect(sink(gone));
    }

    /// NDK DC-3, DC-4: the peer's doing only.
    fn gone(self: &Arc<Self>, status: Status, event: DisconnectEvent) {
        if !is_peers_doing(status) {
            return;
        }
        let Some(busy) = self.life.busy() else { return };
        self.adapter.deliverer.event(Box::new(move || {
            event(0);
            drop(busy);
        }));
    }

    /// `NdkReject`: inline only.
    ///
    /// # Errors
    /// `INVALID_BUFFER_SIZE` for too much private data, `CONNECTION_ABORTED` if the peer has gone,
    /// `INVALID_DEVICE_STATE` and `CONNECTION_INVALID` without a request.
    pub fn reject(&self, private: &[u8]) -> Status {
        let _call = Call::enter();
        let rejected = self.raw().and_then(|raw| Ok(raw.reject(private)?));
        rejected.err().unwrap_or(Status::SUCCESS)
    }

    /// `NdkGetConnectionData`. After a rejection that carried data, these and limits of 0.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if there is no request, no connection, and no data of a rejection.
    pub fn connection_data(&self) -> Result<ConnectionData, Status> {
        let info = self.adapter.info();
        let required = if self.incoming { info.max_caller_data } else { info.max_callee_data };
        let raw = self.raw()?;
        // Private data can be asked for while the connection is coming up, and those of a rejection
        // after it; the limits while there is a connection.
        let (limits, private) = (raw.read_limits(), raw.private_data());
        let limits = match limits {
            Err(_) if private.is_ok() => ReadLimits::default(),
            limits => limits?,
        };
        let mut private = private.unwrap_or_default();
        private.resize(required as usize, 0);
        Ok(ConnectionData { inbound: limits.inbound, outbound: limits.outbound, private })
    }

    /// `NdkGetLocalAddress`.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if the connector is neither connected nor connecting.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        Ok(self.raw()?.local()?)
    }

    /// `NdkGetPeerAddress`.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if the connector is neither connected nor connecting.
    pub fn peer_address(&self) -> Result<SocketAddr, Status> {
        Ok(self.raw()?.peer()?)
    }

    /// `NdkDisconnect`.
    ///
    /// # Errors
    /// `PENDING`, or inline: `CONNECTION_INVALID` without a connection, `INVALID_DEVICE_STATE` if a
    /// disconnect is under way. By the callback: an error if the peer does not answer or the
    /// connection fails first.
    pub fn disconnect(self: &Arc<Self>, done: Done<()>) -> Status {
        let _call = Call::enter();
        self.request(done, |completion| Ok(self.raw()?.disconnect(sink(completion))?))
    }

    /// `NdkCloseConnector`: ends the connection, rejects an unanswered request (NDK LT-13).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let raw = lock(&self.raw).take();
        drop(raw); // the last handle: what is under way ends as cancelled (NDK LT-6)
        let connector = Arc::clone(self);
        self.life.close(Box::new(move || drop(lock(&connector.port).take())), Box::new(done))
    }
}

/// Whether a connector has taken an address, as it does while it is idle. One that cannot connect in
/// its state keeps what it has, and Connect says why it cannot.
fn takes_address(bound: raw::Result<()>) -> Result<bool, Status> {
    match bound {
        Ok(()) => Ok(true),
        Err(error) if error.status == Engine::AddressAssociated => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// From a port that was named, the system lacks none: the peer is one that it has a connection to
/// (NDK CN-8).
fn with_named_port(status: Status) -> Status {
    match status {
        Status::TOO_MANY_ADDRESSES => Status::ADDRESS_ALREADY_EXISTS,
        status => status,
    }
}
