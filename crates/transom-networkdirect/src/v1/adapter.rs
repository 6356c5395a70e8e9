//! INDAdapter (ND1 6.3, 7).

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use transom_engine::{Status, dialect, raw};
use transom_memory::{Rights, Token};

use super::{Cancel, CompletionQueue, Connector, Listen, Space, Window, overlapped_result};
use crate::abi::*;
use crate::call;
use crate::com::{Alive, InPtr, Object, OutPtr, class};
use crate::guid::{
    Guid, IID_INDAdapter, IID_INDCompletionQueue, IID_INDConnector, IID_INDListen,
    IID_INDMemoryWindow, IID_INDOverlapped,
};
use crate::limits;
use crate::names::Names;
use crate::nic::Nic;
use crate::os::{File, Handle, OverlappedPtr, lock};
use crate::status::*;
use crate::table::nd1;

/// An adapter, with the one file that all its objects use (ND1 OV-9).
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) nic: Nic,
    pub(crate) address: IpAddr,
    pub(crate) file: Arc<File>,
    handle: Handle,
    pub(crate) regions: Mutex<Regions>,
    /// Windows by the tokens of their Binds, for the news that a peer has invalidated one.
    pub(crate) windows: Mutex<HashMap<u32, Weak<Window>>>,
    pub(crate) strict: Strict,
    /// The objects that have overlapped requests on the file.
    children: Mutex<Vec<Weak<dyn Cancel>>>,
    _alive: Alive,
}

/// Rules that the environment has version 1 hold strictly. Nothing needs either of them to work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strict {
    /// An endpoint has one bound window at a time, as one sentence of the interface has it (ND1
    /// 15.1).
    pub(crate) one_window: bool,
    /// The passive side of a connection speaks when it has received, as hardware with iWARP wants
    /// it (ND1 C-7).
    pub(crate) speak_first: bool,
}

/// Registrations by handle. A handle carries the local token in its lower half, so that a list
/// needs no look-up, and a number in its upper half, so that a stale one is known (ND1 DER-3).
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_handle: HashMap<usize, Token>,
    last: u32,
}

impl Regions {
    pub(crate) fn get(&self, handle: usize) -> Option<Token> {
        self.by_handle.get(&handle).copied()
    }

    fn add(&mut self, token: Token) -> usize {
        self.last = self.last % 0x7FFF_FFFF + 1;
        let handle = (self.last as usize) << 32 | token.0 as usize;
        self.by_handle.insert(handle, token);
        handle
    }
}

/// The local token behind a handle; dead or foreign ones are found out when the request executes.
pub(crate) fn token_of(handle: usize) -> u32 {
    handle as u32
}

class!(Adapter, [IID_INDAdapter, IID_INDOverlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, bytes: OutPtr<usize>, wait: i32) -> i32;
    fn get_file_handle() -> Handle;
    fn query(version: u32, info: OutPtr<NdAdapterInfo>, length: OutPtr<usize>) -> i32;
    fn control(
        code: u32,
        input: InPtr<u8>,
        input_length: usize,
        output: OutPtr<u8>,
        output_length: usize,
        returned: OutPtr<usize>,
        overlapped: OverlappedPtr,
    ) -> i32;
    fn create_completion_queue(entries: usize, out: OutPtr<usize>) -> i32;
    fn register_memory(
        buffer: InPtr<u8>,
        length: usize,
        overlapped: OverlappedPtr,
        out: OutPtr<usize>,
    ) -> i32;
    fn deregister_memory(region: usize, overlapped: OverlappedPtr) -> i32;
    fn create_memory_window(invalidated: OutPtr<NdResult>, out: OutPtr<usize>) -> i32;
    fn create_connector(out: OutPtr<usize>) -> i32;
    fn listen(
        backlog: usize,
        protocol: i32,
        port: u16,
        assigned: OutPtr<u16>,
        out: OutPtr<usize>,
    ) -> i32;
}
    fn tear_off(this: &Arc<Adapter>, iid: Guid) -> Option<NonNull<c_void>> {
        Names::give(&this.nic.raw, iid)
    }
);

impl Drop for Adapter {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl Adapter {
    /// Open the adapter of a local address.
    pub(crate) fn open(address: IpAddr) -> Result<Arc<Adapter>, i32> {
        let nic = Nic::open(address, &dialect::ND1).map_err(nd1)?;
        let (file, handle) = File::open().ok_or(ND_INSUFFICIENT_RESOURCES)?;
        let raw::Environment { nd1_one_window, nd1_speak_first, .. } = raw::Environment::read();
        let strict = Strict { one_window: nd1_one_window, speak_first: nd1_speak_first };
        Ok(Arc::new(Adapter {
            nic,
            address,
            file,
            handle,
            regions: Mutex::default(),
            windows: Mutex::default(),
            strict,
            children: Mutex::default(),
            _alive: Alive::new(),
        }))
    }

    /// The window whose token a peer has invalidated, once: the program is about to be notified.
    pub(crate) fn window(&self, token: Token) -> Option<Arc<Window>> {
        let window = lock(&self.windows).remove(&token.0)?.upgrade()?;
        window.note_invalidated(token);
        Some(window)
    }

    /// `child` has overlapped requests, which end with those of the adapter.
    pub(crate) fn adopt<T: Cancel + 'static>(&self, child: Arc<T>) -> Arc<T> {
        let mut children = lock(&self.children);
        if children.len() == children.capacity() {
            children.retain(|child| child.strong_count() > 0);
            let more = children.len() + 1; // so that the next time is far off
            children.reserve(more);
        }
        let weak = Arc::downgrade(&child);
        children.push(weak);
        child
    }

    /// Those of all its objects (ND1 OV-8); its own are never under way.
    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        let children = lock(&self.children).clone();
        for child in children.iter().filter_map(Weak::upgrade) {
            child.cancel()?;
        }
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

    fn get_file_handle(self: &Arc<Self>) -> Handle {
        self.handle
    }

    fn query(
        self: &Arc<Self>,
        version: u32,
        info: OutPtr<NdAdapterInfo>,
        length: OutPtr<usize>,
    ) -> Outcome {
        const NEED: usize = size_of::<NdAdapterInfo>();
        if version != ND_VERSION_1 {
            return Err(ND_NOT_SUPPORTED);
        }
        let room = length.get().unwrap_or(NEED);
        length.put(NEED);
        if info.is_null() || room < NEED {
            return Err(ND_BUFFER_OVERFLOW);
        }
        let caps = self.nic.caps();
        info.put(NdAdapterInfo {
            vendor_id: u32::from(limits::VENDOR),
            device_id: u32::from(limits::DEVICE),
            max_inbound_sge: limits::SGE as usize,
            max_inbound_requests: limits::QUEUE_DEPTH as usize,
            max_inbound_length: limits::TRANSFER as usize,
            max_outbound_sge: limits::SGE as usize,
            max_outbound_requests: limits::QUEUE_DEPTH as usize,
            max_outbound_length: limits::TRANSFER as usize,
            max_inline_data: limits::INLINE as usize,
            max_inbound_read_limit: caps.reads.inbound as usize,
            max_outbound_read_limit: caps.reads.outbound as usize,
            max_cq_entries: limits::COMPLETION_QUEUE_DEPTH as usize,
            max_registration_size: limits::REGION as usize,
            max_window_size: limits::REGION as usize,
            large_request_threshold: limits::LARGE_THRESHOLD as usize,
            max_caller_data: caps.caller_data,
            max_callee_data: caps.callee_data,
        });
        Ok(ND_SUCCESS)
    }

    fn control(
        self: &Arc<Self>,
        _code: u32,
        _input: InPtr<u8>,
        _input_length: usize,
        _output: OutPtr<u8>,
        _output_length: usize,
        returned: OutPtr<usize>,
        _overlapped: OverlappedPtr,
    ) -> Outcome {
        returned.put(0);
        Err(ND_NOT_SUPPORTED)
    }

    fn create_completion_queue(self: &Arc<Self>, entries: usize, out: OutPtr<usize>) -> Outcome {
        let out = out.emptied();
        if entries == 0 || entries > limits::COMPLETION_QUEUE_DEPTH as usize {
            return Err(ND_INVALID_PARAMETER_1);
        }
        Object::give(CompletionQueue::new(self, entries)?, IID_INDCompletionQueue, out)
    }

    fn register_memory(
        self: &Arc<Self>,
        buffer: InPtr<u8>,
        length: usize,
        overlapped: OverlappedPtr,
        out: OutPtr<usize>,
    ) -> Outcome {
        let base = buffer.address();
        if length == 0 || length as u64 > limits::REGION || out.is_null() {
            return Err(ND_INVALID_PARAMETER); // ND1 REG-6, REG-8
        }
        if base == 0 || base.checked_add(length).is_none() {
            return Err(ND_ACCESS_VIOLATION); // ND1 REG-7
        }
        // ND1 REG-1: local read and write, and remote access through windows only.
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND;
        let (base, length) = (base as u64, length as u64);
        call::at_once(&self.file, overlapped, || {
            let token = self.nic.register(base, length, rights).map_err(|status| match status {
                Status::InvalidParameter(_) => ND_INVALID_PARAMETER,
                status => nd1(status),
            })?;
            out.put(lock(&self.regions).add(token));
            Ok(())
        })
    }

    fn deregister_memory(self: &Arc<Self>, region: usize, overlapped: OverlappedPtr) -> Outcome {
        let mut regions = lock(&self.regions);
        let token = regions.get(region).ok_or(ND_INVALID_HANDLE)?; // ND1 DER-3
        call::at_once(&self.file, overlapped, || {
            self.nic.raw.deregister(token).map_err(|e| nd1(e.status))?; // ND1 DER-1
            regions.by_handle.remove(&region);
            drop(regions);
            Ok(())
        })
    }

    fn create_memory_window(
        self: &Arc<Self>,
        invalidated: OutPtr<NdResult>,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        if invalidated.is_null() {
            return Err(ND_INVALID_PARAMETER_1); // ND1 15.19
        }
        self.nic.present().map_err(nd1)?;
        Object::give(Window::new(self, invalidated.address()), IID_INDMemoryWindow, out)
    }

    fn create_connector(self: &Arc<Self>, out: OutPtr<usize>) -> Outcome {
        let out = out.emptied();
        Object::give(Connector::new(self)?, IID_INDConnector, out)
    }

    fn listen(
        self: &Arc<Self>,
        backlog: usize,
        protocol: i32,
        port: u16,
        assigned: OutPtr<u16>,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let space = Space::of(protocol).ok_or(ND_INVALID_PARAMETER_2)?;
        if port == 0 && assigned.is_null() {
            return Err(ND_INVALID_PARAMETER_MIX);
        }
        let listen = Listen::new(self, backlog, space, u16::from_be(port))?;
        assigned.put(listen.port()?.to_be());
        Object::give(listen, IID_INDListen, out)
    }
}
