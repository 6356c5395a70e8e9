//! Shared endpoints: a local address for several outgoing connections (NDK CN-8).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use transom_engine::raw;

use super::Adapter;
use crate::Status;
use crate::deliver::{Call, lock};
use crate::life::Life;

/// A shared endpoint.
#[derive(Debug)]
pub struct SharedEndpoint {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    /// The endpoint's port, which is in use until the last connector on it is closed (NDK CN-6).
    port: Mutex<Option<raw::ReservedPort>>,
}

impl SharedEndpoint {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        address: SocketAddr,
    ) -> Result<Arc<SharedEndpoint>, Status> {
        if !adapter.has_address(address) {
            return Err(Status::INVALID_ADDRESS);
        }
        let port = Mutex::new(Some(adapter.raw.reserve_port(address)?));
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        Ok(Arc::new(SharedEndpoint { life, adapter: Arc::clone(adapter), port }))
    }

    /// The endpoint's port, unless the endpoint is being closed.
    pub(crate) fn port(&self) -> Result<raw::ReservedPort, Status> {
        let open = if self.life.is_closing() { None } else { lock(&self.port).clone() };
        open.ok_or(Status::INVALID_DEVICE_STATE)
    }

    /// `NdkGetLocalAddress` of a shared endpoint.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` if it is being closed.
    pub fn local_address(&self) -> Result<SocketAddr, Status> {
        Ok(self.port()?.address()?)
    }

    /// `NdkCloseSharedEndpoint`: waits for the connectors on it (NDK CN-7).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let endpoint = Arc::clone(self);
        self.life.close(Box::new(move || drop(lock(&endpoint.port).take())), Box::new(done))
    }
}
