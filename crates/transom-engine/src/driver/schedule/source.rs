//! The objects of an adapter that its threads serve, as epoll, timers and shared queues know them.

use std::any::Any;
use std::sync::Arc;

use transom_wire::Time;

use crate::Status;

/// A link or a listener: what epoll and timers know by a key.
pub(crate) trait Source: Any + std::fmt::Debug + Send + Sync {
    /// The background thread: the descriptor is ready, or it is time to look.
    fn ready(self: Arc<Self>, now: Time);

    /// The background thread: a time that was noted has come.
    fn due(self: Arc<Self>, now: Time);

    /// The descriptor is ready, and a thread of the program polls. `true`: [`Source::finish_served`]
    /// follows soon.
    fn serve(&self, now: Time) -> bool;

    /// Finish what [`Source::serve`] has put off: acknowledge, take posts over, arm.
    fn finish_served(&self);

    /// The background thread has served it and goes on looking: the peer need not wake it. `false`: it is not
    /// one to look at.
    fn stay_awake(&self) -> bool {
        false
    }

    /// The background thread looks again, at `now`.
    fn look_on(&self, _now: Time) -> Looked {
        Looked::NotHere
    }

    /// The background thread looks no more: descriptors wake it again.
    fn rest(&self) {}

    /// The adapter ends for good: take no more connections.
    fn stop_accepting(self: Arc<Self>, status: Status);

    /// The adapter ends for good: end the connection, behind every [`Source::stop_accepting`].
    fn end(&self, status: Status);
}

/// A queue pair that may wait for a receive of a shared queue.
pub(crate) trait ReceiveWaiter: Send + Sync {
    /// There are receives again: run its link.
    fn receives_posted(&self);
}

/// The outcome of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Nothing has come, and nothing was due.
    InVain,
    /// A pass was made, whatever has come.
    Passed,
    /// Something has come, and was taken.
    Found,
    /// Another thread looks at it, or it is gone.
    NotHere,
}
