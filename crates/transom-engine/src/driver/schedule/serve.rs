//! A thread of the program that serves the links of an adapter that are ready, or waits for them.

use std::sync::Arc;

use super::shared::Shared;
use crate::sys::{self, Fd};

/// Links of one round.
const BATCH: usize = 64;

impl Shared {
    /// Serve the links that are ready, for a thread of the program that polls.
    pub(crate) fn serve(&self) {
        self.ready_set.lease(self.ready_set_alarm());
        self.ready_set.arm_served();
        let mut ready = [0; BATCH];
        let count = self.epoll.look(&mut ready);
        if count == 0 {
            return;
        }
        self.are_ready(ready.iter().take(count).copied());
        let now = sys::now();
        for key in ready.into_iter().take(count) {
            match self.source(key) {
                Some(source) => {
                    if source.serve(now) {
                        self.ready_set.push(source);
                    }
                }
                None => self.ready(key, now),
            }
        }
        // The lease may have lapsed before the last of them came to the list.
        self.ready_set.lease(self.ready_set_alarm());
    }

    /// This thread is going to wait for the links.
    pub(crate) fn wait_for_ready_set(self: &Arc<Shared>) -> ReadySetWaiter {
        self.ready_set.join();
        self.serve();
        self.ready_set.arm_served();
        ReadySetWaiter(self.clone())
    }
}

/// A thread that waits for the links.
pub(crate) struct ReadySetWaiter(Arc<Shared>);

impl ReadySetWaiter {
    /// The descriptor of the set.
    pub(crate) fn fd(&self) -> &Fd {
        self.0.epoll.fd()
    }
}

impl Drop for ReadySetWaiter {
    fn drop(&mut self) {
        self.0.ready_set.leave(self.0.ready_set_alarm());
    }
}
