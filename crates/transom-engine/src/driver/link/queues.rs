//! The queue pair that a link works on, as the link knows it.

use std::fmt::Debug;

use transom_memory::QueuePairId;

use super::Link;
use super::notifications::Notifications;
use crate::{Completion, Effect, Execution, SharedReceives, Side};

/// A queue pair's queues at one moment: places taken, and places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuesOverview {
    pub(crate) requests: (u32, u32),
    pub(crate) receives: (u32, u32),
}

/// A queue pair and its completion queues. Every call is made under the link's lock, except the last two.
pub(crate) trait Queues: Debug + Send + Sync {
    /// The queue pair's number.
    fn number(&self) -> QueuePairId;

    /// How often it has begun anew.
    fn resets(&self) -> u64;

    /// Whether posts wait in front of the link.
    fn is_waiting(&self) -> bool;

    /// Carry new posts over to `execution`.
    fn carry(&self, execution: &mut Execution);

    /// How full its queues are.
    fn overview(&self) -> QueuesOverview;

    /// The shared receive queue, if the queue pair uses one.
    fn shared_receives(&self) -> Option<&dyn SharedReceives>;

    /// Queue a batch that is nothing but completions.
    fn complete_batch(&self, batch: &mut Vec<Effect>, notifications: &mut Notifications);

    /// Queue one completion. [`Queues::finish_batch`] follows the batch.
    fn complete(&self, side: Side, completion: Completion);

    /// Threads that sleep on the completion queues look again at what to wait for.
    fn look_again(&self);

    /// Those that sleep on the queue of requests look again: some were settled.
    fn settled(&self);

    /// `link` makes no more passes for the queue pair.
    fn leave(&self, link: &Link);

    /// Collect what the completions of a batch have triggered.
    fn finish_batch(&self, notifications: &mut Notifications);

    /// Give the executing half back. What was posted behind the end completes.
    fn reclaim(&self, execution: Execution, notifications: &mut Notifications);
}
