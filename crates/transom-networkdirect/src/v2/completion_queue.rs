//! IND2CompletionQueue (ND2 2.6, 4.4).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use transom_engine::{Completion, CompletionKind};

use super::Adapter;
use crate::abi::*;
use crate::com::{Alive, OutPtr, class};
use crate::explain::Explain;
use crate::guid::{Guid, IID_IND2CompletionQueue, IID_IND2Overlapped, IID_ITransomExplain};
use crate::os::{File, OverlappedPtr};
use crate::queue::{Queue, notify_kind};
use crate::status::*;
use crate::table::nd2;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) queue: Queue,
    file: Arc<File>,
    group: u16,
    affinity: usize,
    _alive: Alive,
}

class!(CompletionQueue, [IID_IND2CompletionQueue, IID_IND2Overlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, wait: i32) -> i32;
    fn get_notify_affinity(group: OutPtr<u16>, affinity: OutPtr<usize>) -> i32;
    fn resize(depth: u32) -> i32;
    fn notify(kind: u32, overlapped: OverlappedPtr) -> i32;
    fn get_results(results: OutPtr<Nd2Result>, count: u32) -> u32;
}
    fn released(this: &Arc<CompletionQueue>) {
        this.queue.raw.cancel();
    }

    fn tear_off(this: &Arc<CompletionQueue>, iid: Guid) -> Option<NonNull<c_void>> {
        let this = this.clone();
        (iid == IID_ITransomExplain)
            .then(|| Explain::give(move || this.queue.last_refusal(&this.adapter.nic)))
    }
);

/// Completions moved at a time.
const BATCH: usize = 16;

impl CompletionQueue {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        file: Arc<File>,
        depth: u32,
        group: u16,
        affinity: usize,
    ) -> Result<Arc<CompletionQueue>, i32> {
        let queue = Queue::new(&adapter.nic, depth as usize, nd2)?;
        Ok(Arc::new(CompletionQueue {
            adapter: adapter.clone(),
            queue,
            file,
            group,
            affinity,
            _alive: Alive::new(),
        }))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.queue.raw.cancel();
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        self.queue.overlapped_result(overlapped, wait != 0)
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

    fn resize(self: &Arc<Self>, depth: u32) -> Outcome {
        self.queue.resize(depth as usize)
    }

    fn notify(self: &Arc<Self>, kind: u32, overlapped: OverlappedPtr) -> Outcome {
        let kind = notify_kind(kind)?;
        self.queue.notify(&self.adapter.nic, &self.file, kind, overlapped)
    }

    fn get_results(self: &Arc<Self>, results: OutPtr<Nd2Result>, count: u32) -> u32 {
        if results.is_null() {
            return 0;
        }
        let mut done = 0;
        let mut batch = [Completion::BLANK; BATCH];
        while done < count as usize {
            let room = BATCH.min(count as usize - done);
            let into = batch.get_mut(..room).unwrap_or_default();
            let got = self.queue.poll(&self.adapter.nic, into);
            for completion in batch.iter().take(got) {
                results.put_at(done, result_of(completion));
                done += 1;
            }
            if got < room {
                break;
            }
        }
        done as u32
    }
}

/// As version 2 sees a completion.
fn result_of(completion: &Completion) -> Nd2Result {
    let request_type = match completion.kind {
        CompletionKind::Receive | CompletionKind::ReceiveWrite => 0,
        // No request of this interface is an atomic.
        CompletionKind::Send
        | CompletionKind::FastRegister
        | CompletionKind::CompareSwap
        | CompletionKind::FetchAdd
        | CompletionKind::Other => 1,
        CompletionKind::Bind => 2,
        CompletionKind::Invalidate => 3,
        CompletionKind::Read => 4,
        CompletionKind::Write => 5,
    };
    Nd2Result {
        status: nd2(completion.status),
        bytes_transferred: completion.length,
        queue_pair_context: completion.queue_pair_context as usize,
        request_context: completion.request_context as usize,
        request_type,
    }
}
