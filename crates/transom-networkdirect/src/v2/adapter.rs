//! IND2Adapter (ND2 2.5).

use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use transom_engine::dialect;

use super::{CompletionQueue, Connector, Listener, QueuePair, Region, SharedQueue, Window};
use crate::abi::*;
use crate::com::{Alive, AnyPtr, InPtr, Object, OutPtr, class};
use crate::guid::{Guid, IID_IND2Adapter};
use crate::marshal::within;
use crate::names::Names;
use crate::nic::Nic;
use crate::os::{File, Handle};
use crate::status::*;
use crate::table::nd2;
use crate::{limits, list};

/// An adapter for one local address.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) nic: Nic,
    pub(crate) address: IpAddr,
    _alive: Alive,
}

class!(Adapter, [IID_IND2Adapter], {
    fn create_overlapped_file(out: OutPtr<Handle>) -> i32;
    fn query(info: OutPtr<Nd2AdapterInfo>, length: OutPtr<u32>) -> i32;
    fn query_address_list(out: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn create_completion_queue(
        iid: InPtr<Guid>,
        file: Handle,
        depth: u32,
        group: u16,
        affinity: usize,
        out: OutPtr<usize>,
    ) -> i32;
    fn create_memory_region(iid: InPtr<Guid>, file: Handle, out: OutPtr<usize>) -> i32;
    fn create_memory_window(iid: InPtr<Guid>, out: OutPtr<usize>) -> i32;
    fn create_shared_receive_queue(
        iid: InPtr<Guid>,
        file: Handle,
        depth: u32,
        max_sge: u32,
        threshold: u32,
        group: u16,
        affinity: usize,
        out: OutPtr<usize>,
    ) -> i32;
    fn create_queue_pair(
        iid: InPtr<Guid>,
        receive_queue: AnyPtr,
        initiator_queue: AnyPtr,
        context: usize,
        receive_depth: u32,
        initiator_depth: u32,
        receive_sge: u32,
        initiator_sge: u32,
        inline_size: u32,
        out: OutPtr<usize>,
    ) -> i32;
    fn create_queue_pair_with_srq(
        iid: InPtr<Guid>,
        receive_queue: AnyPtr,
        initiator_queue: AnyPtr,
        shared: AnyPtr,
        context: usize,
        initiator_depth: u32,
        initiator_sge: u32,
        inline_size: u32,
        out: OutPtr<usize>,
    ) -> i32;
    fn create_connector(iid: InPtr<Guid>, file: Handle, out: OutPtr<usize>) -> i32;
    fn create_listener(iid: InPtr<Guid>, file: Handle, out: OutPtr<usize>) -> i32;
}
    fn tear_off(this: &Arc<Adapter>, iid: Guid) -> Option<NonNull<c_void>> {
        Names::give(&this.nic.raw, iid)
    }
);

/// The parameters of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) receive_depth: u32,
    pub(crate) initiator_depth: u32,
    pub(crate) inline_size: u32,
}

fn iid_of(iid: InPtr<Guid>) -> Result<Guid, i32> {
    iid.get().ok_or(ND_INVALID_PARAMETER_1)
}

fn file_of(file: Handle) -> Result<Arc<File>, i32> {
    file.file().ok_or(ND_INVALID_HANDLE)
}

impl Adapter {
    /// Open the adapter of a local address.
    pub(crate) fn open(address: IpAddr) -> Result<Arc<Adapter>, i32> {
        let nic = Nic::open(address, &dialect::ND2).map_err(nd2)?;
        Ok(Arc::new(Adapter { nic, address, _alive: Alive::new() }))
    }

    /// Whether the device is there.
    pub(crate) fn present(&self) -> Result<(), i32> {
        self.nic.present().map_err(nd2)
    }

    fn create_overlapped_file(self: &Arc<Self>, out: OutPtr<Handle>) -> Outcome {
        self.present()?;
        if out.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        let (_, handle) = File::open().ok_or(ND_INSUFFICIENT_RESOURCES)?;
        out.put(handle);
        Ok(ND_SUCCESS)
    }

    fn query(self: &Arc<Self>, info: OutPtr<Nd2AdapterInfo>, length: OutPtr<u32>) -> Outcome {
        const NEED: u32 = size_of::<Nd2AdapterInfo>() as u32;
        let room = length.get().ok_or(ND_INVALID_PARAMETER_2)?;
        // ND2 C2: the input counts only where it can be.
        let version = OutPtr::<u32>::at(info.address()).get().filter(|_| room >= 4);
        if version.is_some_and(|v| v != ND_VERSION_2 && v != ND_VERSION_1) {
            return Err(ND_NOT_SUPPORTED);
        }
        length.put(NEED);
        if info.is_null() || room < NEED {
            return Err(ND_BUFFER_OVERFLOW);
        }
        info.put(self.info());
        Ok(ND_SUCCESS)
    }

    pub(crate) fn info(&self) -> Nd2AdapterInfo {
        let caps = self.nic.caps();
        Nd2AdapterInfo {
            info_version: ND_VERSION_2,
            vendor_id: limits::VENDOR,
            device_id: limits::DEVICE,
            adapter_id: list::adapter_id(self.address),
            max_registration_size: limits::REGION as usize,
            max_window_size: limits::REGION as usize, // ND2 C36
            max_initiator_sge: limits::SGE,
            max_receive_sge: limits::SGE,
            max_read_sge: limits::SGE,
            max_transfer_length: limits::TRANSFER,
            max_inline_data_size: limits::INLINE,
            max_inbound_read_limit: caps.reads.inbound,
            max_outbound_read_limit: caps.reads.outbound,
            max_receive_queue_depth: limits::QUEUE_DEPTH,
            max_initiator_queue_depth: limits::QUEUE_DEPTH,
            max_shared_receive_queue_depth: limits::SHARED_QUEUE_DEPTH,
            max_completion_queue_depth: limits::COMPLETION_QUEUE_DEPTH,
            inline_request_threshold: limits::INLINE_THRESHOLD,
            large_request_threshold: limits::LARGE_THRESHOLD,
            max_caller_data: caps.caller_data as u32,
            max_callee_data: caps.callee_data as u32,
            adapter_flags: ADAPTER_IN_ORDER_DMA | ADAPTER_CQ_RESIZE | ADAPTER_LOOPBACK,
        }
    }

    fn query_address_list(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        list::put(&[self.address], out, length)
    }

    fn create_completion_queue(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        file: Handle,
        depth: u32,
        group: u16,
        affinity: usize,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let (iid, file) = (iid_of(iid)?, file_of(file)?);
        if depth == 0 || depth > limits::COMPLETION_QUEUE_DEPTH {
            return Err(ND_INVALID_PARAMETER_3);
        }
        let queue = CompletionQueue::new(self, file, depth, group, affinity)?;
        Object::give(queue, iid, out)
    }

    fn create_memory_region(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        file: Handle,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let (iid, file) = (iid_of(iid)?, file_of(file)?);
        self.present()?;
        Object::give(Region::new(self, file), iid, out)
    }

    fn create_memory_window(self: &Arc<Self>, iid: InPtr<Guid>, out: OutPtr<usize>) -> Outcome {
        let out = out.emptied();
        self.present()?;
        Object::give(Window::new(self), iid_of(iid)?, out)
    }

    fn create_shared_receive_queue(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        file: Handle,
        depth: u32,
        max_sge: u32,
        threshold: u32,
        group: u16,
        affinity: usize,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let (iid, file) = (iid_of(iid)?, file_of(file)?);
        within(depth, limits::SHARED_QUEUE_DEPTH, ND_INVALID_PARAMETER_3)?;
        within(max_sge, limits::SGE, ND_INVALID_PARAMETER_4)?;
        if depth == 0 {
            return Err(ND_INVALID_PARAMETER_3);
        }
        let shared = SharedQueue::new(self, file, depth, max_sge, threshold, group, affinity)?;
        Object::give(shared, iid, out)
    }

    fn create_queue_pair(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        receive_queue: AnyPtr,
        initiator_queue: AnyPtr,
        context: usize,
        receive_depth: u32,
        initiator_depth: u32,
        receive_sge: u32,
        initiator_sge: u32,
        inline_size: u32,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let iid = iid_of(iid)?;
        let receive = receive_queue.of(self, ND_INVALID_PARAMETER_2)?;
        let initiator = initiator_queue.of(self, ND_INVALID_PARAMETER_3)?;
        within(receive_sge, limits::SGE, ND_INVALID_PARAMETER_7)?;
        within(initiator_sge, limits::SGE, ND_INVALID_PARAMETER_8)?;
        let sizes = Sizes {
            receive_depth: within(receive_depth, limits::QUEUE_DEPTH, ND_INVALID_PARAMETER_5)?,
            initiator_depth: within(initiator_depth, limits::QUEUE_DEPTH, ND_INVALID_PARAMETER_6)?,
            inline_size: within(inline_size, limits::INLINE, ND_INVALID_PARAMETER_9)?,
        };
        Object::give(QueuePair::new(self, initiator, receive, None, context, sizes)?, iid, out)
    }

    fn create_queue_pair_with_srq(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        receive_queue: AnyPtr,
        initiator_queue: AnyPtr,
        shared: AnyPtr,
        context: usize,
        initiator_depth: u32,
        initiator_sge: u32,
        inline_size: u32,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let iid = iid_of(iid)?;
        let receive = receive_queue.of(self, ND_INVALID_PARAMETER_2)?;
        let initiator = initiator_queue.of(self, ND_INVALID_PARAMETER_3)?;
        let shared = shared.of(self, ND_INVALID_PARAMETER_4)?;
        within(initiator_sge, limits::SGE, ND_INVALID_PARAMETER_7)?;
        let sizes = Sizes {
            receive_depth: 0,
            initiator_depth: within(initiator_depth, limits::QUEUE_DEPTH, ND_INVALID_PARAMETER_6)?,
            inline_size: within(inline_size, limits::INLINE, ND_INVALID_PARAMETER_8)?,
        };
        let pair = QueuePair::new(self, initiator, receive, Some(shared), context, sizes)?;
        Object::give(pair, iid, out)
    }

    fn create_connector(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        file: Handle,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let (iid, file) = (iid_of(iid)?, file_of(file)?);
        Object::give(Connector::new(self, file)?, iid, out)
    }

    fn create_listener(
        self: &Arc<Self>,
        iid: InPtr<Guid>,
        file: Handle,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let (iid, file) = (iid_of(iid)?, file_of(file)?);
        self.present()?;
        Object::give(Listener::new(self, file), iid, out)
    }
}
