//! INDListen (ND1 11.2).

use std::net::SocketAddr;
use std::sync::Arc;

use transom_engine::raw;

use super::{Adapter, Cancel, Connector, Space, overlapped_result};
use crate::call;
use crate::com::{Alive, AnyPtr, OutPtr, class};
use crate::guid::{IID_INDListen, IID_INDOverlapped};
use crate::os::OverlappedPtr;
use crate::status::*;
use crate::table::nd1;

/// A listener on one port.
#[derive(Debug)]
pub(crate) struct Listen {
    adapter: Arc<Adapter>,
    raw: raw::Listener,
    space: Space,
    _alive: Alive,
}

class!(Listen, [IID_INDListen, IID_INDOverlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, bytes: OutPtr<usize>, wait: i32) -> i32;
    fn get_connection_request(connector: AnyPtr, overlapped: OverlappedPtr) -> i32;
}
    /// ND1 C-5. Requests that wait in the backlog are refused when the engine's listener is
    /// dropped.
    fn released(this: &Arc<Listen>) {
        let _ = this.raw.cancel();
    }
);

impl Listen {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        backlog: usize,
        space: Space,
        port: u16,
    ) -> Result<Arc<Listen>, i32> {
        let address = space.map_address(SocketAddr::new(adapter.address, port))?;
        let raw = adapter.nic.raw.listener(address).map_err(|e| nd1(e.status))?;
        raw.listen(backlog).map_err(|e| nd1(e.status))?;
        let listen = Listen { adapter: adapter.clone(), raw, space, _alive: Alive::new() };
        Ok(adapter.adopt(Arc::new(listen)))
    }

    pub(crate) fn port(&self) -> Result<u16, i32> {
        let address = self.raw.address().map_err(|e| nd1(e.status))?;
        Ok(self.space.map_address(address)?.port())
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

    fn get_connection_request(
        self: &Arc<Self>,
        connector: AnyPtr,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let connector = connector.of::<Connector>(&self.adapter, ND_INVALID_PARAMETER_1)?;
        call::begin(&self.adapter.file, nd1, overlapped, |sink| {
            connector.space.set(&self.space);
            self.raw.get_request(&connector.raw, sink)
        })
    }
}

impl Cancel for Listen {
    fn cancel(&self) -> Outcome {
        self.raw.cancel().map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }
}
