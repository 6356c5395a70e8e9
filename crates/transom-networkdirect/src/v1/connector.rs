//! INDConnector (ND1 10, 11).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use transom_engine::raw;
use transom_wire::ReadLimits;

use super::{Adapter, CompletionQueue, Endpoint, overlapped_result};
use crate::com::{Alive, AnyPtr, InPtr, Object, OutPtr, class};
use crate::guid::{IID_INDConnector, IID_INDEndpoint, IID_INDOverlapped};
use crate::limits;
use crate::os::{OverlappedPtr, lock};
use crate::status::*;
use crate::table::nd1;
use crate::v2::{private_data, put_address, put_private};

/// A connector. Its end disconnects, rejects or gives up (ND1 C-6, D-8).
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::Connector,
    inner: Mutex<Inner>,
    _alive: Alive,
}

#[derive(Debug, Default)]
struct Inner {
    /// The endpoint it made: Connect and Accept take no other (ND1 1).
    endpoint: Weak<Endpoint>,
    bound: bool,
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

/// Ports are TCP ports here; version 1's other port spaces are not built.
pub(crate) fn only_tcp(protocol: i32) -> Result<(), i32> {
    const TCP: i32 = 6;
    if protocol == TCP || protocol == 0 { Ok(()) } else { Err(ND_NOT_SUPPORTED) }
}

fn within(value: usize, limit: u32, invalid: i32) -> Result<u32, i32> {
    u32::try_from(value).ok().filter(|value| *value <= limit).ok_or(invalid)
}

impl Connector {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Connector>, i32> {
        let raw = adapter.nic.raw.connector().map_err(|e| nd1(e.status))?;
        let (adapter, inner) = (adapter.clone(), Mutex::default());
        Ok(Arc::new(Connector { adapter, raw, inner, _alive: Alive::new() }))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.raw.cancel().map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(
        self: &Arc<Self>,
        overlapped: OverlappedPtr,
        bytes: OutPtr<usize>,
        wait: i32,
    ) -> Outcome {
        overlapped_result(overlapped, bytes, wait)
    }

    fn queue(&self, given: AnyPtr, invalid: i32) -> Result<Arc<CompletionQueue>, i32> {
        given
            .value::<CompletionQueue>()
            .filter(|queue| Arc::ptr_eq(&queue.adapter, &self.adapter))
            .ok_or(invalid)
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
        let inbound_queue = self.queue(inbound_queue, ND_INVALID_PARAMETER_1)?;
        let outbound_queue = self.queue(outbound_queue, ND_INVALID_PARAMETER_2)?;
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
        let mut inner = lock(&self.inner);
        if inner.endpoint.strong_count() > 0 {
            return Err(ND_NOT_SUPPORTED); // ND1 1: one endpoint
        }
        let [inbound, outbound] = depths;
        let endpoint =
            Endpoint::new(&self.adapter, inbound_queue, outbound_queue, inbound, outbound, limits)?;
        inner.endpoint = Arc::downgrade(&endpoint);
        drop(inner);
        inline.put(limits::INLINE as usize);
        Object::give(endpoint, IID_INDEndpoint, out)
    }

    /// The endpoint, if it is the one this connector made.
    fn endpoint(&self, given: AnyPtr) -> Result<Arc<Endpoint>, i32> {
        let endpoint = given.value::<Endpoint>().ok_or(ND_INVALID_PARAMETER_1)?;
        let own = std::ptr::eq(lock(&self.inner).endpoint.as_ptr(), Arc::as_ptr(&endpoint));
        if own { Ok(endpoint) } else { Err(ND_INVALID_PARAMETER_1) }
    }

    fn begin(
        &self,
        overlapped: OverlappedPtr,
        call: impl FnOnce(raw::Sink) -> Result<(), raw::Error>,
    ) -> Outcome {
        let (started, finisher) = self.adapter.file.begin(overlapped)?;
        let sink = raw::Sink::call(move |status| finisher.finish(nd1(status)));
        Ok(started.answer(call(sink).map_err(|e| nd1(e.status))))
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
        if !(0..=255).contains(&protocol) {
            return Err(ND_INVALID_PARAMETER_4);
        }
        only_tcp(protocol)?;
        let limit = self.adapter.nic.caps().caller_data;
        let private = private_data(private, private_length, limit, ND_BUFFER_OVERFLOW)?;
        let mut inner = lock(&self.inner);
        if !inner.bound {
            let from = SocketAddr::new(self.adapter.address, u16::from_be(port));
            self.raw.bind(from).map_err(|e| nd1(e.status))?;
            inner.bound = true;
        }
        drop(inner);
        let limits = endpoint.limits;
        self.begin(overlapped, |sink| self.raw.connect(&endpoint.raw, to, limits, &private, sink))
    }

    fn complete_connect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        let (started, finisher) = self.adapter.file.begin(overlapped)?;
        let done = self.raw.complete_connect().map_err(|e| nd1(e.status));
        if done.is_ok() {
            finisher.finish(ND_SUCCESS);
        }
        Ok(started.answer(done))
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
        self.begin(overlapped, |sink| self.raw.accept(&endpoint.raw, limits, &private, sink))
    }

    fn reject(self: &Arc<Self>, private: InPtr<u8>, private_length: usize) -> Outcome {
        let limit = self.adapter.nic.caps().callee_data;
        let private = private_data(private, private_length, limit, ND_BUFFER_OVERFLOW)?;
        self.raw.reject(&private).map_err(|e| match nd1(e.status) {
            ND_INVALID_DEVICE_STATE => ND_CONNECTION_INVALID, // ND1 11.3
            other => other,
        })?;
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
        put_address(self.raw.local().map_err(|e| nd1(e.status))?, out, length)
    }

    fn get_peer_address(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<usize>) -> Outcome {
        put_address(self.raw.peer().map_err(|e| nd1(e.status))?, out, length)
    }

    fn notify_disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.notify_disconnect(sink))
    }

    fn disconnect(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        self.begin(overlapped, |sink| self.raw.disconnect(sink))
    }
}
