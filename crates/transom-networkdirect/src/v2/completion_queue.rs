//! IND2CompletionQueue (ND2 2.6, 4.4).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use transom_engine::{Completion, CompletionKind, NotifyKind, raw};

use super::Adapter;
use crate::abi::*;
use crate::com::{Alive, OutPtr, class};
use crate::explain;
use crate::guid::{Guid, IID_IND2CompletionQueue, IID_IND2Overlapped, IID_ITransomExplain};
use crate::limits;
use crate::notified::Notified;
use crate::os::{File, OverlappedPtr};
use crate::status::*;
use crate::table::nd2;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::CompletionQueue,
    file: Arc<File>,
    group: u16,
    affinity: usize,
    notified: Notified,
    last: explain::Last,
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
        this.raw.cancel();
    }

    fn tear_off(this: &Arc<CompletionQueue>, iid: Guid) -> Option<NonNull<c_void>> {
        let this = this.clone();
        (iid == IID_ITransomExplain)
            .then(|| explain::Explain::give(move || this.last.text(&this.adapter.nic.raw)))
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
        let raw = adapter.nic.raw.completion_queue(depth as usize).map_err(|e| nd2(e.status))?;
        Ok(Arc::new(CompletionQueue {
            adapter: adapter.clone(),
            raw,
            file,
            group,
            affinity,
            notified: Notified::default(),
            last: explain::Last::default(),
            _alive: Alive::new(),
        }))
    }

    fn cancel_overlapped_requests(self: &Arc<Self>) -> Outcome {
        self.raw.cancel();
        Ok(ND_SUCCESS)
    }

    fn get_overlapped_result(self: &Arc<Self>, overlapped: OverlappedPtr, wait: i32) -> Outcome {
        match self.notified.wait(overlapped, wait != 0, &self.raw) {
            Some(status) if status >= 0 => Ok(status),
            Some(status) => Err(status),
            None => Err(ND_INVALID_PARAMETER_1),
        }
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
        if depth == 0 || depth > limits::COMPLETION_QUEUE_DEPTH {
            return Err(ND_INVALID_PARAMETER);
        }
        self.raw.resize(depth as usize).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn notify(self: &Arc<Self>, kind: u32, overlapped: OverlappedPtr) -> Outcome {
        let kind = match kind {
            NOTIFY_ANY => NotifyKind::Any,
            NOTIFY_SOLICITED => NotifyKind::Solicited,
            NOTIFY_ERRORS => NotifyKind::Errors,
            _ => return Err(ND_INVALID_PARAMETER_1),
        };
        let (started, finisher) = self.file.begin(overlapped)?;
        let over = self.notified.begin(overlapped);
        let sink = raw::Sink::call(move |status| {
            over();
            finisher.finish(nd2(status));
        });
        let asked = Notified::ask(&self.adapter.nic, &self.raw, kind, sink);
        Ok(started.answer(asked.map_err(nd2)))
    }

    fn get_results(self: &Arc<Self>, results: OutPtr<Nd2Result>, count: u32) -> u32 {
        if results.is_null() {
            return 0;
        }
        let mut done = 0;
        let mut batch = [Completion::BLANK; BATCH];
        while done < count as usize {
            let room = BATCH.min(count as usize - done);
            let got = self.raw.poll(batch.get_mut(..room).unwrap_or_default());
            for completion in batch.iter().take(got) {
                self.last.note(&self.adapter.nic.raw, completion);
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
        CompletionKind::Receive => 0,
        CompletionKind::Send | CompletionKind::FastRegister | CompletionKind::Other => 1,
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
