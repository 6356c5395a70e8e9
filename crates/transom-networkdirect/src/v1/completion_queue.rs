//! INDCompletionQueue (ND1 9).

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use transom_engine::{Completion, CompletionFlags, CompletionKind, NotifyKind, raw};
use transom_memory::{QueuePairId, Token};

use super::{Adapter, Cancel, Endpoint};
use crate::abi::*;
use crate::com::{Alive, OutPtr, class};
use crate::guid::{Guid, IID_INDCompletionQueue, IID_INDOverlapped, IID_ITransomExplain};
use crate::notified::Notified;
use crate::os::{OverlappedPtr, lock};
use crate::status::*;
use crate::table::nd1;
use crate::{explain, limits};

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::CompletionQueue,
    inner: Mutex<Inner>,
    notified: Notified,
    last: explain::Last,
    _alive: Alive,
}

#[derive(Debug, Default)]
struct Inner {
    /// A Receive whose window's result took the last place of a call.
    behind: Option<Completion>,
    /// Whose results arrive here.
    endpoints: HashMap<u32, Weak<Endpoint>>,
}

impl Inner {
    /// A result goes to the program: its place is free (ND1 EP-8). `last`: whose the one before was.
    fn retrieved(&self, completion: &Completion, last: &mut Option<Arc<Endpoint>>) {
        if last.as_ref().is_none_or(|last| last.number != completion.queue_pair) {
            *last = self.endpoints.get(&completion.queue_pair.0).and_then(Weak::upgrade);
        }
        if let Some(endpoint) = last {
            endpoint.raw.retrieved(completion.kind == CompletionKind::Receive);
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
        this.raw.cancel();
    }

    fn tear_off(this: &Arc<CompletionQueue>, iid: Guid) -> Option<NonNull<c_void>> {
        let this = this.clone();
        (iid == IID_ITransomExplain)
            .then(|| explain::Explain::give(move || this.last.text(&this.adapter.nic.raw)))
    }
);

impl CompletionQueue {
    pub(crate) fn new(adapter: &Arc<Adapter>, entries: usize) -> Result<Arc<CompletionQueue>, i32> {
        let raw = adapter.nic.raw.completion_queue(entries).map_err(|e| nd1(e.status))?;
        Ok(adapter.adopt(Arc::new(CompletionQueue {
            adapter: adapter.clone(),
            raw,
            inner: Mutex::default(),
            notified: Notified::default(),
            last: explain::Last::default(),
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
        match self.notified.wait(overlapped, wait != 0, &self.raw) {
            Some(status) if status >= 0 => Ok(status),
            Some(status) => Err(status),
            None => Err(ND_INVALID_PARAMETER_1),
        }
    }

    fn resize(self: &Arc<Self>, entries: usize) -> Outcome {
        if entries == 0 || entries > limits::COMPLETION_QUEUE_DEPTH as usize {
            return Err(ND_INVALID_PARAMETER);
        }
        self.raw.resize(entries).map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn notify(self: &Arc<Self>, kind: u32, overlapped: OverlappedPtr) -> Outcome {
        let kind = match kind {
            NOTIFY_ANY => NotifyKind::Any,
            NOTIFY_SOLICITED => NotifyKind::Solicited,
            NOTIFY_ERRORS => NotifyKind::Errors,
            _ => return Err(ND_INVALID_PARAMETER_1),
        };
        let (started, finisher) = self.adapter.file.begin(overlapped)?;
        if kind != NotifyKind::Errors && lock(&self.inner).behind.is_some() {
            finisher.finish(ND_SUCCESS); // taken from the engine, and not seen by the program
            return Ok(started.answer(Ok(())));
        }
        let over = self.notified.begin(overlapped);
        let sink = raw::Sink::call(move |status| {
            over();
            finisher.finish(nd1(status));
        });
        let asked = Notified::ask(&self.adapter.nic, &self.raw, kind, sink);
        Ok(started.answer(asked.map_err(nd1)))
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
                    if self.raw.poll(&mut one) == 0 {
                        break;
                    }
                    let [completion] = one;
                    self.last.note(&self.adapter.nic.raw, &completion);
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
        self.raw.cancel();
        Ok(ND_SUCCESS)
    }
}

/// Fill the program's ND_RESULT; the last time it is touched (ND1 CQ-4).
fn put_result(result: usize, status: i32, bytes_transferred: usize) {
    OutPtr::<NdResult>::at(result).put(NdResult { status, bytes_transferred });
}
