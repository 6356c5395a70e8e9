//! IND2Connector (ND2 2.10, 4.7).

use std::net::SocketAddr;
use std::sync::Arc;

use transom_engine::raw;
use transom_wire::ReadLimits;

use super::{Adapter, QueuePair, overlapped_result};
use crate::call;
use crate::com::{Alive, AnyPtr, InPtr, OutPtr, class};
use crate::guid::{IID_IND2Connector, IID_IND2Overlapped};
use crate::marshal::{private_data, put_address, put_private};
use crate::os::{File, OverlappedPtr};
use crate::status::*;
use crate::table::nd2;

/// A connector. The connector's end, with the last Release, disconnects, rejects or gives up, on
/// the wire before it returns (ND2 1.3 rule 5, 4.9). No request, queue pair or listener holds it in
/// a way that programs can count (ND2 1.3 rule 4).
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::Connector,
    file: Arc<File>,
    _alive: Alive,
}

class!(Connector, [IID_IND2Connector, IID_IND2Overlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, wait: i32) -> i32;
    fn bind(address: InPtr<u8>, length: u32) -> i32;
    fn connect(
        pair: AnyPtr,
        address: InPtr<u8>,
        address_length: u32,
        inbound: u32,
        outbound: u32,
        private: InPtr<u8>,
        private_length: u32,
        overlapped: OverlappedPtr,
    ) -> i32;
    fn complete_connect(overlapped: OverlappedPtr) -> i32;
    fn accept(
        pair: AnyPtr,
        inbound: u32,
        outbound: u32,
        private: InPtr<u8>,
        private_length: u32,
        overlapped: OverlappedPtr,
    ) -> i32;
    fn reject(private: InPtr<u8>, private_length: u32) -> i32;
    fn get_read_limits(inbound: OutPtr<u32>, outbound: OutPtr<u32>) -> i32;
    fn get_private_data(private: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn get_local_address(address: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn get_peer_address(address: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn notify_disconnect(overlapped: OverlappedPtr) -> i32;
    fn disconnect(overlapped: OverlappedPtr) -> i32;
});

impl Connector {
    pub(crate) fn new(adapter: &Arc<Adapter>, file: Arc<File>) -> Result<Arc<Connector>, i32> {
        let raw = adapter.nic.raw.connector().map_err(|e| nd2(e.status))?;
        Ok(Arc::new(Connector { adapter: adapter.clone(), raw, file, _alive: Alive::new() }))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.raw.cancel().map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        overlapped_result(overlapped, wait)
    }

    fn bind(self: &Arc<Self>, address: InPtr<u8>, length: u32) -> Outcome {
        let address = address.socket_address(length as usize).ok_or(ND_INVALID_ADDRESS)?;
        // An address of this adapter, or any (which is the same).
        if !address.ip().is_unspecified() && address.ip() != self.adapter.address {
            return Err(ND_INVALID_ADDRESS);
        }
        let address = SocketAddr::new(self.adapter.address, address.port());
        self.raw.bind(address).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    /// Begin an overlapped call of the engine.
    fn begin(
        &self,
        overlapped: OverlappedPtr,
        begun: impl FnOnce(raw::Sink) -> Result<(), raw::Error>,
    ) -> Outcome {
        call::begin(&self.file, nd2, overlapped, begun)
    }

    fn connect(
        self: &Arc<Self>,
        pair: AnyPtr,
        address: InPtr<u8>,
        address_length: u32,
        inbound: u32,
        outbound: u32,
        private: InPtr<u8>,
        private_length: u32,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let pair = pair.of::<QueuePair>(&self.adapter, ND_INVALID_PARAMETER_1)?;
        let to = address.socket_address(address_length as usize).ok_or(ND_INVALID_ADDRESS)?;
        let limit = self.adapter.nic.caps().caller_data;
        let private =
            private_data(private, private_length as usize, limit, ND_INVALID_BUFFER_SIZE)?;
        let limits = ReadLimits { inbound, outbound };
        self.begin(overlapped, |sink| self.raw.connect(&pair.raw, to, limits, &private, sink))
    }

    fn complete_connect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        call::at_once(&self.file, overlapped, || {
            self.raw.complete_connect().map_err(|e| nd2(e.status))
        })
    }

    fn accept(
        self: &Arc<Self>,
        pair: AnyPtr,
        inbound: u32,
        outbound: u32,
        private: InPtr<u8>,
        private_length: u32,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let pair = pair.of::<QueuePair>(&self.adapter, ND_INVALID_PARAMETER_1)?;
        let limit = self.adapter.nic.caps().callee_data;
        let private =
            private_data(private, private_length as usize, limit, ND_INVALID_BUFFER_SIZE)?;
        let limits = ReadLimits { inbound, outbound };
        self.begin(overlapped, |sink| self.raw.accept(&pair.raw, limits, &private, sink))
    }

    fn reject(self: &Arc<Self>, private: InPtr<u8>, private_length: u32) -> Outcome {
        let limit = self.adapter.nic.caps().callee_data;
        let private =
            private_data(private, private_length as usize, limit, ND_INVALID_BUFFER_SIZE)?;
        self.raw.reject(&private).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn get_read_limits(self: &Arc<Self>, inbound: OutPtr<u32>, outbound: OutPtr<u32>) -> Outcome {
        let limits = self.raw.read_limits().map_err(|e| nd2(e.status))?;
        inbound.put(limits.inbound);
        outbound.put(limits.outbound);
        Ok(ND_SUCCESS)
    }

    fn get_private_data(self: &Arc<Self>, private: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        let bytes = self.raw.private_data().map_err(|e| nd2(e.status))?;
        put_private(&bytes, private, length)
    }

    fn get_local_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        put_address(self.raw.local().map_err(|e| nd2(e.status))?, out, length)
    }

    fn get_peer_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        put_address(self.raw.peer().map_err(|e| nd2(e.status))?, out, length)
    }

    fn notify_disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.notify_disconnect(sink))
    }

    fn disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.disconnect(sink))
    }
}
