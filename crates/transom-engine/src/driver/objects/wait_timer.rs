//! The timer of a completion queue whose notifications are held back.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use transom_wire::Time;

use super::cq::{Cq, WaitTimer};
use crate::Status;
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::Source;
use crate::sys;

/// The schedule's view of a queue.
#[derive(Debug)]
struct Waiting {
    key: u64,
    cq: Weak<Cq>,
    shared: Weak<Shared>,
    /// The end of the newest wait.
    until: Mutex<Time>,
}

impl Source for Waiting {
    fn ready(self: Arc<Self>, _now: Time) {}

    fn due(self: Arc<Self>, now: Time) {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        // A wait that ended early leaves its moment behind.
        if now < until {
            if let Some(shared) = self.shared.upgrade() {
                shared.note(self.key, until);
            }
        } else if let Some(cq) = self.cq.upgrade() {
            cq.end_wait();
        }
    }

    fn serve(&self, _now: Time) -> bool {
        false // no descriptor
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, _status: Status) {}

    fn end(&self, _status: Status) {}
}

/// The queue's end of it: the schedule forgets a queue that has gone.
#[derive(Debug)]
struct Timer(Arc<Waiting>);

impl WaitTimer for Timer {
    fn begin(&self, wait: Duration) {
        let Some(shared) = self.0.shared.upgrade() else { return };
        let until = sys::now().after(wait);
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        shared.note(self.0.key, until);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(shared) = self.0.shared.upgrade()
            && !shared.is_foreign()
        {
            shared.remove(self.0.key);
        }
    }
}

/// A timer for `cq`.
pub(crate) fn new(shared: &Arc<Shared>, cq: &Arc<Cq>) -> Box<dyn WaitTimer> {
    let waiting = Arc::new(Waiting {
        key: shared.new_key(),
        cq: Arc::downgrade(cq),
        shared: Arc::downgrade(shared),
        until: Mutex::new(Time(0)),
    });
    shared.add_timer(waiting.key, waiting.clone());
    Box::new(Timer(waiting))
}
