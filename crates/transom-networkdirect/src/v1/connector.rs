//! INDConnector (ND1 10, 11).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use transom_engine::{Status, raw};
use transom_wire::ReadLimits;

use super::{Adapter, Cancel, Endpoint, Space, overlapped_result};
use crate::call;
use crate::com::{Alive, AnyPtr, InPtr, Object, OutPtr, class};
use crate::guid::{IID_INDConnector, IID_INDEndpoint, IID_INDOverlapped};
use crate::limits;
use crate::marshal::{private_data, put_address, put_private, within};
use crate::os::{OverlappedPtr, lock};
use crate::status::*;
use crate::table::nd1;

/// A connector. The connector's end disconnects, rejects or gives up (ND1 C-6, D-8).
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::Connector,
    pub(crate) space: Space,
    /// The endpoint it made: Connect and Accept take no other (ND1 1).
    endpoint: Mutex<Weak<Endpoint>>,
    _alive: Alive,
}

class!(Connector, [IID_INDConnector, IID_INDOverlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, bytes: OutPtr<usize>, wait: i32) -> i32;
    fn create_endpoint(
        inbound_queue: AnyPtr,
        outbound_queue: AnyPtr,
        inbound_entries: usize,
        outbound_entries: usize,
        inbound_sge: usize,
        outbound_sge: usize,
        inbound_reads: usize,
        outbound_reads: usize,
        inline: OutPtr<usize>,
        out: OutPtr<usize>,
    ) -> i32;
    fn connect(
        endpoint: AnyPtr,
        address: InPtr<u8>,
        address_length: usize,
        protocol: i32,
        port: u16,
        private: InPtr<u8>,
        private_length: usize,
        overlapped: OverlappedPtr,
    ) -> i32;
    fn complete_connect(overlapped: OverlappedPtr) -> i32;
    fn accept(
        endpoint: AnyPtr,
        private: InPtr<u8>,
        private_length: usize,
        overlapped: OverlappedPtr,
    ) -> i32;
    fn reject(private: InPtr<u8>, private_length: usize) -> i32;
    fn get_connection_data(
        inbound: OutPtr<usize>,
        outbound: OutPtr<usize>,
        private: OutPtr<u8>,
        length: OutPtr<usize>,
    ) -> i32;
    fn get_local_address(address: OutPtr<u8>, length: OutPtr<usize>) -> i32;
    fn get_peer_address(address: OutPtr<u8>, length: OutPtr<usize>) -> i32;
    fn notify_disconnect(overlapped: OverlappedPtr) -> i32;
    fn disconnect(overlapped: OverlappedPtr) -> i32;
});

impl Connector {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Connector>, i32> {
        let raw = adapter.nic.raw.connector().map_err(|e| nd1(e.status))?;
        let (space, endpoint) = (Space::tcp(), Mutex::default());
        let connector =
            Connector { adapter: adapter.clone(), raw, space, endpoint, _alive: Alive::new() };
        Ok(adapter.adopt(Arc::new(connector)))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.cancel()
    }

    fn get_overlapped_result(
        self: &Arc<Self>,
        overlapped: OverlappedPtr,
        bytes: OutPtr<usize>,
        wait: i32,
    ) -> Outcome {
        overlapped_result(overlapped, bytes, wait)
    }

    fn create_endpoint(
        self: &Arc<Self>,
        inbound_queue: AnyPtr,
        outbound_queue: AnyPtr,
        inbound_entries: usize,
        outbound_entries: usize,
        inbound_sge: usize,
        outbound_sge: usize,
        inbound_reads: usize,
        outbound_reads: usize,
        inline: OutPtr<usize>,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let inbound_queue = inbound_queue.of(&self.adapter, ND_INVALID_PARAMETER_1)?;
        let outbound_queue = outbound_queue.of(&self.adapter, ND_INVALID_PARAMETER_2)?;
        let depths = [
            within(inbound_entries, limits::QUEUE_DEPTH, ND_INVALID_PARAMETER_3)?,
            within(outbound_entries, limits::QUEUE_DEPTH, ND_INVALID_PARAMETER_4)?,
        ];
        within(inbound_sge, limits::SGE, ND_INVALID_PARAMETER_5)?;
        within(outbound_sge, limits::SGE, ND_INVALID_PARAMETER_6)?;
        let most = self.adapter.nic.caps().reads;
        let limits = ReadLimits {
            inbound: within(inbound_reads, most.inbound, ND_INVALID_PARAMETER_7)?,
            outbound: within(outbound_reads, most.outbound, ND_INVALID_PARAMETER_8)?,
        };
        let mut own = lock(&self.endpoint);
        if own.strong_count() > 0 {
            return Err(ND_NOT_SUPPORTED); // ND1 1: one endpoint
        }
        let [inbound, outbound] = depths;
        let endpoint =
            Endpoint::new(&self.adapter, inbound_queue, outbound_queue, inbound, outbound, limits)?;
        *own = Arc::downgrade(&endpoint);
        drop(own);
        inline.put(limits::INLINE as usize);
        Object::give(endpoint, IID_INDEndpoint, out)
    }

    /// The endpoint, if it is the one this connector made.
    fn endpoint(&self, given: AnyPtr) -> Result<Arc<Endpoint>, i32> {
        let endpoint = given.value::<Endpoint>().ok_or(ND_INVALID_PARAMETER_1)?;
        let own = std::ptr::eq(lock(&self.endpoint).as_ptr(), Arc::as_ptr(&endpoint));
        if own { Ok(endpoint) } else { Err(ND_INVALID_PARAMETER_1) }
    }

    fn begin(
        &self,
        overlapped: OverlappedPtr,
        begun: impl FnOnce(raw::Sink) -> Result<(), raw::Error>,
    ) -> Outcome {
        call::begin(&self.adapter.file, nd1, overlapped, begun)
    }

    fn connect(
        self: &Arc<Self>,
        endpoint: AnyPtr,
        address: InPtr<u8>,
        address_length: usize,
        protocol: i32,
        port: u16,
        private: InPtr<u8>,
        private_length: usize,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let endpoint = self.endpoint(endpoint)?;
        let to = address.socket_address(address_length).ok_or(ND_INVALID_ADDRESS)?;
        let space = Space::of(protocol).ok_or(ND_INVALID_PARAMETER_4)?;
        let to = space.map_address(to)?;
        let limit = self.adapter.nic.caps().caller_data;
        let private = private_data(private, private_length, limit, ND_BUFFER_OVERFLOW)?;
        let from = SocketAddr::new(self.adapter.address, u16::from_be(port));
        match self.raw.bind(space.map_address(from)?).map_err(|e| e.status) {
            Ok(()) => self.space.set(&space),
            // Connecting or more: Connect says so.
            Err(Status::AddressAssociated) => {}
            Err(status) => return Err(nd1(status)),
        }
        let limits = endpoint.limits;
        self.begin(overlapped, |sink| self.raw.connect(&endpoint.raw, to, limits, &private, sink))
    }

    fn complete_connect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        call::at_once(&self.adapter.file, overlapped, || {
            self.raw.complete_connect().map_err(|e| nd1(e.status))?;
            self.agreed();
            Ok(())
        })
    }

    fn accept(
        self: &Arc<Self>,
        endpoint: AnyPtr,
        private: InPtr<u8>,
        private_length: usize,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let endpoint = self.endpoint(endpoint)?;
        let limit = self.adapter.nic.caps().callee_data;
        let private = private_data(private, private_length, limit, ND_BUFFER_OVERFLOW)?;
        let limits = endpoint.limits;
        self.begin(overlapped, |sink| {
            endpoint.accepts(); // before a message can be retrieved
            self.raw.accept(&endpoint.raw, limits, &private, sink)?;
            self.agreed();
            Ok(())
        })
    }

    /// The read limits of the endpoint are known (ND1 C-1).
    fn agreed(&self) {
        let endpoint = lock(&self.endpoint).upgrade();
        if let (Some(endpoint), Ok(limits)) = (endpoint, self.raw.read_limits()) {
            endpoint.agreed(limits);
        }
    }

    fn reject(self: &Arc<Self>, private: InPtr<u8>, private_length: usize) -> Outcome {
        let limit = self.adapter.nic.caps().callee_data;
        let private = private_data(private, private_length, limit, ND_BUFFER_OVERFLOW)?;
        self.raw.reject(&private).map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn get_connection_data(
        self: &Arc<Self>,
        inbound: OutPtr<usize>,
        outbound: OutPtr<usize>,
        private: OutPtr<u8>,
        length: OutPtr<usize>,
    ) -> Outcome {
        let bytes = self.raw.private_data().map_err(|e| nd1(e.status))?;
        // A Reject carries data and no limits.
        let limits = self.raw.read_limits().unwrap_or_default();
        inbound.put(limits.inbound as usize);
        outbound.put(limits.outbound as usize);
        if length.is_null() && private.is_null() {
            return Ok(ND_SUCCESS);
        }
        put_private(&bytes, private, length)
    }

    fn get_local_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<usize>) -> Outcome {
        let address = self.raw.local().map_err(|e| nd1(e.status))?;
        put_address(self.space.map_address(address)?, out, length)
    }

    fn get_peer_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<usize>) -> Outcome {
        let address = self.raw.peer().map_err(|e| nd1(e.status))?;
        put_address(self.space.map_address(address)?, out, length)
    }

    fn notify_disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.notify_disconnect(sink))
    }

    fn disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.disconnect(sink))
    }
}

impl Cancel for Connector {
    fn cancel(&self) -> Outcome {
        self.raw.cancel().map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }
}
