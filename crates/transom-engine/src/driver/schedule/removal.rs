//! The end of an adapter whose address has gone from this machine (ND2 4.5, "device removed"): its
//! listeners and connections end, and with them whatever waits, so that nothing waits for ever.
//! Calls that clean up still work, and completions can still be retrieved.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::shared::{ADDRESS, Shared};
use crate::Status;
use crate::sys::{self, AddressWatch};

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
}

impl Removal {
    pub(crate) fn new(watch: Option<AddressWatch>) -> Removal {
        Removal { watch, queues: Mutex::default() }
    }

    pub(crate) fn watch(&self) -> Option<&AddressWatch> {
        self.watch.as_ref()
    }
}

impl Shared {
    /// Whether the adapter learns that its address has gone.
    pub(crate) fn is_watched(&self) -> bool {
        self.removal.watch().is_some()
    }

    /// Whether the address has gone. From then on, what begins while this says `false` is ended by
    /// [`Shared::end_for_good`]: it sets this before it looks for what is there.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// End the notifications of a queue when the address goes.
    pub(crate) fn add_queue<Q: Notifies + 'static>(&self, queue: &Arc<Q>) {
        let weak = Arc::downgrade(queue);
        let mut queues = self.removal.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // Room is made instead of growing where queues have gone.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(weak);
        drop(queues);
        if self.is_removed() {
            queue.removed();
        }
    }

    /// The background thread: the kernel has said something about addresses.
    pub(crate) fn addresses_changed(&self) {
        if let Some(watch) = self.removal.watch()
            && watch.read_messages()
        {
            self.check_address();
        }
    }

    /// Ask whether the address is there.
    pub(crate) fn check_address(&self) {
        let Some(watch) = self.removal.watch() else { return };
        match watch.is_gone() {
            Ok(true) if !self.is_removed() => self.end_for_good(),
            Ok(_) => {}
            Err(_) => self.note(ADDRESS, sys::now().after(AGAIN)),
        }
    }

    fn end_for_good(&self) {
        self.removed.store(true, Ordering::Release);
        for source in self.sources() {
            source.stop_accepting(Status::DeviceRemoved);
        }
        for source in self.sources() {
            source.end(Status::DeviceRemoved);
        }
        // After the links, so that the completions of their ends can be retrieved from the
        // callbacks here.
        let queues = {
            let queues = self.removal.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.clone()
        };
        for queue in queues.iter().filter_map(Weak::upgrade) {
            queue.removed();
        }
    }
}
