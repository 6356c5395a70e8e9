//! The end of an adapter whose address has gone from this machine (ND2 4.5, "device removed"): its
//! listeners and connections end, and with them whatever waits, so that nothing waits for ever.
//! Calls that clean up still work, and completions can still be retrieved.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::source::Source;
use crate::Status;
use crate::sys::AddressWatch;

/// The system could not say whether the address is there, because it is out of something.
const AGAIN: Duration = Duration::from_secs(1);

/// An object with outstanding notifications that no listener or connection ends.
pub(crate) trait Notifies: Send + Sync + std::fmt::Debug {
    /// The adapter has gone: end every notification, and have blocked threads look.
    fn removed(&self);
}

/// The address that an adapter hangs on, and the queues of that adapter.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    watch: Option<AddressWatch>,
    queues: Mutex<Vec<Weak<dyn Notifies>>>,
    /// The address has gone.
    over: AtomicBool,
}

impl Removal {
    pub(crate) fn new(watch: Option<AddressWatch>) -> Removal {
        Removal { watch, ..Removal::default() }
    }

    /// The watch of the address, if there is one: without it nobody learns that the address has gone.
    pub(crate) fn watch(&self) -> Option<&AddressWatch> {
        self.watch.as_ref()
    }

    /// Whether the address has gone.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// End the notifications of a queue when the address goes.
    pub(crate) fn add_queue<Q: Notifies + 'static>(&self, queue: &Arc<Q>) {
        let weak = Arc::downgrade(queue);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // Room is made instead of growing where queues have gone.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(weak);
        drop(queues);
        if self.is_over() {
            queue.removed();
        }
    }

    /// The background thread: the watch is readable. `true`: addresses have changed.
    pub(crate) fn has_news(&self) -> bool {
        self.watch.as_ref().is_some_and(AddressWatch::read_messages)
    }

    /// Ask whether the address is there, and end everything if not. `Some`: the system could not say;
    /// ask again after so long.
    pub(crate) fn check(&self, sources: impl Fn() -> Vec<Arc<dyn Source>>) -> Option<Duration> {
        match self.watch.as_ref()?.is_gone() {
            Ok(true) if !self.is_over() => self.end_for_good(sources),
            Ok(_) => {}
            Err(_) => return Some(AGAIN),
        }
        None
    }

    fn end_for_good(&self, sources: impl Fn() -> Vec<Arc<dyn Source>>) {
        self.over.store(true, Ordering::Release);
        for source in sources() {
            source.stop_accepting(Status::DeviceRemoved);
        }
        for source in sources() {
            source.end(Status::DeviceRemoved);
        }
        // After the links, so that the completions of their ends can be retrieved from the
        // callbacks here.
        let queues = {
            let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.clone()
        };
        for queue in queues.iter().filter_map(Weak::upgrade) {
            queue.removed();
        }
    }
}
