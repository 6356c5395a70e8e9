//! INDCompletionQueue (ND1 9).

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use transom_engine::{Completion, CompletionFlags, CompletionKind, NotifyKind};
use transom_memory::{QueuePairId, Token};

use super::{Adapter, Cancel, Endpoint};
use crate::abi::*;
use crate::call;
use crate::com::{Alive, OutPtr, class};
use crate::explain::Explain;
use crate::guid::{Guid, IID_INDCompletionQueue, IID_INDOverlapped, IID_ITransomExplain};
use crate::os::{OverlappedPtr, lock};
use crate::queue::{Queue, notify_kind};
use crate::status::*;
use crate::table::nd1;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) queue: Queue,
    inner: Mutex<Inner>,
    _alive: Alive,
}

#[derive(Debug, Default)]
struct Inner {
    /// A Receive whose window's result took the last place of a call.
    behind: Option<Completion>,
    /// The endpoints whose results arrive here.
    endpoints: HashMap<u32, Weak<Endpoint>>,
}

impl Inner {
    /// A result goes to the program. `last`: whose the one before was.
    fn retrieved(&self, completion: &Completion, last: &mut Option<Arc<Endpoint>>) {
        if last.as_ref().is_none_or(|last| last.number != completion.queue_pair) {
            *last = self.endpoints.get(&completion.queue_pair.0).and_then(Weak::upgrade);
        }
        if let Some(endpoint) = last
            && completion.kind == CompletionKind::Receive
        {
            endpoint.heard(); // one that failed has ended the connection
        }
    }
}

class!(CompletionQueue, [IID_INDCompletionQueue, IID_INDOverlapped], {
    fn cancel_overlapped_requests() -> i32;
    fn get_overlapped_result(overlapped: OverlappedPtr, bytes: OutPtr<usize>, wait: i32) -> i32;
    fn resize(entries: usize) -> i32;
    fn notify(kind: u32, overlapped: OverlappedPtr) -> i32;
    fn get_results(results: OutPtr<usize>, count: usize) -> usize;
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

impl CompletionQueue {
    pub(crate) fn new(adapter: &Arc<Adapter>, entries: usize) -> Result<Arc<CompletionQueue>, i32> {
        let queue = Queue::new(&adapter.nic, entries, nd1)?;
        Ok(adapter.adopt(Arc::new(CompletionQueue {
            adapter: adapter.clone(),
            queue,
            inner: Mutex::default(),
            _alive: Alive::new(),
        })))
    }

    /// `endpoint`'s results arrive here.
    pub(crate) fn serve(&self, number: QueuePairId, endpoint: &Arc<Endpoint>) {
        let mut inner = lock(&self.inner);
        if inner.endpoints.len() == inner.endpoints.capacity() {
            inner.endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
            let more = inner.endpoints.len() + 1; // so that the next time is far off
            inner.endpoints.reserve(more);
        }
        inner.endpoints.insert(number.0, Arc::downgrade(endpoint));
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
        bytes.put(0);
        self.queue.overlapped_result(overlapped, wait != 0)
    }

    fn resize(self: &Arc<Self>, entries: usize) -> Outcome {
        self.queue.resize(entries)
    }

    fn notify(self: &Arc<Self>, kind: u32, overlapped: OverlappedPtr) -> Outcome {
        let kind = notify_kind(kind)?;
        if kind != NotifyKind::Errors && lock(&self.inner).behind.is_some() {
            // A result was taken from the engine, and the program has not seen it.
            return call::at_once(&self.adapter.file, overlapped, || Ok(()));
        }
        self.queue.notify(&self.adapter.nic, &self.adapter.file, kind, overlapped)
    }

    fn get_results(self: &Arc<Self>, results: OutPtr<usize>, count: usize) -> usize {
        if results.is_null() {
            return 0;
        }
        let mut last = None; // dropped behind the lock: it may be the endpoint's end
        let mut inner = lock(&self.inner);
        let mut done = 0;
        while done < count {
            let completion = match inner.behind.take() {
                Some(completion) => completion,
                None => {
                    let mut one = [Completion::BLANK];
                    if self.queue.poll(&self.adapter.nic, &mut one) == 0 {
                        break;
                    }
                    let [completion] = one;
                    // The window's own result comes right before the Receive that carried the
                    // invalidation (ND1 15.11).
                    if completion.flags.contains(CompletionFlags::INVALIDATED)
                        && let Some(window) = self.adapter.window(Token(completion.value))
                    {
                        put_result(window.invalidated, ND_SUCCESS, 0);
                        results.put_at(done, window.invalidated);
                        done += 1;
                        inner.behind = Some(completion);
                        continue;
                    }
                    completion
                }
            };
            inner.retrieved(&completion, &mut last);
            let result = completion.request_context as usize;
            put_result(result, nd1(completion.status), completion.length as usize);
            results.put_at(done, result);
            done += 1;
        }
        done
    }
}

impl Cancel for CompletionQueue {
    fn cancel(&self) -> Outcome {
        self.queue.raw.cancel();
        Ok(ND_SUCCESS)
    }
}

/// Fill the program's ND_RESULT; the last time it is touched (ND1 CQ-4).
fn put_result(result: usize, status: i32, bytes_transferred: usize) {
    OutPtr::<NdResult>::at(result).put(NdResult { status, bytes_transferred });
}
