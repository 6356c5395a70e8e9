//! A thread that waits for a completion queue's notification moves the bytes itself meanwhile: no
//! other thread has to be woken first to wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use transom_engine::{NotifyKind, Status, raw};

use crate::nic::Nic;
use crate::os::{OverlappedPtr, result_of};

/// The OVERLAPPED of a queue's latest notification, while it is outstanding.
#[derive(Debug, Default)]
pub(crate) struct Notified(Arc<AtomicUsize>);

impl Notified {
    /// A notification begins; what is returned is to be called when it is over.
    pub(crate) fn begin(&self, overlapped: OverlappedPtr) -> impl FnOnce() + Send + use<> {
        let (latest, address) = (self.0.clone(), overlapped.address());
        latest.store(address, Ordering::Release);
        move || {
            let _ = latest.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Notify, asked of the queue.
    pub(crate) fn ask(
        nic: &Nic,
        queue: &raw::CompletionQueue,
        kind: NotifyKind,
        sink: raw::Sink,
    ) -> Result<(), Status> {
        nic.present()?;
        queue.notify(kind, sink).map_err(|e| e.status)?;
        // The removal of a device ends what was asked before it. What was asked behind it ends here.
        if nic.present().is_err() {
            queue.cancel();
        }
        Ok(())
    }

    /// GetOverlappedResult, asked of the queue.
    pub(crate) fn wait(
        &self,
        overlapped: OverlappedPtr,
        wait: bool,
        queue: &raw::CompletionQueue,
    ) -> Option<i32> {
        result_of(overlapped, wait, |pending| {
            // Any other request does not end with this queue's news.
            if self.0.load(Ordering::Acquire) == overlapped.address() {
                let _ = queue.wait_until(None, &|| !pending());
            }
        })
    }
}
