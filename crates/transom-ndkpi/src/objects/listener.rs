//! Listeners (NDK 9).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use transom_engine::raw;

use super::{Adapter, Connector};
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};
use crate::life::Life;
use crate::table::sink;

/// Requests that wait for the end of the callback for another one, at most: peers come as fast as they like, and each
/// that stays has a descriptor of this process.
const MOST_WAITING: usize = 1024;

/// Called for each incoming request. The connector is the callee's: to be accepted or rejected, and
/// closed in any case.
pub type ConnectEvent = Box<dyn Fn(Arc<Connector>) + Send + Sync>;

/// A listener.
pub struct Listener {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    /// The engine's listener, which takes requests from Listen to close.
    raw: Mutex<Option<raw::Listener>>,
    /// The listener's port, which is in use until the last connector that it accepted is closed (NDK CN-6).
    port: Mutex<Option<raw::ReservedPort>>,
    event: ConnectEvent,
    paused: AtomicBool,
    /// Requests whose callback has not returned.
    called: raw::DescriptorShare,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("paused", &self.paused).finish_non_exhaustive()
    }
}

impl Listener {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        event: ConnectEvent,
    ) -> Result<Arc<Listener>, Status> {
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        let (adapter, paused) = (Arc::clone(adapter), AtomicBool::new(false));
        let (raw, port) = (Mutex::default(), Mutex::default());
        let called = raw::DescriptorShare::default();
        Ok(Arc::new(Listener { life, adapter, raw, port, event, paused, called }))
    }

    /// `NdkListen`.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` if it listens already, `INVALID_ADDRESS` for an address that is not
    /// the adapter's, `SHARING_VIOLATION` and `TOO_MANY_ADDRESSES` for its port,
    /// `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn listen(self: &Arc<Self>, address: SocketAddr, done: Done<()>) -> Status {
        let _call = Call::enter();
        let status = match self.try_listen(address) {
            Ok(()) => Status::SUCCESS,
            Err(Status::INVALID_DEVICE_STATE) => return Status::INVALID_DEVICE_STATE,
            Err(status) => status,
        };
        let pending = Pending::new(&self.adapter.deliverer, self.life.busy(), done);
        pending.resolve(status, ());
        returned(pending.settle())
    }

    fn try_listen(self: &Arc<Self>, address: SocketAddr) -> Result<(), Status> {
        let mut slot = lock(&self.raw);
        if slot.is_some() {
            return Err(Status::INVALID_DEVICE_STATE);
        }
        if !self.adapter.has_address(address) {
            return Err(Status::INVALID_ADDRESS);
        }
        let port = self.adapter.raw.reserve_port(address)?;
        *slot = Some(port.listen(0)?);
        *lock(&self.port) = Some(port);
        drop(slot);
        self.next_request();
        Ok(())
    }

    /// Wait for one request.
    fn next_request(self: &Arc<Self>) {
        let Some(raw) = lock(&self.raw).clone() else { return };
        let Ok(connector) = self.adapter.raw.connector() else { return };
        let (listener, taken) = (Arc::downgrade(self), connector.clone());
        let arrived = sink(move |status| {
            let Some(listener) = listener.upgrade() else { return };
            if status.is_success() {
                listener.arrived(taken);
                listener.next_request();
            }
        });
        // An error is the port's end: nothing more arrives.
        let _ = raw.get_request(&connector, arrived);
    }

    fn arrived(self: &Arc<Self>, connector: raw::Connector) {
        let busy = self.life.busy();
        let paused = self.paused.load(Ordering::Acquire);
        let full = !self.called.has_room(MOST_WAITING + 1);
        let Some(busy) = busy.filter(|_| !paused && !full) else {
            // As if there were no listener (NDK CN-5, LT-12).
            let _ = connector.reject(&[]);
            return;
        };
        let antecedents = [&self.adapter.life, &self.life];
        let connector = Connector::around(&self.adapter, connector, &antecedents, true);
        let listener = Arc::clone(self);
        // Requests come one after the other, so that no other thread adds to it between the look and this.
        let called = self.called.take();
        self.adapter.deliverer.event(Box::new(move || {
            (listener.event)(connector);
            drop((called, busy));
        }));
    }

    /// `NdkGetLocalAddress` of a listener.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` if it does not listen.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        let raw = lock(&self.raw).clone().ok_or(Status::INVALID_DEVICE_STATE)?;
        Ok(raw.address()?)
    }

    /// `NdkControlConnectEvents`.
    pub fn control_connect_events(&self, pause: bool) {
        self.paused.store(pause, Ordering::Release);
    }

    /// `NdkCloseListener`: from now on requests are rejected (NDK LT-12), even while the close
    /// waits for accepted connectors.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        self.paused.store(true, Ordering::Release);
        let raw = lock(&self.raw).take();
        drop(raw); // the last handle: it refuses requests that were not taken
        let listener = Arc::clone(self);
        self.life.close(Box::new(move || drop(lock(&listener.port).take())), Box::new(done))
    }
}
