//! A completion queue and a thread that sleeps on it. `tests/cq_loom.rs` has the interleavings.

use std::sync::Arc;

use super::cq::Cq;
use super::notifications::Notifications;
use crate::{Capacity, Completion};

/// A waiter of one of two queues sleeps on while only the other queue gets completions.
#[test]
fn a_thread_sleeps_on_while_there_is_nothing_for_it() {
    let queue = Arc::new(Cq::new(4, Capacity::Exact));
    let bell = queue.sleeper();
    queue.add_all(std::iter::empty(), &mut Notifications::default());
    assert!(!bell.silence(), "woken for nothing");
    queue.add_all(std::iter::once(Completion::default()), &mut Notifications::default());
    assert!(bell.silence());
}
