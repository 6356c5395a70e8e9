//! IND2Listener (ND2 2.11).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use transom_engine::raw;

use super::{Adapter, Connector, overlapped_result};
use crate::call;
use crate::com::{Alive, AnyPtr, InPtr, OutPtr, class};
use crate::guid::{IID_IND2Listener, IID_IND2Overlapped};
use crate::marshal::put_address;
use crate::os::{File, OverlappedPtr, lock};
use crate::status::*;
use crate::table::nd2;

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    adapter: Arc<Adapter>,
    /// Once it has an address.
    raw: Mutex<Option<raw::Listener>>,
    file: Arc<File>,
    _alive: Alive,
}

class!(Listener, [IID_IND2Listener, IID_IND2Overlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, wait: i32) -> i32;
    fn bind(address: InPtr<u8>, length: u32) -> i32;
    fn listen(backlog: u32) -> i32;
    fn get_local_address(address: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn get_connection_request(connector: AnyPtr, overlapped: OverlappedPtr) -> i32;
}
    fn released(this: &Arc<Listener>) {
        // The engine's listener, once dropped, refuses what waits in the backlog (ND2 2.11).
        if let Some(raw) = lock(&this.raw).take() {
            let _ = raw.cancel();
        }
    }
);

impl Listener {
    pub(crate) fn new(adapter: &Arc<Adapter>, file: Arc<File>) -> Arc<Listener> {
        let raw = Mutex::new(None);
        Arc::new(Listener { adapter: adapter.clone(), raw, file, _alive: Alive::new() })
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        if let Ok(raw) = self.bound() {
            raw.cancel().map_err(|e| nd2(e.status))?;
        }
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        overlapped_result(overlapped, wait)
    }

    fn bind(self: &Arc<Self>, address: InPtr<u8>, length: u32) -> Outcome {
        let address = address.socket_address(length as usize).ok_or(ND_INVALID_ADDRESS)?;
        // A wildcard means all addresses of this adapter, and no other's (ND2 2.11).
        if !address.ip().is_unspecified() && address.ip() != self.adapter.address {
            return Err(ND_INVALID_ADDRESS);
        }
        let mut raw = lock(&self.raw);
        if raw.is_some() {
            return Err(STATUS_ADDRESS_ALREADY_ASSOCIATED); // ND2 C30
        }
        let address = SocketAddr::new(self.adapter.address, address.port());
        *raw = Some(self.adapter.nic.raw.listener(address).map_err(|e| nd2(e.status))?);
        Ok(ND_SUCCESS)
    }

    /// The engine's listener, which has an address.
    fn bound(&self) -> Result<raw::Listener, i32> {
        lock(&self.raw).clone().ok_or(ND_INVALID_DEVICE_STATE)
    }

    fn listen(self: &Arc<Self>, backlog: u32) -> Outcome {
        self.bound()?.listen(backlog as usize).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn get_local_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        put_address(self.bound()?.address().map_err(|e| nd2(e.status))?, out, length)
    }

    fn get_connection_request(
        self: &Arc<Self>,
        connector: AnyPtr,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let connector = connector.of::<Connector>(&self.adapter, ND_INVALID_PARAMETER_1)?;
        let raw = self.bound()?;
        call::begin(&self.file, nd2, overlapped, |sink| raw.get_request(&connector.raw, sink))
    }
}
