//! IND2SharedReceiveQueue (ND2 2.7).

use std::sync::Arc;

use transom_engine::raw;

use super::{Adapter, overlapped_result};
use crate::abi::*;
use crate::call;
use crate::com::{Alive, InPtr, OutPtr, class};
use crate::guid::{IID_IND2Overlapped, IID_IND2SharedReceiveQueue};
use crate::limits;
use crate::os::{File, OverlappedPtr};
use crate::posting::list_of;
use crate::status::*;
use crate::table::nd2;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::SharedReceiveQueue,
    file: Arc<File>,
    max_sge: usize,
    group: u16,
    affinity: usize,
    _alive: Alive,
}

class!(SharedQueue, [IID_IND2SharedReceiveQueue, IID_IND2Overlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, wait: i32) -> i32;
    fn get_notify_affinity(group: OutPtr<u16>, affinity: OutPtr<usize>) -> i32;
    fn modify(depth: u32, threshold: u32) -> i32;
    fn notify(overlapped: OverlappedPtr) -> i32;
    fn receive(context: usize, list: InPtr<Nd2Sge>, count: u32) -> i32;
}
    fn released(this: &Arc<SharedQueue>) {
        this.raw.cancel();
    }
);

impl SharedQueue {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        file: Arc<File>,
        depth: u32,
        max_sge: u32,
        threshold: u32,
        group: u16,
        affinity: usize,
    ) -> Result<Arc<SharedQueue>, i32> {
        let max_sge = max_sge as usize;
        let raw = adapter
            .nic
            .raw
            .shared_receive_queue(depth as usize, max_sge)
            .map_err(|e| nd2(e.status))?;
        raw.modify(0, threshold as usize).map_err(|e| nd2(e.status))?;
        let (adapter, _alive) = (adapter.clone(), Alive::new());
        Ok(Arc::new(SharedQueue { adapter, raw, file, max_sge, group, affinity, _alive }))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.raw.cancel();
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        overlapped_result(overlapped, wait)
    }

    fn get_notify_affinity(
        self: &Arc<Self>,
        group: OutPtr<u16>,
        affinity: OutPtr<usize>,
    ) -> Outcome {
        if group.is_null() || affinity.is_null() {
            return Err(ND_INVALID_PARAMETER);
        }
        self.adapter.present()?;
        group.put(self.group);
        affinity.put(self.affinity);
        Ok(ND_SUCCESS)
    }

    fn modify(self: &Arc<Self>, depth: u32, threshold: u32) -> Outcome {
        if depth > limits::SHARED_QUEUE_DEPTH {
            return Err(ND_INVALID_PARAMETER);
        }
        self.raw.modify(depth as usize, threshold as usize).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn notify(self: &Arc<Self>, overlapped: OverlappedPtr) -> Outcome {
        call::begin(&self.file, nd2, overlapped, |sink| self.raw.notify(sink))
    }

    fn receive(self: &Arc<Self>, context: usize, list: InPtr<Nd2Sge>, count: u32) -> Outcome {
        if count as usize > self.max_sge {
            return Err(ND_DATA_OVERRUN);
        }
        let list = list_of(list.many(count as usize))?;
        self.raw.post_receive(context as u64, list.as_slice()).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }
}
