//! The common part of both versions' completion queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use transom_engine::{Completion, NotifyKind, Status, raw};

use crate::abi::{NOTIFY_ANY, NOTIFY_ERRORS, NOTIFY_SOLICITED};
use crate::call::{Table, outcome};
use crate::explain::Last;
use crate::limits;
use crate::nic::Nic;
use crate::os::{File, OverlappedPtr, result_of};
use crate::status::*;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) raw: raw::CompletionQueue,
    table: Table,
    /// The OVERLAPPED of the latest notification, while it is outstanding.
    notified: Arc<AtomicUsize>,
    last: Last,
}

/// The event that a notification waits for, by the number in the call.
pub(crate) fn notify_kind(kind: u32) -> Result<NotifyKind, i32> {
    match kind {
        NOTIFY_ANY => Ok(NotifyKind::Any),
        NOTIFY_SOLICITED => Ok(NotifyKind::Solicited),
        NOTIFY_ERRORS => Ok(NotifyKind::Errors),
        _ => Err(ND_INVALID_PARAMETER_1),
    }
}

impl Queue {
    pub(crate) fn new(nic: &Nic, depth: usize, table: Table) -> Result<Queue, i32> {
        let raw = nic.raw.completion_queue(depth).map_err(|e| table(e.status))?;
        Ok(Queue { raw, table, notified: Arc::default(), last: Last::default() })
    }

    /// Retrieve completions; how many.
    pub(crate) fn poll(&self, nic: &Nic, results: &mut [Completion]) -> usize {
        let found = self.raw.poll(results);
        for completion in results.iter().take(found) {
            self.last.note(&nic.raw, completion);
        }
        found
    }

    /// Why the last failed completion that was retrieved was refused.
    pub(crate) fn last_refusal(&self, nic: &Nic) -> Option<String> {
        self.last.text(&nic.raw)
    }

    pub(crate) fn resize(&self, depth: usize) -> Outcome {
        if depth == 0 || depth > limits::COMPLETION_QUEUE_DEPTH as usize {
            return Err(ND_INVALID_PARAMETER);
        }
        self.raw.resize(depth).map_err(|e| (self.table)(e.status))?;
        Ok(ND_SUCCESS)
    }

    pub(crate) fn notify(
        &self,
        nic: &Nic,
        file: &Arc<File>,
        kind: NotifyKind,
        overlapped: OverlappedPtr,
    ) -> Outcome {
        let (started, finisher) = file.begin(overlapped)?;
        let (latest, address, table) = (self.notified.clone(), overlapped.address(), self.table);
        latest.store(address, Ordering::Release);
        let sink = raw::Sink::call(move |status| {
            let _ = latest.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
            finisher.finish(table(status));
        });
        Ok(started.answer(self.ask(nic, kind, sink).map_err(table)))
    }

    fn ask(&self, nic: &Nic, kind: NotifyKind, sink: raw::Sink) -> Result<(), Status> {
        nic.present()?;
        self.raw.notify(kind, sink).map_err(|e| e.status)?;
        // The removal of a device ends what was asked before it. Requests behind it end here.
        if nic.present().is_err() {
            self.raw.cancel();
        }
        Ok(())
    }

    /// GetOverlappedResult. A thread that waits for the queue's notification moves the bytes itself
    /// meanwhile: no other thread has to be woken first to wake it.
    pub(crate) fn overlapped_result(&self, overlapped: OverlappedPtr, wait: bool) -> Outcome {
        outcome(result_of(overlapped, wait, |pending| {
            // Any other request does not end with this queue's news.
            if self.notified.load(Ordering::Acquire) == overlapped.address() {
                let _ = self.raw.wait_until(None, &|| !pending());
            }
        }))
    }
}
