//! Connectors (NDK 9).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use transom_engine::raw;

use super::{Adapter, Qp};
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::life::Life;
use crate::{Status, below};

/// Called once when the peer has disconnected or the connection was lost; the argument is the
/// reason, 0 where none is known.
pub type DisconnectEvent = Box<dyn FnOnce(u32) + Send>;

/// What the peer sent, and the read limits as seen from here.
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
    pub(crate) raw: raw::Connector,
    /// Made by a listener for a request of a peer.
    incoming: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    qp: Option<Arc<Qp>>,
    event: Option<DisconnectEvent>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Connector>, Status> {
        let raw = below::connector(&adapter.raw)?;
        Ok(Connector::around(adapter, raw, &[&adapter.life], false))
    }

    pub(crate) fn around(
        adapter: &Arc<Adapter>,
        raw: raw::Connector,
        antecedents: &[&Arc<Life>],
        incoming: bool,
    ) -> Arc<Connector> {
        let life = Life::new(&adapter.deliverer, antecedents);
        let state = Mutex::default();
        Arc::new(Connector { life, adapter: Arc::clone(adapter), raw, incoming, state })
    }

    /// Tie the queue pair's life to this connector's (NDK 2.2).
    fn take_qp(&self, qp: &Arc<Qp>) {
        let mut state = lock(&self.state);
        if let Some(before) = state.qp.replace(Arc::clone(qp)) {
            self.life.leave(&before.life);
        }
        self.life.follow(&qp.life);
    }

    /// A request that ends when the engine says so.
    fn request(
        self: &Arc<Self>,
        done: Done<()>,
        start: impl FnOnce(Box<dyn FnOnce(Status) + Send>) -> Result<(), Status>,
    ) -> Status {
        let pending = Pending::new(&self.adapter.deliverer, self.life.busy(), done);
        let outcome = Arc::clone(&pending);
        let told = Box::new(move |status| outcome.resolve(status, ()));
        if let Err(status) = start(told) {
            return status; // refused at once: no callback
        }
        returned(pending.settle())
    }

    /// `NdkConnect`.
    pub fn connect(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        from: SocketAddr,
        to: SocketAddr,
        limits: (u32, u32),
        private: &[u8],
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        if !Arc::ptr_eq(&qp.pd.adapter, &self.adapter) {
            return Status::INVALID_PARAMETER;
        }
        if self.incoming {
            return Status::CONNECTION_INVALID;
        }
        self.take_qp(qp);
        self.request(done, |told| {
            below::connect(&self.raw, &qp.raw, (from, to), limits, private, told)
        })
    }

    /// `NdkCompleteConnect(Ex)`.
    pub fn complete_connect(
        self: &Arc<Self>,
        event: Option<DisconnectEvent>,
        done: Done<()>,
    ) -> Status {
        let _call = Call::enter();
        self.establish(event, done, |told| below::complete_connect(&self.raw, told))
    }

    /// `NdkAccept(Ex)`.
    pub fn accept(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        limits: (u32, u32),
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
        self.take_qp(qp);
        self.establish(event, done, |told| {
            below::accept(&self.raw, &qp.raw, limits, private, told)
        })
    }

    /// The last step of either side. The disconnect event may come once its callback has returned,
    /// not earlier (DC-8).
    fn establish(
        self: &Arc<Self>,
        event: Option<DisconnectEvent>,
        done: Done<()>,
        start: impl FnOnce(Box<dyn FnOnce(Status) + Send>) -> Result<(), Status>,
    ) -> Status {
        lock(&self.state).event = event;
        let connector = Arc::clone(self);
        let then = Box::new(move |status: Status, ()| {
            done(status, ());
            connector.established(status);
        });
        let status = self.request(then, start);
        if status != Status::PENDING {
            self.established(status); // inline: `done` was not called
        }
        status
    }

    fn established(self: &Arc<Self>, status: Status) {
        if !status.is_success() {
            lock(&self.state).event = None;
            return;
        }
        let connector = Arc::downgrade(self);
        below::notify_disconnect(&self.raw, move |status| {
            if let Some(connector) = connector.upgrade() {
                connector.peer_gone(status);
            }
        });
    }

    /// DC-3, DC-4: the peer's doing only, and once.
    fn peer_gone(self: &Arc<Self>, status: Status) {
        if !below::is_peers_doing(status) {
            return;
        }
        let Some(event) = lock(&self.state).event.take() else { return };
        let Some(busy) = self.life.busy() else { return };
        self.adapter.deliverer.event(Box::new(move || {
            event(0);
            drop(busy);
        }));
    }

    /// `NdkReject`: inline only.
    pub fn reject(&self, private: &[u8]) -> Status {
        let _call = Call::enter();
        below::reject(&self.raw, private).err().unwrap_or(Status::SUCCESS)
    }

    /// `NdkGetConnectionData`.
    pub fn connection_data(&self) -> Result<ConnectionData, Status> {
        let info = self.adapter.info();
        let required = if self.incoming { info.max_caller_data } else { info.max_callee_data };
        let (inbound, outbound, mut private) = below::connection_data(&self.raw)?;
        private.resize(required as usize, 0);
        Ok(ConnectionData { inbound, outbound, private })
    }

    /// `NdkGetLocalAddress`.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        below::local_address(&self.raw)
    }

    /// `NdkGetPeerAddress`.
    pub fn peer_address(&self) -> Result<SocketAddr, Status> {
        below::peer_address(&self.raw)
    }

    /// `NdkDisconnect`.
    pub fn disconnect(self: &Arc<Self>, done: Done<()>) -> Status {
        let _call = Call::enter();
        lock(&self.state).event = None; // DC-4
        self.request(done, |told| below::disconnect(&self.raw, told))
    }

    /// `NdkCloseConnector`: ends the connection, rejects an unanswered request (LT-13).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        lock(&self.state).event = None;
        below::close_connector(&self.raw);
        let connector = Arc::clone(self);
        let end = move || lock(&connector.state).qp = None;
        self.life.close(Box::new(end), Box::new(done))
    }
}
