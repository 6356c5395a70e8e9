//! Listeners (NDK 9).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use transom_engine::raw;

use super::{Adapter, Connector};
use crate::deliver::{Call, Done, Pending, returned};
use crate::life::Life;
use crate::{Status, below};

/// Called for each incoming request. The connector is the callee's: to be accepted or rejected, and
/// closed in any case.
pub type ConnectEvent = Box<dyn Fn(Arc<Connector>) + Send + Sync>;

/// A listener.
pub struct Listener {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    raw: raw::Listener,
    event: ConnectEvent,
    paused: AtomicBool,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("paused", &self.paused).finish_non_exhaustive()
    }
}

impl Listener {
    pub(crate) fn new(adapter: &Arc<Adapter>, event: ConnectEvent) -> Result<Arc<Listener>, Status> {
        let raw = below::listener(&adapter.raw)?;
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        let (adapter, paused) = (Arc::clone(adapter), AtomicBool::new(false));
        Ok(Arc::new(Listener { life, adapter, raw, event, paused }))
    }

    /// `NdkListen`.
    pub fn listen(self: &Arc<Self>, address: SocketAddr, done: Done<()>) -> Status {
        let _call = Call::enter();
        let status = match below::listen(&self.raw, address) {
            Ok(()) => Status::SUCCESS,
            Err(status @ Status::INVALID_PARAMETER) => return status,
            Err(status) => status,
        };
        if status.is_success() {
            self.next_request();
        }
        let pending = Pending::new(&self.adapter.deliverer, self.life.busy(), done);
        pending.resolve(status, ());
        returned(pending.settle())
    }

    /// Wait for one request.
    fn next_request(self: &Arc<Self>) {
        let Ok(connector) = below::connector(&self.adapter.raw) else { return };
        let listener = Arc::downgrade(self);
        below::next_request(&self.raw, connector, move |connector, status| {
            let Some(listener) = listener.upgrade() else { return };
            if status.is_success() {
                listener.arrived(connector);
            }
            if status.is_success() || status != Status::CANCELLED {
                listener.next_request();
            }
        });
    }

    fn arrived(self: &Arc<Self>, connector: raw::Connector) {
        let busy = self.life.busy();
        let paused = self.paused.load(Ordering::Acquire);
        let Some(busy) = busy.filter(|_| !paused) else {
            // As if nobody listened (CN-5, LT-12).
            let _ = below::reject(&connector, &[]);
            below::close_connector(&connector);
            return;
        };
        let antecedents = [&self.adapter.life, &self.life];
        let connector = Connector::around(&self.adapter, connector, &antecedents, true);
        let listener = Arc::clone(self);
        self.adapter.deliverer.event(Box::new(move || {
            (listener.event)(connector);
            drop(busy);
        }));
    }

    /// `NdkGetLocalAddress` of a listener.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        below::listener_address(&self.raw)
    }

    /// `NdkControlConnectEvents`.
    pub fn control_connect_events(&self, pause: bool) {
        self.paused.store(pause, Ordering::Release);
    }

    /// `NdkCloseListener`: from now on requests are rejected (LT-12), even while the close waits for
    /// accepted connectors.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        self.paused.store(true, Ordering::Release);
        below::close_listener(&self.raw);
        self.life.close(Box::new(|| ()), Box::new(done))
    }
}
